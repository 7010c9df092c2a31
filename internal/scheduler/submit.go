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
		b.keys[key] = perdure.Keyed{ID: o.id, Hash: o.plan.Hash}
	}
	b.w.Submit(o.id, o.plan)
	b.submitted[o.id] = o
	return nil
}

// byKey finds the job that has the key, in this transaction or in the store. It is not locked, and need not
// be: what is compared never changes.
func (o *submission) byKey(b *batch, key string) (bool, error) {
	job, ok := b.keys[key]
	if !ok {
		return false, nil
	}
	if job.Hash != o.plan.Hash {
		return false, &perdure.Error{Code: perdure.CodeConflict,
			Message: "key " + key + " belongs to " + job.ID.String() + ", which was submitted with another definition",
			Hint:    "use another key, or submit the same definition"}
	}
	o.answer = Submitted{ID: job.ID}
	return true, nil
}

// findKeys looks up the jobs that have the keys of this batch's submissions.
func (b *batch) findKeys(requests []*request) (err error) {
	var keys []string
	for _, r := range requests {
		if o, ok := r.op.(*submission); ok && o.plan.Definition.Key != "" {
			keys = append(keys, o.plan.Definition.Key)
		}
	}
	b.keys = map[string]perdure.Keyed{}
	if len(keys) > 0 {
		b.keys, err = b.tx.JobsByKey(keys)
	}
	return err
}
