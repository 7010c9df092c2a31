// Package everystore runs a test on each store, because the behaviour must not depend on the store.
package everystore

import (
	"context"
	"os"
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
	t.Run("sqlite", func(t *testing.T) { test(t, SQLite(t, tempDir(t)+"/perdure.db")) })
	t.Run("postgres", func(t *testing.T) { test(t, Postgres(t, Database(t))) })
}

// tempDir returns a directory that is deleted when the test ends, in memory if possible.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(pgtest.RAMDisk(), "perdure-sqlite-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
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

// Database returns the URL of a fresh database with the schema.
func Database(t testing.TB) string {
	t.Helper()
	return pgtest.Prepared(t, func(ctx context.Context, url string) error {
		_, _, err := postgres.Migrate(ctx, url)
		return err
	})
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
