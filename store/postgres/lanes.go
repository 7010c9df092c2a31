package postgres

import (
	"math"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/speed"
)

// lanes remembers, for each agent and lane, from where on there are steps that are ready. What has been
// claimed leaves dead entries at the head of the index, and they stay while somebody holds an old snapshot
// open: to walk over them at each claim would make a queue slower with every step that leaves it.
//
// As long as a look from the start of all lanes is quick, that is what each look is. Where it is not, looks
// begin at the marks, and what another process has made ready below one is found by a full look, now and
// then.
type laneMarks struct {
	quick    time.Duration // a full look that takes less need not be saved
	interval time.Duration // between those that are not quick, at least

	mu     sync.Mutex
	agents map[string]*agentMarks
}

type agentMarks struct {
	lanes         map[kernel.LaneID]*laneMark
	lastUnyielded time.Time     // when a look began that passed nothing
	fullTook      time.Duration // the latest full look
	nextFull      time.Time     // when there shall be another; zero: there was none
}

// lane is one lane. This process knows of none that is ready before from.
type laneMark struct {
	from     kernel.Candidate
	searches map[*laneSearch]bool             // under way
	yielded  map[*laneSearch]kernel.Candidate // of those, how far all that was found is let out, if the transaction is committed
}

// behind is where what others are letting out ends.
func (of *laneMark) yieldedUpTo() kernel.Candidate {
	at := laneStart
	for _, last := range of.yielded {
		if last.Index++; kernel.ClaimLess(last, at) > 0 {
			at = last
		}
	}
	return at
}

// laneStart comes before every step of a lane.
var laneStart = kernel.Candidate{Order: math.MinInt64}

const (
	maxLanes          = 10_000 // of one agent, and agents
	quickSearch       = 5 * time.Millisecond
	unyieldedInterval = 250 * time.Millisecond // between looks that pass nothing, at most: what another process has made ready is there
	fullInterval      = time.Second            // or
	fullShare         = 20                     // so many times what the latest took
)

// look is one at the lanes of an agent, by a transaction. It moves marks only with the commit: what the
// transaction has claimed may come back.
type laneSearch struct {
	agent      string
	full       bool
	from       map[kernel.LaneID]kernel.Candidate // where it began, of those that are known; laneStart in a full look that passed nothing
	first      map[kernel.LaneID]kernel.Candidate // what it found first
	last       map[kernel.LaneID]kernel.Candidate // and last
	readyBelow map[kernel.LaneID]kernel.Candidate // the lowest that this process has made ready meanwhile

	yields bool
}

// lanesTx is one transaction's part.
type laneMarksTx struct {
	store     *laneMarks
	madeReady []readyEntry // made ready by it
	searches  []*laneSearch
}

// made notes steps that this transaction makes ready. There are marks of plain lanes alone.
func (t *laneMarksTx) addReady(rows []readyEntry) {
	for _, r := range rows {
		if r.Lane.Plain() {
			t.madeReady = append(t.madeReady, r)
		}
	}
}

// begin says where to look.
func (t *laneMarksTx) begin(agent string) *laneSearch {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	a := t.store.agent(agent)
	l := &laneSearch{agent: agent, full: a.full(t.store.quick), from: map[kernel.LaneID]kernel.Candidate{}, first: map[kernel.LaneID]kernel.Candidate{}, last: map[kernel.LaneID]kernel.Candidate{}, readyBelow: map[kernel.LaneID]kernel.Candidate{}}
	now, passes := time.Now(), false
	mayPass := now.Sub(a.lastUnyielded) < unyieldedInterval && (!l.full || a.fullTook < t.store.quick || !speed.Marks.On()) // a full look that is due sees all
	for id, lane := range a.lanes {
		lane.searches[l] = true
		from := lane.from
		if l.full {
			from = laneStart
		}
		if behind := lane.yieldedUpTo(); mayPass && kernel.ClaimLess(behind, from) > 0 {
			from, passes = behind, true
		}
		l.from[id] = from
	}
	if !passes {
		a.lastUnyielded = now
	}
	for _, r := range t.madeReady {
		if from, known := l.from[r.Lane]; r.Agent == agent && (known && kernel.ClaimLess(r.candidate(), from) < 0 || !known && !l.full) {
			l.from[r.Lane] = r.candidate()
		}
	}
	t.searches = append(t.searches, l)
	return l
}

func rowOf(agent string, lane kernel.LaneID, c kernel.Candidate) *readyEntry {
	return &readyEntry{kernel.ReadyKey{Ready: true, Agent: agent, Lane: lane, Order: c.Order}, c.StepRef}
}

func (r *readyEntry) candidate() kernel.Candidate {
	return kernel.Candidate{StepRef: r.StepRef, Order: r.Order}
}

// full says whether to look from the start.
func (a *agentMarks) full(quick time.Duration) bool {
	return a.fullTook < quick || !time.Now().Before(a.nextFull) || !speed.Marks.On()
}

func (l *laneMarks) agent(name string) *agentMarks {
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

// found notes what a look came upon.
func (l *laneSearch) add(id kernel.LaneID, at kernel.Candidate) {
	l.last[id] = at
	if _, known := l.first[id]; !known {
		l.first[id] = at
	}
}

// returned says which of the found steps the transaction gets, in order: others must not begin behind the rest.
func (l *laneSearch) returned(rows []readyEntry) {
	last := map[kernel.LaneID]kernel.Candidate{}
	for i := range rows {
		if _, looked := l.last[rows[i].Lane]; looked {
			last[rows[i].Lane] = rows[i].candidate()
		}
	}
	l.last = last
}

// took notes how long a full look lasted.
func (t *laneMarksTx) fullSearchTook(l *laneSearch, took time.Duration) {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	a := t.store.agent(l.agent)
	a.fullTook, a.nextFull = took, time.Now().Add(max(t.store.interval, fullShare*took))
}

// end moves the marks: down to what was made ready, however the transaction ended, and up to what was found
// if it was committed.
func (t *laneMarksTx) end(committed bool) {
	if len(t.madeReady)+len(t.searches) == 0 {
		return
	}
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	for i := range t.madeReady {
		t.store.lower(&t.madeReady[i])
	}
	for _, l := range t.searches {
		a := t.store.agent(l.agent)
		if l.yields && !committed { // others have begun behind it
			for id, first := range l.first {
				t.store.lower(rowOf(l.agent, id, first))
			}
		}
		for id := range l.from {
			if lane := a.lanes[id]; lane != nil && lane.searches[l] {
				delete(lane.searches, l)
				delete(lane.yielded, l)
				lane.raise(l, id, committed)
			}
		}
		for id, first := range l.first {
			if a.lanes[id] == nil && committed && len(a.lanes) < maxLanes {
				a.lanes[id] = &laneMark{from: first, searches: map[*laneSearch]bool{}}
			}
		}
	}
}

// pass lets looks of others begin behind what this transaction has found for an agent.
func (t *laneMarksTx) yield(agent string) {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	lanes := t.store.agent(agent).lanes
	for _, l := range t.searches {
		if l.agent != agent {
			continue
		}
		l.yields = true
		for id, last := range l.last {
			lane := lanes[id]
			if lane == nil || !lane.searches[l] {
				continue // the first look at it
			}
			if below, ok := l.readyBelow[id]; ok && kernel.ClaimLess(below, last) <= 0 {
				continue
			}
			if lane.yielded == nil {
				lane.yielded = map[*laneSearch]kernel.Candidate{}
			}
			lane.yielded[l] = last
		}
	}
}

// lower makes a lane begin no later than at this step, and tells those who look at it.
func (l *laneMarks) lower(r *readyEntry) {
	a := l.agent(r.Agent)
	of := a.lanes[r.Lane]
	if of == nil {
		if len(a.lanes) >= maxLanes {
			return
		}
		of = &laneMark{from: r.candidate(), searches: map[*laneSearch]bool{}}
		a.lanes[r.Lane] = of
	}
	at := r.candidate()
	if kernel.ClaimLess(at, of.from) < 0 {
		of.from = at
	}
	for look, last := range of.yielded {
		if kernel.ClaimLess(at, last) <= 0 {
			delete(of.yielded, look)
		}
	}
	for look := range of.searches {
		if below, ok := look.readyBelow[r.Lane]; !ok || kernel.ClaimLess(at, below) < 0 {
			look.readyBelow[r.Lane] = at
		}
	}
}

// raise makes a lane begin where a look has found its first step, or stay where it found none.
func (of *laneMark) raise(l *laneSearch, id kernel.LaneID, committed bool) {
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

// slow are the lanes of those agents for which a full look is not due, and the agents for which it is.
func (l *laneMarks) marksOf(agents []string) (full []string, marks []readyEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range agents {
		a := l.agents[name]
		if a == nil || a.full(l.quick) {
			full = append(full, name)
			continue
		}
		for id, lane := range a.lanes {
			marks = append(marks, *rowOf(name, id, lane.from))
		}
	}
	return full, marks
}
