// Package supervisor is the supervisor of the scheduler-agent-supervisor pattern. It finds work that becomes due without
// a report: runs whose lock has expired, steps whose waiting time is over, and jobs past their deadline. It decides
// nothing and executes nothing. It calls the scheduler, which decides and commits.
//
// A round consists of a due scan, which only reads, and, if something is due, of a sweep: the scheduler processes
// expired runs, due steps and overdue jobs, in batches. The due scan also finds agents whose claims wait although steps
// are ready, and wakes them: their wake-up was lost.
//
// Each node has a supervisor. The one that leads the role scans once in each period, and its sweeps carry its leadership
// (kernel.Leadership). The others scan when a step of their own node becomes due, and otherwise every second period.
// Several supervisors at once do no harm, and nothing waits for a leader (I15).
package supervisor

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
)

// Scheduler processes due work. Each Sweep method processes at most max rows and returns their number.
type Scheduler interface {
	SweepExpired(ctx context.Context, max int) (int, error)
	SweepDue(ctx context.Context, max int) (int, error)
	SweepOverdue(ctx context.Context, max int) (int, error)
	SweepLanes(ctx context.Context) error
	SweepBuckets(ctx context.Context) error
	SweepSignals(ctx context.Context) error
	SweepUnique(ctx context.Context) error
	SweepShares(ctx context.Context) error
	SweepHosts(ctx context.Context) error
	// WaitingAgents returns the agents for which claims wait. Wake wakes the waiting claims of these agents.
	WaitingAgents() []string
	Wake(agents []string)
}

// Store returns what is due, and when the next is.
type Store interface {
	Poll(ctx context.Context, agents []string) (kernel.PollAnswer, error)
}

// Config configures a supervisor.
type Config struct {
	Scheduler Scheduler
	Store     Store
	Period    time.Duration            // the longest time between two due scans of the leader; 0: DefaultPeriod
	Batch     int                      // rows in the first transaction of a sweep; up to mostBatches times as many in later ones; 0: DefaultBatch
	Deposed   func(kernel.Leadership)  // called when the store refuses a write of the leader because another node leads; nil: not called
	Scanned   func(late time.Duration) // called after each round with the time for which the oldest due work had been due, but not after a sweep that may only have corrected when runs expire; nil: not called
	Swept     func(Swept)              // called with the counts of each sweep; nil: not called
	Log       *slog.Logger
	Env       env.Env // nil: env.Real
}

const (
	DefaultPeriod = time.Second
	DefaultBatch  = 500
	// MaxRounds bounds the batches of one sweep. The batches of 50,000 runs that expire together alternate with the
	// transactions of reports (F079).
	MaxRounds = 1000
	// If a batch is full, the next batch is twice as large, up to mostBatches times the first. The backlog shrinks
	// sooner, and reports still get their turn between the batches (F083).
	mostBatches = 4

	// idlePeriods is the number of periods between two due scans of a supervisor that does not lead. It is the same for
	// the leader while nothing is in flight and nothing waits: a run that is dispatched later expires later.
	idlePeriods = 2
)

// Supervisor finds due work and has it processed.
type Supervisor struct {
	cfg       Config
	lead      atomic.Pointer[context.Context] // the context of the leadership; nil: this supervisor does not lead
	newLeader atomic.Bool                     // this supervisor has become the leader and has not scanned since
	wakeups   chan struct{}                   // receives when this supervisor becomes the leader, or something is due sooner

	bucketsAt    time.Time // when full buckets are to be deleted again; only Round uses it
	signalsAt    time.Time // when signals that are over are to be deleted again; only Round uses it
	lanesAt      time.Time // when closed lanes are to be checked again; only Round uses it
	uniqueAt     time.Time // when unique jobs whose time has passed are to be searched again; only Round uses it
	sharesAt     time.Time // when shares that have nothing ready are to be searched again; only Round uses it
	hostsAt      time.Time // when silent hosts are to be removed again; only Round uses it
	fruitlessDue time.Time // what was due in the latest round whose sweep found nothing; only Round uses it

	mu        sync.Mutex
	dueSooner time.Time // the earliest time passed to Sooner since the latest due scan; zero: none
}

// New returns a supervisor.
func New(cfg Config) *Supervisor {
	if cfg.Period <= 0 {
		cfg.Period = DefaultPeriod
	}
	if cfg.Batch <= 0 {
		cfg.Batch = DefaultBatch
	}
	if cfg.Deposed == nil {
		cfg.Deposed = func(kernel.Leadership) {}
	}
	if cfg.Scanned == nil {
		cfg.Scanned = func(time.Duration) {}
	}
	if cfg.Swept == nil {
		cfg.Swept = func(Swept) {}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Env == nil {
		cfg.Env = env.Real{}
	}
	return &Supervisor{cfg: cfg, wakeups: make(chan struct{}, 1)}
}

// Lead makes this supervisor the leader until ctx ends, and then returns. As the leader, it calls the scheduler with
// ctx, which carries the leadership.
func (s *Supervisor) Lead(ctx context.Context) {
	s.lead.Store(&ctx)
	s.newLeader.Store(true)
	s.wakeUp()
	s.cfg.Env.Wait(ctx, env.Forever, nil)
	s.lead.Store(nil)
}

// Sooner notes that a step, which has just begun to wait, becomes due at a time of this process's clock.
func (s *Supervisor) Sooner(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dueSooner.IsZero() || at.Before(s.dueSooner) {
		s.dueSooner = at
		s.wakeUp()
	}
}

func (s *Supervisor) wakeUp() {
	select {
	case s.wakeups <- struct{}{}:
	default:
	}
}

// leadership returns the context for the calls of a round, and the number of periods until the next round.
func (s *Supervisor) leadership(ctx context.Context) (context.Context, time.Duration) {
	if lead := s.lead.Load(); lead != nil && (*lead).Err() == nil {
		return *lead, 1
	}
	return ctx, idlePeriods
}

// Swept counts what one sweep has processed.
type Swept struct {
	Expired int `json:"expired"` // expired runs that were ended
	Due     int `json:"due"`     // due steps that were moved on
	Overdue int `json:"overdue"` // jobs past their deadline
}

// Run makes rounds until ctx ends: once in each period, and when something becomes due earlier.
func (s *Supervisor) Run(ctx context.Context) {
	failed := false
	for ctx.Err() == nil {
		pause, err := s.Round(ctx)
		if err != nil && !failed && ctx.Err() == nil {
			s.cfg.Log.Warn("due scan failed; retrying", "error", err)
		}
		if err == nil && failed {
			s.cfg.Log.Info("due scan works again")
		}
		failed = err != nil
		s.sleep(ctx, pause)
	}
}

// Round scans once, and processes what is due. It returns the time until the next round.
//
// A sweep that finds nothing may have corrected when runs expire, so another round follows at once. If the same work is
// due again, and the sweep finds nothing again, the work is locked by another transaction or quarantined. Then the next
// round follows a period later.
func (s *Supervisor) Round(ctx context.Context) (pause time.Duration, err error) {
	crashpoint.Here(crashpoint.SupervisorScan)
	ctx, periods := s.leadership(ctx)
	defer func() {
		if ctx.Err() != nil { // the leadership ended meanwhile: scan again as a follower
			pause, err = 0, nil
		}
	}()
	pause = periods * s.cfg.Period
	poll, err := s.cfg.Store.Poll(ctx, s.cfg.Scheduler.WaitingAgents())
	if err != nil {
		return s.cfg.Period, err
	}
	// A claim that waits although steps are ready has missed its wake-up: another node sent it, and it was lost (F068).
	crashpoint.Here(crashpoint.SupervisorScanned)
	s.cfg.Scheduler.Wake(poll.Ready)
	if poll.LanesClosed {
		if err := s.openLanes(ctx); err != nil {
			return s.cfg.Period, err
		}
	}
	if poll.Buckets {
		if err := s.whileLeading(ctx, &s.bucketsAt, bucketsEvery, s.cfg.Scheduler.SweepBuckets); err != nil {
			return s.cfg.Period, err
		}
	}
	if err := s.whileLeading(ctx, &s.signalsAt, signalsEvery, s.cfg.Scheduler.SweepSignals); err != nil {
		return s.cfg.Period, err
	}
	if err := s.removeHosts(ctx); err != nil {
		return s.cfg.Period, err
	}
	if err := s.whileLeading(ctx, &s.uniqueAt, uniqueEvery, s.cfg.Scheduler.SweepUnique); err != nil {
		return s.cfg.Period, err
	}
	if err := s.whileLeading(ctx, &s.sharesAt, sharesEvery, s.cfg.Scheduler.SweepShares); err != nil {
		return s.cfg.Period, err
	}
	if in := poll.UntilNext(); in > 0 {
		s.cfg.Scanned(0)
		if poll.Next.IsZero() && len(poll.Ready) == 0 && !poll.LanesClosed {
			return idlePeriods * s.cfg.Period, nil
		}
		return min(in, pause), nil
	}
	swept, err := s.sweepAll(ctx)
	if m, ok := kernel.LeadershipOf(ctx); ok && errors.Is(err, kernel.ErrDeposed) {
		s.cfg.Deposed(m)
		return pause, nil
	}
	if err == nil && swept == (Swept{}) && !poll.Next.Equal(s.fruitlessDue) {
		s.fruitlessDue = poll.Next
		return 0, nil
	}
	s.cfg.Scanned(-poll.UntilNext())
	if err != nil || swept == (Swept{}) {
		return s.cfg.Period, err
	}
	return 0, nil
}

// sleep waits for d, or less if something becomes due earlier, or if this supervisor becomes the leader.
func (s *Supervisor) sleep(ctx context.Context, d time.Duration) {
	until := s.cfg.Env.Now().Add(d)
	for !s.newLeader.Swap(false) {
		if at := s.takeSooner(); !at.IsZero() && at.Before(until) {
			until = at
		}
		left := until.Sub(s.cfg.Env.Now())
		if left <= 0 || s.cfg.Env.Wait(ctx, left, s.wakeups) != env.Got {
			return
		}
	}
}

// takeSooner returns the earliest time passed to Sooner since the last call, and clears it.
func (s *Supervisor) takeSooner() (at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, s.dueSooner = s.dueSooner, time.Time{}
	return at
}

// openLanes opens closed lanes whose reason has gone, once in a period.
func (s *Supervisor) openLanes(ctx context.Context) error {
	return s.whileLeading(ctx, &s.lanesAt, s.cfg.Period, s.cfg.Scheduler.SweepLanes)
}

// hostsEvery is the time between two searches for silent hosts, bucketsEvery that between two searches for full buckets.
// signalsEvery, uniqueEvery and sharesEvery those between two searches for signals that are over, for unique jobs whose time has
// passed, and for shares that have nothing ready.
const (
	hostsEvery   = 10 * time.Minute
	bucketsEvery = 5 * time.Second
	signalsEvery = time.Minute
	uniqueEvery  = time.Minute
	sharesEvery  = 30 * time.Second
)

// removeHosts removes hosts that have been silent for long.
func (s *Supervisor) removeHosts(ctx context.Context) error {
	return s.whileLeading(ctx, &s.hostsAt, hostsEvery, s.cfg.Scheduler.SweepHosts)
}

// whileLeading calls a part of a round if this node leads, and at most once in a time.
func (s *Supervisor) whileLeading(ctx context.Context, next *time.Time, every time.Duration, sweep func(context.Context) error) error {
	m, leads := kernel.LeadershipOf(ctx)
	now := s.cfg.Env.Now()
	if !leads || now.Before(*next) {
		return nil
	}
	*next = now.Add(every)
	err := sweep(ctx)
	if errors.Is(err, kernel.ErrDeposed) {
		s.cfg.Deposed(m)
		return nil
	}
	return err
}

// Sweep makes one round on demand: it processes all that is due now.
func (s *Supervisor) Sweep(ctx context.Context) (Swept, error) {
	poll, err := s.cfg.Store.Poll(ctx, nil)
	if err != nil {
		return Swept{}, err
	}
	if poll.LanesClosed {
		if err := s.cfg.Scheduler.SweepLanes(ctx); err != nil {
			return Swept{}, err
		}
	}
	if poll.UntilNext() > 0 {
		return Swept{}, nil
	}
	return s.sweepAll(ctx)
}

func (s *Supervisor) sweepAll(ctx context.Context) (swept Swept, err error) {
	defer func() { s.cfg.Swept(swept) }()
	for _, part := range []struct {
		did   *int
		sweep func(context.Context, int) (int, error)
		point crashpoint.Point
	}{
		{&swept.Expired, s.cfg.Scheduler.SweepExpired, crashpoint.SupervisorExpired},
		{&swept.Due, s.cfg.Scheduler.SweepDue, crashpoint.SupervisorDue},
		{&swept.Overdue, s.cfg.Scheduler.SweepOverdue, crashpoint.SupervisorOverdue},
	} {
		batch := s.cfg.Batch
		for range MaxRounds {
			crashpoint.Here(part.point)
			n, err := part.sweep(ctx, batch)
			*part.did += n
			if err != nil {
				return swept, err
			}
			if n < batch {
				break
			}
			batch = min(2*batch, mostBatches*s.cfg.Batch)
		}
	}
	crashpoint.Here(crashpoint.SupervisorSwept)
	return swept, nil
}
