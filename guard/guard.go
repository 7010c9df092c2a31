// Package guard makes an effect in a database of your own happen once, however often and in whatever order
// Perdure has to ask for it. It keeps a row for each step in a table beside your own, written in the same
// transaction as the effect, and so gets the three cases right that sagas get wrong:
//
//   - a repeat: the effect has happened, and its output is returned again;
//   - an undo of what never happened: nothing is compensated, and it is remembered that it was undone;
//   - an action that arrives after its undo: it is refused, and so has no effect that is never undone.
//
// A run that is older than the latest one seen is refused, whatever it requests: run numbers only grow.
//
//	perdure.Handle(stock, "reserve", perdure.Op[Order, Reservation]{
//		Do: func(ctx context.Context, in Order) (r Reservation, err error) {
//			err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//				r, err = guard.Do(ctx, pgxguard.Tx(tx), func() (Reservation, error) { return reserve(ctx, tx, in) })
//				return err
//			})
//			return r, err
//		},
//		Undo: func(ctx context.Context, in Order, _ Reservation) error {
//			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//				return guard.Undo(ctx, pgxguard.Tx(tx), func(r Reservation) error { return release(ctx, tx, r) })
//			})
//		},
//	})
//
// The transaction is yours to begin and to end: an error means that it is to be rolled back. On PostgreSQL read
// committed is enough; at a higher level a race is a serialization failure, and the run is tried again. On SQLite
// begin immediate transactions and wait for each other (with modernc.org/sqlite:
// ?_txlock=immediate&_pragma=busy_timeout(5000)), or a race is SQLITE_BUSY.
//
// There is one row for a step, so a handler calls Do once, or Undo once: what else it does belongs into the same
// function, or is a step of its own. A second call in one run is an error (ErrTwice), and not a repeat.
//
// What it cannot guard: effects outside of the transaction. For those, pass the run's Key on.
package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/perdure/perdure"
)

// Schema makes the table, on PostgreSQL and on SQLite: run it once, with your own migrations, in the database
// that the effects are in.
const Schema = `CREATE TABLE IF NOT EXISTS perdure_guard (
	step   varchar(400) NOT NULL PRIMARY KEY, -- job/step
	key    varchar(400) NOT NULL,             -- of the latest turn in which it was done, or was to be
	run    bigint       NOT NULL,             -- the latest that was seen
	done   smallint     NOT NULL,             -- 1: the effect is there; 0: it was undone, and must not come
	output text         NOT NULL,             -- what the effect has given, in JSON
	at     bigint       NOT NULL              -- when it was written last, in microseconds since 1970
)`

// Tx is a transaction, made by pgxguard.Tx, Postgres or SQLite.
type Tx interface {
	// Exec runs a statement, and returns how many rows it has changed.
	Exec(ctx context.Context, sql string, args ...any) (int64, error)
	// QueryRow reads the first row. If there is none, its error is sql.ErrNoRows or one for which NoRows returns true.
	QueryRow(ctx context.Context, sql string, args []any, into ...any) error
	// NoRows recognizes that error.
	NoRows(error) bool
}

var (
	// ErrUndone is the error of an action that arrives after it was undone. It is rejected, and has had no effect.
	ErrUndone = errors.New("guard: the action was undone before it came")
	// ErrStale is the error of a run after which a later run of the step was here: the run is no longer valid.
	ErrStale = errors.New("guard: a later run of this step was here")
	// ErrNoRun is the error of a context that is not a handler's.
	ErrNoRun = errors.New("guard: the context has no run: it is not that of a handler")
	// ErrNoTx is the error of a nil transaction.
	ErrNoTx = errors.New("guard: the transaction is nil: begin one first")
	// ErrTwice is the error of a second call of Do or Undo in one run. Its effect would have been left out, as a repeat
	// of the first call.
	ErrTwice = errors.New("guard: called twice in one run: put both effects into one function, or make each a step of its own")
	// ErrPartRun is the error of a run that was made by hand and lacks fields that identify it.
	ErrPartRun = errors.New("guard: the run needs a job, a step, a number and the key of what is done or undone")
)

// Do calls effect in the transaction tx, unless the effect has happened, and returns its output, of this or of the
// earlier call. ctx is the handler's, or derived from it.
func Do[Out any](ctx context.Context, tx Tx, effect func() (Out, error)) (out Out, err error) {
	run, err := runOf(ctx, tx, perdure.Do)
	if err != nil {
		return out, err
	}
	first, before, err := enter(ctx, tx, run, run.Key, 1)
	switch {
	case err != nil:
		return out, err
	case first:
	case passed.wrote(run, before):
		return out, ErrTwice
	case before.key == run.Key && before.done == 0:
		return out, perdure.NoEffect(perdure.Rejected(ErrUndone, "undone"))
	case before.run > run.Number:
		return out, perdure.NoEffect(ErrStale)
	case before.key == run.Key:
		if err := json.Unmarshal([]byte(before.output), &out); err != nil {
			return out, fmt.Errorf("guard: what was given before cannot be read: %w", err)
		}
		return out, leave(ctx, tx, run, before, before)
	}
	if out, err = effect(); err != nil {
		return out, err
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return out, fmt.Errorf("guard: what the effect has given is not JSON: %w", err)
	}
	return out, leave(ctx, tx, run, before, row{key: run.Key, done: 1, output: string(raw)})
}

// Undo calls compensate with the output of the effect, if there is an effect that was not undone. Otherwise it only
// records that the action must not happen any more. ctx is the handler's, or derived from it.
func Undo[Out any](ctx context.Context, tx Tx, compensate func(Out) error) error {
	run, err := runOf(ctx, tx, perdure.Undo)
	if err != nil {
		return err
	}
	first, before, err := enter(ctx, tx, run, run.DoKey, 0)
	switch {
	case err != nil:
		return err
	case first:
		passed.add(run, before.at)
		return nil
	case passed.wrote(run, before):
		return ErrTwice
	case before.run > run.Number:
		return perdure.NoEffect(ErrStale)
	case before.key == run.DoKey && before.done == 1:
		var out Out
		if err := json.Unmarshal([]byte(before.output), &out); err != nil {
			return fmt.Errorf("guard: what was given before cannot be read: %w", err)
		}
		if err := compensate(out); err != nil {
			return err
		}
	}
	return leave(ctx, tx, run, before, row{key: run.DoKey, output: "null"})
}

// Forget deletes rows that were last written before a time, at most max, and returns how many. A row must remain for as
// long as a run of its step may still arrive: keep rows for longer than your jobs last, and than any of your requests
// may be delayed.
func Forget(ctx context.Context, tx Tx, before time.Time, max int) (int, error) {
	if tx == nil {
		return 0, ErrNoTx
	}
	n, err := tx.Exec(ctx, `DELETE FROM perdure_guard WHERE step IN (SELECT step FROM perdure_guard WHERE at < $1 LIMIT $2)`,
		before.UnixMicro(), max)
	return int(n), missing(err)
}

// missing explains the error of a database without the table.
func missing(err error) error {
	var state interface{ SQLState() string }
	undefined := errors.As(err, &state) && state.SQLState() == "42P01" // undefined_table
	if undefined || err != nil && strings.Contains(err.Error(), "no such table: perdure_guard") {
		return fmt.Errorf("guard: this database has no table perdure_guard: run guard.Schema in it, once: %w", err)
	}
	return err
}

func runOf(ctx context.Context, tx Tx, want perdure.Direction) (*perdure.Run, error) {
	run := perdure.RunOf(ctx)
	switch {
	case run == nil:
		return nil, ErrNoRun
	case run.Direction != want:
		return nil, fmt.Errorf("guard: the run is a %s, and not a %s", run.Direction, want)
	case run.Job.IsZero() || run.Step == "" || run.Number <= 0 || want == perdure.Do && run.Key == "" || want == perdure.Undo && run.DoKey == "":
		return nil, ErrPartRun
	case tx == nil:
		return nil, ErrNoTx
	}
	return run, nil
}

// row is the row of a step.
type row struct {
	key    string
	run    int64
	done   int
	output string
	at     int64 // when it was written, in microseconds: each version of a row has another value
}

func stepOf(run *perdure.Run) string { return run.Job.String() + "/" + run.Step }

const (
	insertSQL = `INSERT INTO perdure_guard (step, key, run, done, output, at) VALUES ($1, $2, $3, $4, 'null', $5) ON CONFLICT DO NOTHING`
	lockSQL   = `UPDATE perdure_guard SET at = at WHERE step = $1 RETURNING key, run, done, output, at`
	updateSQL = `UPDATE perdure_guard SET key = $2, run = $3, done = $4, output = $5, at = $6 WHERE step = $1`
)

// enter locks the step's row for this transaction: a new row (first), or the existing one, once no other transaction has
// locked it. In both cases it writes first, so that concurrent transactions wait.
func enter(ctx context.Context, tx Tx, run *perdure.Run, key string, done int) (first bool, before row, err error) {
	now := time.Now().UnixMicro()
	for range 3 {
		n, err := tx.Exec(ctx, insertSQL, stepOf(run), key, run.Number, done, now)
		if err != nil || n == 1 {
			return n == 1, row{at: now}, missing(err)
		}
		err = tx.QueryRow(ctx, lockSQL, []any{stepOf(run)}, &before.key, &before.run, &before.done, &before.output, &before.at)
		if tx.NoRows(err) {
			continue // it was deleted by Forget in between
		}
		return false, before, err
	}
	return false, before, errors.New("guard: the step's row comes and goes")
}

func leave(ctx context.Context, tx Tx, run *perdure.Run, before, now row) error {
	now.at = max(time.Now().UnixMicro(), before.at+1)
	n, err := tx.Exec(ctx, updateSQL, stepOf(run), now.key, run.Number, now.done, now.output, now.at)
	switch {
	case err != nil:
		return err
	case n != 1:
		return errors.New("guard: the step's row is gone")
	}
	passed.add(run, now.at)
	return nil
}
