package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/kernel"
)

func (tx *tx) LockRoles(names []string) ([]kernel.Role, error) {
	var roles []kernel.Role
	for _, name := range unique(names, cmp.Compare[string]) {
		if _, there := tx.roles[name]; !there {
			set(tx, tx.roles, name, kernel.Role{Name: name})
		}
		roles = append(roles, tx.roles[name])
	}
	return roles, nil
}

func (tx *tx) ShareRole(name string) (kernel.Role, error) {
	r := tx.roles[name]
	r.Name = name
	return r, nil
}

func (tx *tx) SaveRoles(changes []kernel.RoleChange) error {
	for _, c := range changes {
		is, was := tx.roles[c.Loaded.Name], c.Loaded
		if is.Name != was.Name || is.Epoch != was.Epoch || is.Leader != was.Leader || is.Standby != was.Standby {
			tx.failed = kernel.ErrStale
			return tx.failed
		}
		now := c.Now
		now.LeaderUntil, now.StandbyUntil = storedTime(now.LeaderUntil), storedTime(now.StandbyUntil)
		set(tx, tx.roles, was.Name, now)
	}
	return nil
}

func (s *Store) Roles(ctx context.Context) ([]kernel.Role, error) {
	return view(ctx, s, s.rolesByName)
}

func (d *data) rolesByName() (roles []kernel.Role) {
	for _, name := range slices.Sorted(maps.Keys(d.roles)) {
		roles = append(roles, d.roles[name])
	}
	return roles
}

// renewPlaces returns the role with those places of the node extended that have not lapsed.
func renewPlaces(r kernel.Role, node string, now time.Time, ttl time.Duration) kernel.Role {
	until := storedTime(now.Add(ttl))
	if r.Leader == node && r.Led(now) {
		r.LeaderUntil = until
	}
	if r.Standby == node && r.StoodBy(now) {
		r.StandbyUntil = until
	}
	return r
}
