package scheduler

import (
	"context"

	"github.com/google/uuid"

	"perdure"
)

// Submitted is the answer to a submission.
type Submitted struct {
	ID      perdure.JobID
	Created bool
	// Made is the job as it was stored, to be looked at and not written to. It is nil where there is more
	// to tell (alerts), or where the job was there before.
	Made *perdure.NewJob
}

// Submit stores a job before it answers. The same key and definition is the same job; the same key with
// another is a conflict.
func (s *Scheduler) Submit(ctx context.Context, plan *perdure.Plan) (Submitted, error) {
	if err := s.backlog.admit(ctx); err != nil {
		return Submitted{}, err
	}
	op := &submission{id: perdure.JobID(uuid.Must(uuid.NewV7())), plan: plan}
	op.answered = func(err error) { s.backlog.answered(err == nil && op.answer.Created) }
	if err := s.do(ctx, op, len(plan.Steps)); err != nil {
		return Submitted{}, err
	}
	return op.answer, nil
}

type submission struct {
	id     perdure.JobID
	plan   *perdure.Plan
	answer Submitted

	answered func(error) // also where the caller has gone
}

// jobs: the own id, which is there already where the answer to a commit was lost.
func (o *submission) jobs() []perdure.JobID { return []perdure.JobID{o.id} }

func (o *submission) refs(*batch) []perdure.StepRef { return nil }

func (o *submission) apply(b *batch) error {
	o.answer = Submitted{ID: o.id, Created: true}
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
	b.submitted[o.id] = o
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
	o.answer = Submitted{ID: id}
	return true, nil
}
