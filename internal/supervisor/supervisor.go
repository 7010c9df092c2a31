// Package supervisor is the pattern's Supervisor: it looks for what nobody reports on (runs whose lock
// has passed, steps whose time has come, jobs past their ultimatum) and asks the scheduler to act. It
// decides nothing and executes nothing.
//
// Of the grid's supervisors one leads, and looks at every period; what it asks for is done under its mandate.
// The others look when something becomes due that their own node made wait, and seldom besides: any number of
// them at once do no harm, and nothing waits for a leader (I15).
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

// Scheduler is what it asks. Each sweep handles at most max rows and says how many it did.
type Scheduler interface {
	SweepExpired(ctx context.Context, max int) (int, error)
	SweepDue(ctx context.Context, max int) (int, error)
	SweepOverdue(ctx context.Context, max int) (int, error)
	SweepLanes(ctx context.Context) error
	// Waiting are the agents for which claims wait; Wake says that there is work for these.
	WaitingAgents() []string
	Wake(agents []string)
}

// Store tells what there is to be done, and when.
type Store interface {
	Look(ctx context.Context, agents []string) (kernel.Look, error)
}

// Config is what a supervisor is made of.
type Config struct {
	Scheduler Scheduler
	Store     Store
	Period    time.Duration            // between looks at the latest; 0: DefaultPeriod
	Batch     int                      // rows in one transaction, and up to mostBatches as many where there are more; 0: DefaultBatch
	Deposed   func(kernel.Mandate)     // told when what the leader asked for was refused, since another leads; nil: nobody
	Looked    func(late time.Duration) // called after each round with how long the oldest due work had been due, but not after a sweep that may only have corrected when runs expire; nil: not called
	Swept     func(Swept)              // told what was done; nil: nobody
	Log       *slog.Logger
	Env       env.Env // nil: env.Real
}

const (
	DefaultPeriod = time.Second
	DefaultBatch  = 500
	// MaxRounds bounds the batches of one sweep: 50,000 runs that expire together take turns with the
	// reports of others (F079).
	MaxRounds = 1000
	// While there is more than one transaction takes, each takes twice as much as the one before, up to so many
	// times as much as the first: the backlog shrinks sooner, and reports still find their turn (F083).
	mostBatches = 4

	// Who does not lead looks away for so many periods, and so does everybody where nothing is out and nothing
	// waits: what is let out from now on has its time before it.
	patience = 2
)

// Supervisor sweeps.
type Supervisor struct {
	cfg  Config
	lead atomic.Pointer[context.Context] // nil: another leads, or nobody
	anew atomic.Bool                     // it has begun to lead, and has not looked since
	news chan struct{}                   // that is so, or something is due sooner

	lanesAt time.Time // when closed lanes are to be looked at again; of Round alone
	vain    time.Time // what was due in the latest round whose sweep found nothing; of Round alone

	mu   sync.Mutex
	soon time.Time // the earliest of what was told by Sooner since the latest look; zero: nothing
}

// New makes a supervisor.
func New(cfg Config) *Supervisor {
	if cfg.Period <= 0 {
		cfg.Period = DefaultPeriod
	}
	if cfg.Batch <= 0 {
		cfg.Batch = DefaultBatch
	}
	if cfg.Deposed == nil {
		cfg.Deposed = func(kernel.Mandate) {}
	}
	if cfg.Looked == nil {
		cfg.Looked = func(time.Duration) {}
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
	return &Supervisor{cfg: cfg, news: make(chan struct{}, 1)}
}

// Lead makes it the supervisor that looks at every period, until ctx ends. It returns then. What it asks for
// is asked with ctx, which has the mandate.
func (s *Supervisor) Lead(ctx context.Context) {
	s.lead.Store(&ctx)
	s.anew.Store(true)
	s.tell()
	s.cfg.Env.Wait(ctx, env.Forever, nil)
	s.lead.Store(nil)
}

// Sooner says that a step, just made to wait, becomes due at a time, by this process' clock.
func (s *Supervisor) Sooner(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.soon.IsZero() || at.Before(s.soon) {
		s.soon = at
		s.tell()
	}
}

func (s *Supervisor) tell() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// standing is the context with which to ask, and for how many periods to look away.
func (s *Supervisor) standing(ctx context.Context) (context.Context, time.Duration) {
	if lead := s.lead.Load(); lead != nil && (*lead).Err() == nil {
		return *lead, 1
	}
	return ctx, patience
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
		pause, err := s.Round(ctx)
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

// Round looks once and does what is due. It returns the time until the next round. A sweep that finds nothing may have corrected when
// runs expire, so another round follows at once. If the same is due then, and the sweep finds nothing again, it is locked by another
// transaction, or quarantined: then the next round is a period later.
func (s *Supervisor) Round(ctx context.Context) (pause time.Duration, err error) {
	crashpoint.Here(crashpoint.SupervisorLook)
	ctx, periods := s.standing(ctx)
	defer func() {
		if ctx.Err() != nil { // it led, and does no more: look again as one of many
			pause, err = 0, nil
		}
	}()
	pause = periods * s.cfg.Period
	look, err := s.cfg.Store.Look(ctx, s.cfg.Scheduler.WaitingAgents())
	if err != nil {
		return s.cfg.Period, err
	}
	// A claim that waits although there is work has missed its wake-up: the news came from another node
	// and was lost (F068).
	crashpoint.Here(crashpoint.SupervisorLooked)
	s.cfg.Scheduler.Wake(look.Ready)
	if look.Closed {
		if err := s.openLanes(ctx); err != nil {
			return s.cfg.Period, err
		}
	}
	if in := look.In(); in > 0 {
		s.cfg.Looked(0)
		if look.Next.IsZero() && len(look.Ready) == 0 && !look.Closed {
			return patience * s.cfg.Period, nil
		}
		return min(in, pause), nil
	}
	did, err := s.sweepAll(ctx)
	if m, ok := kernel.MandateOf(ctx); ok && errors.Is(err, kernel.ErrDeposed) {
		s.cfg.Deposed(m)
		return pause, nil
	}
	if err == nil && did == (Swept{}) && !look.Next.Equal(s.vain) {
		s.vain = look.Next
		return 0, nil
	}
	s.cfg.Looked(-look.In())
	if err != nil || did == (Swept{}) {
		return s.cfg.Period, err
	}
	return 0, nil
}

// sleep waits for d, or less where something becomes due earlier, or this node has begun to lead.
func (s *Supervisor) sleep(ctx context.Context, d time.Duration) {
	until := s.cfg.Env.Now().Add(d)
	for !s.anew.Swap(false) {
		if at := s.sooner(); !at.IsZero() && at.Before(until) {
			until = at
		}
		left := until.Sub(s.cfg.Env.Now())
		if left <= 0 || s.cfg.Env.Wait(ctx, left, s.news) != env.Got {
			return
		}
	}
}

// sooner takes what was told.
func (s *Supervisor) sooner() (at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, s.soon = s.soon, time.Time{}
	return at
}

// openLanes has lanes opened that are closed and need not be, once in a period, if this node leads.
func (s *Supervisor) openLanes(ctx context.Context) error {
	m, leads := kernel.MandateOf(ctx)
	now := s.cfg.Env.Now()
	if !leads || now.Before(s.lanesAt) {
		return nil
	}
	s.lanesAt = now.Add(s.cfg.Period)
	err := s.cfg.Scheduler.SweepLanes(ctx)
	if errors.Is(err, kernel.ErrDeposed) {
		s.cfg.Deposed(m)
		return nil
	}
	return err
}

// Sweep is one round on demand: all that is there to be done now.
func (s *Supervisor) Sweep(ctx context.Context) (Swept, error) {
	look, err := s.cfg.Store.Look(ctx, nil)
	if err != nil {
		return Swept{}, err
	}
	if look.Closed {
		if err := s.cfg.Scheduler.SweepLanes(ctx); err != nil {
			return Swept{}, err
		}
	}
	if look.In() > 0 {
		return Swept{}, nil
	}
	return s.sweepAll(ctx)
}

func (s *Supervisor) sweepAll(ctx context.Context) (did Swept, err error) {
	defer func() { s.cfg.Swept(did) }()
	for _, part := range []struct {
		did   *int
		sweep func(context.Context, int) (int, error)
		point crashpoint.Point
	}{
		{&did.Expired, s.cfg.Scheduler.SweepExpired, crashpoint.SupervisorExpired},
		{&did.Due, s.cfg.Scheduler.SweepDue, crashpoint.SupervisorDue},
		{&did.Overdue, s.cfg.Scheduler.SweepOverdue, crashpoint.SupervisorOverdue},
	} {
		batch := s.cfg.Batch
		for range MaxRounds {
			crashpoint.Here(part.point)
			n, err := part.sweep(ctx, batch)
			*part.did += n
			if err != nil {
				return did, err
			}
			if n < batch {
				break
			}
			batch = min(2*batch, mostBatches*s.cfg.Batch)
		}
	}
	crashpoint.Here(crashpoint.SupervisorSwept)
	return did, nil
}
