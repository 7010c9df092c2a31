package sqlite

import (
	"embed"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"perdure"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migration is one step of the schema's way: migrations/0001_init.sql is version 1.
type migration struct {
	version int
	name    string
	sql     string
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

// migrate brings the schema up to this program's, each version in a transaction of its own, so that
// one that is broken off is simply begun again (F105).
func migrate(c *conn, now time.Time) error {
	steps, err := allMigrations()
	if err != nil {
		return err
	}
	version, err := schemaVersion(c)
	if err != nil {
		return err
	}
	if version > len(steps) {
		return &perdure.Error{Code: perdure.CodeSchema,
			Message: fmt.Sprintf("the store has schema version %d; this program knows %d", version, len(steps)),
			Hint:    "it was used by a newer perdure: use that one"}
	}
	for _, m := range steps[version:] {
		if err := m.apply(c, now); err != nil {
			return fmt.Errorf("migration %s: %w", m.name, err)
		}
	}
	return nil
}

func schemaVersion(c *conn) (int, error) {
	there, err := one(c, (*row).flag, `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'migration'`)
	if err != nil || !there {
		return 0, err
	}
	return one(c, (*row).int, `SELECT coalesce(max(version), 0) FROM migration`)
}

func (m *migration) apply(c *conn, now time.Time) (err error) {
	if err := begin(c); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			rollback(c)
		}
	}()
	if err := c.once(`CREATE TABLE IF NOT EXISTS migration (
		version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at TEXT NOT NULL) STRICT`); err != nil {
		return err
	}
	if err := c.once(m.sql); err != nil {
		return err
	}
	if err := c.exec(`INSERT INTO migration VALUES (?, ?, ?)`, m.version, m.name, now.Format(time.RFC3339Nano)); err != nil {
		return err
	}
	return c.exec(`COMMIT`)
}
