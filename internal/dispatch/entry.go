package dispatch

import (
	"context"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/env"
)

// If the queue is full, submissions and acts wait for entry for up to maxEntryWait, and are then refused. Reports and
// heartbeats have a queue of their own, and do not wait behind submissions.
const (
	MaxQueued    = 100_000         // bound for each of: queued reports and heartbeats; other queued requests; requests that wait for entry
	maxEntryWait = 5 * time.Second // how long a request waits for entry
)

// ErrDraining answers requests and claims that arrive after Close.
var ErrDraining = &perdure.Error{Code: perdure.CodeUnavailable, Message: "the node is draining", Hint: "try another node, or try again later"}

var errFull = &perdure.Error{Code: perdure.CodeBacklogFull, Message: "the queue is full: requests arrive faster than they can be stored", Hint: "try again later"}

// entrant is a set of requests from one caller that wait for entry.
type entrant struct {
	requests []*Request
	err      error
	done     chan struct{}
}

// Put puts all of the requests into the queue, or none. If the queue is full, it waits for up to maxEntryWait. If it
// returns an error, none of the requests was taken.
func (q *Queue) Put(ctx context.Context, rs []*Request) error {
	e, err := q.enter(rs)
	if e == nil || err != nil {
		return err
	}
	ended := q.env.Wait(ctx, maxEntryWait, e.done)
	if ended != env.Got && q.withdraw(e) {
		if ended == env.Gone {
			return ctx.Err()
		}
		return errFull
	}
	return e.err
}

// enter puts the requests into the queue. If there is no room, it returns an entrant to wait for.
func (q *Queue) enter(rs []*Request) (*entrant, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return nil, ErrDraining
	case len(rs) == 0:
		return nil, nil
	case rs[0].OfRun && len(q.runRequests)+len(rs) > MaxQueued, !rs[0].OfRun && q.entrantRequests+len(rs) > MaxQueued:
		return nil, errFull
	case rs[0].OfRun, len(q.entrants) == 0 && q.hasRoom(rs):
		q.put(rs)
		q.signal()
		return nil, nil
	}
	e := &entrant{requests: rs, done: make(chan struct{}, 1)}
	q.entrants = append(q.entrants, e)
	q.entrantRequests += len(rs)
	return e, nil
}

func (q *Queue) hasRoom(rs []*Request) bool { return len(q.otherRequests)+q.held+len(rs) <= MaxQueued }

// put adds requests to the queue.
func (q *Queue) put(rs []*Request) {
	now := q.env.Now()
	for _, r := range rs {
		r.since = now
		switch {
		case r.OfRun:
			q.runRequests = append(q.runRequests, r)
			q.runReports += r.Weight
		case !q.hold(r, now):
			q.otherRequests = append(q.otherRequests, r)
		}
		if r.Next != nil {
			q.countClaim(&r.Next.Request)
		}
	}
}

// admitEntrants moves waiting requests into the queue, in their order, as long as there is room.
func (q *Queue) admitEntrants() {
	for len(q.entrants) > 0 && (q.closed || q.hasRoom(q.entrants[0].requests)) {
		e := q.entrants[0]
		if q.closed {
			e.err = ErrDraining
		} else {
			q.put(e.requests)
		}
		q.remove(e)
		e.done <- struct{}{}
	}
}

// withdraw removes requests that wait for entry. It returns false if they are in the queue already.
func (q *Queue) withdraw(e *entrant) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.remove(e)
}

func (q *Queue) remove(e *entrant) bool {
	i := slices.Index(q.entrants, e)
	if i < 0 {
		return false
	}
	q.entrants = slices.Delete(q.entrants, i, i+1)
	q.entrantRequests -= len(e.requests)
	return true
}
