package kernel

import (
	"context"
	"time"

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
	LeaderUntil  time.Time
	Standby      string
	StandbyUntil time.Time
}

// The roles that there are.
const RoleSupervisor = "supervisor" // looks for what nobody reports on, at every period

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

// Enlist is the role after node has taken the place in it that is free, if there is one. What has lapsed is
// over, also for who had it: to lead again is a new epoch. Where a leader is gone, its standby goes first.
func (r Role) Enlist(node string, now time.Time, ttl time.Duration) Role {
	led, stood := r.Led(now), r.StoodBy(now)
	switch {
	case led && (r.Leader == node || stood), stood && r.Standby != node:
		return r
	case led:
		r.Standby, r.StandbyUntil = node, now.Add(ttl)
		return r
	}
	return r.lead(node, now.Add(ttl))
}

// HandOver is the role after node has gone in good order: to lead is its standby's at once, whether it knows
// already or not.
func (r Role) HandOver(node string, now time.Time, ttl time.Duration) Role {
	switch {
	case r.Standby == node:
		r.Standby, r.StandbyUntil = "", time.Time{}
	case r.Leader == node && r.StoodBy(now):
		return r.lead(r.Standby, now.Add(ttl))
	case r.Leader == node:
		r.Leader, r.LeaderUntil = "", time.Time{}
	}
	return r
}

// Vacate is the role when all who had a place in it are known to be dead.
func (r Role) Vacate() Role { return Role{Name: r.Name, Epoch: r.Epoch} }

func (r Role) lead(node string, until time.Time) Role {
	return Role{Name: r.Name, Epoch: r.Epoch + 1, Leader: node, LeaderUntil: until}
}

// Admit refuses what the mandate's node would write when it does not lead any more.
func (r *Role) Admit(m Mandate, now time.Time) error {
	if r.Name != m.Role || r.Epoch != m.Epoch || r.Leader != m.Node || !r.Led(now) {
		return ErrDeposed
	}
	return nil
}

// Mandate is a leader's: whatever it writes under the role goes by it. The epoch is its fence.
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
