package scheduler

// WaitingClaims returns the number of claims that wait.
func (s *Scheduler) WaitingClaims() int { return len(s.queue.WaitingClaims()) }

// SetSignalRoom sets the bounds on signals.
func (s *Scheduler) SetSignalRoom(kept, all int) {
	s.signalRoom.maxKept, s.signalRoom.maxAll = kept, all
}
