package watch

import (
	"context"
	"log/slog"
	"time"

	"github.com/perdure/perdure/internal/env"
)

const (
	// DefaultOldTransaction is the age from which on a transaction that holds back vacuum is logged.
	DefaultOldTransaction = 5 * time.Minute

	horizonEvery   = 30 * time.Second
	horizonTimeout = 5 * time.Second
)

// Horizon logs a transaction in PostgreSQL that has been open for long: until it ends, vacuum cannot remove row versions
// that were overwritten or deleted since it began, and all statements become slower (F103). One node of the grid runs it.
type Horizon struct {
	Oldest func(context.Context) (age time.Duration, who string, err error)
	Bound  time.Duration       // the age from which on it is logged; 0: DefaultOldTransaction
	Metric func(time.Duration) // takes the age
	Log    *slog.Logger
	Env    env.Env
}

// Run looks at the oldest transaction every 30 seconds until ctx ends.
func (h *Horizon) Run(ctx context.Context) {
	bound := h.Bound
	if bound <= 0 {
		bound = DefaultOldTransaction
	}
	defer h.Metric(0)
	logged := false
	for ctx.Err() == nil {
		if age, who, err := h.oldest(ctx); err == nil {
			h.Metric(age)
			switch old := age >= bound; {
			case old && !logged:
				h.Log.Warn("long-running transaction blocks vacuum", "age", age.Round(time.Second).String(), "who", who,
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

func (h *Horizon) oldest(ctx context.Context) (age time.Duration, who string, err error) {
	ctx, cancel := env.WithTimeout(h.Env, ctx, horizonTimeout)
	defer cancel()
	return h.Oldest(ctx)
}
