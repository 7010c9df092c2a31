package agenthost

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/protocol"
)

// heartbeatLoop sends heartbeats for all live runs, each time a third of the promised interval has passed. So one
// heartbeat may be lost, and the next one still arrives in time. Runs that have just arrived are left out, because most
// runs of a host may end within milliseconds.
func (h *Host) heartbeatLoop() {
	interval := h.cfg.Heartbeat / 3
	next := h.env.Now().Add(interval)
	for {
		switch h.env.Wait(h.life, max(next.Sub(h.env.Now()), 0), h.heartbeatSooner) {
		case env.Gone:
			return
		case env.Got:
			h.sendHeartbeats() // the first complete one gets the time from which on the next one counts
			h.sendHeartbeats()
			continue
		case env.Late:
		}
		h.sendHeartbeats()
		if next = next.Add(interval); next.Before(h.env.Now()) {
			next = h.env.Now() // a call that took long is followed by the next one at once
		}
	}
}

// freshPart: a run sends no heartbeat yet if it arrived less than 1/freshPart of the promised interval ago, and still
// has all of its lock but such a part. The next heartbeat follows when more than half of the lock is left, so there is
// time for another one if it is not answered.
const freshPart = 10

// isFresh reports whether a run sends no heartbeat yet. mu must be held.
func (h *Host) isFresh(l *live, now time.Time) bool {
	part := h.cfg.Heartbeat / freshPart
	return l.progress == nil && now.Sub(l.since) < part && !l.lock.mono.Before(now.Add(h.cfg.Heartbeat-part))
}

func (h *Host) sendHeartbeats() {
	h.mu.Lock()
	now := h.env.Now()
	_, complete := h.completeRuns(now)
	all := make([]*live, 0, len(h.live))
	for _, l := range h.live {
		if !l.lost && !h.isFresh(l, now) {
			all = append(all, l)
		}
	}
	h.mu.Unlock()
	if complete && h.heartbeat(nil, true) {
		return
	}
	var calls []func()
	for batch := range slices.Chunk(all, perdure.MaxBatch) {
		calls = append(calls, func() { h.heartbeat(batch, false) })
	}
	env.Start(h.env, calls...)()
}

// heartbeat makes one call, for a batch of runs or, if complete is true, for all of them. It gives up early enough for another
// call before the locks expire. It returns false if the exchange does not take complete heartbeats.
func (h *Host) heartbeat(batch []*live, complete bool) bool {
	h.mu.Lock()
	var list *protocol.CompleteHeartbeat
	if complete {
		if batch, complete = h.completeRuns(h.env.Now()); !complete { // no longer
			h.mu.Unlock()
			return false
		}
		list = h.listOf()
	}
	heartbeats := make([]protocol.Heartbeat, len(batch))
	sending := make([]*json.RawMessage, len(batch))
	for i, l := range batch {
		heartbeats[i] = protocol.Heartbeat{Job: l.run.Job, Step: l.run.Step, Run: l.run.Number}
		if sending[i] = l.progress; l.progress != nil {
			heartbeats[i].Progress = *l.progress
		}
	}
	h.mu.Unlock()
	ctx, cancel := env.WithTimeout(h.env, h.life, h.cfg.Heartbeat/2)
	defer cancel()
	sent := h.now()
	crashpoint.Here(crashpoint.AgentHeartbeat)
	results, asOf, err := h.callHeartbeat(ctx, heartbeats, list)
	crashpoint.Here(crashpoint.AgentHeartbeatAnswered)
	if err != nil {
		if h.life.Err() == nil {
			h.log.Warn("heartbeat failed", "runs", len(heartbeats), "err", err)
		}
		if list != nil && refusesCall(err) {
			h.endComplete()
			return false
		}
		return true
	}
	var extended []*live
	defer func() { h.notifyExtended(extended) }()
	h.mu.Lock()
	defer h.unlock()
	if list != nil {
		h.complete.answered(list, asOf, h.env.Now().Add(h.cfg.Heartbeat))
	}
	for i, l := range batch {
		if l.progress == sending[i] {
			l.progress = nil
		}
	}
	for i := range results {
		r := &results[i]
		if l := h.live[handle{r.Job, r.Step, r.Run}]; l != nil && !l.lost {
			h.applyHeartbeatResult(l, r, sent)
			extended = append(extended, l)
		}
	}
	return true
}

func (h *Host) callHeartbeat(ctx context.Context, beats []protocol.Heartbeat, list *protocol.CompleteHeartbeat) ([]protocol.HeartbeatResult, time.Time, error) {
	if list != nil {
		list.Runs = beats
		return h.cfg.Exchange.(protocol.Completer).HeartbeatAll(ctx, *list)
	}
	results, err := h.cfg.Exchange.Heartbeat(ctx, h.cfg.Holder, beats)
	return results, time.Time{}, err
}

// applyHeartbeatResult acts on the answer to a heartbeat. mu must be held. A lost run is never revived (F042), and no heartbeat extends
// a lock beyond the deadline (F043).
func (h *Host) applyHeartbeatResult(l *live, r *protocol.HeartbeatResult, sent instant) {
	if r.Stop && invalid(r.Reason) {
		if l.report == nil { // otherwise the answer to its report decides
			h.lose(l, errRunLost)
		}
		return
	}
	t := termOf(l.run, sent, r.RemainingMs, r.LockedUntil)
	if !r.LockedUntil.IsZero() {
		l.deadline = later(l.deadline, t.deadline) // both are too early: the later one is closer
	}
	l.lock = earlier(later(l.lock, t.lock), l.deadline)
	switch {
	case r.Stop && l.inLine: // the run need not start
		l.leaveLine()
		h.returnRun(l)
	case r.Stop && l.report == nil && l.ctx.Err() == nil:
		// The run still belongs to this host. The handler's outcome is reported, so that the step can change its
		// direction at once.
		h.logRun(slog.LevelInfo, "run asked to stop", l.agent, l.run, "reason", r.Reason)
		l.cancel(errStopped)
	}
}

// invalid reports whether a reason means that the run no longer belongs to this host. Otherwise it does, but its
// direction is no longer desired.
func invalid(reason string) bool {
	switch protocol.RefusalReason(reason) {
	case protocol.RefusedLate, protocol.RefusedStale, protocol.RefusedUnknown, protocol.RefusedForbidden,
		protocol.RefusedInvalid, protocol.RefusedConflict:
		return true
	}
	return false
}

// confirm sends a heartbeat for runs that have just arrived and whose terms are uncertain (open), to learn their terms.
// Without an answer, they keep the terms that they have.
func (h *Host) confirm(a *hosted, runs []perdure.Run, terms []term, open []int) {
	ctx, cancel := env.WithTimeout(h.env, h.life, claimMargin)
	defer cancel()
	heartbeats := make([]protocol.Heartbeat, len(open))
	at := make(map[handle]int, len(open))
	for i, j := range open {
		heartbeats[i] = protocol.Heartbeat{Job: runs[j].Job, Step: runs[j].Step, Run: runs[j].Number}
		at[handleOf(&runs[j])] = j
	}
	sent := h.now()
	results, err := h.cfg.Exchange.Heartbeat(ctx, h.cfg.Holder, heartbeats)
	if err != nil {
		h.log.Debug("heartbeat before start failed", "agent", a.Name, "runs", len(heartbeats), "err", err)
		return
	}
	for i := range results {
		r := &results[i]
		j, ok := at[handle{r.Job, r.Step, r.Run}]
		switch {
		case !ok:
		case r.Stop && invalid(r.Reason):
			terms[j].over = true
			h.log.Warn("run discarded: no longer valid", about(a, &runs[j], "reason", r.Reason)...)
		default:
			terms[j] = termOf(&runs[j], sent, r.RemainingMs, r.LockedUntil)
			terms[j].unwanted = r.Stop
		}
	}
}

// keepProgress keeps a handler's progress for the next heartbeat.
func (h *Host) keepProgress(l *live, p json.RawMessage) {
	h.mu.Lock()
	defer h.unlock()
	l.progress = &p
}
