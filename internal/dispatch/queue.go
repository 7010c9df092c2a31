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
	MaxRequests = 1000   // requests in one transaction
	MaxWeight   = 20_000 // steps that the requests of one transaction write, about
	maxAgents   = 10_000 // agents of which anything is remembered
)

// Queue holds requests and claims until a writer takes them into a transaction. It is safe for concurrent use. It is
// memory alone: what is lost with it was never acknowledged.
//
// Wake-ups are ordered by the queue's clock, which counts searches and wake-ups. A claim remembers when its latest
// search began. If a wake-up came after that, the search may have missed what became ready, and the claim is searched
// for again.
type Queue struct {
	env       env.Env
	holdPace  int
	oneWrites bool

	mu      sync.Mutex
	wake    sync.Cond
	closed  bool
	yielder env.Yielder

	runRequests     []*Request // reports and heartbeats
	runReports      int        // how many these bring, in all
	otherRequests   []*Request
	passedOver      bool       // the latest transaction took none of the others
	held            int        // submissions that are held
	entrants        []*entrant // requests that wait for room in the queue
	entrantRequests int        // how many these are

	holdings      int           // agents that have a holding
	holdingAgents []*agentQueue // those for which something is held

	agents map[string]*agentQueue
	due    map[*agentQueue]bool // agents for which something may be ready that no search has seen, and claims wait

	active        int       // transactions
	number        int       // of the latest of them
	latestBegan   time.Time // when it began
	latestSaved   bool      // it has ended
	worthTimerSet bool      // that timer of worth is set

	clock         int // counts searches and wake-ups
	wokeAllAt     int // at the latest wake-up of all agents
	freedAt       int // when room under a limit came up last
	limitedAgents int // agents whose latest search left steps that wait for it

	usage          usage
	storeLateSince time.Time // since when requests have waited for long to be stored; zero: they do not

	asides     asides
	firstAgent atomic.Value // string: the least agent name whose claims are served first
}

// NewQueue makes an empty queue. holdPace is how many runs an agent asks for in a quarter of a second, at least, if
// submissions are held for it. oneWrites says that the store carries out one transaction after the other: then none begins
// until the one before has nothing left but its COMMIT.
func NewQueue(e env.Env, holdPace int, oneWrites bool) *Queue {
	q := &Queue{env: e, holdPace: holdPace, oneWrites: oneWrites, agents: map[string]*agentQueue{}, due: map[*agentQueue]bool{}}
	q.wake.L = &q.mu
	q.asides.env = e
	q.asides.wake.L = &q.asides.mu
	return q
}

// agent returns the queue of an agent, and makes it if need be. If there are too many, those that are quiet are
// forgotten; then nobody knows which claims have missed a wake-up, so all search again.
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
	delete(q.agents, name)
	delete(q.due, a)
	if a.holding != nil {
		q.holdings--
	}
}

// leaves notes what the latest search for an agent left.
func (q *Queue) setLastResult(a *agentQueue, l searchResult) {
	if a.lastResult == limitFull {
		q.limitedAgents--
	}
	if a.lastResult = l; l == limitFull {
		q.limitedAgents++
	}
}

// Wait puts a claim into the queue.
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

// WaitAgain puts a claim back that was taken, and for which no new runs were searched.
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

// Leave takes a claim out whose time is over. It returns false if a writer has taken it: then it is answered, with what
// that transaction grants.
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

// Withdraw takes the claim off reports that are still queued.
func (q *Queue) Withdraw(r *Request) (had bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	had, r.Next = r.Next != nil, nil
	return had
}

func (q *Queue) makeDue(a *agentQueue) {
	q.due[a] = true
	q.signal()
}

// searchPause is how long ago the latest search may be for a claim that does not cause one: as far as is known, nothing
// has become ready since, and a wake-up reaches the claims that wait. Otherwise an agent that claims anew after each run
// would cause a search after each run. If a wake-up was lost, such a claim waits no longer than this.
const searchPause = 20 * time.Millisecond

// searchedLately reports whether the agent was searched for just now, and no wake-up has come since.
func (q *Queue) searchedLately(a *agentQueue) bool {
	return !a.searchEnded.IsZero() && max(q.wokeAllAt, a.wokeAt) <= a.searchedAt && q.env.Now().Sub(a.searchEnded) <= searchPause
}

// mayWaitForLater reports whether a claim need not be searched for at once, and sees to it that it is soon.
func (q *Queue) maySearchLater(a *agentQueue, c *Claim) bool {
	if !speed.LookLater.On() || c.Repeated || c.Request.Wait < 2*searchPause || a.lastResult != nothingReady || q.due[a] || !q.searchedLately(a) {
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

// Take waits for work: requests up to the bounds of one transaction, and all waiting claims of the agents that are due. turn is for
// Ended. ok is false once the queue is closed.
func (q *Queue) Take() (requests []*Request, claims []*Claim, turn int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(requests) == 0 && len(claims) == 0 {
		for !q.closed && !q.shouldBegin() {
			q.env.WaitCond(&q.wake)
		}
		q.mu.Unlock()
		q.yielder.Yield() // requests of goroutines that are about to run go into the same transaction
		q.mu.Lock()
		if q.closed {
			return nil, nil, 0, false
		}
		if q.oneWrites && q.active > 0 { // another writer was quicker
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

// Ended says that a transaction is over that Take has begun, but for its COMMIT.
func (q *Queue) Saved(turn int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.active--
	q.latestSaved = q.latestSaved || turn == q.number
	q.signal()
}

// A transaction has a fixed cost, as much as some dozen reports. So while there is little to do, only one is under way, and the next
// one takes all that has come meanwhile. A second one begins at once if there is enough work for it, or if the latest one has been
// under way for long: it may be waiting for a lock.
const (
	parallelWork  = 400 // reports and submissions, and runs of steps that are known to be ready
	parallelAfter = 10 * time.Millisecond
)

// worth reports whether a writer should begin a transaction now. If one should begin only later, worth sets a timer that asks again.
func (q *Queue) shouldBegin() bool {
	if q.oneWrites && q.active > 0 {
		return false
	}
	work := q.runReports + len(q.otherRequests)
	some := len(q.runRequests)+len(q.otherRequests) > 0
	for _, a := range q.holdingAgents {
		if a.canTakeHeld(q.env.Now()) {
			some = true
			work += len(a.holding.held)
		}
	}
	for a := range q.due {
		if a.searching {
			continue
		}
		some = true
		if q.active == 0 || work >= parallelWork {
			break
		}
		for i := 0; i < len(a.waiting) && (a.lastResult == moreReady || a.searchReleased); i++ {
			work += a.waiting[i].Request.Max
		}
	}
	if !some || q.active == 0 || work >= parallelWork {
		return some
	}
	if q.latestSaved { // those that are under way take long
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

// signal wakes a writer if there is something for it.
func (q *Queue) signal() {
	if q.shouldBegin() {
		q.wake.Signal()
	}
}

func (q *Queue) takeClaims(a *agentQueue) []*Claim {
	served := a.searching
	claims := a.take(q.clock, q.due[a])
	if !served || len(claims) == 0 {
		delete(q.due, a) // else a search is still due, once the other writer has ended its own
	}
	return claims
}

// takeNext are the claims that come with reports, and those that wait for the same agents. While another writer searches
// for such an agent, these are granted what their own transaction makes ready, if nothing that is ready is more urgent: the
// other writer finds what is as urgent and older. They do not pass claims that wait for a limit.
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
		known := q.searchedLately(a)
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

// TakeWaiting hands over the claims that wait for these agents, to the transaction that makes steps ready for them.
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

// pick takes as many requests as one transaction carries. Requests of runs go first, up to three quarters.
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

// picking is what one transaction carries, and for how much more there is room.
type selection struct {
	requests     []*Request
	room, weight int
}

// fits reports whether there is room for a request, and for so much more behind it. The first one always fits.
func (p *selection) fits(r *Request, room, weight int) bool {
	return p.room > room && (p.room == MaxRequests || p.weight-r.Weight >= weight)
}

func (p *selection) add(r *Request) {
	p.requests = append(p.requests, r)
	p.room--
	p.weight -= r.Weight
}

// take moves requests over, in their order, and leaves so much room.
func (p *selection) take(all []*Request, room, weight int) (rest []*Request) {
	for i, r := range all {
		if !p.fits(r, room, weight) {
			return all[i:]
		}
		p.add(r)
	}
	return nil
}

// ——— giving back ———

// giveBack returns claims that were granted nothing, before those that came later, and spreads what the transaction has
// found and done.
func (q *Queue) giveBack(back []*Claim, searches []*search, woken []string, freed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.clock++
	byAgent := map[string][]*Claim{}
	var agents []string
	for _, c := range back {
		name := c.Request.Agent
		if byAgent[name] == nil {
			agents = append(agents, name)
		}
		byAgent[name] = append(byAgent[name], c)
	}
	limited := map[string]bool{}
	for _, s := range searches {
		limited[s.agent] = s.result() == limitFull
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
	if freed && q.limitedAgents > 0 {
		var waiting []string
		for _, a := range q.agents {
			if a.lastResult == limitFull {
				waiting = append(waiting, a.name)
			}
		}
		q.wakeUp(waiting)
	}
}

// learn keeps what a transaction found for an agent. Only a transaction that searched the store can say that it left
// nothing: another has seen the steps that it made ready itself, or the earlier runs of a repeated claim.
func (q *Queue) recordSearch(a *agentQueue, s *search, now time.Time) {
	found := s.result()
	if s.searchedStore {
		q.setLastResult(a, found)
		a.searchedAt, a.searchEnded = s.at, now
	} else {
		q.setLastResult(a, max(a.lastResult, found))
	}
	if s.searchedStore && s.tookOlder {
		a.olderDispatchedAt = now
	}
	if a.lastResult == moreReady && slices.ContainsFunc(a.waiting, func(c *Claim) bool { return c.mode != searchStore }) {
		q.due[a] = true // no search has served these
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

// served are the agents for which a writer searches, by the claims that it has taken and not given back.
func searchedAgents(claims []*Claim) (agents []string) {
	for _, c := range claims {
		if c.ownsSearch {
			agents = append(agents, c.Request.Agent)
		}
	}
	return agents
}

// release lets other writers search for these agents.
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

// passOn is release while this writer's own search is not over: it has dispatched all that it found, and there may be more.
func (q *Queue) releaseEarly(agents []string) {
	q.mu.Lock()
	for _, name := range agents {
		q.agent(name).searchReleased = true
	}
	q.mu.Unlock()
	q.releaseSearches(agents)
}

// ——— wake-ups ———

// wakeUp says, as of now, that there may be steps for these agents: to the claims that wait, and to those that are out
// for an older search.
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

// Wake says that there may be steps for these agents.
func (q *Queue) Wake(agents []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.clock++
	q.wakeUp(agents)
}

// WakeAll says that there may be steps for all agents.
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

// WakeLater is Wake after a while.
func (q *Queue) WakeLater(agents []string, after time.Duration) {
	if len(agents) > 0 {
		q.env.AfterFunc(after, func() { q.Wake(agents) })
	}
}

// ——— the end ———

// Close lets Take end. Requests and claims that come afterwards are refused.
func (q *Queue) Close() {
	q.mu.Lock()
	q.closed = true
	q.wake.Broadcast()
	q.mu.Unlock()
	q.asides.close()
}

// Drain answers all waiting claims and returns the requests that were not taken. Writers call it after Take has ended.
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
			if c.Repeated && c.searchedAt == 0 { // it may have been granted runs, and no transaction has searched for them (F019)
				err = ErrDraining
			}
			c.Answer(nil, err)
		}
		a.waiting = nil
	}
	clear(q.due)
	return requests
}

// ——— what is known ———

// Agents are those for which claims wait.
func (q *Queue) WaitingAgents() (names []string) {
	return q.agentNames(func(a *agentQueue) bool { return len(a.waiting) > 0 })
}

// Concerned are the agents for which claims wait, or are out for a search that may have been too early.
func (q *Queue) AgentsWithClaims() (names []string) {
	return q.agentNames(func(a *agentQueue) bool { return a.searching || len(a.waiting) > 0 })
}

func (q *Queue) agentNames(of func(*agentQueue) bool) (names []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for name, a := range q.agents {
		if of(a) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Waiting are the agents and holders of the claims that wait.
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
