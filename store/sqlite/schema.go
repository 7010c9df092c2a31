package sqlite

import (
	"embed"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/kernel"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migration is one file of migrations: 0001_init.sql is version 1.
type migration struct {
	version int
	name    string
	sql     string
}

var viewName = regexp.MustCompile(`(?m)^CREATE VIEW ` + prefix + `(\w+)`)

// views returns the names of the views that it creates, without the prefix.
func (m *migration) views() (names []string) {
	for _, found := range viewName.FindAllStringSubmatch(m.sql, -1) {
		names = append(names, found[1])
	}
	return names
}

func allMigrations() ([]migration, error) {
	files, err := migrations.ReadDir("migrations")
	if err != nil {
		return nil, err
	}
	var all []migration
	for i, f := range files { // sorted by name
		name := strings.TrimSuffix(f.Name(), ".sql")
		version, err := strconv.Atoi(strings.SplitN(name, "_", 2)[0])
		if err != nil || version != i+1 {
			return nil, fmt.Errorf("migration %s is not number %d", f.Name(), i+1)
		}
		body, err := migrations.ReadFile(path.Join("migrations", f.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, migration{version, name, string(body)})
	}
	return all, nil
}

// migrate brings the schema up to this program's version. Each version is a transaction of its own, so that a migration
// that is interrupted is simply started again (F105).
func migrate(c *conn, now time.Time) error {
	steps, err := allMigrations()
	if err != nil {
		return err
	}
	schema, err := readSchema(c)
	if err != nil {
		return err
	}
	if schema.Version > len(steps) {
		return schema.Admit(len(steps), "the store")
	}
	for _, m := range steps[schema.Version:] {
		crashpoint.Here(crashpoint.SQLiteMigrate)
		if schema, err = schema.After(m.version, m.sql); err != nil {
			return err
		}
		if err := m.apply(c, now, schema); err != nil {
			return fmt.Errorf("migration %s: %w", m.name, err)
		}
		crashpoint.Here(crashpoint.SQLiteMigrated)
	}
	return nil
}

func readSchema(c *conn) (kernel.Schema, error) {
	there, err := one(c, (*row).flag, `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'perdure_schema'`)
	if err != nil || !there {
		return kernel.Schema{}, err
	}
	return one(c, func(r *row) kernel.Schema {
		return kernel.Schema{Version: r.int(), MinReader: r.int(), MinWriter: r.int()}
	},
		`SELECT version, min_reader, min_writer FROM perdure_schema`)
}

func (m *migration) apply(c *conn, now time.Time, schema kernel.Schema) (err error) {
	if err := begin(c); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			rollback(c)
		}
	}()
	if err := c.once(`CREATE TABLE IF NOT EXISTS perdure_migration (
		version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at TEXT NOT NULL) STRICT`); err != nil {
		return err
	}
	if err := c.once(`CREATE TABLE IF NOT EXISTS perdure_schema (
		one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL, min_reader INTEGER NOT NULL, min_writer INTEGER NOT NULL) STRICT`); err != nil {
		return err
	}
	named := plain
	if m.version == 1 {
		named = alone // before any table of this store exists
	}
	short, err := named(c)
	if err != nil {
		return err
	}
	if err := c.once(m.sql); err != nil {
		return err
	}
	if short {
		if err := m.nameViews(c); err != nil {
			return err
		}
	}
	if err := c.exec(`INSERT INTO perdure_migration VALUES (?, ?, ?)`, m.version, m.name, now.Format(time.RFC3339Nano)); err != nil {
		return err
	}
	if err := c.exec(`INSERT OR REPLACE INTO perdure_schema VALUES (1, ?, ?, ?)`, schema.Version, schema.MinReader, schema.MinWriter); err != nil {
		return err
	}
	return c.exec(`COMMIT`)
}

// nameViews gives the views their plain names. A name that exists is left alone.
func (m *migration) nameViews(c *conn) error {
	for _, name := range m.views() {
		taken, err := one(c, (*row).flag, `SELECT count(*) FROM sqlite_schema WHERE name = ? COLLATE NOCASE`, name)
		if err == nil && !taken {
			err = c.once(plainView(name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
