package agenthost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"perdure"
	"perdure/internal/crashpoint"
	"perdure/internal/env"
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

	// Guarded by Host.mu.
	lock      instant   // the run is ours until then, and never after
	ultimatum instant   // lock never moves past it
	timer     env.Timer // at lock, or earlier: it looks again
	running   bool      // the handler has not returned
	lost      bool      // no longer ours: nothing is said about it
	report    *perdure.Report
	progress  *json.RawMessage // not sent yet
}

var (
	errTimeUp   = fmt.Errorf("the run's time is up: %w", context.DeadlineExceeded)
	errNotOurs  = errors.New("the run is no longer this host's")
	errStopped  = errors.New("the run is no longer wanted")
	errDraining = errors.New("the host is draining")
	errDrained  = errors.New("the host has drained")
)

// admit starts a run that has arrived, unless it is known, or its time is used up, or nothing will
// come of it here (the job has turned, the host drains, no slot is free): then it is given back. It
// says whether the run was started.
func (h *Host) admit(a *hosted, run *perdure.Run, t term) bool {
	h.mu.Lock()
	defer h.unlock()
	id := handleOf(run)
	if h.live[id] != nil || h.recent.has(id) {
		h.say(slog.LevelWarn, "run arrived again, not started again", a, run)
		return false
	}
	if t.lock.reached(h.now()) {
		h.discard(a, run)
		return false
	}
	l := &live{run: run, agent: a, lock: t.lock, ultimatum: t.ultimatum}
	h.live[id] = l
	a.held++
	l.timer = h.env.AfterFunc(t.lock.mono.Sub(h.env.Now()), func() { h.lapse(l) })
	if t.unwanted || h.claiming.Err() != nil || a.busy >= a.slots {
		h.giveBack(l)
		return false
	}
	a.busy++
	l.running = true
	l.ctx, l.cancel = context.WithCancelCause(context.Background()) // cut ends it with the host
	l.ctx = perdure.WithRun(l.ctx, run, t.ultimatum.mono, func(p json.RawMessage) { h.keepProgress(l, p) })
	h.env.Go(func() { h.execute(l) })
	return true
}

// discard drops a run whose time was used up before it could start (F022, F023). Nothing is said
// about it: it is the scheduler's again.
func (h *Host) discard(a *hosted, run *perdure.Run) {
	h.recent.add(handleOf(run))
	h.say(slog.LevelWarn, "run discarded: its time was used up before it could start", a, run)
}

// giveBack queues the report of a run that never started. Called under mu.
func (h *Host) giveBack(l *live) {
	crashpoint.Here(crashpoint.AgentGiveBack)
	h.say(slog.LevelInfo, "run given back unstarted", l.agent, l.run)
	h.post(l, perdure.Report{Job: l.run.Job, Step: l.run.Step, Run: l.run.Number, Outcome: perdure.OutcomeReturned})
}

// execute runs the handler, on a goroutine of its own, and takes down how that ended.
func (h *Host) execute(l *live) {
	var output json.RawMessage
	var err error
	began, back := h.env.Now(), false
	defer func() {
		if !back { // a panic, or the handler has ended its goroutine: others must not feel it (F126)
			v := recover()
			if v == nil {
				v = "the handler ended its goroutine"
			}
			h.log.Error("panic in a handler", about(l.agent, l.run, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))...)
			output, err = nil, perdure.Failed(fmt.Errorf("panic: %v", v), "panic")
		}
		h.finish(l, output, err, h.env.Now().Sub(began))
	}()
	if h.begin(l) {
		crashpoint.Here(crashpoint.AgentExecute)
		output, err = l.agent.Execute(l.ctx, l.run)
		crashpoint.Here(crashpoint.AgentExecuted)
	}
	back = true
}

// begin looks once more, now that the goroutine has the processor, whether the run may start (F023).
func (h *Host) begin(l *live) bool {
	h.mu.Lock()
	defer h.unlock()
	switch {
	case l.lost:
		return false
	case l.lock.reached(h.now()):
		h.lose(l, errTimeUp)
		return false
	case h.claiming.Err() != nil:
		l.running = false
		h.vacate(l.agent)
		h.giveBack(l)
		return false
	}
	h.say(slog.LevelDebug, "run started", l.agent, l.run)
	return true
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
	if !l.running { // given back before it began
		return
	}
	l.running = false
	if l.lost {
		h.forget(l)
		return
	}
	h.vacate(l.agent)
	if h.log.Enabled(context.Background(), slog.LevelDebug) {
		h.say(slog.LevelDebug, "run ended", l.agent, l.run, "outcome", report.Outcome.String(), "took", took)
	}
	h.post(l, report)
}

// reportOf is perdure.ReportOf, but for runs that the host itself has cut short.
func reportOf(run *perdure.Run, output json.RawMessage, err, cause error) perdure.Report {
	if err == nil {
		return perdure.ReportOf(run, output, nil)
	}
	r := perdure.ReportOf(run, nil, err)
	switch {
	case errors.Is(cause, errDraining):
		// Not the run's fault: it counts no failure. What it has changed is not known, unless the
		// handler says so.
		if r.Effect != perdure.EffectNone {
			r.Effect = perdure.EffectUnknown
		} else {
			r.Effect = ""
		}
		r.Outcome, r.Error = perdure.OutcomeReturned, &perdure.RunError{Message: "cut short by a drain of its host"}
	case errors.Is(cause, errStopped) && r.Error.Code == "":
		r.Error.Code = "stopped"
	}
	return r
}

// lapse is what a run's timer does: nothing if the lock has moved on.
func (h *Host) lapse(l *live) {
	h.mu.Lock()
	defer h.unlock()
	if l.lost || h.live[handleOf(l.run)] != l {
		return
	}
	now := h.now()
	if l.lock.reached(now) {
		h.lose(l, errTimeUp)
		return
	}
	l.timer.Reset(l.lock.mono.Sub(now.mono))
}

// lose ends a run that is no longer ours. Its slot is free from here on, even if its handler does not
// heed its context (F050). Called under mu.
func (h *Host) lose(l *live, cause error) {
	l.lost = true
	l.report = nil
	if !l.running {
		h.say(slog.LevelWarn, "report dropped: "+cause.Error(), l.agent, l.run)
		h.forget(l)
		return
	}
	h.say(slog.LevelWarn, "run given up: "+cause.Error(), l.agent, l.run)
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
	a.freed.ring()
	h.left.ring()
}

// forget is the end of a run as far as this host goes. Called under mu.
func (h *Host) forget(l *live) {
	l.timer.Stop()
	id := handleOf(l.run)
	delete(h.live, id)
	h.recent.add(id)
	l.agent.held--
	l.agent.freed.ring()
	h.left.ring()
}

// watchLoop looks at the wall clock, which timers don't follow (F039).
func (h *Host) watchLoop() {
	for env.Sleep(h.env, h.life, time.Second) {
		h.mu.Lock()
		now := h.now()
		for _, l := range h.live {
			if !l.lost && l.lock.reached(now) {
				h.lose(l, errTimeUp)
			}
		}
		h.unlock()
	}
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
	if r.now == nil || len(r.now) >= rememberAtLeast {
		r.before, r.now = r.now, make(map[handle]struct{})
	}
	r.now[id] = struct{}{}
}
