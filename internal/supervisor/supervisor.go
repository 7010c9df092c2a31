// Package supervisor is the pattern's Supervisor: it looks for what nobody reports on (runs whose lock
// has passed, steps whose time has come, jobs past their ultimatum) and asks the scheduler to act. It
// decides nothing and executes nothing, and any number of them at once do no harm (I15).
package supervisor

import (
	"context"
	"log/slog"
	"time"
)

// Scheduler is what it asks. Each sweep handles at most max rows and says how many it did.
type Scheduler interface {
	SweepExpired(ctx context.Context, max int) (int, error)
	SweepDue(ctx context.Context, max int) (int, error)
	SweepOverdue(ctx context.Context, max int) (int, error)
	// Sooner gives the time at which a step, just made to wait, becomes due.
	Sooner() <-chan time.Time
}

// Store tells when there will be something to do.
type Store interface {
	Now(context.Context) (time.Time, error)
	NextLook(context.Context) (at time.Time, ok bool, err error)
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
	for ctx.Err() == nil {
		pause := s.cfg.Period
		if _, err := s.Sweep(ctx); err != nil {
			s.warn(ctx, err)
		} else if next, err := s.nextLook(ctx); err != nil {
			s.warn(ctx, err)
		} else {
			pause = min(pause, max(next, 0))
		}
		s.sleep(ctx, pause)
	}
}

func (s *Supervisor) warn(ctx context.Context, err error) {
	if ctx.Err() == nil {
		s.cfg.Log.Warn("the supervisor could not look", "error", err)
	}
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

func (s *Supervisor) nextLook(ctx context.Context) (time.Duration, error) {
	at, ok, err := s.cfg.Store.NextLook(ctx)
	if err != nil || !ok {
		return s.cfg.Period, err
	}
	now, err := s.cfg.Store.Now(ctx)
	return at.Sub(now), err
}

// Sweep is one round: all that is there to be done now.
func (s *Supervisor) Sweep(ctx context.Context) (Swept, error) {
	var did Swept
	if next, err := s.nextLook(ctx); err != nil || next > 0 {
		return did, err
	}
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
