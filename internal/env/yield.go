package env

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Yielder lets those go first who are ready to run: what they bring goes into the same batch. Where there are none it
// takes no time. Beside handlers that compute, each for its whole slice, it would take a turn of all of them: so after
// one that was slow it rests.
type Yielder struct{ rests atomic.Int64 } // until then, in nanoseconds since 1970

const (
	slowYield  = 10 * time.Millisecond // a slice
	yieldShare = 20                    // it rests so many times what it took
)

// Yield is called without locks.
func (y *Yielder) Yield() {
	began := time.Now()
	if began.UnixNano() < y.rests.Load() {
		return
	}
	runtime.Gosched()
	y.took(began, time.Since(began))
}

func (y *Yielder) took(began time.Time, took time.Duration) {
	if took > slowYield {
		y.rests.Store(began.Add((1 + yieldShare) * took).UnixNano())
	}
}
