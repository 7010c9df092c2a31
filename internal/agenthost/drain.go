package agenthost

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/perdure/perdure/internal/crashpoint"
)

// Drain ends the host in an orderly way (L6). It stops claiming, returns runs that have not started, and lets running
// handlers finish during a grace period. Then it ends their contexts, and reports those that return an error as
// returned, with an unknown effect, which does not count as a failure. The deadline of ctx bounds all of this. The grace
// period ends before it, by a quarter of the time but at most 3s. Without a deadline, the grace period has no end.
//
// A handler that ignores its context is not reported, because it may still act: its run expires (F050). The error
// contains the number of such handlers, and of reports without an answer; it is nil if there are none. Run returns after
// that.
func (h *Host) Drain(ctx context.Context) error {
	crashpoint.Here(crashpoint.AgentDrain)
	h.stop()
	h.mu.Lock()
	for _, a := range h.agents {
		h.clearLine(a)
	}
	h.unlock()
	defer h.end(errDrained)
	if !h.started.Load() {
		return nil
	}
	grace, wind, cancel := h.portions(ctx)
	defer cancel()
	idle := func() bool { return h.claimers == 0 && h.handlers() == 0 }
	if !h.await(grace, &h.finished, idle) {
		crashpoint.Here(crashpoint.AgentCutShort)
		h.CutShort()
		h.await(wind, &h.finished, idle)
	}
	h.await(ctx, &h.finished, func() bool { return h.unreported() == 0 })
	crashpoint.Here(crashpoint.AgentDrained)

	h.mu.Lock()
	defer h.unlock()
	running, unreported := h.handlers(), h.unreported()
	if running+unreported == 0 {
		return nil
	}
	return fmt.Errorf("drain: %d handlers did not return, %d reports were not answered", running, unreported)
}

// portions divides the time until ctx ends into the grace period and the time for handlers to return after their
// contexts have ended. The rest is for reports.
func (h *Host) portions(ctx context.Context) (grace, wind context.Context, cancel func()) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, ctx, func() {}
	}
	tail := min(deadline.Sub(h.env.Now())/4, 3*time.Second)
	grace, cancelGrace := h.env.WithDeadline(ctx, deadline.Add(-tail))
	wind, cancelWind := h.env.WithDeadline(ctx, deadline.Add(-tail/3))
	return grace, wind, func() { cancelGrace(); cancelWind() }
}

// CutShort ends the contexts of all running handlers, each once. Handlers that return an error then are reported as returned,
// with an unknown effect.
func (h *Host) CutShort() {
	h.mu.Lock()
	defer h.unlock()
	for _, l := range h.live {
		if l.running && !l.lost && l.ctx.Err() == nil {
			h.logRun(slog.LevelInfo, "run cut short by drain", l.agent, l.run)
			l.cancel(errDraining)
		}
	}
}

// unreported returns the number of runs whose reports have not been answered. mu must be held.
func (h *Host) unreported() (n int) {
	for _, l := range h.live {
		if l.report != nil {
			n++
		}
	}
	return n
}
