package scheduler

import (
	"context"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/dispatch"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
)

const (
	repeaters   = 2                     // claims that wait for locks at once; each uses a connection to the store
	repeatPause = 20 * time.Millisecond // pause between two tries of a claim whose runs different transactions have locked in turn
)

// repeatAsides is a repeater: it answers claims that were set aside (dispatch.Aside), until the queue is closed.
func (s *Scheduler) repeatAsides(ctx context.Context) {
	for a := s.queue.TakeAside(); a != nil; a = s.queue.TakeAside() {
		runs, err := s.repeatAside(ctx, a)
		switch {
		case err == nil && len(runs) == 0: // the runs have ended: the claim may be granted new ones
			s.queue.WaitAgain(a.Claim)
		case err != nil && ctx.Err() != nil:
			a.Claim.Answer(nil, dispatch.ErrDraining)
		default:
			a.Claim.Answer(runs, err)
		}
	}
}

// repeatAside waits for the locks of a claim's runs, and returns those runs that are still valid.
func (s *Scheduler) repeatAside(ctx context.Context, a *dispatch.Aside) ([]perdure.Run, error) {
	ctx, cancel := s.env.WithDeadline(ctx, a.Until)
	defer cancel()
	for s.env.Now().Before(a.Until) {
		op := &repeatOp{claim: a.Claim, ids: a.Jobs}
		err := s.doAlone(ctx, op)
		switch {
		case err == nil && op.again == nil:
			return op.runs, nil
		case ctx.Err() != nil:
			return nil, a.Err
		case err != nil:
			return nil, unavailable(err)
		}
		a.Jobs, a.Err = op.again.Jobs, op.again.Err
		env.Sleep(s.env, ctx, repeatPause)
	}
	return nil, a.Err
}

// doAlone carries out one operation in a transaction of its own.
func (s *Scheduler) doAlone(ctx context.Context, op operation) error {
	a := &attempt{s: s, requests: []*request{{op: op}}, saved: func() {}, b: s.newBatch(nil), excluded: map[operation]error{}}
	err := a.try(ctx)
	for a.retry(ctx, err) {
		err = a.try(ctx)
	}
	if err != nil {
		return err
	}
	return a.results[0]
}

// repeatOp answers one repeated claim, and waits for the locks of its runs.
type repeatOp struct {
	claim *dispatch.Claim
	ids   []perdure.JobID
	again *dispatch.Aside // not nil if the claim needs another lock
	runs  []perdure.Run
}

func (o *repeatOp) jobs() []perdure.JobID        { return o.ids }
func (o *repeatOp) refs(*batch) []kernel.StepRef { return nil }

func (o *repeatOp) apply(b *batch) (err error) {
	b.SetBudget(unbounded())
	o.runs, o.again, err = b.s.queue.Repeat(b, o.claim)
	return err
}
