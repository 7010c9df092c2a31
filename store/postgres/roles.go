package postgres

import (
	"context"
	"slices"

	"github.com/perdure/perdure/internal/kernel"
)

const (
	roleColumns = "name, epoch, leader, leader_host, leader_until, standby, standby_host, standby_until"

	makeRolesSQL = "insert into perdure.role (name) select unnest($1::text[]) on conflict do nothing"
	lockRolesSQL = "select " + roleColumns + " from perdure.role where name = any($1) order by name for update"
	shareRoleSQL = "select " + roleColumns + " from perdure.role where name = $1 for share"
	rolesSQL     = "select " + roleColumns + " from perdure.role order by name"
	saveRoleSQL  = `update perdure.role set epoch = $2, leader = $3, leader_host = $4, leader_until = $5,
			standby = $6, standby_host = $7, standby_until = $8
		where name = $1 and epoch = $9 and leader = $10 and standby = $11`

	// tellRolesSQL goes with the commit: elections are rare, and who has been handed a role is to know at once.
	tellRolesSQL = "select pg_notify('perdure_role', '')"
)

func scanRole(r *reader) kernel.Role {
	return kernel.Role{Name: r.text(), Epoch: r.int64(), Leader: r.text(), LeaderHost: r.text(), LeaderUntil: r.time(),
		Standby: r.text(), StandbyHost: r.text(), StandbyUntil: r.time()}
}

func (tx *tx) LockRoles(names []string) (roles []kernel.Role, err error) {
	names = slices.Sorted(slices.Values(names))
	err = tx.run(q(makeRolesSQL).texts(names), into(q(lockRolesSQL).texts(names), &roles, scanRole), tx.readClock())
	return roles, err
}

func (tx *tx) ShareRole(name string) (kernel.Role, error) {
	role := kernel.Role{Name: name}
	err := tx.run(q(shareRoleSQL).text(name).each(func(r *reader) error {
		role = scanRole(r)
		return r.failed
	}), tx.readClock())
	return role, err
}

func (tx *tx) SaveRoles(changes []kernel.RoleChange) error {
	var list []*statement
	for _, c := range changes {
		now, was := c.Now, c.Was
		list = append(list, q(saveRoleSQL).text(was.Name).int64(now.Epoch).text(now.Leader).text(now.LeaderHost).time(now.LeaderUntil).
			text(now.Standby).text(now.StandbyHost).time(now.StandbyUntil).
			int64(was.Epoch).text(was.Leader).text(was.Standby).exact(1))
	}
	if len(list) == 0 {
		return nil
	}
	return tx.run(append(list, q(tellRolesSQL))...)
}

func (s *Store) Roles(ctx context.Context) ([]kernel.Role, error) {
	return query(ctx, s, q(rolesSQL), scanRole)
}

// roll takes what attendSQL answers: the clock in every row, and a role, if there is one.
func (s *Store) roll(into *kernel.Roll) func(*reader) error {
	return func(r *reader) error {
		if read := scanReading(r); into.Now.IsZero() {
			into.Now, into.Fence = s.clock.timeOf(read).now, read.fence
		}
		if role := scanRole(r); role.Name != "" {
			into.Roles = append(into.Roles, role)
		}
		return r.failed
	}
}
