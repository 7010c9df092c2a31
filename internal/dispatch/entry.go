package dispatch

import (
	"context"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/env"
)

// Submissions and acts wait for entry if the queue is full, and are refused only if that lasts. Reports and heartbeats do not wait
// behind them.
const (
	MaxQueued    = 100_000         // requests of runs in the queue; others in it; and others that wait for entry
	maxEntryWait = 5 * time.Second // how long a request waits for entry
)

// ErrDraining answers requests and claims that come after Close.
var ErrDraining = &perdure.Error{Code: perdure.CodeUnavailable, Message: "the node is draining", Hint: "ask another node, or again later"}

var errFull = &perdure.Error{Code: perdure.CodeBacklogFull, Message: "work arrives faster than it can be stored, and too much of it waits", Hint: "try again later"}

// entrant is requests of one caller that wait for entry.
type entrant struct {
	requests []*Request
	err      error
	done     chan struct{}
}

// Put takes all of the requests, or none. If the queue is full, it waits for a while. An error of ctx, or a *perdure.Error, says that none
// was taken.
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

// enter puts the requests into the queue, or, if there is no room, among those that wait for entry.
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

// letEnter lets requests in that wait for entry, in their order, as far as there is room.
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

// withdraw takes requests away that wait for entry. It returns false if they are in.
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
