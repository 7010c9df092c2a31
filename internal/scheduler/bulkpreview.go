package scheduler

import (
	"context"
	"errors"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

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
	if err := s.beginPreview(ctx); err != nil {
		return nil, err
	}
	defer s.previews.Release()
	one := func(b *batch, id perdure.JobID) (Tried, error) {
		o := &actOp{id: id, act: act}
		_, err := b.preview(o, dead)
		var failure *ruleFailure
		switch {
		case errors.As(err, &failure): // the act would quarantine the job
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
			b := s.previewBatch(tx)
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
