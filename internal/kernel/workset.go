package kernel

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

// Workset holds the part of some jobs that one transaction has loaded and locked. Its methods (Submit, Claim, Report,
// Due, Expire, Act and others) apply one event each, and are the only code that changes the state of a job or step.
// Changes returns what the transaction must write.
//
// An event may need rows that are not loaded. For example, a report that settles a step needs the rows of the steps that
// wait for it, and an undo needs all steps of the job. The workset then keeps the remaining tasks, and Missing lists the
// rows. The caller loads them, adds them (AddSteps, AddWhole, AddPayloads) and calls Continue, and repeats this until nothing
// is missing. Only then is the event complete, and only then may the next event be applied or Changes be called.
//
// A workset belongs to one goroutine, also for reading.
type Workset struct {
	now    time.Time
	random func() float64 // in [0,1); used for jitter only
	fence  int64          // the least number that a run dispatched here may have
	budget *Budget        // for rendering; nil: no bound

	settings map[string]perdure.AgentSettings // by agent; an agent that is not in it has the default settings
	fairness []FairBy                         // agents whose ready steps are divided into shares
	ordered  []string                         // limits whose permits are taken in the order of submission
	charges  map[shareRef]*Charge             // of shares, since the last call of Changes
	routing  *Routing                         // which notifications are stored; nil: those of definitions only

	prepared  Prepared     // results that were rendered outside of the transaction; may be nil
	postponed []*Rendering // conditions to evaluate outside of the transaction

	jobs         map[perdure.JobID]*entry
	order        []*entry
	lastLookup   int // index in order: the job that entry returned last
	alloc        slabs
	actUnneeded  bool                // the latest act found nothing to do
	newlyReady   []StepRef           // steps made ready since the last call of NewlyReady
	runEnds      []RunEnd            // runs ended since the last call of EndedRuns
	buckets      map[LimitKey]Bucket // buckets of rates that have changed since the last call of Changes
	releasedKeys []LimitKey          // keys of permits released since the last call of ReleasedKeys
	topics       map[Topic]*topicState
	found        map[SignalWant]keptFound // for steps that begin to wait for a signal
	owners       map[StepRef]*OwnerFound  // for steps with children that are being decided
	takenNews    map[int64]bool           // news that was counted
	ownersMoved  map[StepRef]bool         // see OwnerMoved
	compiler     Compiler                 // makes the plans of children
	newKeys      map[string]perdure.JobID // keys of new jobs
	changes      Changes

	agenda    []task
	performed int    // number of tasks at the start of agenda that were performed
	blocked   []task // tasks that wait for rows
	missing   Missing
	toUpdate  []*entry // jobs whose own row must be updated from the counts of their steps
}

// Missing lists the rows that must be added to a workset before its current event can be completed.
type Missing struct {
	Steps          []StepRef
	WholeJobs      []perdure.JobID // jobs of which all steps are needed
	Payloads       []StepRef
	PayloadReaders []StepRef // steps whose next phase depends on these payloads
	Signals        []SignalWant
	Owners         []OwnerWant
}

// Empty reports whether nothing is missing.
func (m *Missing) Empty() bool {
	return len(m.Steps)+len(m.WholeJobs)+len(m.Payloads)+len(m.Signals)+len(m.Owners) == 0
}

// entry is a job in a workset.
type entry struct {
	job              *Job
	loaded           *Job // as loaded from the store, or as returned by Changes last; nil: new
	dirty            bool
	plan             *Plan
	steps            rows
	whole            bool
	valuesWithoutRow map[int]*values // values that were added before the row of their step
	replaces         perdure.JobID   // see ReplaceUnique
	jobOutput        value
	updateQueued     bool
	tasks            int  // of the job, that are not performed yet
	hasBlockedTask   bool // a task of the job waits for rows; later tasks of the job wait behind it
	position         int  // index in the workset's order
}

// row is a step in a workset.
type row struct {
	*Step
	loaded *Step // as loaded from the store, or as returned by Changes last; nil: new
	dirty  bool
	values values

	readsTooMuch bool // set by ReadsTooMuch
	turnOfRun    int  // turn of the run that this event ends, if an edit has begun another turn; otherwise 0

	newlyReady      bool      // made ready since it was loaded, and not dispatched since
	previousReadyAt time.Time // ReadyAt before newlyReady was set
}

// task is a change to a step or job that is made once the rows that it needs are loaded.
type task struct {
	entry *entry
	kind  taskKind
	index int
	flip  flip
}

type taskKind uint8

const (
	taskUnblock    taskKind = iota // a neighbour of step index was settled: decrement Blockers
	taskAdvance                    // set the next phase of step index
	taskFlip                       // change the direction of the whole job
	taskParkActive                 // park all active steps
	taskTend                       // count the children of step index, and decide what follows
	taskPermitted                  // the job has its permits: its ready steps do not need them any more
)

// NewWorkset returns an empty workset. now is the store's clock, read after the locks were taken. random returns numbers
// in [0,1).
func NewWorkset(now time.Time, random func() float64) *Workset {
	return &Workset{now: now, random: random, jobs: map[perdure.JobID]*entry{}}
}

// SetFence sets the least number that a run dispatched in this workset may have.
func (w *Workset) SetFence(least int64) { w.fence = least }

// UseSettings sets the settings of the agents, by name. They apply to steps that become ready after this call.
func (w *Workset) UseSettings(settings map[string]perdure.AgentSettings) { w.settings = settings }

// SetBudget sets the budget for rendering after this call; nil: no bound. Results in p are used without spending.
func (w *Workset) SetBudget(b *Budget, p Prepared) { w.budget, w.prepared = b, p }

// Now returns the time at which the events of this workset happen.
func (w *Workset) Now() time.Time { return w.now }

// AddJob adds a job that was loaded under its lock. The workset changes a copy of it.
func (w *Workset) AddJob(j *Job, plan *Plan) {
	e := w.alloc.entries.next()
	e.job, e.loaded, e.plan = w.alloc.jobs.copy(j), j, plan
	w.add(e)
}

func (w *Workset) add(e *entry) {
	e.steps.expect(len(e.plan.Steps))
	e.position = len(w.order)
	w.jobs[e.job.ID] = e
	w.order = append(w.order, e)
}

// entry returns a job of the workset; nil if it was not added. Callers usually ask for the same job as in the call
// before, or for the next one, so these are compared before the map is read.
func (w *Workset) entry(id perdure.JobID) *entry {
	for _, e := range w.order[w.lastLookup:min(w.lastLookup+2, len(w.order))] {
		if e.job.ID == id {
			w.lastLookup = e.position
			return e
		}
	}
	e := w.jobs[id]
	if e != nil {
		w.lastLookup = e.position
	}
	return e
}

// Has reports whether the job was added.
func (w *Workset) Has(id perdure.JobID) bool { return w.entry(id) != nil }

// Job returns a job in its present state; nil if it was not added. The caller must not change it.
func (w *Workset) Job(id perdure.JobID) *Job {
	if e := w.entry(id); e != nil {
		return e.job
	}
	return nil
}

// Plan returns the plan of a job.
func (w *Workset) Plan(id perdure.JobID) *Plan { return w.entry(id).plan }

// HasStep reports whether the row of a step was added.
func (w *Workset) HasStep(ref StepRef) bool {
	return w.Step(ref) != nil
}

// HasWhole reports whether all steps of a job were added.
func (w *Workset) HasWhole(id perdure.JobID) bool { return w.entry(id).whole }

// WasReady reports whether an added step was ready when it was loaded or, later, when Changes last returned it.
func (w *Workset) WasReady(ref StepRef) bool {
	before := w.entry(ref.Job).steps.at(ref.Index).loaded
	return before != nil && before.Phase == perdure.Ready
}

// Step returns a step in its present state; nil if it was not added. The caller must not change it.
func (w *Workset) Step(ref StepRef) *Step {
	if e := w.entry(ref.Job); e != nil {
		if r := e.steps.at(ref.Index); r != nil {
			return r.Step
		}
	}
	return nil
}

// AddSteps adds rows of steps; their jobs were added before. The workset changes copies of them. A step that was added
// before is not replaced.
func (w *Workset) AddSteps(steps []*Step) {
	for _, s := range steps {
		e := w.entry(s.Job)
		if e.steps.at(s.Index) == nil {
			r := w.alloc.rows.next()
			r.Step, r.loaded = w.alloc.steps.copy(s), s
			if v := e.valuesWithoutRow[s.Index]; v != nil {
				r.values = *v
				delete(e.valuesWithoutRow, s.Index)
			}
			e.steps.put(s.Index, r)
		}
	}
}

// AddWhole adds all steps of a job.
func (w *Workset) AddWhole(id perdure.JobID, steps []*Step) {
	w.AddSteps(steps)
	w.entry(id).whole = true
}

// AddPayloads adds inputs and outputs that were loaded. A step that is in refs and not in found has no input and no
// output. A value that the workset already has is not replaced.
func (w *Workset) AddPayloads(refs []StepRef, found []Payload) {
	for i := range found {
		w.entry(found[i].Job).valuesOf(found[i].Index).load(&found[i])
	}
	for _, ref := range refs {
		w.entry(ref.Job).valuesOf(ref.Index).load(&Payload{})
	}
}

// Missing returns the rows to add before the next call of Continue. It is empty if all events so far are complete.
func (w *Workset) Missing() *Missing {
	w.missing.Steps = uniqueRefs(w.missing.Steps)
	w.missing.Payloads = uniqueRefs(w.missing.Payloads)
	w.missing.PayloadReaders = uniqueRefs(w.missing.PayloadReaders)
	return &w.missing
}

func uniqueRefs(refs []StepRef) []StepRef {
	if len(refs) < 2 { // the usual case
		return refs
	}
	slices.SortFunc(refs, StepRef.Compare)
	return slices.Compact(refs)
}

// Continue performs the tasks whose rows are loaded, and then updates the rows of the jobs from the counts of their steps.
// Call it after rows that were missing have been added.
func (w *Workset) Continue() {
	w.missing = Missing{}
	for _, t := range w.blocked {
		t.entry.hasBlockedTask = false
	}
	if len(w.blocked) > 0 {
		w.agenda, w.blocked = append(w.blocked, w.agenda...), nil
	}
	for len(w.agenda) > 0 || len(w.toUpdate) > 0 {
		for w.performed < len(w.agenda) {
			t := w.agenda[w.performed]
			w.performed++
			t.entry.tasks--
			if ready := w.rowsLoaded(t); ready && !t.entry.hasBlockedTask {
				w.perform(t)
			} else {
				w.block(t)
			}
		}
		w.agenda, w.performed = w.agenda[:0], 0
		w.updateJobs()
	}
}

// block keeps a task until its rows are loaded. The tasks of a job are performed in their order, whichever rows are
// loaded first.
func (w *Workset) block(t task) {
	t.entry.hasBlockedTask = true
	t.entry.tasks++
	w.blocked = append(w.blocked, t)
}

// updateJobs completes the event for each job that no task waits for. While a task waits, the counts of its job are not
// final.
func (w *Workset) updateJobs() {
	count := len(w.toUpdate) // updateJob may append more; the loop in Continue handles these
	for _, e := range w.toUpdate[:count] {
		e.updateQueued = false
		if !slices.ContainsFunc(w.blocked, func(t task) bool { return t.entry == e }) {
			w.updateJob(e)
		}
	}
	w.toUpdate = slices.Delete(w.toUpdate, 0, count)
}

// finishEvent is called at the end of each event: it marks the job as changed, and performs the tasks.
func (w *Workset) finishEvent(e *entry) {
	w.queueUpdate(e)
	w.Continue()
}

func (w *Workset) queueUpdate(e *entry) {
	if !e.updateQueued {
		e.updateQueued = true
		w.toUpdate = append(w.toUpdate, e)
	}
}

// rowsLoaded reports whether the rows that a task needs are loaded. If not, it adds them to missing.
func (w *Workset) rowsLoaded(t task) bool {
	if t.kind == taskFlip || t.kind == taskParkActive || t.kind == taskPermitted {
		if !t.entry.whole {
			w.missing.WholeJobs = append(w.missing.WholeJobs, t.entry.job.ID)
		}
		return t.entry.whole
	}
	if t.entry.steps.at(t.index) == nil {
		w.missing.Steps = append(w.missing.Steps, StepRef{t.entry.job.ID, t.index})
		return false
	}
	r := t.entry.steps.at(t.index)
	if r.readsTooMuch || !w.budget.mayRead() || t.kind == taskTend {
		return true // the step fails, or its rendering is postponed
	}
	_, err := t.entry.outputs(t.entry.advanceRefs(t.index))
	return !w.noteMissing(r, err)
}

// noteMissing reports whether a rule stopped because values are not loaded, and records which ones. Any other error is a
// fault of the store, not of the definition: the rules cannot continue with this job.
func (w *Workset) noteMissing(r *row, err error) bool {
	var missing NotLoaded
	if err := missing.gather(err); err != nil {
		panic(err)
	}
	if len(missing.Steps) == 0 {
		return false
	}
	w.missing.Payloads = append(w.missing.Payloads, missing.Steps...)
	w.missing.PayloadReaders = append(w.missing.PayloadReaders, r.StepRef)
	return true
}

// ReadsTooMuch records that the next input or the condition of a step reads more than MaxReadBytes of outputs. The step
// then fails as if an expression could not be evaluated.
func (w *Workset) ReadsTooMuch(ref StepRef) { w.entry(ref.Job).steps.at(ref.Index).readsTooMuch = true }

var errReadsTooMuch = perdure.Refuse(perdure.CodeTooLarge, "the outputs that it reads have more than %d bytes in total", perdure.MaxReadBytes)

func (w *Workset) perform(t task) {
	switch t.kind {
	case taskUnblock:
		r := t.entry.steps.at(t.index)
		r.dirty = true
		if r.Blockers--; r.Blockers <= 0 {
			w.advance(t.entry, r)
		}
	case taskAdvance:
		w.advance(t.entry, t.entry.steps.at(t.index))
	case taskTend:
		w.tend(t.entry, t.entry.steps.at(t.index))
	case taskFlip:
		w.flipJob(t.entry, t.flip)
	case taskParkActive:
		w.parkActive(t.entry, t.flip.failure)
	case taskPermitted:
		w.leaveLanesOfJob(t.entry)
	}
	w.queueUpdate(t.entry)
}

func (w *Workset) enqueue(e *entry, kind taskKind, index int) {
	w.addTask(task{entry: e, kind: kind, index: index})
}

func (w *Workset) addTask(t task) {
	t.entry.tasks++
	w.agenda = append(w.agenda, t)
}

// enqueueFlip adds a change of direction of the whole job. It replaces all other tasks of the job, because the flip
// recomputes every step.
func (w *Workset) enqueueFlip(e *entry, f flip) {
	if e.tasks > 0 { // usually none is: a thousand children may be flipped in one transaction
		ofThis := func(t task) bool { return t.entry == e }
		w.agenda = slices.DeleteFunc(slices.Delete(w.agenda, 0, w.performed), ofThis)
		w.performed = 0
		w.blocked = slices.DeleteFunc(w.blocked, ofThis)
		e.tasks, e.hasBlockedTask = 0, false
	}
	w.addTask(task{entry: e, kind: taskFlip, flip: f})
}

// setPhase is the only code that changes the phase of a step. It keeps the job's counts correct. It ends the wait for a signal
// or an approval.
func (w *Workset) setPhase(e *entry, r *row, p perdure.Phase, at time.Time) {
	e.count(r.Step, -1)
	if p != perdure.Running { // then the key is full
		w.lineMoved(e, r)
	}
	switch {
	case p == perdure.Ready && r.Phase != perdure.Ready:
		r.previousReadyAt, r.ReadyAt, r.newlyReady = r.ReadyAt, w.now, true
		if r.Ageing = time.Duration(w.settings[r.Agent].Ageing); r.Ageing == perdure.DefaultAgeing {
			r.Ageing = 0
		}
	case p != perdure.Ready && p != perdure.Running && r.newlyReady: // it was ready only within this event, and was not dispatched
		r.ReadyAt = r.previousReadyAt
	}
	if p == perdure.Ready && (len(w.fairness) > 0 || r.Needs != "") { // also if it was ready: its agent may be another one now
		r.Needs = r.Needs.withLine(w.ordered, e.job.begun()).WithShare(w.shareFor(e, r.Agent))
	}
	r.newlyReady = p == perdure.Ready && r.newlyReady
	r.Phase, r.AvailableAt, r.Topic, r.Approval, r.Owns = p, at, "", "", false
	e.count(r.Step, +1)
	r.dirty, e.dirty = true, true
	if p == perdure.Ready {
		w.newlyReady = append(w.newlyReady, r.StepRef)
		w.lineMoved(e, r)
	}
}

func (e *entry) count(s *Step, by int) {
	if s.Phase != perdure.Settled {
		e.job.Unsettled += by
	}
	if s.Phase == perdure.Running {
		e.job.Running += by
	}
	if s.active() {
		e.job.Active += by
	}
}

// phaseOf returns the phase of a job, derived from its counts.
func phaseOf(j *Job) perdure.Phase {
	switch {
	case j.Unsettled == 0:
		return perdure.Settled
	case j.Running > 0:
		return perdure.Running
	case j.Active == 0:
		return perdure.Parked
	}
	return perdure.Waiting
}

// raiseAlert raises an alert of a step, or of the job if r is nil.
func (w *Workset) raiseAlert(e *entry, r *row, kind perdure.AlertKind, name, message string) {
	e.job.Alerted, e.dirty = true, true
	a := Alert{Job: e.job.ID, Type: e.job.Type, JobKey: e.job.Key, Kind: kind, Name: name,
		Message: plain.Clip(message, perdure.MaxReasonBytes), RaisedAt: w.now}
	if r != nil {
		a.Step, a.Code, a.Attempts = r.Name, r.ErrorCode, r.Failures
	}
	w.changes.Alerts = append(w.changes.Alerts, a)
}

func (w *Workset) closeAlerts(e *entry, step, author string, kinds ...perdure.AlertKind) {
	if !e.job.Alerted {
		return
	}
	kept := w.changes.Alerts[:0]
	for _, a := range w.changes.Alerts { // an alert that was raised in this workset is dropped: it was never written
		if a.Job != e.job.ID || a.Step != step && step != "" || !slices.Contains(kinds, a.Kind) {
			kept = append(kept, a)
		}
	}
	w.changes.Alerts = kept
	w.changes.CloseAlerts = append(w.changes.CloseAlerts, CloseAlerts{Job: e.job.ID, Step: step, Kinds: kinds, By: author})
}

func (w *Workset) addHistory(e *entry, step string, run int64, event, author, detail string) {
	w.changes.History = append(w.changes.History, Entry{Job: e.job.ID, Step: step, Run: run, At: w.now,
		Event: event, Author: author, Detail: plain.Clip(detail, perdure.MaxReasonBytes)})
}

// addRun adds the latest run of a step, which has ended, to the history.
func (w *Workset) addRun(e *entry, r *row, event, holder, detail string) {
	w.addHistory(e, r.Name, r.Run, event, holder, detail)
	h := &w.changes.History[len(w.changes.History)-1]
	h.At, h.Turn, h.Direction, h.ReadyAt, h.StartedAt = r.EndedAt, cmp.Or(r.turnOfRun, r.Turn), r.Direction, r.RunReadyAt(), r.StartedAt
}

// keepRun is called before the step's row loses its latest run, or a part of it: before the next dispatch, and before an
// act that sets the end or the turn of the step. If the run has succeeded, the history has no entry of it yet, and
// keepRun adds one. Then the start of the run is cleared, so that it is not added twice. The holder of a run that has
// succeeded is not kept.
func (w *Workset) keepRun(e *entry, r *row) {
	if r.Phase == perdure.Running || !r.RowHasRun() {
		return
	}
	w.addRun(e, r, perdure.OutcomeDone.String(), "", "")
	r.StartedAt, r.dirty = time.Time{}, true
}

// NewlyReady returns the steps that were made ready since the last call and are still ready.
func (w *Workset) NewlyReady() []StepRef {
	refs := slices.DeleteFunc(w.newlyReady, func(ref StepRef) bool { return w.Step(ref).Phase != perdure.Ready })
	w.newlyReady = nil
	return refs
}

// RunEnd describes the end of a run.
type RunEnd struct {
	Job       perdure.JobID
	Type      string // of the job
	Step      string
	Run       int64
	Turn      int
	Agent     string
	Holder    string
	Direction perdure.Direction
	Outcome   perdure.Outcome
	Code      string // error code of a failure
	Duration  time.Duration
}

// EndedRuns returns the runs that have ended since the last call.
func (w *Workset) EndedRuns() []RunEnd {
	ended := w.runEnds
	w.runEnds = nil
	return ended
}

// ReleasedKeys returns the limits and keys of which permits were released since the last call. Lanes that are closed for them
// may be opened (Tx.OpenLanes).
func (w *Workset) ReleasedKeys() []LimitKey {
	freed := w.releasedKeys
	w.releasedKeys = nil
	slices.SortFunc(freed, LimitKey.Compare)
	return slices.Compact(freed)
}

// Changes returns what must be written since the last call, and takes it as written. It must not be called while
// anything is missing.
func (w *Workset) Changes() *Changes { return w.collect(true) }

// FinalChanges is Changes for a workset to which no more events are applied. It returns the workset's own rows instead of
// copies.
func (w *Workset) FinalChanges() *Changes { return w.collect(false) }

func (w *Workset) collect(more bool) *Changes {
	c := w.changes
	w.changes = Changes{}
	for _, k := range slices.SortedFunc(maps.Keys(w.buckets), LimitKey.Compare) {
		c.Buckets = append(c.Buckets, KeyBucket{k, w.buckets[k]})
	}
	clear(w.buckets)
	c.Served = w.takeCharges()
	w.signalChanges(&c)
	for _, e := range w.order {
		if e.loaded == nil {
			w.collectNew(e, &c, more)
			continue
		}
		if e.dirty {
			e.job.UpdatedAt = w.now
			now := w.alloc.jobs.frozen(e.job, more)
			c.Jobs = append(c.Jobs, JobChange{Now: now, Loaded: e.loaded})
			w.notifyJob(&c, e, e.loaded, now)
			c.noteFiring(e.loaded, now)
			c.noteChild(e.loaded, now)
			e.loaded, e.dirty = now, false
		}
		e.collectOutput(&c)
		for r := range e.changedRows() {
			r.UpdatedAt = w.now
			now := w.alloc.steps.frozen(r.Step, more)
			c.Steps = append(c.Steps, StepChange{Now: now, Loaded: r.loaded})
			r.loaded, r.dirty = now, false
			r.values.collect(r.StepRef, &c)
		}
	}
	return &c
}

func (w *Workset) collectNew(e *entry, c *Changes, more bool) {
	e.loaded, e.dirty = w.alloc.jobs.frozen(e.job, more), false
	n := NewJob{Job: e.loaded, Shape: e.plan.Text, Steps: make([]*Step, len(e.plan.Steps))}
	for i := range e.plan.Steps {
		r := e.steps.at(i)
		r.loaded, r.dirty = w.alloc.steps.frozen(r.Step, more), false
		n.Steps[i] = r.loaded
		r.values.collect(r.StepRef, c)
	}
	e.collectOutput(c)
	c.NewJobs = append(c.NewJobs, n)
	w.holdUnique(c, e)
	c.useArtifacts(e.job.ID, e.plan.Artifacts)
	c.useArtifacts(e.job.ID, ArtifactsIn(e.job.Input))
	w.notifyJob(c, e, nil, e.loaded)
	c.noteFiring(nil, e.loaded)
	c.noteChild(nil, e.loaded)
}

// changedRows yields the changed steps in order.
func (e *entry) changedRows() iter.Seq[*row] {
	return func(yield func(*row) bool) {
		for _, r := range e.steps.few {
			if r != nil && r.dirty && !yield(r) {
				return
			}
		}
		if len(e.steps.many) == 0 {
			return
		}
		for _, i := range slices.Sorted(maps.Keys(e.steps.many)) {
			if r := e.steps.many[i]; r.dirty && !yield(r) {
				return
			}
		}
	}
}

// slabs allocate the rows of a workset, many at a time: a group commit creates and drops thousands of them together.
type slabs struct {
	entries slab[entry]
	rows    slab[row]
	jobs    slab[Job]
	steps   slab[Step]
	scope   Scope // of the latest rendering
}

type slab[T any] struct {
	left []T
	size int
}

// maxSlab bounds the number of values that stay in memory because one of them does.
const maxSlab = 64

func (s *slab[T]) next() *T {
	if len(s.left) == 0 {
		s.size = min(max(1, 2*s.size), maxSlab)
		s.left = make([]T, s.size)
	}
	one := &s.left[0]
	s.left = s.left[1:]
	return one
}

func (s *slab[T]) copy(v *T) *T {
	one := s.next()
	*one = *v
	return one
}

// frozen returns a row that will not change any more: a copy if the workset goes on (more), else the row itself.
func (s *slab[T]) frozen(v *T, more bool) *T {
	if more {
		return s.copy(v)
	}
	return v
}

// rows holds the loaded steps of a job by index: in a list if the job has few steps, so that a small job needs no map,
// else in a map.
type rows struct {
	few  []*row
	many map[int]*row
	one  [1]*row
}

const fewSteps = 64

func (rs *rows) expect(steps int) {
	switch {
	case steps == 1:
		rs.few = rs.one[:]
	case steps <= fewSteps:
		rs.few = make([]*row, steps)
	}
}

// at returns nil if the step is not loaded.
func (rs *rows) at(i int) *row {
	if i < len(rs.few) {
		return rs.few[i]
	}
	return rs.many[i]
}

func (rs *rows) put(i int, r *row) {
	if i < len(rs.few) {
		rs.few[i] = r
		return
	}
	if rs.many == nil {
		rs.many = map[int]*row{}
	}
	rs.many[i] = r
}

func (rs *rows) all(yield func(int, *row) bool) {
	for i, r := range rs.few {
		if r != nil && !yield(i, r) {
			return
		}
	}
	for i, r := range rs.many {
		if !yield(i, r) {
			return
		}
	}
}
