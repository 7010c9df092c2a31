package sqlite

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/perdure/perdure"
)

func filesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// A file that Open refuses stays unchanged, and Open leaves no new files beside it.
func TestRefusedFileLeavesNothingBehind(t *testing.T) {
	for name, script := range map[string]string{
		"foreign table":      `CREATE TABLE perdure_x (a)`,
		"foreign migrations": `CREATE TABLE perdure_migration (a)`,
		"unreleased":         `CREATE TABLE migration (version, name, applied_at); CREATE TABLE step (job, locked_until, complete_by, job_phase)`,
		"newer":              `CREATE TABLE perdure_migration (version, name, applied_at); CREATE TABLE perdure_schema (version, min_reader, min_writer); INSERT INTO perdure_schema VALUES (99, 1, 99); PRAGMA journal_mode = WAL`,
		"other migration":    `PRAGMA journal_mode = WAL; CREATE TABLE perdure_migration (version, name, applied_at); INSERT INTO perdure_migration VALUES (1, 'x', '')`,
		"no database":        ``,
	} {
		t.Run(name, func(t *testing.T) {
			path := foreignFile(t, script)
			switch name {
			case "no database":
				if err := os.WriteFile(path, []byte("type: order\n"+string(make([]byte, 8<<10))), 0o600); err != nil {
					t.Fatal(err)
				}
			case "newer":
				migrations, err := allMigrations()
				if err != nil {
					t.Fatal(err)
				}
				c, err := connect(path)
				if err != nil {
					t.Fatal(err)
				}
				for i, m := range append(slices.Clone(migrations), migration{name: "later"}) {
					if err := c.exec(`INSERT INTO perdure_migration VALUES (?, ?, '')`, i+1, m.name); err != nil {
						t.Fatal(err)
					}
				}
				if err := c.close(); err != nil {
					t.Fatal(err)
				}
			}
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if s, err := Open(path); err == nil {
				_ = s.Close()
				t.Fatal("the file was not refused")
			}
			if names := filesIn(t, filepath.Dir(path)); !slices.Equal(names, []string{"shop.db"}) {
				t.Errorf("left behind: %v", names)
			}
			if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
				t.Errorf("the file was changed (%v)", err)
			}
		})
	}
}

// If Open has created the file and fails, it removes the file.
func TestFailedOpenRemovesItsFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "perdure.db")
	if err := os.Mkdir(path+".lock", 0o700); err != nil { // a directory cannot be locked as a file
		t.Fatal(err)
	}
	if _, err := Open(path); perdure.CodeOf(err) != perdure.CodeUnavailable {
		t.Fatalf("opened without a lock: %v", err)
	}
	if names := filesIn(t, dir); !slices.Equal(names, []string{"perdure.db.lock"}) {
		t.Errorf("left behind: %v", names)
	}
}

// If a refused file has a lock file, Open does not remove it.
func TestRefusedFileKeepsAnOlderLockFile(t *testing.T) {
	path := foreignFile(t, `CREATE TABLE perdure_x (a)`)
	if err := os.WriteFile(path+".lock", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); perdure.CodeOf(err) != perdure.CodeSchema {
		t.Fatalf("got %v", err)
	}
	if names := filesIn(t, filepath.Dir(path)); !slices.Equal(names, []string{"shop.db", "shop.db.lock"}) {
		t.Errorf("files: %v", names)
	}
}
