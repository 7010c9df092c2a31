package kernel

import (
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/operate"
)

// HeldRole is a role of users' programs: at most one of them, its holder, leads at a time. A Role, in contrast, is a duty
// of a node. A name is never deleted, because its epochs must grow.
//
// The methods are the rules. They return the new row and write nothing. The caller holds the lock of the row, and has read
// the clock and the fence after taking it.
type HeldRole struct {
	Name   string
	Epoch  int64     // grows with every new leader; 0: there was none yet
	Holder string    // that leads, or led last; empty: it has released the role
	Until  time.Time // the end of its time, by the store's clock
}

// HeldRoleChange is the role to write (Now) and the role as it was loaded (Loaded), whose epoch is 0 if it is new.
type HeldRoleChange struct{ Now, Loaded HeldRole }

// HeldRoleTx is what transactions do with roles that users' programs hold. A transaction that adds a role has locked the
// role courier (Locker.LockRoles), so that no other one adds one at the same time, and CountHeldRoles is exact.
type HeldRoleTx interface {
	// LockHeldRole locks a role, and waits for a lock that another transaction holds. A role that is not stored is returned
	// with its name only.
	LockHeldRole(name string) (HeldRole, error)
	CountHeldRoles() (int, error)
	// SaveHeldRole writes a role. It compares the row with the one that was loaded (epoch, holder), and returns ErrStale if
	// they differ, or if a new role has been stored already.
	SaveHeldRole(HeldRoleChange) error
}

// LedBy reports whether the holder leads at now. A role whose epoch is below the fence has no leader: the store may have
// lost a later one.
func (r HeldRole) LedBy(holder string, now time.Time, fence int64) bool {
	return r.Holder == holder && r.Led(now, fence)
}

// Led reports whether the role has a leader at now.
func (r HeldRole) Led(now time.Time, fence int64) bool {
	return r.Holder != "" && now.Before(r.Until) && r.Epoch >= fence
}

// Hold returns the role after a holder has asked to lead it for ttl: extended if it leads, with a new epoch if the role is
// free, and unchanged if another holder leads. A holder whose time has passed begins a new epoch, because it may not know
// whether others have led meanwhile. A new time that is shorter ends the role earlier.
func (r HeldRole) Hold(holder string, now time.Time, fence int64, ttl time.Duration) HeldRole {
	switch {
	case r.LedBy(holder, now, fence):
	case r.Led(now, fence):
		return r
	default:
		r.Holder, r.Epoch = holder, max(r.Epoch+1, fence)
	}
	r.Until = now.Add(ttl)
	return r
}

// Release returns the role after a holder has given it up. If the holder does not lead, nothing changes.
func (r HeldRole) Release(holder string) HeldRole {
	if r.Holder == holder {
		r.Holder, r.Until = "", time.Time{}
	}
	return r
}

// ViewFor returns the answer to a holder.
func (r HeldRole) ViewFor(holder string, now time.Time, fence int64) *operate.RoleHold {
	v := &operate.RoleHold{Leads: r.LedBy(holder, now, fence), Epoch: r.Epoch}
	if r.Led(now, fence) {
		v.Leader, v.Until = r.Holder, r.Until
	}
	return v
}

// CheckHeldRole returns an error if users' programs cannot hold a role of this name.
func CheckHeldRole(name string) error {
	switch {
	case len(name) > perdure.MaxNameLength || !plain.IsName(name):
		e := perdure.Refuse(perdure.CodeInvalid, "invalid name of a role: use 1 to %d letters, digits, \".\", \"_\" and \"-\", the first a letter or digit", perdure.MaxNameLength)
		e.Fields = []perdure.FieldError{{Pointer: "/path/name", Message: e.Message}}
		return e
	case slices.ContainsFunc(RoleTable(), func(r RoleInfo) bool { return r.Name == name }) || slices.Contains(futureRoles, name):
		e := perdure.Refuse(perdure.CodeForbidden, "%s is a role of Perdure's nodes", name)
		e.Hint = "use another name"
		return e
	}
	return nil
}

// futureRoles are names for roles of nodes of later versions, so that no user's role has to be renamed.
var futureRoles = []string{"timetable", "janitor"}

// Summary describes a change of the leader for the audit log.
func (r HeldRole) Summary(holder string) string {
	if r.Holder == "" {
		return fmt.Sprintf("%s has released epoch %d", holder, r.Epoch)
	}
	return fmt.Sprintf("%s leads epoch %d", holder, r.Epoch)
}
