package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/dispatch"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
)

// operation is what a request wants of a transaction. Its methods may be called again from the start
// when the transaction is retried, so they set their answer anew each time.
type operation interface {
	// jobs are those to be locked before the clock is read.
	jobs() []perdure.JobID
	// refs are the steps to be loaded, once the jobs are there.
	refs(*batch) []kernel.StepRef
	// apply folds the operation into the workset. A refusal is its own; any other error ends the
	// transaction.
	apply(*batch) error
}

// batch is one transaction in the making.
type batch struct {
	s     *Scheduler
	tx    kernel.Tx
	w     *kernel.Workset
	began time.Time               // by this node's clock, before the store's was read
	now   time.Time               // by the store's
	keys  map[string]kernel.Keyed // of this batch's submissions, and those found in the store

	submitted  []*submitOp      // those that made a job, and whose answer does not have it yet
	reportRefs []kernel.StepRef // by the report at hand

	mail     map[kernel.MailID]bool // that this transaction has locked, and not looked at yet
	closed   []kernel.ClosedMail
	refusals []kernel.Alert

	budget    *kernel.Budget // for rendering, of the present part of the transaction
	postponed []postponed    // inputs for which the budget was too small

	serving      *dispatch.Transaction // claims
	woken        []string              // agents with steps that were made ready and not dispatched
	freed        bool                  // runs ended or jobs came to rest: a limit may have room
	movedJobs    []perdure.JobID       // some of them more than once
	earliestWait time.Time             // the earliest time that a step was made to wait for
	events       []txEvent

	lines    []journalLine // to be logged
	unlogged int           // changes above maxJournal
}

// commit carries requests and claims out in one transaction, and answers. It calls saved when all but the COMMIT is done, and once
// more at its end.
func (s *Scheduler) commit(ctx context.Context, requests []*request, claims []*dispatch.Claim, saved func()) {
	defer saved()
	crashpoint.Here(crashpoint.BatchTaken)
	s.execute(ctx, &attempt{s: s, requests: requests, claims: claims, saved: saved, b: s.newBatch(nil), excluded: map[operation]error{}})
}

// commitAlone carries one request out that was in a transaction which failed, and nothing that is held.
func (s *Scheduler) commitAlone(ctx context.Context, r *request, saved func()) {
	s.execute(ctx, &attempt{s: s, requests: []*request{r}, alone: true, saved: saved, b: s.newBatch(nil), excluded: map[operation]error{}})
}

func (s *Scheduler) execute(ctx context.Context, a *attempt) {
	began := s.env.Now()
	err := a.try(ctx)
	for a.retry(ctx, err) {
		err = a.try(ctx)
	}
	if errors.Is(err, kernel.ErrBroken) {
		s.cfg.OnBroken(err)
	}
	crashpoint.Here(crashpoint.BatchCommitted)
	if a.b.serving == nil {
		a.b.serving = s.queue.Begin(a.b, a.claims)
	}
	granted := a.b.serving.Granted()
	s.answer(a.b, a.requests, a.results, err)
	crashpoint.Here(crashpoint.BatchAnswered)
	s.postpone(a.b)
	for _, d := range a.indeterminate { // whether or not it was committed
		s.notifyMoved(d)
		s.queue.WakeAfterIndeterminate(d.woken, d.freed)
	}
	s.meter.Committed(len(a.requests)+granted, s.env.Now().Sub(began))
}

// postpone hands postponed renderings to the renderers after the transaction.
func (s *Scheduler) postpone(b *batch) {
	if b.w == nil {
		return // it has not begun
	}
	for _, x := range b.w.Postponed() {
		b.postponed = append(b.postponed, postponed{x, ""})
	}
	s.renderers.put(b.postponed)
}

// attempt is what it takes until a transaction is through, or is not to be had.
type attempt struct {
	s             *Scheduler
	requests      []*request
	claims        []*dispatch.Claim
	alone         bool   // nothing that is held is taken
	saved         func() // all but the COMMIT is done
	b             *batch // of the latest try
	results       []error
	excluded      map[operation]error
	exclusions    int      // operations and jobs that were taken out
	indeterminate []*batch // tries whose commit's answer was lost
	lookups       int      // how often after that
}

func (a *attempt) try(ctx context.Context) error {
	return a.s.cfg.Store.Update(ctx, func(tx kernel.Tx) (err error) {
		a.b = a.s.newBatch(tx)
		if a.results, err = a.b.run(a); err == nil {
			a.saved()
		}
		return err
	})
}

// maxAsked bounds how often it is asked what became of a commit with a lost answer, maxPoisoned how many
// operations and jobs may be taken out of one transaction.
const (
	maxLookups    = 20
	maxExclusions = dispatch.MaxRequests + 100
	lookupPause   = 20 * time.Millisecond
)

// again says whether what failed is to be tried once more, and prepares it.
func (a *attempt) retry(ctx context.Context, err error) bool {
	var p *ruleFailure
	var d *dispatch.LockOrderError
	switch {
	case err == nil, ctx.Err() != nil, errors.Is(err, kernel.ErrBroken):
		return false
	case errors.As(err, &p) && a.exclusions < maxExclusions:
		a.exclusions++
		a.s.exclude(p, a.excluded)
		return true
	case errors.As(err, &d) && a.exclusions < maxExclusions:
		a.exclusions++
		a.s.queue.LockEarlier(d)
		return true
	case errors.Is(err, kernel.ErrUnknown) && a.lookups < maxLookups:
		a.noteIndeterminate()
		return true
	case len(a.indeterminate) > 0 && a.lookups < maxLookups && !errors.As(err, &p):
		a.lookups++
		env.Sleep(a.s.env, ctx, lookupPause) // what is not known now will be known soon
		return true
	case len(a.requests) > 1 && mayBeRequest(err):
		for _, r := range a.requests { // alone, only the one that spoils it fails
			a.s.commitAlone(ctx, r, a.saved)
		}
		a.requests = nil
		return true
	}
	return false
}

// doubt prepares for asking again after a commit whose answer was lost (F006, F063). That finds what is
// there: jobs by their ids, claims by their request; acts and reports remember what they have met.
func (a *attempt) noteIndeterminate() {
	a.lookups++
	a.indeterminate = append(a.indeterminate, a.b)
	for _, r := range a.requests {
		if o, ok := r.op.(interface{ doubt() }); ok {
			o.doubt()
		}
	}
	for _, c := range a.claims {
		c.CommitIndeterminate()
	}
}

// spoiled tells an error that something in a transaction may have caused from one of the store's own.
func mayBeRequest(err error) bool {
	return perdure.CodeOf(err) == "" && !errors.Is(err, kernel.ErrUnknown) && !errors.Is(err, kernel.ErrStale) &&
		!errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

func (s *Scheduler) exclude(p *ruleFailure, poison map[operation]error) {
	s.log.Error("the rules failed; what made them fail is taken out", "job", p.job, "error", p.err, "stack", p.stack)
	if p.op != nil {
		poison[p.op] = p.err
	} else {
		s.quarantineJob(p.job, p.err)
	}
}

// poisoned is an operation, or a job at its claim, that made the rules panic. It is taken out, and the
// others go on.
type ruleFailure struct {
	op    operation
	job   perdure.JobID
	err   error
	stack string
}

func (p *ruleFailure) Error() string { return p.err.Error() }

func (s *Scheduler) newBatch(tx kernel.Tx) *batch {
	return &batch{s: s, tx: tx, began: s.env.Now()}
}

// run is the order of a transaction: lock, read the clock, load, apply; let out, also to those who wait for
// what this transaction has made ready; save. Submissions that are held are applied last, as far as the claims have room.
func (b *batch) run(a *attempt) ([]error, error) {
	if err := b.lock(a.requests); err != nil {
		return nil, err
	}
	crashpoint.Here(crashpoint.BatchLocked)
	if err := b.takeMail(a.requests); err != nil {
		return nil, err
	}
	results, err := b.apply(a.requests, a.excluded)
	if err != nil {
		return nil, err
	}
	fresh := map[string][]kernel.StepRef{}
	b.addReady(fresh)
	a.claims = append(a.claims, b.s.queue.TakeWaiting(slices.Sorted(maps.Keys(fresh)))...)
	if held := b.s.takeHeld(a, fresh); len(held) > 0 {
		a.requests = append(a.requests, held...)
		more, err := b.apply(held, a.excluded)
		if err != nil {
			return nil, err
		}
		results = append(results, more...)
		b.addReady(fresh)
	}
	crashpoint.Here(crashpoint.BatchApplied)
	b.Spend(b.s.budget())
	b.serving = b.s.queue.Begin(b, a.claims)
	if err := b.serving.Dispatch(fresh); err != nil {
		return nil, err
	}
	b.woken = append(b.woken, b.serving.Opened()...)
	crashpoint.Here(crashpoint.BatchLetOut)
	a.claims = b.serving.ReturnEarly()
	for agent, refs := range fresh {
		if slices.ContainsFunc(refs, func(ref kernel.StepRef) bool { return b.w.Step(ref).Phase == perdure.Ready }) {
			b.woken = append(b.woken, agent)
		}
	}
	others := map[string][]kernel.StepRef{}
	b.addReady(others)
	b.woken = slices.AppendSeq(b.woken, maps.Keys(others))
	changes := b.w.Last()
	b.serving.ReleaseSearches()
	return results, b.write(changes)
}

// apply folds the requests into the workset, and says what became of each.
func (b *batch) apply(requests []*request, poison map[operation]error) ([]error, error) {
	results := make([]error, len(requests))
	if err := b.findKeys(requests); err != nil {
		return nil, err
	}
	var refs []kernel.StepRef
	for i, r := range requests {
		if results[i] = poison[r.op]; results[i] != nil {
			continue
		}
		err := func() (err error) {
			defer recovered(&err, r.op, perdure.JobID{})
			refs = append(refs, r.op.refs(b)...)
			return nil
		}()
		if err != nil {
			return nil, err
		}
	}
	if err := b.LoadSteps(refs); err != nil {
		return nil, err
	}
	for i, r := range requests {
		if results[i] != nil {
			continue
		}
		err := b.applyGuarded(r.op)
		if err != nil && perdure.CodeOf(err) == "" {
			return nil, err
		}
		results[i] = err
	}
	return results, nil
}

// readied adds the steps that were made ready and still are, by agent.
func (b *batch) addReady(fresh map[string][]kernel.StepRef) {
	for _, ref := range b.w.Readied() {
		if _, bad := b.s.quarantined.Load(ref.Job); bad {
			continue
		}
		agent := b.w.Step(ref).Agent
		fresh[agent] = append(fresh[agent], ref)
	}
}

func (b *batch) applyGuarded(op operation) (err error) {
	defer recovered(&err, op, perdure.JobID{})
	if err := op.apply(b); err != nil {
		return err
	}
	return b.complete()
}

// Fold runs a rule on one job. If it fails, the job is taken out.
func (b *batch) Fold(job perdure.JobID, rule func()) (err error) {
	defer recovered(&err, nil, job)
	rule()
	return b.complete()
}

// recovered turns a panic of the rules into the error that takes its cause out (F126).
func recovered(err *error, op operation, job perdure.JobID) {
	if p := recover(); p != nil {
		*err = &ruleFailure{op: op, job: job, err: fmt.Errorf("internal error: %v", p), stack: string(debug.Stack())}
	}
}

// lock takes the rows' locks in one order, and only then reads the clock.
func (b *batch) lock(requests []*request) error {
	var ids []perdure.JobID
	for _, r := range requests {
		ids = append(ids, r.op.jobs()...)
	}
	ids = without(ids, perdure.JobID.Compare, func(perdure.JobID) bool { return false })
	var jobs []*kernel.Job
	var err error
	if len(ids) > 0 {
		if jobs, err = b.tx.LockJobs(ids); err != nil {
			return err
		}
	}
	now, err := b.tx.Now()
	if err != nil {
		return err
	}
	fence, err := b.tx.Fence()
	if err != nil {
		return err
	}
	b.now, b.w = now, kernel.NewWorkset(now, b.s.env.Float64)
	b.w.SetFence(fence)
	settings, err := b.tx.Agents()
	if err != nil {
		return err
	}
	b.w.UseSettings(settings)
	b.Spend(b.s.budget())
	return b.addJobs(jobs)
}

// Spend sets the budget of the next part of the transaction.
func (b *batch) Spend(budget *kernel.Budget) {
	b.budget = budget
	b.w.Spend(budget, b.s.renderers)
}

// addJobs puts locked jobs into the workset, with their plans.
func (b *batch) addJobs(jobs []*kernel.Job) error {
	jobs = slices.DeleteFunc(jobs, func(j *kernel.Job) bool { _, bad := b.s.quarantined.Load(j.ID); return bad })
	parts, err := b.parts(jobs)
	if err != nil {
		return err
	}
	for _, j := range jobs {
		if plan := b.plan(j, parts); plan != nil {
			b.w.AddJob(j, plan)
		}
	}
	return nil
}

// TryLock adds the jobs of steps that were found on the way, leaving out those that other transactions have locked.
func (b *batch) TryLock(refs []kernel.StepRef) (skipped bool, err error) {
	more := without(jobsOf(refs), perdure.JobID.Compare, b.w.Has)
	if len(more) == 0 {
		return false, nil
	}
	jobs, err := b.tx.TryLockJobs(more)
	if err != nil {
		return false, err
	}
	skipped = len(jobs) < len(more)
	return skipped, b.addJobs(jobs)
}

// The rest of dispatch.Batch.

func (b *batch) Tx() dispatch.Tx          { return b.tx }
func (b *batch) Workset() *kernel.Workset { return b.w }
func (b *batch) Began() time.Time         { return b.began }
func (b *batch) Budget() *kernel.Budget   { return b.budget }
func (b *batch) MaxBytes() int            { return maxBytes }

func (b *batch) Damaged(job perdure.JobID, why error) error { return &ruleFailure{job: job, err: why} }

func (b *batch) Postpone(x *kernel.Rendering, agent string) (more bool) {
	b.postponed = append(b.postponed, postponed{x, agent})
	n := 0
	for _, p := range b.postponed {
		if p.agent == agent {
			n++
		}
	}
	return n < maxPostponed
}

func jobsOf(refs []kernel.StepRef) []perdure.JobID {
	ids := make([]perdure.JobID, len(refs))
	for i, ref := range refs {
		ids[i] = ref.Job
	}
	return ids
}

// unknown are those of all that are not there, each once, in order.
func without[T comparable](all []T, compare func(a, b T) int, there func(T) bool) (missing []T) {
	for i, one := range all {
		if !there(one) {
			missing = append(slices.Grow(missing, len(all)-i), one)
		}
	}
	if !slices.IsSortedFunc(missing, compare) {
		slices.SortFunc(missing, compare)
	}
	return slices.Compact(missing)
}

// LoadSteps adds the steps that are not there yet.
func (b *batch) LoadSteps(refs []kernel.StepRef) error {
	missing := without(refs, kernel.StepRef.Compare, b.w.HasStep)
	if len(missing) == 0 {
		return nil
	}
	steps, err := b.tx.Steps(missing)
	if err != nil {
		return err
	}
	b.w.AddSteps(steps)
	return nil
}

// LoadPayloads adds the kept inputs and outputs of the steps, in their order, until the budget is used up. It returns
// true if all were added.
func (b *batch) LoadPayloads(refs []kernel.StepRef) (all bool, err error) {
	if len(refs) == 0 {
		return true, nil
	}
	if b.budget.Read <= 0 {
		return false, nil
	}
	found, err := b.tx.Payloads(refs, b.budget.Read)
	if err != nil {
		return false, err
	}
	for _, p := range found {
		b.budget.Read -= len(p.Input) + len(p.Output)
	}
	known := refs
	if b.budget.Read <= 0 {
		known = refs[:slices.Index(refs, found[len(found)-1].StepRef)+1]
	}
	b.w.AddPayloads(known, found)
	return len(known) == len(refs), nil
}

// complete loads what the rules came upon, until the event is done.
func (b *batch) complete() error {
	for {
		m := b.w.Missing()
		if m.Empty() {
			return nil
		}
		for _, id := range m.Whole {
			if err := b.loadWhole(id); err != nil {
				return err
			}
		}
		if err := b.LoadSteps(m.Steps); err != nil {
			return err
		}
		unused := b.budget.Read == perdure.MaxReadBytes
		all, err := b.LoadPayloads(m.Payloads)
		if err != nil {
			return err
		}
		if !all && unused && len(m.Looks) == 1 {
			b.w.ReadsTooMuch(m.Looks[0])
		}
		b.w.Go()
	}
}

func (b *batch) loadWhole(id perdure.JobID) error {
	steps, err := b.tx.StepsOf(id)
	if err != nil {
		return err
	}
	b.w.AddWhole(id, steps)
	return nil
}

// Save writes what there is so far, so that the store finds it.
func (b *batch) Save() error { return b.write(b.w.Changes()) }

func (b *batch) write(c *kernel.Changes) error {
	if err := b.closeMail(); err != nil {
		return err
	}
	c.Alerts = append(c.Alerts, b.refusals...)
	b.refusals = nil
	if c.Empty() {
		return nil
	}
	b.observe(c)
	err := b.tx.Save(c)
	crashpoint.Here(crashpoint.BatchSaved)
	return err
}

// answer answers all requests and claims, and wakes those that a transaction concerns.
func (s *Scheduler) answer(b *batch, requests []*request, results []error, err error) {
	if err != nil {
		s.refusal.note(err) // before its callers can ask whether the node is ready
		for _, r := range requests {
			r.answer(unavailable(err))
		}
		b.serving.End(dispatch.Outcome{Err: unavailable(err)})
		level := slog.LevelWarn
		if s.failing.Swap(true) {
			level = slog.LevelDebug // an outage is told once
		}
		s.log.Log(context.Background(), level, "a transaction failed", "requests", len(requests), "error", err)
		return
	}
	if s.failing.Swap(false) {
		s.log.Info("transactions go through again")
	}
	if b.storesJob() {
		s.refusal.clear()
	}
	b.publish()
	for i, r := range requests {
		r.answer(results[i])
	}
	b.serving.End(dispatch.Outcome{Woken: b.woken, Freed: b.freed})
	s.notifyMoved(b)
}

// hint tells those who follow the jobs and the supervisor what a transaction has moved.
func (s *Scheduler) notifyMoved(b *batch) {
	s.hub.notify(b.movedJobs)
	if !b.earliestWait.IsZero() {
		s.cfg.OnWait(s.env.Now().Add(b.earliestWait.Sub(b.w.Now())))
	}
}

// isolate leaves a job alone until the node starts again: it cannot be read, or makes the rules fail (F077).
func (s *Scheduler) quarantineJob(id perdure.JobID, why error) {
	s.quarantined.Store(id, why)
}

// job says why a job is not there, or nil where it is.
func (b *batch) checkJob(id perdure.JobID) error {
	if b.w.Has(id) {
		return nil
	}
	if why, bad := b.s.quarantined.Load(id); bad {
		return perdure.Refuse(perdure.CodeConflict, "job %s is left alone: %v", id, why)
	}
	return perdure.Refuse(perdure.CodeNotFound, "there is no job %s", id)
}

// unavailable is a store's error as the outside gets it.
func unavailable(err error) error {
	if perdure.CodeOf(err) != "" {
		return err
	}
	return &perdure.Error{Code: perdure.CodeUnavailable, Message: "the store did not answer: " + err.Error(), Hint: "try again later"}
}
