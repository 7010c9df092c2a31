package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	driver "zombiezen.com/go/sqlite"

	"github.com/perdure/perdure/internal/crashpoint"
)

// conn is a connection. It is used by one goroutine at a time.
type conn struct {
	db    *driver.Conn
	stmts map[string]*driver.Stmt // each is prepared once
	words words

	insertOne, insertMany, updates statements // for writes

	breakOff func() // interrupts the current statement, and all others until mend is called
}

// mend lets statements run again after an interrupt. It costs a goroutine, so it is not called for each read.
func (c *conn) mend() {
	broken := make(chan struct{})
	c.breakOff = func() { close(broken) }
	c.db.SetInterrupt(broken)
}

// connect opens a connection. It does not change the file.
func connect(path string) (*conn, error) {
	db, err := driver.OpenConn(path, driver.OpenReadWrite|driver.OpenCreate)
	if err != nil {
		return nil, err
	}
	c := &conn{db: db, stmts: map[string]*driver.Stmt{}, words: words{},
		insertOne: newStatements(insertText(1)), insertMany: newStatements(insertText(rowsAtOnce)), updates: newStatements(updateText)}
	db.SetBusyTimeout(busyTimeout)
	return c, nil
}

// set sets pragmas.
func (c *conn) set(pragmas ...string) error {
	for _, p := range pragmas {
		if err := c.once(`PRAGMA ` + p); err != nil {
			return err
		}
	}
	return nil
}

func (c *conn) close() error { return c.db.Close() }

// stmt returns the prepared statement of a text. The number of different texts is small.
func (c *conn) stmt(query string) (*driver.Stmt, error) {
	if s := c.stmts[query]; s != nil {
		return s, nil
	}
	s, err := c.db.Prepare(query)
	if err == nil {
		c.stmts[query] = s
	}
	return s, err
}

// exec runs a statement without an answer.
func (c *conn) exec(query string, args ...any) error {
	s, err := c.stmt(query)
	if err != nil {
		return err
	}
	bind(s, args)
	return run(s)
}

// changed runs a statement and returns how many rows it has changed.
func (c *conn) changed(query string, args ...any) (int, error) {
	err := c.exec(query, args...)
	return c.db.Changes(), err
}

// run executes a statement with bound values to its end.
func run(s *driver.Stmt) error {
	crashpoint.Here(crashpoint.SQLiteWrite)
	for {
		more, err := s.Step()
		if err != nil {
			return err // Step has reset the statement
		}
		if !more {
			return s.Reset()
		}
	}
}

// once runs statements that are not kept as prepared statements.
func (c *conn) once(script string) error {
	for script != "" {
		s, rest, err := c.db.PrepareTransient(script)
		if err != nil {
			return err
		}
		script = strings.TrimSpace(script[len(script)-rest:])
		if s.BindParamCount() > 0 {
			return errors.Join(fmt.Errorf("%d values are missing", s.BindParamCount()), s.Finalize())
		}
		if err := errors.Join(run(s), s.Finalize()); err != nil {
			return err
		}
	}
	return nil
}

// limitTo is LIMIT with a parameter, for statements that run often. If LIMIT has nothing but a parameter, SQLite plans
// for its value, and prepares the statement again for each value that is bound.
const limitTo = `LIMIT ? + 0`

// all reads all rows of a query.
func all[T any](c *conn, read func(*row) T, query string, args ...any) ([]T, error) {
	s, err := c.stmt(query)
	if err != nil {
		return nil, err
	}
	bind(s, args)
	return collect(c, s, read)
}

// transient is all for a query whose text varies so much that it is not kept.
func transient[T any](c *conn, read func(*row) T, query string, args ...any) ([]T, error) {
	s, _, err := c.db.PrepareTransient(query)
	if err != nil {
		return nil, err
	}
	bind(s, args)
	found, err := collect(c, s, read)
	return found, errors.Join(err, s.Finalize())
}

// each reads the rows of a query one after the other.
func each(c *conn, fn func(*row) error, query string) error {
	var failed error
	_, err := transient(c, func(r *row) struct{} {
		if failed == nil {
			failed = fn(r)
		}
		r.err = cmp.Or(r.err, failed)
		return struct{}{}
	}, query)
	return cmp.Or(failed, err)
}

// one reads the first row of a query; the zero value if there is none.
func one[T any](c *conn, read func(*row) T, query string, args ...any) (first T, err error) {
	found, err := all(c, read, query, args...)
	if len(found) > 0 {
		first = found[0]
	}
	return first, err
}

// until reads the rows of a query up to the first one that is enough.
func until[T any](c *conn, read func(*row) T, enough func(T) bool, query string, args ...any) ([]T, error) {
	s, err := c.stmt(query)
	if err != nil {
		return nil, err
	}
	bind(s, args)
	return collectUntil(c, s, read, enough)
}

func collect[T any](c *conn, s *driver.Stmt, read func(*row) T) ([]T, error) {
	return collectUntil(c, s, read, func(T) bool { return false })
}

func collectUntil[T any](c *conn, s *driver.Stmt, read func(*row) T, enough func(T) bool) (found []T, err error) {
	r := row{s: s, words: c.words}
	for {
		more, err := s.Step()
		if err != nil {
			return nil, err
		}
		if !more {
			return found, s.Reset()
		}
		r.next = 0
		found = append(found, read(&r))
		if r.err != nil {
			return nil, errors.Join(r.err, s.Reset())
		}
		if enough(found[len(found)-1]) {
			return found, s.Reset()
		}
	}
}

// pool is a set of connections.
type pool struct {
	free chan *conn
	size int
	gone chan struct{} // closed when the pool is closed
}

func openPool(size int, open func() (*conn, error)) (*pool, error) {
	p := &pool{free: make(chan *conn, size), gone: make(chan struct{})}
	for range size {
		c, err := open()
		if err != nil {
			return nil, errors.Join(err, p.close())
		}
		c.mend()
		p.size++
		p.free <- c
	}
	return p, nil
}

// with calls fn with a connection. Its statements are interrupted when ctx ends.
func (p *pool) with(ctx context.Context, fn func(*conn) error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	select {
	case c := <-p.free:
		unbroken, over := context.AfterFunc(ctx, c.breakOff), false
		defer func() {
			if !unbroken() || !over { // or fn has panicked in the middle of a statement
				c.mend()
			}
			p.free <- c
		}()
		err := fn(c)
		over = true
		if err != nil && driver.ErrCode(err) == driver.ResultInterrupt && ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	case <-p.gone:
		return errClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// close waits for connections that are in use.
func (p *pool) close() error {
	close(p.gone)
	var errs []error
	for range p.size {
		errs = append(errs, (<-p.free).close())
	}
	return errors.Join(errs...)
}
