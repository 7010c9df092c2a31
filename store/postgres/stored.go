package postgres

import (
	"context"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

const (
	headColumns    = `name, current, latest, updated_at`
	lockHeadSQL    = `select ` + headColumns + ` from perdure.definition where name = $1 for update`
	storedHeadsSQL = `select ` + headColumns + ` from perdure.definition where name > $1 order by name limit $2`
	versionColumns = `name, version, hash, author, created_at`
	versionsSQL    = `select ` + versionColumns + ` from perdure.definition_version where name = $1 order by version desc`
	versionSQL     = `select v.name, v.version, v.hash, v.author, v.created_at, d.current, d.latest, d.updated_at, v.text from perdure.definition d
		join perdure.definition_version v on v.name = d.name and v.version = coalesce(nullif($2::bigint, 0), d.current) where d.name = $1`
	addHeadSQL     = `insert into perdure.definition (` + headColumns + `) values ($1, $2, $3, $4) on conflict do nothing`
	saveHeadSQL    = `update perdure.definition set current = $2, latest = $3, updated_at = $4 where name = $1 and current = $5 and latest = $6`
	addVersionSQL  = `insert into perdure.definition_version (` + versionColumns + `, text) values ($1, $2, $3, $4, $5, $6)`
	deleteHeadSQL  = `delete from perdure.definition where name = $1`
	deleteAllSQL   = `delete from perdure.definition_version where name = $1`
	deleteOneSQL   = `delete from perdure.definition_version where name = $1 and version = $2`
	countStoredSQL = `select count(*) from perdure.definition`
)

func scanHead(r *pgwire.Reader) kernel.DefinitionHead {
	return kernel.DefinitionHead{Name: r.Text(), Current: int(r.Int64()), Latest: int(r.Int64()), UpdatedAt: r.Time()}
}

func scanVersion(r *pgwire.Reader) kernel.StoredDefinition {
	v := kernel.StoredDefinition{Name: r.Text(), Version: int(r.Int64())}
	copy(v.Hash[:], r.Next())
	v.Author, v.CreatedAt = r.Text(), r.Time()
	return v
}

func (tx *tx) LockDefinition(name string) (head *kernel.DefinitionHead, err error) {
	err = tx.run(pgwire.New(lockHeadSQL).Text(name).Each(func(r *pgwire.Reader) error {
		h := scanHead(r)
		head = &h
		return nil
	}))
	return head, err
}

func (tx *tx) CountDefinitions() (n int, err error) {
	err = tx.run(pgwire.New(countStoredSQL).Each(func(r *pgwire.Reader) error {
		n = int(r.Int64())
		return nil
	}))
	return n, err
}

func (tx *tx) VersionsOf(name string) (found []kernel.StoredDefinition, err error) {
	err = tx.run(pgwire.Into(pgwire.New(versionsSQL).Text(name), &found, scanVersion))
	return found, err
}

func (tx *tx) PutDefinition(now kernel.DefinitionHead, was *kernel.DefinitionHead, added *kernel.StoredDefinition) error {
	tx.wrote = true
	sql := addHeadSQL
	if was != nil {
		sql = saveHeadSQL
	}
	st := pgwire.New(sql).Text(now.Name).Int(now.Current).Int(now.Latest).Time(now.UpdatedAt)
	if was != nil {
		st = st.Int(was.Current).Int(was.Latest)
	}
	list := []*pgwire.Statement{st.Exact(1)}
	if added != nil {
		list = append(list, pgwire.New(addVersionSQL).Text(added.Name).Int(added.Version).Bytes(added.Hash[:]).Text(added.Author).Time(added.CreatedAt).Text(string(added.Text)))
	}
	return tx.run(list...)
}

func (tx *tx) DeleteDefinition(name string, version int) error {
	tx.wrote = true
	if version != 0 {
		return tx.run(pgwire.New(deleteOneSQL).Text(name).Int(version))
	}
	return tx.run(pgwire.New(deleteAllSQL).Text(name), pgwire.New(deleteHeadSQL).Text(name))
}

// versionOf is a version with the row of its name.
type versionOf struct {
	version kernel.StoredDefinition
	head    kernel.DefinitionHead
}

func scanVersionOf(r *pgwire.Reader) versionOf {
	f := versionOf{version: scanVersion(r)}
	f.head = kernel.DefinitionHead{Name: f.version.Name, Current: int(r.Int64()), Latest: int(r.Int64()), UpdatedAt: r.Time()}
	f.version.Text = []byte(r.Text())
	return f
}

func (tx *tx) FindDefinition(name string, version int) (*kernel.StoredDefinition, error) {
	var found []versionOf
	err := tx.run(pgwire.Into(pgwire.New(versionSQL).Text(name).Int64(int64(version)), &found, scanVersionOf))
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0].version, nil
}

func (s *Store) StoredDefinition(ctx context.Context, name string, version int) (*kernel.StoredDefinition, *kernel.DefinitionHead, error) {
	list, err := query(ctx, s, pgwire.New(versionSQL).Text(name).Int64(int64(version)), scanVersionOf)
	if err != nil || len(list) == 0 {
		return nil, nil, err
	}
	return &list[0].version, &list[0].head, nil
}

func (s *Store) DefinitionVersions(ctx context.Context, name string) ([]kernel.StoredDefinition, error) {
	return query(ctx, s, pgwire.New(versionsSQL).Text(name), scanVersion)
}

func (s *Store) DefinitionHeads(ctx context.Context, after string, max int) ([]kernel.DefinitionHead, error) {
	return query(ctx, s, pgwire.New(storedHeadsSQL).Text(after).Int(max), scanHead)
}
