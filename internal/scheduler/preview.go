package scheduler

import (
	"context"
	"errors"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/dispatch"
	"github.com/perdure/perdure/internal/kernel"
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
	if !s.previews.Acquire(ctx, s.env) {
		return nil, ctx.Err()
	}
	defer s.previews.Release()
	if s.ended {
		return nil, dispatch.ErrDraining
	}
	var p *Preview
	err := s.update(ctx, func(tx kernel.Tx) (err error) {
		b := s.newBatch(tx)
		b.random = kernel.LatestWait
		if p, err = b.preview(&actOp{id: id, act: act}, dead); err == nil {
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

// Tried is what an act would do to one job of many.
type Tried struct {
	Job       perdure.JobID
	Code      perdure.Code // of the refusal; empty: it would not be refused
	Unchanged bool         // it would find nothing to do
}

// PreviewAll is Preview for many jobs, which tells only whether the act would be refused. It uses several transactions, of
// the size of those of bulk acts, and another preview may come between two of them.
func (s *Scheduler) PreviewAll(ctx context.Context, ids []perdure.JobID, act perdure.Act, dead func(holder string) bool) (tried []Tried, err error) {
	if err := act.Check(); err != nil {
		return nil, err
	}
	for len(ids) > 0 && err == nil {
		var some []Tried
		some, err = s.previewSome(ctx, ids[:min(len(ids), maxBulkJobs)], act, dead)
		tried, ids = append(tried, some...), ids[len(some):]
	}
	return tried, err
}

// previewSome tries the act on the first of the jobs, as many as fit into one transaction.
func (s *Scheduler) previewSome(ctx context.Context, ids []perdure.JobID, act perdure.Act, dead func(holder string) bool) (tried []Tried, err error) {
	if !s.previews.Acquire(ctx, s.env) {
		return nil, ctx.Err()
	}
	defer s.previews.Release()
	if s.ended {
		return nil, dispatch.ErrDraining
	}
	one := func(b *batch, id perdure.JobID) (Tried, error) {
		o := &actOp{id: id, act: act}
		_, err := b.preview(o, dead)
		var failure *ruleFailure
		switch {
		case errors.As(err, &failure):
			return Tried{Job: id, Code: perdure.CodeConflict}, nil
		case err != nil && perdure.CodeOf(err) == "":
			return Tried{}, err
		}
		return Tried{Job: id, Code: perdure.CodeOf(err), Unchanged: err == nil && o.unneeded}, nil
	}
	err = s.update(ctx, func(tx kernel.Tx) error {
		tried = tried[:0]
		steps := 0
		for _, id := range ids {
			b := s.newBatch(tx)
			b.random = kernel.LatestWait
			t, err := one(b, id)
			if err != nil {
				return err
			}
			tried = append(tried, t)
			if b.w.Has(id) {
				steps += len(b.w.Plan(id).Steps)
			}
			if steps >= maxBulkSteps {
				break
			}
		}
		return errPreviewed
	})
	if errors.Is(err, errPreviewed) {
		return tried, nil
	}
	return nil, err
}
