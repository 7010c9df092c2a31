package scheduler

import (
	"slices"
	"sync"
	"time"

	"perdure"
)

// request is one thing asked of the scheduler, on its way into a transaction.
type request struct {
	op     operation
	weight int
	done   chan error // buffered: the writer never waits
}

// waiter is a claim that waits for work.
type waiter struct {
	req      perdure.ClaimRequest
	since    time.Time
	answered chan answer // buffered
	named    bool        // the caller gave the requestId, and can repeat the claim
	again    bool        // look up what this request was given before
	leaving  bool        // its time is over: it is answered, and not put back
}

type answer struct {
	runs []perdure.Run
	err  error
}

// queue holds what is to be done and the claims that wait. It is a hint in memory: what is lost with
// it was never acknowledged.
type queue struct {
	mu       sync.Mutex
	wake     sync.Cond
	requests []*request
	waiting  map[string][]*waiter // by agent, in the order in which they came
	hot      map[string]bool      // agents for which there may be work
	limited  map[string]bool      // agents whose last look ended at a limit
	closed   bool
}

func newQueue() *queue {
	q := &queue{waiting: map[string][]*waiter{}, hot: map[string]bool{}, limited: map[string]bool{}}
	q.wake.L = &q.mu
	return q
}

func (q *queue) put(r *request) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return errDraining
	}
	if len(q.requests) >= maxQueued {
		return &perdure.Error{Code: perdure.CodeBacklogFull, Message: "too many requests are queued", Hint: "try again later"}
	}
	q.requests = append(q.requests, r)
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
	q.hot[agent] = true
	q.wake.Signal()
	return nil
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
			}
			return true
		}
	}
	w.leaving = true
	return false
}

// putBack returns waiters that got nothing, ahead of those who came later.
func (q *queue) putBack(agent string, ws []*waiter) {
	if len(ws) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	ws = slices.DeleteFunc(ws, func(w *waiter) bool {
		gone := w.leaving || q.closed
		if gone {
			w.answered <- answer{}
		}
		return gone
	})
	if len(ws) == 0 {
		return
	}
	q.waiting[agent] = append(ws[:len(ws):len(ws)], q.waiting[agent]...)
	if q.hot[agent] {
		q.wake.Signal()
	}
}

// wakeAgents says that there may be work for these.
func (q *queue) wakeAgents(agents []string) {
	if len(agents) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, a := range agents {
		q.hot[a] = true
	}
	q.wake.Signal()
}

// takeWaiting hands over the claims that wait for these agents, to be served in the transaction that
// makes steps ready for them.
func (q *queue) takeWaiting(agents []string) (claims []*waiter) {
	if len(agents) == 0 {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, a := range agents {
		claims = append(claims, q.waiting[a]...)
		delete(q.waiting, a)
	}
	return claims
}

// setLimited remembers which agents' looks ended at a limit; wakeLimited looks again for those, since a
// limit may have room.
func (q *queue) setLimited(agents map[string]bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for a, limited := range agents {
		if limited {
			q.limited[a] = true
		} else {
			delete(q.limited, a)
		}
	}
}

func (q *queue) wakeLimited() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for a := range q.limited {
		q.hot[a] = true
	}
	q.wake.Signal()
}

func (q *queue) wakeAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for a := range q.waiting {
		q.hot[a] = true
	}
	q.wake.Signal()
}

// take waits for something to do: requests up to the bounds of one transaction, and all waiting claims
// of the agents for which there may be work.
func (q *queue) take() (requests []*request, claims []*waiter, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closed && len(q.requests) == 0 && !q.anyHot() {
		q.wake.Wait()
	}
	if q.closed {
		q.refuseAll()
		return nil, nil, false
	}
	n, weight := 0, 0
	for n < len(q.requests) && n < maxBatchRequests && (n == 0 || weight+q.requests[n].weight <= maxBatchWeight) {
		weight += q.requests[n].weight
		n++
	}
	requests = q.requests[:n:n]
	q.requests = q.requests[n:]
	for a := range q.hot {
		claims = append(claims, q.waiting[a]...)
		delete(q.waiting, a)
	}
	// An agent nobody waits for stays cold: whoever comes next looks for himself.
	clear(q.hot)
	if len(q.requests) > 0 {
		q.wake.Signal()
	}
	return requests, claims, true
}

func (q *queue) anyHot() bool {
	for a := range q.hot {
		if len(q.waiting[a]) > 0 {
			return true
		}
		delete(q.hot, a)
	}
	return false
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.wake.Broadcast()
}

func (q *queue) refuseAll() {
	for _, r := range q.requests {
		r.done <- errDraining
	}
	q.requests = nil
	for a, ws := range q.waiting {
		for _, w := range ws {
			w.answered <- answer{}
		}
		delete(q.waiting, a)
	}
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
