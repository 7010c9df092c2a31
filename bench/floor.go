package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// Floor is what the machine could do at all: the same bytes, without anything that makes them a job.
type Floor struct {
	What  string
	Value float64
	Unit  string
}

// rowText makes a row of some 300 bytes.
var rowText = strings.Repeat("x", 220)

type floorRun struct {
	dir    string
	each   time.Duration
	found  []Floor
	server *postgres
}

func measureFloor(ctx context.Context, pg *postgres, dir string, quick bool) ([]Floor, error) {
	f := &floorRun{dir: dir, each: 5 * time.Second, server: pg}
	if quick {
		f.each = 1200 * time.Millisecond
	}
	for _, part := range []func(context.Context) error{f.disk, f.postgres, f.sqlite, f.http} {
		if err := part(ctx); err != nil {
			return nil, err
		}
	}
	return f.found, nil
}

// timed calls f from some goroutines until the time is over; each call is worth so many.
func (f *floorRun) timed(ctx context.Context, what, unit string, goroutines int, call func(ctx context.Context, goroutine int) (int, error)) error {
	var n atomic.Int64
	start := time.Now()
	end := start.Add(f.each)
	var turn atomic.Int64
	err := spread(ctx, goroutines, goroutines, func(ctx context.Context) error {
		g := int(turn.Add(1)) - 1
		for time.Now().Before(end) && ctx.Err() == nil {
			k, err := call(ctx, g)
			if err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			n.Add(int64(k))
		}
		return ctx.Err()
	})
	r := Floor{What: what, Value: float64(n.Load()) / time.Since(start).Seconds(), Unit: unit}
	f.found = append(f.found, r)
	progress("floor: %-70s %12s %s", r.What, figure(r.Value), r.Unit)
	return err
}

func (f *floorRun) disk(ctx context.Context) error {
	file, err := os.Create(filepath.Join(f.dir, "append"))
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	block := make([]byte, 4096)
	return f.timed(ctx, "append 4 KiB and fdatasync", "1/s", 1, func(context.Context, int) (int, error) {
		if _, err := file.Write(block); err != nil {
			return 0, err
		}
		return 1, syscall.Fdatasync(int(file.Fd()))
	})
}

// queueTable has the indexes that a queue of jobs needs: by id, and by what is to be worked next.
const queueTable = `
create table t (id bigint primary key, state smallint not null, priority smallint not null, at timestamptz not null, job text not null) %s;
create index on t (state, priority, at, id)`

// hotTable has no index on what changes, and room for the new version on the page of the old.
const hotTable = `
create table t (id bigint primary key, state smallint not null, priority smallint not null, at timestamptz not null, job text not null) with (fillfactor = 50);
create index on t (priority, at, id)`

func (f *floorRun) postgres(ctx context.Context) error {
	const set, conns = 1000, 2
	update := func(state int) string {
		return fmt.Sprintf("update t set state = %d, at = now() from unnest($1::bigint[]) as u(id) where t.id = u.id", state)
	}
	for _, c := range []struct {
		what, table string
		then        []string // after the insert of a set, each a transaction of its own, given the ids
	}{
		{"PostgreSQL: insert (COPY)", fmt.Sprintf(queueTable, ""), nil},
		{"PostgreSQL: insert and 1 update", fmt.Sprintf(queueTable, ""), []string{update(1)}},
		{"PostgreSQL: insert and 2 updates", fmt.Sprintf(queueTable, ""), []string{update(1), update(2)}},
		{"PostgreSQL: insert and 1 update, HOT (fillfactor 50, no index on what changes)", hotTable, []string{update(1)}},
		{"PostgreSQL: insert and delete", fmt.Sprintf(queueTable, ""), []string{"delete from t using unnest($1::bigint[]) as u(id) where t.id = u.id"}},
		{"PostgreSQL: insert and append to a log of the done", fmt.Sprintf(queueTable, "") + "; create table l (ids bigint[] not null)", []string{"insert into l values ($1)"}},
	} {
		url, drop, err := f.server.fresh(ctx)
		if err != nil {
			return err
		}
		err = f.onPostgres(ctx, url, c.table, conns, func(all []*pgx.Conn) error {
			var next atomic.Int64
			return f.timed(ctx, fmt.Sprintf("%s, sets of %d, %d connections", c.what, set, conns), "jobs/s", conns, func(ctx context.Context, g int) (int, error) {
				last := next.Add(set)
				ids, rows := make([]int64, set), make([][]any, set)
				now := time.Now()
				for i := range ids {
					ids[i] = last - int64(i)
					rows[i] = []any{ids[i], int16(0), int16(5), now, rowText}
				}
				if _, err := all[g].CopyFrom(ctx, pgx.Identifier{"t"}, []string{"id", "state", "priority", "at", "job"}, pgx.CopyFromRows(rows)); err != nil {
					return 0, err
				}
				for _, q := range c.then {
					if _, err := all[g].Exec(ctx, q, ids); err != nil {
						return 0, err
					}
				}
				return set, nil
			})
		})
		drop()
		if err != nil {
			return err
		}
	}
	for _, conns := range []int{1, 16} {
		url, drop, err := f.server.fresh(ctx)
		if err != nil {
			return err
		}
		err = f.onPostgres(ctx, url, fmt.Sprintf(queueTable, ""), conns, func(all []*pgx.Conn) error {
			var next atomic.Int64
			return f.timed(ctx, fmt.Sprintf("PostgreSQL: commits of one row, %d connections", conns), "1/s", conns, func(ctx context.Context, g int) (int, error) {
				_, err := all[g].Exec(ctx, "insert into t values ($1, 0, 5, now(), $2)", next.Add(1), rowText)
				return 1, err
			})
		})
		drop()
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *floorRun) onPostgres(ctx context.Context, url, schema string, conns int, use func([]*pgx.Conn) error) error {
	var all []*pgx.Conn
	defer func() {
		for _, c := range all {
			_ = c.Close(context.WithoutCancel(ctx))
		}
	}()
	for range conns {
		c, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		all = append(all, c)
	}
	if _, err := all[0].Exec(ctx, schema); err != nil {
		return err
	}
	return use(all)
}

const (
	sqliteTable  = "create table t (id integer primary key, state integer not null, priority integer not null, at integer not null, job text not null); create index t_next on t (state, priority, at, id)"
	sqliteInsert = "insert into t values (?, 0, 5, ?, ?)"
	sqliteUpdate = "update t set state = 1, at = ? where id = ?"
)

func (f *floorRun) sqlite(ctx context.Context) error {
	for _, set := range []int{1, 100, 1000} {
		if err := f.modernc(ctx, set); err != nil {
			return err
		}
		if err := f.zombiezen(ctx, set); err != nil {
			return err
		}
	}
	return nil
}

func (f *floorRun) modernc(ctx context.Context, set int) error {
	path := filepath.Join(f.dir, fmt.Sprintf("modernc%d.db", set))
	defer removeSQLite(path)
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, sqliteTable); err != nil {
		return err
	}
	insert, err := db.PrepareContext(ctx, sqliteInsert)
	if err != nil {
		return err
	}
	update, err := db.PrepareContext(ctx, sqliteUpdate)
	if err != nil {
		return err
	}
	next := 0
	return f.timed(ctx, fmt.Sprintf("SQLite FULL, modernc by database/sql: insert and update, transactions of %d", set), "jobs/s", 1, func(ctx context.Context, _ int) (int, error) {
		for _, updating := range []bool{false, true} {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return 0, err
			}
			for i := range set {
				if id := next + i + 1; updating {
					_, err = tx.StmtContext(ctx, update).ExecContext(ctx, id, id)
				} else {
					_, err = tx.StmtContext(ctx, insert).ExecContext(ctx, id, id, rowText)
				}
				if err != nil {
					return 0, err
				}
			}
			if err := tx.Commit(); err != nil {
				return 0, err
			}
		}
		next += set
		return set, nil
	})
}

func (f *floorRun) zombiezen(ctx context.Context, set int) error {
	path := filepath.Join(f.dir, fmt.Sprintf("zombiezen%d.db", set))
	defer removeSQLite(path)
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite, sqlite.OpenCreate, sqlite.OpenWAL)
	if err != nil {
		return err
	}
	defer conn.Close()
	// A pragma cannot be set within a script's savepoint.
	if err := sqlitex.ExecuteTransient(conn, "pragma synchronous=FULL", nil); err != nil {
		return err
	}
	if err := sqlitex.ExecuteScript(conn, sqliteTable, nil); err != nil {
		return err
	}
	next := 0
	return f.timed(ctx, fmt.Sprintf("SQLite FULL, zombiezen: insert and update, transactions of %d", set), "jobs/s", 1, func(context.Context, int) (int, error) {
		for _, updating := range []bool{false, true} {
			if err := f.zombiezenSet(conn, next, set, updating); err != nil {
				return 0, err
			}
		}
		next += set
		return set, nil
	})
}

func (f *floorRun) zombiezenSet(conn *sqlite.Conn, next, set int, updating bool) (err error) {
	end, err := sqlitex.ImmediateTransaction(conn)
	if err != nil {
		return err
	}
	defer end(&err)
	query := sqliteInsert
	if updating {
		query = sqliteUpdate
	}
	stmt, err := conn.Prepare(query)
	if err != nil {
		return err
	}
	for i := range set {
		id := int64(next + i + 1)
		stmt.BindInt64(1, id)
		stmt.BindInt64(2, id)
		if !updating {
			stmt.BindText(3, rowText)
		}
		if _, err := stmt.Step(); err != nil {
			return err
		}
		if err := stmt.Reset(); err != nil {
			return err
		}
	}
	return nil
}

func removeSQLite(path string) {
	for _, end := range []string{"", "-wal", "-shm"} {
		_ = os.Remove(path + end)
	}
}

// http sends jobs as JSON to a server that reads them and says so.
func (f *floorRun) http(ctx context.Context) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var jobs []payload
		if err := json.NewDecoder(r.Body).Decode(&jobs); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]int{"stored": len(jobs)})
	})}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: submitters}}
	for _, set := range []int{1, 100, 500} {
		if err := f.timed(ctx, fmt.Sprintf("loopback HTTP and JSON, %d jobs in a request, 32 clients", set), "jobs/s", 32, func(ctx context.Context, _ int) (int, error) {
			jobs := make([]payload, set)
			for i := range jobs {
				jobs[i] = nextPayload()
			}
			b, err := json.Marshal(jobs)
			if err != nil {
				return 0, err
			}
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+l.Addr().String(), bytes.NewReader(b))
			if err != nil {
				return 0, err
			}
			resp, err := client.Do(req)
			if err != nil {
				return 0, err
			}
			defer resp.Body.Close()
			_, err = io.Copy(io.Discard, resp.Body)
			return set, err
		}); err != nil {
			return err
		}
	}
	return nil
}
