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
	"github.com/perdure/perdure/internal/secret"
	"github.com/perdure/perdure/protocol"
)

// handle identifies a run. A run is started at most once (F021).
type handle struct {
	job  perdure.JobID
	step string
	run  int64
}

func handleOf(r *perdure.Run) handle { return handle{r.Job, r.Step, r.Number} }

// live is a run of this host: from its arrival until its report is answered, or until it is lost and its handler has
// returned.
type live struct {
	run    *perdure.Run
	agent  *hosted
	ctx    context.Context // the handler's context
	cancel context.CancelCauseFunc
	since  time.Time // when it arrived

	redactor *secret.Redactor // of its secrets; only the goroutine of the handler uses it

	// Host.mu protects the following.
	lock     instant // until then the run belongs to this host, and never after
	deadline instant // the deadline, which lock never exceeds
	inLine   bool    // it waits for a slot
	running  bool    // the handler has not returned
	adopted  bool    // its work was begun by an earlier process: it is not returned as not started
	lost     bool    // the run no longer belongs to this host, and is not reported
	report   *protocol.Report
	progress *json.RawMessage // not sent yet
}

var (
	errLockExpired = fmt.Errorf("the run's lock has expired: %w", context.DeadlineExceeded)
	errRunLost     = errors.New("the run no longer belongs to this host")
	errStopped     = errors.New("the run is no longer wanted")
	errDraining    = errors.New("the host is draining")
	errDrained     = errors.New("the host has drained")
)

// admit starts a run that has arrived, or makes it wait for a slot. It returns the run instead if it cannot be carried
// out here: its direction is no longer desired, the host drains, or no slot is free and nothing was claimed ahead. A run
// that is known already, or whose lock has expired, is ignored. admit reports whether the run was accepted.
func (h *Host) admit(a *hosted, run *perdure.Run, t term) bool {
	h.mu.Lock()
	defer h.unlock()
	id := handleOf(run)
	if h.live[id] != nil || h.recent.has(id) {
		h.logRun(slog.LevelWarn, "duplicate run ignored", a, run)
		return false
	}
	now := h.now()
	if t.lock.reached(now) {
		h.discard(a, run)
		return false
	}
	l := &live{run: run, agent: a, since: now.mono, lock: t.lock, deadline: t.deadline}
	h.live[id] = l
	a.held++
	if l.lock.mono.Before(h.nextCheck) {
		select {
		case h.checkSooner <- struct{}{}:
		default: // a wake-up is pending already
		}
	}
	switch {
	case t.unwanted, h.claiming.Err() != nil, a.busy >= a.slots && a.ahead(now.mono) == 0: // it was not claimed ahead
		h.returnRun(l)
		return false
	case a.busy >= a.slots:
		h.enterLine(l)
	default:
		h.occupy(l)
	}
	return true
}

// occupy puts a run into a free slot. mu must be held.
func (h *Host) occupy(l *live) {
	l.agent.busy++
	l.running = true
	l.ctx, l.cancel = context.WithCancelCause(context.Background()) // cut ends this context together with the host
	l.ctx = runcontext.With(l.ctx, l.run, l.deadline.mono, func(p json.RawMessage) { h.keepProgress(l, p) })
	h.arrived = append(h.arrived, l)
	h.ensureWorker()
}

// ensureWorker makes sure that a goroutine is about to start the runs that have arrived, if there are any. mu must be held.
func (h *Host) ensureWorker() {
	if len(h.arrived) > 0 && !h.starting {
		h.starting = true
		h.env.Go(h.executeArrived)
	}
}

// executeArrived executes runs one after the other on one goroutine. There are as many such goroutines as the handlers need:
// before a goroutine executes a handler, it calls the next goroutine, so no run waits for another run's handler.
func (h *Host) executeArrived() {
	for l := h.nextToStart(true); l != nil; l = h.nextToStart(false) {
		h.execute(l)
	}
}

// discard drops a run whose lock expired before it could start (F022, F023). It is not reported: it belongs to the
// scheduler again.
func (h *Host) discard(a *hosted, run *perdure.Run) {
	h.recent.add(handleOf(run))
	h.logRun(slog.LevelWarn, "run discarded: lock expired before start", a, run)
}

// returnRun queues the report of a run that was never started. mu must be held.
func (h *Host) returnRun(l *live) {
	crashpoint.Here(crashpoint.AgentGiveBack)
	h.logRun(slog.LevelInfo, "run returned unstarted", l.agent, l.run)
	h.queueReport(l, protocol.Report{Job: l.run.Job, Step: l.run.Step, Run: l.run.Number, Outcome: perdure.OutcomeReturned})
}

// execute calls the handler, and records how it ended.
func (h *Host) execute(l *live) {
	var output json.RawMessage
	var err error
	began, returned := h.env.Now(), false
	defer func() {
		if !returned { // the handler panicked or ended its goroutine; other runs must not be affected (F126)
			output, err = nil, h.panicked(l, recover())
		}
		output, err = l.withoutSecrets(output, err)
		h.finish(l, output, err, h.env.Now().Sub(began))
	}()
	crashpoint.Here(crashpoint.AgentExecute)
	output, err = h.carryOut(l)
	crashpoint.Here(crashpoint.AgentExecuted)
	returned = true
}

func (h *Host) panicked(l *live, v any) error {
	if v == nil {
		v = "the handler ended its goroutine"
	}
	h.log.Error("panic in a handler", about(l.agent, l.run, "panic", l.redactor.Text(fmt.Sprint(v)), "stack", string(debug.Stack()))...)
	return perdure.Failed(fmt.Errorf("panic: %v", v), "panic")
}

// nextToStart returns the run that arrived first among those that may still start.
func (h *Host) nextToStart(came bool) *live {
	h.mu.Lock()
	defer h.unlock()
	if came {
		h.starting = false
	}
	for len(h.arrived) > 0 {
		l := h.arrived[0]
		h.arrived[0] = nil
		h.arrived = h.arrived[1:]
		if h.mayBegin(l) {
			h.ensureWorker()
			return l
		}
		if len(h.notes) > 0 { // other runs do not wait until the log has accepted these lines (F127)
			h.ensureWorker()
			h.unlock()
			h.mu.Lock()
		}
	}
	h.arrived = nil
	return nil
}

// mayBegin checks again, now that the goroutine runs, whether the run may start (F023). mu must be held.
func (h *Host) mayBegin(l *live) bool {
	switch {
	case l.lost:
	case l.lock.reached(h.now()):
		h.lose(l, errLockExpired)
	case h.claiming.Err() == nil || l.adopted:
		h.logRun(slog.LevelDebug, "run started", l.agent, l.run)
		return true
	}
	l.running = false
	if l.cancel(nil); l.lost {
		h.forget(l)
		return false
	}
	h.vacate(l.agent)
	h.returnRun(l)
	return false
}

// finish turns the handler's result into a report if the run still belongs to this host. Before the report is sent, this
// is checked again (F038).
func (h *Host) finish(l *live, output json.RawMessage, err error, duration time.Duration) {
	cause := context.Cause(l.ctx)
	l.cancel(nil)
	// Outside of the lock, because this walks the output.
	report := reportOf(l.run, output, err, cause)
	l.redactCode(&report)
	h.mu.Lock()
	defer h.unlock()
	mean(&l.agent.handlerTime, duration)
	if l.running = false; l.lost {
		h.forget(l)
		return
	}
	h.vacate(l.agent)
	h.queueReport(l, report)
	if h.log.Enabled(context.Background(), slog.LevelDebug) {
		attrs := []any{"outcome", report.Outcome.String(), "took", duration}
		if e := report.Error; e != nil {
			attrs = append(attrs, "code", e.Code, "error", e.Message)
		}
		h.logRun(slog.LevelDebug, "run ended", l.agent, l.run, attrs...)
	}
}

// reportOf is protocol.ReportOf, except for runs that the host itself has cut short.
func reportOf(run *perdure.Run, output json.RawMessage, err, cause error) protocol.Report {
	if err == nil {
		return protocol.ReportOf(run, output, nil)
	}
	r := protocol.ReportOf(run, nil, err)
	switch {
	case errors.Is(cause, errDraining):
		// This is not the run's fault, so it does not count as a failure. The effect is unknown, unless the handler
		// reports that there is none.
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

// lose ends a run that no longer belongs to this host. Its slot is free from here on, even if its handler ignores its
// context (F050). mu must be held.
func (h *Host) lose(l *live, cause error) {
	l.lost = true
	l.report = nil
	if !l.running {
		message := "report dropped"
		if l.inLine {
			message = "run given up before start"
			l.leaveLine()
		}
		h.logRun(slog.LevelWarn, message, l.agent, l.run, "reason", cause.Error())
		h.forget(l)
		return
	}
	h.logRun(slog.LevelWarn, "run given up", l.agent, l.run, "reason", cause.Error())
	h.vacate(l.agent)
	l.cancel(cause)
}

// cut ends the contexts of all handlers when the host's context ends.
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

// vacate frees a slot. mu must be held.
func (h *Host) vacate(a *hosted) {
	a.busy--
	h.advance(a)
	a.freed.ring()
	h.finished.ring()
}

// forget ends this host's part in a run. mu must be held.
func (h *Host) forget(l *live) {
	id := handleOf(l.run)
	delete(h.live, id)
	h.recent.add(id)
	l.agent.held--
	l.agent.freed.ring()
	h.finished.ring()
	if h.cfg.Ended != nil {
		h.ended = append(h.ended, l.run)
	}
}

// watchEvery is how often the wall clock is checked, which timers do not follow (F039).
const watchEvery = time.Second

// watchLoop loses runs whose lock has expired.
func (h *Host) watchLoop() {
	for {
		h.mu.Lock()
		h.nextCheck = h.expireRuns(h.now())
		wait := h.nextCheck.Sub(h.env.Now())
		h.unlock()
		if h.env.Wait(h.life, max(wait, 0), h.checkSooner) == env.Gone {
			return
		}
	}
}

// expireRuns loses the runs whose lock has expired, and returns when to check next. mu must be held.
func (h *Host) expireRuns(now instant) (next time.Time) {
	next = now.mono.Add(watchEvery)
	var expired []*live
	for _, l := range h.live {
		switch {
		case l.lost:
		case l.lock.reached(now):
			expired = append(expired, l)
		case l.lock.mono.Before(next):
			next = l.lock.mono
		}
	}
	slices.SortFunc(expired, func(a, b *live) int {
		return cmp.Or(a.lock.mono.Compare(b.lock.mono), a.run.Job.Compare(b.run.Job), cmp.Compare(a.run.Step, b.run.Step))
	})
	for _, l := range expired {
		h.lose(l, errLockExpired)
	}
	return next
}

// handlers returns the number of handlers that have not returned, without those of lost runs. mu must be held.
func (h *Host) handlers() (n int) {
	for _, a := range h.agents {
		n += a.busy
	}
	return n
}

// recentRuns is a bounded set of the runs that this host ended most recently.
type recentRuns struct{ now, before map[handle]struct{} }

const rememberAtLeast = 4096

func (r *recentRuns) has(id handle) bool {
	_, now := r.now[id]
	_, before := r.before[id]
	return now || before
}

func (r *recentRuns) add(id handle) {
	if len(r.now) >= rememberAtLeast {
		r.before, r.now = r.now, r.before
		clear(r.now)
	}
	if r.now == nil {
		r.now = map[handle]struct{}{}
	}
	r.now[id] = struct{}{}
}
