package operate

import (
	"context"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

// Roles elects leaders among users' programs, and lists all roles.
//
// A program that leads must stop its work before its time is over. It may be paused at any instant, so that it cannot
// always do so: what it writes must carry the epoch, and the receiver must refuse an epoch that is less than one that it
// has seen.
type Roles interface {
	// HoldRole makes the holder the leader if the role has none, and extends the holder's time if it leads. To repeat the
	// call is safe. The name of a role of Perdure's nodes is refused with CodeForbidden.
	HoldRole(context.Context, RoleRequest) (*RoleHold, error)
	// ReleaseRole ends the holder's leadership at once. If it does not lead, nothing happens.
	ReleaseRole(ctx context.Context, name, holder string) (*RoleHold, error)
	// ListRoles returns the roles of the nodes first, then those of users' programs, each in the order of names.
	ListRoles(context.Context) ([]RoleState, error)
}

// Bounds of roles that programs hold.
const (
	MaxRoles   = 1_000 // names; a name is kept for ever, because its epochs must grow
	MinRoleTTL = 2 * time.Second
	MaxRoleTTL = 5 * time.Minute
)

// RoleRequest asks to lead a role.
type RoleRequest struct {
	Name   string           `json:"-"`
	Holder string           `json:"holder"` // names one process, and is never used by two at once
	TTL    perdure.Duration `json:"ttl"`    // MinRoleTTL to MaxRoleTTL, from the time of the call on
}

// RoleHold is the answer to a program.
type RoleHold struct {
	Leads  bool      `json:"leads"`
	Epoch  int64     `json:"epoch"`            // of the present or latest leader; 0: there was none
	Leader string    `json:"leader,omitempty"` // the holder that leads; missing: none
	Until  time.Time `json:"until,omitzero"`   // the end of its time, by the store's clock
}

// RoleKind is the kind of holders of a role.
type RoleKind string

// The kinds of roles.
const (
	NodeRole RoleKind = "node" // a duty of a node
	HeldRole RoleKind = "held" // of users' programs
)

// RoleKinds are all kinds of roles.
var RoleKinds = []RoleKind{NodeRole, HeldRole}

// RoleState is a role as it is listed. A leader or standby whose time is over is left out.
type RoleState struct {
	Name         string    `json:"name"`
	Kind         RoleKind  `json:"kind"`
	Epoch        int64     `json:"epoch"`
	Leader       string    `json:"leader,omitempty"` // a node's id, or a holder
	LeaderHost   string    `json:"leaderHost,omitempty"`
	Until        time.Time `json:"until,omitzero"`
	Standby      string    `json:"standby,omitempty"` // a node's id
	StandbyHost  string    `json:"standbyHost,omitempty"`
	StandbyUntil time.Time `json:"standbyUntil,omitzero"`
}

// Check returns an error with CodeInvalid if the holder or the TTL is not valid. The name is checked by the node.
func (r *RoleRequest) Check() error {
	ttl := time.Duration(r.TTL)
	if ttl < MinRoleTTL || ttl > MaxRoleTTL {
		return refuseField("/ttl", "use 2s to 5m", "is not between %s and %s", plain.Duration(MinRoleTTL), plain.Duration(MaxRoleTTL))
	}
	return CheckRoleHolder(r.Holder)
}

// CheckRoleHolder returns an error with CodeInvalid if a text cannot name the holder of a role.
func CheckRoleHolder(holder string) error {
	if !plain.IsLine(holder, perdure.MaxHolderLength) {
		return refuseField("/holder", "name the process, for example by host and a random text", "is not 1 to %d characters that can be printed", perdure.MaxHolderLength)
	}
	return nil
}
