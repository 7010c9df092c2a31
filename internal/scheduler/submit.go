package scheduler

import (
	"context"
	"maps"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/dispatch"
	"github.com/perdure/perdure/internal/kernel"
)

// Submitted is the answer to a submission.
type Submitted struct {
	ID      perdure.JobID
	Created bool
	// Made is the job as it was stored, to be looked at and not written to. It is nil where there is more
	// to tell (alerts), or where the job was there before.
	NewJob *kernel.NewJob
	Err    error // why the job was not taken
}

// Submit stores a job before it answers. The same key and definition is the same job; the same key with
// another is a conflict.
func (s *Scheduler) Submit(ctx context.Context, plan *kernel.Plan) (Submitted, error) {
	all, err := s.SubmitAll(ctx, []*kernel.Plan{plan})
	if err != nil {
		return Submitted{}, err
	}
	return all[0], all[0].Err
}

// SubmitAll is Submit for many, in as few transactions as that takes; each is answered for itself. An error
// says that nothing is known of any of them.
func (s *Scheduler) SubmitAll(ctx context.Context, plans []*kernel.Plan) ([]Submitted, error) {
	answers := make([]Submitted, len(plans))
	for from := 0; from < len(plans); from += maxSet {
		to := min(from+maxSet, len(plans))
		if err := s.submitSet(ctx, plans[from:to], answers[from:to]); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// maxSet is how many submissions of one caller are queued at once: others are to have room, too.
const maxSet = dispatch.MaxQueued / 100

func (s *Scheduler) submitSet(ctx context.Context, plans []*kernel.Plan, answers []Submitted) error {
	ops := make([]submitOp, len(plans))
	requests := make([]*request, 0, len(plans))
	done := make(chan struct{}, len(plans))
	runs := 0
	for i, plan := range plans {
		full := s.backlog.admit(ctx)
		if full != nil && (plan.Definition.Key == "" || perdure.CodeOf(full) != perdure.CodeBacklogFull) {
			answers[i].Err = full
			continue
		}
		ops[i] = submitOp{plan: plan, backlog: s.backlog, backlogErr: full}
		r := newRequest(&ops[i], len(plan.Steps), done)
		if full == nil {
			r.Agent, r.Runs = dispatch.FirstRuns(plan)
			runs += r.Runs
		}
		requests = append(requests, r)
	}
	if runs < s.cfg.HoldMinRuns {
		for _, r := range requests {
			r.SmallSet = true
		}
	}
	crashpoint.Here(crashpoint.SubmitQueue)
	if err := s.doAll(ctx, requests, done); err != nil {
		return err
	}
	crashpoint.Here(crashpoint.SubmitDone)
	next := 0
	for i := range answers {
		if answers[i].Err != nil {
			continue
		}
		if err := requests[next].err; err != nil {
			answers[i].Err = err
		} else {
			answers[i] = ops[i].answer
		}
		next++
	}
	return nil
}

type submitOp struct {
	id            perdure.JobID // zero: no transaction has taken it yet
	plan          *kernel.Plan
	answer        Submitted
	indeterminate bool // the answer to a commit was lost

	backlog    *backlog
	backlogErr error // the backlog has no room: only a job that is stored already is an answer
}

// answered ends it, also where the caller has gone.
func (o *submitOp) answered(err error) {
	if o.backlogErr == nil {
		o.backlog.answered(err == nil && o.answer.Created)
	}
}

func (o *submitOp) commitIndeterminate() { o.indeterminate = true }

// jobs: the own id, which may be there already where the answer to a commit was lost.
func (o *submitOp) jobs() []perdure.JobID {
	if o.indeterminate {
		return []perdure.JobID{o.id}
	}
	return nil
}

func (o *submitOp) refs(*batch) []kernel.StepRef { return nil }

func (o *submitOp) apply(b *batch) error {
	if o.id == (perdure.JobID{}) { // so that the jobs of one transaction follow each other in the order of their ids, which is that of dispatch
		o.id = b.s.cfg.NewID()
	}
	o.answer = Submitted{ID: o.id, Created: true}
	if b.w.Has(o.id) {
		return nil
	}
	if key := o.plan.Definition.Key; key != "" {
		there, err := o.findByKey(b, key)
		if there || err != nil {
			return err
		}
		if o.backlogErr != nil {
			return o.backlogErr
		}
		b.keys[key] = kernel.Keyed{ID: o.id, Hash: o.plan.Hash}
	}
	b.w.Submit(o.id, o.plan)
	b.submitted = append(b.submitted, o)
	return nil
}

// takeHeld hands over submissions that are held, for which the claims of a transaction have room.
func (s *Scheduler) takeHeld(a *attempt, ready map[string][]kernel.StepRef) []*request {
	if a.alone {
		return nil
	}
	weight := 0
	for _, r := range a.requests {
		weight += r.Weight
	}
	queued := s.queue.TakeHeld(a.claims, ready, len(a.requests), weight)
	held := make([]*request, len(queued))
	for i, r := range queued {
		held[i] = r.Op.(*request)
	}
	return held
}

// key is the job's; empty where it has none, or is refused before that is asked.
func (o *submitOp) key() string {
	if o.plan == nil {
		return ""
	}
	return o.plan.Definition.Key
}

// byKey finds the job that has the key, in this transaction or in the store. It is not locked, and need not
// be: what is compared never changes.
func (o *submitOp) findByKey(b *batch, key string) (bool, error) {
	job, ok := b.keys[key]
	if !ok || job.ID == o.id { // it is mail, and is delivered now
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
		if o, ok := r.op.(interface{ key() string }); ok && o.key() != "" {
			keys = append(keys, o.key())
		}
	}
	if len(keys) == 0 {
		return nil
	}
	found, err := b.tx.JobsByKey(keys)
	if b.keys == nil {
		b.keys = map[string]kernel.Keyed{}
	}
	maps.Copy(b.keys, found)
	return err
}
