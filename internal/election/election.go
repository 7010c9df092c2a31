// Package election is a node's part in the grid's roles (kernel.Role). At random intervals it says that the
// node is there, sees whether each role has a leader and a standby, and enlists where one is missing, or where
// the standby is on the leader's host and this node is not. What
// the node leads runs under a context that ends with the leadership; it carries the mandate by which the
// store admits what is written under the role.
//
// To be led by two for a moment does no harm (I15): a pause may lie between looking at the clock and
// writing. So the store looks once more, under the lock of the role's row.
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
	Attend(context.Context, kernel.Presence) (kernel.Roll, error)
	Update(context.Context, func(kernel.Tx) error) error
}

// Service is what runs while the node leads a role, until ctx ends. It is not started again before it has
// returned.
type Service func(ctx context.Context)

// Config is what an Elector is made of. Store, Node and Roles are required.
type Config struct {
	Store Store
	Node  string
	Host  string // of the node: leader and standby of a role run on different hosts where possible
	Roles map[string]Service

	TTL      time.Duration                    // 0: kernel.DefaultRoleTTL
	Alone    bool                             // no other process can have the store: whoever has a place in a role is dead
	Presence func() kernel.Presence           // what else is told at a roll call; Node.ID, Node.Host and TTL are set here
	Attended func(kernel.Roll, time.Duration) // told what the store said, and how long that took
	Hints    <-chan struct{}                  // somebody's place has changed; nil: nobody says so
	Changed  func(role string, leads bool)    // told when the node begins to lead, and when it no longer does
	Log      *slog.Logger
	Env      env.Env // nil: env.Real
}

// The intervals, as parts of the time for which a place is kept. There are two roll calls in it at least, so
// that one may fail. A leader takes itself for one a little shorter than the store does: clocks do not run
// alike, and its timers may be late.
const (
	leastWait    = 4 // TTL/4 to TTL/2 between roll calls
	mostWait     = 2
	failedWait   = 16
	callTime     = 3
	earlierShare = 10

	lapseSlack = 10 * time.Millisecond // a look at what has lapsed comes a little after that
	leaveTime  = time.Second           // who leaves waits no longer for anything
)

// Elector runs for the roles.
type Elector struct {
	cfg  Config
	soon chan struct{} // look now
	mu   sync.Mutex
	led  map[string]*leadership
}

// New makes an elector; Run starts it.
func New(cfg Config) *Elector {
	if cfg.TTL <= 0 {
		cfg.TTL = kernel.DefaultRoleTTL
	}
	if cfg.Presence == nil {
		cfg.Presence = func() kernel.Presence { return kernel.Presence{} }
	}
	if cfg.Attended == nil {
		cfg.Attended = func(kernel.Roll, time.Duration) {}
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
	return &Elector{cfg: cfg, soon: make(chan struct{}, 1), led: map[string]*leadership{}}
}

// Run takes part until ctx ends. Then it hands over what it has, so that the others need not wait for it to
// lapse, and returns.
func (e *Elector) Run(ctx context.Context) {
	fresh := e.cfg.Alone
	failed := false
	if e.cfg.Hints != nil {
		e.cfg.Env.Go(func() { e.heed(ctx) })
	}
	for ctx.Err() == nil {
		next, err := e.round(ctx, fresh)
		if err != nil {
			next = e.cfg.TTL / failedWait
			if !failed && ctx.Err() == nil {
				e.cfg.Log.Warn("the roll call was not answered, and is tried again", "error", err)
			}
		} else {
			fresh = false
		}
		failed = err != nil
		e.cfg.Env.Wait(ctx, next, e.soon)
	}
	e.leave(ctx)
}

// heed has it look when somebody's place has changed.
func (e *Elector) heed(ctx context.Context) {
	for e.cfg.Env.Wait(ctx, env.Forever, e.cfg.Hints) == env.Got && ctx.Err() == nil {
		e.lookNow()
	}
}

func (e *Elector) lookNow() {
	select {
	case e.soon <- struct{}{}:
	default:
	}
}

// Deposed says that the store has refused what was written under this mandate.
func (e *Elector) Deposed(m kernel.Mandate) {
	e.end(m.Role, "the store has refused what it wrote", func(of kernel.Mandate) bool { return of == m })
	e.lookNow()
}

// round is one roll call, and an election where a place is free. It says when the next one is due.
func (e *Elector) round(ctx context.Context, fresh bool) (next time.Duration, err error) {
	asked := e.cfg.Env.Now() // before the question: all that is counted from here is over early
	roll, err := e.attend(ctx)
	if err != nil {
		return 0, err
	}
	e.cfg.Attended(roll, e.cfg.Env.Now().Sub(asked))
	now, roles := roll.Now, e.ours(roll.Roles)
	if fresh || slices.ContainsFunc(roles, func(r kernel.Role) bool { return e.enlist(r, now) != r }) {
		if now, roles, err = e.elect(ctx, fresh); err != nil {
			return 0, err
		}
	}
	e.follow(ctx, roles, now, asked)
	return e.wait(roles, now), nil
}

func (e *Elector) attend(ctx context.Context) (kernel.Roll, error) {
	ctx, cancel := env.WithTimeout(e.cfg.Env, ctx, e.cfg.TTL/callTime)
	defer cancel()
	p := e.cfg.Presence()
	p.Node.ID, p.Node.Host, p.TTL = e.cfg.Node, e.cfg.Host, e.cfg.TTL
	crashpoint.Here(crashpoint.NodeEnlist)
	defer crashpoint.Here(crashpoint.NodeEnlisted)
	return e.cfg.Store.Attend(ctx, p)
}

// ours are the roles that this node runs for, in the order of names: also those that nobody has had yet.
func (e *Elector) ours(all []kernel.Role) (roles []kernel.Role) {
	for _, name := range e.names() {
		r := kernel.Role{Name: name}
		if i := slices.IndexFunc(all, func(r kernel.Role) bool { return r.Name == name }); i >= 0 {
			r = all[i]
		}
		roles = append(roles, r)
	}
	return roles
}

// elect looks again under the rows' locks, and takes what is free. It gives the roles as they are then, and
// the time that was read after the locks.
func (e *Elector) elect(ctx context.Context, fresh bool) (now time.Time, roles []kernel.Role, err error) {
	err = e.change(ctx, e.names(), func(r kernel.Role, at time.Time) kernel.Role {
		if fresh {
			r = r.Vacate()
		}
		now, r = at, e.enlist(r, at)
		roles = append(roles, r)
		return r
	}, func() { roles = nil })
	return now, roles, err
}

// enlist is the role after this node has enlisted.
func (e *Elector) enlist(r kernel.Role, now time.Time) kernel.Role {
	return r.Enlist(e.cfg.Node, e.cfg.Host, now, e.cfg.TTL)
}

func (e *Elector) names() []string { return slices.Sorted(maps.Keys(e.cfg.Roles)) }

// change applies a rule to roles, in a transaction. again is called before each try.
func (e *Elector) change(ctx context.Context, names []string, rule func(kernel.Role, time.Time) kernel.Role, again func()) error {
	ctx, cancel := env.WithTimeout(e.cfg.Env, ctx, e.cfg.TTL/callTime)
	defer cancel()
	crashpoint.Here(crashpoint.RoleChange)
	defer crashpoint.Here(crashpoint.RoleChanged)
	return e.cfg.Store.Update(ctx, func(tx kernel.Tx) error {
		again()
		roles, err := tx.LockRoles(names)
		if err != nil {
			return err
		}
		now, err := tx.Now()
		if err != nil {
			return err
		}
		var changes []kernel.RoleChange
		for _, was := range roles {
			if r := rule(was, now); r != was {
				changes = append(changes, kernel.RoleChange{Now: r, Was: was})
			}
		}
		return tx.SaveRoles(changes)
	})
}

// wait is until the next roll call: some random part of the time for which a place is kept, and no longer
// than until a place falls free that this node would take.
func (e *Elector) wait(roles []kernel.Role, now time.Time) time.Duration {
	ttl := e.cfg.TTL
	next := ttl/leastWait + time.Duration(e.cfg.Env.Float64()*float64(ttl/mostWait-ttl/leastWait))
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

// leave gives up all places. What this node led must have ended before another begins.
func (e *Elector) leave(ctx context.Context) {
	names := e.names()
	for _, name := range names {
		e.end(name, "the node is leaving", whichever)
	}
	for _, l := range e.leaderships() {
		e.cfg.Env.Wait(context.Background(), leaveTime, l.over)
	}
	ctx, cancel := env.WithTimeout(e.cfg.Env, context.WithoutCancel(ctx), leaveTime)
	defer cancel()
	err := e.change(ctx, names, func(r kernel.Role, now time.Time) kernel.Role {
		return r.HandOver(e.cfg.Node, now, e.cfg.TTL)
	}, func() {})
	if err != nil {
		e.cfg.Log.Warn("could not hand over; others take over once it lapses", "error", err)
	}
}
