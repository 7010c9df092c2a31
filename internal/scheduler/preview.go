package scheduler

import (
	"context"
	"errors"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/dispatch"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// Preview is a job as an act would leave it.
type Preview struct {
	Job       *kernel.Job
	Steps     []*kernel.Step // all of them, in order
	Plan      *kernel.Plan
	Effects   kernel.Effects
	Unchanged bool // the act would find nothing to do
}

// errPreviewed rolls back the transaction of a preview.
var errPreviewed = errors.New("scheduler: end of a preview")

// Preview applies the rules of an act in a transaction that is rolled back. If the act would be refused, it returns the
// same error. The transaction is not part of a group commit: it cannot delay or spoil other requests, except that it
// holds the lock of the job until the rules are applied. A node makes one preview at a time, so that previews leave the
// store to other transactions.
//
// Nothing is dispatched, logged or counted, no follower or claim is notified, and postponed renderings are not given to
// the renderers: a step whose condition takes too much work is shown as due at once, as the act would leave it.
//
// dead reports whether a holder is known to be dead, but its runs have not been taken back: an act would take them back
// first.
func (s *Scheduler) Preview(ctx context.Context, id perdure.JobID, act perdure.Act, dead func(holder string) bool) (*Preview, error) {
	if err := act.Check(); err != nil {
		return nil, err
	}
	if err := s.beginPreview(ctx); err != nil {
		return nil, err
	}
	defer s.previews.Release()
	var p *Preview
	err := s.update(ctx, func(tx kernel.Tx) (err error) {
		b := s.previewBatch(tx)
		if p, err = b.preview(&actOp{id: id, act: act, caller: operate.IdentityOf(ctx)}, dead); err == nil {
			err = errPreviewed
		}
		return err
	})
	var failure *ruleFailure
	switch {
	case errors.Is(err, errPreviewed):
		return p, nil
	case errors.As(err, &failure):
		return nil, perdure.Refuse(perdure.CodeConflict, "the rules fail on job %s, so that the act would quarantine it: %v", id, failure.err)
	}
	return nil, err
}

// beginPreview waits for the preview in progress, and refuses another one after the node has stopped.
func (s *Scheduler) beginPreview(ctx context.Context) error {
	if !s.previews.Acquire(ctx, s.env) {
		return ctx.Err()
	}
	if s.ended {
		s.previews.Release()
		return dispatch.ErrDraining
	}
	return nil
}

// previewBatch returns a batch that is not saved. In it, a step waits for the latest time that is possible.
func (s *Scheduler) previewBatch(tx kernel.Tx) *batch {
	b := s.newBatch(tx)
	b.random = kernel.LatestWait
	b.reads = true
	return b
}

// preview applies an act, without saving anything.
func (b *batch) preview(o *actOp, dead func(holder string) bool) (*Preview, error) {
	if err := b.lock([]*request{newRequest(o, 1, nil)}); err != nil {
		return nil, err
	}
	if err := b.checkJob(o.id); err != nil {
		return nil, err
	}
	if err := b.loadWhole(o.id); err != nil {
		return nil, err
	}
	p := &Preview{Plan: b.w.Plan(o.id)}
	for i := range p.Plan.Steps {
		ref := kernel.StepRef{Job: o.id, Index: i}
		if !b.w.HasStep(ref) {
			return nil, perdure.Refuse(perdure.CodeUnavailable, "rows of job %s are missing: see perdure check", o.id)
		}
		if holder := b.w.Step(ref).LockedBy; holder != "" && dead(holder) {
			if err := b.Fold(o.id, func() { b.w.Expire(ref, holder, kernel.CauseLost) }); err != nil {
				return nil, err
			}
		}
	}
	b.w.Changes() // what precedes the act is not an effect of it
	if err := b.applyGuarded(o); err != nil {
		return nil, err
	}
	p.Effects, p.Unchanged = kernel.EffectsOf(b.w.Changes(), p.Plan.Shape), o.unneeded
	p.Job = b.w.Job(o.id)
	for i := range p.Plan.Steps {
		p.Steps = append(p.Steps, b.w.Step(kernel.StepRef{Job: o.id, Index: i}))
	}
	return p, nil
}
