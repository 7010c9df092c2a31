// Package memory is the reference implementation of kernel.Store: the simplest code that keeps the contract of package
// store/storetest. Nothing survives the end of the process. It is for tests, simulations and demonstrations, and the
// other stores are compared with it.
//
// All tables are maps (data), under one lock. A transaction (tx) changes them at once, and records how to undo each
// change. If it fails, the changes are undone in reverse order.
package memory

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// Store keeps all rows under one lock. Rows are never changed in place but replaced by copies, so that a row that a
// caller has read stays as it was.
type Store struct {
	mu     sync.RWMutex
	closed bool
	clock  clock
	// mailHints has a token if mail was sent.
	mailHints chan struct{}
	data
}

var _ kernel.Store = (*Store)(nil)

// Option is an option of New.
type Option func(*Store)

// WithClock replaces the wall clock, for tests and simulations.
func WithClock(wall func() time.Time) Option {
	return func(s *Store) { s.clock.wall = wall }
}

// New returns an empty store.
func New(opts ...Option) *Store {
	s := &Store{data: newData(), clock: clock{wall: time.Now}, mailHints: make(chan struct{}, 1)}
	for _, opt := range opts {
		opt(s)
	}
	return s
}

var errClosed = &perdure.Error{Code: perdure.CodeUnavailable, Message: "the store is closed"}

// maxAttempts bounds how often fn is run if Save finds rows that have changed.
const maxAttempts = 8

// Update runs fn while no other transaction runs, and undoes its changes if it fails.
func (s *Store) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	var err error
	for range maxAttempts {
		if err = s.update(ctx, fn); !errors.Is(err, kernel.ErrStale) {
			return err
		}
	}
	return err
}

func (s *Store) update(ctx context.Context, fn func(kernel.Tx) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return err
	}
	tx := &tx{Store: s}
	kept := false
	defer func() { // also if fn panics
		if !kept {
			tx.rollback()
		}
	}()
	if err := fn(tx); err != nil {
		return err
	}
	if tx.failed != nil { // fn ignored the error of Save
		return tx.failed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	kept = true
	return nil
}

// Close makes every later call fail.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

func (s *Store) usable(ctx context.Context) error {
	if s.closed {
		return errClosed
	}
	return ctx.Err()
}

// leadShrink determines how fast the store's clock gives up its lead over a wall clock that was set back: by one part in
// leadShrink of the time that passes.
const leadShrink = 10

// clock never goes back. If the wall clock does, the clock continues from the latest time that it returned, at nine
// tenths of the pace of the monotonic clock, until the wall clock has caught up.
type clock struct {
	mu     sync.Mutex
	wall   func() time.Time
	last   time.Time // latest reading of the wall clock, with its monotonic part
	latest time.Time // latest time returned
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.wall()
	monotonic := t != t.Round(0) // a test's wall clock has no monotonic reading, and may stand still
	if passed := t.Sub(c.last); monotonic && !c.latest.IsZero() && passed > 0 {
		c.latest = c.latest.Add(passed - passed/leadShrink)
	}
	c.last = t
	if t = t.Round(0).UTC(); t.After(c.latest) {
		c.latest = t
	}
	return storedTime(c.latest)
}
