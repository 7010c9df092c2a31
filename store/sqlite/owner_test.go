package sqlite

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// foreignFile creates a database file of another program.
func foreignFile(t *testing.T, script string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "shop.db")
	c, err := connect(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if err := c.once(script); err != nil {
		t.Fatal(err)
	}
	return path
}

func namesIn(t *testing.T, s *Store, of string) []string {
	t.Helper()
	names, err := all(s.write, (*row).text, `SELECT name FROM sqlite_schema WHERE type = ? AND name NOT LIKE 'sqlite\_%' ESCAPE '\'`, of)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

var plainNames = []string{"jobs", "steps", "alerts", "history", "limits", "lanes", "agents", "nodes", "roles", "holders", "inbox", "submissions", "audit", "notifications", "receivers", "held_roles", "schedules", "firings", "signals", "waiters", "lines"}

// In a file that only Perdure uses, the documented views also have their plain names.
func TestViewsHavePlainNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "perdure.db")
	s := open(t, path)
	views := namesIn(t, s, "view")
	for _, name := range plainNames {
		if !slices.Contains(views, name) || !slices.Contains(views, prefix+name) {
			t.Errorf("no view %s among %v", name, views)
		}
	}
	for _, of := range []string{"table", "index"} {
		for _, name := range namesIn(t, s, of) {
			if !isOurs(name) {
				t.Errorf("%s %s has a plain name", of, name)
			}
		}
	}
}

// A file with tables of another program is shared. The tables of that program stay unchanged, whatever their names, and
// Perdure's views have only their prefixed names.
func TestSharedFileKeepsForeignTables(t *testing.T) {
	path := foreignFile(t, `
		CREATE TABLE migration (id INTEGER); INSERT INTO migration VALUES (12);
		CREATE TABLE step (x INTEGER); CREATE TABLE label (x INTEGER); CREATE TABLE "limit" (x INTEGER); CREATE TABLE mail (x INTEGER);
		CREATE TABLE jobs (name TEXT); INSERT INTO jobs VALUES ('baker');
		CREATE INDEX step_job ON step (x);
		CREATE VIEW steps AS SELECT * FROM step;`)
	for n := range 2 { // the second time it is opened again
		s, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := save(s, big(byte(n+1))); err != nil {
			t.Error(err)
		}
		if err := s.Update(ctx, func(tx kernel.Tx) error {
			return tx.PutLimit(kernel.Limit{Name: "agent:a", Max: 1, PerKey: kernel.Unbounded})
		}); err != nil {
			t.Error(err)
		}
		if name, err := one(s.write, (*row).text, `SELECT name FROM jobs`); name != "baker" || err != nil {
			t.Errorf("the other program's row: %q, %v", name, err)
		}
		if jobs, err := one(s.write, (*row).int, `SELECT count(*) FROM perdure_jobs JOIN perdure_steps USING (job)`); jobs != n+1 || err != nil {
			t.Errorf("%d jobs in Perdure's views, want %d; %v", jobs, n+1, err)
		}
		if views := namesIn(t, s, "view"); len(views) != len(plainNames)+1 {
			t.Errorf("views: %v", views)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// The table of package guard does not make a file shared, whether the guard or the store creates it first.
func TestGuardTableDoesNotMakeAFileShared(t *testing.T) {
	s := open(t, foreignFile(t, `CREATE TABLE perdure_guard (step TEXT PRIMARY KEY)`))
	if views := namesIn(t, s, "view"); !slices.Contains(views, "steps") {
		t.Errorf("views: %v", views)
	}
}

// Later migrations create only prefixed names in a shared file. In a file that only Perdure uses, they keep tables that
// were added since.
func TestLaterMigrationsKeepForeignNames(t *testing.T) {
	later := migration{name: "later", sql: "CREATE VIEW perdure_later AS SELECT 1 AS x;\nCREATE VIEW perdure_taken AS SELECT 1 AS x;"}
	for name, c := range map[string]struct {
		before string
		want   int
	}{"shared": {`CREATE TABLE shop (x INTEGER)`, 2}, "only Perdure's": {``, 3}} {
		s := open(t, foreignFile(t, c.before))
		if err := s.write.once(`CREATE TABLE Taken (x INTEGER)`); err != nil {
			t.Fatal(err)
		}
		schema, err := readSchema(s.write)
		if err != nil {
			t.Fatal(err)
		}
		later.version = schema.Version + 1
		if err := later.apply(s.write, s.clock.now(), schema); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		views := namesIn(t, s, "view")
		if got := len(slices.DeleteFunc(views, func(v string) bool { return !strings.HasSuffix(v, "later") && !strings.HasSuffix(v, "taken") })); got != c.want {
			t.Errorf("%s: views %v, want %d of the later migration", name, views, c.want)
		}
	}
}

// A file with a table, view or index that has one of Perdure's names but was not made by this version is refused, with
// an error that says what it is and what to do. The file stays unchanged.
func TestForeignFileIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ script, cause, hint string }{
		"table":     {`CREATE TABLE perdure_step (x INTEGER)`, "has a perdure_step that Perdure did not make", "rename that one"},
		"case":      {`CREATE TABLE Perdure_Jobs (x INTEGER)`, "has a Perdure_Jobs that", "rename that one"},
		"view":      {`CREATE VIEW perdure_jobs AS SELECT 1`, "has a perdure_jobs that", "another file"},
		"index":     {`CREATE TABLE t (x INTEGER); CREATE INDEX perdure_step_job ON t (x)`, "has a perdure_step_job that", "another file"},
		"other":     {`CREATE TABLE perdure_notes (x INTEGER)`, "has a perdure_notes that", "another file"},
		"migration": {`CREATE TABLE perdure_migration (id INTEGER)`, "has a perdure_migration that", "another file"},
		"versions": {`CREATE TABLE perdure_migration (version INTEGER PRIMARY KEY, name TEXT, applied_at TEXT);
			INSERT INTO perdure_migration VALUES (1, 'shop_tables', '')`, `"shop_tables" is not its migration 1`, "another file"},
		"unreleased": {`CREATE TABLE migration (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at TEXT NOT NULL) STRICT;
			CREATE TABLE step (id INTEGER PRIMARY KEY, job BLOB, locked_until INTEGER, complete_by INTEGER, job_phase INTEGER) STRICT`,
			"made by an unreleased version", "start with a new file"},
	} {
		path := foreignFile(t, c.script)
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Open(path)
		if perdure.CodeOf(err) != perdure.CodeSchema || !strings.Contains(err.Error(), c.cause) || !strings.Contains(err.Error(), c.hint) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v", name, err)
		}
		if after, err := os.ReadFile(path); string(after) != string(before) || err != nil {
			t.Errorf("%s: the file was changed", name)
		}
	}
}

// A file that is no database is refused with an error that says so.
func TestFileThatIsNoDatabaseIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(path, []byte(strings.Repeat("these are notes\n", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), path+" is no SQLite database") {
		t.Errorf("got %v", err)
	}
}
