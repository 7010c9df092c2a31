package dispatch

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/speed"
)

// Bounds of one transaction, and of the queue.
const (
	MaxRequests = 1000   // requests in a transaction
	MaxWeight   = 20_000 // steps that the requests of a transaction write, approximately
	maxAgents   = 10_000 // bound on agents that are remembered
)

// Queue holds requests and claims until a writer takes them into a transaction. It is safe for concurrent use. It is in
// memory only: nothing in it was acknowledged to a caller, so nothing is lost with it.
//
// The queue has a logical clock that counts searches and wake-ups, so that their order is known. A claim remembers the
// clock at the beginning of its latest search. If a wake-up came later, the search may have missed a ready step, and the
// claim causes another search.
type Queue struct {
	// OnRoom is called when a rate has room, and no claim of the agent waits at this node that could use it.
	OnRoom func()

	env          env.Env
	holdPace     int
	singleWriter bool

	mu      sync.Mutex
	wake    sync.Cond
	closed  bool
	yielder env.Yielder

	runRequests     []*Request // reports and heartbeats
	runReports      int        // number of reports and heartbeats in these
	otherRequests   []*Request
	passedOver      bool       // the latest transaction took no other requests
	held            int        // number of held submissions
	entrants        []*entrant // requests that wait for entry
	entrantRequests int        // number of requests in entrants

	holdings      int           // number of agents with a holding
	holdingAgents []*agentQueue // agents for which submissions are held

	agents map[string]*agentQueue
	due    map[*agentQueue]bool // agents with waiting claims whose search may find something

	active        int       // transactions that were taken and not saved yet
	number        int       // number of the latest transaction
	latestBegan   time.Time // when the latest transaction began
	latestSaved   bool      // the latest transaction has been saved
	worthTimerSet bool      // a timer is set that wakes writers (shouldBegin)

	clock         int // counts searches and wake-ups
	wokeAllAt     int // clock at the latest wake-up of all agents
	freedAt       int // clock when permits were last released
	limitedAgents int // number of agents whose lastResult is limitFull
	reservedHosts int // number of agents with hostReserved

	usage          usage
	storeLateSince time.Time // since when requests have waited for long to be stored; zero if none does

	reopenings reopenings
	clockError time.Duration // the store's clock minus this node's, when a transaction last noted rates
	asides     asides
	firstAgent atomic.Value // string: claims of the agents from this name on are served first (orderByAgent)
}

// NewQueue returns an empty queue. holdPace is how many runs an agent has to ask for in a quarter of a second before
// submissions are held for it. singleWriter is true if the store carries out one transaction at a time: then a transaction
// begins only when the one before has nothing left but its COMMIT.
func NewQueue(e env.Env, holdPace int, singleWriter bool) *Queue {
	q := &Queue{env: e, holdPace: holdPace, singleWriter: singleWriter, agents: map[string]*agentQueue{}, due: map[*agentQueue]bool{}}
	q.wake.L = &q.mu
	q.asides.env = e
	q.asides.wake.L = &q.asides.mu
	return q
}

// agent returns the queue of an agent, and makes it if it does not exist. If there are too many, the idle ones are
// forgotten. Then it is not known which claims have missed a wake-up, so all claims search again.
func (q *Queue) agent(name string) *agentQueue {
	a := q.agents[name]
	if a == nil {
		if len(q.agents) >= maxAgents {
			for name, old := range q.agents {
				if old.isIdle() {
					q.forget(name, old)
				}
			}
			q.wokeAllAt = q.clock
		}
		a = &agentQueue{name: name}
		q.agents[name] = a
	}
	return a
}

func (q *Queue) forget(name string, a *agentQueue) {
	q.setLastResult(a, nothingReady)
	q.setHostReserved(a, false)
	delete(q.agents, name)
	delete(q.due, a)
	if a.holding != nil {
		q.holdings--
	}
}

// setLastResult sets what the latest search for an agent left in the store.
func (q *Queue) setLastResult(a *agentQueue, l searchResult) {
	if a.lastResult == limitFull {
		q.limitedAgents--
	}
	if a.lastResult = l; l == limitFull {
		q.limitedAgents++
	}
}

func (q *Queue) setHostReserved(a *agentQueue, reserved bool) {
	if a.hostReserved {
		q.reservedHosts--
	}
	if a.hostReserved = reserved; reserved {
		q.reservedHosts++
	}
}

// Wait puts a new claim into the queue.
func (q *Queue) Wait(c *Claim) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return ErrDraining
	}
	a := q.agent(c.Request.Agent)
	c.state = waiting
	a.waiting = append(a.waiting, c)
	if !q.maySearchLater(a, c) {
		q.due[a] = true
	}
	q.countClaim(&c.Request)
	q.signal()
	return nil
}

// WaitAgain puts a claim back that was set aside, and whose runs have ended.
func (q *Queue) WaitAgain(c *Claim) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		c.Answer(nil, ErrDraining)
		return
	case c.state == leaving:
		c.Answer(nil, nil)
		return
	}
	c.state, c.ownsSearch = waiting, false
	a := q.agent(c.Request.Agent)
	a.waiting = slices.Insert(a.waiting, 0, c)
	q.makeDue(a)
}

// Leave removes a waiting claim whose time has ended. It returns false if a writer has taken the claim: then the
// writer's transaction answers it.
func (q *Queue) Leave(c *Claim) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch c.state {
	case waiting:
		a := q.agent(c.Request.Agent)
		a.remove(c)
		if len(a.waiting) == 0 {
			delete(q.due, a)
		}
		return true
	case taken:
		c.state = leaving
	}
	return false
}

// Withdraw removes the claim that came with reports, if the reports are still queued.
func (q *Queue) Withdraw(r *Request) (queued bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	queued, r.Next = r.Next != nil, nil
	return queued
}

func (q *Queue) makeDue(a *agentQueue) {
	q.due[a] = true
	q.signal()
}

// searchPause is for how long after a search a new claim does not cause another one. Without this pause, an agent that
// claims again after each run would cause a search after each run. The claim loses nothing: nothing else was ready at
// the end of the search, and a wake-up for a step that becomes ready reaches the waiting claim. If a wake-up is lost,
// the claim waits for at most searchPause.
const searchPause = 20 * time.Millisecond

// searchedLately reports whether the store was searched for the agent within searchPause, without a wake-up since.
func (q *Queue) searchedLately(a *agentQueue) bool {
	return !a.searchEnded.IsZero() && max(q.wokeAllAt, a.wokeAt) <= a.searchedAt && q.env.Now().Sub(a.searchEnded) <= searchPause
}

// maySearchLater reports whether a claim need not cause a search now. If so, it sets a timer for a search.
func (q *Queue) maySearchLater(a *agentQueue, c *Claim) bool {
	if !speed.LookLater.On() || c.Repeated || c.Request.Host != "" || c.Request.Wait < 2*searchPause || a.lastResult != nothingReady || q.due[a] || !q.searchedLately(a) {
		return false
	}
	c.searchedAt = a.searchedAt
	if now := q.env.Now(); !now.Before(a.nextSearch) {
		a.nextSearch = now.Add(searchPause)
		q.env.AfterFunc(searchPause, func() { q.Wake([]string{a.name}) })
	}
	return true
}

// ——— taking ———

// Take waits for work, and returns requests up to the bounds of one transaction, and all waiting claims of the agents
// that are due. number is that of the transaction, for Saved and Finished. ok is false once the queue is closed.
func (q *Queue) Take() (requests []*Request, claims []*Claim, number int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(requests) == 0 && len(claims) == 0 {
		for !q.closed && !q.shouldBegin() {
			q.env.WaitCond(&q.wake)
		}
		q.mu.Unlock()
		q.yielder.Yield() // so that requests of goroutines that are about to run come into the same transaction
		q.mu.Lock()
		if q.closed {
			return nil, nil, 0, false
		}
		if q.singleWriter && q.active > 0 { // another writer was quicker
			continue
		}
		requests = q.selectRequests()
		q.clock++
		claims = q.takeReportClaims(requests)
		for a := range q.due {
			if !a.searching {
				claims = append(claims, q.takeClaims(a)...)
			}
		}
		for _, a := range q.holdingAgents {
			if a.canTakeHeld(q.env.Now()) {
				claims = append(claims, q.takeClaims(a)...)
			}
		}
	}
	q.admitEntrants()
	q.active++
	q.number++
	q.latestBegan, q.latestSaved = q.env.Now(), false
	oldest := q.latestBegan
	for _, r := range requests {
		if !r.since.IsZero() && r.since.Before(oldest) {
			oldest = r.since
		}
	}
	q.usage.begin(q.number, q.latestBegan, oldest, len(requests))
	if len(q.runRequests)+len(q.otherRequests) > 0 {
		q.signal()
	}
	return requests, claims, q.number, true
}

// Saved records that a transaction is complete except for its COMMIT.
func (q *Queue) Saved(number int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.active--
	q.latestSaved = q.latestSaved || number == q.number
	q.signal()
}

// Each transaction has a fixed cost, about that of some dozen reports. So with little work only one transaction is in
// progress, and the next one takes all work that arrives meanwhile. A second one begins at once if there is enough work
// for it, or if the latest one has taken long, because it may wait for a lock.
const (
	parallelWork  = 400 // reports, submissions, and runs of steps that are known to be ready
	parallelAfter = 10 * time.Millisecond
)

// shouldBegin reports whether a writer should begin a transaction now. If one should begin later, it sets a timer.
func (q *Queue) shouldBegin() bool {
	if q.singleWriter && q.active > 0 {
		return false
	}
	work := q.runReports + len(q.otherRequests)
	anyQueued := len(q.runRequests)+len(q.otherRequests) > 0
	for _, a := range q.holdingAgents {
		if a.canTakeHeld(q.env.Now()) {
			anyQueued = true
			work += len(a.holding.held)
		}
	}
	for a := range q.due {
		if a.searching {
			continue
		}
		anyQueued = true
		if q.active == 0 || work >= parallelWork {
			break
		}
		for i := 0; i < len(a.waiting) && (a.lastResult == moreReady || a.searchReleased); i++ {
			work += a.waiting[i].Request.Max
		}
	}
	if !anyQueued || q.active == 0 || work >= parallelWork {
		return anyQueued
	}
	if q.latestSaved { // the earlier transactions take long
		return true
	}
	passed := q.env.Now().Sub(q.latestBegan)
	if passed < parallelAfter && !q.worthTimerSet {
		q.worthTimerSet = true
		q.env.AfterFunc(parallelAfter-passed, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.worthTimerSet = false
			q.signal()
		})
	}
	return passed >= parallelAfter
}

// signal wakes a writer if there is work for it.
func (q *Queue) signal() {
	if q.shouldBegin() {
		q.wake.Signal()
	}
}

func (q *Queue) takeClaims(a *agentQueue) []*Claim {
	searching := a.searching
	claims := a.take(q.clock, q.due[a])
	if !searching || len(claims) == 0 {
		delete(q.due, a) // otherwise a search stays due until the other writer's search has ended
	}
	return claims
}

// takeReportClaims takes the claims that came with these requests, and the claims that wait for the same agents. If
// another writer searches the store for such an agent, a claim that came with reports gets only steps that its own
// transaction makes ready, and only if no step in the store is more urgent. The other writer finds steps that are
// equally urgent and older. If steps of the agent wait for a limit, such a claim gets no new runs, so that it does not
// overtake the waiting claims.
func (q *Queue) takeReportClaims(requests []*Request) (claims []*Claim) {
	var free []*agentQueue
	for _, r := range slices.Backward(requests) {
		c := r.Next
		if c == nil {
			continue
		}
		r.Next = nil
		a := q.agent(c.Request.Agent)
		c.state, c.searchedAt = taken, q.clock
		known := c.Request.Host == "" && q.searchedLately(a)
		switch {
		case !a.searching:
			if !known {
				q.due[a] = true
			}
			a.waiting = slices.Insert(a.waiting, 0, c)
			free = append(free, a)
			continue
		case a.lastResult == limitFull:
			c.mode = repeatOnly
		case known && !q.due[a] && a.lastResult == nothingReady:
			c.mode = ownSteps
		default:
			c.mode = urgentSteps
		}
		claims = append(claims, c)
	}
	for _, a := range free {
		claims = append(claims, q.takeClaims(a)...)
	}
	return claims
}

// TakeWaiting takes the claims that wait for agents for which a transaction has made steps ready.
func (q *Queue) TakeWaiting(agents []string) (claims []*Claim) {
	if len(agents) == 0 {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.clock++
	for _, name := range agents {
		if a := q.agents[name]; a != nil && (!a.searching || a.lastResult == nothingReady) {
			claims = append(claims, q.takeClaims(a)...)
		}
	}
	return claims
}

// selectRequests selects the requests of one transaction. Reports and heartbeats come first, up to three quarters of the
// room.
func (q *Queue) selectRequests() []*Request {
	p := &selection{room: MaxRequests, weight: MaxWeight, requests: make([]*Request, 0, min(len(q.runRequests)+len(q.otherRequests), MaxRequests))}
	if !q.passedOver {
		q.runRequests = p.take(q.runRequests, MaxRequests/4, MaxWeight/4)
	}
	before := len(p.requests)
	q.otherRequests = p.take(q.otherRequests, 0, 0)
	q.passedOver = len(p.requests) == before && len(q.otherRequests) > 0
	q.runRequests = p.take(q.runRequests, 0, 0)
	for _, r := range p.requests {
		if r.OfRun {
			q.runReports -= r.Weight
		}
	}
	return p.requests
}

// selection is the requests that one transaction carries, and how much room is left.
type selection struct {
	requests     []*Request
	room, weight int
}

// fits reports whether there is room for a request and, after it, for the given room and weight. The first request
// always fits.
func (p *selection) fits(r *Request, room, weight int) bool {
	return p.room > room && (p.room == MaxRequests || p.weight-r.Weight >= weight)
}

func (p *selection) add(r *Request) {
	p.requests = append(p.requests, r)
	p.room--
	p.weight -= r.Weight
}

// take adds requests in their order, as long as the given room and weight are left. It returns the rest.
func (p *selection) take(all []*Request, room, weight int) (rest []*Request) {
	for i, r := range all {
		if !p.fits(r, room, weight) {
			return all[i:]
		}
		p.add(r)
	}
	return nil
}

// ——— putting claims back ———

// giveBack puts claims that were granted nothing back into the queue, before claims that arrived later. It records how
// the searches ended, wakes the agents for which the transaction has made steps ready, and, if permits were released or runs
// have ended, the agents that wait for a limit or for room at a reserved host.
func (q *Queue) giveBack(claims []*Claim, searches []*search, woken []string, freed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.clock++
	byAgent := map[string][]*Claim{}
	var agents []string
	for _, c := range claims {
		name := c.Request.Agent
		if byAgent[name] == nil {
			agents = append(agents, name)
		}
		byAgent[name] = append(byAgent[name], c)
	}
	limited := map[string]bool{}
	for _, s := range searches {
		limited[s.agent] = s.result() == limitFull || s.hostReserved
	}
	now := q.env.Now()
	for _, s := range searches {
		q.recordSearch(q.agent(s.agent), s, now)
	}
	for _, name := range agents {
		q.putBack(q.agent(name), byAgent[name], limited[name])
	}
	q.wakeUp(woken)
	if freed {
		q.freedAt = q.clock
	}
	if freed && q.limitedAgents+q.reservedHosts > 0 {
		var waiting []string
		for _, a := range q.agents {
			if a.lastResult == limitFull || a.hostReserved {
				waiting = append(waiting, a.name)
			}
		}
		q.wakeUp(waiting)
	}
}

// recordSearch records how a search ended. Only a transaction that searched the store can record that it left nothing:
// another one has seen only the steps that it made ready itself, or the earlier runs of a repeated claim.
func (q *Queue) recordSearch(a *agentQueue, s *search, now time.Time) {
	found := s.result()
	if s.searchedStore {
		q.setLastResult(a, found)
		a.searchedAt, a.searchEnded = s.at, now
	} else {
		q.setLastResult(a, max(a.lastResult, found))
	}
	q.setHostReserved(a, s.hostReserved || a.hostReserved && !s.searchedStore)
	if s.searchedStore && s.tookOlder {
		a.olderDispatchedAt = now
	}
	if a.lastResult == moreReady && slices.ContainsFunc(a.waiting, func(c *Claim) bool { return c.mode != searchStore }) {
		q.due[a] = true // no search has served these claims
	}
}

func (q *Queue) putBack(a *agentQueue, claims []*Claim, limited bool) {
	missed := false
	stay := claims[:0:0]
	for _, c := range claims {
		missed = missed || a.missedWakeUp(c, q.wokeAllAt) || limited && q.freedAt > c.searchedAt || a.lastResult == moreReady && c.mode != searchStore
		c.searchedAt = q.clock
		if c.state == leaving || q.closed {
			c.Answer(nil, c.failed)
			continue
		}
		c.state, c.ownsSearch = waiting, false
		stay = append(stay, c)
	}
	if len(stay) == 0 {
		return
	}
	a.waiting = append(stay, a.waiting...)
	if missed {
		q.makeDue(a)
	}
}

// searchedAgents returns the agents for which a writer searches the store, by the claims that it has taken.
func searchedAgents(claims []*Claim) (agents []string) {
	for _, c := range claims {
		if c.ownsSearch {
			agents = append(agents, c.Request.Agent)
		}
	}
	return agents
}

// releaseSearches allows other writers to search the store for these agents.
func (q *Queue) releaseSearches(agents []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, name := range agents {
		a := q.agent(name)
		if a.searching = false; q.due[a] {
			q.signal()
		}
	}
}

// releaseEarly allows other writers to search for these agents before this writer's transaction has ended: it has
// dispatched all that it found, and there may be more.
func (q *Queue) releaseEarly(agents []string) {
	q.mu.Lock()
	for _, name := range agents {
		q.agent(name).searchReleased = true
	}
	q.mu.Unlock()
	q.releaseSearches(agents)
}

// ——— wake-ups ———

// wakeUp records a wake-up for these agents at the present clock. It makes those due that have waiting claims. For
// claims that are in a transaction, giveBack compares the clock with the beginning of their search.
func (q *Queue) wakeUp(agents []string) {
	for _, name := range agents {
		a := q.agent(name)
		a.wokeAt = q.clock
		if slices.ContainsFunc(a.waiting, func(c *Claim) bool { return c.searchedAt < q.clock }) {
			q.due[a] = true
		}
	}
	q.signal()
}

// Wake wakes the claims of these agents: steps may have become ready.
func (q *Queue) Wake(agents []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.clock++
	q.wakeUp(agents)
}

// WakeAll wakes the claims of all agents.
func (q *Queue) WakeAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.clock++
	q.wokeAllAt = q.clock
	var waiting []string
	for name, a := range q.agents {
		if len(a.waiting) > 0 {
			waiting = append(waiting, name)
		}
	}
	q.wakeUp(waiting)
}

// WakeLater calls Wake after the given time.
func (q *Queue) WakeLater(agents []string, after time.Duration) {
	if len(agents) > 0 {
		q.env.AfterFunc(after, func() { q.Wake(agents) })
	}
}

// ——— closing ———

// Close makes Take return false. Requests and claims that arrive later are refused.
func (q *Queue) Close() {
	q.mu.Lock()
	q.closed = true
	q.wake.Broadcast()
	q.mu.Unlock()
	q.asides.close()
}

// Closed reports whether the queue is closed.
func (q *Queue) Closed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

// Drain answers all waiting claims, and returns the requests that were not taken. Writers call it after Take has
// returned false.
func (q *Queue) Drain() (requests []*Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.admitEntrants()
	for _, a := range slices.Clone(q.holdingAgents) {
		q.releaseHeld(a, len(a.holding.held))
	}
	requests = slices.Concat(q.runRequests, q.otherRequests)
	q.runRequests, q.otherRequests = nil, nil
	for _, r := range requests {
		if r.Next != nil {
			r.Next.Answer(nil, ErrDraining)
			r.Next = nil
		}
	}
	for _, a := range q.agents {
		for _, c := range a.waiting {
			err := c.failed
			if c.Repeated && c.searchedAt == 0 { // it may have been granted runs before, and no transaction has searched for them (F019)
				err = ErrDraining
			}
			c.Answer(nil, err)
		}
		a.waiting = nil
	}
	clear(q.due)
	return requests
}

// ——— inspection ———

// WaitingAgents returns the agents with waiting claims.
func (q *Queue) WaitingAgents() (names []string) {
	return q.agentNames(func(a *agentQueue) bool { return len(a.waiting) > 0 })
}

// AgentsWithClaims returns the agents with claims that wait or are in a transaction whose search may have begun too
// early.
func (q *Queue) AgentsWithClaims() (names []string) {
	return q.agentNames(func(a *agentQueue) bool { return a.searching || len(a.waiting) > 0 })
}

func (q *Queue) agentNames(include func(*agentQueue) bool) (names []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for name, a := range q.agents {
		if include(a) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// WaitingClaims returns the agent and holder of each waiting claim.
func (q *Queue) WaitingClaims() (claims [][2]string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for name, a := range q.agents {
		for _, c := range a.waiting {
			claims = append(claims, [2]string{name, c.Request.Holder})
		}
	}
	return claims
}
