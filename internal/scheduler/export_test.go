package scheduler

// WaitingClaims returns the number of claims that wait.
func (s *Scheduler) WaitingClaims() int { return len(s.queue.WaitingClaims()) }
