package scheduler

import (
	"context"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/dispatch"
	"github.com/perdure/perdure/internal/env"
)

// backlog bounds the number of unsettled jobs. It counts them in the store every recountEvery, and between two counts it
// adds and subtracts what this node commits. With one node the number is never too small. With several it is close: the
// others' submissions since the latest count are missing.
type backlog struct {
	store      Store
	max        int
	env        env.Env
	countToken chan struct{} // holds a token while no caller counts in the store

	mu        sync.Mutex
	waiting   int // submissions that wait for the first count
	stored    int // unsettled jobs, at the latest count and by this node's commits since
	admitted  int // submissions that were admitted and are not answered yet
	created   int // jobs that this node has created or reopened, in all
	countedAt time.Time
}

const recountEvery = 30 * time.Second

func newBacklog(e env.Env, store Store, max int) *backlog {
	b := &backlog{env: e, store: store, max: max, countToken: make(chan struct{}, 1)}
	b.countToken <- struct{}{}
	return b
}

// admit admits one more submission, or returns why not. For each admitted submission, answered must be called.
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

// answered ends an admitted submission. made is true if it has created a job.
func (b *backlog) answered(created bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.admitted--
	if created {
		b.stored++
		b.created++
	}
}

// unadmitted records another unsettled job that was not admitted: a settled job has been reopened, or a child submitted.
func (b *backlog) unadmitted() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stored++
	b.created++
}

// settled records that a transaction which began at this time has settled a job. If it began before the latest count,
// the count may include it already.
func (b *backlog) settled(began time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if began.After(b.countedAt) {
		b.stored--
	}
}

// recount counts in the store if the latest count is older than recountEvery. If there is an older count, it is used
// while another caller counts, and if the store does not answer.
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
	at, created := b.latest() // another caller may have counted while this one waited
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
	b.stored = n + b.created - created // n may lack jobs that were created during the count
	b.countedAt = b.env.Now()
	return nil
}

const (
	maxFirstWaiters = dispatch.MaxQueued // submissions that wait for the first count
	maxFirstWait    = 5 * time.Second
)

var errNotCounted = &perdure.Error{Code: perdure.CodeBacklogFull, Message: "this node has just started and has not counted the unsettled jobs yet", Hint: "try again later"}

// awaitFirst waits for the first count of a node that has just started. It returns nil when the caller has the token to
// count.
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

func (b *backlog) latest() (counted time.Time, created int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.countedAt, b.created
}
