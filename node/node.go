// Package node connects the parts of one process of Perdure: a scheduler, a supervisor, a courier, an elector, and the agents
// that run in this process, on one store. It connects them, starts them and stops them; it decides nothing.
//
// A Node is a perdure.Service: the methods of its embedded Service submit jobs, read them and act on them.
//
//	n := node.New(store, node.Config{Agents: agents})
//	if err := n.Start(ctx); err != nil {
//		return err
//	}
//	defer func() {
//		// ctx may have ended by now: the drain needs time of its own.
//		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
//		defer cancel()
//		if err := n.Stop(grace); err != nil {
//			slog.Error("node did not stop cleanly", "error", err)
//		}
//	}()
//	job, _, err := perdure.Submit(ctx, n, definition)
//
// What a node runs, and when, is the table in components.go.
package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/access"
	"github.com/perdure/perdure/internal/agenthost"
	"github.com/perdure/perdure/internal/bulk"
	"github.com/perdure/perdure/internal/courier"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/election"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/hook"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/metrics"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/internal/service"
	"github.com/perdure/perdure/internal/speed"
	"github.com/perdure/perdure/internal/stats"
	"github.com/perdure/perdure/internal/supervisor"
	"github.com/perdure/perdure/internal/timetable"
	"github.com/perdure/perdure/internal/traceid"
	"github.com/perdure/perdure/internal/watch"
	"github.com/perdure/perdure/internal/webhook"
	"github.com/perdure/perdure/operate"
)

// Store is where a node keeps everything: store.Open, store/sqlite or store/postgres opens one. Its methods are for the
// packages of Perdure.
type Store = kernel.Store

// DefaultRoleTTL is for how long a node keeps its roles after its latest roll call.
const DefaultRoleTTL = kernel.DefaultRoleTTL

// DefaultOldTransaction is the age at which a transaction that blocks vacuum is logged.
const DefaultOldTransaction = watch.DefaultOldTransaction

// DefaultLogRate is how many bytes of logs a node stores in a second: more would slow down everything else in the store.
const DefaultLogRate = service.DefaultLogRate

// Config configures a node. The zero value is a node without agents of its own.
type Config struct {
	Agents []*perdure.Agent
	Listen string // the address of the node's REST API, shown in the list of nodes
	// HostName names the host of the node: leader and standby of a role run on different hosts where possible. It has 1
	// to 253 bytes, printable and without spaces; "": the operating system's name of the host.
	HostName string
	Version  string
	Log      *slog.Logger // nil: nothing is logged

	// SecretsDir is a directory with a file for each secret that runs of Agents may use (${secret.NAME}). It is read again
	// for each run. A secret without a file is that of the environment variable PERDURE_SECRET_NAME.
	SecretsDir string

	SweepPeriod time.Duration // the longest time between two due scans of the supervisor; 0: 1s
	SweepBatch  int           // rows in one transaction of the supervisor; 0: 500
	// OldTransaction is the age at which a transaction that keeps PostgreSQL from removing dead rows is logged; 0:
	// DefaultOldTransaction.
	OldTransaction time.Duration
	RoleTTL        time.Duration // for how long the node keeps its roles after its latest roll call; 0: DefaultRoleTTL
	Heartbeat      time.Duration // of the agents in this process; 0: 10s
	// MaxMail bounds the mail that waits to be applied: submissions in callers' transactions. The leader of the role
	// courier stores its number for all nodes; 0: 1,000,000.
	MaxMail    int
	MaxBacklog int // unsettled jobs above which a submission is refused; 0: 1,000,000
	// Artifacts keeps data that is larger than an input or output. All nodes of a store share it. nil: there are none.
	Artifacts operate.Artifacts
	// LogRate bounds the bytes of logs of runs that the node stores in a second; 0: DefaultLogRate.
	LogRate int64
	// Webhooks configures the delivery of notifications.
	Webhooks Webhooks
	Writers  int // transactions of the scheduler in progress at the same time; 0: 3

	// Tracer exports traces: a *tracing.Tracer. The node runs it, and it ends with the node. nil: no traces.
	Tracer Tracer
	// TraceURL is where the trace of a job is shown, with {traceId} for its id. Views of jobs have it. It may be empty.
	TraceURL string

	Hooks *hook.Hooks // for Perdure's own simulation
}

// Tracer exports traces. Package tracing has the implementation, so that a program without traces does not link it.
type Tracer interface {
	scheduler.Tracer
	TraceID(perdure.JobID) string           // of a job's trace; empty if it is not exported
	Run(context.Context)                    // exports until the context ends, and then what is left, for a short time
	Spans() (exported int64, dropped int64) // since the start
}

// WithTraceparent returns a context for submissions that belong to a span of the caller, in the form of the header
// traceparent of W3C Trace Context. The spans of the jobs have a link to it. In a handler that is not needed: the jobs
// that it submits belong to its run.
func WithTraceparent(ctx context.Context, traceparent string) context.Context {
	return traceid.With(ctx, traceparent)
}

// Webhooks configures how a node delivers notifications.
type Webhooks struct {
	// ForbidPrivate refuses to deliver to this machine, its link and metadata services of clouds, except to addresses
	// within Allow.
	ForbidPrivate bool
	Allow         []netip.Prefix
	// PublicURL is the address of the REST API and the console, for links in messages; "": they have no links.
	PublicURL string
	// Secret returns the secrets that definitions name in notify; nil: there are none.
	Secret func(name string) (string, bool)
}

// Node is one process of the grid. Its methods may be called from any goroutine.
type Node struct {
	*service.Service // implements perdure.Service and protocol.Exchange

	cfg      Config
	id       string
	hostName string
	env      env.Env
	log      *slog.Logger
	store    Store
	shared   kernel.SharedStore // the same store; nil if no other process can have it open
	metrics  *metrics.Metrics
	counters *stats.Counters
	since    time.Time
	cell     atomic.Int64 // of the store; see kernel.WithCell
	roll     roll
	trial    trial

	scheduler  *scheduler.Scheduler
	supervisor *supervisor.Supervisor
	courier    *courier.Courier
	bulk       *bulk.Worker
	timetable  *timetable.Timetable
	webhooks   *webhook.Deliverer
	streams    webhook.Streams
	access     *access.Registry
	elector    *election.Elector
	host       *agenthost.Host // nil: no agents here

	life     context.Context // ends with the scheduler and the agents
	end      context.CancelCauseFunc
	watching context.Context // ends with the other components: with life, or before
	unwatch  context.CancelFunc
	failed   chan struct{} // closed when the store is no longer reliable
	started  atomic.Bool
	draining atomic.Bool // Stop was called, or the node has failed

	takingOver env.Lock
	tookOver   bool

	mu         sync.Mutex
	waits      []func() // each waits for the end of some components
	stopTracer func()   // ends the tracer, after all that reports to it, and waits for it
}

// writers is the default of Config.Writers.
const writers = 3

// New returns a node on a store. The node answers calls from now on, but dispatches no steps before Start. Stop ends it.
// After that, the caller closes the store.
func New(store Store, cfg Config) *Node {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.RoleTTL = cmp.Or(max(cfg.RoleTTL, 0), kernel.DefaultRoleTTL)
	n := &Node{cfg: cfg, id: "node_" + uuid.NewString()[:13], env: env.Real{}, log: cfg.Log, store: store, metrics: metrics.New(cfg.Version),
		hostName: hostName(cfg), failed: make(chan struct{}), takingOver: env.NewLock()}
	newID := func() perdure.JobID { return perdure.JobID(uuid.Must(uuid.NewV7())) }
	var compiler hook.Compiler = &definition.Compiler{}
	if h := cfg.Hooks; h != nil {
		n.env, n.id, newID, compiler = h.Env, h.ID, h.NewID, h.Compiler
	}
	n.since = n.env.Wall()
	n.shared, _ = store.(kernel.SharedStore)
	n.life, n.end = context.WithCancelCause(context.Background())
	n.watching, n.unwatch = context.WithCancel(n.life)
	n.counters = stats.NewCounters(stats.CountersConfig{Store: store, Node: n.id, StoreTime: n.storeTime, Log: n.log, Env: n.env})
	n.scheduler = scheduler.New(n.schedulerConfig(compiler, newID))
	n.supervisor = supervisor.New(n.supervisorConfig())
	book := timetable.NewBook(service.CompileWith(compiler), store.StoredDefinition)
	n.timetable = timetable.New(timetable.Config{Store: store, Scheduler: n.scheduler, Book: book, Fired: n.metrics.Fired, Deposed: n.deposed, Log: n.log, Env: n.env})
	var traceID func(perdure.JobID) string
	if cfg.Tracer != nil {
		traceID = cfg.Tracer.TraceID
	}
	s := service.Config{TraceID: traceID, TraceURL: cfg.TraceURL, Store: store, Scheduler: n.scheduler, Compiler: compiler, Schedules: book, Life: n.life, Refuse: n.refuse, TakeOver: n.takeOver,
		WakeCourier: n.Wake, WakeBulk: func() { n.bulk.Wake() }, Streams: &n.streams, EventPoll: n.eventPoll, Node: n.id, RoleTTL: cfg.RoleTTL, Shared: n.shared != nil, LogRate: cfg.LogRate, Artifacts: cfg.Artifacts, Log: n.log, Env: n.env}
	if h := cfg.Hooks; h != nil && h.Service != nil {
		h.Service(&s)
	}
	n.Service = service.New(s)
	n.courier = courier.New(courier.Config{Store: store, Scheduler: n.scheduler, Compile: n.CompileMail, MaxMail: cfg.MaxMail, Poll: n.mailPoll,
		Applied: n.metrics.Delivered, Waiting: n.metrics.Waiting, Log: n.log, Env: n.env})
	n.webhooks = webhook.New(n.webhookConfig())
	n.access = access.New(access.Config{Store: store, FindJobs: store.FindJobs, Scheduler: n.scheduler, StoreTime: n.nearlyStoreTime, Failed: n.metrics.AuthFailed, Log: n.log, Env: n.env})
	n.bulk = bulk.New(bulk.Config{Store: store, Scheduler: n.scheduler, Find: n.FindBulk, Log: n.log, Env: n.env})
	if len(cfg.Agents) > 0 {
		n.host = n.newHost()
		n.metrics.WatchAgents(n.host)
	}
	n.elector = election.New(n.electorConfig())
	n.metrics.WatchFollowers(n.scheduler.Followers)
	if n.shared != nil {
		n.metrics.WatchWakeups(n.shared.Listening)
	}
	n.stopTracer = func() {}
	if t := cfg.Tracer; t != nil {
		n.metrics.WatchTraces(t.Spans)
		ctx, stop := context.WithCancel(context.Background())
		wait := env.Start(n.env, func() { t.Run(ctx) })
		n.stopTracer = func() { stop(); wait() }
	}
	n.run(n.life, component{name: "scheduler", run: n.scheduler.Run}, component{name: "streams", run: n.wakeReaders})
	return n
}

func (n *Node) schedulerConfig(compiler kernel.Compiler, newID func() perdure.JobID) scheduler.Config {
	c := scheduler.Config{Store: n.store, Compiler: compiler, Log: n.log, Meter: meter{n.metrics, n.counters}, Tracer: n.tracer(), OnBroken: n.fail,
		OnNotify:   func() { n.webhooks.Wake() },
		OnSchedule: func() { n.timetable.Wake() },
		OnWait:     func(at time.Time) { n.supervisor.Sooner(at) },
		Writers:    cmp.Or(n.cfg.Writers, writers), SingleWriter: n.shared == nil, MaxBacklog: n.cfg.MaxBacklog, Env: n.env,
		NewID: func() perdure.JobID { return kernel.WithCell(newID(), int(n.cell.Load())) }}
	if n.cfg.Artifacts != nil {
		c.Artifacts = n.cfg.Artifacts
	}
	if n.cfg.Hooks != nil {
		n.cfg.Hooks.Scheduler(&c)
	}
	return c
}

// tracer returns the tracer as the scheduler needs it. A nil interface stays nil.
func (n *Node) tracer() scheduler.Tracer {
	if n.cfg.Tracer == nil {
		return nil
	}
	return n.cfg.Tracer
}

func (n *Node) webhookConfig() webhook.Config {
	w := n.cfg.Webhooks
	c := webhook.Config{Store: n.store, PublicURL: w.PublicURL, Secret: w.Secret, Delivered: n.metrics.WebhookDelivery, Pending: n.metrics.WebhookPending, Poll: n.outboxPoll, Streamed: n.streams.Wake, Log: n.log, Env: n.env}
	if h := n.cfg.Hooks; h != nil && h.Webhooks != nil {
		h.Webhooks(&c)
	}
	if c.Poster == nil {
		c.Poster = webhook.NewHTTP(webhook.HTTPConfig{ForbidPrivate: w.ForbidPrivate, Allow: w.Allow})
	}
	return c
}

func (n *Node) supervisorConfig() supervisor.Config {
	c := supervisor.Config{Scheduler: n.scheduler, Store: n.store, Period: n.cfg.SweepPeriod, Batch: n.cfg.SweepBatch,
		Deposed: n.deposed, Scanned: n.metrics.Scanned, Swept: n.metrics.Swept, Log: n.log, Env: n.env}
	if n.cfg.Hooks != nil {
		n.cfg.Hooks.Supervisor(&c)
	}
	return c
}

func (n *Node) newHost() *agenthost.Host {
	c := agenthost.Config{Exchange: n.scheduler, Holder: n.holder(), Agents: n.cfg.Agents, Heartbeat: n.cfg.Heartbeat, SecretsDir: n.cfg.SecretsDir, Log: n.log, Env: n.env}
	if n.cfg.Hooks != nil {
		return n.cfg.Hooks.AgentHost(c)
	}
	return agenthost.New(c)
}

// holder returns the name under which the agents in this process hold runs. The leading @ marks a holder that ends with
// its node.
func (n *Node) holder() string { return "@" + n.id }

// ID returns the name of this incarnation of the process.
func (n *Node) ID() string { return n.id }

// Start makes the node work. If no other process can have the store open, it first takes back the runs of agents that
// ended with an earlier node. ctx bounds the start, not the work: Stop ends that.
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
	if err := n.takeOver(ctx); err != nil {
		return err
	}
	crashpoint.Here(crashpoint.NodeInherited)
	cell, err := n.store.Cell(ctx)
	if err != nil {
		return service.Unreachable(err)
	}
	n.cell.Store(int64(cell))
	if err := n.refuse(); err != nil {
		return err
	}
	if n.started.Swap(true) {
		return errors.New("node: started twice")
	}
	if off := speed.Off(); len(off) > 0 {
		n.log.Warn("optimisations are switched off", "by", speed.Variable, "off", off)
	}
	n.run(n.watching, n.components()...)
	n.run(n.life, component{name: "counters", run: n.counters.Run}) // it counts what the agents report until they have ended
	if n.host != nil {
		n.run(n.life, component{name: "agents", run: n.runAgents})
	}
	crashpoint.Here(crashpoint.NodeStarted)
	return nil
}

func (n *Node) runAgents(ctx context.Context) {
	if err := n.host.Run(ctx); err != nil && ctx.Err() == nil {
		n.log.Error("agent host ended", "error", err)
	}
}

// run starts components. Stop waits for their end.
func (n *Node) run(ctx context.Context, list ...component) {
	wait := env.Start(n.env, runs(ctx, list)...)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waits = append(n.waits, wait)
}

// takeOver takes back the runs that the agents of an earlier node held: the agents have ended with that node. It does so
// once, and only if no other process can have the store open.
func (n *Node) takeOver(ctx context.Context) error {
	if n.shared != nil {
		return nil
	}
	if !n.takingOver.Acquire(ctx, n.env) {
		return ctx.Err()
	}
	defer n.takingOver.Release()
	if n.life.Err() != nil { // the node has stopped while this call waited: its store may be closed
		return context.Cause(n.life)
	}
	if n.tookOver {
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
			ended, err := n.scheduler.SweepLost(ctx, h, supervisor.DefaultBatch)
			if err != nil {
				return err
			}
			if total += ended; ended == 0 {
				break
			}
		}
		n.log.Info("took back the runs of a dead node", "holder", h, "runs", total)
	}
	n.tookOver = true
	return nil
}

// stopSlack is the time for which Stop waits for components after the time that its caller allows the agents.
const stopSlack = 2 * time.Second

// Stop ends the node: it accepts no more work, returns runs that have not begun, waits for the others until ctx ends, and
// writes everything that was accepted.
func (n *Node) Stop(ctx context.Context) error {
	crashpoint.Here(crashpoint.NodeStop)
	n.draining.Store(true)
	n.unwatch()
	var err error
	if n.host != nil && n.started.Load() {
		err = n.host.Drain(ctx)
	}
	crashpoint.Here(crashpoint.NodeDrained)
	n.end(service.ErrStopped)
	ended := make(chan struct{}, 1)
	n.env.Go(func() {
		n.mu.Lock()
		waits := n.waits
		n.mu.Unlock()
		for _, wait := range waits {
			wait()
		}
		n.stopTracer()
		ended <- struct{}{}
	})
	if n.env.Wait(context.Background(), stopSlack, ended) == env.Late {
		return errors.Join(err, errors.New("store did not respond before the shutdown deadline"))
	}
	if n.started.Load() { // otherwise the list of nodes shows this node for another day
		crashpoint.Here(crashpoint.NodeUnlist)
		n.unlist(ctx)
	}
	crashpoint.Here(crashpoint.NodeStopped)
	return err
}

func (n *Node) unlist(ctx context.Context) {
	ctx, cancel := env.WithTimeout(n.env, context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := n.store.DropNode(ctx, n.id); err != nil {
		n.log.Debug("could not remove this node from the list of nodes", "error", err)
	}
}

// fail ends everything at once: what the store has acknowledged may not be on the disk, so no further write may depend
// on it (F110).
func (n *Node) fail(why error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.life.Err() == nil {
		n.log.Error("node has failed; restart it after the cause is removed", "error", why)
		n.draining.Store(true)
		n.end(why)
		close(n.failed)
	}
}

// Failed returns a channel that is closed when the node has ended by itself, because its store is no longer reliable.
// The program should end then, too.
func (n *Node) Failed() <-chan struct{} { return n.failed }

// Sweep makes one round of the supervisor, for programs that start it from a scheduler of their own, such as cron.
func (n *Node) Sweep(ctx context.Context) (supervisor.Swept, error) {
	if err := n.takeOver(ctx); err != nil {
		return supervisor.Swept{}, err
	}
	return n.supervisor.Sweep(ctx)
}

// Wake makes the node read mail at once. A program calls it after it has committed a SubmitTx on SQLite, where no other
// wake-up reaches the node. It never waits.
func (n *Node) Wake() { n.courier.Wake() }

// Metrics returns the handler of Prometheus scrapes.
func (n *Node) Metrics() http.Handler { return n.metrics.Handler() }

// Registry returns the registry, in which other parts of the process may register metrics.
func (n *Node) Registry() *prometheus.Registry { return n.metrics.Registry }

// Access returns the registry that identifies the callers of the node's REST API. Package rest uses it.
func (n *Node) Access() *access.Registry { return n.access }
