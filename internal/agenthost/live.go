package agenthost

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/runcontext"
	"github.com/perdure/perdure/protocol"
)

// handle names a run: it is started at most once (F021).
type handle struct {
	job  perdure.JobID
	step string
	run  int64
}

func handleOf(r *perdure.Run) handle { return handle{r.Job, r.Step, r.Number} }

// live is a run that this host has to do with: from its arrival until its report is answered, or
// until its time has passed and its handler is back.
type live struct {
	run    *perdure.Run
	agent  *hosted
	ctx    context.Context // the handler's
	cancel context.CancelCauseFunc
	since  time.Time // when it came

	// Guarded by Host.mu.
	lock      instant // the run is ours until then, and never after
	ultimatum instant // lock never moves past it
	inLine    bool    // it waits for a slot
	running   bool    // the handler has not returned
	lost      bool    // no longer ours: nothing is said about it
	report    *protocol.Report
	progress  *json.RawMessage // not sent yet
}

var (
	errTimeUp   = fmt.Errorf("the run's lock has expired: %w", context.DeadlineExceeded)
	errNotOurs  = errors.New("the run no longer belongs to this host")
	errStopped  = errors.New("the run is no longer wanted")
	errDraining = errors.New("the host is draining")
	errDrained  = errors.New("the host has drained")
)

// admit starts a run that has arrived, or lets it wait for a slot, unless it is known, or its time is used up, or nothing will
// come of it here (the job has turned, the host drains, no slot is free and nothing was claimed ahead): then it is given back. It
// says whether the run was taken.
func (h *Host) admit(a *hosted, run *perdure.Run, t term) bool {
	h.mu.Lock()
	defer h.unlock()
	id := handleOf(run)
	if h.live[id] != nil || h.recent.has(id) {
		h.say(slog.LevelWarn, "duplicate run ignored", a, run)
		return false
	}
	now := h.now()
	if t.lock.reached(now) {
		h.discard(a, run)
		return false
	}
	l := &live{run: run, agent: a, since: now.mono, lock: t.lock, ultimatum: t.ultimatum}
	h.live[id] = l
	a.held++
	if l.lock.mono.Before(h.looks) {
		select {
		case h.sooner <- struct{}{}:
		default: // it has been told
		}
	}
	switch {
	case t.unwanted, h.claiming.Err() != nil, a.busy >= a.slots && a.ahead(now.mono) == 0: // it was not claimed ahead
		h.giveBack(l)
		return false
	case a.busy >= a.slots:
		h.line(l)
	default:
		h.occupy(l)
	}
	return true
}

// occupy puts a run into a free slot. Called under mu.
func (h *Host) occupy(l *live) {
	l.agent.busy++
	l.running = true
	l.ctx, l.cancel = context.WithCancelCause(context.Background()) // cut ends it with the host
	l.ctx = runcontext.With(l.ctx, l.run, l.ultimatum.mono, func(p json.RawMessage) { h.keepProgress(l, p) })
	h.arrived = append(h.arrived, l)
	h.call()
}

// call sees to it that what has arrived is begun: as long as there is any, a goroutine is on its way. Called under mu.
func (h *Host) call() {
	if len(h.arrived) > 0 && !h.coming {
		h.coming = true
		h.env.Go(h.work)
	}
}

// work executes runs, one after the other, on one goroutine: as many of these are there as handlers take their time.
// None waits for another's handler, since whoever begins one has called the next.
func (h *Host) work() {
	for l := h.begin(true); l != nil; l = h.begin(false) {
		h.execute(l)
	}
}

// discard drops a run whose time was used up before it could start (F022, F023). Nothing is said
// about it: it is the scheduler's again.
func (h *Host) discard(a *hosted, run *perdure.Run) {
	h.recent.add(handleOf(run))
	h.say(slog.LevelWarn, "run discarded: lock expired before start", a, run)
}

// giveBack queues the report of a run that never started. Called under mu.
func (h *Host) giveBack(l *live) {
	crashpoint.Here(crashpoint.AgentGiveBack)
	h.say(slog.LevelInfo, "run returned unstarted", l.agent, l.run)
	h.post(l, protocol.Report{Job: l.run.Job, Step: l.run.Step, Run: l.run.Number, Outcome: perdure.OutcomeReturned})
}

// execute runs the handler, and takes down how that ended.
func (h *Host) execute(l *live) {
	var output json.RawMessage
	var err error
	began, back := h.env.Now(), false
	defer func() {
		if !back { // a panic, or the handler has ended its goroutine: others must not feel it (F126)
			output, err = nil, h.panicked(l, recover())
		}
		h.finish(l, output, err, h.env.Now().Sub(began))
	}()
	crashpoint.Here(crashpoint.AgentExecute)
	output, err = l.agent.Execute(l.ctx, l.run)
	crashpoint.Here(crashpoint.AgentExecuted)
	back = true
}

func (h *Host) panicked(l *live, v any) error {
	if v == nil {
		v = "the handler ended its goroutine"
	}
	h.log.Error("panic in a handler", about(l.agent, l.run, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))...)
	return perdure.Failed(fmt.Errorf("panic: %v", v), "panic")
}

// begin is the run that has arrived first and may start still.
func (h *Host) begin(came bool) *live {
	h.mu.Lock()
	defer h.unlock()
	if came {
		h.coming = false
	}
	for len(h.arrived) > 0 {
		l := h.arrived[0]
		h.arrived[0] = nil
		h.arrived = h.arrived[1:]
		if h.mayBegin(l) {
			h.call()
			return l
		}
		if len(h.notes) > 0 { // others do not wait until the log has taken them (F127)
			h.call()
			h.unlock()
			h.mu.Lock()
		}
	}
	h.arrived = nil
	return nil
}

// mayBegin looks once more, now that the goroutine has the processor, whether the run may start (F023). Called under mu.
func (h *Host) mayBegin(l *live) bool {
	switch {
	case l.lost:
	case l.lock.reached(h.now()):
		h.lose(l, errTimeUp)
	case h.claiming.Err() == nil:
		h.say(slog.LevelDebug, "run started", l.agent, l.run)
		return true
	}
	l.running = false
	if l.cancel(nil); l.lost {
		h.forget(l)
		return false
	}
	h.vacate(l.agent)
	h.giveBack(l)
	return false
}

// finish turns what the handler returned into a report, if the run is still ours. Whether it is then
// too, when the report can be sent, is looked at there (F038).
func (h *Host) finish(l *live, output json.RawMessage, err error, took time.Duration) {
	cause := context.Cause(l.ctx)
	l.cancel(nil)
	// Outside of the lock: this walks the output.
	report := reportOf(l.run, output, err, cause)
	h.mu.Lock()
	defer h.unlock()
	mean(&l.agent.took, took)
	if l.running = false; l.lost {
		h.forget(l)
		return
	}
	h.vacate(l.agent)
	h.post(l, report)
	if h.log.Enabled(context.Background(), slog.LevelDebug) {
		h.say(slog.LevelDebug, "run ended", l.agent, l.run, "outcome", report.Outcome.String(), "took", took)
	}
}

// reportOf is protocol.ReportOf, but for runs that the host itself has cut short.
func reportOf(run *perdure.Run, output json.RawMessage, err, cause error) protocol.Report {
	if err == nil {
		return protocol.ReportOf(run, output, nil)
	}
	r := protocol.ReportOf(run, nil, err)
	switch {
	case errors.Is(cause, errDraining):
		// Not the run's fault: it counts no failure. What it has changed is not known, unless the
		// handler says so.
		if r.Effect != protocol.EffectNone {
			r.Effect = protocol.EffectUnknown
		} else {
			r.Effect = ""
		}
		r.Outcome, r.Error = perdure.OutcomeReturned, &perdure.RunError{Message: "cut short by a drain of its host"}
	case errors.Is(cause, errStopped) && r.Error.Code == "":
		r.Error.Code = "stopped"
	}
	return r
}

// lose ends a run that is no longer ours. Its slot is free from here on, even if its handler does not
// heed its context (F050). Called under mu.
func (h *Host) lose(l *live, cause error) {
	l.lost = true
	l.report = nil
	if !l.running {
		message := "report dropped"
		if l.inLine {
			message = "run given up before start"
			l.leaveLine()
		}
		h.say(slog.LevelWarn, message, l.agent, l.run, "reason", cause.Error())
		h.forget(l)
		return
	}
	h.say(slog.LevelWarn, "run given up", l.agent, l.run, "reason", cause.Error())
	h.vacate(l.agent)
	l.cancel(cause)
}

// cut ends the contexts of all handlers with that of the host.
func (h *Host) cut() {
	h.mu.Lock()
	defer h.unlock()
	for _, l := range h.live {
		if l.running {
			l.cancel(context.Cause(h.life))
		}
	}
	h.ready.Broadcast()
}

// vacate frees a slot. Called under mu.
func (h *Host) vacate(a *hosted) {
	a.busy--
	h.advance(a)
	a.freed.ring()
	h.left.ring()
}

// forget is the end of a run as far as this host goes. Called under mu.
func (h *Host) forget(l *live) {
	id := handleOf(l.run)
	delete(h.live, id)
	h.recent.add(id)
	l.agent.held--
	l.agent.freed.ring()
	h.left.ring()
}

// watchEvery is how often the wall clock is looked at, which timers don't follow (F039).
const watchEvery = time.Second

// watchLoop ends runs whose time is over.
func (h *Host) watchLoop() {
	for {
		h.mu.Lock()
		h.looks = h.lapse(h.now())
		wait := h.looks.Sub(h.env.Now())
		h.unlock()
		if h.env.Wait(h.life, max(wait, 0), h.sooner) == env.Gone {
			return
		}
	}
}

// lapse loses the runs whose time is over, and says when to look again. Called under mu.
func (h *Host) lapse(now instant) (next time.Time) {
	next = now.mono.Add(watchEvery)
	var over []*live
	for _, l := range h.live {
		switch {
		case l.lost:
		case l.lock.reached(now):
			over = append(over, l)
		case l.lock.mono.Before(next):
			next = l.lock.mono
		}
	}
	slices.SortFunc(over, func(a, b *live) int {
		return cmp.Or(a.lock.mono.Compare(b.lock.mono), a.run.Job.Compare(b.run.Job), cmp.Compare(a.run.Step, b.run.Step))
	})
	for _, l := range over {
		h.lose(l, errTimeUp)
	}
	return next
}

// handlers counts those that have not returned, and are expected to. Called under mu.
func (h *Host) handlers() (n int) {
	for _, a := range h.agents {
		n += a.busy
	}
	return n
}

// remembered is a bounded memory of the runs that this host was through with most recently.
type remembered struct{ now, before map[handle]struct{} }

const rememberAtLeast = 4096

func (r *remembered) has(id handle) bool {
	_, now := r.now[id]
	_, before := r.before[id]
	return now || before
}

func (r *remembered) add(id handle) {
	if len(r.now) >= rememberAtLeast {
		r.before, r.now = r.now, r.before
		clear(r.now)
	}
	if r.now == nil {
		r.now = map[handle]struct{}{}
	}
	r.now[id] = struct{}{}
}
