package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure"

	"github.com/perdure/perdure/internal/agenthost"
	"github.com/perdure/perdure/internal/dispatch"
	"github.com/perdure/perdure/internal/election"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/faultystore"
	"github.com/perdure/perdure/internal/hook"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/internal/supervisor"
	"github.com/perdure/perdure/internal/webhook"
	perdurenode "github.com/perdure/perdure/node"
	"github.com/perdure/perdure/protocol"
)

// node is one process of the grid: a real node, which is created again after each crash and each stop, on the same host.
type node struct {
	w       *world
	id      int
	born    int
	proc    *process
	life    context.Context // of calls to it
	end     context.CancelFunc
	polls   context.Context // of waiting claims; ends when the node begins to stop
	endPoll context.CancelFunc
	link    *link
	real    *perdurenode.Node
	sup     supervisor.Scheduler // what its supervisor calls
	host    *host                // its own host; nil: none

	stopping       bool                         // a stop was requested
	stopped        bool                         // the stop has ended
	sweeping       bool                         // between the supervisor's search and the end of its round
	scanAnsweredAt time.Duration                // when its supervisor's search was last answered
	leads          map[string]kernel.Leadership // by role: the leadership in which it leads
	admitted       map[kernel.Leadership]int    // number of transactions that were admitted under each, according to the role's row
}

func (n *node) boot() {
	w := n.w
	n.born++
	n.proc = w.Spawn(fmt.Sprintf("node%d.%d", n.id, n.born))
	n.proc.Rate = w.swarm.rates[n.id%len(w.swarm.rates)]
	n.stopping, n.stopped, n.sweeping, n.leads, n.admitted = false, false, false, map[string]kernel.Leadership{}, map[kernel.Leadership]int{}
	n.life, n.end = context.WithCancel(context.Background())
	n.polls, n.endPoll = context.WithCancel(n.life)
	n.link = newLink(n)
	cfg := perdurenode.Config{HostName: w.nodeHost(n.id), RoleTTL: w.swarm.ttl, Writers: w.swarm.writers, Heartbeat: w.swarm.heartbeat, Hooks: n.hooks()}
	store := kernel.Store(n.link)
	if w.swarm.alone {
		n.host = w.newHost(n)
		cfg.Agents = n.host.carry(n.proc, "@"+n.proc.Name)
	} else {
		store = n.link.share()
	}
	n.real = perdurenode.New(store, cfg)
	n.proc.Go(n.start)
	w.logLine("%s starts", n.proc.Name)
	w.Settle(n.proc)
}

// start retries while the store does not answer, as a service manager does.
func (n *node) start() {
	for n.real.Start(n.life) != nil {
		if !env.Sleep(n.proc, n.life, 300*time.Millisecond) {
			return
		}
	}
}

// hooks give the node the clock, randomness and goroutines of its process, and observe it.
func (n *node) hooks() *hook.Hooks {
	w := n.w
	return &hook.Hooks{Env: n.proc, ID: n.proc.Name, NewID: w.newID, Compiler: compilerOf{&compiler, w}, Webhooks: func(c *webhook.Config) { c.Poster = poster{n} },
		Scheduler: func(c *scheduler.Config) {
			c.HoldMinRuns, c.HoldMinPace, c.RenderWork, c.Renderers = 1, 1, w.swarm.renderWork, 1
		},
		Supervisor: func(c *supervisor.Config) {
			n.sup = c.Scheduler
			c.Scheduler, c.Store = sweeps{c.Scheduler, n}, scanStore{n}
		},
		Elector: func(c *election.Config) {
			for role, duty := range c.Roles {
				c.Roles[role] = n.leading(duty)
			}
		},
		AgentHost: func(c agenthost.Config) *agenthost.Host {
			c.Exchange, c.ClaimWait = localExchange{n.host, c.Exchange}, 5*time.Second
			n.host.real = agenthost.New(c)
			return n.host.real
		}}
}

// link is a node's connection to the store, which may be cut, and at which the node may die.
type link struct {
	kernel.Store // faulty, and observed
	n            *node
	faulty       *faultystore.Store
	cut          bool
	doom         string // the node dies at its next transaction: before, inside or after it
	last         *watchedTx
	wrote        bool
	// Wake-ups from other nodes:
	hints, roles, outbox, streams chan struct{}
}

// shared is the link of a node that is not alone.
type shared struct{ *link }

func (l *link) share() kernel.SharedStore { return shared{l} }

func (s shared) Wakeups(context.Context) <-chan struct{} { return s.hints }
func (s shared) RoleWakeups() <-chan struct{}            { return s.roles }
func (s shared) OutboxWakeups() <-chan struct{}          { return s.outbox }
func (s shared) StreamWakeups() <-chan struct{}          { return s.streams }
func (s shared) Listening() bool                         { return s.n.w.swarm.deaf < deafFrom }
func (shared) Accepting() error                          { return nil }
func (shared) Refused() error                            { return nil }
func (shared) CheckSchema(context.Context) error         { return nil }

// deafFrom is the share of lost wake-ups from which on none arrives at all, as behind a pooler.
const deafFrom = 0.6

// wakeOthers sends a wake-up to the other nodes.
func (n *node) wakeOthers(channel func(*link) chan struct{}) {
	w := n.w
	for _, other := range w.nodes {
		if other == n || other.link == nil {
			continue
		}
		if w.swarm.deaf >= deafFrom || w.chanced(w.net, w.swarm.deaf) {
			w.hit("F068")
			continue
		}
		ch := channel(other.link)
		w.After(w.latency(), other.proc, func() {
			select {
			case ch <- struct{}{}:
			default:
			}
		})
	}
}

func newLink(n *node) *link {
	l := &link{n: n, hints: make(chan struct{}, 1), roles: make(chan struct{}, 1), outbox: make(chan struct{}, 1), streams: make(chan struct{}, 1)}
	rate := n.w.swarm.store
	if n.w.faultsEnded {
		rate = 0
	}
	l.faulty = faultystore.New(&watched{Store: n.w.inner, l: l}, n.w.net.Uint64(), rate, 600*time.Microsecond)
	l.faulty.Sleep = func(ctx context.Context, d time.Duration) error {
		if n.proc.Wait(ctx, min(d, 2*time.Second), nil) == env.Gone {
			return ctx.Err()
		}
		return nil
	}
	l.Store = l.faulty
	return l
}

var errNoAnswer = perdure.Refuse(perdure.CodeUnavailable, "sim: the store does not answer")

func (l *link) reach(ctx context.Context) error {
	for waited := 0; l.cut; waited++ {
		l.n.w.hit("F009", "F120")
		if l.n.proc.Wait(ctx, 500*time.Millisecond, nil) == env.Gone {
			return ctx.Err()
		}
		if waited >= 4 {
			return errNoAnswer
		}
	}
	return nil
}

func (l *link) Poll(ctx context.Context, agents []string) (kernel.PollAnswer, error) {
	if err := l.reach(ctx); err != nil {
		return kernel.PollAnswer{}, err
	}
	return l.Store.Poll(ctx, agents)
}

func (l *link) ReportNode(ctx context.Context, p kernel.NodeReport) (kernel.NodeAnswer, error) {
	if err := l.reach(ctx); err != nil {
		return kernel.NodeAnswer{}, err
	}
	return l.Store.ReportNode(ctx, p)
}

func (l *link) Mail(ctx context.Context, max, maxBytes int) ([]kernel.Mail, error) {
	if err := l.reach(ctx); err != nil {
		return nil, err
	}
	return l.Store.Mail(ctx, max, maxBytes)
}

func (l *link) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	if l.n.stopped {
		l.n.w.wrong("F013", "%s has stopped, and begins a transaction: its store may be closed", l.n.proc.Name)
	}
	if err := l.reach(ctx); err != nil {
		return err
	}
	l.die("before")
	err := l.Store.Update(ctx, fn)
	if l.doom == "inside" && errors.Is(err, errDoomed) {
		l.die("inside")
	}
	l.die("after")
	if l.doom == "freeze" && err == nil && l.wrote {
		l.doom = ""
		l.n.w.hit("F026")
		l.n.w.freezeFor(l.n.proc, false, 30*time.Second)
	}
	if errors.Is(err, kernel.ErrUnknown) {
		l.n.w.countUnknownCommit(l.last)
	}
	return err
}

var errDoomed = errors.New("sim: the process dies")

// die ends the node's process if it has reached the place at which it is to die.
func (l *link) die(at string) {
	if l.doom != at {
		return
	}
	l.n.w.logLine("%s is killed %s a transaction", l.n.proc.Name, at)
	l.n.crash()
	l.n.proc.Park(nil)
}

// stop stops a node in an orderly way, and starts it again, as a rolling restart does: it refuses new calls, and
// completes what was accepted (F013).
func (n *node) stop() {
	w, proc := n.w, n.proc
	if proc.Dead || n.stopping {
		return
	}
	w.logLine("%s stops", proc.Name)
	w.hit("F013")
	n.stopping = true
	n.endPoll()
	proc.Go(func() {
		ctx, cancel := env.WithTimeout(proc, context.Background(), time.Second+w.upTo(8*time.Second))
		defer cancel()
		err := n.real.Stop(ctx)
		n.end()
		n.stopped = err == nil
		w.logLine("%s has stopped: %v", proc.Name, err)
		n.hasStopped(ctx)
		w.After(w.upTo(2*time.Second), nil, func() {
			if proc.Dead {
				return
			}
			if n.host != nil {
				n.host.dies()
			}
			w.Crash(proc)
			n.boot()
		})
	})
	w.Settle(proc)
}

// hasStopped checks that a node that has stopped in time answers no claims, and that its agents hold no runs (L6). It
// does not check this if its store has failed meanwhile, or if clocks were set: a run that may have expired is not
// reported.
func (n *node) hasStopped(ctx context.Context) {
	w := n.w
	if !n.stopped {
		return
	}
	if _, err := n.real.Claim(ctx, protocol.Claim{Agent: agentNames[0], Holder: "late", Max: 1}); err == nil {
		w.wrong("F013", "%s has stopped, and answers claims", n.proc.Name)
	}
	if n.host == nil || w.swarm.store > 0 || w.clockDisturbed || n.proc.WallError != 0 {
		return
	}
	for _, j := range w.known() {
		for _, s := range w.steps(j.ID) {
			if s.Phase == perdure.Running && s.LockedBy == n.host.holder && s.LockedUntil.Sub(w.storeNow()) > slack {
				w.wrong("L6", "%s has stopped, and holds run %d of %s/%s", n.proc.Name, s.Run, short(j.ID), s.Name)
			}
		}
	}
}

func (n *node) crash() {
	w := n.w
	n.countCrash()
	w.Crash(n.proc)
	if n.host != nil {
		n.host.dies()
	}
	w.After(200*time.Millisecond+w.upTo(8*time.Second), nil, func() {
		if n.proc.Dead {
			n.boot()
		}
	})
}

// watched observes what is committed.
type watched struct {
	kernel.Store
	l *link
}

func (s *watched) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	w := s.l.n.w
	var t *watchedTx
	err := s.Store.Update(ctx, func(tx kernel.Tx) error {
		t = &watchedTx{Tx: tx, w: w, began: w.Now, skipped: map[perdure.JobID]bool{}, repeats: map[perdure.JobID]bool{}}
		if err := fn(t); err != nil {
			return err
		}
		if doomed := s.l.doom; doomed == "inside" && len(t.saved) > 0 || childrenOnly[doomed] != nil && childrenOnly[doomed](t.saved) {
			s.l.doom = "inside"
			w.countPreventedChanges(t.saved)
			return errDoomed
		}
		return nil
	})
	s.l.last, s.l.wrote = t, err == nil && t != nil && len(t.saved) > 0
	if err == nil {
		w.committed(s.l.n, t)
		if len(t.saved) > 0 || t.limits {
			s.l.n.wakeOthers(func(l *link) chan struct{} { return l.hints })
		}
		if len(t.roles) > 0 {
			s.l.n.wakeOthers(func(l *link) chan struct{} { return l.roles })
		}
		if len(t.receivers) > 0 || slices.ContainsFunc(t.saved, func(c *kernel.Changes) bool { return len(c.Notifications) > 0 }) {
			s.l.n.wakeOthers(func(l *link) chan struct{} { return l.outbox })
		}
	}
	return err
}

// watchedTx records what is saved, and when.
type watchedTx struct {
	kernel.Tx
	w         *world
	began     time.Duration
	now       time.Time
	nowAt     time.Duration // when the simulation was asked for it
	saved     []*kernel.Changes
	limits    bool
	found     map[string][]kernel.StepRef // ready steps, by agent, as the transaction has read them before it dispatched any of them
	locked    map[perdure.JobID]bool
	skipped   map[perdure.JobID]bool // as if another transaction had locked them
	repeats   map[perdure.JobID]bool // jobs of the runs of repeated claims
	shares    []share
	roles     []kernel.RoleChange
	closed    []kernel.ClosedMail
	bulk      []savedBulk
	events    []dueEvent // what receivers must get
	scheduled scheduled
	receivers []string // receivers that were stored
}

func (t *watchedTx) Now() (time.Time, error) {
	now, err := t.Tx.Now()
	t.now, t.nowAt = now, t.w.Now
	for i := range t.shares {
		if t.shares[i].at.IsZero() {
			t.shares[i].at = now
		}
	}
	return now, err
}

func (t *watchedTx) Ready(agent string, max int, full []string, serves kernel.Serves) ([]kernel.StepRef, error) {
	refs, err := t.Tx.Ready(agent, max, full, serves)
	if err == nil && !t.dispatches(agent) && max != dispatch.MaxReserving { // the search for steps that may reserve a host grants nothing
		if t.found == nil {
			t.found = map[string][]kernel.StepRef{}
		}
		t.found[agent] = append(t.found[agent], refs...)
	}
	return refs, err
}

// searchedFor reports whether the transaction has dispatched runs of the agent after a search: it has locked something that
// it found, or found nothing. A search that only compares locks nothing.
func (t *watchedTx) searchedFor(agent string) bool {
	found, searched := t.found[agent]
	return searched && (len(found) == 0 || slices.ContainsFunc(found, func(ref kernel.StepRef) bool { return t.locked[ref.Job] }))
}

func (t *watchedTx) LockJobs(ids []perdure.JobID) ([]*kernel.Job, error) {
	jobs, err := t.Tx.LockJobs(ids)
	t.lock(jobs)
	return jobs, err
}

// TryLockJobs leaves out some jobs, as if another transaction had locked them. In the simulation transactions run one
// after the other, so no lock is ever held by another.
func (t *watchedTx) TryLockJobs(ids []perdure.JobID) ([]*kernel.Job, error) {
	free := slices.DeleteFunc(slices.Clone(ids), func(id perdure.JobID) bool {
		if t.locked[id] || !t.w.lockedByOthers() {
			return false
		}
		if t.repeats[id] {
			t.w.hit("F155")
		}
		t.skipped[id] = true
		return true
	})
	jobs, err := t.Tx.TryLockJobs(free)
	t.lock(jobs)
	return jobs, err
}

// HeldBy refuses some claims, as if another transaction had locked them.
func (t *watchedTx) HeldBy(holder, agent, request string, max int) ([]kernel.StepRef, error) {
	if agent != "" && request != "" && t.w.lockedByOthers() {
		return nil, kernel.ErrLocked
	}
	refs, err := t.Tx.HeldBy(holder, agent, request, max)
	t.repeated(refs, request)
	return refs, err
}

// Granted refuses some claims, too.
func (t *watchedTx) Granted(holder, agent, request string, max int) ([]kernel.StepRef, error) {
	if t.w.lockedByOthers() {
		return nil, kernel.ErrLocked
	}
	refs, err := t.Tx.Granted(holder, agent, request, max)
	t.repeated(refs, request)
	return refs, err
}

func (t *watchedTx) repeated(refs []kernel.StepRef, request string) {
	for _, ref := range refs {
		t.repeats[ref.Job] = request != ""
	}
}

// lockedByOthers draws whether another transaction has locked a row.
func (w *world) lockedByOthers() bool { return w.chanced(w.locks, w.swarm.locked) }

func (t *watchedTx) lock(jobs []*kernel.Job) {
	if t.locked == nil {
		t.locked = map[perdure.JobID]bool{}
	}
	for _, j := range jobs {
		t.locked[j.ID] = true
	}
}

// dispatches reports whether the transaction has dispatched a run of the agent, in its Saves so far.
func (t *watchedTx) dispatches(agent string) bool {
	return slices.ContainsFunc(t.saved, func(c *kernel.Changes) bool {
		return slices.ContainsFunc(c.Steps, func(ch kernel.StepChange) bool { return ch.Now.Agent == agent && ch.Now.Run != ch.Loaded.Run })
	})
}

func (t *watchedTx) ShareRole(name string) (kernel.Role, error) {
	r, err := t.Tx.ShareRole(name)
	if err == nil {
		t.shares = append(t.shares, share{role: r})
	}
	return r, err
}

func (t *watchedTx) SaveRoles(changes []kernel.RoleChange) error {
	t.roles = append(t.roles, changes...)
	return t.Tx.SaveRoles(changes)
}

func (t *watchedTx) CloseMail(closed []kernel.ClosedMail) error {
	t.closed = append(t.closed, closed...)
	return t.Tx.CloseMail(closed)
}

func (t *watchedTx) Save(c *kernel.Changes) error {
	t.saved = append(t.saved, c)
	t.report(c)
	return t.Tx.Save(c)
}

func (t *watchedTx) PutLimit(l kernel.Limit) error {
	t.limits = true
	return t.Tx.PutLimit(l)
}

func (t *watchedTx) DeleteLimit(name string) (bool, error) {
	t.limits = true
	return t.Tx.DeleteLimit(name)
}
