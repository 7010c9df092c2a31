package watch

import (
	"context"
	"log/slog"
	"time"

	"github.com/perdure/perdure/internal/env"
)

const (
	// DefaultOldTransaction is the age at which a transaction that blocks vacuum is logged.
	DefaultOldTransaction = 5 * time.Minute

	horizonEvery   = 30 * time.Second
	horizonTimeout = 5 * time.Second
)

// Horizon logs a transaction in PostgreSQL that has been open for long: until it ends, vacuum cannot remove row versions
// that were overwritten or deleted since it began, and all statements become slower (F103). One node of the grid runs it.
type Horizon struct {
	Oldest func(context.Context) (age time.Duration, session string, err error)
	Bound  time.Duration       // transactions of this age are logged; 0: DefaultOldTransaction
	Metric func(time.Duration) // called with the age
	Log    *slog.Logger
	Env    env.Env
}

// Run measures the oldest transaction every 30 seconds until ctx ends.
func (h *Horizon) Run(ctx context.Context) {
	bound := h.Bound
	if bound <= 0 {
		bound = DefaultOldTransaction
	}
	defer h.Metric(0)
	logged := false
	for ctx.Err() == nil {
		if age, session, err := h.oldest(ctx); err == nil {
			h.Metric(age)
			switch old := age >= bound; {
			case old && !logged:
				h.Log.Warn("long-running transaction blocks vacuum", "age", age.Round(time.Second).String(), "session", session,
					"action", "end it, or all statements become slower")
				logged = true
			case logged && !old:
				h.Log.Info("long-running transaction has ended")
				logged = false
			}
		}
		env.Sleep(h.Env, ctx, min(horizonEvery, bound))
	}
}

func (h *Horizon) oldest(ctx context.Context) (age time.Duration, session string, err error) {
	ctx, cancel := env.WithTimeout(h.Env, ctx, horizonTimeout)
	defer cancel()
	return h.Oldest(ctx)
}
