package sqlite

import (
	"cmp"
	"context"
	"time"

	"github.com/perdure/perdure/internal/kernel"
)

const (
	roleColumns = `name, epoch, leader, leader_host, leader_until, standby, standby_host, standby_until`
	rolesSQL    = `SELECT ` + roleColumns + ` FROM perdure_role ORDER BY name`
	roleSQL     = `SELECT ` + roleColumns + ` FROM perdure_role WHERE name = ?`
)

func readRole(r *row) kernel.Role {
	return kernel.Role{Name: r.text(), Epoch: r.num(), Leader: r.text(), LeaderHost: r.text(), LeaderUntil: r.time(),
		Standby: r.text(), StandbyHost: r.text(), StandbyUntil: r.time()}
}

func (tx *tx) LockRoles(names []string) ([]kernel.Role, error) {
	var roles []kernel.Role
	for _, name := range unique(names, cmp.Compare[string]) {
		if err := tx.exec(`INSERT INTO perdure_role (name) VALUES (?) ON CONFLICT DO NOTHING`, name); err != nil {
			return nil, err
		}
		r, err := one(tx.c, readRole, roleSQL, name)
		if err != nil {
			return nil, err
		}
		roles = append(roles, r)
	}
	return roles, nil
}

func (tx *tx) ShareRole(name string) (kernel.Role, error) {
	r, err := one(tx.c, readRole, roleSQL, name)
	r.Name = name
	return r, err
}

func (tx *tx) SaveRoles(changes []kernel.RoleChange) error {
	for _, c := range changes {
		now, was := c.Now, c.Loaded
		n, err := tx.changed(`UPDATE perdure_role SET epoch = ?, leader = ?, leader_host = ?, leader_until = ?,
				standby = ?, standby_host = ?, standby_until = ?
			WHERE name = ? AND epoch = ? AND leader = ? AND standby = ?`,
			now.Epoch, now.Leader, now.LeaderHost, micros(now.LeaderUntil), now.Standby, now.StandbyHost, micros(now.StandbyUntil),
			was.Name, was.Epoch, was.Leader, was.Standby)
		if err == nil && n != 1 {
			err = kernel.ErrStale
		}
		if err != nil {
			tx.failed = err
			return err
		}
	}
	return nil
}

// renew extends the roles of the node that have not lapsed.
func (s *Store) renew(node string, now time.Time, ttl time.Duration) error {
	until := micros(now.Add(ttl))
	if err := s.registry.exec(`UPDATE perdure_role SET leader_until = ? WHERE leader = ? AND leader_until > ?`, until, node, micros(now)); err != nil {
		return err
	}
	return s.registry.exec(`UPDATE perdure_role SET standby_until = ? WHERE standby = ? AND standby_until > ?`, until, node, micros(now))
}

func (s *Store) Roles(ctx context.Context) ([]kernel.Role, error) {
	return view(ctx, s, readRole, rolesSQL)
}
