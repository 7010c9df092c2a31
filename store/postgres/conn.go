package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

// maxTries bounds the attempts of a transaction. Lost connections are retried less often: a caller may wait for one
// broken connection, but not for a server that is down.
const (
	maxTries     = 10
	maxLostTries = 4
	firstPause   = 2 * time.Millisecond
	maxPause     = 50 * time.Millisecond
	lostPause    = 250 * time.Millisecond
)

// retry calls op until it succeeds, or fails in a way that another attempt cannot cure.
func (s *Store) retry(ctx context.Context, op func(context.Context) error) error {
	losses, start := 0, time.Now()
	for try := 1; ; try++ {
		err := op(ctx)
		var f *fault
		switch {
		case !errors.As(err, &f): // or nil
			return err
		case ctx.Err() != nil:
			return fmt.Errorf("postgres: %w", context.Cause(ctx))
		case f.kind == final:
			return f.err
		case f.kind == lost:
			losses++
			s.pool.Reset() // its other idle connections are likely to be gone as well
		}
		tired := try == maxTries || losses == maxLostTries || time.Since(start) > s.limits.Transaction
		if f.kind == busy || tired {
			return giveUp(f)
		}
		wait := min(firstPause<<try, maxPause)
		if f.kind == lost {
			wait = lostPause * time.Duration(losses)
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// pause sleeps for a random time up to most.
func pause(ctx context.Context, most time.Duration) error {
	t := time.NewTimer(rand.N(most))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("postgres: %w", context.Cause(ctx))
	}
}

// acquire takes a connection from the pool, and waits for a bounded time.
func (s *Store) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limits.Acquire)
	defer cancel()
	conn, err := s.pool.Acquire(ctx)
	var pe *pgconn.PgError
	var ce *pgconn.ConnectError
	switch {
	case err == nil:
		return conn, nil
	case errors.As(err, &pe) && (pe.Code[:2] == "28" || pe.Code == "3D000"): // wrong password, or no such database
		return nil, perdure.Refuse(perdure.CodeUnavailable, "PostgreSQL does not let this program in: %s", pe.Message)
	case errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &ce):
		return nil, &fault{busy, fmt.Errorf("no connection within %v: %w", s.limits.Acquire, err)}
	}
	return nil, &fault{lost, err}
}

// send runs statements outside of a transaction, in one round trip, with their settings. make is called for each
// attempt. However many calls there are, some connections remain for transactions that dispatch, accept reports and
// renew roles, which use Update and write (F102).
func (s *Store) send(ctx context.Context, make func() []*pgwire.Statement) error {
	timer := time.NewTimer(s.limits.Acquire)
	defer timer.Stop()
	select {
	case s.readers <- struct{}{}:
		defer func() { <-s.readers }()
	case <-timer.C:
		return perdure.Refuse(perdure.CodeUnavailable, "PostgreSQL cannot do it now: %d reads are under way, and none has ended for %v", cap(s.readers), s.limits.Acquire)
	case <-ctx.Done():
		return fmt.Errorf("postgres: %w", context.Cause(ctx))
	}
	return s.sendAtOnce(ctx, make)
}

// The server ends a statement after Limits.Statement. If its answer has not come answerSlack later, the server or the
// network is gone (F100), and request closes the connection. The driver then sends a cancel request to the same server,
// which may not answer either; it ends after cancelWithin.
const (
	answerSlack  = 2 * time.Second
	cancelWithin = time.Second
)

// request is pgwire.RoundTrip with a time limit. It is not for statements that may commit (see commitTrip).
func (s *Store) request(ctx context.Context, conn *pgx.Conn, list ...*pgwire.Statement) error {
	ctx, cancel := context.WithTimeout(ctx, s.answer)
	defer cancel()
	err := pgwire.RoundTrip(ctx, conn, list...)
	if conn.IsClosed() {
		hangUp(conn)
	}
	return err
}

// hangUp closes the socket of a connection that the driver has given up. The driver itself would first wait for the
// server to close it (15 s), and keep the slot in the pool meanwhile.
func hangUp(conn *pgx.Conn) { _ = conn.PgConn().Conn().Close() }

// reserve is how many connections views may not use: they are for three writers, two repeated claims that wait for
// locks, and the roll call.
const reserve = 6

func (s *Store) sendAtOnce(ctx context.Context, make func() []*pgwire.Statement) error {
	return s.retry(ctx, func(ctx context.Context) error {
		return s.connected(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
			return judge(s.request(ctx, conn.Conn(), append([]*pgwire.Statement{pgwire.New(s.settings)}, make()...)...), conn)
		})
	})
}

// write is sendAtOnce for statements that change something. Each list is a transaction of its own. If the statements
// change nothing, the COMMIT waits for the standby all the same, because commits takes its answer as a confirmation by
// the standby.
func (s *Store) write(ctx context.Context, make func() []*pgwire.Statement) error {
	return s.retry(ctx, func(ctx context.Context) error {
		return s.admitted(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
			if err := s.Accepting(); err != nil { // this may have changed while waiting for a connection
				return err
			}
			list := append([]*pgwire.Statement{pgwire.New(s.settings)}, make()...)
			return judge(s.commitTrip(ctx, conn.Conn(), append(list, pgwire.New(awaitStandbySQL))...), conn)
		})
	})
}

// connected calls fn with a connection of the pool, within the time limit of a transaction.
func (s *Store) connected(ctx context.Context, fn func(context.Context, *pgxpool.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.limits.Transaction)
	defer cancel()
	conn, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return fn(ctx, conn)
}

// admitted is connected for transactions that commit.
func (s *Store) admitted(ctx context.Context, fn func(context.Context, *pgxpool.Conn) error) error {
	if err := s.commits.admit(ctx, s.limits.Acquire); err != nil {
		return err
	}
	return s.connected(ctx, fn)
}

// query reads rows outside of transactions.
func query[T any](ctx context.Context, s *Store, st *pgwire.Statement, scan func(*pgwire.Reader) T) ([]T, error) {
	return queryOne(ctx, s.send, st, scan)
}

// queryAtOnce is query for components of the node, which do not wait behind views.
func queryAtOnce[T any](ctx context.Context, s *Store, st *pgwire.Statement, scan func(*pgwire.Reader) T) ([]T, error) {
	return queryOne(ctx, s.sendAtOnce, st, scan)
}

func queryOne[T any](ctx context.Context, send func(context.Context, func() []*pgwire.Statement) error, st *pgwire.Statement, scan func(*pgwire.Reader) T) (found []T, err error) {
	err = send(ctx, func() []*pgwire.Statement {
		found = nil
		return []*pgwire.Statement{pgwire.Into(st, &found, scan)}
	})
	return found, err
}

// first returns the first row; the zero value if there is none.
func first[T any](all []T, err error) (T, error) {
	if err != nil || len(all) == 0 {
		var none T
		return none, err
	}
	return all[0], nil
}
