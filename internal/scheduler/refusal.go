package scheduler

import (
	"context"
	"errors"
	"sync"

	"perdure"
)

// refusal is why the store takes no submissions: its disk is full, or it may only be read. That reads go on, or that
// a small write goes through now and then, says nothing: it lasts until a submission is stored, or a trial has shown
// that there is room for one (Trust).
type refusal struct {
	mu  sync.Mutex
	err error
}

func (r *refusal) note(err error) {
	if perdure.CodeOf(err) != perdure.CodeUnavailable && !errors.Is(err, context.DeadlineExceeded) {
		return // of what was asked, and not of the store
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = unavailable(err)
}

func (r *refusal) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = nil
}

// Refusal is why the store takes no submissions; nil: it does, as far as is known.
func (s *Scheduler) Refusal() error {
	s.refusal.mu.Lock()
	defer s.refusal.mu.Unlock()
	return s.refusal.err
}

// Trust forgets the refusal: a trial has shown that the store takes submissions again.
func (s *Scheduler) Trust() { s.refusal.clear() }

// stores says that the transaction has stored a job.
func (b *batch) stores() bool {
	for i := range b.notes {
		if b.notes[i].kind == noteSubmitted {
			return true
		}
	}
	return false
}
