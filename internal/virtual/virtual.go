// Package virtual is time and the only thread of a simulation. An environment of package env (a Process) gets its clock,
// timers and goroutines from a Loop: time jumps to the next event as soon as everything waits, and the order of all
// events follows from the order in which they were scheduled. So the same simulation is the same, event by event.
//
// internal/sim plays whole grids on it, with faults. internal/simulate plays one job for "perdure simulate".
package virtual

import (
	"container/heap"
	"context"
	"iter"
	"runtime/debug"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/env"
)

// Loop is time and the only thread. An event happens at a time. Code that waits is a task: a coroutine that continues
// when what it waits for has happened. Tasks of one process share its memory. Processes interact only by events.
type Loop struct {
	Now    time.Duration                    // since Start
	Failed func(format string, args ...any) // receives panics of tasks, and busy loops
	Chance func() float64                   // the randomness of all processes
	Ran    int                              // number of events

	events events
	seq    int
	task   *task // the running task; nil: an event
}

// Event happens at a time, in a process or (nil) in the world.
type Event struct {
	at   time.Duration
	seq  int
	proc *Process
	run  func()
	mono time.Duration // of a timer: not before the process's clock shows this time
}

// Stop makes the event do nothing.
func (e *Event) Stop() { e.run = nil }

type events []*Event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(*Event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

// After schedules an event in a process. It is dropped if the process is dead by then.
func (l *Loop) After(d time.Duration, p *Process, run func()) *Event {
	l.seq++
	e := &Event{at: l.Now + max(d, 0), seq: l.seq, proc: p, run: run}
	heap.Push(&l.events, e)
	return e
}

// Step runs the next event; false if there is none before the time.
func (l *Loop) Step(until time.Duration) bool {
	if len(l.events) == 0 || l.events[0].at > until {
		return false
	}
	e := heap.Pop(&l.events).(*Event)
	l.Now = max(l.Now, e.at)
	switch p := e.proc; {
	case e.run == nil: // stopped
	case p == nil:
		l.Ran++
		e.run()
	case p.Dead:
	case p.Frozen:
		p.held = append(p.held, e)
	case e.mono > 0 && p.Mono() < e.mono: // the process's clock stood still meanwhile, or is slow
		e.at = l.Now + max(time.Duration(float64(e.mono-p.Mono())/p.Rate), time.Microsecond)
		heap.Push(&l.events, e)
	default:
		l.Ran++
		e.run()
		l.Settle(p)
	}
	return true
}

// Process dies or is frozen as a whole.
type Process struct {
	*Loop
	Name      string
	Dead      bool
	Frozen    bool
	Rate      float64       // the rate of its clock
	Asleep    time.Duration // how long its monotonic clock has stood still
	WallError time.Duration // the error of its wall clock

	since   time.Duration // when it was frozen
	held    []*Event      // events that arrived meanwhile
	tasks   []*task
	suspend bool // frozen with its monotonic clock
}

// Clear drops all events.
func (l *Loop) Clear() { l.events = nil }

// Spawn returns a new process without tasks.
func (l *Loop) Spawn(name string) *Process { return &Process{Loop: l, Name: name, Rate: 1} }

// task is a coroutine.
type task struct {
	proc   *Process
	next   func() (struct{}, bool)
	stop   func()
	yield  func(struct{}) bool
	ready  func() bool // nil: it can continue at once
	idle   bool        // it waits for a sync.Cond: it is checked after every event of its process
	killed bool
	over   bool
}

type killed struct{}

// Go implements env.Env.
func (p *Process) Go(f func()) {
	if p.Dead {
		return
	}
	t := &task{proc: p}
	t.next, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		t.yield = yield
		defer func() {
			if r := recover(); r != nil && r != (killed{}) {
				p.Failed("panic in %s: %v\n%s", p.Name, r, debug.Stack())
			}
		}()
		f()
	})
	p.tasks = append(p.tasks, t)
}

// Park suspends the task until ready returns true.
func (p *Process) Park(ready func() bool) {
	t := p.task
	if t == nil || t.proc != p {
		panic("sim: something waits that is not a task of " + p.Name)
	}
	t.ready = ready
	if p.Dead || t.killed || !t.yield(struct{}{}) {
		t.killed = true
		panic(killed{})
	}
}

// busy is how often tasks may continue at one instant before that counts as a busy loop.
const busy = 100_000

// Settle continues all tasks that can continue.
func (l *Loop) Settle(p *Process) {
	for more, rounds := true, 0; more; {
		for l.goOn(p, false) {
			if rounds++; rounds > busy {
				l.Failed("%s is busy for ever", p.Name)
				p.Dead = true
				break
			}
		}
		l.goOn(p, true) // they check their condition, and mostly wait again
		more = l.goOn(p, false)
	}
	if p.Dead {
		l.bury(p)
	}
}

// goOn continues every task of a kind that can continue, and reports whether there was one.
func (l *Loop) goOn(p *Process, idle bool) (progressed bool) {
	for i := 0; i < len(p.tasks) && !p.Dead && !p.Frozen; i++ {
		t := p.tasks[i]
		if t.idle != idle || !idle && t.ready != nil && !t.ready() {
			continue
		}
		progressed = true
		t.idle = false
		l.task = t
		_, more := t.next()
		t.over = !more
		l.task = nil
	}
	kept := p.tasks[:0]
	for _, t := range p.tasks {
		if !t.over {
			kept = append(kept, t)
		}
	}
	clear(p.tasks[len(kept):])
	p.tasks = kept
	return progressed
}

// Crash ends a process. Messages that it has sent still arrive.
func (l *Loop) Crash(p *Process) {
	p.Dead = true
	if l.task == nil || l.task.proc != p { // otherwise it is buried when the running task waits
		l.bury(p)
	}
}

// bury ends the coroutines of a dead process.
func (l *Loop) bury(p *Process) {
	runs := l.task
	for _, t := range p.tasks {
		t.killed = true
		l.task = t
		t.stop()
	}
	l.task = runs
	p.tasks, p.held = nil, nil
}

// Freeze stops a process (SIGSTOP), with its monotonic clock where the machine is suspended.
func (l *Loop) Freeze(p *Process, suspend bool) {
	if !p.Dead && !p.Frozen {
		p.Frozen, p.since, p.suspend = true, l.Now, suspend
	}
}

// Thaw continues a frozen process: all events that were held happen now.
func (l *Loop) Thaw(p *Process) {
	if !p.Frozen || p.Dead {
		return
	}
	p.Frozen = false
	if p.suspend {
		p.Asleep += l.Now - p.since
	}
	for _, e := range p.held {
		e.at = l.Now
		heap.Push(&l.events, e)
	}
	p.held = nil
	l.Settle(p)
}

// ——— env.Env ———

// Start is the time at which a loop begins.
var Start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Mono is the monotonic clock of the process.
func (p *Process) Mono() time.Duration {
	return time.Duration(float64(p.Loop.Now-p.Asleep) * p.Rate)
}

func (p *Process) Now() time.Time   { return Start.Add(p.Mono()) }
func (p *Process) Wall() time.Time  { return Start.Add(p.Loop.Now + p.WallError) }
func (p *Process) Float64() float64 { return p.Chance() }

// timer is an event by the clock of a process.
type timer struct {
	p *Process
	e *Event
	f func()
}

// AfterFunc implements env.Env.
func (p *Process) AfterFunc(d time.Duration, f func()) env.Timer {
	t := &timer{p: p, f: f}
	t.Reset(d)
	return t
}

func (t *timer) Stop() bool {
	active := t.e != nil && t.e.run != nil
	if active {
		t.e.run = nil
	}
	return active
}

func (t *timer) Reset(d time.Duration) bool {
	active := t.Stop()
	d = max(d, 0)
	e := t.p.After(time.Duration(float64(d)/t.p.Rate), t.p, nil)
	e.mono = t.p.Mono() + d
	e.run = func() { t.Stop(); t.f() }
	t.e = e
	return active
}

// Wait implements env.Env.
func (p *Process) Wait(ctx context.Context, d time.Duration, ch <-chan struct{}) (why env.Waited) {
	timedOut := false
	poll := func() bool {
		select {
		case <-ch:
			why = env.Got
			return true
		default:
		}
		switch {
		case ctx.Err() != nil:
			why = env.Gone
		case timedOut:
			why = env.Late
		default:
			return false
		}
		return true
	}
	if poll() {
		return why
	}
	if d >= 0 {
		t := p.AfterFunc(d, func() { timedOut = true })
		defer t.Stop()
	}
	p.Park(poll)
	return why
}

// WaitCond implements env.Env.
func (p *Process) WaitCond(c *sync.Cond) {
	c.L.Unlock()
	defer c.L.Lock()
	p.task.idle = true
	p.Park(nil)
}

// WithDeadline implements env.Env.
func (p *Process) WithDeadline(ctx context.Context, at time.Time) (context.Context, context.CancelFunc) {
	inner, cancel := context.WithCancelCause(ctx)
	t := p.AfterFunc(at.Sub(p.Now()), func() { cancel(context.DeadlineExceeded) })
	return deadline{inner, at}, func() { t.Stop(); cancel(context.Canceled) }
}

// deadline is a context that ends by the clock of a process. Contexts made of it need no goroutine.
type deadline struct {
	context.Context
	at time.Time
}

func (d deadline) Deadline() (time.Time, bool) { return d.at, true }
