package scheduler

import (
	"context"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/dispatch"
	"github.com/perdure/perdure/internal/env"
)

// backlog bounds the unsettled jobs. It counts them now and then, and in between by what this node
// sees: never too few on one node, near enough on a grid.
type backlog struct {
	store      Store
	max        int
	env        env.Env
	countToken chan struct{} // whoever has taken the token counts

	mu        sync.Mutex
	waiting   int // submissions that wait for the first count
	stored    int // unsettled jobs
	admitted  int // submissions that were admitted and are not answered
	created   int // jobs that were seen to come, ever
	countedAt time.Time
}

const recountEvery = 30 * time.Second

func newBacklog(e env.Env, store Store, max int) *backlog {
	b := &backlog{env: e, store: store, max: max, countToken: make(chan struct{}, 1)}
	b.countToken <- struct{}{}
	return b
}

// admit lets one more submission in, or refuses it. Who was let in must answer.
func (b *backlog) admit(ctx context.Context) error {
	if err := b.recount(ctx); err != nil {
		return unavailable(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := b.stored + b.admitted; n >= b.max {
		e := perdure.Refuse(perdure.CodeBacklogFull, "the backlog is full: %d of at most %d unsettled jobs", n, b.max)
		e.Hint = "try again later"
		return e
	}
	b.admitted++
	return nil
}

// answered ends a submission, which has made a job or not.
func (b *backlog) answered(made bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.admitted--
	if made {
		b.stored++
		b.created++
	}
}

// reopened: a job that was settled is not any more.
func (b *backlog) reopened() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stored++
	b.created++
}

// settled: a job is, by a transaction that began then. What began before the count may be in it already.
func (b *backlog) settled(began time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if began.After(b.countedAt) {
		b.stored--
	}
}

// recount asks the store, unless it was asked lately. Where there is a figure, one that is old will do
// while somebody else counts, or where the store does not answer.
func (b *backlog) recount(ctx context.Context) error {
	at, _ := b.latest()
	if b.env.Now().Sub(at) < recountEvery {
		return nil
	}
	select {
	case <-b.countToken:
	default:
		if !at.IsZero() {
			return nil
		}
		if err := b.awaitFirst(ctx); err != nil {
			return err
		}
	}
	defer func() { b.countToken <- struct{}{} }()
	at, made := b.latest() // somebody may have counted while this waited
	if b.env.Now().Sub(at) < recountEvery {
		return nil
	}
	n, err := b.store.Backlog(ctx, b.max+1)
	if err != nil && !at.IsZero() {
		return nil
	}
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stored = n + b.created - made // those made meanwhile may be missing in n
	b.countedAt = b.env.Now()
	return nil
}

const (
	maxFirstWaiters = dispatch.MaxQueued // submissions that wait for the first count
	maxFirstWait    = 5 * time.Second
)

var errNotCounted = &perdure.Error{Code: perdure.CodeBacklogFull, Message: "this node has just started, and has not counted the unsettled jobs yet", Hint: "try again later"}

// awaitFirst waits for the first count of a node that has just started.
func (b *backlog) awaitFirst(ctx context.Context) error {
	b.mu.Lock()
	b.waiting++
	tooMany := b.waiting > maxFirstWaiters
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		b.waiting--
		b.mu.Unlock()
	}()
	if tooMany {
		return errNotCounted
	}
	switch b.env.Wait(ctx, maxFirstWait, b.countToken) {
	case env.Gone:
		return ctx.Err()
	case env.Late:
		return errNotCounted
	}
	return nil
}

func (b *backlog) latest() (counted time.Time, made int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.countedAt, b.created
}
