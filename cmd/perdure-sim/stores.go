package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/memory"
	"github.com/perdure/perdure/store/sqlite"
)

// storeKind makes stores. Each is empty, and on the clock of a schedule.
type storeKind struct {
	slow  bool // its schedules must be small
	fresh func(worker int) func(clock func() time.Time) (kernel.Store, error)
	close func()
}

func openKind(name, url string) (*storeKind, error) {
	switch name {
	case "memory":
		return &storeKind{close: func() {}, fresh: func(int) func(func() time.Time) (kernel.Store, error) {
			return func(clock func() time.Time) (kernel.Store, error) { return memory.New(memory.WithClock(clock)), nil }
		}}, nil
	case "sqlite":
		return openSQLite()
	case "postgres":
		return openPostgres(url)
	}
	return nil, fmt.Errorf("no store is named %q: memory, sqlite or postgres", name)
}

// openSQLite keeps the files in memory if the system has a file system for that: lost writes of a disk are tested
// elsewhere.
func openSQLite() (*storeKind, error) {
	place := "/dev/shm"
	if _, err := os.Stat(place); err != nil {
		place = ""
	}
	dir, err := os.MkdirTemp(place, "perdure-sim-")
	if err != nil {
		return nil, err
	}
	return &storeKind{slow: true, close: func() { _ = os.RemoveAll(dir) }, fresh: func(worker int) func(func() time.Time) (kernel.Store, error) {
		path := filepath.Join(dir, fmt.Sprintf("%d.db", worker))
		return func(clock func() time.Time) (kernel.Store, error) {
			for _, end := range []string{"", "-wal", "-shm", ".lock"} {
				if err := os.Remove(path + end); err != nil && !os.IsNotExist(err) {
					return nil, err
				}
			}
			return sqlite.Open(path, sqlite.WithClock(clock), sqlite.WithBundles(1))
		}
	}}, nil
}
