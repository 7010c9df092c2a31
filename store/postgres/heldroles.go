package postgres

import (
	"context"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

const (
	heldRoleColumns  = "name, epoch, holder, until"
	lockHeldRoleSQL  = "select " + heldRoleColumns + " from perdure.held_role where name = $1 for update"
	heldRolesSQL     = "select " + heldRoleColumns + " from perdure.held_role order by name"
	countHeldRoleSQL = "select count(*)::int from perdure.held_role"
	addHeldRoleSQL   = "insert into perdure.held_role (" + heldRoleColumns + ") values ($1, $2, $3, $4) on conflict do nothing"
	saveHeldRoleSQL  = "update perdure.held_role set epoch = $2, holder = $3, until = $4 where name = $1 and epoch = $5 and holder = $6"
)

func scanHeldRole(r *pgwire.Reader) kernel.HeldRole {
	return kernel.HeldRole{Name: r.Text(), Epoch: r.Int64(), Holder: r.Text(), Until: r.Time()}
}

func (tx *tx) LockHeldRole(name string) (kernel.HeldRole, error) {
	role := kernel.HeldRole{Name: name}
	err := tx.run(pgwire.New(lockHeldRoleSQL).Text(name).Each(func(r *pgwire.Reader) error {
		role = scanHeldRole(r)
		return r.Failed
	}), tx.readClock())
	return role, err
}

func (tx *tx) CountHeldRoles() (n int, err error) {
	err = tx.run(pgwire.New(countHeldRoleSQL).Each(func(r *pgwire.Reader) error {
		n = r.Int()
		return r.Failed
	}))
	return n, err
}

func (tx *tx) SaveHeldRole(c kernel.HeldRoleChange) error {
	tx.wrote = true
	now, was := c.Now, c.Loaded
	if was.Epoch == 0 {
		return tx.run(pgwire.New(addHeldRoleSQL).Text(now.Name).Int64(now.Epoch).Text(now.Holder).Time(now.Until).Exact(1))
	}
	return tx.run(pgwire.New(saveHeldRoleSQL).Text(was.Name).Int64(now.Epoch).Text(now.Holder).Time(now.Until).
		Int64(was.Epoch).Text(was.Holder).Exact(1))
}

// HeldRoles implements kernel.Registry.
func (s *Store) HeldRoles(ctx context.Context) ([]kernel.HeldRole, error) {
	return query(ctx, s, pgwire.New(heldRolesSQL), scanHeldRole)
}
