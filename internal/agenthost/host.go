// Package agenthost is the part of a process that carries agents: it claims runs from an Exchange,
// executes each within the time that it has, and reports how it ended. Whether the Exchange is the
// scheduler of the same process or a client of a server far away, it does not know.
//
//	claim.go    loops for each agent: as many runs as there are free slots, and some ahead
//	ahead.go    runs that are claimed before there is a slot for them
//	live.go     a run from its arrival to the answer to its report
//	instant.go  until when a run is ours, on two clocks
//	beat.go     heartbeats, for all live runs at once
//	report.go   reports, as many in a call as are ready
//	drain.go    the way out
//
// One rule is above all others: once the time of a run has passed, the host says nothing about it
// any more. Time is counted from before the question was asked, so that the host errs early only.
package agenthost

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/protocol"
)

const (
	defaultHeartbeat = 10 * time.Second
	defaultClaimWait = 20 * time.Second
)

// Config says what a host runs, and for whom.
type Config struct {
	Exchange protocol.Exchange
	Holder   string // names this incarnation of the process; never used again (F119)
	Agents   []*perdure.Agent

	// Heartbeat is promised with every claim: a run is the host's for so long after each beat, and
	// beats come every third of it. 0: 10s. Negative: none, a run is the host's until its ultimatum;
	// then nothing tells it to stop, and its progress goes nowhere.
	Heartbeat time.Duration
	// ClaimWait is how long a claim waits for work. 0: 20s; at most perdure.MaxClaimWait.
	ClaimWait time.Duration

	Log *slog.Logger // nil: none

	Env env.Env // nil: env.Real
}

// Host carries agents. Its methods may be called from any goroutine.
type Host struct {
	cfg    Config
	env    env.Env
	log    *slog.Logger
	agents []*hosted

	life     context.Context // ends with the host, and every run's context with it (cut)
	end      context.CancelCauseFunc
	claiming context.Context // ends when a drain begins
	stop     context.CancelFunc
	started  atomic.Bool

	mu         sync.Mutex
	notes      []note // for the log, once mu is free: a log that blocks must not hold it (F127)
	live       map[handle]*live
	arrived    []*live // admitted, and not begun
	coming     bool    // a goroutine is on its way to them
	recent     remembered
	outbox     []*live                   // reports that no sender has taken yet
	sharing    map[perdure.JobID][]*live // reports that are kept back, by job, while a call reports several runs of the job
	ready      *sync.Cond                // on mu: there is something in the outbox, or life has ended
	claimers   int                       // claim loops that have not ended, and claims that went with reports
	left       bell                      // a run or a claim loop has gone
	apart      time.Time                 // until then, reports go without claims
	unanswered bool                      // the exchange has not answered the latest call
	yielder    env.Yielder
	looks      time.Time // when the watch looks next at whose time is over

	sooner chan struct{} // a run has come whose time is over before that
}

// hosted is an agent and how much of it is in use. What changes is guarded by Host.mu.
type hosted struct {
	*perdure.Agent
	slots int
	busy  int  // handlers that work on a run that is ours
	held  int  // runs in Host.live: busy, unreported, or past their time and still not back
	asked int  // runs that claims under way may bring
	due   int  // reports in Host.outbox
	freed bell // one of the four has fallen

	line   []*live       // runs that wait for a slot, and some that do so no more
	inLine int           // how many wait
	timed  bool          // a timer runs that reviews them
	took   time.Duration // by a handler, the mean
	trip   time.Duration // of a claim that found runs at once, the mean
	slow   time.Time     // nothing is claimed ahead until then

	flows  bool      // claims are filled at once: the next can go with reports
	filled time.Time // when one was the last time
}

// free is how many runs may be claimed, beside those that wait for a slot. Runs that have left their slot (because they wait for their
// report to be answered, or because their handler goes on after their time, F050) do not stop the agent
// unless they pile up to as many again.
func (a *hosted) free(now time.Time) int { return a.freeAfter(0, now) }

// freeAfter is the same when so many reports are being answered: their runs are held no more then.
func (a *hosted) freeAfter(reports int, now time.Time) int {
	ahead := a.ahead(now)
	return min(a.slots+ahead-a.busy-a.inLine-a.asked, 2*a.slots+ahead-a.held-a.asked+reports)
}

// claimsAtOnce is how many claims of one agent may be under way. What was free when a claim set out is soon
// a small part of what is free: it is not to wait for that claim's answer.
const claimsAtOnce = 3

// ask says how many runs a further claim may bring; 0: none is to set out now. Beside one that is under way, another
// asks for a quarter of the slots, or for as much as a claim can bring. What has become free with a report is left to
// the claim that goes with it.
func (a *hosted) ask(now time.Time) int {
	n := a.free(now)
	if a.flows {
		n -= a.due
	}
	n = min(n, perdure.MaxBatch)
	if n <= 0 || a.asked > 0 && n < min(a.slots/4, perdure.MaxBatch) {
		return 0
	}
	a.asked += n
	return n
}

// New makes a host. It panics where the wiring is wrong: no Exchange, no Holder, or two agents of one
// name.
func New(cfg Config) *Host {
	if cfg.Exchange == nil || cfg.Holder == "" {
		panic("agenthost.New: Exchange and Holder are required")
	}
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = defaultHeartbeat
	}
	if cfg.ClaimWait <= 0 {
		cfg.ClaimWait = defaultClaimWait
	}
	cfg.ClaimWait = min(cfg.ClaimWait, perdure.MaxClaimWait)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Env == nil {
		cfg.Env = env.Real{}
	}
	h := &Host{cfg: cfg, env: cfg.Env, log: cfg.Log, live: map[handle]*live{}, sharing: map[perdure.JobID][]*live{}, sooner: make(chan struct{}, 1)}
	h.ready = sync.NewCond(&h.mu)
	h.life, h.end = context.WithCancelCause(context.Background())
	h.claiming, h.stop = context.WithCancel(h.life)
	names := map[string]bool{}
	for _, a := range cfg.Agents {
		if names[a.Name] {
			panic("agenthost.New: two agents named " + a.Name)
		}
		names[a.Name] = true
		slots := a.Slots
		if slots <= 0 {
			slots = perdure.DefaultSlots
		}
		h.agents = append(h.agents, &hosted{Agent: a, slots: slots})
	}
	return h
}

// senders is how many calls with reports may be under way at once: more than one, so that a slow call
// does not hold up what became ready after it; few, so that under load each call carries many.
const senders = 4

// abandoned is how long Run waits for handlers after its context has died.
const abandoned = time.Second

// Run claims, executes and reports until a Drain is through (nil) or ctx ends (its cause). The latter
// is as a crash is: running handlers see their contexts end, and nothing more is said about their
// runs. Run may be called once.
func (h *Host) Run(ctx context.Context) error {
	if h.started.Swap(true) {
		panic("agenthost: Run called twice")
	}
	var loops []func()
	h.mu.Lock()
	h.claimers = len(h.agents) * claimsAtOnce
	h.mu.Unlock()
	for _, a := range h.agents {
		for range claimsAtOnce {
			loops = append(loops, func() { h.claimLoop(a) })
		}
	}
	for range senders {
		loops = append(loops, h.sendLoop)
	}
	loops = append(loops, h.watchLoop)
	if h.cfg.Heartbeat > 0 {
		loops = append(loops, h.beatLoop)
	}
	ended := env.Start(h.env, loops...)
	h.env.Wait(h.life, env.Forever, ctx.Done())
	h.end(context.Cause(ctx)) // unless a drain has
	h.cut()
	ended()
	wait, cancel := env.WithTimeout(h.env, context.Background(), abandoned)
	defer cancel()
	h.await(wait, &h.left, func() bool { return h.claimers == 0 && h.handlers() == 0 })
	if errors.Is(context.Cause(h.life), errDrained) {
		return nil
	}
	return context.Cause(h.life)
}

// AgentStats is how much of an agent is in use.
type AgentStats struct {
	Agent      string
	Slots      int
	Busy       int // slots with a run in them
	Waiting    int // runs that wait for a slot
	Unreported int // runs that have ended, and whose report is not answered yet
	Overdue    int // handlers that go on although the time of their run has passed
}

// Stats is a picture of the moment, in the order of Config.Agents.
func (h *Host) Stats() []AgentStats {
	h.mu.Lock()
	defer h.unlock()
	stats := make([]AgentStats, len(h.agents))
	at := make(map[*hosted]*AgentStats, len(h.agents))
	for i, a := range h.agents {
		stats[i] = AgentStats{Agent: a.Name, Slots: a.slots, Busy: a.busy, Waiting: a.inLine}
		at[a] = &stats[i]
	}
	for _, l := range h.live {
		switch {
		case l.report != nil:
			at[l.agent].Unreported++
		case l.lost:
			at[l.agent].Overdue++
		}
	}
	return stats
}

// bell wakes everyone who waits for a condition to look at it again. Guarded by Host.mu.
type bell struct{ ch chan struct{} }

func (b *bell) ring() {
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}

// await returns true once ok, called under mu, has said so; false if ctx ended first.
func (h *Host) await(ctx context.Context, b *bell, ok func() bool) (did bool) {
	h.mu.Lock()
	for did = ok(); !did && ctx.Err() == nil; did = ok() {
		if b.ch == nil {
			b.ch = make(chan struct{})
		}
		rung := b.ch
		h.mu.Unlock()
		h.env.Wait(ctx, env.Forever, rung)
		h.mu.Lock()
	}
	h.unlock()
	return did
}
