package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/election"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/supervisor"
)

// share is a role's row as a transaction has seen and kept it, and when.
type share struct {
	role kernel.Role
	at   time.Time
}

// leading records that the node leads the role for as long as the service runs.
func (n *node) leading(serve election.Service) election.Service {
	return func(ctx context.Context) {
		m, _ := kernel.LeadershipOf(ctx)
		n.w.logLine("%s leads role %s, epoch %d", n.proc.Name, m.Role, m.Epoch)
		n.leads[m.Role] = m
		serve(ctx)
		delete(n.leads, m.Role)
		n.w.logLine("%s leads role %s no more", n.proc.Name, m.Role)
	}
}

// nodeHost is the name of the host on which a node runs. Where there are fewer hosts than nodes, some share one.
func (w *world) nodeHost(id int) string { return fmt.Sprintf("host%d", id%w.swarm.nodeHosts) }

// hostOf is the name of the host on which a process of a node runs; empty for no node.
func (w *world) hostOf(name string) string {
	var id, born int
	if _, err := fmt.Sscanf(name, "node%d.%d", &id, &born); err != nil {
		return ""
	}
	return w.nodeHost(id)
}

// scanStore is the store as the supervisor reads it.
type scanStore struct{ n *node }

func (s scanStore) Poll(ctx context.Context, agents []string) (kernel.PollAnswer, error) {
	poll, err := s.n.link.Poll(ctx, agents)
	if s.n.sweeping = err == nil && poll.UntilNext() <= 0; err != nil {
		s.n.w.hit("F074")
		return poll, err
	}
	s.n.scanAnsweredAt = s.n.w.Now
	return poll, nil
}

// sweeps are the due scans of a supervisor: writes of a leader must have been admitted (F075).
type sweeps struct {
	supervisor.Scheduler
	n *node
}

func (s sweeps) SweepExpired(ctx context.Context, max int) (int, error) {
	n, err := s.under(ctx, max, s.Scheduler.SweepExpired)
	switch {
	case err == nil && n == 0:
		s.n.w.hit("F072")
	case err == nil && len(s.n.w.nodes) > 1:
		s.n.w.hit("F071")
	}
	return n, err
}

func (s sweeps) SweepDue(ctx context.Context, max int) (int, error) {
	return s.under(ctx, max, s.Scheduler.SweepDue)
}

func (s sweeps) SweepOverdue(ctx context.Context, max int) (int, error) {
	n, err := s.under(ctx, max, s.Scheduler.SweepOverdue)
	s.n.sweeping = false
	return n, err
}

func (s sweeps) under(ctx context.Context, max int, sweep func(context.Context, int) (int, error)) (int, error) {
	n, w := s.n, s.n.w
	m, led := kernel.LeadershipOf(ctx)
	before := n.admitted[m]
	did, err := sweep(ctx, max)
	switch {
	case !led:
	case errors.Is(err, kernel.ErrDeposed):
		w.logLine("%s is refused: epoch %d is over", n.proc.Name, m.Epoch)
		w.hit("F075")
		n.sweeping = false
	case err == nil && n.admitted[m] == before:
		w.wrong("F075", "%s has swept under epoch %d, and the role's row did not say that it leads", n.proc.Name, m.Epoch)
	}
	return did, err
}

// roleMoved checks that epochs grow, and that a place is not lost before its time, unless its node releases it. One
// exception: a standby on the leader's host gives way to a node of another host. The row has the hosts of its nodes.
func (w *world) roleMoved(n *node, ch *kernel.RoleChange, at time.Time) {
	now, before := &ch.Now, &ch.Loaded
	w.mix(uint64(now.Epoch))
	if now.Leader != before.Leader || now.Epoch != before.Epoch || now.Standby != before.Standby {
		w.logLine("role %s, epoch %d: %q leads, %q stands by", now.Name, now.Epoch, now.Leader, now.Standby)
	}
	if now.LeaderHost != w.hostOf(now.Leader) || now.StandbyHost != w.hostOf(now.Standby) {
		w.wrong("I15", "role %s: %q leads on host %q, and %q stands by on host %q", now.Name, now.Leader, now.LeaderHost, now.Standby, now.StandbyHost)
	}
	displaced := now.Standby == n.proc.Name && before.StandbyHost == before.LeaderHost && now.StandbyHost != now.LeaderHost
	fresh := w.swarm.alone && now.Leader == n.proc.Name // all others are known to be dead
	if now.Leader != before.Leader || now.Epoch != before.Epoch {
		w.ledBy[kernel.Leadership{Role: now.Name, Epoch: now.Epoch}] = now.Leader
	}
	if begins := now.Leader != before.Leader; begins && before.Leader == n.proc.Name && now.Leader == before.Standby && now.Standby == n.proc.Name {
		w.hit("F183")
	}
	switch begins := now.Leader != "" && (now.Leader != before.Leader || now.Epoch != before.Epoch); {
	case now.Epoch < before.Epoch, begins && now.Epoch <= before.Epoch:
		w.wrong("F071", "role %s: epoch %d of %q comes after epoch %d of %q", now.Name, now.Epoch, now.Leader, before.Epoch, before.Leader)
	case (begins || now.Leader == "") && before.Led(at) && before.Leader != n.proc.Name && !fresh:
		w.wrong("F071", "role %s: %q takes the place of %q, which leads until %s", now.Name, n.proc.Name, before.Leader, before.LeaderUntil)
	case begins && before.StoodBy(at) && now.Leader != before.Standby && !fresh:
		w.wrong("F076", "role %s: %q leads, and %q stood by until %s", now.Name, now.Leader, before.Standby, before.StandbyUntil)
	case !begins && now.Standby != before.Standby && before.StoodBy(at) && before.Standby != n.proc.Name && !displaced:
		w.wrong("F071", "role %s: %q takes the place of %q, who stands by until %s", now.Name, n.proc.Name, before.Standby, before.StandbyUntil)
	}
}

// swept checks that for each epoch only one node's due scans are admitted.
func (w *world) swept(n *node, s *share) {
	if s.role.Leader != n.proc.Name || !s.role.Led(s.at) {
		return // it must be refused
	}
	n.admitted[kernel.Leadership{Role: s.role.Name, Node: s.role.Leader, Epoch: s.role.Epoch}]++
	reign := kernel.Leadership{Role: s.role.Name, Epoch: s.role.Epoch}
	if other, known := w.admittedLeaders[reign]; known && other != n.proc.Name {
		w.wrong("F071", "role %s: in epoch %d both %s and %s were admitted", s.role.Name, s.role.Epoch, other, n.proc.Name)
	}
	w.admittedLeaders[reign] = n.proc.Name
}

// checkRolesAreHeld checks that, without faults, each role soon has a living leader that knows its role, and a living
// standby, and that the roles are spread (G9 of hosts, F183). If nodes live on several hosts, these two are on different ones.
// Nodes attend to roles twice in the time for which a role is kept. So a role whose leader was killed has that time until
// another node leads it, half of it until that node hands it over (roles are spread), and half of it until the next one knows.
func (w *world) checkRolesAreHeld() {
	fault := w.vacancy()
	if fault == "" {
		w.vacant = 0
		return
	}
	if w.vacant == 0 {
		w.vacant = w.Now
	}
	if since := w.Now - w.vacant; since > 2*w.swarm.ttl+slack {
		w.wrong("F076", "%s, for %s without faults; places are kept for %s", fault, since, w.swarm.ttl)
	}
}

func (w *world) vacancy() string {
	for _, role := range kernel.RoleTable() {
		if fault := w.vacancyOf(role.Name); fault != "" {
			return fault
		}
	}
	roles, err := w.inner.Roles(context.Background())
	w.must(err)
	for _, n := range w.nodes {
		if name := kernel.Spread(roles, n.proc.Name, w.storeNow()); name != "" {
			return n.proc.Name + " leads several roles, and the standby of role " + name + " leads none"
		}
	}
	return ""
}

func (w *world) vacancyOf(role string) string {
	r := w.roleNamed(role)
	now := w.storeNow()
	leader, standby := w.nodeNamed(r.Leader), w.nodeNamed(r.Standby)
	switch {
	case !r.Led(now) || leader == nil:
		return "no node leads role " + role
	case leader.leads[role].Epoch != r.Epoch:
		return leader.proc.Name + " leads role " + role + ", and does not know"
	case w.alive() > 1 && (!r.StoodBy(now) || standby == nil):
		return "no node stands by for role " + role
	case w.liveHosts() > 1 && w.hostOf(r.Leader) == w.hostOf(r.Standby):
		return "leader and standby of role " + role + " are on one host, and nodes live on another"
	}
	return ""
}

func (w *world) roleNamed(name string) kernel.Role {
	roles, err := w.inner.Roles(context.Background())
	w.must(err)
	if i := slices.IndexFunc(roles, func(r kernel.Role) bool { return r.Name == name }); i >= 0 {
		return roles[i]
	}
	return kernel.Role{Name: name}
}

// liveHosts is the number of hosts on which nodes live.
func (w *world) liveHosts() int {
	hosts := map[string]bool{}
	for _, n := range w.nodes {
		if w.nodeNamed(n.proc.Name) != nil {
			hosts[w.nodeHost(n.id)] = true
		}
	}
	return len(hosts)
}

func (w *world) alive() (n int) {
	for _, one := range w.nodes {
		if w.nodeNamed(one.proc.Name) != nil {
			n++
		}
	}
	return n
}

// nodeNamed returns the living node with a name.
func (w *world) nodeNamed(name string) *node {
	i := slices.IndexFunc(w.nodes, func(n *node) bool { return n.proc.Name == name && !n.proc.Dead && !n.stopping })
	if i < 0 {
		return nil
	}
	return w.nodes[i]
}

// leaderAfter returns the leader of the epoch after that of the role; it may have handed the role over since.
func (w *world) leaderAfter(before *kernel.Role) string {
	return w.ledBy[kernel.Leadership{Role: before.Name, Epoch: before.Epoch + 1}]
}

// endLeader ends the leader when there are no faults. A leader that stops hands over to its standby at once. If the
// leader dies, all nodes of its host die with it, provided that nodes live on other hosts. Its standby is on one of
// those, and leads when the leader's time is over.
func (w *world) endLeader(killed bool) {
	if w.vacancy() != "" || len(w.nodes) < 2 {
		return
	}
	before := w.roleNamed(kernel.RoleSupervisor)
	leader := w.nodeNamed(before.Leader)
	several := w.liveHosts() > 1
	switch {
	case killed && several:
		w.hit("F163")
		for _, n := range w.nodes {
			if w.nodeHost(n.id) == before.LeaderHost && w.nodeNamed(n.proc.Name) != nil {
				n.crash()
			}
		}
	case killed:
		leader.crash()
	default:
		leader.stop()
		w.runUntil(w.Now + time.Second)
		if now := w.roleNamed(before.Name); w.leaderAfter(&before) != before.Standby {
			w.wrong("F076", "%s has left, and %+v comes after %+v", leader.proc.Name, now, before)
		}
	}
	for end := w.Now + w.swarm.ttl*3/2 + slack + time.Second; len(w.faults) == 0 && w.Now < end; w.checkRolesAreHeld() {
		w.runUntil(w.Now + 500*time.Millisecond)
	}
	if now := w.roleNamed(before.Name); len(w.faults) == 0 && (several || !killed) && w.leaderAfter(&before) != before.Standby {
		w.wrong("F076", "host %s has died, and %+v comes after %+v", before.LeaderHost, now, before)
	}
}
