package memory

import (
	"context"
	"maps"
	"slices"

	"github.com/perdure/perdure/internal/kernel"
)

func (tx *tx) LockHeldRole(name string) (kernel.HeldRole, error) {
	r := tx.heldRoles[name]
	r.Name = name
	return r, nil
}

func (tx *tx) CountHeldRoles() (int, error) { return len(tx.heldRoles), nil }

func (tx *tx) SaveHeldRole(c kernel.HeldRoleChange) error {
	is, was := tx.heldRoles[c.Loaded.Name], c.Loaded
	if is.Epoch != was.Epoch || is.Holder != was.Holder {
		tx.failed = kernel.ErrStale
		return tx.failed
	}
	now := c.Now
	now.Until = storedTime(now.Until)
	set(tx, tx.heldRoles, was.Name, now)
	return nil
}

// HeldRoles implements kernel.Registry.
func (s *Store) HeldRoles(ctx context.Context) ([]kernel.HeldRole, error) {
	return view(ctx, s, func() (roles []kernel.HeldRole) {
		for _, name := range slices.Sorted(maps.Keys(s.heldRoles)) {
			roles = append(roles, s.heldRoles[name])
		}
		return roles
	})
}
