package sqlite

import (
	"cmp"
	"context"

	"github.com/perdure/perdure/internal/kernel"
)

const (
	headColumns    = `name, current, latest, updated_at`
	headSQL        = `SELECT ` + headColumns + ` FROM perdure_definition WHERE name = ?`
	headsSQL       = `SELECT ` + headColumns + ` FROM perdure_definition WHERE name > ? ORDER BY name ` + limitTo
	versionColumns = `name, version, hash, author, created_at`
	versionsSQL    = `SELECT ` + versionColumns + ` FROM perdure_definition_version WHERE name = ? ORDER BY version DESC`
	versionSQL     = `SELECT ` + versionColumns + `, text FROM perdure_definition_version WHERE name = ? AND version = ?`
	addHeadSQL     = `INSERT INTO perdure_definition (` + headColumns + `) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`
	saveHeadSQL    = `UPDATE perdure_definition SET current = ?, latest = ?, updated_at = ? WHERE name = ? AND current = ? AND latest = ?`
	addVersionSQL  = `INSERT INTO perdure_definition_version (` + versionColumns + `, text) VALUES (?, ?, ?, ?, ?, ?)`
	deleteHeadSQL  = `DELETE FROM perdure_definition WHERE name = ?`
	deleteAllSQL   = `DELETE FROM perdure_definition_version WHERE name = ?`
	deleteOneSQL   = `DELETE FROM perdure_definition_version WHERE name = ? AND version = ?`
	countStoredSQL = `SELECT count(*) FROM perdure_definition`
)

func readHead(r *row) kernel.DefinitionHead {
	return kernel.DefinitionHead{Name: r.text(), Current: r.int(), Latest: r.int(), UpdatedAt: r.time()}
}

func readVersion(r *row) kernel.StoredDefinition {
	v := kernel.StoredDefinition{Name: r.text(), Version: r.int()}
	r.blob(v.Hash[:])
	v.Author, v.CreatedAt = r.text(), r.time()
	return v
}

func readVersionWithText(r *row) kernel.StoredDefinition {
	v := readVersion(r)
	v.Text = r.bytes()
	return v
}

func oneHead(c *conn, name string) (*kernel.DefinitionHead, error) {
	found, err := all(c, readHead, headSQL, name)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

func (tx *tx) LockDefinition(name string) (*kernel.DefinitionHead, error) {
	return oneHead(tx.c, name)
}

func (tx *tx) CountDefinitions() (int, error) { return one(tx.c, (*row).int, countStoredSQL) }

func (tx *tx) VersionsOf(name string) ([]kernel.StoredDefinition, error) {
	return all(tx.c, readVersion, versionsSQL, name)
}

func (tx *tx) FindDefinition(name string, version int) (*kernel.StoredDefinition, error) {
	head, err := oneHead(tx.c, name)
	if err != nil || head == nil {
		return nil, err
	}
	found, err := all(tx.c, readVersionWithText, versionSQL, name, cmp.Or(version, head.Current))
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

func (tx *tx) PutDefinition(now kernel.DefinitionHead, was *kernel.DefinitionHead, added *kernel.StoredDefinition) error {
	err := tx.putDefinition(now, was, added)
	tx.failed = cmp.Or(tx.failed, err)
	return err
}

func (tx *tx) putDefinition(now kernel.DefinitionHead, was *kernel.DefinitionHead, added *kernel.StoredDefinition) error {
	sql, args := addHeadSQL, []any{now.Name, now.Current, now.Latest, micros(now.UpdatedAt)}
	if was != nil {
		sql, args = saveHeadSQL, []any{now.Current, now.Latest, micros(now.UpdatedAt), now.Name, was.Current, was.Latest}
	}
	if err := tx.exec(sql, args...); err != nil {
		return err
	}
	if tx.c.db.Changes() != 1 {
		return kernel.ErrStale
	}
	if added == nil {
		return nil
	}
	return tx.exec(addVersionSQL, added.Name, added.Version, added.Hash[:], added.Author, micros(added.CreatedAt), textOf(added.Text))
}

func (tx *tx) DeleteDefinition(name string, version int) error {
	if version != 0 {
		return tx.exec(deleteOneSQL, name, version)
	}
	if err := tx.exec(deleteAllSQL, name); err != nil {
		return err
	}
	return tx.exec(deleteHeadSQL, name)
}

func (s *Store) StoredDefinition(ctx context.Context, name string, version int) (v *kernel.StoredDefinition, head *kernel.DefinitionHead, err error) {
	err = s.with(ctx, func(c *conn) error {
		v = nil
		if head, err = oneHead(c, name); err != nil || head == nil {
			return err
		}
		found, err := all(c, readVersionWithText, versionSQL, name, cmp.Or(version, head.Current))
		if len(found) > 0 {
			v = &found[0]
		} else {
			head = nil
		}
		return err
	})
	return v, head, err
}

func (s *Store) DefinitionVersions(ctx context.Context, name string) (found []kernel.StoredDefinition, err error) {
	err = s.with(ctx, func(c *conn) error {
		found, err = all(c, readVersion, versionsSQL, name)
		return err
	})
	return found, err
}

func (s *Store) DefinitionHeads(ctx context.Context, after string, max int) (found []kernel.DefinitionHead, err error) {
	err = s.with(ctx, func(c *conn) error {
		found, err = all(c, readHead, headsSQL, after, atMost(max))
		return err
	})
	return found, err
}
