package service

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
)

// withinParent restricts a filter to the children of a step, JOB/STEP. Their ids are next to each other, so that no index of
// parents is needed.
func (svc *Service) withinParent(ctx context.Context, parent string, f *kernel.JobFilter) error {
	ref, name, err := cutParent(parent)
	if err != nil {
		return err
	}
	id, err := svc.idOf(ctx, ref)
	if err != nil {
		return err
	}
	j, _, err := svc.Store.Job(ctx, id, 0)
	if err != nil {
		return Unreachable(err)
	}
	if j == nil {
		return perdure.Refuse(perdure.CodeNotFound, "there is no job %s", id)
	}
	shape, err := svc.Scheduler.Shape(ctx, j)
	if err != nil {
		return Unreachable(err)
	}
	index, ok := shape.Index[name]
	if !ok {
		return perdure.Refuse(perdure.CodeNotFound, "job %s has no step %s", id, name)
	}
	if shape.Steps[index].Form != kernel.ByChildren {
		return refuseParam("parent", "names step "+name+", which has no children", "a step with children has forEach or job in its definition")
	}
	_, steps, err := svc.Store.Job(ctx, id, index+1)
	if err != nil {
		return Unreachable(err)
	}
	var first perdure.JobID
	for _, s := range steps {
		if s.Index == index {
			c, err := s.Children.Read()
			if err != nil {
				return Unreachable(err)
			}
			first = c.First
		}
	}
	after, before := kernel.ChildrenRange(first) // empty if the step has not begun
	if after.Compare(f.After) > 0 {
		f.After = after
	}
	if f.Before.IsZero() || before.Compare(f.Before) < 0 {
		f.Before = before
	}
	return nil
}

// cutParent returns the two parts of JOB/STEP.
func cutParent(parent string) (job, step string, err error) {
	job, step, _ = cutLast(parent, "/")
	if job == "" || step == "" {
		return "", "", refuseParam("parent", "is not JOB/STEP", "write the job and the step, such as order-1042/resize")
	}
	return job, step, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// childrenView returns the counts of the children of a step; nil if they cannot be read.
func childrenView(s *kernel.Step) *perdure.ChildCounts {
	c, err := s.Children.Read()
	if err != nil {
		return nil
	}
	return kernel.ChildCountsOf(s, &c)
}

// maxCheckedNews is how much news of one step is compared with its children. A step with more is checked another time.
const maxCheckedNews = 100_000

// wrongChildren compares what a step records of its children with these. They may change while they are read, so that only what
// is found twice counts.
func (svc *Service) wrongChildren(ctx context.Context, s *kernel.Step, ps *kernel.PlanStep) (found []kernel.Finding, err error) {
	for range checkTries {
		now, _, err := svc.Store.Job(ctx, s.Job, 0)
		if err != nil || now == nil {
			return nil, err
		}
		before, err := svc.Store.ReadChildNews(ctx, s.StepRef, maxCheckedNews)
		if err != nil || len(before) == maxCheckedNews {
			return nil, err
		}
		children, err := svc.childrenOf(ctx, s)
		if err != nil {
			return nil, err
		}
		after, err := svc.Store.ReadChildNews(ctx, s.StepRef, maxCheckedNews)
		if err != nil {
			return nil, err
		}
		again, _, err := svc.Store.Job(ctx, s.Job, 0)
		if err != nil || again == nil {
			return nil, err
		}
		if !slices.Equal(before, after) || !again.UpdatedAt.Equal(now.UpdatedAt) {
			continue
		}
		if found = kernel.CheckChildren(s, ps, children, before); len(found) == 0 {
			return nil, nil
		}
		if !env.Sleep(svc.Env, ctx, recheckAfter) {
			return nil, nil
		}
	}
	return found, nil
}

// recheckAfter is the pause before children are compared again.
const recheckAfter = 10 * time.Millisecond

// childrenOf returns the children of a step in the order of their numbers.
func (svc *Service) childrenOf(ctx context.Context, s *kernel.Step) (all []*kernel.Job, err error) {
	c, err := s.Children.Read()
	if err != nil || c.First.IsZero() {
		return nil, nil // CheckChildren reports it
	}
	f := kernel.JobFilter{Ascending: true, Limit: checkPage}
	f.After, f.Before = kernel.ChildrenRange(c.First)
	for {
		jobs, _, err := svc.Store.ListJobs(ctx, f)
		if err != nil {
			return nil, err
		}
		if all = append(all, jobs...); len(jobs) < checkPage {
			return all, nil
		}
		f.After = jobs[len(jobs)-1].ID
	}
}
