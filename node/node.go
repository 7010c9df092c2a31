// Package node puts one process of Perdure together: the scheduler, the supervisor, the agents that live
// here and the elector, on one store. It wires, answers the outside (protocol.Server) and decides
// nothing.
//
//	service        runs                                    needs
//	scheduler      from New to Stop                        store
//	agent host     from Start to Stop, where there are     scheduler (as protocol.Exchange)
//	               agents
//	supervisor     from Start to Stop                      scheduler, store
//	elector        from Start to Stop                      store
//	courier        from Start to Stop                      scheduler, store
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/agenthost"
	"github.com/perdure/perdure/internal/courier"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/election"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/internal/supervisor"
)

// Store is where a node keeps everything: store.Open, store/sqlite or store/postgres opens one. Its methods are for the
// packages of Perdure.
type Store = kernel.Store

// DefaultRoleTTL is how long a node leads a role, or stands by for it, after its last sign of life.
const DefaultRoleTTL = kernel.DefaultRoleTTL

// Config is how a node is made. The zero value is a node that schedules and supervises, and runs no
// agents of its own.
type Config struct {
	Agents []*perdure.Agent
	Listen string // where it is reached, for the list of nodes
	// HostName names the host of the node: leader and standby of a role run on different hosts where possible. It has 1
	// to 253 bytes, printable and without spaces; "": the operating system's name of the host.
	HostName string
	Version  string
	Log      *slog.Logger

	SweepPeriod time.Duration // how long the supervisor looks away at most; 0: 1s
	SweepBatch  int           // rows in one of its transactions; 0: 500
	// OldTransaction is the age from which on the log tells of a transaction that keeps PostgreSQL from
	// clearing away what is dead; 0: DefaultOldTransaction.
	OldTransaction time.Duration
	RoleTTL        time.Duration // how long it leads, or stands by, after it was last heard of; 0: DefaultRoleTTL
	Heartbeat      time.Duration // of the agents here; 0: 10s
	// MaxMail is how many mails may wait to be applied: submissions in callers' transactions. The leader of role courier
	// stores its number for all; 0: 1,000,000.
	MaxMail    int
	MaxBacklog int // unsettled jobs above which a submission is refused; 0: 1,000,000
	Writers    int // transactions in flight at once; 0: what suits the store
}

// Node is one process of the grid. Its methods may be called from any goroutine.
type Node struct {
	cfg      Config
	id       string
	hostName string // the name of its host
	log      *slog.Logger
	store    Store
	meter    *meter
	plans    *definition.Compiler
	recent   recent
	cell     atomic.Int64 // of the store; see kernel.WithCell

	scheduler  *scheduler.Scheduler
	supervisor *supervisor.Supervisor
	courier    *courier.Courier
	elector    *election.Elector
	roll       roll
	host       *agenthost.Host // nil: no agents here
	since      time.Time

	trial    trial
	life     context.Context // of the scheduler, and of whoever waits for a job
	end      context.CancelCauseFunc
	failed   chan struct{}   // closed where the store cannot be relied upon any more
	watch    context.Context // of supervisor and elector
	unwatch  context.CancelFunc
	running  sync.WaitGroup
	watching sync.WaitGroup
	started  atomic.Bool
	draining atomic.Bool
	ending   sync.Mutex
	takeBack sync.Mutex
	tookBack bool
}

// shared is what a store says that several processes may use at once.
type shared interface {
	// Hints gives a token whenever another node may have made steps ready; a hint may be lost.
	Hints(context.Context) <-chan struct{}
	// Heard says that hints do come through.
	Heard() bool
	// RoleHints gives a token whenever somebody's place in a role has changed; it may be lost.
	RoleHints() <-chan struct{}
	// Accepting returns why the store accepts no commits at present, although it may answer; nil while it does.
	Accepting() error
	// Refused returns why a server was refused that claims to be the store; nil if none was.
	Refused() error
	// CheckSchema refuses the store once somebody has given it another schema.
	CheckSchema(context.Context) error
}

const (
	// sharedPoll is how often it is looked for the work of other nodes where no hints come through (a
	// pooler drops them). Where they do, the supervisor's look finds what was lost.
	sharedPoll = 250 * time.Millisecond
	writers    = 3
)

// New makes a node on a store. It answers from now on, and lets nothing out by itself before Start. Stop
// ends it; the store is the caller's to close after that.
func New(store Store, cfg Config) *Node {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	n := &Node{cfg: cfg, id: "node_" + uuid.NewString()[:13], log: cfg.Log, store: store, meter: newMeter(cfg.Version),
		plans: &definition.Compiler{}, since: time.Now(), hostName: hostName(cfg), failed: make(chan struct{})}
	newID := func() perdure.JobID {
		return kernel.WithCell(perdure.JobID(uuid.Must(uuid.NewV7())), int(n.cell.Load()))
	}
	sc := scheduler.Config{Store: store, NewID: newID, Compiler: n.plans, Log: cfg.Log, Meter: n.meter,
		Broken: n.fail, Sooner: func(at time.Time) { n.supervisor.Sooner(at) }, Writers: cfg.Writers, OneWrites: n.alone(), MaxBacklog: cfg.MaxBacklog}
	if sc.Writers == 0 {
		sc.Writers = writers
	}
	n.scheduler = scheduler.New(sc)
	n.supervisor = supervisor.New(supervisor.Config{Scheduler: n.scheduler, Store: store,
		Period: cfg.SweepPeriod, Batch: cfg.SweepBatch, Deposed: n.deposed, Looked: n.meter.looked, Swept: n.meter.sweptBy, Log: cfg.Log})
	n.courier = n.newCourier()
	n.elector = election.New(n.candidacy())
	n.meter.watchFollowers(n.scheduler.Followers)
	if store, ok := store.(shared); ok {
		n.meter.watchHints(store.Heard)
	}
	if len(cfg.Agents) > 0 {
		n.host = agenthost.New(agenthost.Config{Exchange: n.scheduler, Holder: n.holder(), Agents: cfg.Agents,
			Heartbeat: cfg.Heartbeat, Log: cfg.Log})
		n.meter.watchAgents(n.host)
	}
	n.life, n.end = context.WithCancelCause(context.Background())
	n.watch, n.unwatch = context.WithCancel(n.life)
	n.running.Go(func() { n.scheduler.Run(n.life) })
	return n
}

// alone says that no other process can have the store open.
func (n *Node) alone() bool {
	_, others := n.store.(shared)
	return !others
}

// holder is the name under which the agents here hold runs. A leading @ is kept for hosts that live
// and die with their node.
func (n *Node) holder() string { return "@" + n.id }

// ID names this incarnation of the process.
func (n *Node) ID() string { return n.id }

// Start makes the node work. On a store that no other process can have open, the runs of the node before
// are first taken back: its agents have died with it.
func (n *Node) Start(ctx context.Context) error {
	crashpoint.Here(crashpoint.NodeStart)
	if n.cfg.HostName != "" {
		if err := kernel.CheckHostName(n.cfg.HostName); err != nil {
			return fmt.Errorf("node: Config.HostName: %w", err)
		}
	}
	if n.cfg.MaxMail < 0 || n.cfg.MaxMail > kernel.MaxMaxMail {
		return fmt.Errorf("node: Config.MaxMail: it is 1 to %d, or 0 for the default, not %d", kernel.MaxMaxMail, n.cfg.MaxMail)
	}
	if err := n.inherit(ctx); err != nil {
		return err
	}
	crashpoint.Here(crashpoint.NodeInherited)
	cell, err := n.store.Cell(ctx)
	if err != nil {
		return unreachable(err)
	}
	n.cell.Store(int64(cell))
	if n.draining.Load() {
		return n.Ready(ctx)
	}
	if n.started.Swap(true) {
		return errors.New("node: started twice")
	}
	n.watching.Go(func() { n.supervisor.Run(n.watch) })
	n.watching.Go(func() { n.courier.Run(n.watch) })
	n.watching.Go(func() { n.watchBottlenecks(n.watch) })
	n.watching.Go(func() { n.elector.Run(n.watch) })
	if store, ok := n.store.(shared); ok {
		n.watching.Go(func() { n.heed(n.watch, store) })
	}
	if n.host != nil {
		n.running.Go(func() {
			if err := n.host.Run(n.life); err != nil && n.life.Err() == nil {
				n.log.Error("the agent host ended", "error", err)
			}
		})
	}
	crashpoint.Here(crashpoint.NodeStarted)
	return nil
}

// inherit takes back the runs that the dead node's own agents held.
func (n *Node) inherit(ctx context.Context) error {
	if !n.alone() {
		return nil
	}
	n.takeBack.Lock()
	defer n.takeBack.Unlock()
	if n.tookBack {
		return nil
	}
	holders, err := n.scheduler.EmbeddedHolders(ctx)
	if err != nil {
		return err
	}
	for _, h := range holders {
		if h == n.holder() {
			continue
		}
		total := 0
		for {
			did, err := n.scheduler.SweepLost(ctx, h, supervisor.DefaultBatch)
			if err != nil {
				return err
			}
			if total += did; did == 0 {
				break
			}
		}
		n.log.Info("took back the runs of a dead node", "holder", h, "runs", total)
	}
	n.tookBack = true
	return nil
}

// heed looks for work that other nodes have made ready, when they say so or, where that is not heard,
// now and then.
func (n *Node) heed(ctx context.Context, store shared) {
	hints := store.Hints(ctx)
	ear := ear{log: n.log, since: time.Now(), hears: true}
	commits := commits{log: n.log}
	refused := ""
	for ctx.Err() == nil {
		ear.note(store.Heard())
		commits.note(store.Accepting())
		if err := store.Refused(); err != nil && err.Error() != refused {
			refused = err.Error()
			n.log.Error("a server that claims to be the store was refused", "reason", refused)
		}
		poll := time.NewTimer(sharedPoll/2 + rand.N(sharedPoll))
		select {
		case _, more := <-hints:
			if !more {
				return
			}
		case <-poll.C:
			if store.Heard() {
				continue
			}
		case <-ctx.Done():
		}
		poll.Stop()
		n.scheduler.Hint(ctx)
	}
}

// ear tells when hints do not come through, and when they do again.
type ear struct {
	log   *slog.Logger
	since time.Time // of the latest change, or of the beginning
	hears bool
}

// deafAfter is how long hints may be missing before that is told: a connection is made anew, and tried.
const deafAfter = 5 * time.Second

func (e *ear) note(hears bool) {
	switch {
	case hears && !e.hears:
		e.hears = true
		e.log.Info("the store's notifications are heard again")
	case hears:
		e.since = time.Now()
	case e.hears && time.Since(e.since) > deafAfter:
		e.hears = false
		e.log.Warn("the store's notifications are not heard: is a pooler in transaction mode in between? It is polled instead", "every", sharedPoll.String())
	}
}

// commits logs that the store accepts no commits, with the reason, and that it accepts them again.
type commits struct {
	log *slog.Logger
	why string
}

func (c *commits) note(err error) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	switch {
	case why == c.why:
	case why == "":
		c.log.Info("the store accepts commits again")
	default:
		c.log.Error("the store accepts no commits; submissions, reports and acts are answered 503 until it does", "reason", why)
	}
	c.why = why
}

// errStopped is why nothing works after Stop.
var errStopped = &perdure.Error{Code: perdure.CodeUnavailable, Message: "the node has stopped", Hint: "ask another node"}

// lastMoment is how long Stop waits for what should be over, beyond the time that it was given.
const lastMoment = 2 * time.Second

// Stop ends the node: it takes no more, gives back what has not started, waits for what runs until ctx ends,
// and lets everything that was accepted be written.
func (n *Node) Stop(ctx context.Context) error {
	crashpoint.Here(crashpoint.NodeStop)
	n.draining.Store(true)
	n.unwatch()
	var err error
	if n.host != nil && n.started.Load() {
		err = n.host.Drain(ctx)
	}
	crashpoint.Here(crashpoint.NodeDrained)
	n.end(errStopped)
	over := make(chan struct{})
	go func() {
		n.watching.Wait()
		n.running.Wait()
		close(over)
	}()
	select {
	case <-over:
	case <-time.After(lastMoment): // a store that does not answer holds nobody up
		return errors.Join(err, errors.New("the store has not answered to the last"))
	}
	if n.started.Load() { // nobody is to look for it, until its row is a day old
		crashpoint.Here(crashpoint.NodeUnlist)
		n.unlist(ctx)
	}
	crashpoint.Here(crashpoint.NodeStopped)
	return err
}

func (n *Node) unlist(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := n.store.DropNode(ctx, n.id); err != nil {
		n.log.Debug("could not leave the list of nodes", "error", err)
	}
}

// fail ends everything at once: what the store has acknowledged may not be on the disk, and nothing may be
// built upon it (F110).
func (n *Node) fail(why error) {
	n.ending.Lock()
	defer n.ending.Unlock()
	if n.life.Err() == nil {
		n.log.Error("the node has ended: start it anew once the cause is mended", "error", why)
		n.draining.Store(true)
		n.end(why)
		close(n.failed)
	}
}

// Failed is closed when the node has ended by itself, because its store cannot be relied upon any more.
// The program is to end then, too.
func (n *Node) Failed() <-chan struct{} { return n.failed }

// Sweep is one round of the supervisor, for those who start it from a scheduler of their own.
func (n *Node) Sweep(ctx context.Context) (supervisor.Swept, error) {
	if err := n.inherit(ctx); err != nil {
		return supervisor.Swept{}, err
	}
	return n.supervisor.Sweep(ctx)
}

// unreachable is a store's error as the outside gets it.
func unreachable(err error) error {
	if perdure.CodeOf(err) != "" || errors.Is(err, context.Canceled) {
		return err
	}
	return &perdure.Error{Code: perdure.CodeUnavailable, Message: fmt.Sprintf("the store does not answer: %v", err), Hint: "try again later"}
}
