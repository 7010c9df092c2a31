package service

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/admission"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// If other nodes may change a job, a call that waits for the job reads it after followFirst, then after twice as long,
// and so on up to followPoll. So the end of a quick job is noticed soon, and a long wait costs little.
const (
	followFirst = 20 * time.Millisecond
	followPoll  = 500 * time.Millisecond
)

// Job implements perdure.Jobs.
func (svc *Service) Job(ctx context.Context, ref string, wait time.Duration) (*perdure.JobView, error) {
	return svc.JobPart(ctx, ref, wait, operate.AllSteps)
}

// JobPart implements operate.Service.
func (svc *Service) JobPart(ctx context.Context, ref string, wait time.Duration, part operate.Steps) (*perdure.JobView, error) {
	switch part {
	case operate.AllSteps, operate.OpenSteps, operate.NoSteps:
	default:
		return nil, perdure.Refuse(perdure.CodeInvalid, "unknown part of the steps %q: use all, open or none", part)
	}
	return onceMade(ctx, svc, ref, min(wait, perdure.MaxJobWait), func(ctx context.Context, id perdure.JobID) (*perdure.JobView, error) {
		return svc.waitFor(ctx, id, wait, part)
	})
}

// waitFor returns the job when it is settled or parked, or as it is after wait. If the node stops meanwhile, it returns
// the job as it is then. If the node has stopped before, it returns an error: otherwise a caller that waits in a loop
// (perdure.Wait) would never notice.
func (svc *Service) waitFor(ctx context.Context, id perdure.JobID, wait time.Duration, part operate.Steps) (*perdure.JobView, error) {
	if wait <= 0 {
		return svc.part(ctx, id, part)
	}
	stopped := svc.Life.Err() != nil
	waiting, cancel := env.WithTimeout(svc.Env, ctx, min(wait, perdure.MaxJobWait))
	defer cancel()
	job, steps, err := svc.untilRest(waiting, id)
	stops := !stopped && errors.Is(err, ErrStopped)
	switch {
	case err != nil && waiting.Err() == nil && !stops:
		return nil, Unreachable(err)
	case ctx.Err() != nil && !errors.Is(ctx.Err(), context.Canceled):
		return nil, ctx.Err()
	}
	// A shutdown ends the wait, but the job is still read.
	answering, done := env.WithTimeout(svc.Env, context.WithoutCancel(ctx), answerTime)
	defer done()
	if job == nil {
		return svc.part(answering, id, part)
	}
	p, err := svc.picture(answering, job, steps)
	if err != nil {
		return nil, Unreachable(err)
	}
	p.part = part
	return p.whole(answering)
}

// answerTime bounds the reads for the answer after a wait.
const answerTime = 5 * time.Second

// untilRest waits until the job is settled or parked. It returns an error when ctx ends, or when the node stops.
func (svc *Service) untilRest(ctx context.Context, id perdure.JobID) (*kernel.Job, []*kernel.Step, error) {
	changed, stop := svc.Scheduler.Follow(id)
	defer stop()
	for reads := 0; ; reads++ {
		j, steps, err := svc.Store.Job(ctx, id, fewSteps)
		switch {
		case err != nil:
			return nil, nil, err
		case j == nil:
			return nil, nil, noJob(id)
		case j.AtRest():
			return j, steps, nil
		}
		if err := svc.awaitChange(ctx, changed, reads); err != nil {
			return nil, nil, err
		}
	}
}

// awaitChange waits until a job may have changed. reads is the number of reads so far that found no change.
func (svc *Service) awaitChange(ctx context.Context, changed <-chan struct{}, reads int) error {
	poll := 10 * followPoll
	if svc.Shared {
		poll = min(followFirst<<min(reads, 8), followPoll)
	}
	if svc.Life.Err() == nil && svc.Env.Wait(ctx, poll, changed) == env.Gone {
		return ctx.Err()
	}
	return context.Cause(svc.Life)
}

// idOf returns the id of the job that ref names. If ref is a complete id, it does not check that the job exists, because
// the caller reads that job anyway.
func (svc *Service) idOf(ctx context.Context, ref string) (perdure.JobID, error) {
	if id, err := perdure.ParseJobID(ref); err == nil {
		return id, nil
	}
	return svc.resolve(ctx, ref)
}

// resolve looks up the job that ref names in the store, and returns its id.
func (svc *Service) resolve(ctx context.Context, ref string) (id perdure.JobID, err error) {
	if ref == "@latest" {
		jobs, _, err := svc.Store.ListJobs(ctx, kernel.JobFilter{Limit: 1})
		if err != nil {
			return id, Unreachable(err)
		}
		if len(jobs) == 0 {
			return id, perdure.Refuse(perdure.CodeNotFound, "there are no jobs yet")
		}
		return svc.top(ctx, jobs[0])
	}
	ids, err := svc.Store.FindJobs(ctx, ref, 2)
	switch {
	case err != nil:
		return id, Unreachable(err)
	case len(ids) == 0:
		return id, perdure.Refuse(perdure.CodeNotFound, "there is no job %q", ref)
	case len(ids) > 1:
		return id, perdure.Refuse(perdure.CodeConflict, "%q is the start of more than one job's id: %s, %s, …", ref, ids[0], ids[1])
	}
	return ids[0], nil
}

// top returns the id of the job at the top of the parents of a job: the job itself, if it is no child.
func (svc *Service) top(ctx context.Context, j *kernel.Job) (perdure.JobID, error) {
	for range kernel.MaxChildDepth {
		parts, child := j.Parent.Parts()
		if !child {
			break
		}
		parent, _, err := svc.Store.Job(ctx, parts.Job, 0)
		if err != nil {
			return j.ID, Unreachable(err)
		}
		if parent == nil {
			break
		}
		j = parent
	}
	return j.ID, nil
}

var errCursor = refuseParam("cursor", "is not one that this list has given", "pass nextCursor of the page before, or leave it out for the first page")

// refuseParam refuses a field of the query of a list, with the place that it has in REST.
func refuseParam(name, message, hint string) error {
	return &perdure.Error{Code: perdure.CodeInvalid, Message: name + " " + message, Hint: hint,
		Fields: []perdure.FieldError{{Pointer: "/query/" + name, Message: message, Hint: hint}}}
}

// numberedList is a list whose rows have numbers. Its cursors begin with its letter, so that no list accepts those of another.
type numberedList string

const (
	alertList    numberedList = "a"
	auditList    numberedList = "u"
	deliveryList numberedList = "d"
	historyList  numberedList = "h"
	refusalList  numberedList = "r"
)

// cursor returns the cursor of a page that ends at a row.
func (l numberedList) cursor(row int64) string { return string(l) + strconv.FormatInt(row, 36) }

// position returns the number of the row at which a page ends, from its cursor; 0 without a cursor.
func (l numberedList) position(cursor string) (int64, error) {
	if cursor == "" {
		return 0, nil
	}
	text, own := strings.CutPrefix(cursor, string(l))
	row, err := strconv.ParseInt(text, 36, 64)
	if !own || err != nil || row <= 0 || l.cursor(row) != cursor {
		return 0, errCursor
	}
	return row, nil
}

func pageSize(limit int) int {
	if limit <= 0 {
		return perdure.DefaultListLimit
	}
	return min(limit, perdure.MaxListLimit)
}

// History implements perdure.Jobs.
func (svc *Service) History(ctx context.Context, q perdure.HistoryQuery) (*perdure.Page[perdure.EntryView], error) {
	after, err := historyList.position(q.Cursor)
	if err != nil {
		return nil, err
	}
	limit := pageSize(q.Limit)
	return onceMade(ctx, svc, q.Job, 0, func(ctx context.Context, id perdure.JobID) (*perdure.Page[perdure.EntryView], error) {
		if _, err := svc.resolve(ctx, id.String()); err != nil { // the job has no entries, or does not exist
			return nil, err
		}
		if err := admission.Ask(ctx, limit*entryRoom); err != nil {
			return nil, err
		}
		entries, err := svc.Store.History(ctx, id, after, limit+1)
		if err != nil {
			return nil, Unreachable(err)
		}
		page := &perdure.Page[perdure.EntryView]{Items: []perdure.EntryView{}}
		for i, e := range entries {
			if i == limit {
				page.NextCursor = historyList.cursor(entries[i-1].ID)
				break
			}
			page.Items = append(page.Items, perdure.EntryView{Step: e.Step, Run: e.Run, At: e.At, Event: e.Event, Author: e.Author, Detail: e.Detail})
		}
		return page, nil
	})
}

func checkReason(act *perdure.Act) error {
	if len(act.Reason) > perdure.MaxReasonBytes {
		return perdure.Refuse(perdure.CodeTooLarge, "the reason is over %d bytes", perdure.MaxReasonBytes)
	}
	return nil
}

// Act implements perdure.Jobs.
func (svc *Service) Act(ctx context.Context, ref string, act perdure.Act) (*perdure.JobView, error) {
	if err := checkReason(&act); err != nil {
		return nil, err
	}
	if err := svc.TakeOver(ctx); err != nil {
		return nil, err
	}
	if err := svc.keep(ctx, append(usesOf(act.Input, "/input"), usesOf(act.Output, "/output")...)); err != nil {
		return nil, err
	}
	do := func(ctx context.Context, id perdure.JobID) (*perdure.JobView, error) {
		unneeded, err := svc.Scheduler.ActOnce(ctx, id, act)
		if err != nil {
			return nil, err
		}
		v, err := svc.view(ctx, id)
		if v, err = svc.orSummary(ctx, id, v, err); v != nil {
			v.Unchanged = unneeded
		}
		return v, err
	}
	v, err := onceMade(ctx, svc, ref, 0, do)
	if perdure.CodeOf(err) != perdure.CodeNotFound {
		return v, err
	}
	switch id, cerr := svc.committed(ctx, ref); {
	case cerr != nil:
		return nil, cerr
	case !id.IsZero():
		return do(ctx, id)
	}
	return nil, err
}

// committed looks up a job by its key in a transaction that commits, and returns its id; the zero id if there is none. A
// former primary may lack a job that the new primary has acknowledged. It cannot commit either, because its synchronous
// standby follows the new primary. So if the transaction commits and the job was not found, the job does not exist
// (F153).
func (svc *Service) committed(ctx context.Context, key string) (id perdure.JobID, err error) {
	if !svc.Shared {
		return id, nil
	}
	err = svc.Store.Update(ctx, func(tx kernel.Tx) error {
		found, err := tx.JobsByKey([]string{key})
		id = found[key].ID
		return err
	})
	if err != nil {
		return id, Unreachable(err)
	}
	return id, nil
}
