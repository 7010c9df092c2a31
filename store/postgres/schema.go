package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

// The migrations are files named NNNN_what.sql, each applied once, in a transaction of its own. The
// version of a schema is the number of the last one.
//
//go:embed migrations/*.sql
var migrations embed.FS

type migration struct {
	version int
	name    string
	sql     string
}

// known are this program's migrations, in order.
func known() []migration {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		panic(err)
	}
	slices.Sort(files)
	list := make([]migration, len(files))
	for i, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(file, "migrations/"), ".sql")
		number, _, _ := strings.Cut(name, "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != i+1 {
			panic("migrations are numbered from 0001 on: " + file)
		}
		sql, err := migrations.ReadFile(file)
		if err != nil {
			panic(err)
		}
		list[i] = migration{version, name, string(sql)}
	}
	return list
}

// Schema is the version of the schema that this program works with.
var Schema = len(known())

// While one process migrates, other processes wait for it.
const (
	migrationLock  = "select pg_advisory_xact_lock(8098991089)"
	createVersions = `create schema if not exists perdure; create table if not exists perdure.migration (
		version int primary key, name text not null, applied_at timestamptz not null default clock_timestamp());
		create table if not exists perdure.schema (
		one boolean primary key default true check (one), version int not null, min_reader int not null, min_writer int not null);
		insert into perdure.schema (version, min_reader, min_writer) values (0, 0, 0) on conflict do nothing`
	schemaSQL       = "select version, min_reader, min_writer from perdure.schema"
	setSchemaSQL    = "update perdure.schema set version = $1, min_reader = $2, min_writer = $3"
	migrateTime     = 10 * time.Minute
	migrateLockTime = time.Minute
)

// Migrate brings the schema of the database at url to the version of this program. Any number of processes may call it
// at once, and again after a call that was interrupted.
func Migrate(ctx context.Context, url string) (from, to int, err error) {
	cfg, err := configure(url, nil)
	if err != nil {
		return 0, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, migrateTime)
	defer cancel()
	addLink(cfg.ConnConfig)
	conn, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
	if err != nil {
		return 0, 0, perdure.Refuse(perdure.CodeUnavailable, "PostgreSQL is not reachable: %s", oneLine(err))
	}
	linkOf(conn).committing.Store(true) // for as long as the connection exists
	defer conn.Close(context.WithoutCancel(ctx))
	from = -1
	for {
		have, done, err := migrateOne(ctx, conn)
		if err != nil {
			return max(from, 0), have, err
		}
		if from < 0 {
			from = have
		}
		if done {
			return from, have, nil
		}
	}
}

// migrateOne applies the next migration, if there is one. have is the version before it.
func migrateOne(ctx context.Context, conn *pgx.Conn) (have int, done bool, err error) {
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: fmt.Sprintf(
		"begin isolation level read committed; set local statement_timeout = '%ds'; set local lock_timeout = '%ds'",
		int(migrateTime.Seconds()), int(migrateLockTime.Seconds()))})
	if err != nil {
		return 0, false, err
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	if _, err := tx.Exec(ctx, migrationLock); err != nil {
		return 0, false, fmt.Errorf("waiting for another migration: %w", err)
	}
	if _, err := tx.Exec(ctx, createVersions); err != nil {
		return 0, false, err
	}
	var schema kernel.Schema
	if err := tx.QueryRow(ctx, schemaSQL).Scan(&schema.Version, &schema.MinReader, &schema.MinWriter); err != nil {
		return 0, false, err
	}
	have = schema.Version
	list := known()
	if have >= len(list) {
		return have, true, schema.Admit(len(list), "the database")
	}
	next := list[have]
	if schema, err = schema.After(next.version, next.sql); err != nil {
		return have, false, err
	}
	if _, err := tx.Exec(ctx, next.sql); err != nil {
		return have, false, fmt.Errorf("migration %s: %w", next.name, err)
	}
	if _, err := tx.Exec(ctx, "insert into perdure.migration (version, name) values ($1, $2)", next.version, next.name); err != nil {
		return have, false, err
	}
	if _, err := tx.Exec(ctx, setSchemaSQL, schema.Version, schema.MinReader, schema.MinWriter); err != nil {
		return have, false, err
	}
	crashpoint.Here(crashpoint.PostgresMigrate)
	err = tx.Commit(ctx)
	crashpoint.Here(crashpoint.PostgresMigrated)
	if err == nil && linkOf(conn).unreplicated.Load() {
		err = fmt.Errorf("%w: %w; migrate again", kernel.ErrUnknown, errUnreplicated)
	}
	return have, false, err
}

// CheckSchema refuses a database whose schema does not allow this program.
func (s *Store) CheckSchema(ctx context.Context) error {
	schema, err := first(query(ctx, s, pgwire.New(schemaSQL), func(r *pgwire.Reader) kernel.Schema {
		return kernel.Schema{Version: r.Int(), MinReader: r.Int(), MinWriter: r.Int()}
	}))
	var pe *pgconn.PgError
	switch {
	case perdure.CodeOf(err) == perdure.CodeSchema:
		return kernel.Schema{}.Admit(Schema, "the database")
	case errors.As(err, &pe) && pe.Code == "42501": // insufficient_privilege
		return perdure.Refuse(perdure.CodeSchema, "the schema perdure exists, and this user may not read it: %s", pe.Message)
	case err != nil:
		return err
	}
	return schema.Admit(Schema, "the database")
}
