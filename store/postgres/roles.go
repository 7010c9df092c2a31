package postgres

import (
	"context"
	"slices"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
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

	// tellRolesSQL is sent with the commit: elections are rare, and the new leader must know at once.
	notifyRolesSQL = "select pg_notify('perdure_role', '')"
)

func scanRole(r *pgwire.Reader) kernel.Role {
	return kernel.Role{Name: r.Text(), Epoch: r.Int64(), Leader: r.Text(), LeaderHost: r.Text(), LeaderUntil: r.Time(),
		Standby: r.Text(), StandbyHost: r.Text(), StandbyUntil: r.Time()}
}

func (tx *tx) LockRoles(names []string) (roles []kernel.Role, err error) {
	names = slices.Sorted(slices.Values(names))
	err = tx.run(pgwire.New(makeRolesSQL).Texts(names), pgwire.Into(pgwire.New(lockRolesSQL).Texts(names), &roles, scanRole), tx.readClock())
	return roles, err
}

func (tx *tx) ShareRole(name string) (kernel.Role, error) {
	role := kernel.Role{Name: name}
	err := tx.run(pgwire.New(shareRoleSQL).Text(name).Each(func(r *pgwire.Reader) error {
		role = scanRole(r)
		return r.Failed
	}), tx.readClock())
	return role, err
}

func (tx *tx) SaveRoles(changes []kernel.RoleChange) error {
	var list []*pgwire.Statement
	for _, c := range changes {
		now, was := c.Now, c.Loaded
		list = append(list, pgwire.New(saveRoleSQL).Text(was.Name).Int64(now.Epoch).Text(now.Leader).Text(now.LeaderHost).Time(now.LeaderUntil).
			Text(now.Standby).Text(now.StandbyHost).Time(now.StandbyUntil).
			Int64(was.Epoch).Text(was.Leader).Text(was.Standby).Exact(1))
	}
	if len(list) == 0 {
		return nil
	}
	return tx.run(append(list, pgwire.New(notifyRolesSQL))...)
}

func (s *Store) Roles(ctx context.Context) ([]kernel.Role, error) {
	return query(ctx, s, pgwire.New(rolesSQL), scanRole)
}

// readRoles reads the answer of rollCallSQL: the clock in every row, and a role if there is one.
func (s *Store) readRoles(into *kernel.NodeAnswer) func(*pgwire.Reader) error {
	return func(r *pgwire.Reader) error {
		if read := scanReading(r); into.Now.IsZero() {
			into.Now, into.Fence = s.clock.timeOf(read).now, read.fence
		}
		if role := scanRole(r); role.Name != "" {
			into.Roles = append(into.Roles, role)
		}
		return r.Failed
	}
}
