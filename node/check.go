package node

import (
	"context"
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
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
// invariants; and what the store finds wrong with itself.
func (n *Node) Check(ctx context.Context, tell func(kernel.Finding)) error {
	if s, ok := n.store.(checkable); ok {
		faults, err := s.Check(ctx)
		if err != nil {
			return unreachable(err)
		}
		for _, f := range faults {
			tell(kernel.Finding{Rule: "F111", Message: "the store: " + f})
		}
	}
	var after perdure.JobID
	for {
		jobs, err := n.store.ListJobs(ctx, kernel.JobFilter{After: after, Ascending: true, Limit: checkPage})
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
func (n *Node) checkJob(ctx context.Context, id perdure.JobID, tell func(kernel.Finding)) error {
	for range checkTries {
		before, findings, err := n.findings(ctx, id)
		if err != nil {
			return unreachable(err)
		}
		if len(findings) > 0 {
			now, _, err := n.store.Job(ctx, id, 0)
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

func (n *Node) findings(ctx context.Context, id perdure.JobID) (*kernel.Job, []kernel.Finding, error) {
	j, _, err := n.store.Job(ctx, id, 0)
	if err != nil || j == nil {
		return j, nil, err
	}
	plan, err := n.scheduler.Plan(ctx, j)
	if err != nil {
		if _, err := n.store.Shape(ctx, j.Shape); err != nil {
			return j, nil, err // it is the store that does not answer
		}
		return j, []kernel.Finding{{Job: id, Rule: "F077", Message: err.Error()}}, nil
	}
	steps, err := n.store.StepsOf(ctx, id, j.CreatedAt.AddDate(-1, 0, 0))
	if err != nil {
		return j, nil, err
	}
	alerts, err := n.store.Alerts(ctx, kernel.AlertFilter{Job: id, Limit: perdure.MaxSteps + 100})
	if err != nil {
		return j, nil, err
	}
	now, err := n.store.Now(ctx)
	if err != nil {
		return j, nil, err
	}
	found := kernel.CheckJob(j, plan, steps, alerts, now)
	if hash, err := plan.Definition.Fingerprint(); err != nil || hash != j.Hash {
		found = append(found, kernel.Finding{Job: id, Rule: "I1", Message: "its definition is not the one that was submitted"})
	}
	lost, err := n.lostPayloads(ctx, id, steps)
	return j, append(found, lost...), err
}

// lostPayloads finds inputs and outputs that steps should have and that are missing. It reads their sizes, not their
// bytes.
func (n *Node) lostPayloads(ctx context.Context, id perdure.JobID, steps []*kernel.Step) (found []kernel.Finding, err error) {
	if !slices.ContainsFunc(steps, func(s *kernel.Step) bool { return s.HasOutput || s.OwnInput }) {
		return nil, nil
	}
	payloads, err := n.store.Payloads(ctx, id, 0, 0)
	if err != nil {
		return nil, err
	}
	there := make(map[int]kernel.SizedPayload, len(payloads))
	for _, p := range payloads {
		there[p.Index] = p
	}
	for _, s := range steps {
		if p := there[s.Index]; s.HasOutput && p.OutputBytes == 0 || s.OwnInput && p.InputBytes == 0 {
			found = append(found, kernel.Finding{Job: id, Step: s.Name, Rule: "I8", Message: "its input or output is not there"})
		}
	}
	return found, nil
}
