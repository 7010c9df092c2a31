package scheduler

import (
	"context"
	"maps"
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/dispatch"
	"github.com/perdure/perdure/internal/kernel"
)

// Submitted is the answer to a submission.
type Submitted struct {
	ID      perdure.JobID
	Created bool
	// NewJob is the job as it was stored. It must not be changed. It is nil if the job existed before, or if it has
	// alerts, which NewJob does not contain.
	NewJob *kernel.NewJob
	Err    error // why the job was refused
}

// Submit stores a job and returns after the commit. If a job with the same key and the same definition exists, it
// returns that job. If the definition differs, it returns a conflict.
func (s *Scheduler) Submit(ctx context.Context, plan *kernel.Plan) (Submitted, error) {
	all, err := s.SubmitAll(ctx, []*kernel.Plan{plan})
	if err != nil {
		return Submitted{}, err
	}
	return all[0], all[0].Err
}

// SubmitAll submits several jobs, each with an answer of its own, in as few transactions as possible. If it returns an
// error, the outcome of all of them is unknown.
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

// maxSet bounds how many submissions of one caller are queued at once, so that there is room for other callers.
const maxSet = dispatch.MaxQueued / 100

func (s *Scheduler) submitSet(ctx context.Context, plans []*kernel.Plan, answers []Submitted) error {
	ops := make([]submitOp, len(plans))
	requests := make([]*request, 0, len(plans))
	done := make(chan struct{}, len(plans))
	runs := 0
	for i, plan := range plans {
		full := s.backlog.admit(ctx)
		if full != nil && (plan.Definition.Key == "" && plan.UniqueKey == "" || perdure.CodeOf(full) != perdure.CodeBacklogFull) {
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
	id            perdure.JobID // zero until a transaction takes the submission
	plan          *kernel.Plan
	answer        Submitted
	indeterminate bool // the commit of an earlier try was indeterminate

	backlog    *backlog
	backlogErr error // the backlog is full: the submission is accepted only if its job exists already
}

// answered ends the submission, even if its caller has gone.
func (o *submitOp) answered(err error) {
	if o.backlogErr == nil {
		o.backlog.answered(err == nil && o.answer.Created)
	}
}

func (o *submitOp) commitIndeterminate() { o.indeterminate = true }

// jobs returns the job's own id after an indeterminate commit: the job may exist.
func (o *submitOp) jobs() []perdure.JobID {
	if o.indeterminate {
		return []perdure.JobID{o.id}
	}
	return nil
}

func (o *submitOp) refs(*batch) []kernel.StepRef { return nil }

func (o *submitOp) apply(b *batch) error {
	if o.id == (perdure.JobID{}) { // ids are assigned in the transaction, so that the order of ids is the order of dispatch
		o.id = b.s.cfg.NewID()
	}
	o.answer = Submitted{ID: o.id, Created: true}
	if b.w.Has(o.id) {
		return nil
	}
	key := o.plan.Definition.Key
	if key != "" {
		existing, err := o.findByKey(b, key)
		if existing || err != nil {
			return err
		}
	}
	unique, isUnique := o.plan.Unique()
	var before kernel.UniqueJob
	if isUnique {
		if before = b.unique[unique]; o.answeredByUnique(b, &before) {
			return nil
		}
	}
	if o.backlogErr != nil {
		return o.backlogErr
	}
	if key != "" {
		b.keys[key] = kernel.Keyed{ID: o.id, Hash: o.plan.Hash}
	}
	b.w.Submit(o.id, o.plan)
	if isUnique {
		b.w.ReplaceUnique(o.id, before.Job)
		b.unique[unique] = kernel.UniqueJob{UniqueKey: unique, Job: o.id, Until: b.w.UniqueUntil(o.id)}
	}
	b.submitted = append(b.submitted, o)
	return nil
}

// takeHeld takes held submissions for which the claims of a transaction have room.
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

// key returns the job's key. It is empty if there is none, or if the submission was refused before.
func (o *submitOp) key() string {
	if o.plan == nil {
		return ""
	}
	return o.plan.Definition.Key
}

// findByKey looks for a job with the same key, in this transaction or in the store. It needs no lock, because a job's
// key and hash never change.
func (o *submitOp) findByKey(b *batch, key string) (bool, error) {
	job, ok := b.keys[key]
	if child := b.w.NewKey(key); !ok && !child.IsZero() { // with the hash of a child, which no submission has
		job, ok = kernel.Keyed{ID: child}, true
	}
	if !ok || job.ID == o.id { // or it is the mail that is being delivered
		return false, nil
	}
	if job.Hash != o.plan.Hash {
		return false, &perdure.Error{Code: perdure.CodeConflict,
			Message: "key " + key + " belongs to " + job.ID.String() + ", which was submitted with another definition or input",
			Hint:    "use another key, or submit the same definition"}
	}
	o.answer = Submitted{ID: job.ID}
	return true, nil
}

// answeredByUnique reports whether a unique job holds the key of the submission, which then is the answer. If the job has
// settled in this transaction, it does not, and its row is deleted by that.
func (o *submitOp) answeredByUnique(b *batch, u *kernel.UniqueJob) bool {
	if u.Job.IsZero() || !u.Holds(b.now) {
		return false
	}
	if j := b.w.Job(u.Job); u.Until.IsZero() && j != nil && j.Phase == perdure.Settled {
		*u = kernel.UniqueJob{Job: b.w.ReplacedUnique(u.Job)}
		return false
	}
	o.answer = Submitted{ID: u.Job}
	return true
}

// findUnique looks up the unique jobs that hold the keys of this batch's submissions.
func (b *batch) findUnique(requests []*request) (err error) {
	var keys []kernel.UniqueKey
	for _, r := range requests {
		if o, ok := r.op.(interface {
			unique() (kernel.UniqueKey, bool)
		}); ok {
			if k, ok := o.unique(); ok {
				keys = append(keys, k)
			}
		}
	}
	if len(keys) == 0 {
		return nil
	}
	slices.SortFunc(keys, kernel.UniqueKey.Compare)
	found, err := b.tx.UniqueJobs(slices.Compact(keys))
	if b.unique == nil {
		b.unique = map[kernel.UniqueKey]kernel.UniqueJob{}
	}
	for k, u := range found {
		if _, known := b.unique[k]; !known { // a submission of this transaction has replaced it
			b.unique[k] = u
		}
	}
	return err
}

// unique returns what the job of the submission holds, if it is not refused.
func (o *submitOp) unique() (k kernel.UniqueKey, ok bool) {
	if o.plan == nil {
		return k, false
	}
	return o.plan.Unique()
}

// findKeys looks up the keys of this batch's submissions in the store.
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
