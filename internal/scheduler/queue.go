package scheduler

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/protocol"
)

// request is one thing asked of the scheduler, on its way into a transaction.
type request struct {
	op     operation
	weight int
	err    error         // its answer, once it is done
	done   chan struct{} // buffered: the writer never waits

	next *waiter // a claim that comes with reports, until it is taken

	agent string    // a submission that may be held for this agent's claims
	runs  int       // which these would be given of it
	since time.Time // when it was held first
	nth   int       // of all that were held
}

// answer ends a request.
func (r *request) answer(err error) {
	if o, ok := r.op.(interface{ answered(error) }); ok {
		o.answered(err)
	}
	r.err = err
	r.done <- struct{}{}
}

// waiter is a claim that waits for work.
type waiter struct {
	req      protocol.Claim
	since    time.Time
	answered chan struct{} // buffered: the answer is there
	answer   answer
	named    bool       // the caller gave the requestId, and can repeat the claim
	again    bool       // it may have been granted runs before
	reports  bool       // it comes with reports: if there is no room for its runs, these are answered without runs
	searched bool       // no such runs were found
	failed   error      // why its latest look came to nothing: the store did not answer
	leaving  bool       // its time is over: it is answered, and not put back
	looked   int        // queue.clock when the look began that it has seen, or is out for
	idle     bool       // nothing is ready but what the transaction itself makes so, as far as is known
	short    bool       // another writer looks into the store for its agent
	barred   bool       // it is given nothing but what it was given before
	bytes    int        // size of its answer so far
	space    func() int // bytes for which its server has room
	serves   bool       // its agent is served by the writer that took it, and by no other until then
}

type answer struct {
	runs []perdure.Run
	err  error
}

func (w *waiter) tell(a answer) {
	w.answer = a
	w.answered <- struct{}{}
}

// queue holds what is to be done and the claims that wait. It is a hint in memory: what is lost with
// it was never acknowledged.
//
// A writer takes claims out to look for work, and brings back those that got none. A step that another
// writer makes ready meanwhile may have escaped that look: so each look and each piece of news has its
// time on the queue's clock, and who comes back from a look that is older than the news looks again.
type queue struct {
	env      env.Env
	holdPace int // Config.HoldPace
	mu       sync.Mutex
	wake     sync.Cond
	runs     []*request           // what runs have to say: it goes before what is new
	requests []*request           // the others: first those that were held
	first    int                  // how many these are
	passed   bool                 // the latest transaction took none of them
	waiting  map[string][]*waiter // by agent, in the order in which they came
	hot      map[string]bool      // agents for which there may be work
	limited  map[string]bool      // agents whose last look ended at a limit
	behind   map[string]bool      // agents of which there was more than their last look let out
	served   map[string]bool      // agents that a writer is looking for: two would find the same steps
	paces    map[string]*pace     // by agent: how claims come, and the submissions held for them
	held     int                  // how many those are
	nth      int                  // how many there were so far
	closed   bool
	yielder  env.Yielder

	clock int            // counts looks and news
	news  map[string]int // by agent: when there was the latest
	all   int            // when there was the latest news for everybody
	freed int            // when a limit may have got room the latest
}

func newQueue(e env.Env, holdPace int) *queue {
	q := &queue{env: e, holdPace: holdPace, waiting: map[string][]*waiter{}, hot: map[string]bool{}, limited: map[string]bool{},
		behind: map[string]bool{}, paces: map[string]*pace{}, served: map[string]bool{}, news: map[string]int{}}
	q.wake.L = &q.mu
	return q
}

// put takes all of them, or none.
func (q *queue) put(rs []*request) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return errDraining
	}
	if len(q.runs)+len(q.requests)+q.held+len(rs) > maxQueued {
		return &perdure.Error{Code: perdure.CodeBacklogFull, Message: "too many requests are queued", Hint: "try again later"}
	}
	for _, r := range rs {
		switch r.op.(type) {
		case *reporting, *beating:
			q.runs = append(q.runs, r)
		default:
			q.requests = append(q.requests, r)
		}
		if r.next != nil {
			q.claimed(&r.next.req)
		}
	}
	q.wake.Signal()
	return nil
}

func (q *queue) wait(w *waiter) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return errDraining
	}
	agent := w.req.Agent
	q.waiting[agent] = append(q.waiting[agent], w)
	if !q.mayLookLater(w) {
		q.hot[agent] = true
		q.wake.Signal()
	}
	q.claimed(&w.req)
	return nil
}

// waitAgain puts a claim back into the queue that was taken from it, and for which no new runs were searched.
func (q *queue) waitAgain(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		w.tell(answer{err: errDraining})
		return
	case w.leaving:
		w.tell(answer{})
		return
	}
	w.idle, w.short, w.barred, w.serves = false, false, false, false
	q.waiting[w.req.Agent] = append([]*waiter{w}, q.waiting[w.req.Agent]...)
	q.hot[w.req.Agent] = true
	q.wake.Signal()
}

// leave takes a waiter out, and says whether it was still there: else it is being answered, now or as soon
// as it is put back.
func (q *queue) leave(w *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	agent := w.req.Agent
	for i, other := range q.waiting[agent] {
		if other == w {
			q.waiting[agent] = append(q.waiting[agent][:i:i], q.waiting[agent][i+1:]...)
			if len(q.waiting[agent]) == 0 {
				delete(q.waiting, agent)
				delete(q.hot, agent)
			}
			return true
		}
	}
	w.leaving = true
	return false
}

// look is how a transaction's look for work ended.
type look struct {
	back    map[string][]*waiter // claims, by agent, that got nothing and may wait
	limited map[string]bool      // agents looked for, and whether a limit ended that
	behind  map[string]bool      // and whether more was ready than was let out
	looked  map[string]int       // agents for which the store was looked into, and when on the queue's clock
	woken   []string             // agents for which the transaction made steps ready
	freed   bool                 // a limit may have got room by it
}

// bringBack returns waiters from a look, ahead of those who came later, and spreads its news.
func (q *queue) bringBack(l *look) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.clock++
	for agent, ws := range l.back {
		q.putBack(agent, ws, l.limited[agent])
	}
	learn(q.limited, l.limited, l.looked)
	learn(q.behind, l.behind, l.looked)
	for agent, clock := range l.looked {
		q.saw(agent, clock)
	}
	for agent := range l.behind {
		q.letIn(agent)
	}
	for agent := range l.back {
		q.letIn(agent)
	}
	q.tell(l.woken)
	if l.freed {
		q.freed = q.clock
		for agent := range q.limited {
			q.tell([]string{agent})
		}
	}
}

// learn brings a set up to what was found of some agents. That there is nothing more knows only who has looked into
// the store: another has seen what it made ready itself, or the runs of a claim that was repeated.
func learn(set, found map[string]bool, looked map[string]int) {
	for agent, is := range found {
		if is {
			set[agent] = true
		} else if _, ok := looked[agent]; ok {
			delete(set, agent)
		}
	}
}

func (q *queue) putBack(agent string, ws []*waiter, limited bool) {
	missed := false
	ws = slices.DeleteFunc(ws, func(w *waiter) bool {
		missed = missed || max(q.all, q.news[agent]) > w.looked || limited && q.freed > w.looked
		w.looked = q.clock
		gone := w.leaving || q.closed
		if gone {
			w.tell(answer{err: w.failed})
		}
		return gone
	})
	if len(ws) == 0 {
		return
	}
	q.waiting[agent] = append(ws[:len(ws):len(ws)], q.waiting[agent]...)
	if missed {
		q.hot[agent] = true
		q.wake.Signal()
	}
}

// maxNews bounds the agents of whom it is remembered when there was news.
const maxNews = 10_000

// tell spreads news, as of now: to those who wait, and to those who are out for an older look.
func (q *queue) tell(agents []string) {
	for _, a := range agents {
		if len(q.news) >= maxNews {
			clear(q.news)
			q.all = q.clock
		}
		q.news[a] = q.clock
		if slices.ContainsFunc(q.waiting[a], func(w *waiter) bool { return w.looked < q.clock }) {
			q.hot[a] = true
			q.wake.Signal()
		}
	}
}

// wakeAgents says that there may be work for these.
func (q *queue) wakeAgents(agents []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.clock++
	q.tell(agents)
}

// wakeAll says that there may be work for everybody.
func (q *queue) wakeAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.clock++
	q.all = q.clock
	for a := range q.waiting {
		q.tell([]string{a})
	}
}

// takeWaiting hands over the claims that wait for these agents, to be served in the transaction that
// makes steps ready for them.
func (q *queue) takeWaiting(agents []string) (claims []*waiter) {
	if len(agents) == 0 {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.clock++
	for _, a := range agents {
		if !q.served[a] || !q.behind[a] && !q.limited[a] {
			claims = append(claims, q.takeOf(a)...)
		}
	}
	return claims
}

func (q *queue) takeOf(agent string) []*waiter {
	ws := q.waiting[agent]
	// While another writer looks for this agent, it finds what there was.
	idle := (!q.hot[agent] || q.served[agent]) && !q.limited[agent] && !q.behind[agent]
	serves := !q.served[agent] && len(ws) > 0
	if serves {
		q.served[agent] = true
	}
	delete(q.waiting, agent)
	if serves || len(ws) == 0 {
		delete(q.hot, agent) // else there is still to be looked, once the other writer is through
	}
	for i, w := range ws {
		w.looked, w.idle, w.serves = q.clock, idle, serves && i == 0
	}
	return ws
}

// takeNext are the claims that come with reports, and those that wait for the same agents. While another writer looks
// for such an agent, they are given what their own transaction makes ready, if nothing more urgent is: the other finds
// what is older. They do not pass those who wait for a limit.
func (q *queue) takeNext(requests []*request) (claims []*waiter) {
	var agents []string
	for _, r := range slices.Backward(requests) {
		w := r.next
		if w == nil {
			continue
		}
		agent := w.req.Agent
		r.next = nil
		w.looked = q.clock
		switch known := q.lookedLately(agent); {
		case !q.served[agent]:
			if !known {
				q.hot[agent] = true
			}
			q.waiting[agent] = append([]*waiter{w}, q.waiting[agent]...)
			agents = append(agents, agent)
			continue
		case q.limited[agent]:
			w.barred = true
		default:
			w.short, w.idle = true, known && !q.hot[agent] && !q.behind[agent]
		}
		claims = append(claims, w)
	}
	for _, agent := range agents {
		claims = append(claims, q.takeOf(agent)...)
	}
	return claims
}

// forgo takes the claim off reports that are queued still.
func (q *queue) forgo(r *request) (had bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	had, r.next = r.next != nil, nil
	return had
}

// take waits for something to do: requests up to the bounds of one transaction, and all waiting claims
// of the agents for which there may be work.
func (q *queue) take() (requests []*request, claims []*waiter, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(requests) == 0 && len(claims) == 0 {
		for !q.closed && len(q.runs)+len(q.requests) == 0 && !q.mayLook() {
			q.env.WaitCond(&q.wake)
		}
		q.mu.Unlock()
		q.yielder.Yield() // what those ask who are about to run goes into the same transaction
		q.mu.Lock()
		if q.closed {
			q.refuseAll()
			return nil, nil, false
		}
		var wanted map[string]int
		requests, wanted = q.pick()
		q.clock++
		claims = q.takeNext(requests)
		for a := range q.hot {
			if !q.served[a] {
				claims = append(claims, q.takeOf(a)...)
			}
		}
		for a := range wanted {
			claims = append(claims, q.takeOf(a)...)
		}
	}
	if len(q.runs)+len(q.requests) > 0 {
		q.wake.Signal()
	}
	return requests, claims, true
}

// pick takes as many requests as one transaction carries, but for those that are held. What runs have to say goes
// first, up to three quarters: it brings jobs to their end, and makes room for others. wanted are the agents whose
// waiting claims are to be served in it.
func (q *queue) pick() (picked []*request, wanted map[string]int) {
	p := &picking{room: maxBatchRequests, weight: maxBatchWeight,
		picked: make([]*request, 0, min(len(q.runs)+len(q.requests), maxBatchRequests))}
	none := func(*request) bool { return false }
	if !q.passed {
		q.runs = p.take(q.runs, maxBatchRequests/4, maxBatchWeight/4, none)
	}
	before, now := len(p.picked), q.env.Now()
	q.requests = p.take(q.requests, 0, 0, func(r *request) bool {
		if r.nth > 0 {
			q.first--
			q.paces[r.agent].atHead -= r.runs
		}
		return r.agent != "" && q.hasNoRoom(r, now, &wanted) && q.hold(r, now)
	})
	q.passed = len(p.picked) == before && len(q.requests) > 0
	q.runs = p.take(q.runs, 0, 0, none)
	return p.picked, wanted
}

// picking is what one transaction carries, and how much more there is room for.
type picking struct {
	picked       []*request
	room, weight int
}

// take moves requests over, in their order, and leaves so much room; what is kept back stands elsewhere.
func (p *picking) take(all []*request, room, weight int, keptBack func(*request) bool) (left []*request) {
	for i, r := range all {
		if p.room <= room || len(p.picked) > 0 && p.weight-r.weight < weight {
			return all[i:]
		}
		if !keptBack(r) {
			p.picked = append(p.picked, r)
			p.room--
			p.weight -= r.weight
		}
	}
	return nil
}

// hasNoRoom says whether the waiting claims of a submission's agent have no room for any of it, and keeps account of
// that.
func (q *queue) hasNoRoom(r *request, now time.Time, left *map[string]int) bool {
	room, known := (*left)[r.agent]
	if !known {
		room = q.room(r.agent)
		q.standsBy(r.agent, now)
	}
	if room == 0 {
		return true
	}
	if *left == nil {
		*left = map[string]int{}
	}
	(*left)[r.agent] = max(room-r.runs, 0)
	return false
}

// mayLook says whether there is an agent to look for that nobody looks for.
func (q *queue) mayLook() bool {
	for a := range q.hot {
		if !q.served[a] {
			return true
		}
	}
	return false
}

// serves are the agents that a writer serves, by the claims that it has taken and not brought back yet.
func serves(claims []*waiter) (agents []string) {
	for _, w := range claims {
		if w.serves {
			agents = append(agents, w.req.Agent)
		}
	}
	return agents
}

// release lets other writers serve these agents.
func (q *queue) release(agents []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, a := range agents {
		delete(q.served, a)
		if q.hot[a] {
			q.wake.Signal()
		}
	}
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.wake.Broadcast()
}

func (q *queue) refuseAll() {
	for _, p := range q.paces {
		q.front(p, len(p.held))
	}
	for _, r := range append(q.runs, q.requests...) {
		if r.next != nil {
			r.next.tell(answer{err: errDraining})
		}
		r.answer(errDraining)
	}
	q.runs, q.requests, q.first = nil, nil, 0
	for a, ws := range q.waiting {
		for _, w := range ws {
			err := w.failed
			if w.again && w.looked == 0 { // it may have been given something, and nobody has looked (F019)
				err = errDraining
			}
			w.tell(answer{err: err})
		}
		delete(q.waiting, a)
	}
	clear(q.hot)
}

// agents are those for which claims wait.
func (q *queue) agents() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Collect(maps.Keys(q.waiting))
}

// concerned are the agents for which claims wait, or are out for a look that may have been too early.
func (q *queue) concerned() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	agents := maps.Clone(q.served)
	for a := range q.waiting {
		agents[a] = true
	}
	return slices.Sorted(maps.Keys(agents))
}

// waiters are the agents and holders of the claims that wait.
func (q *queue) waiters() (who [][2]string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for agent, ws := range q.waiting {
		for _, w := range ws {
			who = append(who, [2]string{agent, w.req.Holder})
		}
	}
	return who
}
