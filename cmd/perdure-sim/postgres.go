package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store/postgres"
)

// The PostgreSQL store reads the server's clock. These databases have another function clock_timestamp(), which is found
// before the server's own and returns the time that the schedule's clock has set.
const ownClock = `
create schema simclock;
create sequence simclock.at;
create function simclock.clock_timestamp() returns timestamptz language sql volatile as
	$$ select timestamptz 'epoch' + last_value * interval '1 microsecond' from simclock.at $$;
`

func openPostgres(server string) (*storeKind, error) {
	stop := func() {}
	if server == "" {
		var err error
		if server, stop, err = pgtest.Temporary(); err != nil {
			return nil, fmt.Errorf("no server of our own (%w): give the --url of one on which databases may be made", err)
		}
	}
	ctx := context.Background()
	var mu sync.Mutex
	var made []string
	k := &storeKind{slow: true}
	k.close = func() {
		defer stop()
		for _, name := range made {
			if err := exec1(ctx, server, "drop database if exists "+name+" with (force)"); err != nil {
				fmt.Fprintln(os.Stderr, "perdure-sim:", err)
			}
		}
	}
	k.fresh = func(worker int) func(func() time.Time) (kernel.Store, error) {
		name := fmt.Sprintf("perdure_sim_%d_%d", os.Getpid(), worker)
		var db *database
		return func(clock func() time.Time) (kernel.Store, error) {
			if db == nil {
				if err := exec1(ctx, server, "create database "+name+" template template0 encoding 'UTF8'"); err != nil {
					return nil, err
				}
				mu.Lock()
				made = append(made, name)
				mu.Unlock()
				var err error
				if db, err = newDatabase(ctx, server, name); err != nil {
					return nil, err
				}
			}
			return db.fresh(ctx, clock)
		}
	}
	return k, nil
}

func exec1(ctx context.Context, server, sql string) error {
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}

// database is the database of one worker, used for one schedule after another.
type database struct {
	url    string
	pooled string    // its URL for a store
	conn   *pgx.Conn // sets the clock
}

func newDatabase(ctx context.Context, server, name string) (*database, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	u.Path = "/" + name
	d := &database{url: u.String()}
	q := u.Query()
	q.Set("pool_max_conns", "3")
	u.RawQuery = q.Encode()
	d.pooled = u.String()
	if _, _, err := postgres.Migrate(ctx, d.url); err != nil {
		return nil, err
	}
	if err := exec1(ctx, d.url, ownClock+"alter database "+name+" set search_path = simclock, pg_catalog, public;"+
		"alter database "+name+" set synchronous_commit = off"); err != nil {
		return nil, err
	}
	d.conn, err = pgx.Connect(ctx, d.url)
	return d, err
}

const empty = `
do $$ declare tables text; begin
	select string_agg('perdure.' || quote_ident(tablename), ', ') into tables from pg_tables
		where schemaname = 'perdure' and tablename not in ('clock', 'migration', 'schema');
	execute 'truncate ' || tables || ' restart identity';
	update perdure.clock set mark = 'epoch', ahead = 0;
end $$`

func (d *database) fresh(ctx context.Context, clock func() time.Time) (kernel.Store, error) {
	if _, err := d.conn.Exec(ctx, empty); err != nil {
		return nil, err
	}
	s := &clocked{d: d, clock: clock}
	if err := s.tick(ctx); err != nil {
		return nil, err
	}
	store, err := postgres.Open(ctx, d.pooled, postgres.WithVirtualClock(), postgres.WithBundles(1))
	s.Store = store
	s.check = store
	return s, err
}

// clocked sets the database's clock before each call that reads it.
type clocked struct {
	kernel.Store
	check interface {
		Check(context.Context) ([]string, error)
	}
	d     *database
	clock func() time.Time
}

func (s *clocked) tick(ctx context.Context) error {
	_, err := s.d.conn.Exec(ctx, "select setval('simclock.at', $1)", s.clock().UnixMicro())
	return err
}

func (s *clocked) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	if err := s.tick(ctx); err != nil {
		return err
	}
	return s.Store.Update(ctx, fn)
}

func (s *clocked) Now(ctx context.Context) (t time.Time, err error) {
	if err := s.tick(ctx); err != nil {
		return t, err
	}
	return s.Store.Now(ctx)
}

func (s *clocked) Poll(ctx context.Context, agents []string) (l kernel.PollAnswer, err error) {
	if err := s.tick(ctx); err != nil {
		return l, err
	}
	return s.Store.Poll(ctx, agents)
}

func (s *clocked) Check(ctx context.Context) ([]string, error) { return s.check.Check(ctx) }
