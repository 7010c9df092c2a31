// Package election elects the leaders of the grid's roles (kernel.Role).
//
// Each node has an Elector. At random intervals it makes a roll call: it renews the row of its node in the store, and
// reads the roles. If a role has no leader or no standby, the elector enlists its node for the place. It also takes the
// standby's place if leader and standby are on one host and its node is on another. The places are leases: they lapse
// unless the next roll calls renew them. If its node leads two or more roles, and the standby of one of them leads none,
// the elector hands that role over.
//
// While the node leads a role, the elector runs the role's Service. The service's context ends with the leadership, and
// carries the leadership (kernel.Leadership): role, node and epoch.
//
// Two nodes may believe for a moment that they lead, for example after a pause between the check of the clock and a
// write. This does no harm (I15), because the store checks the epoch of each write again, under the lock of the role's
// row.
package election

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
)

// Store keeps the roles.
type Store interface {
	ReportNode(context.Context, kernel.NodeReport) (kernel.NodeAnswer, error)
	Update(context.Context, func(kernel.Tx) error) error
}

// Service runs while the node leads a role, until ctx ends. It is started again only after it has returned.
type Service func(ctx context.Context)

// Config configures an Elector. Store, Node and Roles are required.
type Config struct {
	Store Store
	Node  string
	Host  string // of the node: leader and standby of a role are on different hosts where possible
	Roles map[string]Service

	TTL        time.Duration                          // 0: kernel.DefaultRoleTTL
	Alone      bool                                   // no other process can have the store open: the holders of all places are dead
	Report     func() kernel.NodeReport               // returns what else a roll call stores; the elector sets Node.ID, Node.Host and TTL; nil: nothing
	RollCalled func(kernel.NodeAnswer, time.Duration) // called with the store's answer to a roll call, and its duration; nil: not called
	Wakeups    <-chan struct{}                        // receives when the place of a node may have changed; nil: never
	Changed    func(role string, leads bool)          // called when the node begins to lead, and when it stops; nil: not called
	Log        *slog.Logger
	Env        env.Env // nil: env.Real
}

// The intervals are fractions of TTL. At least two roll calls fall into TTL, so that one may fail. A leader ends its
// leadership TTL/earlierShare before the store does, because clocks differ in rate and timers may be late.
const (
	minWaitShare = 4 // TTL/minWaitShare to TTL/maxWaitShare between two roll calls
	maxWaitShare = 2
	failedShare  = 16
	timeoutShare = 3
	marginShare  = 10

	lapseSlack = 10 * time.Millisecond // a roll call for a place that lapses follows so much after the lapse
	leaveTime  = time.Second           // the longest time to wait for services, and for the store, when the node leaves
)

// Elector competes for the roles on behalf of its node.
type Elector struct {
	cfg         Config
	rollCallDue chan struct{} // receives when the next roll call is due at once
	mu          sync.Mutex
	leaderships map[string]*leadership
}

// New returns an elector. Run starts it.
func New(cfg Config) *Elector {
	if cfg.TTL <= 0 {
		cfg.TTL = kernel.DefaultRoleTTL
	}
	if cfg.Report == nil {
		cfg.Report = func() kernel.NodeReport { return kernel.NodeReport{} }
	}
	if cfg.RollCalled == nil {
		cfg.RollCalled = func(kernel.NodeAnswer, time.Duration) {}
	}
	if cfg.Changed == nil {
		cfg.Changed = func(string, bool) {}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Env == nil {
		cfg.Env = env.Real{}
	}
	return &Elector{cfg: cfg, rollCallDue: make(chan struct{}, 1), leaderships: map[string]*leadership{}}
}

// Run takes part in elections until ctx ends. Then it hands over the node's places, so that other nodes need not wait
// until they lapse, and returns.
func (e *Elector) Run(ctx context.Context) {
	fresh := e.cfg.Alone
	failed := false
	if e.cfg.Wakeups != nil {
		e.cfg.Env.Go(func() { e.heedWakeups(ctx) })
	}
	for ctx.Err() == nil {
		next, err := e.round(ctx, fresh)
		if err != nil {
			next = e.cfg.TTL / failedShare
			if !failed && ctx.Err() == nil {
				e.cfg.Log.Warn("roll call failed; retrying", "error", err)
			}
		} else {
			fresh = false
		}
		failed = err != nil
		e.cfg.Env.Wait(ctx, next, e.rollCallDue)
	}
	e.leave(ctx)
}

// heedWakeups makes a roll call soon after each wake-up.
func (e *Elector) heedWakeups(ctx context.Context) {
	for e.cfg.Env.Wait(ctx, env.Forever, e.cfg.Wakeups) == env.Got && ctx.Err() == nil {
		e.rollCallNow()
	}
}

func (e *Elector) rollCallNow() {
	select {
	case e.rollCallDue <- struct{}{}:
	default:
	}
}

// Deposed ends a leadership after the store has refused one of its writes.
func (e *Elector) Deposed(m kernel.Leadership) {
	e.end(m.Role, "a write was refused", func(current kernel.Leadership) bool { return current == m })
	e.rollCallNow()
}

// round makes one roll call, and takes part in an election if a place is free. It returns the time until the next roll
// call.
func (e *Elector) round(ctx context.Context, fresh bool) (next time.Duration, err error) {
	calledAt := e.cfg.Env.Now() // before the call, so that times counted from here end early
	roll, err := e.attend(ctx)
	if err != nil {
		return 0, err
	}
	e.cfg.RollCalled(roll, e.cfg.Env.Now().Sub(calledAt))
	now, roles := roll.Now, e.ownRoles(roll.Roles)
	if fresh || slices.ContainsFunc(roles, func(r kernel.Role) bool { return e.enlist(r, now) != r }) {
		if now, roles, err = e.elect(ctx, fresh); err != nil {
			return 0, err
		}
	}
	e.follow(ctx, roles, now, calledAt)
	if name := kernel.Spread(roles, e.cfg.Node, now); name != "" {
		e.handOver(ctx, name)
		return e.cfg.TTL / failedShare, nil // the next roll call reads the new leader
	}
	return e.wait(roles, now), nil
}

func (e *Elector) attend(ctx context.Context) (kernel.NodeAnswer, error) {
	ctx, cancel := env.WithTimeout(e.cfg.Env, ctx, e.cfg.TTL/timeoutShare)
	defer cancel()
	p := e.cfg.Report()
	p.Node.ID, p.Node.Host, p.TTL = e.cfg.Node, e.cfg.Host, e.cfg.TTL
	crashpoint.Here(crashpoint.NodeEnlist)
	defer crashpoint.Here(crashpoint.NodeEnlisted)
	return e.cfg.Store.ReportNode(ctx, p)
}

// ownRoles returns the roles that this node competes for, ordered by name, including those that have had no leader yet.
func (e *Elector) ownRoles(all []kernel.Role) (roles []kernel.Role) {
	for _, name := range e.names() {
		r := kernel.Role{Name: name}
		if i := slices.IndexFunc(all, func(r kernel.Role) bool { return r.Name == name }); i >= 0 {
			r = all[i]
		}
		roles = append(roles, r)
	}
	return roles
}

// elect reads the roles again under the locks of their rows, and takes the free places. It returns the roles after that,
// and the time that was read under the locks.
func (e *Elector) elect(ctx context.Context, fresh bool) (now time.Time, roles []kernel.Role, err error) {
	err = e.change(ctx, func(all []kernel.Role, at time.Time) []kernel.Role {
		now, roles = at, nil
		for _, r := range all {
			if fresh {
				r = r.Vacate()
			}
			roles = append(roles, e.enlist(r, at))
		}
		return roles
	})
	return now, roles, err
}

// enlist returns the role after this node has taken the place that it may take, if any.
func (e *Elector) enlist(r kernel.Role, now time.Time) kernel.Role {
	return r.Enlist(e.cfg.Node, e.cfg.Host, now, e.cfg.TTL)
}

func (e *Elector) names() []string { return slices.Sorted(maps.Keys(e.cfg.Roles)) }

// change applies a rule to the roles in a transaction. The rule may be called several times, and returns the roles in the
// order in which it got them.
func (e *Elector) change(ctx context.Context, rule func([]kernel.Role, time.Time) []kernel.Role) error {
	ctx, cancel := env.WithTimeout(e.cfg.Env, ctx, e.cfg.TTL/timeoutShare)
	defer cancel()
	crashpoint.Here(crashpoint.RoleChange)
	defer crashpoint.Here(crashpoint.RoleChanged)
	return e.cfg.Store.Update(ctx, func(tx kernel.Tx) error {
		before, err := tx.LockRoles(e.names())
		if err != nil {
			return err
		}
		now, err := tx.Now()
		if err != nil {
			return err
		}
		var changes []kernel.RoleChange
		for i, r := range rule(before, now) {
			if r != before[i] {
				changes = append(changes, kernel.RoleChange{Now: r, Loaded: before[i]})
			}
		}
		return tx.SaveRoles(changes)
	})
}

// handOver hands a role over to its standby, which leads no role, and stands by for it. First it waits for the role's
// service, so that it has returned before the standby leads. If the roles have changed meanwhile, nothing is handed over,
// and the next roll call starts the service again.
func (e *Elector) handOver(ctx context.Context, name string) {
	e.end(name, "its standby leads no role", anyLeadership)
	for _, l := range e.allLeaderships() {
		if l.Role == name {
			e.cfg.Env.Wait(ctx, leaveTime, l.serviceEnded)
		}
	}
	err := e.change(ctx, func(all []kernel.Role, now time.Time) []kernel.Role {
		after := slices.Clone(all)
		if kernel.Spread(all, e.cfg.Node, now) == name {
			i := slices.IndexFunc(all, func(r kernel.Role) bool { return r.Name == name })
			after[i] = all[i].Swap(e.cfg.Host, now, e.cfg.TTL)
		}
		return after
	})
	if err != nil && ctx.Err() == nil {
		e.cfg.Log.Warn("handing over a role failed; retrying", "role", name, "error", err)
	}
}

// wait returns the time until the next roll call: a random part of TTL, but no longer than until a place lapses that
// this node would take.
func (e *Elector) wait(roles []kernel.Role, now time.Time) time.Duration {
	ttl := e.cfg.TTL
	next := ttl/minWaitShare + time.Duration(e.cfg.Env.Float64()*float64(ttl/maxWaitShare-ttl/minWaitShare))
	for _, r := range roles {
		if r.Leader == e.cfg.Node {
			continue
		}
		lapse := r.LeaderUntil
		if r.Standby != e.cfg.Node && r.StandbyUntil.After(lapse) {
			lapse = r.StandbyUntil
		}
		next = min(next, max(lapse.Sub(now), 0)+lapseSlack)
	}
	return next
}

// leave gives up all places of this node. First it waits for the services, so that they have returned before another
// node leads.
func (e *Elector) leave(ctx context.Context) {
	for _, name := range e.names() {
		e.end(name, "the node stops", anyLeadership)
	}
	for _, l := range e.allLeaderships() {
		e.cfg.Env.Wait(context.Background(), leaveTime, l.serviceEnded)
	}
	ctx, cancel := env.WithTimeout(e.cfg.Env, context.WithoutCancel(ctx), leaveTime)
	defer cancel()
	err := e.change(ctx, func(all []kernel.Role, now time.Time) (after []kernel.Role) {
		for _, r := range all {
			after = append(after, r.HandOver(e.cfg.Node, now, e.cfg.TTL))
		}
		return after
	})
	if err != nil {
		e.cfg.Log.Warn("handing over the roles failed; other nodes take over when they lapse", "error", err)
	}
}
