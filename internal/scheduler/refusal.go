package scheduler

import (
	"context"
	"errors"
	"sync"

	"github.com/perdure/perdure"
)

// refusal is why the store refuses submissions: for example because its disk is full, or it is read-only. A successful
// read or small write does not clear the refusal. It lasts until a submission is stored, or a trial has shown that there
// is room for one (ClearRefusal).
type refusal struct {
	mu  sync.Mutex
	err error
}

func (r *refusal) note(err error) {
	if perdure.CodeOf(err) != perdure.CodeUnavailable && !errors.Is(err, context.DeadlineExceeded) {
		return // the fault is in the request, not in the store
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

// Refusal returns why the store refuses submissions; nil if no refusal is known.
func (s *Scheduler) Refusal() error {
	s.refusal.mu.Lock()
	defer s.refusal.mu.Unlock()
	return s.refusal.err
}

// ClearRefusal clears the refusal, after a trial has shown that the store accepts submissions again.
func (s *Scheduler) ClearRefusal() { s.refusal.clear() }

// storesJob reports whether the transaction has stored a new job.
func (b *batch) storesJob() bool {
	for i := range b.events {
		if b.events[i].kind == eventSubmitted {
			return true
		}
	}
	return false
}
