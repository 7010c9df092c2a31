// Package descriptors divides the file descriptors that the system grants this process (RLIMIT_NOFILE) between
// connections of callers, what the built-in agents open for runs, and everything else: the store, its files, name
// resolution, the log.
//
//	reserved     max(32, limit/8)                            never given away
//	connections  (limit - reserved)/2, at most MaxConnections
//	agents       (limit - reserved)/2
//
// So neither many callers nor many runs take descriptors that the store or the other share needs. If the agents' share
// is used up, an agent closes what it holds and does not use (OnShortage). If that frees too few descriptors, a request
// is refused with ErrNone before the system would refuse it.
package descriptors

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
)

const (
	// MaxConnections bounds the connections of callers on a machine that grants more: each costs some 20 KB.
	MaxConnections = 5000

	leastReserved  = 32
	reservedShare  = 8 // one part in so many
	leastShare     = 8 // of connections, and of agents, however low the limit is
	unknownLimit   = 1024
	unlimitedLimit = 1 << 20
)

// ErrNone says that no descriptor is left of the agents' share. It is syscall.EMFILE, as the system's own refusal is.
var ErrNone = fmt.Errorf("all file descriptors for runs are in use on this node: %w", syscall.EMFILE)

// Limit is how many descriptors the system grants this process.
var Limit = sync.OnceValue(func() int {
	limit, known := systemLimit()
	if !known {
		return unknownLimit
	}
	return int(min(limit, unlimitedLimit))
})

// Connections is how many connections of callers fit under a limit.
func Connections(limit int) int { return min(share(limit), MaxConnections) }

// share is how many descriptors connections may take; agents may take as many.
func share(limit int) int {
	return max((limit-max(leastReserved, limit/reservedShare))/2, leastShare)
}

var (
	taken atomic.Int64

	mu   sync.Mutex
	idle []func()
)

// OnShortage registers a function, for the life of the process, that closes what an agent holds and does not use at
// present. Take calls it before it refuses a request of any agent. When the function returns, the descriptors must be
// released.
func OnShortage(closeIdle func()) {
	mu.Lock()
	defer mu.Unlock()
	idle = append(idle, closeIdle)
}

// Take takes n descriptors of the agents' share, or none. They are given back with release, which may be called again.
func Take(n int) (release func(), err error) {
	if !take(n) {
		closeIdle()
		if !take(n) {
			return nil, ErrNone
		}
	}
	return sync.OnceFunc(func() { taken.Add(int64(-n)) }), nil
}

func take(n int) bool {
	if taken.Add(int64(n)) > int64(share(Limit())) {
		taken.Add(int64(-n))
		return false
	}
	return true
}

func closeIdle() {
	mu.Lock()
	registered := idle
	mu.Unlock()
	for _, f := range registered {
		f()
	}
}
