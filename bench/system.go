package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

// System is one of those that are compared. A value lives for one measurement, in a process and on a
// database of its own. All handlers do nothing.
type System interface {
	// Open makes what is needed on an empty database. From then on jobs are taken.
	Open(ctx context.Context) error
	// Work starts the workers, in this process where the system can.
	Work(ctx context.Context) error
	// Left says whether anything submitted is not finished yet; it must be cheap. Done is how many jobs the
	// database says are finished: what the benchmark believes.
	Left(ctx context.Context) (bool, error)
	Done(ctx context.Context) (int64, error)
	// Handled is how many handlers have returned so far; less than 0 where they run elsewhere.
	Handled() int64
	Close()
}

// What a system can do beside. Each returns once all is stored durably.
type (
	batcher interface {
		// SubmitBatch submits n jobs of one step, in the way that is fastest for many.
		SubmitBatch(ctx context.Context, n int) error
	}
	submitter interface {
		// Submit submits one job of one step. 64 goroutines call it.
		Submit(ctx context.Context) error
	}
	chainer interface {
		// SubmitChains submits n jobs of so many durable steps, one after the other.
		SubmitChains(ctx context.Context, n, steps int) error
	}
	fanner interface {
		// SubmitFans submits n jobs of so many durable steps beside each other, and a join.
		SubmitFans(ctx context.Context, n, width int) error
	}
	parent interface {
		// SubmitParents submits n jobs, each of which has so many child jobs of one step, and ends after them.
		SubmitParents(ctx context.Context, n, children int) error
	}
	tripper interface {
		// RunOne submits one job of one step and waits until it is done, by the system's own means.
		RunOne(ctx context.Context) error
	}
)

// Env is what a measurement is given.
type Env struct {
	Postgres    string // URL of an empty database
	PostgresPID int
	Dir         string // empty
	Perdure     string // the program
	Restate     string // the program; "" where it could not be had
	Temporal    string // the program; "" where it could not be built
	Self        string // this program
}

// Kind describes a system before one is made.
type Kind struct {
	Name     string
	Store    string // what keeps the jobs: PostgreSQL, SQLite, …
	Ours     bool
	Pace     int  // about how many jobs of one step a second: sizes are cut to it
	Brackets bool // gives up a promise that the others keep
	Settings []string
	Missing  func(*Env) string // why it cannot run here; nil: it can
	New      func(*Env) System

	variant
}

var kinds []Kind

func kindOf(name string) (Kind, bool) {
	for _, k := range kinds {
		if k.Name == name {
			return k, true
		}
	}
	return Kind{}, false
}

// counted counts the calls of handlers in this process.
type counted struct{ n atomic.Int64 }

func (c *counted) Handled() int64 { return c.n.Load() }

// handled is what the handlers of a system do that can be measured under sustained load: they can be made to wait and to take time,
// and they report the end of each job.
type handled struct {
	counted
	takes time.Duration                 // of one handler
	gate  atomic.Pointer[chan struct{}] // handlers wait until it is closed; nil: they do not
	ended func(order int64)             // called by the last handler of each job, if not nil
}

// handle is one call of a handler. last says that it is the last one of its job.
func (h *handled) handle(order int64, last bool) {
	if gate := h.gate.Load(); gate != nil {
		<-*gate
	}
	if h.takes > 0 {
		time.Sleep(h.takes)
	}
	if last && h.ended != nil {
		h.ended(order)
	}
	h.n.Add(1)
}

// own makes handlers available to the workloads that change them.
func (h *handled) own() *handled { return h }

// handler is a system whose handlers run in this process, and call handle.
type handler interface {
	System
	own() *handled
}

// slotted is a system whose number of concurrent handlers can be set.
type slotted interface {
	handler
	setSlots(n int)
}

// limited is a system that can start so many jobs a second and no more.
type limited interface {
	handler
	// SubmitLimited submits n jobs, of which benchRate may start each second.
	SubmitLimited(ctx context.Context, n int) error
	// burst is how many may start at once.
	burst() int
}

// benchRate is the rate of jobs that are limited to one, per second.
const benchRate = 200

// payload is what a job carries, for all of them.
type payload struct {
	Order int64  `json:"order"`
	Note  string `json:"note"`
}

// note makes a job's row some 300 bytes in all.
var note = strings.Repeat("a job of the usual size ", 4)

var orders atomic.Int64

// sent receives each job that is about to be submitted; it may be nil.
var sent func(order int64)

func nextPayload() payload {
	order := orders.Add(1)
	if sent != nil {
		sent(order)
	}
	return payload{Order: order, Note: note}
}

// spread runs f n times, from so many goroutines.
func spread(ctx context.Context, n, goroutines int, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	ended := make(chan struct{})
	for range goroutines {
		go func() {
			defer func() { ended <- struct{}{} }()
			for ctx.Err() == nil && next.Add(1) <= int64(n) {
				if err := f(ctx); err != nil {
					cancel(err)
				}
			}
		}()
	}
	for range goroutines {
		<-ended
	}
	return context.Cause(ctx)
}

// inBatches submits n jobs, batch by batch, a few at a time.
func inBatches(ctx context.Context, n int, submit func(ctx context.Context, n int) error) error {
	if err := spread(ctx, n/batchSize, batchers, func(ctx context.Context) error { return submit(ctx, batchSize) }); err != nil || n%batchSize == 0 {
		return err
	}
	return submit(ctx, n%batchSize)
}

// fanSubmitters is how many goroutines submit jobs of many parallel steps: so many that enough is in flight.
func fanSubmitters(width int) int { return max(4, submitters/width) }

// finished waits until so many jobs are done, durably. The count of handlers tells when it is worth asking
// the database, so that asking costs the system nothing while it works.
func finished(ctx context.Context, s System, jobs, handlers int64) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for s.Handled() >= 0 && s.Handled() < handlers {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d handlers have run: %w", s.Handled(), handlers, ctx.Err())
		case <-tick.C:
		}
	}
	if s.Handled() < 0 {
		tick.Reset(10 * time.Millisecond)
	}
	for {
		left, err := s.Left(ctx)
		if err != nil {
			return err
		}
		if !left {
			return nil
		}
		select {
		case <-ctx.Done():
			done, _ := s.Done(context.WithoutCancel(ctx))
			return fmt.Errorf("%d of %d jobs are done: %w", done, jobs, ctx.Err())
		case <-tick.C:
		}
	}
}
