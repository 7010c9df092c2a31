package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
)

// conn is a connection, or a pool of them, with its statements prepared once each.
type conn struct {
	db      *sql.DB
	prepare func(context.Context, string) (*sql.Stmt, error)
	only    *sql.Conn // the one connection of those who write; nil: a pool

	mu    sync.Mutex
	stmts map[string]*sql.Stmt
}

func connect(ctx context.Context, dsn string, size int) (*conn, error) {
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	c := &conn{db: db, prepare: db.PrepareContext, stmts: map[string]*sql.Stmt{}}
	if size > 1 {
		err = db.PingContext(ctx)
	} else if c.only, err = db.Conn(ctx); err == nil {
		c.prepare = c.only.PrepareContext
	}
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	return c, nil
}

func (c *conn) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, stmt := range c.stmts {
		errs = append(errs, stmt.Close())
	}
	if c.only != nil {
		errs = append(errs, c.only.Close())
	}
	return errors.Join(append(errs, c.db.Close())...)
}

func (c *conn) stmt(ctx context.Context, query string) (*sql.Stmt, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if stmt, ok := c.stmts[query]; ok {
		return stmt, nil
	}
	stmt, err := c.prepare(ctx, query)
	if err == nil {
		c.stmts[query] = stmt
	}
	return stmt, err
}

// exec runs a statement and says how many rows it changed.
func (c *conn) exec(ctx context.Context, query string, args ...any) (int64, error) {
	stmt, err := c.stmt(ctx, query)
	if err != nil {
		return 0, err
	}
	result, err := stmt.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// all reads all rows of a query.
func all[T any](ctx context.Context, c *conn, read func(*row) T, query string, args ...any) ([]T, error) {
	stmt, err := c.stmt(ctx, query)
	if err != nil {
		return nil, err
	}
	rows, err := stmt.QueryContext(ctx, args...)
	return collect(rows, err, read)
}

// once is all for a query that is put together as it is needed: there are too many of them to be kept.
func once[T any](ctx context.Context, c *conn, read func(*row) T, query string, args ...any) ([]T, error) {
	rows, err := c.db.QueryContext(ctx, query, args...)
	return collect(rows, err, read)
}

// one reads the first row of a query; the zero value, if there is none.
func one[T any](ctx context.Context, c *conn, read func(*row) T, query string, args ...any) (first T, err error) {
	found, err := all(ctx, c, read, query, args...)
	if len(found) > 0 {
		first = found[0]
	}
	return first, err
}

func collect[T any](rows *sql.Rows, err error, read func(*row) T) ([]T, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []T
	var r row
	for rows.Next() {
		if err := r.scan(rows); err != nil {
			return nil, err
		}
		found = append(found, read(&r))
		if r.err != nil {
			return nil, r.err
		}
	}
	return found, rows.Err()
}

// many is all for as many keys as there are, of width values each. The query's %s becomes a list of
// places for them: in few sizes, so that few statements are prepared, and filled up with the last key.
func many[K, T any](ctx context.Context, c *conn, read func(*row) T, query, place string, keys []K, bind func([]any, K) []any) ([]T, error) {
	var found []T
	for len(keys) > 0 {
		size := 1
		for size < len(keys) && size < 512 {
			size *= 8
		}
		var args []any
		for i := range size {
			args = bind(args, keys[min(i, len(keys)-1)])
		}
		keys = keys[min(size, len(keys)):]
		places := strings.Repeat(place+",", size-1) + place
		part, err := all(ctx, c, read, strings.Replace(query, "%s", places, 1), args...)
		if err != nil {
			return nil, err
		}
		found = append(found, part...)
	}
	return found, nil
}
