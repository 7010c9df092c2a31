package sqlite

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perdure/perdure"
)

// All names begin with this prefix, so that the file can be shared with the tables of the program that embeds Perdure.
// perdure_guard belongs to package guard, and may exist before the store.
const (
	prefix     = "perdure_"
	guardTable = "perdure_guard"
)

// refuseForeign refuses a file that must not be migrated: one with other perdure_… tables, or with those of an
// unreleased version. It only reads.
func (s *Store) refuseForeign(c *conn) error {
	names, err := all(c, (*row).text, `SELECT name FROM sqlite_schema WHERE type <> 'index' OR sql IS NOT NULL`)
	if err != nil {
		return err
	}
	if slices.Contains(names, prefix+"migration") {
		return s.refuseMigrations(c)
	}
	for _, name := range names {
		if isOurs(name) && name != guardTable {
			return s.foreign(fmt.Sprintf("has a %s that Perdure did not make", name))
		}
	}
	if !slices.Contains(names, "migration") || !slices.Contains(names, "step") {
		return nil
	}
	old, err := one(c, (*row).int, `SELECT (SELECT count(*) FROM pragma_table_info('migration') WHERE name IN ('version', 'name', 'applied_at'))
		+ (SELECT count(*) FROM pragma_table_info('step') WHERE name IN ('job', 'locked_until', 'complete_by', 'job_phase'))`)
	if err == nil && old == 7 {
		err = &perdure.Error{Code: perdure.CodeSchema,
			Message: fmt.Sprintf("%s was made by an unreleased version of Perdure, whose tables had other names (step, and not perdure_step)", s.path),
			Hint:    "it was left as it is: end its jobs with that version, and start with a new file"}
	}
	return err
}

// refuseMigrations refuses a list of migrations that is not this program's.
func (s *Store) refuseMigrations(c *conn) error {
	const not = "has a " + prefix + "migration that Perdure did not make"
	columns, err := all(c, (*row).text, `SELECT name FROM pragma_table_info('perdure_migration') ORDER BY cid`)
	if err != nil {
		return err
	}
	if !slices.Equal(columns, []string{"version", "name", "applied_at"}) {
		return s.foreign(not)
	}
	known, err := allMigrations()
	if err != nil {
		return err
	}
	applied, err := all(c, (*row).text, `SELECT name FROM perdure_migration ORDER BY version LIMIT ?`, len(known))
	if err != nil {
		return err
	}
	for i, name := range applied {
		if name != known[i].name {
			return s.foreign(fmt.Sprintf("%s: %q is not its migration %d", not, name, i+1))
		}
	}
	return nil
}

func (s *Store) foreign(what string) error {
	return &perdure.Error{Code: perdure.CodeSchema, Message: fmt.Sprintf("%s %s", s.path, what),
		Hint: "names that begin with " + prefix + " are Perdure's: rename that one, or take another file; this one was left as it is"}
}

// isOurs ignores case, because names in SQLite have none.
func isOurs(name string) bool { return strings.HasPrefix(strings.ToLower(name), prefix) }

// alone reports whether a file has no other tables: then the views have plain names as well.
func alone(c *conn) (bool, error) {
	others, err := one(c, (*row).flag, `SELECT count(*) FROM sqlite_schema WHERE type IN ('table', 'view')
		AND name NOT LIKE 'sqlite\_%' ESCAPE '\' AND name NOT LIKE 'perdure\_%' ESCAPE '\'`)
	return !others, err
}

// plain reports whether the views of an earlier migration have plain names.
func plain(c *conn) (bool, error) {
	return one(c, (*row).flag, `SELECT count(*) FROM sqlite_schema WHERE type = 'view' AND sql = ?`, plainView("jobs"))
}

// plainView returns the name of a view without the prefix: select … from steps.
func plainView(name string) string {
	return `CREATE VIEW ` + name + ` AS SELECT * FROM ` + prefix + name
}
