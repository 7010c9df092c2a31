package storetest

import (
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// Reopen is the contract of a store that keeps its rows: everything that was there when it was closed is there when it
// is opened again, and its clock does not go back (F081). Each call of open opens the same store, with a wall clock that
// the suite sets.
func Reopen(t *testing.T, open func(t *testing.T, wall func() time.Time) kernel.Store) {
	wall := &wallClock{now: epoch}
	again := func(old *suite) *suite {
		t.Helper()
		if old != nil {
			old.must(old.store.Close())
		}
		return &suite{T: t, store: open(t, wall.read)}
	}

	s := again(nil)
	nj := newJob(1, 3, keyed("k"), labelled("a", "b"))
	s.submit(nj)
	s.changeStep(ref(1, 0), run("h", "r", at(time.Minute)))
	s.save(&kernel.Changes{
		Payloads: []kernel.PayloadChange{{StepRef: ref(1, 0), SetInput: true, Input: []byte("1")}},
		Alerts:   []kernel.Alert{alert(1, "s0", perdure.AlertParked)},
		History:  []kernel.Entry{{Job: id(1), At: at(0), Event: "failed"}},
	})
	steps, alerts := s.steps(1), s.alerts(kernel.AlertFilter{})
	s = again(s)
	s.equal("job", s.job(1), nj.Job)
	s.equal("steps", s.steps(1), steps)
	s.equal("alerts", s.alerts(kernel.AlertFilter{}), alerts)
	s.raise(alert(1, "s1", perdure.AlertParked))
	if newer := s.alerts(kernel.AlertFilter{}); newer[0].ID <= alerts[0].ID {
		s.Errorf("an alert id was used twice: %v", newer)
	}

	wall.set(at(time.Hour))
	before := s.tick()
	wall.set(at(0))
	if now := s.tick(); now.Before(before) {
		s.Errorf("while open: %v after %v", now, before)
	}
	s = again(s)
	if now := s.tick(); now.Before(before) {
		s.Errorf("after opening again: %v after %v", now, before)
	}
	wall.set(at(2 * time.Hour))
	if now := s.tick(); !now.Equal(at(2 * time.Hour)) {
		s.Errorf("after the wall clock has caught up: %v", now)
	}
	s.must(s.store.Close())
}

// Clock is the contract of a store's clock while the store is open, for stores that take a wall clock.
func Clock(t *testing.T, open func(t *testing.T, wall func() time.Time) kernel.Store) {
	wall := &wallClock{now: epoch}
	s := &suite{T: t, store: open(t, wall.read)}
	defer s.store.Close()
	s.equal("at the start", s.tick(), at(0))
	wall.set(at(time.Minute))
	s.equal("later", s.tick(), at(time.Minute))
	wall.set(at(-time.Hour))
	s.equal("after the wall clock was set back", s.tick(), at(time.Minute))
	wall.set(at(time.Hour))
	s.equal("after the wall clock has caught up", s.tick(), at(time.Hour))
}

type wallClock struct {
	mu  sync.Mutex
	now time.Time
}

func (w *wallClock) read() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *wallClock) set(t time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = t
}

// tick returns the time of a transaction that writes, after checking that a reader gets no earlier one.
func (s *suite) tick() (now time.Time) {
	s.Helper()
	s.update(func(tx kernel.Tx) {
		var err error
		now, err = tx.Now()
		s.must(err)
		s.must(tx.PutLimit(atMost("agent:clock", 1)))
	})
	read, err := s.store.Now(ctx)
	s.must(err)
	if read.Before(now) {
		s.Errorf("the clock of reads is behind: %v, %v", read, now)
	}
	return now
}
