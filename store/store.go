// Package store opens the store that a URL names. It brings the drivers of both databases; a program that
// knows which one it uses opens that one itself, and has only its own:
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

// Memory is the URL of a store that keeps nothing.
const Memory = "memory:"

// Option sets what Open leaves to the caller.
type Option func(context.Context, string) error

// Migrated brings the schema of a PostgreSQL database up to date first. A file of SQLite always is. Any number
// of processes may do so at once.
func Migrated(ctx context.Context, url string) error {
	if !IsPostgres(url) {
		return nil
	}
	_, _, err := postgres.Migrate(ctx, url)
	return err
}

// Open opens a store. What is no store's URL is refused (perdure.CodeInvalid). The caller closes it, after the
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

// IsSQLite says whether the URL names a file of SQLite.
func IsSQLite(url string) bool { return strings.HasPrefix(url, "sqlite:") }

// IsPostgres says whether the URL names a PostgreSQL database.
func IsPostgres(url string) bool {
	return strings.HasPrefix(url, "postgres://") || strings.HasPrefix(url, "postgresql://")
}
