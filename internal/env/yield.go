package env

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Yielder lets goroutines that are ready to run go first, so that their requests join the same batch. If none is ready,
// this takes no time. If other goroutines compute, each for its whole time slice, one yield takes as long as a slice of
// each of them. Therefore no yield follows for a while after one that was slow.
type Yielder struct{ notBefore atomic.Int64 } // no yield before this time, in nanoseconds since 1970

const (
	slowYield  = 10 * time.Millisecond // a time slice of the Go scheduler
	yieldShare = 20                    // the pause is so many times as long as the slow yield
)

// Yield lets other goroutines run. The caller must not hold a lock.
func (y *Yielder) Yield() {
	began := time.Now()
	if began.UnixNano() < y.notBefore.Load() {
		return
	}
	runtime.Gosched()
	y.record(began, time.Since(began))
}

func (y *Yielder) record(began time.Time, duration time.Duration) {
	if duration > slowYield {
		y.notBefore.Store(began.Add((1 + yieldShare) * duration).UnixNano())
	}
}
