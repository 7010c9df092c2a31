package kernel

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

// Workset is the part of some jobs that one transaction has loaded under lock. Events are folded into
// it by its methods, which are the only code that changes a state; Changes says what must be written.
//
// A rule may come upon a row that was not loaded (a neighbour's neighbour, the whole job for a flip).
// Then it stops there: Missing names what has to be added before Go can carry on. An event is complete,
// and the next one may be folded in, when nothing is missing.
//
// It belongs to one goroutine, also for reading.
type Workset struct {
	now    time.Time
	random func() float64 // in [0,1), for jitter alone
	fence  int64          // no run that is dispatched has a lower number
	budget *Budget        // what is left for rendering; nil: no bound

	settings map[string]perdure.AgentSettings // by agent; those without are at their default

	prepared  Prepared     // results of renderings outside of transactions; may be nil
	postponed []*Rendering // conditions to evaluate outside

	jobs    map[perdure.JobID]*entry
	order   []*entry
	lastLookup      int // in order: the job that was looked for last
	alloc    slabs
	readied []StepRef  // made ready since the last call of Readied
	runEnds  []Landing  // since the last call of Landed
	freed   []LimitKey // of permits that were released, since the last call of Freed
	changes Changes

	agenda   []task
	performed     int    // tasks of the agenda that were performed
	blocked  []task // tasks that wait for rows
	missing  Missing
	toUpdate []*entry // jobs to be brought in line with their steps
}

// Missing is what the rules wait for.
type Missing struct {
	Steps    []StepRef
	Whole    []perdure.JobID // all steps of these
	Payloads []StepRef
	Looks    []StepRef // steps whose next phase depends on these payloads
}

// Empty says that nothing is missing.
func (m *Missing) Empty() bool { return len(m.Steps)+len(m.Whole)+len(m.Payloads) == 0 }

// entry is one job in a workset.
type entry struct {
	job      *Job
	loaded      *Job // as loaded; nil: new
	dirty    bool
	plan     *Plan
	steps    rows
	whole    bool
	valuesWithoutRow  map[int]*values // of steps whose row is not loaded
	updateQueued bool
	hasBlockedTask    bool // a task waits for rows, and all later tasks wait as well
	position    int  // position in the workset's order
}

// row is one step in a workset.
type row struct {
	*Step
	loaded    *Step // as loaded; nil: new
	dirty  bool
	values values

	readsTooMuch bool // see ReadsTooMuch

	newlyReady       bool      // made ready since it was loaded, and not dispatched yet
	previousReadyAt time.Time // ReadyAt before that
}

// task is a step or job to look at, once the rows that it needs are there.
type task struct {
	entry *entry
	kind  taskKind
	index int
	flip  flip
}

type taskKind uint8

const (
	taskUnblock taskKind = iota // a neighbour of step index was settled
	taskAdvance                    // look at step index
	taskFlip                    // turn the whole job
	taskParkActive                    // park what is active
)

// NewWorkset makes an empty one. now is the store's clock, read after the locks were taken.
func NewWorkset(now time.Time, chance func() float64) *Workset {
	return &Workset{now: now, random: chance, jobs: map[perdure.JobID]*entry{}}
}

// SetFence sets the least number that a run may have which is dispatched here.
func (w *Workset) SetFence(least int64) { w.fence = least }

// UseSettings sets the settings of agents, for steps that become ready from here on.
func (w *Workset) UseSettings(of map[string]perdure.AgentSettings) { w.settings = of }

// Spend sets the budget for rendering from here on; nil: no bound. Prepared results cost nothing.
func (w *Workset) Spend(b *Budget, p Prepared) { w.budget, w.prepared = b, p }

// Now is the time at which the events of this workset happen.
func (w *Workset) Now() time.Time { return w.now }

// AddJob adds a job that was loaded under its lock. It stays as it is: what happens to it happens to a copy.
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

// entry is a job of the workset; nil if it is not there. As a rule it is the one that was looked for before, or the next.
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

// Has says whether the job is there.
func (w *Workset) Has(id perdure.JobID) bool { return w.entry(id) != nil }

// Job is a job of the workset as it stands; nil if it is not there. It must not be changed.
func (w *Workset) Job(id perdure.JobID) *Job {
	if e := w.entry(id); e != nil {
		return e.job
	}
	return nil
}

// Plan is a job's plan.
func (w *Workset) Plan(id perdure.JobID) *Plan { return w.entry(id).plan }

// HasStep says whether a step's row is there.
func (w *Workset) HasStep(ref StepRef) bool {
	return w.Step(ref) != nil
}

// WasReady reports whether a loaded step was ready when it was saved last.
func (w *Workset) WasReady(ref StepRef) bool {
	was := w.entry(ref.Job).steps.at(ref.Index).loaded
	return was != nil && was.Phase == perdure.Ready
}

// Step is a step as it stands; nil if it is not there. It must not be changed.
func (w *Workset) Step(ref StepRef) *Step {
	if e := w.entry(ref.Job); e != nil {
		if r := e.steps.at(ref.Index); r != nil {
			return r.Step
		}
	}
	return nil
}

// AddSteps adds steps of jobs that are there, as AddJob does. Of one that is there already nothing changes.
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

// AddPayloads adds inputs and outputs that were loaded. A step that is in refs and not in found has neither. A value
// that the workset already has is not replaced.
func (w *Workset) AddPayloads(refs []StepRef, found []Payload) {
	for i := range found {
		w.entry(found[i].Job).valuesOf(found[i].Index).load(&found[i])
	}
	for _, ref := range refs {
		w.entry(ref.Job).valuesOf(ref.Index).load(&Payload{})
	}
}

// Missing says what to add before Go; it is empty when all events so far are complete.
func (w *Workset) Missing() *Missing {
	w.missing.Steps = uniqueRefs(w.missing.Steps)
	w.missing.Payloads = uniqueRefs(w.missing.Payloads)
	w.missing.Looks = uniqueRefs(w.missing.Looks)
	return &w.missing
}

func uniqueRefs(refs []StepRef) []StepRef {
	if len(refs) < 2 { // after nearly every event
		return refs
	}
	slices.SortFunc(refs, StepRef.Compare)
	return slices.Compact(refs)
}

// Go carries on with what is on the agenda, as far as the rows are there, and then brings the jobs in
// line with their steps.
func (w *Workset) Go() {
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
	w.blocked = append(w.blocked, t)
}

// restAll closes the events of the jobs for which nothing is missing. Before that their counts say
// nothing.
func (w *Workset) updateJobs() {
	moved := len(w.toUpdate) // more may come, and are seen to next
	for _, e := range w.toUpdate[:moved] {
		e.updateQueued = false
		if !slices.ContainsFunc(w.blocked, func(t task) bool { return t.entry == e }) {
			w.updateJob(e)
		}
	}
	w.toUpdate = slices.Delete(w.toUpdate, 0, moved)
}

// touch says that something about the job moved, and carries on.
func (w *Workset) finishEvent(e *entry) {
	w.queueUpdate(e)
	w.Go()
}

func (w *Workset) queueUpdate(e *entry) {
	if !e.updateQueued {
		e.updateQueued = true
		w.toUpdate = append(w.toUpdate, e)
	}
}

// ready says whether what the task touches is loaded, and notes what is missing.
func (w *Workset) rowsLoaded(t task) bool {
	if t.kind == taskFlip || t.kind == taskParkActive {
		if !t.entry.whole {
			w.missing.Whole = append(w.missing.Whole, t.entry.job.ID)
		}
		return t.entry.whole
	}
	if t.entry.steps.at(t.index) == nil {
		w.missing.Steps = append(w.missing.Steps, StepRef{t.entry.job.ID, t.index})
		return false
	}
	r := t.entry.steps.at(t.index)
	if r.readsTooMuch || !w.budget.mayRead() {
		return true // it fails, or is postponed
	}
	_, err := t.entry.outputs(t.entry.advanceRefs(t.index))
	return !w.noteMissing(r, err)
}

// mustLoad reports whether a rule stopped because values are not loaded, and records which ones. Any other error is a
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
	w.missing.Looks = append(w.missing.Looks, r.StepRef)
	return true
}

// ReadsTooMuch says that the next input, or the condition, of a step reads more than MaxReadBytes of outputs. The step
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
	case taskFlip:
		w.flipJob(t.entry, t.flip)
	case taskParkActive:
		w.parkActive(t.entry)
	}
	w.queueUpdate(t.entry)
}

func (w *Workset) enqueue(e *entry, kind taskKind, index int) {
	w.agenda = append(w.agenda, task{entry: e, kind: kind, index: index})
}

// turnLater puts the turning of a whole job on the agenda, in place of all that was still to be looked
// at: a turn looks at everything anew.
func (w *Workset) enqueueFlip(e *entry, f flip) {
	ofThis := func(t task) bool { return t.entry == e }
	w.agenda = slices.DeleteFunc(slices.Delete(w.agenda, 0, w.performed), ofThis)
	w.performed = 0
	w.blocked = slices.DeleteFunc(w.blocked, ofThis)
	e.hasBlockedTask = false
	w.agenda = append(w.agenda, task{entry: e, kind: taskFlip, flip: f})
}

// place is the only way into a phase: it keeps the job's counts.
func (w *Workset) setPhase(e *entry, r *row, p perdure.Phase, at time.Time) {
	e.count(r.Step, -1)
	switch {
	case p == perdure.Ready && r.Phase != perdure.Ready:
		r.previousReadyAt, r.ReadyAt, r.newlyReady = r.ReadyAt, w.now, true
		if r.Ageing = time.Duration(w.settings[r.Agent].Ageing); r.Ageing == perdure.DefaultAgeing {
			r.Ageing = 0
		}
	case p != perdure.Ready && p != perdure.Running && r.newlyReady: // it was ready only within this event, and was not dispatched
		r.ReadyAt = r.previousReadyAt
	}
	r.newlyReady = p == perdure.Ready && r.newlyReady
	r.Phase, r.AvailableAt = p, at
	e.count(r.Step, +1)
	r.dirty, e.dirty = true, true
	if p == perdure.Ready {
		w.readied = append(w.readied, r.StepRef)
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

// phaseOf is what the job's counts say.
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

func (w *Workset) raiseAlert(e *entry, step string, kind perdure.AlertKind, name, message string) {
	e.job.Alerted, e.dirty = true, true
	w.changes.Alerts = append(w.changes.Alerts, Alert{Job: e.job.ID, Step: step, Kind: kind, Name: name,
		Message: plain.Clip(message, perdure.MaxReasonBytes), RaisedAt: w.now})
}

func (w *Workset) closeAlerts(e *entry, step, by string, kinds ...perdure.AlertKind) {
	if !e.job.Alerted {
		return
	}
	kept := w.changes.Alerts[:0]
	for _, a := range w.changes.Alerts { // raised in this same workset: never there at all
		if a.Job != e.job.ID || a.Step != step && step != "" || !slices.Contains(kinds, a.Kind) {
			kept = append(kept, a)
		}
	}
	w.changes.Alerts = kept
	w.changes.CloseAlerts = append(w.changes.CloseAlerts, CloseAlerts{Job: e.job.ID, Step: step, Kinds: kinds, By: by})
}

func (w *Workset) addHistory(e *entry, step string, run int64, event, author, detail string) {
	w.changes.History = append(w.changes.History, Entry{Job: e.job.ID, Step: step, Run: run, At: w.now,
		Event: event, Author: author, Detail: plain.Clip(detail, perdure.MaxReasonBytes)})
}

// Readied are the steps that were made ready since the last call and still are.
func (w *Workset) Readied() []StepRef {
	refs := slices.DeleteFunc(w.readied, func(ref StepRef) bool { return w.Step(ref).Phase != perdure.Ready })
	w.readied = nil
	return refs
}

// Landing is the end of a run.
type Landing struct {
	Agent     string
	Direction perdure.Direction
	Outcome   perdure.Outcome
	Took      time.Duration
}

// Landed are the runs that have ended since the last call.
func (w *Workset) Landed() []Landing {
	landed := w.runEnds
	w.runEnds = nil
	return landed
}

// Freed are the limits and keys of which permits were released since the last call: lanes that are closed for them are
// to be opened.
func (w *Workset) Freed() []LimitKey {
	freed := w.freed
	w.freed = nil
	slices.SortFunc(freed, LimitKey.Compare)
	return slices.Compact(freed)
}

// Changes is what must be written; the workset then holds the rows as written. It must not be called
// while anything is missing.
func (w *Workset) Changes() *Changes { return w.collect(true) }

// Last is Changes for a workset that no more events are folded into: it gives away its own rows.
func (w *Workset) Last() *Changes { return w.collect(false) }

func (w *Workset) collect(more bool) *Changes {
	c := w.changes
	w.changes = Changes{}
	for _, e := range w.order {
		if e.loaded == nil {
			w.collectNew(e, &c, more)
			continue
		}
		if e.dirty {
			e.job.UpdatedAt = w.now
			now := w.alloc.jobs.frozen(e.job, more)
			c.Jobs = append(c.Jobs, JobChange{Now: now, Was: e.loaded})
			e.loaded, e.dirty = now, false
		}
		for r := range e.changedRows() {
			r.UpdatedAt = w.now
			now := w.alloc.steps.frozen(r.Step, more)
			c.Steps = append(c.Steps, StepChange{Now: now, Was: r.loaded})
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
	c.NewJobs = append(c.NewJobs, n)
}

// touched are the changed steps, in order.
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

// slabs are where a workset's rows come from: many small values at a time, as thousands of them come and go
// together.
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

// maxSlab bounds what one value that is kept for long keeps with it.
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

// asIs is a row as it is, for good: the row itself, if no more is to happen to it.
func (s *slab[T]) frozen(v *T, more bool) *T {
	if more {
		return s.copy(v)
	}
	return v
}

// rows are the steps of a job that are there, by index: a list where the job has few steps, so that a
// small job costs no map.
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

// at is nil where the step is not there.
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
