package service

import (
	"cmp"
	"context"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// SendSignal implements operate.Signals.
func (svc *Service) SendSignal(ctx context.Context, s operate.Signal) (*operate.SignalResult, error) {
	if err := cmp.Or(svc.ended(), s.Check()); err != nil {
		return nil, err
	}
	send := func(ctx context.Context, job perdure.JobID) (*operate.SignalResult, error) {
		r, err := svc.Scheduler.SendSignal(ctx, s, job)
		if err != nil {
			return nil, Unreachable(err)
		}
		return r, nil
	}
	if s.Job == "" {
		return send(ctx, perdure.JobID{})
	}
	return onceMade(ctx, svc, s.Job, 0, send)
}

// submittedBy returns the plans with their submitter, for those of which an approval may exclude the submitter.
func submittedBy(ctx context.Context, plans ...*kernel.Plan) []*kernel.Plan {
	var copies []*kernel.Plan
	for i, p := range plans {
		if !p.ExcludesSubmitter() {
			continue
		}
		if copies == nil {
			copies = append(copies, plans...)
		}
		c := *p
		c.Submitter = kernel.AuditOf(ctx, "", "").Author
		copies[i] = &c
	}
	if copies == nil {
		return plans
	}
	return copies
}
