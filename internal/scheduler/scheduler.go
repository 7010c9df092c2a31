// Package scheduler is the pattern's Scheduler: it takes submissions, lets steps out, applies reports
// and carries out what operators and the supervisor ask. It decides nothing itself and keeps nothing
// between calls: the rules are in package perdure, the truth is in the store. What it adds is the way
// between the two: many events of many jobs are folded into one transaction (group commit).
package scheduler

import (
	"context"
	"encoding/json"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/dispatch"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/protocol"
)

// Store is what a scheduler needs of a store: transactions, and some reads that decide nothing.
type Store interface {
	Update(ctx context.Context, fn func(kernel.Tx) error) error
	Now(context.Context) (time.Time, error)
	Shape(context.Context, kernel.ShapeID) ([]byte, error)
	Input(ctx context.Context, job perdure.JobID, max int) (in json.RawMessage, size int, err error)
	Look(ctx context.Context, agents []string) (kernel.Look, error)
	ReadyAgents(ctx context.Context, max int) ([]string, error)
	Seen(context.Context) ([]kernel.Seen, error)
	Backlog(ctx context.Context, max int) (int, error)
}

// Config is what a scheduler is made of. Store and Compiler are required.
type Config struct {
	Store    Store
	Compiler kernel.Compiler
	Log      *slog.Logger
	Meter    Meter
	OnBroken func(error)     // told when the store says kernel.ErrBroken; nil: nobody
	OnWait   func(time.Time) // told when a step is made to wait: until then, by this process' clock; nil: nobody

	Writers      int  // transactions in flight at once; 0: 1
	SingleWriter bool // the store carries out one transaction after the other: all in flight but one have nothing left but their COMMIT
	MaxBacklog   int  // unsettled jobs above which a submission is refused; 0: perdure.DefaultMaxBacklog
	HoldMinRuns  int  // first runs of one caller's submissions from which on these may be held for a claim; 0: 100
	RenderWork   int  // units of work for rendering in one part of a transaction; 0: maxWork
	Renderers    int  // renderings outside of transactions at once; 0: half of the processors
	HoldMinPace  int  // for how many runs an agent asks in a quarter of a second, if anything is to be held for it; 0: 1,000

	Env   env.Env              // nil: env.Real
	NewID func() perdure.JobID // ids that grow with time; nil: UUIDs of version 7
}

// Scheduler is safe for concurrent use. Run must be running for its methods to answer.
type Scheduler struct {
	cfg     Config
	env     env.Env
	log     *slog.Logger
	meter   Meter
	plans   *plans
	queue   *dispatch.Queue
	hub     *hub
	seen    *holdersSeen
	backlog *backlog
	turns   *dispatch.Turns

	renderers *renderers
	unclaimed unclaimed

	failing      atomic.Bool // the latest transaction failed
	refusal      refusal
	laneKeyAfter atomic.Pointer[kernel.LimitKey] // where the latest look at closed lanes ended; nil: at the end of them

	scannedAllAt atomic.Int64 // when a sweep looked behind postponed conditions, in Unix nanoseconds
	quarantined  sync.Map     // JobID → error: jobs that cannot be read or make the rules fail
}

// New makes a scheduler; Run starts it.
func New(cfg Config) *Scheduler {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Meter == nil {
		cfg.Meter = NoMeter{}
	}
	if cfg.OnBroken == nil {
		cfg.OnBroken = func(error) {}
	}
	if cfg.OnWait == nil {
		cfg.OnWait = func(time.Time) {}
	}
	if cfg.Writers <= 0 {
		cfg.Writers = 1
	}
	if cfg.RenderWork <= 0 {
		cfg.RenderWork = maxWork
	}
	if cfg.Renderers <= 0 {
		cfg.Renderers = max(1, runtime.GOMAXPROCS(0)/2)
	}
	if cfg.HoldMinRuns <= 0 {
		cfg.HoldMinRuns = dispatch.HoldMinRuns
	}
	if cfg.HoldMinPace <= 0 {
		cfg.HoldMinPace = dispatch.HoldMinPace
	}
	if cfg.MaxBacklog <= 0 {
		cfg.MaxBacklog = perdure.DefaultMaxBacklog
	}
	if cfg.Env == nil {
		cfg.Env = env.Real{}
	}
	if cfg.NewID == nil {
		cfg.NewID = func() perdure.JobID { return perdure.JobID(uuid.Must(uuid.NewV7())) }
	}
	return &Scheduler{cfg: cfg, env: cfg.Env, log: cfg.Log, meter: cfg.Meter, plans: newPlans(cfg.Compiler),
		queue: dispatch.NewQueue(cfg.Env, cfg.HoldMinPace, cfg.SingleWriter), hub: newHub(), seen: newHoldersSeen(cfg.Env),
		backlog: newBacklog(cfg.Env, cfg.Store, cfg.MaxBacklog), turns: dispatch.NewTurns(cfg.Env),
		renderers: newRenderers(cfg.Env)}
}

// Run commits what is asked until ctx ends; then what is queued is refused, and it returns.
func (s *Scheduler) Run(ctx context.Context) {
	workers := slices.Repeat([]func(){func() { s.write(ctx) }}, s.cfg.Writers)
	workers = append(workers, slices.Repeat([]func(){func() { s.repeatAsides(ctx) }}, repeaters)...)
	workers = append(workers, slices.Repeat([]func(){func() { s.render(ctx) }}, s.cfg.Renderers)...)
	wait := env.Start(s.env, workers...)
	s.env.Wait(ctx, env.Forever, nil)
	s.hub.notifyAll()
	s.queue.Close()
	s.renderers.close()
	wait()
}

func (s *Scheduler) write(ctx context.Context) {
	for {
		queued, claims, turn, ok := s.queue.Take()
		if !ok {
			for _, r := range s.queue.Drain() {
				r.Op.(*request).answer(dispatch.ErrDraining)
			}
			return
		}
		requests := make([]*request, len(queued))
		for i, r := range queued {
			requests[i] = r.Op.(*request)
		}
		s.commit(ctx, requests, claims, sync.OnceFunc(func() { s.queue.Saved(turn) }))
		s.queue.Finished(turn)
	}
}

// Waiting are the agents for which claims wait.
func (s *Scheduler) WaitingAgents() []string { return s.queue.WaitingAgents() }

// Wake says that there is work for these agents.
func (s *Scheduler) Wake(agents []string) { s.queue.Wake(agents) }

// Hint says that another node may have made steps ready, and looks for whom.
func (s *Scheduler) WakeReady(ctx context.Context) {
	agents := s.queue.AgentsWithClaims()
	if len(agents) == 0 {
		return
	}
	look, err := s.cfg.Store.Look(ctx, agents)
	if err != nil {
		return // a hint, and the supervisor looks every so often
	}
	s.Wake(look.Ready)
}

// request is one operation on its way into a transaction.
type request struct {
	dispatch.Request
	op   operation
	err  error         // its answer, once it is done
	done chan struct{} // buffered: the writer never waits
}

func newRequest(op operation, weight int, done chan struct{}) *request {
	r := &request{op: op, done: done}
	r.Op, r.Weight = r, weight
	switch op.(type) {
	case *reportOp, *heartbeatOp:
		r.OfRun = true
	}
	return r
}

// answer ends a request.
func (r *request) answer(err error) {
	if o, ok := r.op.(interface{ answered(error) }); ok {
		o.answered(err)
	}
	r.err = err
	r.done <- struct{}{}
}

// do queues one request and waits for its commit. A caller who goes away leaves the request in the
// queue: it is carried out all the same (F011).
func (s *Scheduler) do(ctx context.Context, op operation, weight int) error {
	r := newRequest(op, weight, make(chan struct{}, 1))
	if err := s.doAll(ctx, []*request{r}, r.done); err != nil {
		return err
	}
	return r.err
}

// doAll is do for requests that share a channel with room for all of their answers.
func (s *Scheduler) doAll(ctx context.Context, requests []*request, done <-chan struct{}) error {
	queued := make([]*dispatch.Request, len(requests))
	for i, r := range requests {
		queued[i] = &r.Request
	}
	if err := s.queue.Put(ctx, queued); err != nil {
		for _, r := range requests {
			r.answer(err)
		}
		if ctx.Err() != nil {
			return err
		}
	}
	for range requests {
		if s.env.Wait(ctx, env.Forever, done) == env.Gone {
			return ctx.Err()
		}
	}
	return nil
}

// Meter counts what happens; a nil one counts nothing. Labels are bounded by the agents and types
// that definitions name.
type Meter interface {
	Submitted(typ string)
	Dispatched(agent string, d perdure.Direction)
	Reported(agent string, d perdure.Direction, outcome string, took time.Duration)
	Refused(reason protocol.RefusalReason)
	Deposed(role string) // something was refused that was asked for under a role
	Settled(typ string, as perdure.State, took time.Duration)
	Committed(requests int, took time.Duration)
	RenderedOutside(agent string) // of a transaction: an input for the agent, or a condition if agent is empty
}

// NoMeter counts nothing.
type NoMeter struct{}

func (NoMeter) Submitted(string)                                          {}
func (NoMeter) Dispatched(string, perdure.Direction)                      {}
func (NoMeter) Reported(string, perdure.Direction, string, time.Duration) {}
func (NoMeter) Refused(protocol.RefusalReason)                            {}
func (NoMeter) Deposed(string)                                            {}
func (NoMeter) Settled(string, perdure.State, time.Duration)              {}
func (NoMeter) Committed(int, time.Duration)                              {}
func (NoMeter) RenderedOutside(string)                                    {}
