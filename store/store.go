// Package store opens the store that a URL names. It links the drivers of both databases. A program that needs only one
// of them opens that store itself:
//
//	sqlite:shop.db          package sqlite: one process, one file
//	postgres://user@h/db    package postgres: any number of nodes
//	memory:                 package memory: nothing is kept; for trying things
package store

import (
	"context"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/memory"
	"github.com/perdure/perdure/store/postgres"
	"github.com/perdure/perdure/store/sqlite"
)

// Memory is the URL of a store in memory.
const Memory = "memory:"

// Option is an option of Open.
type Option func(context.Context, string) error

// Migrated brings the schema of a PostgreSQL database up to date first. A file of SQLite always is. Any number of
// processes may do so at once.
func Migrated(ctx context.Context, url string) error {
	if !IsPostgres(url) {
		return nil
	}
	_, _, err := postgres.Migrate(ctx, url)
	return err
}

// Open opens a store. It refuses a URL that names none (perdure.CodeInvalid). The caller closes the store, after the
// nodes on it have stopped.
func Open(ctx context.Context, url string, opts ...Option) (kernel.Store, error) {
	for _, opt := range opts {
		if err := opt(ctx, url); err != nil {
			return nil, err
		}
	}
	switch {
	case IsSQLite(url):
		s, err := sqlite.Open(url)
		if err != nil {
			return nil, err
		}
		return s, nil
	case IsPostgres(url):
		s, err := postgres.Open(ctx, url)
		if err != nil {
			return nil, err
		}
		return s, nil
	case url == Memory:
		return memory.New(), nil
	}
	return nil, &perdure.Error{Code: perdure.CodeInvalid, Message: "that is no store's URL", Hint: "sqlite:FILE or postgres://USER@HOST/DATABASE"}
}

// IsSQLite reports whether the URL names a file of SQLite.
func IsSQLite(url string) bool { return strings.HasPrefix(url, "sqlite:") }

// IsPostgres reports whether the URL names a PostgreSQL database.
func IsPostgres(url string) bool {
	return strings.HasPrefix(url, "postgres://") || strings.HasPrefix(url, "postgresql://")
}
