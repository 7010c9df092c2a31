package kernel

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/internal/secret"
	"github.com/perdure/perdure/protocol"
)

// Admission holds the limits as the claims of one transaction see them. The limits that exist were locked and counted,
// and each dispatch of the transaction takes its permits here.
type Admission struct {
	Now time.Time // of the transaction; rates go by it

	limits   map[string]*Limit
	keys     map[LimitKey]Taken  // for limits that bound keys
	full     map[string]int      // limits that are refused to all other steps, see admit, until so many permits are left
	fullKeys map[LimitKey]bool   // keys that are refused in the same way
	closed   map[ClosedLane]bool // lanes that this transaction has closed
	reopen   []Reopening
}

// Reopening says when the rate of a key has room again for which a lane of the agent was closed.
type Reopening struct {
	Agent string
	Key   LimitKey
	At    time.Time
}

// Reopenings returns when lanes that the transaction has closed because of rates can be opened.
func (a *Admission) Reopenings() []Reopening { return a.reopen }

// Add adds a limit that is locked and counted.
func (a *Admission) Add(l Limit) {
	if a.limits == nil {
		a.limits = map[string]*Limit{}
	}
	a.limits[l.Name] = &l
}

// AddKey adds what is taken of a key. Its limit was added before.
func (a *Admission) AddKey(k LimitKey, u Taken) {
	if a.keys == nil {
		a.keys = map[LimitKey]Taken{}
	}
	a.keys[k] = u
}

// Empty reports whether there are no limits.
func (a *Admission) Empty() bool { return len(a.limits) == 0 }

// Has reports whether a limit was added.
func (a *Admission) Has(name string) bool { return a.limits[name] != nil }

// HasKey reports whether a key was added, or need not be: its limit does not exist, or does not bound keys.
func (a *Admission) HasKey(k LimitKey) bool {
	l := a.limits[k.Name]
	_, counted := a.keys[k]
	return counted || k.Key == "" || l == nil || !l.BoundsKeys()
}

// Room returns how many permits of a limit are left; MaxLimit if there is no such limit.
func (a *Admission) Room(name string) int {
	l := a.limits[name]
	switch {
	case l == nil:
		return perdure.MaxLimit
	case a.full[name] > 0:
		return 0
	}
	return l.Room(a.Now)
}

// RoomAt returns when the rate of a limit has room for the steps that wait for it; ok is false if they do not wait for the
// rate. Half of the burst is awaited, so that there is no search for each permit.
func (a *Admission) RoomAt(name string) (at time.Time, ok bool) {
	l := a.limits[name]
	if l == nil || !l.Rate.Bounds() || l.Rate.Room(l.Bucket, a.Now) >= max(1, a.full[name]) {
		return at, false
	}
	return l.Rate.RoomAt(l.Bucket, a.Now, max(1, a.full[name], l.Rate.Burst/2)), true
}

// roomFor returns how many permits with a key are left.
func (a *Admission) roomFor(k LimitKey) int {
	l := a.limits[k.Name]
	switch {
	case k.Key == "" || l == nil || !l.BoundsKeys():
		return perdure.MaxLimit
	case a.fullKeys[k]:
		return 0
	}
	return l.ForKey(k.Key).room(a.keys[k], a.Now)
}

// take takes permits of a limit, if the limit exists, and returns the buckets of rates that have changed.
func (a *Admission) take(n Need) (changed []KeyBucket) {
	l := a.limits[n.Name]
	if l == nil {
		return nil
	}
	if l.Used += n.Amount; l.Rate.Bounds() {
		l.Bucket = l.Rate.Take(l.Bucket, a.Now, n.Amount)
		changed = append(changed, KeyBucket{LimitKey{Name: n.Name}, l.Bucket})
	}
	if n.Key == "" || !l.BoundsKeys() {
		return changed
	}
	u := a.keys[n.LimitKey]
	u.Used += n.Amount
	if r := l.ForKey(n.Key).Rate; r.Bounds() {
		u.Bucket = r.Take(u.Bucket, a.Now, n.Amount)
		changed = append(changed, KeyBucket{n.LimitKey, u.Bucket})
	}
	a.keys[n.LimitKey] = u
	return changed
}

// HasRoom reports whether all permits that a step needs are available.
func (a *Admission) HasRoom(j *Job, s *Step) bool {
	if a.Empty() {
		return true
	}
	if a.Room(AgentLimit(s.Agent)) == 0 || !j.HasPermit && a.Room(JobLimit(s.Type)) == 0 {
		return false
	}
	needs := s.Needs.List()
	return !slices.ContainsFunc(needs, func(n Need) bool {
		return a.Room(n.Name) < ofLimit(needs, n.Name) || a.roomFor(n.LimitKey) < n.Amount || a.behind(n, s.StepRef)
	})
}

// admit is HasRoom for a step that is claimed. If a limit or key has permits left, but fewer than the step needs, it is
// refused to all other steps until the end of the transaction. Otherwise steps that need less would overtake this step
// again and again. A step that needs more than the limit allows at all does not hold others back. If a key has no room, or
// another job is before this one in the line for the key, the step's lane is closed; but not if the first in the line is in it, too.
func (w *Workset) admit(a *Admission, e *entry, r *row) bool {
	if a.HasRoom(e.job, r.Step) {
		return true
	}
	needs := r.Needs.List()
	for _, n := range needs {
		if amount := ofLimit(needs, n.Name); a.Room(n.Name) < amount && amount <= largest(a.limits[n.Name].Max, a.limits[n.Name].Rate) {
			if a.full == nil {
				a.full = map[string]int{}
			}
			a.full[n.Name] = max(a.full[n.Name], amount)
		}
		if a.roomFor(n.LimitKey) < n.Amount {
			if of := a.limits[n.Name].ForKey(n.Key); n.Amount <= largest(of.Max, of.Rate) {
				if a.fullKeys == nil {
					a.fullKeys = map[LimitKey]bool{}
				}
				a.fullKeys[n.LimitKey] = true
			}
			w.closeLane(a, r, n)
		} else if a.behind(n, r.StepRef) && a.keys[n.LimitKey].First.Lane != (LaneRef{r.Agent, LaneOf(r.Type, r.Needs)}) {
			w.closeLane(a, r, n)
		}
	}
	return false
}

// closeLane closes the lane of a step: searches leave it out until a permit with the key is released, or its rate has
// room. Of a rate, half of the burst is awaited, so that the lane is not opened for each permit.
func (w *Workset) closeLane(a *Admission, r *row, n Need) {
	closed := ClosedLane{LaneRef{r.Agent, LaneOf(r.Type, r.Needs)}, n.LimitKey}
	if a.closed[closed] {
		return
	}
	if a.closed == nil {
		a.closed = map[ClosedLane]bool{}
	}
	a.closed[closed] = true
	w.changes.CloseLanes = append(w.changes.CloseLanes, closed)
	if rate, full := a.limits[n.Name].ForKey(n.Key).Rate, a.keys[n.LimitKey].Bucket; rate.Bounds() && n.Amount <= rate.Burst && rate.Room(full, a.Now) < n.Amount {
		a.reopen = append(a.reopen, Reopening{r.Agent, n.LimitKey, rate.RoomAt(full, a.Now, max(n.Amount, rate.Burst/2))})
	}
}

// ClaimRefs returns the steps whose payloads Claim or RepeatedClaim needs and the workset does not have. A caller that loads
// them for many steps at once avoids one NotLoaded error for each step.
func (w *Workset) ClaimRefs(ref StepRef) []StepRef {
	e := w.entry(ref.Job)
	r := e.steps.at(ref.Index)
	d := r.nextDirection()
	if r.Phase == perdure.Running {
		d = r.Direction
	}
	if r.readsTooMuch {
		return nil
	}
	return e.notLoaded(r, d).Steps
}

// notLoaded returns the steps whose values are needed for a run in direction d and are not loaded.
func (e *entry) notLoaded(r *row, d perdure.Direction) (missing NotLoaded) {
	if d == perdure.Undo {
		_, err := e.output(r.Index)
		_ = missing.gather(err) // sourceOf returns any other error
	}
	switch t, kept := e.templateOf(r, d); {
	case kept:
		_, err := e.input(r)
		_ = missing.gather(err)
	case t != nil:
		for _, i := range t.Refs() {
			_, err := e.output(i)
			_ = missing.gather(err)
		}
	}
	return missing
}

// Claim dispatches a step if it is ready for this agent, if the job's deadline has not passed, and if its agent's limit,
// its job type's limit and the limits that the step names have permits left. Otherwise the run is nil.
//
// room is the number of bytes that the run's input and output may have. If the error is a *NotLoaded, a *Postponed,
// ErrOverBudget or ErrNoRoom, nothing has changed. Any other error means that the rows of the job are damaged.
func (w *Workset) Claim(ref StepRef, c *protocol.Claim, limits *Admission, room int) (*perdure.Run, error) {
	e := w.entry(ref.Job)
	r := e.steps.at(ref.Index)
	if r.Phase != perdure.Ready || r.Agent != c.Agent || w.pastDeadline(e.job) {
		return nil, nil
	}
	if c.Host == "" && r.Needs.Demand() != "" { // a host carries it out
		return nil, nil
	}
	if !w.admit(limits, e, r) {
		return nil, nil
	}
	d := r.nextDirection()
	src, err := w.sourceOf(e, r, d)
	if err != nil {
		return nil, err
	}
	input, err := w.render(e, &src)
	if err != nil {
		if fault := (*inputFault)(nil); errors.As(err, &fault) { // no run number is used for it
			w.failExpression(e, r, fault.error)
			w.finishEvent(e)
			return nil, nil
		}
		return nil, err
	}
	if w.failInput(e, r, d, input) {
		w.finishEvent(e)
		return nil, nil
	}
	secrets := e.secretsOf(r, d, input)
	if len(secrets) > 0 && !c.Secrets {
		w.failSecrets(e, r, c)
		w.finishEvent(e)
		return nil, nil
	}
	if len(input)+len(src.output) > room {
		return nil, ErrNoRoom
	}
	if !w.budget.spendBytes(len(input) + len(src.output)) {
		return nil, ErrOverBudget
	}
	if !limits.Empty() {
		w.takePermits(limits, e, r)
	}
	w.chargeShare(r)
	w.acquirePermit(e, r)
	w.dispatch(e, r, d, c)
	w.keepInput(e, r, d, input)
	w.finishEvent(e)
	return w.runOf(e, r, input, src.output, secrets), nil
}

// acquirePermit makes the job the holder of its permits, at its first run. Its ready steps do not need them any more.
func (w *Workset) acquirePermit(e *entry, r *row) {
	if e.job.HasPermit {
		return
	}
	e.job.HasPermit = true
	r.Needs = r.Needs.withoutJob().withLineBegun()
	if e.job.Active > 1 && (e.job.Needs != "" || len(w.ordered) > 0 && e.plan.namesLimits()) { // others may be ready
		w.enqueue(e, taskPermitted, 0)
	}
}

// leaveLanesOfJob moves the ready steps of a job that has got its permits to lanes that are not closed for these, and forward
// in their lines.
func (w *Workset) leaveLanesOfJob(e *entry) {
	for i := range e.plan.Steps {
		r := e.steps.at(i)
		if r.Phase != perdure.Ready {
			continue
		}
		if needs := r.Needs.withoutJob().withLineBegun(); needs != r.Needs {
			r.Needs, r.dirty = needs, true
			w.newlyReady = append(w.newlyReady, r.StepRef) // searches have not found it there yet
			w.lineMoved(e, r)
		}
	}
}

// takePermits takes the permits that a step needs.
func (w *Workset) takePermits(limits *Admission, e *entry, r *row) {
	if !e.job.HasPermit {
		w.take(limits, Need{LimitKey: LimitKey{Name: JobLimit(e.job.Type)}, Amount: 1})
	}
	w.take(limits, Need{LimitKey: LimitKey{Name: AgentLimit(r.Agent)}, Amount: 1})
	for _, n := range r.Needs.List() {
		w.take(limits, n)
		if limits.roomFor(n.LimitKey) == 0 { // searches need not find the other steps of this lane
			w.closeLane(limits, r, n)
		}
	}
}

func (w *Workset) take(limits *Admission, n Need) {
	for _, b := range limits.take(n) {
		if w.buckets == nil {
			w.buckets = map[LimitKey]Bucket{}
		}
		w.buckets[b.LimitKey] = b.Bucket
	}
}

func (w *Workset) pastDeadline(j *Job) bool {
	return j.startsTooLate(w.now) || j.Desired == perdure.Done && !j.CompleteBy.IsZero() && !w.now.Before(j.CompleteBy)
}

// dispatch gives the step a new run number and locks it for its holder.
func (w *Workset) dispatch(e *entry, r *row, d perdure.Direction, c *protocol.Claim) {
	w.keepRun(e, r)
	r.turnOfRun = 0
	if d != r.Direction {
		r.Turn++
		if d == perdure.Do {
			w.setOutput(r, nil)
		}
	}
	var lockedUntil time.Time // end of the old lock if the holder died: what it started may still act
	if w.now.Before(r.LockedUntil) {
		lockedUntil = r.LockedUntil
	}
	r.CurrentBeforeRun, r.Current = r.Current, perdure.Unsure
	r.Run = max(r.Run+1, w.fence)
	ps := &e.plan.Steps[r.Index]
	r.Direction, r.Outcome, r.Progress, r.ProgressAt = d, perdure.NoOutcome, "", time.Time{}
	r.LockedBy, r.Request, r.Heartbeat = c.Holder, c.RequestID, ps.heartbeat(c.Heartbeat)
	r.CompleteBy = w.deadlineOf(e, r, d)
	if d == perdure.Do {
		r.Host = c.Host
	}
	r.StartedAt, r.EndedAt = w.now, time.Time{}
	r.LockedUntil = r.lockEnd(w.now, ps)
	w.setPhase(e, r, perdure.Running, lockedUntil)
	e.job.Current, e.job.StartBy = perdure.Unsure, time.Time{}
}

// deadlineOf returns the deadline of a run that begins now.
func (w *Workset) deadlineOf(e *entry, r *row, d perdure.Direction) time.Time {
	by := w.now.Add(e.plan.Steps[r.Index].completeWithin(d))
	if cb := e.job.CompleteBy; w.now.Before(cb) && cb.Before(by) {
		return cb
	}
	return by
}

// RunDeadline returns the deadline of the run of a ready step, if it is dispatched now.
func (w *Workset) RunDeadline(ref StepRef) time.Time {
	e := w.entry(ref.Job)
	r := e.steps.at(ref.Index)
	return w.deadlineOf(e, r, r.nextDirection())
}

// lockEnd returns the end of the run's lock after a sign of life at now. It is never later than the run's deadline; and not
// much later than the time by which a run without progress, or a run that an operator has stopped, should have ended.
func (s *Step) lockEnd(now time.Time, ps *PlanStep) time.Time {
	until := s.CompleteBy
	bound := func(t time.Time) {
		if t.Before(until) {
			until = t
		}
	}
	if s.Heartbeat > 0 {
		bound(now.Add(s.Heartbeat))
	}
	if end := s.progressEnd(ps); !end.IsZero() {
		bound(end)
	}
	if !s.StopRequestedAt.IsZero() {
		bound(s.StopRequestedAt.Add(s.Heartbeat + max(time.Duration(ps.StopWithin), perdure.DefaultStopWithin)))
	}
	return until
}

// progressBy returns the time by which the run must make progress; zero if none is expected.
func (s *Step) progressBy(ps *PlanStep) time.Time {
	within := ps.progressWithin(s.Direction)
	if within <= 0 {
		return time.Time{}
	}
	from := s.StartedAt
	if s.ProgressAt.After(from) {
		from = s.ProgressAt
	}
	return from.Add(within)
}

// progressEnd returns the latest end of the lock of a run that makes no more progress; zero if none is expected. It is
// later than progressBy by a heartbeat: progress arrives with heartbeats, and one of them may be lost; and a holder that is
// alive receives the request to stop meanwhile.
func (s *Step) progressEnd(ps *PlanStep) time.Time {
	by := s.progressBy(ps)
	if by.IsZero() {
		return by
	}
	return by.Add(s.Heartbeat)
}

// stalled reports whether a run has not made progress in time.
func (s *Step) stalled(now time.Time, ps *PlanStep) bool {
	by := s.progressBy(ps)
	return !by.IsZero() && !now.Before(by)
}

// RepeatedClaim returns a run to a claim that is repeated: the same run, with the time that remains. The run is nil if it is no
// longer valid. Errors are as those of Claim.
func (w *Workset) RepeatedClaim(ref StepRef, c *protocol.Claim) (*perdure.Run, error) {
	e := w.entry(ref.Job)
	r := e.steps.at(ref.Index)
	if r.Phase != perdure.Running || r.LockedBy != c.Holder || r.Agent != c.Agent || r.Request != c.RequestID || !w.now.Before(r.LockedUntil) {
		return nil, nil
	}
	src, err := w.sourceOf(e, r, r.Direction)
	if err != nil {
		return nil, err
	}
	input, err := w.render(e, &src)
	if err != nil {
		if errors.As(err, new(*inputFault)) {
			return nil, nil // it was rendered from the same values before
		}
		return nil, err
	}
	secrets := e.secretsOf(r, r.Direction, input)
	if len(secrets) > 0 && !c.Secrets {
		return nil, nil // the claim that it repeats has announced it
	}
	return w.runOf(e, r, input, src.output, secrets), nil
}

// runOf returns the run in the form in which its holder receives it. output is that of the do run, if this is an undo.
func (w *Workset) runOf(e *entry, r *row, input, output json.RawMessage, secrets []string) *perdure.Run {
	_, action := e.plan.Steps[r.Index].agentOf(r.Direction)
	run := &perdure.Run{Job: e.job.ID, Step: r.Name, Action: action, Number: r.Run, Direction: r.Direction,
		Input: input, Secrets: secrets, Key: r.Key(), LockedUntil: r.LockedUntil, CompleteBy: r.CompleteBy,
		RemainingMs: r.LockedUntil.Sub(w.now).Milliseconds(), Priority: r.Priority}
	if r.Direction == perdure.Undo {
		run.Output, run.DoKey = output, r.DoKey()
	}
	run.StopWithin = e.plan.Steps[r.Index].StopWithin
	if d := r.Needs.Demand(); d != "" {
		run.Requires, run.Labels = d.Requires(), e.job.Labels
	}
	return run
}

// Inputs of runs.

// source is where the input of a run comes from: a stored value, or a rendering.
type source struct {
	kept      json.RawMessage
	rendering Rendering       // without a template: use kept
	output    json.RawMessage // for an undo: the output of the do run, null if unknown
	bad       error           // why it cannot be rendered at all
}

// inputFault is an error of the definition or its values: the step fails with it, whatever the budget.
type inputFault struct{ error }

// render returns the input. The error is an *inputFault, or one of evaluate.
func (w *Workset) render(e *entry, s *source) (json.RawMessage, error) {
	switch {
	case s.bad != nil:
		return nil, &inputFault{s.bad}
	case s.rendering.template == nil:
		return s.kept, nil
	}
	done, err := w.evaluate(e, &s.rendering)
	if err != nil {
		return nil, err
	}
	if done.err != nil {
		return nil, &inputFault{done.err}
	}
	return done.Input, nil
}

// templateOf returns the template of the input of a run in direction d; nil if the input is null. If kept is true, the
// input is the stored one instead. An undo has the input of the last do run unless its definition gives another.
func (e *entry) templateOf(r *row, d perdure.Direction) (t Template, kept bool) {
	ps := &e.plan.Steps[r.Index]
	switch {
	case r.Edited.appliesTo(d):
		return nil, true
	case d == perdure.Undo && ps.Revert != nil:
		return ps.Revert, false
	case r.OwnInput && r.Edited != editedDo && (d == perdure.Undo || r.Phase == perdure.Running):
		return nil, true
	}
	return ps.Do, false
}

// sourceOf returns the source of a run in direction d. If values are not loaded, the error names all of them.
func (w *Workset) sourceOf(e *entry, r *row, d perdure.Direction) (src source, err error) {
	if r.readsTooMuch {
		return source{bad: errReadsTooMuch}, nil
	}
	if err := e.notLoaded(r, d).orNil(); err != nil {
		return src, err
	}
	if d == perdure.Undo {
		out, err := e.output(r.Index)
		if err != nil {
			return src, err
		}
		src.output = plain.OrNull(out)
	}
	switch t, kept := e.templateOf(r, d); {
	case kept:
		src.kept, err = e.input(r)
	case t == nil:
		src.kept = plain.OrNull(nil)
	default:
		src.rendering = Rendering{Key: RenderingKey{r.StepRef, r.Turn, RenderingOf(d)}, template: t, reads: t.Refs()}
		src.rendering.scope, err = w.scope(e, r, d, src.output, t.Refs())
	}
	return src, err
}

// secretsOf returns the pointers of the strings in which an input refers to secrets. They come from the definition alone. An
// input that an operator has set keeps those references that it has at the same place with the same text: what else it
// contains is text, because it may have been copied from anywhere.
func (e *entry) secretsOf(r *row, d perdure.Direction, input json.RawMessage) (pointers []string) {
	ps := &e.plan.Steps[r.Index]
	t := ps.Do
	if d == perdure.Undo && ps.Revert != nil {
		t = ps.Revert
	}
	if t == nil || len(t.Secrets()) == 0 {
		return nil
	}
	_, kept := e.templateOf(r, d)
	for _, s := range t.Secrets() {
		if kept {
			if text, ok := secret.TextAt(input, s.Pointer); !ok || text != s.Text {
				continue
			}
		}
		pointers = append(pointers, s.Pointer)
	}
	return pointers
}

// keepInput stores the input of a do run if it depends on outputs: these may have changed when the undo runs.
func (w *Workset) keepInput(e *entry, r *row, d perdure.Direction, input json.RawMessage) {
	ps := &e.plan.Steps[r.Index]
	switch {
	case d == perdure.Undo:
		return
	case r.Edited.appliesTo(perdure.Do):
		r.Edited = editedDone
		return
	}
	r.Edited = notEdited
	if ps.Do != nil && len(ps.Do.Refs()) > 0 {
		w.setInput(r, input)
	} else {
		w.setInput(r, nil)
	}
}

// scope returns what an expression of the step may read: the outputs of the steps that it names and, in an undo, the
// output of its own do run. The scope is valid until the next call.
func (w *Workset) scope(e *entry, r *row, d perdure.Direction, output json.RawMessage, refs []int) (*Scope, error) {
	outputs, err := e.outputs(refs)
	if err != nil {
		return nil, err
	}
	s := &w.alloc.scope
	*s = Scope{Job: e.job, Input: e.plan.Definition.Input, Outputs: outputs, Budget: w.budget}
	if d == perdure.Undo {
		turn := *r.Step
		if r.Direction != perdure.Undo {
			turn.Turn++ // the run that is about to be dispatched begins the turn
		}
		s.Output, s.Key, s.DoKey = output, turn.Key(), turn.DoKey()
	}
	return s, nil
}

// advanceRefs returns the steps whose outputs advance may read for step i.
func (e *entry) advanceRefs(i int) []int {
	ps := &e.plan.Steps[i]
	s := e.steps.at(i).Step
	if s.Desired != perdure.Done || s.Blockers > 1 || s.Phase == perdure.Running || s.Phase == perdure.Parked {
		return nil
	}
	var refs []int
	if ps.Test != nil {
		refs = append(refs, ps.Test.Refs()...)
	}
	if ps.Limits != nil {
		refs = append(refs, ps.Limits.Refs()...)
	}
	if ps.Form != ByAgent && ps.Do != nil {
		refs = append(refs, ps.Do.Refs()...)
	}
	return refs
}
