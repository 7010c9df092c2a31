package scheduler

import (
	"context"

	"github.com/google/uuid"

	"perdure"
)

// Submit stores a job before it answers. The same key and definition is the same job (created is false);
// the same key with another is a conflict.
func (s *Scheduler) Submit(ctx context.Context, plan *perdure.Plan) (id perdure.JobID, created bool, err error) {
	if err := s.backlog.admit(ctx); err != nil {
		return id, false, err
	}
	u, err := uuid.NewV7()
	if err != nil {
		return id, false, err
	}
	op := &submission{id: perdure.JobID(u), plan: plan}
	err = s.do(ctx, op, len(plan.Steps))
	if err != nil || !op.created {
		s.backlog.add(-1)
	}
	if err != nil {
		return id, false, err
	}
	return op.got, op.created, nil
}

type submission struct {
	id      perdure.JobID
	plan    *perdure.Plan
	got     perdure.JobID
	created bool
}

// jobs: the own id, which is there already where the answer to a commit was lost.
func (o *submission) jobs() []perdure.JobID { return []perdure.JobID{o.id} }

func (o *submission) refs(*batch) []perdure.StepRef { return nil }

func (o *submission) apply(b *batch) error {
	o.got, o.created = o.id, true
	if b.w.Has(o.id) {
		return nil
	}
	if key := o.plan.Definition.Key; key != "" {
		there, err := o.byKey(b, key)
		if there || err != nil {
			return err
		}
		b.keys[key] = o.id
	}
	b.w.Submit(o.id, o.plan)
	return nil
}

// byKey finds the job that has the key, in this transaction or in the store.
func (o *submission) byKey(b *batch, key string) (bool, error) {
	id, ok := b.keys[key]
	if !ok {
		found, err := b.tx.JobsByKey([]string{key})
		if err != nil {
			return false, err
		}
		if id, ok = found[key]; !ok {
			return false, nil
		}
		b.keys[key] = id
	}
	if !b.w.Has(id) {
		jobs, err := b.tx.LockJobs([]perdure.JobID{id})
		if err != nil {
			return false, err
		}
		if err := b.addJobs(jobs); err != nil {
			return false, err
		}
	}
	if err := b.job(id); err != nil {
		return false, err
	}
	if b.w.Job(id).Hash != o.plan.Hash {
		return false, &perdure.Error{Code: perdure.CodeConflict,
			Message: "key " + key + " belongs to " + id.String() + ", which was submitted with another definition",
			Hint:    "use another key, or submit the same definition"}
	}
	o.got, o.created = id, false
	return true, nil
}
