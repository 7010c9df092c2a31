package scheduler

import "github.com/perdure/perdure/internal/kernel"

// WaitingClaims returns the number of claims that wait.
func (s *Scheduler) WaitingClaims() int { return len(s.queue.WaitingClaims()) }

// SetSignalRoom sets the bounds on signals.
func (s *Scheduler) SetSignalRoom(kept, all int) {
	s.signalRoom.maxKept, s.signalRoom.maxAll = kept, all
}

// KeepRenderersBusy adds a rendering to the pending ones that never ends. The others are still rendered.
func (s *Scheduler) KeepRenderersBusy() {
	s.renderers.mu.Lock()
	defer s.renderers.mu.Unlock()
	s.renderers.pending[kernel.RenderingKey{}] = true
}
