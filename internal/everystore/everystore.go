// Package everystore runs a test on each store, because the behaviour must not depend on the store.
package everystore

import (
	"testing"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store/memory"
	"github.com/perdure/perdure/store/postgres"
	"github.com/perdure/perdure/store/sqlite"
)

// Run runs test on a fresh store of each kind.
func Run(t *testing.T, test func(t *testing.T, store kernel.Store)) {
	t.Run("memory", func(t *testing.T) { test(t, memory.New()) })
	t.Run("sqlite", func(t *testing.T) { test(t, SQLite(t, t.TempDir()+"/perdure.db")) })
	t.Run("postgres", func(t *testing.T) { test(t, Postgres(t, pgtest.Start(t))) })
}

// SQLite opens a file.
func SQLite(t *testing.T, path string) kernel.Store {
	t.Helper()
	store, err := sqlite.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// Postgres opens a database, with its schema.
func Postgres(t *testing.T, url string) kernel.Store {
	t.Helper()
	if _, _, err := postgres.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	store, err := postgres.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}
