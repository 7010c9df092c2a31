// Package agenthost is the part of a process that carries out runs. A Host claims runs from an Exchange, executes the
// handler of each run within the run's time, and reports the outcome. The Exchange is the scheduler of the same process,
// or a client of a remote server; the host behaves the same with both.
//
//	claim.go      loops for each agent: as many runs as there are free slots, and some ahead
//	ahead.go      runs that are claimed before there is a slot for them
//	live.go       a run from its arrival to the answer to its report
//	instant.go    until when a run belongs to this host, on two clocks
//	heartbeat.go  heartbeats, for all live runs together
//	complete.go   complete heartbeats: they list every run
//	secrets.go    secrets: resolved before a handler is called, and removed from what it returns
//	report.go     reports, as many in a call as are ready
//	drain.go      the orderly end
//	capacity.go   what claims offer of a registered host
//	adopt.go      runs whose work goes on while no host is there
//
// One rule has priority over all others: once the lock of a run has expired, the host reports nothing about the run.
// Time is counted from before a call was sent, so the host believes a lock to expire too early, and never too late.
package agenthost

import (
	"context"
	"errors"
	"log/slog"
	"os"
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

// Config says which agents a host carries, and for which exchange.
type Config struct {
	Exchange protocol.Exchange
	Holder   string // names this process; never used by two processes at once, and again only by one that adopts its runs (F119)
	Agents   []*perdure.Agent

	// Heartbeat is the interval promised with every claim: after each heartbeat, a run belongs to the host for so long,
	// and heartbeats are sent each third of it. 0: 10s. Negative: no heartbeats; a run belongs to the host until its
	// deadline, nothing asks it to stop, and its progress is not sent.
	Heartbeat time.Duration
	// ClaimWait is how long a claim waits for work. 0: 20s; at most perdure.MaxClaimWait.
	ClaimWait time.Duration

	// SecretsDir is a directory with a file for each secret. A secret without a file is read from the environment.
	SecretsDir string

	Log *slog.Logger // nil: nothing is logged

	Env env.Env // nil: env.Real

	// HostName is the name of the host, if it is registered. Claims say then what is free of its Capacity, and bring runs that
	// fit into it.
	HostName string
	Capacity perdure.Amounts

	// The following are for handlers whose work outlives this process; see adopt.go.

	// ExactSlots forbids to claim more runs than there are free slots.
	ExactSlots bool
	// Extended is called when a heartbeat has extended the lock of a run, which ends left after the call. It must not block.
	Extended func(run *perdure.Run, left time.Duration)
	// Ended is called when nothing more is to be done for a run: its report was answered, or the run was lost and its
	// handler has returned. It is not called for runs that are left behind when the context of Run ends.
	Ended func(run *perdure.Run)
}

// Host carries out runs for agents. Its methods may be called from any goroutine.
type Host struct {
	cfg     Config
	env     env.Env
	log     *slog.Logger
	agents  []*hosted
	secrets secrets

	life     context.Context // ends with the host, and every run's context with it (cut)
	end      context.CancelCauseFunc
	claiming context.Context // ends when a drain begins
	stop     context.CancelFunc
	started  atomic.Bool

	mu            sync.Mutex
	notes         []note          // log lines to write when mu is free: a log that blocks must not hold mu (F127)
	ended         []*perdure.Run  // for Config.Ended, when mu is free
	paused        bool            // nothing is claimed
	offered       perdure.Amounts // by claims in progress, of Config.Capacity
	offers        int             // such claims
	roundEnd      time.Time       // when they end
	live          map[handle]*live
	arrived       []*live // admitted and not started
	starting      bool    // a goroutine is about to start them
	recent        recentRuns
	outbox        []*live                   // reports that no sender has taken yet
	sharing       map[perdure.JobID][]*live // reports that are kept back, by job, while a call reports several runs of the job
	ready         *sync.Cond                // on mu: the outbox has reports, or life has ended
	claimers      int                       // claim loops that have not ended, and claims that went with reports
	finished      bell                      // rings when a run or a claim loop has ended
	noClaimsUntil time.Time                 // until this time, reports go without claims
	unanswered    bool                      // the exchange did not answer the latest call
	yielder       env.Yielder
	nextCheck     time.Time // when watchLoop checks the locks next
	complete      completer

	checkSooner     chan struct{} // receives when a run has arrived whose lock expires before that
	heartbeatSooner chan struct{} // receives when complete heartbeats begin
}

// hosted is an agent and its use. Host.mu protects all that changes.
type hosted struct {
	*perdure.Agent
	slots   int
	exact   bool // nothing is claimed ahead
	busy    int  // handlers that carry out a run of this host
	held    int  // runs in Host.live: running, unreported, or lost with a handler that has not returned
	claimed int  // runs that claims in progress may bring
	unsent  int  // reports in Host.outbox
	freed   bell // rings when one of these four numbers has fallen

	line         []*live       // runs that wait for a slot, and some that no longer do
	inLine       int           // how many of them wait
	timed        bool          // a timer for their review runs
	handlerTime  time.Duration // mean time of a handler
	claimTime    time.Duration // mean time of a claim that found runs at once
	noAheadUntil time.Time     // nothing is claimed ahead before this time

	filledAtOnce bool      // claims are filled at once: the next one can go with reports
	lastFilled   time.Time // when a claim was last filled
}

// free returns the number of runs that may be claimed, besides those that wait for a slot. Runs that have left their
// slot, because their report is not answered yet or because their handler continues after the lock has expired (F050),
// do not stop the agent, unless there are as many of them as there are slots.
func (a *hosted) free(now time.Time) int { return a.freeAfter(0, now) }

// freeAfter returns the same for the time when so many reports will have been answered.
func (a *hosted) freeAfter(reports int, now time.Time) int {
	ahead := a.ahead(now)
	return min(a.slots+ahead-a.busy-a.inLine-a.claimed, 2*a.slots+ahead-a.held-a.claimed+reports)
}

// claimsAtOnce bounds the claims of one agent in progress. While a claim is in progress, more slots may become free than
// it asked for. Another claim fills these without waiting for its answer.
const claimsAtOnce = 3

// claimSize returns the number of runs that a further claim may ask for; 0: no claim should be sent now. Besides a claim in
// progress, another one asks for a quarter of the slots, or for as much as a claim can bring. Slots that become free
// with a report are left to the claim that goes with the report.
func (a *hosted) claimSize(now time.Time) int {
	n := a.free(now)
	if a.filledAtOnce {
		n -= a.unsent
	}
	n = min(n, perdure.MaxBatch)
	if n <= 0 || a.claimed > 0 && n < min(a.slots/4, perdure.MaxBatch) {
		return 0
	}
	a.claimed += n
	return n
}

// New returns a host. It panics if the configuration is a programming error: no Exchange, no Holder, or two agents with
// one name.
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
	h := &Host{cfg: cfg, env: cfg.Env, log: cfg.Log, live: map[handle]*live{}, sharing: map[perdure.JobID][]*live{}, checkSooner: make(chan struct{}, 1), heartbeatSooner: make(chan struct{}, 1)}
	h.secrets = secrets{dir: cfg.SecretsDir, lookup: os.LookupEnv}
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
		h.agents = append(h.agents, &hosted{Agent: a, slots: slots, exact: cfg.ExactSlots})
	}
	return h
}

// senders bounds the calls with reports in progress. There are several, so that a slow call does not delay later
// reports. There are few, so that each call carries many reports under load.
const senders = 4

// abandonAfter is the time for which Run waits for handlers after its context has ended.
const abandonAfter = time.Second

// Run claims, executes and reports until a Drain is complete (it then returns nil), or until ctx ends (it then returns
// its cause). The end of ctx is like a crash: the contexts of running handlers end, and their runs are not reported. Run
// may be called once.
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
		loops = append(loops, h.heartbeatLoop)
	}
	ended := env.Start(h.env, loops...)
	h.env.Wait(h.life, env.Forever, ctx.Done())
	h.end(context.Cause(ctx)) // unless a drain has done so
	h.cut()
	ended()
	wait, cancel := env.WithTimeout(h.env, context.Background(), abandonAfter)
	defer cancel()
	h.await(wait, &h.finished, func() bool { return h.claimers == 0 && h.handlers() == 0 })
	if errors.Is(context.Cause(h.life), errDrained) {
		return nil
	}
	return context.Cause(h.life)
}

// AgentStats is the use of one agent.
type AgentStats struct {
	Agent      string
	Slots      int
	Busy       int // slots in which a run is carried out
	Waiting    int // runs that wait for a slot
	Unreported int // runs that have ended, and whose report is not answered yet
	Overdue    int // handlers that continue although the lock of their run has expired
}

// Stats returns the present use of each agent, in the order of Config.Agents.
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

// bell wakes all goroutines that wait for a condition. Host.mu protects it.
type bell struct{ ch chan struct{} }

func (b *bell) ring() {
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}

// await returns true as soon as ok, which is called under mu, returns true; and false if ctx ends first.
func (h *Host) await(ctx context.Context, b *bell, ok func() bool) (ready bool) {
	h.mu.Lock()
	for ready = ok(); !ready && ctx.Err() == nil; ready = ok() {
		if b.ch == nil {
			b.ch = make(chan struct{})
		}
		rung := b.ch
		h.mu.Unlock()
		h.env.Wait(ctx, env.Forever, rung)
		h.mu.Lock()
	}
	h.unlock()
	return ready
}
