package scheduler

import (
	"context"

	"perdure"
)

// Sweeps are what the supervisor asks for. Each looks for rows whose time has come, folds that in, and
// says how many it found: fewer than max means that there are no more. Rows that another transaction
// has locked are left to the next look; any number of supervisors may ask at once (I15).

// SweepDue moves steps on whose time to wait is over.
func (s *Scheduler) SweepDue(ctx context.Context, max int) (int, error) {
	return s.sweep(ctx, &sweeping{max: max, find: func(b *batch, max int) ([]perdure.StepRef, error) {
		return b.tx.Due(b.w.Now(), max)
	}, fold: func(b *batch, ref perdure.StepRef) bool { return b.w.Due(ref) }})
}

// SweepExpired ends runs whose lock has passed.
func (s *Scheduler) SweepExpired(ctx context.Context, max int) (int, error) {
	return s.sweep(ctx, &sweeping{max: max, find: func(b *batch, max int) ([]perdure.StepRef, error) {
		return b.tx.Expired(b.w.Now(), max)
	}, fold: func(b *batch, ref perdure.StepRef) bool { return b.w.Expire(ref, "", perdure.CauseTime) }})
}

// SweepLost ends the runs of a holder that is known to be dead.
func (s *Scheduler) SweepLost(ctx context.Context, holder string, max int) (int, error) {
	return s.sweep(ctx, &sweeping{max: max, find: func(b *batch, max int) ([]perdure.StepRef, error) {
		return b.tx.HeldBy(holder, "", "", max)
	}, fold: func(b *batch, ref perdure.StepRef) bool { return b.w.Expire(ref, holder, perdure.CauseLost) }})
}

// SweepOverdue acts on jobs whose own ultimatum has passed.
func (s *Scheduler) SweepOverdue(ctx context.Context, max int) (int, error) {
	return s.sweep(ctx, &sweeping{max: max, find: func(b *batch, max int) ([]perdure.StepRef, error) {
		ids, err := b.tx.Overdue(b.w.Now(), max)
		refs := make([]perdure.StepRef, len(ids))
		for i, id := range ids {
			refs[i].Job = id
		}
		return refs, err
	}, fold: func(b *batch, ref perdure.StepRef) bool { return b.w.OverdueNow(ref.Job) }})
}

func (s *Scheduler) sweep(ctx context.Context, op *sweeping) (int, error) {
	err := s.do(ctx, op, op.max)
	return op.found, err
}

type sweeping struct {
	max   int
	find  func(*batch, int) ([]perdure.StepRef, error)
	fold  func(*batch, perdure.StepRef) bool
	found int
}

func (o *sweeping) jobs() []perdure.JobID         { return nil }
func (o *sweeping) refs(*batch) []perdure.StepRef { return nil }

func (o *sweeping) apply(b *batch) error {
	o.found = 0
	refs, err := o.find(b, o.max+int(b.s.isolated.Load())) // past the jobs that are left alone
	if err != nil || len(refs) == 0 {
		return err
	}
	ids := make([]perdure.JobID, len(refs))
	for i, ref := range refs {
		ids[i] = ref.Job
	}
	if _, err := b.lockMore(ids); err != nil {
		return err
	}
	var steps []perdure.StepRef
	for _, ref := range refs {
		if b.w.Has(ref.Job) {
			steps = append(steps, b.w.ReportRefs(ref)...)
		}
	}
	if err := b.loadSteps(steps); err != nil {
		return err
	}
	for _, ref := range refs {
		if !b.w.HasStep(ref) {
			continue
		}
		if err := b.fold(ref.Job, func() {
			if o.fold(b, ref) {
				o.found++
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// EmbeddedHolders are the holders of runs that live inside a node.
func (s *Scheduler) EmbeddedHolders(ctx context.Context) (holders []string, err error) {
	err = s.cfg.Store.Update(ctx, func(tx perdure.Tx) error {
		holders, err = tx.EmbeddedHolders()
		return err
	})
	return holders, err
}
