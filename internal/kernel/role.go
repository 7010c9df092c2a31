package kernel

import (
	"context"
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/perdure/perdure"
)

// Role is something that one node at a time does for all of them: who leads, who stands by to take over, and
// until when, by the store's clock. Nothing that must not go wrong relies on it: a role saves the work
// of doing it everywhere, and says who does it.
//
// The methods are the rules of elections. They change nothing; who follows them holds the lock of the role's
// row, and has read the clock after that.
type Role struct {
	Name         string
	Epoch        int64  // grows with every new leader; 0: there was none yet
	Leader       string // a node's id; empty: nobody
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
		{RoleSupervisor, "looks every second for runs whose time is over, steps whose time has come, and jobs past their deadline"},
		{RoleCourier, "applies mail: it makes jobs of what was submitted in callers' transactions"},
	}
}

// DefaultRoleTTL is how long a node leads, or stands by, after it was last heard of.
const DefaultRoleTTL = 10 * time.Second

// DeadAfterTTLs is the number of role TTLs for which a node may be silent before it counts as dead. A node updates its
// row at least twice in one TTL.
const DeadAfterTTLs = 3

// StateAt returns the node's state, judged by when it was last seen. It is for display only: nothing is decided by it.
func (n *Node) StateAt(now time.Time, ttl time.Duration) perdure.NodeState {
	if now.Sub(n.SeenAt) < DeadAfterTTLs*ttl {
		return perdure.NodeAlive
	}
	return perdure.NodeDead
}

// ErrDeposed refuses what is written under a role that is no longer the writer's.
var ErrDeposed error = &perdure.Error{Code: perdure.CodeConflict, Message: "this node does not lead the role any more, and nothing was written"}

// Led says whether somebody leads, and StoodBy whether somebody stands by.
func (r *Role) Led(now time.Time) bool     { return r.Leader != "" && now.Before(r.LeaderUntil) }
func (r *Role) StoodBy(now time.Time) bool { return r.Standby != "" && now.Before(r.StandbyUntil) }

// Enlist is the role after the node on this host has taken the place in it that is free, if there is one. What has
// lapsed is over, also for who had it: to lead again is a new epoch. Where a leader is gone, its standby goes first.
//
// The failure of one host must not end both the leader and its standby. So a standby on the leader's host counts as
// none for a node of another host, which takes its place. Hosts never change the leader, and a standby on another host
// than the leader keeps its place: two nodes do not displace each other in turn.
func (r Role) Enlist(node, host string, now time.Time, ttl time.Duration) Role {
	led, stood := r.Led(now), r.StoodBy(now)
	if led && r.StandbyHost == r.LeaderHost && host != r.LeaderHost {
		stood = false
	}
	switch {
	case led && (r.Leader == node || stood), stood && r.Standby != node:
		return r
	case led:
		r.Standby, r.StandbyHost, r.StandbyUntil = node, host, now.Add(ttl)
		return r
	}
	return r.lead(node, host, now.Add(ttl))
}

// HandOver is the role after node has gone in good order: to lead is its standby's at once, whether it knows
// already or not.
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

// Vacate is the role when all who had a place in it are known to be dead.
func (r Role) Vacate() Role { return Role{Name: r.Name, Epoch: r.Epoch} }

func (r Role) lead(node, host string, until time.Time) Role {
	return Role{Name: r.Name, Epoch: r.Epoch + 1, Leader: node, LeaderHost: host, LeaderUntil: until}
}

// MaxHostName is the largest size of a host's name, in bytes: that of a DNS name.
const MaxHostName = 253

// CheckHostName returns why name cannot be a host's name: it has 1 to MaxHostName bytes, printable and without spaces.
// Two nodes are on the same host if these names are equal.
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

// Admit refuses what the mandate's node would write when it does not lead any more.
func (r *Role) Admit(m Mandate, now time.Time) error {
	if r.Name != m.Role || r.Epoch != m.Epoch || r.Leader != m.Node || !r.Led(now) {
		return ErrDeposed
	}
	return nil
}

// Mandate proves that a node leads a role. Writes under the role carry it, and the store refuses those of an old epoch.
type Mandate struct {
	Role  string
	Node  string
	Epoch int64
}

type mandateKey struct{}

// WithMandate is the context of a leader: what is asked with it is written under the mandate, or not at all.
func WithMandate(ctx context.Context, m Mandate) context.Context {
	return context.WithValue(ctx, mandateKey{}, m)
}

// MandateOf is the mandate under which something is asked; ok is false where it needs none.
func MandateOf(ctx context.Context) (m Mandate, ok bool) {
	m, ok = ctx.Value(mandateKey{}).(Mandate)
	return m, ok
}
