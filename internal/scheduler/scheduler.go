// Package scheduler carries out all requests that change jobs.
//
// A request is a submission, a report, a heartbeat, an operator's act, a due scan of the supervisor, or a delivery from
// the mail. Claims ask for runs; package dispatch decides which ready steps they get. The scheduler has no rules of its
// own: package kernel has them. It keeps no truth in memory: the store has it. Caches, the queue and the counts may be
// lost at any time.
//
// A call puts its request into the queue (dispatch.Queue) and waits for the answer. A few goroutines, the writers, take
// requests and claims of many callers from the queue, carry them out in one transaction (group commit), and answer them
// after the commit:
//
//	Submit, Report, Act, Claim, …  →  queue  →  writer: lock, load, apply, dispatch, save, COMMIT  →  answers
//
// The files, in the order of this flow:
//
//	submit, report, act, claim, sweep, mail   the operations
//	bulk                                      acts on many jobs
//	access                                    tokens and sessions, and the audit log
//	preview                                   what an act would do
//	scheduler                                 the requests and the writers
//	batch                                     one transaction, and its retries
//	render, plans, repeat                     what is done beside transactions: renderings, definitions, repeated claims
//	observe, journal, hub                     what is counted, logged and notified after the commit
//	backlog, refusal, bottleneck              when submissions are refused, and what work waits for
//
// Locks. A transaction locks the jobs of its requests in the order of their ids, and waits for these locks. Later it
// locks candidates for dispatch, and does not wait: it skips jobs that other transactions have locked. Limits are locked
// in the order of their names (dispatch).
//
// Failures. If the rules panic on a job, the job is quarantined, and the other requests are carried out. If the outcome
// of a COMMIT is unknown, the transaction is retried in a way that finds what was committed (attempt). A caller that
// goes away does not cancel its request.
//
// The scheduler never answers a request before its commit, and never answers "no work" to a claim for which no
// transaction has searched.
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

// Store is what the scheduler needs of a store: transactions, and reads for information.
type Store interface {
	Update(ctx context.Context, fn func(kernel.Tx) error) error
	Now(context.Context) (time.Time, error)
	Shape(context.Context, kernel.ShapeID) ([]byte, error)
	Input(ctx context.Context, job perdure.JobID, max int) (in json.RawMessage, size int, err error)
	Poll(ctx context.Context, agents []string) (kernel.PollAnswer, error)
	ReadyAgents(ctx context.Context, max int) ([]string, error)
	LastClaims(context.Context) ([]kernel.LastClaim, error)
	Backlog(ctx context.Context, max int) (int, error)
	Schedule(ctx context.Context, name string) (*kernel.Schedule, error)
	Schedules(ctx context.Context, after string, max int) ([]*kernel.Schedule, error)
	StoredDefinition(ctx context.Context, name string, version int) (*kernel.StoredDefinition, *kernel.DefinitionHead, error)
}

// Config configures a scheduler. Store and Compiler are required.
type Config struct {
	Store      Store
	Compiler   kernel.Compiler
	Log        *slog.Logger
	Meter      Meter
	Tracer     Tracer          // nil: no traces
	OnBroken   func(error)     // called when the store returns kernel.ErrBroken; may be nil
	OnNotify   func()          // called when notifications were stored; may be nil
	OnSchedule func()          // called when a schedule may be due earlier; may be nil
	OnWait     func(time.Time) // called when a step waits for a time, with that time by this process' clock; may be nil

	Writers      int  // transactions in progress at once; 0: 1
	SingleWriter bool // the store carries out one transaction at a time: a transaction begins when the one before has only its COMMIT left
	MaxBacklog   int  // bound on unsettled jobs; 0: perdure.DefaultMaxBacklog
	HoldMinRuns  int  // dispatch.HoldMinRuns; 0: that
	RenderWork   int  // units of rendering work in one part of a transaction; 0: maxWork
	Renderers    int  // renderings outside of transactions at once; 0: half of the processors
	HoldMinPace  int  // dispatch.HoldMinPace; 0: that

	Env   env.Env              // nil: env.Real
	NewID func() perdure.JobID // returns ids that grow with time; nil: UUIDs of version 7
}

// Scheduler carries out requests while Run is running. It is safe for concurrent use.
type Scheduler struct {
	cfg     Config
	env     env.Env
	log     *slog.Logger
	meter   Meter
	plans   *plans
	queue   *dispatch.Queue
	hub     *hub
	seen    *holdersSeen
	health  *health
	backlog *backlog
	turns   *dispatch.Turns

	renderers *renderers
	unclaimed unclaimed
	previews  env.Lock // held by the preview in progress
	ended     bool     // Run has returned; guarded by previews

	room chan struct{} // receives when a rate has room, see openRated

	working      atomic.Int32 // transactions in progress
	signalRoom   signalRoom
	failing      atomic.Bool // the latest transaction failed
	refusal      refusal
	laneKeyAfter atomic.Pointer[kernel.LimitKey] // the key at which the latest scan of closed lanes ended; nil if it reached the end

	bucketAfter atomic.Pointer[kernel.LimitKey] // the key at which the latest scan of buckets ended; nil if it reached the end

	fairExprs sync.Map     // the compiled fairBy of agents, by their texts
	fairCount atomic.Int64 // how many they are

	scannedAllAt atomic.Int64 // when a due scan last included all steps behind postponed conditions, in Unix nanoseconds
	quarantined  sync.Map     // JobID → error: jobs that cannot be read, or on which the rules panic
}

// New returns a scheduler. Run starts it.
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
	if cfg.OnNotify == nil {
		cfg.OnNotify = func() {}
	}
	if cfg.OnSchedule == nil {
		cfg.OnSchedule = func() {}
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
	s := &Scheduler{cfg: cfg, env: cfg.Env, log: cfg.Log, meter: cfg.Meter, plans: newPlans(cfg.Compiler),
		queue: dispatch.NewQueue(cfg.Env, cfg.HoldMinPace, cfg.SingleWriter), hub: newHub(), seen: newHoldersSeen(cfg.Env), health: newHealth(cfg.Env),
		backlog: newBacklog(cfg.Env, cfg.Store, cfg.MaxBacklog), turns: dispatch.NewTurns(cfg.Env),
		renderers: newRenderers(cfg.Env), previews: env.NewLock(), room: make(chan struct{}, 1)}
	s.queue.OnRoom = func() {
		select {
		case s.room <- struct{}{}:
		default: // one is enough
		}
	}
	return s
}

// Run carries out requests until ctx ends. Then it refuses the queued ones and returns.
func (s *Scheduler) Run(ctx context.Context) {
	workers := slices.Repeat([]func(){func() { s.write(ctx) }}, s.cfg.Writers)
	workers = append(workers, func() { s.openRated(ctx) })
	workers = append(workers, slices.Repeat([]func(){func() { s.repeatAsides(ctx) }}, repeaters)...)
	workers = append(workers, slices.Repeat([]func(){func() { s.render(ctx) }}, s.cfg.Renderers)...)
	wait := env.Start(s.env, workers...)
	s.env.Wait(ctx, env.Forever, nil)
	s.hub.notifyAll()
	s.queue.Close()
	s.renderers.close()
	wait()
	// Previews have transactions of their own. The store may be closed when Run has returned, so none begins after it (F013).
	if s.previews.Acquire(context.WithoutCancel(ctx), s.env) {
		s.ended = true
		s.previews.Release()
	}
}

func (s *Scheduler) write(ctx context.Context) {
	for {
		queued, claims, number, ok := s.queue.Take()
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
		s.commit(ctx, requests, claims, sync.OnceFunc(func() { s.queue.Saved(number) }))
		s.queue.Finished(number)
	}
}

// WaitingAgents returns the agents with waiting claims.
func (s *Scheduler) WaitingAgents() []string { return s.queue.WaitingAgents() }

// NewID returns an id that is higher than those that this node has returned before.
func (s *Scheduler) NewID() perdure.JobID { return s.cfg.NewID() }

// Wake wakes the claims of these agents: steps may have become ready.
func (s *Scheduler) Wake(agents []string) { s.queue.Wake(agents) }

// WakeReady wakes the claims of agents that have ready steps in the store: another node may have made them ready.
func (s *Scheduler) WakeReady(ctx context.Context) {
	agents := s.queue.AgentsWithClaims()
	if len(agents) == 0 {
		return
	}
	poll, err := s.cfg.Store.Poll(ctx, agents)
	if err != nil {
		return // a wake-up may be lost: the supervisor polls
	}
	s.Wake(poll.Ready)
}

// request is one operation, from its arrival until it is answered.
type request struct {
	dispatch.Request
	op   operation
	err  error         // the answer, once done has a token
	done chan struct{} // buffered, so that a writer never waits for a caller
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

// answer answers a request.
func (r *request) answer(err error) {
	if o, ok := r.op.(interface{ answered(error) }); ok {
		o.answered(err)
	}
	r.err = err
	r.done <- struct{}{}
}

// do queues one request and waits until it is answered. If the caller goes away, the request stays in the queue and is
// carried out (F011).
func (s *Scheduler) do(ctx context.Context, op operation, weight int) error {
	r := newRequest(op, weight, make(chan struct{}, 1))
	if err := s.doAll(ctx, []*request{r}, r.done); err != nil {
		return err
	}
	return r.err
}

// doAll is do for several requests, which share a channel with room for all of their answers.
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

// Tracer exports traces. Its methods are called after the commit, and do not block.
type Tracer interface {
	// Traceparent returns the span of a run, which its holder gets with the run.
	Traceparent(job perdure.JobID, step string, run int64) string
	// JobSettled is called when a job has settled, also again after an undo or a redo.
	JobSettled(*kernel.Job)
	// RunEnded is called when the report of a run was accepted, or the run has expired.
	RunEnded(j *kernel.Job, run *kernel.RunEnd, end time.Time)
}

// traced adds the spans of runs for their holder.
func (s *Scheduler) traced(runs []perdure.Run) []perdure.Run {
	if s.cfg.Tracer != nil {
		for i := range runs {
			r := &runs[i]
			r.Traceparent = s.cfg.Tracer.Traceparent(r.Job, r.Step, r.Number)
		}
	}
	return runs
}

// Meter counts events. The labels are bounded by the agents and types that definitions name.
type Meter interface {
	Submitted(typ string)
	Dispatched(agent string, d perdure.Direction, ready time.Duration) // ready is how long the step was ready before
	Reported(agent string, d perdure.Direction, outcome string, took time.Duration)
	RunFailed(typ, agent, code string) // a run of a job of this type has failed, was rejected, or has expired; called after Reported
	Refused(reason protocol.RefusalReason)
	RefusedOf(agent string) // a report on a run of this agent was refused; called after Refused
	Deposed(role string)    // a request of a former leader was refused
	Settled(typ string, as perdure.State, took time.Duration)
	Parked(typ string)
	Committed(requests int, took time.Duration)
	RenderedOutside(agent string) // a rendering was evaluated outside of a transaction: an input for the agent, or a condition if agent is empty
}

// NoMeter counts nothing.
type NoMeter struct{}

func (NoMeter) Submitted(string)                                          {}
func (NoMeter) Dispatched(string, perdure.Direction, time.Duration)       {}
func (NoMeter) Reported(string, perdure.Direction, string, time.Duration) {}
func (NoMeter) RunFailed(string, string, string)                          {}
func (NoMeter) Refused(protocol.RefusalReason)                            {}
func (NoMeter) RefusedOf(string)                                          {}
func (NoMeter) Deposed(string)                                            {}
func (NoMeter) Settled(string, perdure.State, time.Duration)              {}
func (NoMeter) Parked(string)                                             {}
func (NoMeter) Committed(int, time.Duration)                              {}
func (NoMeter) RenderedOutside(string)                                    {}
