package sqlite

import (
	"context"

	"github.com/perdure/perdure/internal/kernel"
)

const (
	heldRoleColumns = `name, epoch, holder, until`
	heldRoleSQL     = `SELECT ` + heldRoleColumns + ` FROM perdure_held_role WHERE name = ?`
	heldRolesSQL    = `SELECT ` + heldRoleColumns + ` FROM perdure_held_role ORDER BY name`
)

func readHeldRole(r *row) kernel.HeldRole {
	return kernel.HeldRole{Name: r.text(), Epoch: r.num(), Holder: r.text(), Until: r.time()}
}

func (tx *tx) LockHeldRole(name string) (kernel.HeldRole, error) {
	r, err := one(tx.c, readHeldRole, heldRoleSQL, name)
	r.Name = name
	return r, err
}

func (tx *tx) CountHeldRoles() (int, error) {
	return one(tx.c, (*row).int, `SELECT count(*) FROM perdure_held_role`)
}

func (tx *tx) SaveHeldRole(c kernel.HeldRoleChange) error {
	now, was := c.Now, c.Loaded
	var n int
	var err error
	if was.Epoch == 0 {
		n, err = tx.changed(`INSERT INTO perdure_held_role (`+heldRoleColumns+`) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`,
			now.Name, now.Epoch, now.Holder, micros(now.Until))
	} else {
		n, err = tx.changed(`UPDATE perdure_held_role SET epoch = ?, holder = ?, until = ? WHERE name = ? AND epoch = ? AND holder = ?`,
			now.Epoch, now.Holder, micros(now.Until), was.Name, was.Epoch, was.Holder)
	}
	return tx.exactlyOne(n, err)
}

// HeldRoles implements kernel.Registry.
func (s *Store) HeldRoles(ctx context.Context) ([]kernel.HeldRole, error) {
	return view(ctx, s, readHeldRole, heldRolesSQL)
}
