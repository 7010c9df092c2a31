package cache

import (
	"math"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/speed"
)

// Marks remembers, for each agent and lane, before which place there are no ready steps. Steps that were dispatched
// leave dead entries at the beginning of the index, and these stay while any transaction holds an old snapshot: if each
// search walked over them, a queue would become slower with every step that leaves it.
//
// While a search from the beginning of all lanes is quick, every search is such a full search. Otherwise searches begin
// at the marks. What another process makes ready before a mark is found by a full search, which is made at intervals and
// moves the mark back.
type Marks struct {
	Quick    time.Duration // a full search that takes less need not be avoided
	Interval time.Duration // between full searches that are not quick, at least

	mu     sync.Mutex
	agents map[string]*agentMarks
}

type agentMarks struct {
	lanes            map[kernel.LaneID]*laneMark
	lastWithoutSkips time.Time     // when the latest search that skipped nothing began
	fullTook         time.Duration // duration of the latest full search
	nextFull         time.Time     // when the next full search is due; zero: there was none
}

// laneMark is the mark of one lane: this process knows of no ready step before from.
type laneMark struct {
	from      kernel.Candidate
	searches  map[*Search]bool             // in progress
	announced map[*Search]kernel.Candidate // of those, up to which step all that was found will be dispatched if the transaction commits
}

// announcedUpTo is the end of what other transactions are dispatching.
func (of *laneMark) announcedUpTo() kernel.Candidate {
	at := LaneStart
	for _, last := range of.announced {
		if last.Index++; kernel.ClaimLess(last, at) > 0 {
			at = last
		}
	}
	return at
}

// LaneStart comes before every step of a lane.
var LaneStart = kernel.Candidate{Order: math.MinInt64}

const (
	maxLanes             = 10_000 // of one agent; also the number of agents
	quickSearch          = 5 * time.Millisecond
	withoutSkipsInterval = 250 * time.Millisecond // between searches that skip nothing, at most, so that what another process has made ready is found
	fullInterval         = time.Second            // the shortest time between two slow full searches
	fullShare            = 20                     // that time is at least fullShare times the duration of the latest full search
)

// Search is one search of an agent's lanes by a transaction. It moves marks forward only if the transaction commits,
// because steps that were dispatched may become ready again. Marks move back in any case.
type Search struct {
	Agent      string
	Full       bool                               // it begins at the start of all lanes
	From       map[kernel.LaneID]kernel.Candidate // where it began in each known lane; LaneStart in a full search that skips nothing
	first      map[kernel.LaneID]kernel.Candidate // the first step that it found
	last       map[kernel.LaneID]kernel.Candidate // the last step that it found
	readyBelow map[kernel.LaneID]kernel.Candidate // the earliest step to which the mark was moved back meanwhile

	announces bool
}

// MarksTx is one transaction's part of the lane marks.
type MarksTx struct {
	store     *Marks
	madeReady []ReadyEntry // by this transaction
	searches  []*Search
}

// AddReady adds steps that this transaction makes ready. Only plain lanes have marks.
func (t *MarksTx) AddReady(rows []ReadyEntry) {
	for _, r := range rows {
		if r.Lane.Plain() {
			t.madeReady = append(t.madeReady, r)
		}
	}
}

// Begin returns a search with the places where it begins.
func (t *MarksTx) Begin(agent string) *Search {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	a := t.store.agent(agent)
	l := &Search{Agent: agent, Full: a.full(t.store.Quick), From: map[kernel.LaneID]kernel.Candidate{}, first: map[kernel.LaneID]kernel.Candidate{}, last: map[kernel.LaneID]kernel.Candidate{}, readyBelow: map[kernel.LaneID]kernel.Candidate{}}
	now, passes := time.Now(), false
	maySkip := now.Sub(a.lastWithoutSkips) < withoutSkipsInterval && (!l.Full || a.fullTook < t.store.Quick || !speed.Marks.On()) // a full search that is due skips nothing
	for id, lane := range a.lanes {
		lane.searches[l] = true
		from := lane.from
		if l.Full {
			from = LaneStart
		}
		if behind := lane.announcedUpTo(); maySkip && kernel.ClaimLess(behind, from) > 0 {
			from, passes = behind, true
		}
		l.From[id] = from
	}
	if !passes {
		a.lastWithoutSkips = now
	}
	for _, r := range t.madeReady {
		if from, known := l.From[r.Lane]; r.Agent == agent && (known && kernel.ClaimLess(r.Candidate(), from) < 0 || !known && !l.Full) {
			l.From[r.Lane] = r.Candidate()
		}
	}
	t.searches = append(t.searches, l)
	return l
}

// ReadyEntry is an entry of table ready.
type ReadyEntry struct {
	kernel.ReadyKey
	kernel.StepRef
}

// EntryOf returns the entry of a step that is in a lane.
func EntryOf(agent string, lane kernel.LaneID, c kernel.Candidate) ReadyEntry {
	return ReadyEntry{kernel.ReadyKey{Ready: true, Agent: agent, Lane: lane, Order: c.Order}, c.StepRef}
}

// Candidate returns the step and its order.
func (r *ReadyEntry) Candidate() kernel.Candidate {
	return kernel.Candidate{StepRef: r.StepRef, Order: r.Order}
}

// full reports whether a search begins at the start of all lanes.
func (a *agentMarks) full(quick time.Duration) bool {
	return a.fullTook < quick || !time.Now().Before(a.nextFull) || !speed.Marks.On()
}

func (l *Marks) agent(name string) *agentMarks {
	a := l.agents[name]
	if a == nil {
		if l.agents == nil || len(l.agents) >= maxLanes {
			l.agents = map[string]*agentMarks{}
		}
		a = &agentMarks{lanes: map[kernel.LaneID]*laneMark{}}
		l.agents[name] = a
	}
	return a
}

// Add records a step that the search has found.
func (l *Search) Add(id kernel.LaneID, at kernel.Candidate) {
	l.last[id] = at
	if _, known := l.first[id]; !known {
		l.first[id] = at
	}
}

// Returned keeps the last step that the transaction uses in each lane, so that no other search begins after steps that
// were found and are not used.
func (l *Search) Returned(rows []ReadyEntry) {
	last := map[kernel.LaneID]kernel.Candidate{}
	for i := range rows {
		if _, looked := l.last[rows[i].Lane]; looked {
			last[rows[i].Lane] = rows[i].Candidate()
		}
	}
	l.last = last
}

// FullSearchTook records the duration of a full search.
func (t *MarksTx) FullSearchTook(l *Search, took time.Duration) {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	a := t.store.agent(l.Agent)
	a.fullTook, a.nextFull = took, time.Now().Add(max(t.store.Interval, fullShare*took))
}

// end moves the marks: back to what was made ready, however the transaction has ended, and forward to what was found if
// it was committed.
func (t *MarksTx) end(committed bool) {
	if len(t.madeReady)+len(t.searches) == 0 {
		return
	}
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	for i := range t.madeReady {
		t.store.lower(&t.madeReady[i])
	}
	for _, l := range t.searches {
		a := t.store.agent(l.Agent)
		if l.announces && !committed { // other searches have begun after it
			for id, first := range l.first {
				entry := EntryOf(l.Agent, id, first)
				t.store.lower(&entry)
			}
		}
		for id := range l.From {
			if lane := a.lanes[id]; lane != nil && lane.searches[l] {
				delete(lane.searches, l)
				delete(lane.announced, l)
				lane.raise(l, id, committed)
			}
		}
		for id, first := range l.first {
			switch of := a.lanes[id]; {
			case of == nil && len(a.lanes) < maxLanes:
				a.lanes[id] = &laneMark{from: first, searches: map[*Search]bool{}}
			case of != nil && l.Full && a.fullTook >= t.store.Quick && kernel.ClaimLess(first, of.from) < 0: // another process has made it ready
				of.moveBack(id, first)
			}
		}
	}
}

// Announce lets other searches begin after what this transaction has found for an agent.
func (t *MarksTx) Announce(agent string) {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	lanes := t.store.agent(agent).lanes
	for _, l := range t.searches {
		if l.Agent != agent {
			continue
		}
		l.announces = true
		for id, last := range l.last {
			lane := lanes[id]
			if lane == nil || !lane.searches[l] {
				continue // this is the first search of the lane
			}
			if below, ok := l.readyBelow[id]; ok && kernel.ClaimLess(below, last) <= 0 {
				continue
			}
			if lane.announced == nil {
				lane.announced = map[*Search]kernel.Candidate{}
			}
			lane.announced[l] = last
		}
	}
}

// lower moves the mark of a lane back to a step, and informs searches in progress.
func (l *Marks) lower(r *ReadyEntry) {
	a := l.agent(r.Agent)
	of := a.lanes[r.Lane]
	if of == nil {
		if len(a.lanes) >= maxLanes {
			return
		}
		of = &laneMark{from: r.Candidate(), searches: map[*Search]bool{}}
		a.lanes[r.Lane] = of
	}
	at := r.Candidate()
	for search, last := range of.announced {
		if kernel.ClaimLess(at, last) <= 0 {
			delete(of.announced, search)
		}
	}
	of.moveBack(r.Lane, at)
}

// moveBack moves the mark back to a step, and keeps searches in progress from moving it past the step.
func (of *laneMark) moveBack(id kernel.LaneID, at kernel.Candidate) {
	if kernel.ClaimLess(at, of.from) < 0 {
		of.from = at
	}
	for look := range of.searches {
		if below, ok := look.readyBelow[id]; !ok || kernel.ClaimLess(at, below) < 0 {
			look.readyBelow[id] = at
		}
	}
}

// raise moves the mark of a lane to the first step that a search has found, or leaves it if the search found none.
func (of *laneMark) raise(l *Search, id kernel.LaneID, committed bool) {
	first, ok := l.first[id]
	if !ok || !committed {
		return
	}
	if below, ok := l.readyBelow[id]; ok && kernel.ClaimLess(below, first) < 0 {
		first = below
	}
	if kernel.ClaimLess(first, of.from) > 0 {
		of.from = first
	}
}

// MarksOf returns the agents for which a full search is due, the others, and the marks of the others' plain lanes.
func (l *Marks) MarksOf(agents []string) (full, others []string, marks []ReadyEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range agents {
		a := l.agents[name]
		if a == nil || a.full(l.Quick) {
			full = append(full, name)
			continue
		}
		others = append(others, name)
		for id, lane := range a.lanes {
			marks = append(marks, EntryOf(name, id, lane.from))
		}
	}
	return full, others, marks
}

// SearchFully makes the next search of an agent a full one, for tests.
func (l *Marks) SearchFully(agent string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.agent(agent).nextFull = time.Time{}
}

// InProgress returns how many searches of an agent's lanes are in progress or announced, for tests.
func (l *Marks) InProgress(agent string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range l.agent(agent).lanes {
		n += len(of.searches) + len(of.announced)
	}
	return n
}
