package dispatch

import (
	"container/heap"
	"time"

	"github.com/perdure/perdure/internal/kernel"
)

// maxReopenings bounds how many keys this node remembers. The supervisor opens the lanes of others. maxReopened bounds for
// how many of them one transaction opens lanes. The next transaction, which follows at once, opens more.
const (
	maxReopenings = 100_000
	maxReopened   = MaxOpened
)

// reopenings are the keys for which this node has closed lanes because of a rate, and when the rate has room. Any
// transaction after that time opens the lanes (limits.openLanes).
type reopenings struct {
	byTime reopenHeap
	byKey  map[kernel.LimitKey]*reopening
}

type reopening struct {
	kernel.Reopening
	index int // in the heap
}

// add remembers a key, in place of an earlier time for it.
func (r *reopenings) add(o kernel.Reopening) {
	if had := r.byKey[o.Key]; had != nil {
		had.Reopening = o
		heap.Fix(&r.byTime, had.index)
		return
	}
	if len(r.byTime) >= maxReopenings {
		return
	}
	if r.byKey == nil {
		r.byKey = map[kernel.LimitKey]*reopening{}
	}
	r.byKey[o.Key] = &reopening{Reopening: o}
	heap.Push(&r.byTime, r.byKey[o.Key])
}

// remove forgets a key, unless it was added again for another time.
func (r *reopenings) remove(o kernel.Reopening) {
	if had := r.byKey[o.Key]; had != nil && had.At.Equal(o.At) {
		heap.Remove(&r.byTime, had.index)
		delete(r.byKey, o.Key)
	}
}

// next returns the earliest key; nil if there is none.
func (r *reopenings) next() *reopening {
	if len(r.byTime) == 0 {
		return nil
	}
	return r.byTime[0]
}

// due returns keys whose time has come, in no order, and at most maxReopened.
func (r *reopenings) due(now time.Time) []kernel.Reopening { return r.byTime.due(nil, 0, now) }

// reopenHeap has the earliest time first.
type reopenHeap []*reopening

func (h reopenHeap) due(found []kernel.Reopening, i int, now time.Time) []kernel.Reopening {
	if i >= len(h) || h[i].At.After(now) || len(found) == maxReopened {
		return found
	}
	found = append(found, h[i].Reopening)
	return h.due(h.due(found, 2*i+1, now), 2*i+2, now)
}

func (h reopenHeap) Len() int           { return len(h) }
func (h reopenHeap) Less(i, j int) bool { return h[i].At.Before(h[j].At) }

func (h reopenHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *reopenHeap) Push(x any) {
	o := x.(*reopening)
	o.index = len(*h)
	*h = append(*h, o)
}

func (h *reopenHeap) Pop() any {
	last := len(*h) - 1
	o := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return o
}

// dueReopenings returns the keys whose rates have room by now.
func (q *Queue) dueReopenings(now time.Time) []kernel.Reopening {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.reopenings.due(now)
}

// noteRates remembers what a transaction found about rates that have no room: for which keys it has opened and closed
// lanes, and when its agents can be granted more runs. now is the transaction's time, by the store's clock.
func (q *Queue) noteRates(opened, closed []kernel.Reopening, agents map[string]time.Time, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, o := range opened {
		q.reopenings.remove(o)
	}
	for _, o := range closed {
		q.reopenings.add(o)
		if at, there := agents[o.Agent]; !there || o.At.Before(at) {
			agents[o.Agent] = o.At
		}
	}
	for name, at := range agents {
		q.wakeAt(q.agent(name), at.Sub(now))
	}
	q.clockError = now.Sub(q.env.Now())
	q.wakeForNext()
}

// wakeForNext has a transaction begin when the earliest key has room. It opens the lanes of all keys that have room by then,
// of whatever agent, and then calls this again.
func (q *Queue) wakeForNext() {
	if next := q.reopenings.next(); next != nil {
		q.wakeAt(q.agent(next.Agent), next.At.Sub(q.env.Now().Add(q.clockError)))
	}
}

// wakeAt wakes the claims of an agent after a time, unless they are woken before that anyway.
func (q *Queue) wakeAt(a *agentQueue, after time.Duration) {
	at := q.env.Now().Add(after)
	if !a.rateWake.IsZero() && !at.Before(a.rateWake) {
		return
	}
	a.rateWake = at
	q.env.AfterFunc(after, func() {
		q.mu.Lock()
		if a.rateWake.Equal(at) {
			a.rateWake = time.Time{}
		}
		idle := len(a.waiting) == 0 && q.OnRoom != nil
		if idle { // claims of other nodes may wait for the lanes that this node has closed
			for _, o := range q.reopenings.due(q.env.Now().Add(q.clockError)) {
				q.reopenings.remove(o)
			}
			q.wakeForNext()
		}
		q.mu.Unlock()
		if idle {
			q.OnRoom()
		}
		q.Wake([]string{a.name})
	})
}
