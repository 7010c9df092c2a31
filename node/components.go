package node

import (
	"context"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/artifacts"
	"github.com/perdure/perdure/internal/courier"
	"github.com/perdure/perdure/internal/election"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/metrics"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/internal/stats"
	"github.com/perdure/perdure/internal/timetable"
	"github.com/perdure/perdure/internal/watch"
	"github.com/perdure/perdure/internal/webhook"
)

// component is a part of a node that runs until its context ends.
type component struct {
	name string
	role string                // it runs while the node leads this role; "": while the node runs
	run  func(context.Context) // nil: this store, or this node, does not need it
}

// components returns what a node runs besides the scheduler, which runs from New to Stop, and the agents, which run from
// Start until Stop has drained them.
func (n *Node) components() []component {
	return []component{
		{name: "supervisor", run: n.supervisor.Run},
		{name: "supervisor", role: kernel.RoleSupervisor, run: n.supervisor.Lead},
		{name: "timetable", role: kernel.RoleSupervisor, run: n.timetable.Lead},
		{name: "horizon", role: kernel.RoleSupervisor, run: n.horizon()},
		{name: "statistics", role: kernel.RoleSupervisor, run: n.statistics().Lead},
		{name: "artifacts", role: kernel.RoleSupervisor, run: n.artifactSweeper()},
		{name: "logs", role: kernel.RoleSupervisor, run: n.logMover()},
		{name: "courier", run: n.courier.Run},
		{name: "courier", role: kernel.RoleCourier, run: n.courier.Lead},
		{name: "bulk", role: kernel.RoleCourier, run: n.bulk.Lead},
		{name: "webhooks", role: kernel.RoleCourier, run: n.webhooks.Lead},
		{name: "elector", run: n.elector.Run},
		{name: "listener", run: n.listener()},
		{name: "outbox wake-ups", run: n.outboxWakeups()},
		{name: "bottlenecks", run: n.bottlenecks().Run},
	}
}

// runs returns the components that run as long as the node.
func runs(ctx context.Context, list []component) (fs []func()) {
	for _, c := range list {
		if c.role == "" && c.run != nil {
			fs = append(fs, func() { c.run(ctx) })
		}
	}
	return fs
}

// duties returns, for each role, the components that run while the node leads it.
func (n *Node) duties() map[string]election.Service {
	byRole := map[string][]component{}
	for _, c := range n.components() {
		if role := c.role; role != "" {
			c.role = ""
			byRole[role] = append(byRole[role], c)
		}
	}
	duties := map[string]election.Service{}
	for role, list := range byRole {
		duties[role] = func(ctx context.Context) { env.Start(n.env, runs(ctx, list)...)() }
	}
	return duties
}

// horizon returns a component for stores that report the transaction that blocks vacuum.
func (n *Node) horizon() func(context.Context) {
	store, ok := n.store.(interface {
		OldestTransaction(context.Context) (age time.Duration, session string, err error)
	})
	if !ok {
		return nil
	}
	h := &watch.Horizon{Oldest: store.OldestTransaction, Bound: n.cfg.OldTransaction, Metric: n.metrics.OldestTransaction, Log: n.log, Env: n.env}
	return h.Run
}

// artifactSweeper returns a component that deletes unused artifacts, if this node keeps some.
func (n *Node) artifactSweeper() func(context.Context) {
	d, ok := n.cfg.Artifacts.(artifacts.Deleter)
	if !ok {
		return nil
	}
	return (&artifacts.Sweeper{Artifacts: d, Store: timetable.UsedArtifacts{ArtifactReader: n.store, Store: n.store}, Log: n.log, Env: n.env}).Lead
}

// logMover returns a component that moves logs of ended runs to artifacts, if this node keeps some.
func (n *Node) logMover() func(context.Context) {
	if n.cfg.Artifacts == nil {
		return nil
	}
	return (&artifacts.Mover{Artifacts: n.cfg.Artifacts, Store: n.store, Moved: n.metrics.LogMoved, Log: n.log, Env: n.env}).Lead
}

func (n *Node) statistics() *stats.Leader {
	return stats.NewLeader(stats.Config{Store: n.store, Claims: n.scheduler.AllSeen, RoleTTL: n.cfg.RoleTTL, Deposed: n.deposed, Computed: n.metrics.Computed, Log: n.log, Env: n.env})
}

// meter counts each event for Prometheus, and for the overview.
type meter struct {
	*metrics.Metrics
	counters *stats.Counters
}

var _ scheduler.Meter = meter{}

func (m meter) Submitted(typ string) {
	m.Metrics.Submitted(typ)
	m.counters.Submitted(typ)
}

func (m meter) Settled(typ string, as perdure.State, duration time.Duration) {
	m.Metrics.Settled(typ, as, duration)
	m.counters.Settled(typ, as)
}

func (m meter) Parked(typ string)                 { m.counters.Parked(typ) }
func (m meter) RunFailed(typ, agent, code string) { m.counters.Failed(typ, agent, code) }
func (m meter) RefusedOf(agent string)            { m.counters.Refused(agent) }

func (n *Node) listener() func(context.Context) {
	if n.shared == nil {
		return nil
	}
	l := &watch.Listener{Store: n.shared, Wake: n.scheduler.WakeReady, Log: n.log, Env: n.env}
	return l.Run
}

// outboxWakeups returns a component that wakes the deliverer when another process has stored notifications.
func (n *Node) outboxWakeups() func(context.Context) {
	if n.shared == nil {
		return nil
	}
	return func(ctx context.Context) { n.forward(ctx, n.shared.OutboxWakeups(), n.webhooks.Wake) }
}

// wakeReaders wakes the readers of streams when another process has added events to streams, and at the end of the node.
func (n *Node) wakeReaders(ctx context.Context) {
	var wakeups <-chan struct{}
	if n.shared != nil {
		wakeups = n.shared.StreamWakeups()
	}
	n.forward(ctx, wakeups, n.streams.Wake)
	n.streams.Wake()
}

// forward calls wake for each token, until ctx ends.
func (n *Node) forward(ctx context.Context, tokens <-chan struct{}, wake func()) {
	for n.env.Wait(ctx, env.Forever, tokens) == env.Got && ctx.Err() == nil {
		wake()
	}
}

func (n *Node) bottlenecks() *watch.Bottlenecks {
	return &watch.Bottlenecks{Find: n.scheduler.Bottlenecks, Metrics: n.metrics.Bottlenecks, Log: n.log, Env: n.env}
}

// The intervals at which the courier reads mail without a wake-up, on a store that several processes use.
const (
	mailPollWithoutWakeups = 500 * time.Millisecond // if no wake-ups reach this node
	mailPollWithWakeups    = 10 * time.Second       // if wake-ups reach it
)

func (n *Node) mailPoll() time.Duration {
	switch {
	case n.shared == nil:
		return courier.DefaultPoll
	case n.shared.Listening():
		return mailPollWithWakeups
	}
	return mailPollWithoutWakeups
}

// wakeupsArrive reports whether this node learns soon of what is stored: it stores everything itself, or other nodes wake it.
func (n *Node) wakeupsArrive() bool { return n.shared == nil || n.shared.Listening() }

func (n *Node) outboxPoll() time.Duration {
	if n.wakeupsArrive() {
		return webhook.PollWithWakeups
	}
	return webhook.DefaultPoll
}

// The intervals at which a reader reads a stream without a wake-up.
const (
	eventPollWithoutWakeups = 500 * time.Millisecond
	eventPollWithWakeups    = 10 * time.Second
)

func (n *Node) eventPoll() time.Duration {
	if n.wakeupsArrive() {
		return eventPollWithWakeups
	}
	return eventPollWithoutWakeups
}
