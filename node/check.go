package node

import (
	"context"

	"perdure"
)

const (
	checkPage  = 200
	checkTries = 5 // of a job that moves while it is looked at
)

// checkable is a store that can look at itself.
type checkable interface {
	Check(context.Context) ([]string, error)
}

// Check looks at every job in the store and tells what agrees neither with itself nor with the
// invariants; and what the store finds wrong with itself (F111).
func (n *Node) Check(ctx context.Context, tell func(perdure.Finding)) error {
	if s, ok := n.store.(checkable); ok {
		faults, err := s.Check(ctx)
		if err != nil {
			return unreachable(err)
		}
		for _, f := range faults {
			tell(perdure.Finding{Rule: "F111", Message: "the store: " + f})
		}
	}
	var after perdure.JobID
	for {
		jobs, err := n.store.ListJobs(ctx, perdure.JobFilter{After: after, Ascending: true, Limit: checkPage})
		if err != nil {
			return unreachable(err)
		}
		for _, j := range jobs {
			if err := n.checkJob(ctx, j.ID, tell); err != nil {
				return err
			}
			after = j.ID
		}
		if len(jobs) < checkPage {
			return nil
		}
	}
}

// checkJob reads the rows of one job. They are read one after the other, so what is found counts only
// if the job has not moved meanwhile.
func (n *Node) checkJob(ctx context.Context, id perdure.JobID, tell func(perdure.Finding)) error {
	for range checkTries {
		before, findings, err := n.findings(ctx, id)
		if err != nil {
			return unreachable(err)
		}
		if len(findings) > 0 {
			now, err := n.store.Job(ctx, id)
			if err != nil {
				return unreachable(err)
			}
			if now == nil || !now.UpdatedAt.Equal(before.UpdatedAt) {
				continue
			}
		}
		for _, f := range findings {
			tell(f)
		}
		return nil
	}
	return nil
}

func (n *Node) findings(ctx context.Context, id perdure.JobID) (*perdure.Job, []perdure.Finding, error) {
	j, err := n.store.Job(ctx, id)
	if err != nil || j == nil {
		return j, nil, err
	}
	plan, err := n.scheduler.Plan(ctx, id)
	if err != nil {
		return j, []perdure.Finding{{Job: id, Rule: "F077", Message: err.Error()}}, nil
	}
	steps, err := n.store.StepsOf(ctx, id, j.CreatedAt.AddDate(-1, 0, 0))
	if err != nil {
		return j, nil, err
	}
	alerts, err := n.store.Alerts(ctx, perdure.AlertFilter{Job: id, Limit: perdure.MaxSteps + 100})
	if err != nil {
		return j, nil, err
	}
	now, err := n.store.Now(ctx)
	return j, perdure.CheckJob(j, plan, steps, alerts, now), err
}
