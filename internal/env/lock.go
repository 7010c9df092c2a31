package env

import "context"

// Lock is a mutex that may be held during a wait. In a simulation all goroutines of a process run on one thread, so a
// sync.Mutex that is held during a wait would block all of them.
type Lock chan struct{}

// NewLock returns a lock that is free.
func NewLock() Lock {
	l := make(Lock, 1)
	l <- struct{}{}
	return l
}

// Acquire waits for the lock. It returns false if ctx ends first.
func (l Lock) Acquire(ctx context.Context, e Env) bool { return e.Wait(ctx, Forever, l) == Got }

// Release frees the lock.
func (l Lock) Release() { l <- struct{}{} }
