// Package memory is the reference model of a kernel.Store: the simplest code that keeps the
// contract of package storetest. It forgets everything when the process ends; it is for tests,
// simulations and demonstrations, and is what the stores that keep their rows are compared with.
package memory

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// Store holds everything under one lock. Rows are never changed in place: they are replaced by
// copies, so that whoever was handed one keeps what it was handed.
type Store struct {
	mu     sync.RWMutex
	closed bool
	clock  clock
	// mailHints has a token when mail was sent.
	mailHints chan struct{}
	data
}

var _ kernel.Store = (*Store)(nil)

// Option sets what New leaves to the caller.
type Option func(*Store)

// WithClock replaces the wall clock, for tests and simulations.
func WithClock(wall func() time.Time) Option {
	return func(s *Store) { s.clock.wall = wall }
}

// New is an empty store.
func New(opts ...Option) *Store {
	s := &Store{data: newData(), clock: clock{wall: time.Now}, mailHints: make(chan struct{}, 1)}
	for _, opt := range opts {
		opt(s)
	}
	return s
}

var errClosed = &perdure.Error{Code: perdure.CodeUnavailable, Message: "the store is closed"}

// tries is how often fn is run in all where Save finds rows that have changed.
const tries = 8

// Update runs fn alone, and takes everything back if it fails.
func (s *Store) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	var err error
	for range tries {
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
	defer func() { // also where fn panics
		if !kept {
			tx.rollback()
		}
	}()
	if err := fn(tx); err != nil {
		return err
	}
	if tx.failed != nil { // fn went on after Save had refused
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

// giveBack is the rate at which a lead over the wall clock shrinks: by one part in so many of the passing time.
const giveBack = 10

// clock never runs back: if the wall clock does, it continues from the latest time that it returned, at nine tenths of
// the pace of the monotonic clock, until the wall clock has caught up.
type clock struct {
	mu   sync.Mutex
	wall func() time.Time
	last time.Time // the wall clock's latest answer, with its monotonic reading
	mark time.Time // the latest time given
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.wall()
	monotonic := t != t.Round(0) // a wall clock of a test has no such reading: it may stand still
	if passed := t.Sub(c.last); monotonic && !c.mark.IsZero() && passed > 0 {
		c.mark = c.mark.Add(passed - passed/giveBack)
	}
	c.last = t
	if t = t.Round(0).UTC(); t.After(c.mark) {
		c.mark = t
	}
	return at(c.mark)
}
