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
	"github.com/perdure/perdure/operate"
)

// operation is what a request does in a transaction. If the transaction is retried, its methods are called again from
// the start, so they must set their answer again each time.
type operation interface {
	// jobs returns the jobs to lock before the clock is read.
	jobs() []perdure.JobID
	// refs returns the steps to load, once the jobs are locked.
	refs(*batch) []kernel.StepRef
	// apply applies the operation to the workset. If it returns an error with a code, only this operation is refused.
	// Any other error ends the transaction.
	apply(*batch) error
}

// batch is one try of a transaction.
type batch struct {
	s      *Scheduler
	tx     kernel.Tx
	w      *kernel.Workset
	began  time.Time               // by this node's clock, before the store's clock was read
	weight int                     // of its requests
	now    time.Time               // by the store's clock
	keys   map[string]kernel.Keyed // keys of this batch's submissions, and of jobs found in the store

	unique map[kernel.UniqueKey]kernel.UniqueJob // unique jobs of this batch's submissions, and of the store

	random func() float64 // for jitter; see kernel.NewWorkset

	submitted  []*submitOp      // submissions that created a job whose row is not written yet
	reportRefs []kernel.StepRef // the steps that the current report reads; kept to save an allocation

	topics   []kernel.Topic         // topics that this transaction has locked, in order
	reads    bool                   // the batch is a preview: it locks no topics
	mail     map[kernel.MailID]bool // mail that this transaction has locked and not delivered yet
	closed   []kernel.ClosedMail
	refusals []kernel.Alert
	bulk     []savedBulk // bulk acts that this transaction has moved on
	audit    []operate.AuditEntry

	budget    *kernel.Budget // for rendering, in the present part of the transaction
	postponed []postponed    // renderings for which the budget was too small

	serving      *dispatch.Transaction // serves the claims
	woken        []string              // agents with steps that became ready and were not dispatched
	freed        bool                  // runs have ended or jobs have settled: limits may have room
	movedJobs    []perdure.JobID       // jobs that have changed; some are listed more than once
	wrote        bool                  // jobs or alerts have changed
	notified     bool                  // notifications were stored
	fired        bool                  // jobs of schedules have settled, or were parked
	earliestWait time.Time             // the earliest time for which a step waits now
	events       []txEvent

	debug    bool          // the log has level debug
	lines    []journalLine // log lines, written after the commit
	unlogged int           // number of changes beyond maxJournal
}

// commit carries out requests and claims in one transaction, and answers them. It calls saved when all but the COMMIT is
// done, and again at its end.
func (s *Scheduler) commit(ctx context.Context, requests []*request, claims []*dispatch.Claim, saved func()) {
	defer saved()
	crashpoint.Here(crashpoint.BatchTaken)
	s.execute(ctx, &attempt{s: s, requests: requests, claims: claims, saved: saved, b: s.newBatch(nil), excluded: map[operation]error{}})
}

// commitAlone carries out one request of a transaction that failed, without held submissions.
func (s *Scheduler) commitAlone(ctx context.Context, r *request, saved func()) {
	s.execute(ctx, &attempt{s: s, requests: []*request{r}, alone: true, saved: saved, b: s.newBatch(nil), excluded: map[operation]error{}})
}

func (s *Scheduler) execute(ctx context.Context, a *attempt) {
	s.working.Add(1)
	defer s.working.Add(-1)
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
	for _, d := range a.indeterminate { // these may have been committed
		s.notifyMoved(d)
		s.queue.WakeAfterIndeterminate(d.woken, d.freed)
	}
	s.meter.Committed(len(a.requests)+granted, s.env.Now().Sub(began))
}

// postpone gives the postponed renderings to the renderers, after the transaction.
func (s *Scheduler) postpone(b *batch) {
	if b.w == nil {
		return // the transaction has not begun
	}
	for _, x := range b.w.Postponed() {
		b.postponed = append(b.postponed, postponed{x, ""})
	}
	s.renderers.put(b.postponed)
}

// An attempt carries out requests and claims, in as many tries as that takes. Each try is a transaction of its own, with
// a new batch.
//
// After a failure, retry decides:
//
//	a rule panicked on a job or request     leave it out, and try again
//	limits were locked out of order         lock them first, and try again
//	topics were locked out of order         the same
//	the outcome of the COMMIT is unknown    try again; the operations find what is there already
//	the cause may be one of the requests    carry out each request alone
//	any other error                         answer all requests with it
//
// An example of an indeterminate commit: a transaction stores job 17 and grants run 3 of it to a claim, and the
// connection breaks during COMMIT. The next try locks job 17 by its id. If the job is there, the submission is answered
// as stored, and the claim finds run 3 by its requestId. If not, both are carried out again. In both cases the callers
// get one answer, and nothing happens twice.
type attempt struct {
	s             *Scheduler
	requests      []*request
	claims        []*dispatch.Claim
	alone         bool   // held submissions are not taken
	saved         func() // to be called when all but the COMMIT is done
	b             *batch // the latest try
	results       []error
	excluded      map[operation]error
	exclusions    int            // how often an operation or job was left out, or limits or topics were reordered
	topics        []kernel.Topic // to lock first
	indeterminate []*batch       // tries whose commit was indeterminate
	lookups       int            // tries since then
}

func (a *attempt) try(ctx context.Context) error {
	return a.s.cfg.Store.Update(ctx, func(tx kernel.Tx) (err error) {
		a.b = a.s.newBatch(tx)
		for _, r := range a.requests {
			a.b.weight += r.Weight
		}
		if a.results, err = a.b.run(a); err == nil {
			a.saved()
		}
		return err
	})
}

// maxLookups bounds the tries after an indeterminate commit. maxExclusions bounds how many operations and jobs are left
// out of a transaction.
const (
	maxLookups    = 20
	maxExclusions = dispatch.MaxRequests + 100
	lookupPause   = 20 * time.Millisecond
)

// retry reports whether to try again after an error, and prepares the next try.
func (a *attempt) retry(ctx context.Context, err error) bool {
	var p *ruleFailure
	var d *dispatch.LockOrderError
	var t *topicOrderError
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
	case errors.As(err, &t) && a.exclusions < maxExclusions:
		a.exclusions++
		a.topics = append(a.topics, t.topics...)
		return true
	case errors.Is(err, kernel.ErrUnknown) && a.lookups < maxLookups:
		a.noteIndeterminate()
		return true
	case len(a.indeterminate) > 0 && a.lookups < maxLookups && !errors.As(err, &p):
		a.lookups++
		env.Sleep(a.s.env, ctx, lookupPause) // the store may know the outcome soon
		return true
	case len(a.requests) > 1 && mayBeRequest(err):
		for _, r := range a.requests { // only the request that causes the failure fails
			a.s.commitAlone(ctx, r, a.saved)
		}
		a.requests = nil
		return true
	}
	return false
}

// noteIndeterminate prepares the next try after an indeterminate commit (F006, F063). The next try finds what is there:
// jobs by their ids, runs by the requestId of their claim. Acts and reports remember what the earlier try found.
func (a *attempt) noteIndeterminate() {
	a.lookups++
	a.indeterminate = append(a.indeterminate, a.b)
	for _, r := range a.requests {
		if o, ok := r.op.(interface{ commitIndeterminate() }); ok {
			o.commitIndeterminate()
		}
	}
	for _, c := range a.claims {
		c.CommitIndeterminate()
	}
}

// mayBeRequest reports whether one of the requests may have caused the error, rather than the store.
func mayBeRequest(err error) bool {
	return perdure.CodeOf(err) == "" && !errors.Is(err, kernel.ErrUnknown) && !errors.Is(err, kernel.ErrStale) &&
		!errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

func (s *Scheduler) exclude(p *ruleFailure, poison map[operation]error) {
	s.log.Error("panic while applying the rules; the request or job is excluded", "job", p.job, "error", p.err, "stack", p.stack)
	if p.op != nil {
		poison[p.op] = p.err
	} else {
		s.quarantineJob(p.job, p.err)
	}
}

// ruleFailure is an operation, or a job, on which the rules panicked. The next try leaves it out.
type ruleFailure struct {
	op    operation
	job   perdure.JobID
	err   error
	stack string
}

func (p *ruleFailure) Error() string { return p.err.Error() }

func (s *Scheduler) newBatch(tx kernel.Tx) *batch {
	return &batch{s: s, tx: tx, began: s.env.Now(), random: s.env.Float64}
}

// run carries out one try:
//
//	lock      the jobs of the requests, then read the store's clock
//	load      the steps that the requests concern
//	apply     the requests, by the rules
//	dispatch  ready steps to the claims: those that came with requests, those that were due,
//	          and those that wait for steps which this transaction has made ready
//	save
//
// If the claims have room left, held submissions are applied before dispatch (dispatch.Queue.TakeHeld). Store.Update
// commits after run.
//
// The clock is read after the locks are taken, so that times grow along the versions of a row.
func (b *batch) run(a *attempt) ([]error, error) {
	if err := b.lock(a.requests); err != nil {
		return nil, err
	}
	crashpoint.Here(crashpoint.BatchLocked)
	if err := b.lockTopics(a.topics); err != nil {
		return nil, err
	}
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
	b.SetBudget(b.s.budget())
	b.serving = b.s.queue.Begin(b, a.claims)
	if err := b.serving.Dispatch(fresh); err != nil {
		return nil, err
	}
	b.woken = append(b.woken, b.serving.Opened()...)
	crashpoint.Here(crashpoint.BatchDispatched)
	a.claims = b.serving.ReturnEarly()
	for agent, refs := range fresh {
		if slices.ContainsFunc(refs, func(ref kernel.StepRef) bool { return b.w.Step(ref).Phase == perdure.Ready }) {
			b.woken = append(b.woken, agent)
		}
	}
	others := map[string][]kernel.StepRef{}
	b.addReady(others)
	b.woken = slices.AppendSeq(b.woken, maps.Keys(others))
	changes := b.w.FinalChanges()
	b.serving.ReleaseSearches()
	return results, b.write(changes)
}

// apply applies the requests to the workset, and returns the result of each.
func (b *batch) apply(requests []*request, poison map[operation]error) ([]error, error) {
	results := make([]error, len(requests))
	if err := b.findKeys(requests); err != nil {
		return nil, err
	}
	if err := b.findUnique(requests); err != nil {
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

// addReady adds the steps that have become ready and still are, by agent.
func (b *batch) addReady(fresh map[string][]kernel.StepRef) {
	for _, ref := range b.w.NewlyReady() {
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

// Fold applies a rule to one job. If the rule panics, the next try leaves out the job.
func (b *batch) Fold(job perdure.JobID, rule func()) (err error) {
	defer recovered(&err, nil, job)
	rule()
	return b.complete()
}

// recovered turns a panic of the rules into an error that makes the next try leave out its cause (F126).
func recovered(err *error, op operation, job perdure.JobID) {
	if p := recover(); p != nil {
		*err = &ruleFailure{op: op, job: job, err: fmt.Errorf("internal error: %v", p), stack: string(debug.Stack())}
	}
}

// lock locks the jobs of the requests, in the order of their ids so that transactions do not deadlock. Only then it
// reads the clock.
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
	b.now, b.w = now, kernel.NewWorkset(now, b.random)
	b.w.SetFence(fence)
	settings, err := b.tx.Agents()
	if err != nil {
		return err
	}
	b.w.UseSettings(settings)
	b.w.UseFairness(b.s.fairness(settings))
	limits, err := b.tx.Limits()
	if err != nil {
		return err
	}
	b.w.UseOrdered(limits)
	b.w.UseChildren(b.s.plans.compiler)
	routing, err := b.tx.Routing()
	if err != nil {
		return err
	}
	b.w.UseRouting(routing)
	b.SetBudget(b.s.budget())
	return b.addJobs(jobs)
}

// SetBudget sets the budget of the next part of the transaction.
func (b *batch) SetBudget(budget *kernel.Budget) {
	b.budget = budget
	b.w.SetBudget(budget, b.s.renderers)
}

// addJobs adds locked jobs to the workset, with their plans. It leaves out quarantined jobs.
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

// TryLock locks and adds the jobs of these steps. It skips jobs that other transactions have locked.
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

// The other methods of dispatch.Batch.

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

// without returns the elements for which there returns false, sorted, each once.
func without[T comparable](all []T, compare func(a, b T) int, contained func(T) bool) (missing []T) {
	for i, one := range all {
		if !contained(one) {
			missing = append(slices.Grow(missing, len(all)-i), one)
		}
	}
	if !slices.IsSortedFunc(missing, compare) {
		slices.SortFunc(missing, compare)
	}
	return slices.Compact(missing)
}

// LoadSteps adds those of the steps that are not loaded yet.
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

// LoadPayloads adds the stored inputs and outputs of the steps, in their order, until the budget is used up. all is true
// if all were added.
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

// complete loads what the rules turn out to need, until they have applied the event.
func (b *batch) complete() error {
	for {
		m := b.w.Missing()
		if m.Empty() {
			return nil
		}
		for _, id := range m.WholeJobs {
			if err := b.loadWhole(id); err != nil {
				return err
			}
		}
		if err := b.LoadSteps(m.Steps); err != nil {
			return err
		}
		if len(m.Signals) > 0 {
			if err := b.findSignals(m.Signals); err != nil {
				return err
			}
		}
		if err := b.findOwners(m.Owners); err != nil {
			return err
		}
		unused := b.budget.Read == perdure.MaxReadBytes
		all, err := b.LoadPayloads(m.Payloads)
		if err != nil {
			return err
		}
		if !all && unused && len(m.PayloadReaders) == 1 {
			b.w.ReadsTooMuch(m.PayloadReaders[0])
		}
		b.w.Continue()
	}
}

func (b *batch) loadWhole(id perdure.JobID) error {
	if b.w.HasWhole(id) {
		return nil
	}
	steps, err := b.tx.StepsOf(id)
	if err != nil {
		return err
	}
	b.w.AddWhole(id, steps)
	return nil
}

// Save writes the changes so far, so that later reads of this transaction see them.
func (b *batch) Save() error { return b.write(b.w.Changes()) }

func (b *batch) write(c *kernel.Changes) error {
	if err := b.closeMail(); err != nil {
		return err
	}
	finished, err := b.saveBulk()
	if err != nil {
		return err
	}
	c.Alerts = append(c.Alerts, b.refusals...)
	c.Audit = append(c.Audit, b.audit...)
	b.refusals, b.audit = nil, nil
	if len(c.CloseAlerts) > 0 && b.w.ReportsClosed() {
		open, err := b.tx.LockAlerts(c.CloseAlerts)
		if err != nil {
			return err
		}
		b.w.NotifyClosedAlerts(c, open)
	}
	b.w.NotifyAlerts(c)
	for _, act := range finished {
		b.w.NotifyBulk(c, act)
	}
	if c.Empty() {
		return nil
	}
	b.notified = b.notified || len(c.Notifications) > 0
	b.fired = b.fired || len(c.Firings) > 0
	b.observe(c)
	err = b.tx.Save(c)
	crashpoint.Here(crashpoint.BatchSaved)
	return err
}

// answer answers all requests and claims, and notifies the followers of changed jobs.
func (s *Scheduler) answer(b *batch, requests []*request, results []error, err error) {
	if err != nil {
		s.refusal.note(err) // before the callers are answered, because they may then ask whether the node is ready
		for _, r := range requests {
			r.answer(unavailable(err))
		}
		b.serving.End(dispatch.Outcome{Err: unavailable(err)})
		level := slog.LevelWarn
		if s.failing.Swap(true) {
			level = slog.LevelDebug // one warning for each outage
		}
		s.log.Log(context.Background(), level, "transaction failed", "requests", len(requests), "error", err)
		return
	}
	if s.failing.Swap(false) {
		s.log.Info("transactions succeed again")
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

// notifyMoved notifies the followers of changed jobs, and calls OnNotify if notifications were stored, OnSchedule if jobs of schedules have settled or were parked, and OnWait with the earliest time for which a step waits.
func (s *Scheduler) notifyMoved(b *batch) {
	if b.wrote {
		s.hub.notify(b.movedJobs)
	}
	if b.notified {
		s.cfg.OnNotify()
	}
	if b.fired {
		s.cfg.OnSchedule()
	}
	if !b.earliestWait.IsZero() {
		s.cfg.OnWait(s.env.Now().Add(b.earliestWait.Sub(b.w.Now())))
	}
}

// quarantineJob quarantines a job that cannot be read, or on which the rules panic: it is not touched until the node
// restarts (F077).
func (s *Scheduler) quarantineJob(id perdure.JobID, why error) {
	s.quarantined.Store(id, why)
}

// Quarantined returns why this node does not touch a job until it restarts; nil if it does.
func (s *Scheduler) Quarantined(id perdure.JobID) error {
	why, bad := s.quarantined.Load(id)
	if !bad {
		return nil
	}
	return why.(error)
}

// checkJob returns why a job is not in the workset; nil if it is.
func (b *batch) checkJob(id perdure.JobID) error {
	if b.w.Has(id) {
		return nil
	}
	if why := b.s.Quarantined(id); why != nil {
		return perdure.Refuse(perdure.CodeConflict, "job %s is quarantined on this node until it restarts: %v", id, why)
	}
	return perdure.Refuse(perdure.CodeNotFound, "there is no job %s", id)
}

// unavailable returns an error of the store as callers see it.
func unavailable(err error) error {
	if perdure.CodeOf(err) != "" {
		return err
	}
	return &perdure.Error{Code: perdure.CodeUnavailable, Message: "the transaction failed: " + err.Error(), Hint: "try again later"}
}
