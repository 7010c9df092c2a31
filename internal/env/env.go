// Package env is what an actor takes from the process that it lives in: clocks, chance, patience and
// goroutines. Real is Go's own. A simulation has one in which all of them follow a seed, so that the
// actors themselves need not know of it.
package env

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Env is a process as the code in it sees it.
type Env interface {
	Now() time.Time   // the monotonic clock; its wall reading means nothing
	Wall() time.Time  // the wall clock, which can be set
	Float64() float64 // chance, in [0,1)

	Go(func())
	AfterFunc(time.Duration, func()) Timer
	// Wait receives from ch. It waits for d at most, or without an end where d is Forever; a nil ch gives
	// nothing.
	Wait(ctx context.Context, d time.Duration, ch <-chan struct{}) Waited
	// WaitCond is c.Wait(): the caller holds c.L, and looks again at what it waits for.
	WaitCond(c *sync.Cond)
	// WithDeadline is context.WithDeadline, by the clock of Now.
	WithDeadline(context.Context, time.Time) (context.Context, context.CancelFunc)
}

// Timer is the part of a time.Timer that is needed.
type Timer interface {
	Stop() bool
	Reset(time.Duration) bool
}

// Waited is how a wait ended.
type Waited uint8

const (
	Got  Waited = iota // something came
	Late               // the time is over
	Gone               // ctx has ended
)

// Forever is the time of a wait that has no end of its own.
const Forever time.Duration = -1

// WithTimeout is context.WithTimeout.
func WithTimeout(e Env, ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return e.WithDeadline(ctx, e.Now().Add(d))
}

// Sleep says whether d has passed before ctx ended.
func Sleep(e Env, ctx context.Context, d time.Duration) bool {
	return e.Wait(ctx, max(d, 0), nil) == Late
}

// Start runs functions side by side. What it returns waits until all of them have returned; it may be called more than once.
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

// Real is the process itself.
type Real struct{}

func (Real) Now() time.Time                            { return time.Now() }
func (Real) Wall() time.Time                           { return time.Now() }
func (Real) Float64() float64                          { return rand.Float64() }
func (Real) Go(f func())                               { go f() }
func (Real) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }
func (Real) WaitCond(c *sync.Cond)                     { c.Wait() }
func (Real) WithDeadline(ctx context.Context, at time.Time) (context.Context, context.CancelFunc) {
	return context.WithDeadline(ctx, at)
}

// Wait takes what is there before it looks at the time or at ctx.
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
