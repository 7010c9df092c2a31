// Package descriptors divides the file descriptors that the system grants this process (RLIMIT_NOFILE) into three parts:
// for connections of callers, for runs of the built-in agents, and a reserve for everything else (the store and its
// files, name resolution, the log).
//
//	reserved     max(32, limit/8)                            never given away
//	connections  (limit - reserved)/2, at most MaxConnections
//	agents       (limit - reserved)/2
//
// So neither many callers nor many runs use descriptors that the store or the other part needs. If the agents' part is
// used up, agents close descriptors that they keep open without using them (OnShortage). If that frees too few, a
// request is refused with ErrNone, before the system would refuse it.
package descriptors

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
)

const (
	// MaxConnections bounds the connections of callers if the system's limit is high: each connection takes about 20 KB.
	MaxConnections = 5000

	leastReserved  = 32
	reservedShare  = 8 // the reserve is limit/reservedShare
	leastShare     = 8 // the least number for connections, and for agents, however low the limit is
	unknownLimit   = 1024
	unlimitedLimit = 1 << 20
)

// ErrNone is returned if no descriptor is left in the agents' part. It wraps syscall.EMFILE, as the system's own error
// does.
var ErrNone = fmt.Errorf("all file descriptors for runs are in use on this node: %w", syscall.EMFILE)

// Limit returns the number of descriptors that the system grants this process.
var Limit = sync.OnceValue(func() int {
	limit, known := systemLimit()
	if !known {
		return unknownLimit
	}
	return int(min(limit, unlimitedLimit))
})

// Connections returns the number of connections of callers that fit under a limit.
func Connections(limit int) int { return min(share(limit), MaxConnections) }

// share returns the number of descriptors for connections, which is also the number for agents.
func share(limit int) int {
	return max((limit-max(leastReserved, limit/reservedShare))/2, leastShare)
}

var (
	taken atomic.Int64

	mu   sync.Mutex
	idle []func()
)

// OnShortage registers a function, for the life of the process, that closes the descriptors which an agent keeps open
// without using them. Take calls it before it refuses a request of any agent. The descriptors must be closed when the
// function returns.
func OnShortage(closeIdle func()) {
	mu.Lock()
	defer mu.Unlock()
	idle = append(idle, closeIdle)
}

// Take takes n descriptors of the agents' part, or none. release gives them back; it may be called more than once.
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
