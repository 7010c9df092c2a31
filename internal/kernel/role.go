package kernel

import (
	"context"
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/perdure/perdure"
)

// Role is an exclusive duty of one node for all nodes of a store. The row names the leader, the standby, and until when
// they have their places, by the store's clock. Correctness never depends on a role: roles only save the work of doing
// something on every node.
//
// The methods are the rules of elections. They return the new role and write nothing. The caller holds the lock of the
// role's row, and has read the clock after taking it.
type Role struct {
	Name         string
	Epoch        int64  // grows with every new leader; 0: there was none yet
	Leader       string // a node's id; empty: none
	LeaderHost   string // the leader's host; see CheckHostName
	LeaderUntil  time.Time
	Standby      string
	StandbyHost  string
	StandbyUntil time.Time
}

// The names of the roles.
const (
	RoleSupervisor = "supervisor"
	RoleCourier    = "courier"
)

// RoleInfo describes a role of this program.
type RoleInfo struct {
	Name string
	Does string // one line: what the leader does
}

// RoleTable lists every role of this program, one entry each. Every node runs for all of them.
func RoleTable() []RoleInfo {
	return []RoleInfo{
		{RoleSupervisor, "finds expired runs, steps whose wait is over, and jobs past their deadline, every second; starts the jobs of schedules; computes the statistics"},
		{RoleCourier, "applies mail: it turns submissions made in callers' transactions into jobs; carries out bulk acts; delivers notifications"},
	}
}

// DefaultRoleTTL is how long a node keeps its place in a role after its last sign of life.
const DefaultRoleTTL = 10 * time.Second

// DeadAfterTTLs is the number of role TTLs without a sign of life after which a node counts as dead. A node updates its
// row at least twice in one TTL.
const DeadAfterTTLs = 3

// StateAt returns the node's state, judged by the time of its last sign of life. It is for display only: nothing is
// decided by it.
func (n *Node) StateAt(now time.Time, ttl time.Duration) perdure.NodeState {
	if now.Sub(n.SeenAt) < DeadAfterTTLs*ttl {
		return perdure.NodeAlive
	}
	return perdure.NodeDead
}

// ErrDeposed is returned for a write under a role that the node no longer leads.
var ErrDeposed error = &perdure.Error{Code: perdure.CodeConflict, Message: "this node no longer leads the role; nothing was written"}

// Led reports whether the role has a leader at now. StoodBy reports whether it has a standby.
func (r *Role) Led(now time.Time) bool     { return r.Leader != "" && now.Before(r.LeaderUntil) }
func (r *Role) StoodBy(now time.Time) bool { return r.Standby != "" && now.Before(r.StandbyUntil) }

// Enlist returns the role after the node on this host has taken its free place, if one is free. A place that has lapsed
// is free, also for the node that had it: to lead again, it begins a new epoch. If the leader's place has lapsed, only
// the standby may take it, as long as there is one.
//
// The failure of one host must not end both the leader and its standby. So a standby on the leader's host counts as none
// for a node of another host, which takes its place. Hosts never change the leader, and a standby on another host than
// the leader keeps its place. So two nodes do not displace each other in turn.
func (r Role) Enlist(node, host string, now time.Time, ttl time.Duration) Role {
	led, stoodBy := r.Led(now), r.StoodBy(now)
	if led && r.StandbyHost == r.LeaderHost && host != r.LeaderHost {
		stoodBy = false
	}
	switch {
	case led && (r.Leader == node || stoodBy), stoodBy && r.Standby != node:
		return r
	case led:
		r.Standby, r.StandbyHost, r.StandbyUntil = node, host, now.Add(ttl)
		return r
	}
	return r.lead(node, host, now.Add(ttl))
}

// HandOver returns the role after a node has left in an orderly way. Its standby, if any, becomes leader at once; it
// need not know yet.
func (r Role) HandOver(node string, now time.Time, ttl time.Duration) Role {
	switch {
	case r.Standby == node:
		r.Standby, r.StandbyHost, r.StandbyUntil = "", "", time.Time{}
	case r.Leader == node && r.StoodBy(now):
		return r.lead(r.Standby, r.StandbyHost, now.Add(ttl))
	case r.Leader == node:
		r.Leader, r.LeaderHost, r.LeaderUntil = "", "", time.Time{}
	}
	return r
}

// Spread returns the name of the role that a node hands over to its standby, so that the roles are spread over the nodes;
// "" if there is none. A node that leads two or more of these roles hands one over to a standby that leads none. A standby
// that leads a role is passed over, so that two nodes do not hand a role back and forth.
func Spread(roles []Role, node string, now time.Time) (name string) {
	leads := map[string]int{}
	for _, r := range roles {
		if r.Led(now) {
			leads[r.Leader]++
		}
	}
	if leads[node] < 2 {
		return ""
	}
	for _, r := range roles {
		if r.Led(now) && r.Leader == node && r.StoodBy(now) && leads[r.Standby] == 0 {
			return r.Name
		}
	}
	return ""
}

// Swap returns the role after its leader has handed it over and stands by for it.
func (r Role) Swap(host string, now time.Time, ttl time.Duration) Role {
	return r.HandOver(r.Leader, now, ttl).Enlist(r.Leader, host, now, ttl)
}

// Vacancy describes what the role lacks where nodes live on several hosts: a leader, a standby, or a second host; "" if it
// lacks nothing.
func (r Role) Vacancy(now time.Time) string {
	switch {
	case !r.Led(now):
		return "no node leads role " + r.Name
	case !r.StoodBy(now):
		return "no node stands by for role " + r.Name
	case r.LeaderHost == r.StandbyHost:
		return "leader and standby of role " + r.Name + " are on one host"
	}
	return ""
}

// Vacate returns the role without leader and standby, for the case that both are known to be dead.
func (r Role) Vacate() Role { return Role{Name: r.Name, Epoch: r.Epoch} }

func (r Role) lead(node, host string, until time.Time) Role {
	return Role{Name: r.Name, Epoch: r.Epoch + 1, Leader: node, LeaderHost: host, LeaderUntil: until}
}

// MaxHostName is the largest size of a host's name, in bytes: that of a DNS name.
const MaxHostName = 253

// CheckHostName returns an error if name cannot be the name of a host: it has 1 to MaxHostName bytes, printable and
// without spaces. Two nodes are on the same host if these names are equal.
func CheckHostName(name string) error {
	switch {
	case name == "" || len(name) > MaxHostName:
		return fmt.Errorf("a host name has 1 to %d bytes, not %d", MaxHostName, len(name))
	case !utf8.ValidString(name):
		return fmt.Errorf("a host name is UTF-8 text, not %q", name)
	}
	for _, c := range name {
		if !unicode.IsPrint(c) || unicode.IsSpace(c) {
			return fmt.Errorf("a host name has printable characters and no spaces, not %q", c)
		}
	}
	return nil
}

// Admit returns ErrDeposed if the node of m no longer leads the role in the epoch of m.
func (r *Role) Admit(m Leadership, now time.Time) error {
	if r.Name != m.Role || r.Epoch != m.Epoch || r.Leader != m.Node || !r.Led(now) {
		return ErrDeposed
	}
	return nil
}

// Leadership proves that a node leads a role. Writes under the role carry it, and the store refuses writes of an older
// epoch.
type Leadership struct {
	Role  string
	Node  string
	Epoch int64
}

// Admit returns ErrDeposed if the leadership is no longer valid. Otherwise it stays valid until the end of the
// transaction.
func (m Leadership) Admit(tx Locker) error {
	role, err := tx.ShareRole(m.Role)
	if err != nil {
		return err
	}
	now, err := tx.Now()
	if err != nil {
		return err
	}
	return role.Admit(m, now)
}

type leadershipKey struct{}

// WithLeadership returns a context with a leadership: the store commits writes with it only if m is still valid.
func WithLeadership(ctx context.Context, m Leadership) context.Context {
	return context.WithValue(ctx, leadershipKey{}, m)
}

// LeadershipOf returns the leadership in the context; ok is false if there is none, and none is needed.
func LeadershipOf(ctx context.Context) (m Leadership, ok bool) {
	m, ok = ctx.Value(leadershipKey{}).(Leadership)
	return m, ok
}
