package sim

import (
	"container/heap"
	"context"
	"iter"
	"runtime/debug"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/env"
)

// loop is time and the only thread. An event happens at a time. Code that waits is a task: a coroutine that continues
// when what it waits for has happened. Tasks of one process share its memory. Processes interact only by events.
type loop struct {
	now    time.Duration // since the beginning
	events events
	seq    int
	task   *task // the running task; nil: an event
	failed func(format string, args ...any)
	chance func() float64
	ran    int // events
}

// event happens at a time, in a process or (nil) in the world.
type event struct {
	at   time.Duration
	seq  int
	proc *process
	run  func()
	mono time.Duration // of a timer: not before the process's clock shows this time
}

type events []*event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(*event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

// after schedules an event in a process. It is dropped if the process is dead by then.
func (l *loop) after(d time.Duration, p *process, run func()) *event {
	l.seq++
	e := &event{at: l.now + max(d, 0), seq: l.seq, proc: p, run: run}
	heap.Push(&l.events, e)
	return e
}

// step runs the next event; false if there is none before the time.
func (l *loop) step(until time.Duration) bool {
	if len(l.events) == 0 || l.events[0].at > until {
		return false
	}
	e := heap.Pop(&l.events).(*event)
	l.now = max(l.now, e.at)
	switch p := e.proc; {
	case e.run == nil: // stopped
	case p == nil:
		l.ran++
		e.run()
	case p.dead:
	case p.frozen:
		p.held = append(p.held, e)
	case e.mono > 0 && p.mono() < e.mono: // the process's clock stood still meanwhile, or is slow
		e.at = l.now + max(time.Duration(float64(e.mono-p.mono())/p.rate), time.Microsecond)
		heap.Push(&l.events, e)
	default:
		l.ran++
		e.run()
		l.settle(p)
	}
	return true
}

// process dies or is frozen as a whole.
type process struct {
	*loop
	name    string
	dead    bool
	frozen  bool
	since   time.Duration // when it was frozen
	held    []*event      // events that arrived meanwhile
	tasks   []*task
	rate    float64       // the rate of its clock
	asleep  time.Duration // how long its monotonic clock has stood still
	wall    time.Duration // the error of its wall clock
	suspend bool          // frozen with its monotonic clock
}

func (l *loop) spawn(name string) *process { return &process{loop: l, name: name, rate: 1} }

// task is a coroutine.
type task struct {
	proc   *process
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
func (p *process) Go(f func()) {
	if p.dead {
		return
	}
	t := &task{proc: p}
	t.next, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		t.yield = yield
		defer func() {
			if r := recover(); r != nil && r != (killed{}) {
				p.failed("panic in %s: %v\n%s", p.name, r, debug.Stack())
			}
		}()
		f()
	})
	p.tasks = append(p.tasks, t)
}

// park suspends the task until ready returns true.
func (p *process) park(ready func() bool) {
	t := p.task
	if t == nil || t.proc != p {
		panic("sim: something waits that is not a task of " + p.name)
	}
	t.ready = ready
	if p.dead || t.killed || !t.yield(struct{}{}) {
		t.killed = true
		panic(killed{})
	}
}

// busy is how often tasks may continue at one instant before that counts as a busy loop.
const busy = 100_000

// settle continues all tasks that can continue.
func (l *loop) settle(p *process) {
	for more, rounds := true, 0; more; {
		for l.goOn(p, false) {
			if rounds++; rounds > busy {
				l.failed("%s is busy for ever", p.name)
				p.dead = true
				break
			}
		}
		l.goOn(p, true) // they check their condition, and mostly wait again
		more = l.goOn(p, false)
	}
	if p.dead {
		l.bury(p)
	}
}

// goOn continues every task of a kind that can continue, and reports whether there was one.
func (l *loop) goOn(p *process, idle bool) (progressed bool) {
	for i := 0; i < len(p.tasks) && !p.dead && !p.frozen; i++ {
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

// crash ends a process. Messages that it has sent still arrive.
func (l *loop) crash(p *process) {
	p.dead = true
	if l.task == nil || l.task.proc != p { // otherwise it is buried when the running task waits
		l.bury(p)
	}
}

// bury ends the coroutines of a dead process.
func (l *loop) bury(p *process) {
	runs := l.task
	for _, t := range p.tasks {
		t.killed = true
		l.task = t
		t.stop()
	}
	l.task = runs
	p.tasks, p.held = nil, nil
}

// freeze stops a process (SIGSTOP), with its monotonic clock where the machine is suspended.
func (l *loop) freeze(p *process, suspend bool) {
	if !p.dead && !p.frozen {
		p.frozen, p.since, p.suspend = true, l.now, suspend
	}
}

// thaw continues a frozen process: all events that were held happen now.
func (l *loop) thaw(p *process) {
	if !p.frozen || p.dead {
		return
	}
	p.frozen = false
	if p.suspend {
		p.asleep += l.now - p.since
	}
	for _, e := range p.held {
		e.at = l.now
		heap.Push(&l.events, e)
	}
	p.held = nil
	l.settle(p)
}

// ——— env.Env ———

var startTime = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (p *process) mono() time.Duration {
	return time.Duration(float64(p.loop.now-p.asleep) * p.rate)
}

func (p *process) Now() time.Time   { return startTime.Add(p.mono()) }
func (p *process) Wall() time.Time  { return startTime.Add(p.loop.now + p.wall) }
func (p *process) Float64() float64 { return p.chance() }

// timer is an event by the clock of a process.
type timer struct {
	p *process
	e *event
	f func()
}

// AfterFunc implements env.Env.
func (p *process) AfterFunc(d time.Duration, f func()) env.Timer {
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
	e := t.p.after(time.Duration(float64(d)/t.p.rate), t.p, nil)
	e.mono = t.p.mono() + d
	e.run = func() { t.Stop(); t.f() }
	t.e = e
	return active
}

// Wait implements env.Env.
func (p *process) Wait(ctx context.Context, d time.Duration, ch <-chan struct{}) (why env.Waited) {
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
	p.park(poll)
	return why
}

// WaitCond implements env.Env.
func (p *process) WaitCond(c *sync.Cond) {
	c.L.Unlock()
	defer c.L.Lock()
	p.task.idle = true
	p.park(nil)
}

// WithDeadline implements env.Env.
func (p *process) WithDeadline(ctx context.Context, at time.Time) (context.Context, context.CancelFunc) {
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
