package agenthost

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/perdure/perdure/internal/crashpoint"
)

// Drain ends the host in an orderly way (L6): it claims no more; gives back what has not started;
// lets the running handlers finish until the grace is over; then ends their contexts, and reports
// what comes back with an error as returned, effect unknown, which counts no failure. The deadline of
// ctx bounds all of that, and the grace ends before it, by a quarter of the time but at most 3s, so
// that the rest fits. Without a deadline the grace has no end.
//
// A handler that does not heed its context is not reported on, because it may still act: its run
// expires (F050). The error says how many of those there were, and how many reports were not
// answered; nil if all is told. Run returns after that.
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
	if !h.await(grace, &h.left, idle) {
		crashpoint.Here(crashpoint.AgentCutShort)
		h.cutShort()
		h.await(wind, &h.left, idle)
	}
	h.await(ctx, &h.left, func() bool { return h.unreported() == 0 })
	crashpoint.Here(crashpoint.AgentDrained)

	h.mu.Lock()
	defer h.unlock()
	running, unreported := h.handlers(), h.unreported()
	if running+unreported == 0 {
		return nil
	}
	return fmt.Errorf("drain: %d handlers did not return, %d reports were not answered", running, unreported)
}

// portions divides the time until ctx ends: the grace, and the time in which handlers whose contexts
// have ended may return. What is left is for reports.
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

// cutShort ends the contexts of all that still runs.
func (h *Host) cutShort() {
	h.mu.Lock()
	defer h.unlock()
	for _, l := range h.live {
		if l.running && !l.lost {
			h.say(slog.LevelInfo, "run cut short by drain", l.agent, l.run)
			l.cancel(errDraining)
		}
	}
}

// unreported counts the runs whose report has not been answered. Called under mu.
func (h *Host) unreported() (n int) {
	for _, l := range h.live {
		if l.report != nil {
			n++
		}
	}
	return n
}
