// Package timetable starts the jobs of schedules at their times.
//
// The timetable runs on the node that leads the role supervisor. A round finds the schedules that are due, and has the
// scheduler decide them: each in one transaction, which submits its jobs and writes the next time of its row. So a node that
// dies leaves a schedule between two decisions, and the next leader goes on from there. Nothing is kept in memory but what
// the Book has read, which is a copy of the rows.
//
// Between two rounds the timetable waits until the next schedule is due, a schedule is changed, or a job of a schedule
// settles. It never waits longer than DefaultPeriod, because these may happen on other nodes.
package timetable

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// Store finds the schedules that are due.
type Store interface {
	Now(context.Context) (time.Time, error)
	DueSchedules(ctx context.Context, now time.Time, max int) (due []*kernel.Schedule, next time.Time, err error)
	ForgetFirings(ctx context.Context, before time.Time, max int) (int, error)
}

// Scheduler decides schedules.
type Scheduler interface {
	FireSchedules(ctx context.Context, due []*kernel.Schedule, room int, book kernel.ScheduleBook) (kernel.Fired, error)
}

// Config configures a timetable.
type Config struct {
	Store     Store
	Scheduler Scheduler
	Book      kernel.ScheduleBook
	Period    time.Duration                      // the longest time between two rounds; 0: DefaultPeriod
	Fired     func(jobs int, late time.Duration) // called after each round that has started jobs; nil: not called
	Deposed   func(kernel.Leadership)            // called when the store refuses a write because another node leads; nil: not called
	Log       *slog.Logger
	Env       env.Env // nil: env.Real
}

const (
	// DefaultPeriod is the longest time between two rounds.
	DefaultPeriod = 3 * time.Second
	// pageSize is how many schedules one round decides.
	pageSize = 100

	retry        = time.Second // the pause after an error, and while there is no room for jobs
	forgetEvery  = time.Hour
	forgetAtOnce = 1000
)

// Timetable starts the jobs of schedules.
type Timetable struct {
	cfg     Config
	wakeups chan struct{}

	// Only the goroutine of Lead uses these:
	second   time.Time // the beginning of the present second, by Env
	fired    int       // jobs that were started in it
	forgotAt time.Time // when old lines of histories were last deleted; zero: not yet
}

// New returns a timetable.
func New(cfg Config) *Timetable {
	if cfg.Period <= 0 {
		cfg.Period = DefaultPeriod
	}
	if cfg.Fired == nil {
		cfg.Fired = func(int, time.Duration) {}
	}
	if cfg.Deposed == nil {
		cfg.Deposed = func(kernel.Leadership) {}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Env == nil {
		cfg.Env = env.Real{}
	}
	return &Timetable{cfg: cfg, wakeups: make(chan struct{}, 1)}
}

// Wake begins a round soon. It never blocks.
func (t *Timetable) Wake() {
	select {
	case t.wakeups <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// Lead makes rounds until ctx ends. ctx carries the leadership of the role supervisor.
func (t *Timetable) Lead(ctx context.Context) {
	failed := false
	for ctx.Err() == nil {
		pause, err := t.Round(ctx)
		if m, ok := kernel.LeadershipOf(ctx); ok && errors.Is(err, kernel.ErrDeposed) {
			t.cfg.Deposed(m)
			t.cfg.Env.Wait(ctx, retry, nil) // the election ends ctx soon
			continue
		}
		switch {
		case err != nil && !failed && ctx.Err() == nil:
			t.cfg.Log.Warn("schedules failed; retrying", "error", err)
		case err == nil && failed:
			t.cfg.Log.Info("schedules work again")
		}
		if failed = err != nil; failed {
			t.cfg.Env.Wait(ctx, retry, nil)
			continue
		}
		if pause > 0 {
			t.cfg.Env.Wait(ctx, pause, t.wakeups)
		}
	}
}

// Round decides the schedules that are due, and returns the time until the next round.
func (t *Timetable) Round(ctx context.Context) (pause time.Duration, err error) {
	now, err := t.cfg.Store.Now(ctx)
	if err != nil {
		return 0, err
	}
	if err := t.forget(ctx, now); err != nil {
		return 0, err
	}
	due, next, err := t.cfg.Store.DueSchedules(ctx, now, pageSize)
	if err != nil {
		return 0, err
	}
	if len(due) == 0 {
		if next.IsZero() {
			return t.cfg.Period, nil
		}
		return min(next.Sub(now), t.cfg.Period), nil
	}
	room, until := t.room()
	did, err := t.cfg.Scheduler.FireSchedules(ctx, due, room, t.cfg.Book)
	t.fired += did.Jobs
	if did.Jobs > 0 {
		t.cfg.Fired(did.Jobs, did.Late)
	}
	switch {
	case err != nil:
		return 0, err
	case room == 0:
		return until, nil
	case did.Left && did.Jobs == 0:
		return retry, nil
	}
	return 0, nil
}

// room returns how many jobs may still be started in this second, and how long it lasts.
func (t *Timetable) room() (int, time.Duration) {
	at := t.cfg.Env.Now()
	if left := t.second.Add(time.Second).Sub(at); !t.second.IsZero() && left > 0 {
		return operate.MaxFiringsASecond - t.fired, left
	}
	t.second, t.fired = at, 0
	return operate.MaxFiringsASecond, time.Second
}

// forget deletes old lines of histories, at most once in forgetEvery, a bounded number at a time.
func (t *Timetable) forget(ctx context.Context, now time.Time) error {
	at := t.cfg.Env.Now()
	if !t.forgotAt.IsZero() && at.Sub(t.forgotAt) < forgetEvery {
		return nil
	}
	n, err := t.cfg.Store.ForgetFirings(ctx, now.Add(-operate.FiringKept), forgetAtOnce)
	if err == nil && n < forgetAtOnce {
		t.forgotAt = at
	}
	return err
}
