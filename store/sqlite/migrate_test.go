package sqlite

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure"
)

// A store that a newer program has used is refused, and left as it is (F105).
func TestNewerSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "perdure.db")
	s := open(t, path)
	if err := s.write.once(`INSERT INTO perdure_migration VALUES (99, '0099_later', '')`); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := Open(path)
	if perdure.CodeOf(err) != perdure.CodeSchema || !strings.Contains(err.Error(), "version 99") {
		t.Errorf("got %v", err)
	}
}

// A migration that is broken off leaves nothing, and is begun again.
func TestMigrationBrokenOff(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "perdure.db"))
	last, err := schemaVersion(s.write)
	if err != nil {
		t.Fatal(err)
	}
	m := migration{version: last + 1, name: "bad", sql: `CREATE TABLE more (x INTEGER); CREATE TABLE perdure_step (x INTEGER);`}
	if err := m.apply(s.write, s.clock.now()); err == nil {
		t.Fatal("it was taken")
	}
	if v, err := schemaVersion(s.write); v != last || err != nil {
		t.Errorf("version %d, %v", v, err)
	}
	m.sql = `CREATE TABLE more (x INTEGER)`
	if err := m.apply(s.write, s.clock.now()); err != nil {
		t.Error(err)
	}
}
