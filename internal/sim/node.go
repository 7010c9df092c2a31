package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/courier"
	"github.com/perdure/perdure/internal/election"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/faultystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/internal/supervisor"
)

// node is one of the grid: the real scheduler, the real supervisor, and the real elector that says which of the
// supervisors leads. It is born again after each crash, on the same host.
type node struct {
	w     *world
	id    int
	born  int
	proc  *process
	life  context.Context
	end   context.CancelFunc
	link  *link
	sched *scheduler.Scheduler
	sup   *supervisor.Supervisor
	post  *courier.Courier
	elect *election.Elector
	host  *host // of its own; nil: none

	sweeping bool                      // between the supervisor's look and the end of its round
	looked   time.Duration             // when its supervisor last got an answer to its look
	leads    map[string]kernel.Mandate // by role: the mandate under which it leads
	admitted map[kernel.Mandate]int    // transactions that it was admitted to write under each, by what the role's row said
}

func (n *node) boot() {
	w := n.w
	n.born++
	n.proc = w.spawn(fmt.Sprintf("node%d.%d", n.id, n.born))
	n.proc.rate = w.swarm.rates[n.id%len(w.swarm.rates)]
	n.sweeping, n.leads, n.admitted = false, map[string]kernel.Mandate{}, map[kernel.Mandate]int{}
	n.life, n.end = context.WithCancel(context.Background())
	n.link = newLink(n)
	n.sched = scheduler.New(scheduler.Config{Store: n.link, Compiler: compilerOf{w}, Writers: w.swarm.writers, OneWrites: w.swarm.alone, HoldFrom: 1, HoldPace: 1, Env: n.proc, NewID: w.newID,
		RenderWork: w.swarm.renderWork, Renderers: 1,
		Sooner: func(at time.Time) { n.sup.Sooner(at) }})
	n.elect = election.New(election.Config{Store: n.link, Node: n.proc.name, Host: w.nodeHost(n.id), TTL: w.swarm.ttl, Alone: w.swarm.alone,
		Env: n.proc, Roles: n.services()})
	n.sup = supervisor.New(supervisor.Config{Scheduler: sweeps{n.sched, n}, Store: looks{n}, Deposed: n.elect.Deposed, Env: n.proc})
	n.post = courier.New(courier.Config{Store: n.link, Scheduler: n.sched, Compile: w.compileMail, Poll: func() time.Duration { return mailPoll }, Env: n.proc})
	n.proc.Go(func() { n.sched.Run(n.life) })
	n.proc.Go(n.start)
	w.say("%s starts", n.proc.name)
	w.settle(n.proc)
}

// start is what a node does first: alone on its store, it takes back what its own agents held before.
func (n *node) start() {
	if n.w.swarm.alone {
		for !n.inherit() {
			if !env.Sleep(n.proc, n.life, 300*time.Millisecond) {
				return
			}
		}
		n.host = n.w.newHost(n)
		n.host.run()
	}
	n.proc.Go(func() { n.sup.Run(n.life) })
	n.proc.Go(func() { n.post.Run(n.life) })
	n.proc.Go(func() { n.elect.Run(n.life) })
	if !n.w.swarm.alone {
		n.proc.Go(n.heed)
	}
}

func (n *node) inherit() bool {
	holders, err := n.sched.EmbeddedHolders(n.life)
	if err != nil {
		return false
	}
	for _, h := range holders {
		for did := -1; did != 0; {
			if did, err = n.sched.SweepLost(n.life, h, 10); err != nil {
				return false
			}
		}
	}
	return true
}

// heed looks for the work of other nodes when they say so, and now and then.
func (n *node) heed() {
	every := 250 * time.Millisecond
	if n.w.cfg.Small {
		every = time.Second
	}
	for env.Sleep(n.proc, n.life, every/2+n.w.upTo(every)) {
		if n.w.chanced(n.w.net, n.w.swarm.deaf) {
			n.w.hit("F068")
			env.Sleep(n.proc, n.life, 5*time.Second)
			continue
		}
		n.sched.Hint(n.life)
	}
}

// link is a node's way to the store, which may be cut, and a place to die at.
type link struct {
	kernel.Store // faulty, and then watched
	n            *node
	faulty       *faultystore.Store
	cut          bool
	doom         string // dies at the next transaction: before it, inside, or after it
	last         *watchedTx
	wrote        bool
}

func newLink(n *node) *link {
	l := &link{n: n}
	rate := n.w.swarm.store
	if n.w.calm {
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

func (l *link) Look(ctx context.Context, agents []string) (kernel.Look, error) {
	if err := l.reach(ctx); err != nil {
		return kernel.Look{}, err
	}
	return l.Store.Look(ctx, agents)
}

func (l *link) Attend(ctx context.Context, p kernel.Presence) (kernel.Roll, error) {
	if err := l.reach(ctx); err != nil {
		return kernel.Roll{}, err
	}
	return l.Store.Attend(ctx, p)
}

func (l *link) Mail(ctx context.Context, max, maxBytes int) ([]kernel.Mail, error) {
	if err := l.reach(ctx); err != nil {
		return nil, err
	}
	return l.Store.Mail(ctx, max, maxBytes)
}

func (l *link) Update(ctx context.Context, fn func(kernel.Tx) error) error {
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
		l.n.w.unknown(l.last)
	}
	return err
}

var errDoomed = errors.New("sim: the process dies")

// die ends the node's process where it has come to the place at which it was to.
func (l *link) die(at string) {
	if l.doom != at {
		return
	}
	l.n.w.say("%s is killed %s a transaction", l.n.proc.name, at)
	l.n.crash()
	l.n.proc.park(nil)
}

// stop ends a node in an orderly way: what is queued is refused, what is under way goes on to its end (F013).
func (n *node) stop() {
	w, proc := n.w, n.proc
	if proc.dead || n.host != nil {
		return
	}
	w.say("%s stops", proc.name)
	w.hit("F013")
	n.end()
	w.settle(proc)
	w.after(2*time.Second, nil, func() {
		if !proc.dead {
			w.crash(proc)
			n.boot()
		}
	})
}

func (n *node) crash() {
	w := n.w
	n.countCrash()
	w.crash(n.proc)
	if n.host != nil {
		n.host.dies()
	}
	w.after(200*time.Millisecond+w.upTo(8*time.Second), nil, func() {
		if n.proc.dead {
			n.boot()
		}
	})
}

// watched sees what was committed.
type watched struct {
	kernel.Store
	l *link
}

func (s *watched) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	w := s.l.n.w
	var t *watchedTx
	err := s.Store.Update(ctx, func(tx kernel.Tx) error {
		t = &watchedTx{Tx: tx, w: w, began: w.now, skipped: map[perdure.JobID]bool{}, repeats: map[perdure.JobID]bool{}}
		if err := fn(t); err != nil {
			return err
		}
		if s.l.doom == "inside" && len(t.saved) > 0 {
			w.torn(t.saved)
			return errDoomed
		}
		return nil
	})
	s.l.last, s.l.wrote = t, err == nil && t != nil && len(t.saved) > 0
	if err == nil {
		w.committed(s.l.n, t)
	}
	return err
}

// watchedTx keeps what is saved, and when.
type watchedTx struct {
	kernel.Tx
	w       *world
	began   time.Duration
	now     time.Time
	saved   []*kernel.Changes
	limits  bool
	found   map[string][]kernel.StepRef // ready steps, by agent, as the transaction read them before it dispatched any of them
	locked  map[perdure.JobID]bool
	skipped map[perdure.JobID]bool // as if another transaction had locked them
	repeats map[perdure.JobID]bool // jobs of the runs of repeated claims
	shares  []share
	roles   []kernel.RoleChange
	closed  []kernel.ClosedMail
}

func (t *watchedTx) Now() (time.Time, error) {
	now, err := t.Tx.Now()
	t.now = now
	for i := range t.shares {
		if t.shares[i].at.IsZero() {
			t.shares[i].at = now
		}
	}
	return now, err
}

func (t *watchedTx) Ready(agent string, max int, full []string) ([]kernel.StepRef, error) {
	refs, err := t.Tx.Ready(agent, max, full)
	if err == nil && !t.letsOut(agent) {
		if t.found == nil {
			t.found = map[string][]kernel.StepRef{}
		}
		t.found[agent] = append(t.found[agent], refs...)
	}
	return refs, err
}

// looked says whether it let out runs of the agent under a look: it has locked something of what it found, or found
// nothing. Who glances only at what another is to let out locks none of it.
func (t *watchedTx) looked(agent string) bool {
	found, asked := t.found[agent]
	return asked && (len(found) == 0 || slices.ContainsFunc(found, func(ref kernel.StepRef) bool { return t.locked[ref.Job] }))
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

// letsOut says whether it has let out a run of the agent, as far as it has saved.
func (t *watchedTx) letsOut(agent string) bool {
	return slices.ContainsFunc(t.saved, func(c *kernel.Changes) bool {
		return slices.ContainsFunc(c.Steps, func(ch kernel.StepChange) bool { return ch.Now.Agent == agent && ch.Now.Run != ch.Was.Run })
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
