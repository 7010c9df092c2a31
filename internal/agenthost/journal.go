package agenthost

import (
	"context"
	"log/slog"

	"github.com/perdure/perdure"
)

// note is a log line about a run.
type note struct {
	level   slog.Level
	message string
	about   []any
}

// logRun keeps a log line about a run, which unlock writes. mu must be held.
func (h *Host) logRun(level slog.Level, message string, a *hosted, r *perdure.Run, more ...any) {
	if h.log.Enabled(context.Background(), level) {
		h.notes = append(h.notes, note{level, message, about(a, r, more...)})
	}
}

// unlock releases mu, and writes the log lines that were kept under it. Then it makes the calls of Config.Ended.
func (h *Host) unlock() {
	notes, ended := h.notes, h.ended
	h.notes, h.ended = nil, nil
	h.mu.Unlock()
	for _, run := range ended {
		h.cfg.Ended(run)
	}
	for _, n := range notes {
		h.log.Log(context.Background(), n.level, n.message, n.about...)
	}
}

func about(a *hosted, r *perdure.Run, more ...any) []any {
	return append([]any{"agent", a.Name, "job", r.Job.String(), "step", r.Step,
		"run", r.Number, "direction", r.Direction.String()}, more...)
}
