package scheduler

import (
	"context"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// HoldRole makes a holder the leader of a role if it is free, and extends its time if it leads. Only a new epoch is
// recorded in the audit log: holders call every few seconds.
func (s *Scheduler) HoldRole(ctx context.Context, name, holder string, ttl time.Duration) (*operate.RoleHold, error) {
	return s.changeHeldRole(ctx, name, holder, "holdRole", func(r kernel.HeldRole, now time.Time, fence int64) kernel.HeldRole {
		return r.Hold(holder, now, fence, ttl)
	})
}

// ReleaseRole ends the leadership of a holder; of any other, nothing changes.
func (s *Scheduler) ReleaseRole(ctx context.Context, name, holder string) (*operate.RoleHold, error) {
	return s.changeHeldRole(ctx, name, holder, "releaseRole", func(r kernel.HeldRole, _ time.Time, _ int64) kernel.HeldRole {
		return r.Release(holder)
	})
}

func (s *Scheduler) changeHeldRole(ctx context.Context, name, holder, act string, rule func(kernel.HeldRole, time.Time, int64) kernel.HeldRole) (view *operate.RoleHold, err error) {
	err = s.update(ctx, func(tx kernel.Tx) error {
		role, err := lockHeldRole(tx, name)
		if err != nil {
			return err
		}
		now, err := tx.Now()
		if err != nil {
			return err
		}
		fence, err := tx.Fence()
		if err != nil {
			return err
		}
		next := rule(role, now, fence)
		view = next.ViewFor(holder, now, fence)
		if next == role {
			return nil
		}
		if role.Epoch == 0 {
			if err := checkRoomForRole(tx); err != nil {
				return err
			}
		}
		if err := tx.SaveHeldRole(kernel.HeldRoleChange{Now: next, Loaded: role}); err != nil {
			return err
		}
		if next.Epoch == role.Epoch && next.Holder == role.Holder {
			return nil
		}
		audit := kernel.AuditOf(ctx, holder, act)
		audit.Target, audit.Reason = name, next.Summary(holder)
		return saveAudit(tx, audit)
	})
	return view, err
}

// lockHeldRole locks a role. If it is new, the transaction locks the role courier, and then looks again: see
// kernel.HeldRoleTx.
func lockHeldRole(tx kernel.Tx, name string) (kernel.HeldRole, error) {
	role, err := tx.LockHeldRole(name)
	if err != nil || role.Epoch > 0 {
		return role, err
	}
	if _, err := tx.LockRoles([]string{kernel.RoleCourier}); err != nil {
		return role, err
	}
	return tx.LockHeldRole(name)
}

func checkRoomForRole(tx kernel.Tx) error {
	n, err := tx.CountHeldRoles()
	if err != nil {
		return err
	}
	if n >= operate.MaxRoles {
		e := perdure.Refuse(perdure.CodeConflict, "there are %d roles, which is the maximum", n)
		e.Hint = "use the name of a role that has no leader: names are kept, because their epochs must grow"
		return e
	}
	return nil
}
