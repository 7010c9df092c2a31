package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/scheduler"
)

// share is a role's row as a transaction has seen and kept it, and when.
type share struct {
	role kernel.Role
	at   time.Time
}

// lead is the supervisor's part in its role.
func (n *node) lead(ctx context.Context) {
	m, _ := kernel.MandateOf(ctx)
	n.w.say("%s leads, epoch %d", n.proc.name, m.Epoch)
	n.leads = m
	n.sup.Lead(ctx)
	n.leads = kernel.Mandate{}
	n.w.say("%s leads no more", n.proc.name)
}

// looks is the store as the supervisor asks it.
type looks struct{ n *node }

func (s looks) Look(ctx context.Context, agents []string) (kernel.Look, error) {
	look, err := s.n.link.Look(ctx, agents)
	if s.n.sweeping = err == nil && look.In() <= 0; err != nil {
		s.n.w.hit("F074")
		return look, err
	}
	s.n.looked = s.n.w.now
	return look, nil
}

// sweeps are those of a supervisor: what is done under a mandate must have been admitted (F075).
type sweeps struct {
	*scheduler.Scheduler
	n *node
}

func (s sweeps) SweepExpired(ctx context.Context, max int) (int, error) {
	did, err := s.under(ctx, max, s.Scheduler.SweepExpired)
	switch {
	case err == nil && did == 0:
		s.n.w.hit("F072")
	case err == nil && len(s.n.w.nodes) > 1:
		s.n.w.hit("F071")
	}
	return did, err
}

func (s sweeps) SweepDue(ctx context.Context, max int) (int, error) {
	return s.under(ctx, max, s.Scheduler.SweepDue)
}

func (s sweeps) SweepOverdue(ctx context.Context, max int) (int, error) {
	did, err := s.under(ctx, max, s.Scheduler.SweepOverdue)
	s.n.sweeping = false
	return did, err
}

func (s sweeps) under(ctx context.Context, max int, sweep func(context.Context, int) (int, error)) (int, error) {
	n, w := s.n, s.n.w
	m, led := kernel.MandateOf(ctx)
	before := n.admitted[m]
	did, err := sweep(ctx, max)
	switch {
	case !led:
	case errors.Is(err, kernel.ErrDeposed):
		w.say("%s is refused: epoch %d is over", n.proc.name, m.Epoch)
		w.hit("F075")
		n.sweeping = false
	case err == nil && n.admitted[m] == before:
		w.wrong("F075", "%s has swept under epoch %d, and the role's row did not say that it leads", n.proc.name, m.Epoch)
	}
	return did, err
}

// roleMoved: epochs grow, and whoever has a place is not replaced before his time is over, but by himself.
func (w *world) roleMoved(n *node, ch *kernel.RoleChange, at time.Time) {
	now, was := &ch.Now, &ch.Was
	w.mix(uint64(now.Epoch))
	if now.Leader != was.Leader || now.Epoch != was.Epoch || now.Standby != was.Standby {
		w.say("role %s, epoch %d: %q leads, %q stands by", now.Name, now.Epoch, now.Leader, now.Standby)
	}
	fresh := w.swarm.alone && now.Leader == n.proc.name // all others are known to be dead
	switch begins := now.Leader != "" && (now.Leader != was.Leader || now.Epoch != was.Epoch); {
	case now.Epoch < was.Epoch, begins && now.Epoch <= was.Epoch:
		w.wrong("F071", "role %s: epoch %d of %q comes after epoch %d of %q", now.Name, now.Epoch, now.Leader, was.Epoch, was.Leader)
	case (begins || now.Leader == "") && was.Led(at) && was.Leader != n.proc.name && !fresh:
		w.wrong("F071", "role %s: %q takes the place of %q, who leads until %s", now.Name, n.proc.name, was.Leader, was.LeaderUntil)
	case begins && was.StoodBy(at) && now.Leader != was.Standby && !fresh:
		w.wrong("F076", "role %s: %q leads, and %q stood by until %s", now.Name, now.Leader, was.Standby, was.StandbyUntil)
	case !begins && now.Standby != was.Standby && was.StoodBy(at) && was.Standby != n.proc.name:
		w.wrong("F071", "role %s: %q takes the place of %q, who stands by until %s", now.Name, n.proc.name, was.Standby, was.StandbyUntil)
	}
}

// swept: of each epoch one node's sweeps are admitted, and no other's.
func (w *world) swept(n *node, s *share) {
	if s.role.Leader != n.proc.name || !s.role.Led(s.at) {
		return // it is to be refused
	}
	n.admitted[kernel.Mandate{Role: s.role.Name, Node: s.role.Leader, Epoch: s.role.Epoch}]++
	if other, known := w.reigns[s.role.Epoch]; known && other != n.proc.name {
		w.wrong("F071", "role %s: in epoch %d both %s and %s were admitted", s.role.Name, s.role.Epoch, other, n.proc.name)
	}
	w.reigns[s.role.Epoch] = n.proc.name
}

// headed: without faults, no role is for long without a leader who lives and knows, and a standby who lives.
func (w *world) headed() {
	what := w.vacancy()
	if what == "" {
		w.vacant = 0
		return
	}
	if w.vacant == 0 {
		w.vacant = w.now
	}
	if since := w.now - w.vacant; since > w.swarm.ttl*3/2+slack {
		w.wrong("F076", "%s, for %s without faults; places are kept for %s", what, since, w.swarm.ttl)
	}
}

func (w *world) vacancy() string {
	roles, err := w.inner.Roles(context.Background())
	w.must(err)
	r := kernel.Role{Name: kernel.RoleSupervisor}
	if len(roles) > 0 {
		r = roles[0]
	}
	now := w.storeNow()
	leader, standby := w.nodeNamed(r.Leader), w.nodeNamed(r.Standby)
	switch {
	case !r.Led(now) || leader == nil:
		return "nobody leads the supervisors"
	case leader.leads.Epoch != r.Epoch:
		return leader.proc.name + " leads the supervisors, and does not know"
	case w.alive() > 1 && (!r.StoodBy(now) || standby == nil):
		return "nobody stands by to lead the supervisors"
	}
	return ""
}

func (w *world) alive() (n int) {
	for _, one := range w.nodes {
		if w.nodeNamed(one.proc.name) != nil {
			n++
		}
	}
	return n
}

// nodeNamed is a node that lives under this name.
func (w *world) nodeNamed(name string) *node {
	i := slices.IndexFunc(w.nodes, func(n *node) bool { return n.proc.name == name && !n.proc.dead && n.life.Err() == nil })
	if i < 0 {
		return nil
	}
	return w.nodes[i]
}

// succeed ends the leader when all is calm. One who leaves hands over to his standby at once; one who dies is
// followed once his time is over.
func (w *world) succeed(dies bool) {
	if w.vacancy() != "" || len(w.nodes) < 2 {
		return
	}
	roles, err := w.inner.Roles(context.Background())
	w.must(err)
	was := roles[0]
	leader := w.nodeNamed(was.Leader)
	if dies {
		leader.crash()
	} else {
		leader.stop()
		w.runUntil(w.now + time.Second)
		if roles, err = w.inner.Roles(context.Background()); err != nil || roles[0].Leader != was.Standby || roles[0].Epoch != was.Epoch+1 {
			w.wrong("F076", "%s has left, and %+v comes after %+v (%v)", leader.proc.name, roles[0], was, err)
		}
	}
	for end := w.now + w.swarm.ttl*3/2 + slack + time.Second; len(w.faults) == 0 && w.now < end; w.headed() {
		w.runUntil(w.now + 500*time.Millisecond)
	}
}
