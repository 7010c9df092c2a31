// Package supervisor is the pattern's Supervisor: it looks for what nobody reports on (runs whose lock
// has passed, steps whose time has come, jobs past their ultimatum) and asks the scheduler to act. It
// decides nothing and executes nothing, and any number of them at once do no harm (I15).
package supervisor

import (
	"context"
	"log/slog"
	"time"

	"perdure"
)

// Scheduler is what it asks. Each sweep handles at most max rows and says how many it did.
type Scheduler interface {
	SweepExpired(ctx context.Context, max int) (int, error)
	SweepDue(ctx context.Context, max int) (int, error)
	SweepOverdue(ctx context.Context, max int) (int, error)
	// Sooner gives the time at which a step, just made to wait, becomes due.
	Sooner() <-chan time.Time
	// Waiting are the agents for which claims wait; Wake says that there is work for these.
	Waiting() []string
	Wake(agents []string)
}

// Store tells what there is to be done, and when.
type Store interface {
	Look(ctx context.Context, agents []string) (perdure.Look, error)
}

// Config is what a supervisor is made of.
type Config struct {
	Scheduler Scheduler
	Store     Store
	Period    time.Duration // between looks at the latest; 0: DefaultPeriod
	Batch     int           // rows in one transaction; 0: DefaultBatch
	Log       *slog.Logger
}

const (
	DefaultPeriod = time.Second
	DefaultBatch  = 500
	// MaxRounds bounds the batches of one sweep: 50,000 runs that expire together take turns with the
	// reports of others (F079).
	MaxRounds = 1000
)

// Supervisor sweeps.
type Supervisor struct{ cfg Config }

// New makes a supervisor.
func New(cfg Config) *Supervisor {
	if cfg.Period <= 0 {
		cfg.Period = DefaultPeriod
	}
	if cfg.Batch <= 0 {
		cfg.Batch = DefaultBatch
	}
	return &Supervisor{cfg}
}

// Swept is what one round did.
type Swept struct {
	Expired int `json:"expired"` // runs ended
	Due     int `json:"due"`     // steps moved on
	Overdue int `json:"overdue"` // jobs past their ultimatum acted upon
}

// Run sweeps until ctx ends: at every period, and whenever something becomes due before that.
func (s *Supervisor) Run(ctx context.Context) {
	failed := false
	for ctx.Err() == nil {
		pause, err := s.round(ctx)
		if err != nil && !failed && ctx.Err() == nil {
			s.cfg.Log.Warn("the supervisor cannot look, and tries again", "error", err)
		}
		if err == nil && failed {
			s.cfg.Log.Info("the supervisor can look again")
		}
		failed = err != nil
		s.sleep(ctx, pause)
	}
}

// round looks once and does what is there to be done. It says how long to look away. What is due and
// cannot be had (locked by another supervisor, left alone as broken) does not keep it busy.
func (s *Supervisor) round(ctx context.Context) (pause time.Duration, err error) {
	look, err := s.cfg.Store.Look(ctx, s.cfg.Scheduler.Waiting())
	if err != nil {
		return s.cfg.Period, err
	}
	// A claim that waits although there is work has missed its wake-up: the news came from another node
	// and was lost (F068).
	s.cfg.Scheduler.Wake(look.Ready)
	if look.Next.IsZero() && len(look.Ready) == 0 {
		return s.cfg.Period * 3 / 2, nil // nothing is out and nothing waits: what is let out from now on has its time before it
	}
	if in := look.In(); in > 0 {
		return min(in, s.cfg.Period), nil
	}
	did, err := s.sweepAll(ctx)
	if err != nil || did == (Swept{}) {
		return s.cfg.Period, err
	}
	return 0, nil
}

// sleep waits for d, or less where something is made due earlier.
func (s *Supervisor) sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	until := time.Now().Add(d)
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case at := <-s.cfg.Scheduler.Sooner():
			if at.Before(until) {
				until = at
				timer.Reset(time.Until(at))
			}
		}
	}
}

// Sweep is one round on demand: all that is there to be done now.
func (s *Supervisor) Sweep(ctx context.Context) (Swept, error) {
	look, err := s.cfg.Store.Look(ctx, nil)
	if err != nil || look.In() > 0 {
		return Swept{}, err
	}
	return s.sweepAll(ctx)
}

func (s *Supervisor) sweepAll(ctx context.Context) (did Swept, err error) {
	for _, part := range []struct {
		did   *int
		sweep func(context.Context, int) (int, error)
	}{
		{&did.Expired, s.cfg.Scheduler.SweepExpired},
		{&did.Due, s.cfg.Scheduler.SweepDue},
		{&did.Overdue, s.cfg.Scheduler.SweepOverdue},
	} {
		for range MaxRounds {
			n, err := part.sweep(ctx, s.cfg.Batch)
			*part.did += n
			if err != nil {
				return did, err
			}
			if n < s.cfg.Batch {
				break
			}
		}
	}
	return did, nil
}
