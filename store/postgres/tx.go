package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"perdure"
)

// Update runs fn in a transaction: READ COMMITTED, so that each statement sees what was committed
// before it, and what is read after a lock is what the lock's last holder left.
//
// Where transactions lock jobs in several calls, two of them may wait for each other. The one that is
// tried again locks all that it asked for before at its first call, in the order of ids, and so cannot
// run into that a second time.
func (s *Store) Update(ctx context.Context, fn func(perdure.Tx) error) error {
	var asked []perdure.JobID
	return s.retry(ctx, func(ctx context.Context) error {
		tx := &tx{clock: &s.clock, before: asked}
		err := s.update(ctx, tx, fn)
		if len(tx.asked) > len(asked) {
			asked = tx.asked
		}
		return err
	})
}

// update is one try.
func (s *Store) update(ctx context.Context, tx *tx, fn func(perdure.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.limits.Transaction)
	defer cancel()
	conn, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	ptx, err := conn.BeginTx(ctx, s.begin())
	if err != nil {
		return judge(err, conn)
	}
	tx.ctx, tx.Tx, tx.conn = ctx, ptx, conn
	defer tx.rollback()
	if err := fn(tx); err != nil {
		// What the transaction failed with comes before what fn made of it.
		return cmp.Or(tx.failed, judgeOwn(err))
	}
	if tx.failed != nil {
		return tx.failed
	}
	if err := tx.commit(); err != nil {
		return err
	}
	s.hints.note(tx.stirred)
	return nil
}

// judgeOwn is for errors that fn came to itself.
func judgeOwn(err error) error {
	if errors.Is(err, perdure.ErrStale) {
		return &fault{again, err}
	}
	return err
}

// tx is one try of an Update, or a part of somebody's own transaction.
type tx struct {
	ctx context.Context
	pgx.Tx
	conn    *pgxpool.Conn
	clock   *clock
	asked   []perdure.JobID // to be locked, in this try
	before  []perdure.JobID // and in the one before, where none has been locked yet in this one
	read    reading         // the clock, if it was read with the latest lock and not yet asked for
	told    reading         // the latest that was asked for
	wrote   bool            // Save had something to write
	failed  error           // the first failure: nothing works after it
	stirred bool            // there is something to claim, or to look at
}

// fail remembers the first failure. In PostgreSQL the transaction is over with it.
func (tx *tx) fail(err error) error {
	if err == nil {
		return nil
	}
	err = judge(err, tx.conn)
	tx.failed = cmp.Or(tx.failed, err)
	return err
}

// commitTime is how long a COMMIT may take. It goes on where the caller has gone away, so that its
// outcome is known wherever it can be.
const commitTime = 10 * time.Second

func (tx *tx) commit() error {
	if err := tx.raiseMark(); err != nil {
		return err
	}
	if err := tx.ctx.Err(); err != nil {
		return tx.fail(err)
	}
	if tx.Conn().IsClosed() {
		return tx.fail(errors.New("connection lost before COMMIT"))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tx.ctx), commitTime)
	defer cancel()
	err := tx.Commit(ctx)
	var pe *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgx.ErrTxCommitRollback), errors.As(err, &pe) && pe.Severity == "ERROR":
		return judge(err, tx.conn) // the server has said no
	}
	// Also where pgconn.SafeToRetry says that nothing was sent: of a connection that breaks while the
	// answer is awaited it says so, too.
	return fmt.Errorf("%w: %w", perdure.ErrUnknown, err)
}

// rollback undoes what was not committed, or gives the connection up.
func (tx *tx) rollback() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tx.ctx), time.Second)
	defer cancel()
	var f *fault
	if errors.As(tx.failed, &f) && f.kind == lost {
		_ = tx.conn.Conn().Close(ctx) // a standby's connection is whole, and of no use
		return
	}
	if err := tx.Rollback(ctx); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
		_ = tx.conn.Conn().Close(ctx)
	}
}

// exec runs one statement and tells how many rows it met.
func (tx *tx) exec(sql string, args ...any) (int64, error) {
	tag, err := tx.Exec(tx.ctx, sql, args...)
	return tag.RowsAffected(), tx.fail(err)
}

// rows runs one query.
func rows[T any](tx *tx, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	r, err := tx.Query(tx.ctx, sql, args...)
	if err != nil {
		return nil, tx.fail(err)
	}
	found, err := collect(r, scan)
	return found, tx.fail(err)
}

// collect is nil where there is nothing.
func collect[T any](r pgx.Rows, scan pgx.RowToFunc[T]) ([]T, error) {
	return pgx.AppendRows([]T(nil), r, scan)
}

// one runs a query that answers with a row, or none.
func one[T any](tx *tx, scan pgx.RowToFunc[T], sql string, args ...any) (found T, ok bool, err error) {
	all, err := rows(tx, scan, sql, args...)
	if err != nil || len(all) == 0 {
		return found, false, err
	}
	return all[0], true, nil
}

// The limits' gate is an advisory lock: shared by all who read which limits there are and let steps
// out by that, taken alone by who changes one. So a limit takes hold at once: nobody who has not seen
// it is still under way when its change is committed.
const (
	shareGate = "select pg_advisory_xact_lock_shared(8098991088)"
	closeGate = "select pg_advisory_xact_lock(8098991088)"
)

func (tx *tx) PutLimit(name string, max int) error {
	if _, err := tx.exec(closeGate); err != nil {
		return err
	}
	_, err := tx.exec(`insert into perdure."limit" (name, max) values ($1, $2)
		on conflict (name) do update set max = excluded.max`, name, max)
	return err
}

func (tx *tx) DeleteLimit(name string) (bool, error) {
	if _, err := tx.exec(closeGate); err != nil {
		return false, err
	}
	n, err := tx.exec(`delete from perdure."limit" where name = $1`, name)
	return n > 0, err
}

func (tx *tx) CloseAlert(id int64, by string, at time.Time) error {
	_, err := tx.exec(`update perdure.alert set closed_at = $3, closed_by = $2
		where id = $1 and closed_at is null`, id, by, at)
	return err
}
