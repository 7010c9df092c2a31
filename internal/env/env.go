// Package env is the environment of a component: clocks, randomness, timers, waits and goroutines. A component takes
// them from an Env, and never from packages time, math/rand or the go statement.
//
// Real is the environment of a process. The simulation (internal/sim) has another one, in which time is virtual and the
// order of all events follows from a seed. Components behave the same in both.
//
// A component must not hold a sync.Mutex while it waits: use Lock.
package env

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Env is the environment in which a component runs.
type Env interface {
	Now() time.Time   // monotonic clock; its wall reading is meaningless
	Wall() time.Time  // wall clock, which can be set, and which goes on while the machine sleeps
	Float64() float64 // random, in [0,1)

	Go(func())
	AfterFunc(time.Duration, func()) Timer
	// Wait receives from ch. It waits for at most d, or without a limit if d is Forever. A nil ch never receives.
	Wait(ctx context.Context, d time.Duration, ch <-chan struct{}) Waited
	// WaitCond is c.Wait(): the caller holds c.L, and checks its condition again afterwards.
	WaitCond(c *sync.Cond)
	// WithDeadline is context.WithDeadline, by the clock of Now.
	WithDeadline(context.Context, time.Time) (context.Context, context.CancelFunc)
}

// Timer is the part of time.Timer that components need.
type Timer interface {
	Stop() bool
	Reset(time.Duration) bool
}

// Waited is the way in which a wait ended.
type Waited uint8

const (
	Got  Waited = iota // received from the channel
	Late               // the time is over
	Gone               // ctx has ended
)

// Forever is the duration of a wait without a time limit.
const Forever time.Duration = -1

// WithTimeout is context.WithTimeout, by the clock of Now.
func WithTimeout(e Env, ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return e.WithDeadline(ctx, e.Now().Add(d))
}

// Sleep waits for d. It returns false if ctx ends first.
func Sleep(e Env, ctx context.Context, d time.Duration) bool {
	return e.Wait(ctx, max(d, 0), nil) == Late
}

// Start runs functions concurrently. It returns a function that waits until all of them have returned, and that may be
// called more than once.
func Start(e Env, fs ...func()) (wait func()) {
	ended := make(chan struct{})
	var left atomic.Int64
	left.Store(int64(len(fs)))
	if len(fs) == 0 {
		close(ended)
	}
	for _, f := range fs {
		e.Go(func() {
			defer func() {
				if left.Add(-1) == 0 {
					close(ended)
				}
			}()
			f()
		})
	}
	return func() { e.Wait(context.Background(), Forever, ended) }
}

// Real is the environment of a process.
type Real struct{}

func (Real) Now() time.Time                            { return time.Now() }
func (Real) Wall() time.Time                           { return time.Now().Round(0) }
func (Real) Float64() float64                          { return rand.Float64() }
func (Real) Go(f func())                               { go f() }
func (Real) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }
func (Real) WaitCond(c *sync.Cond)                     { c.Wait() }
func (Real) WithDeadline(ctx context.Context, at time.Time) (context.Context, context.CancelFunc) {
	return context.WithDeadline(ctx, at)
}

// Wait prefers a value that is ready in ch to an elapsed time or an ended ctx.
func (Real) Wait(ctx context.Context, d time.Duration, ch <-chan struct{}) Waited {
	select {
	case <-ch:
		return Got
	default:
	}
	var timeout <-chan time.Time
	if d >= 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-ch:
		return Got
	case <-timeout:
		return Late
	case <-ctx.Done():
		return Gone
	}
}
