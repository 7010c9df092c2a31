package guard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/guard"
	"github.com/perdure/perdure/guard/pgxguard"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/runcontext"
)

// stock is a business database: one row for each reservation, and a line in a journal for each effect, in the same
// transactions.
type stock struct {
	*testing.T
	in   func(ctx context.Context, fn func(tx guard.Tx) error) error // a transaction, committed if fn has no error
	exec func(sql string) (int64, error)
}

// everywhere runs a test with each kind of transaction.
func everywhere(t *testing.T, test func(s *stock)) {
	std := func(t *testing.T, driver, dsn string, wrap func(*sql.Tx) guard.Tx) {
		db, err := sql.Open(driver, dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		test((&stock{T: t, in: func(ctx context.Context, fn func(guard.Tx) error) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			if err := fn(wrap(tx)); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			return tx.Commit()
		}, exec: func(text string) (n int64, err error) {
			if err = db.QueryRow(text).Scan(&n); errors.Is(err, sql.ErrNoRows) {
				err = nil
			}
			return n, err
		}}).made())
	}
	t.Run("sqlite", func(t *testing.T) {
		std(t, "sqlite", "file:"+t.TempDir()+"/b.db?_txlock=immediate&_pragma=journal_mode(wal)&_pragma=busy_timeout(20000)", guard.SQLite)
	})
	t.Run("stdlib", func(t *testing.T) { std(t, "pgx", pgtest.Start(t), guard.Postgres) })
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run("pgx "+string(level), func(t *testing.T) { test(onPgx(t, level).made()) })
	}
}

// onPgx runs transactions of this isolation level. If the database asks for a retry, it retries as Perdure does.
func onPgx(t *testing.T, level pgx.TxIsoLevel) *stock {
	pool, err := pgxpool.New(t.Context(), pgtest.Start(t)+"&pool_max_conns=20")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return &stock{T: t, in: func(ctx context.Context, fn func(guard.Tx) error) error {
		for {
			err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
				// A snapshot from before the guard's statements, as in a handler that has read something.
				if _, err := tx.Exec(ctx, "select count(*) from reserved"); err != nil {
					return err
				}
				return fn(pgxguard.Tx(tx))
			})
			if pe := (*pgconn.PgError)(nil); level == pgx.ReadCommitted || !errors.As(err, &pe) || pe.Code != "40001" {
				return err
			}
		}
	}, exec: func(sql string) (n int64, err error) {
		if err = pool.QueryRow(context.Background(), sql).Scan(&n); errors.Is(err, pgx.ErrNoRows) {
			err = nil
		}
		return n, err
	}}
}

func (s *stock) made() *stock {
	for _, sql := range []string{guard.Schema, guard.Schema, "create table reserved (step text, key text, amount bigint)", "create table journal (line text)"} {
		if _, err := s.exec(sql); err != nil {
			s.Fatal(err)
		}
	}
	return s
}

func (s *stock) count(sql string) int64 {
	s.Helper()
	n, err := s.exec("select count(*) from " + sql)
	if err != nil {
		s.Fatal(err)
	}
	return n
}

type reservation struct {
	Amount int64 `json:"amount"`
}

// run returns a run of the one step of this test. Turns are counted from 1; the odd ones are do turns.
func run(number int64, turn int) *perdure.Run {
	r := &perdure.Run{Job: perdure.JobID{7}, Step: "reserve", Number: number, Key: fmt.Sprintf("job/reserve/%d", turn)}
	if turn%2 == 0 {
		r.Direction, r.DoKey = perdure.Undo, fmt.Sprintf("job/reserve/%d", turn-1)
	}
	return r
}

var errBroken = errors.New("broken off")

// act is what a handler does for a run, as in the package's example. If broken is set, it fails after its effect.
func (s *stock) act(r *perdure.Run, broken bool) (out reservation, err error) {
	ctx := runcontext.With(context.Background(), r, time.Now().Add(time.Minute), nil)
	err = s.in(ctx, func(tx guard.Tx) error {
		if r.Direction == perdure.Undo {
			return guard.Undo(ctx, tx, func(before reservation) error {
				n, err := tx.Exec(ctx, "delete from reserved where key = '"+r.DoKey+"' and amount = "+fmt.Sprint(before.Amount))
				if err == nil && n != 1 {
					err = fmt.Errorf("compensates what is not there: %d rows", n)
				}
				return s.journal(ctx, tx, "undo", err, broken)
			})
		}
		out, err = guard.Do(ctx, tx, func() (reservation, error) {
			r2 := reservation{100 + r.Number}
			_, err := tx.Exec(ctx, fmt.Sprintf("insert into reserved values ('s', '%s', %d)", r.Key, r2.Amount))
			return r2, s.journal(ctx, tx, "do", err, broken)
		})
		return err
	})
	return out, err
}

func (s *stock) journal(ctx context.Context, tx guard.Tx, line string, err error, broken bool) error {
	if err == nil {
		_, err = tx.Exec(ctx, "insert into journal values ('"+line+"')")
	}
	if err == nil && broken {
		err = errBroken
	}
	return err
}

func (s *stock) is(reserved, done, undone int64) {
	s.Helper()
	got := [3]int64{s.count("reserved"), s.count("journal where line = 'do'"), s.count("journal where line = 'undo'")}
	if got != [3]int64{reserved, done, undone} {
		s.Errorf("reserved, done and undone: %v, want %v", got, [3]int64{reserved, done, undone})
	}
}

// I5, F036, F092: a repeat has no effect, and returns the same output. The same holds for an undo. A failed action
// leaves nothing.
func TestEffectHappensOnce(t *testing.T) {
	everywhere(t, func(s *stock) {
		if _, err := s.act(run(1, 1), true); !errors.Is(err, errBroken) {
			s.Fatal(err)
		}
		s.is(0, 0, 0)
		for n := range int64(3) {
			if out, err := s.act(run(n+2, 1), false); err != nil || out.Amount != 102 {
				s.Errorf("%+v, %v", out, err)
			}
		}
		s.is(1, 1, 0)
		if _, err := s.act(run(5, 2), true); !errors.Is(err, errBroken) {
			s.Fatal(err)
		}
		s.is(1, 1, 0)
		for n := range int64(3) {
			if _, err := s.act(run(n+6, 2), false); err != nil {
				s.Error(err)
			}
		}
		s.is(0, 1, 1)
		// Redone, under the key of the next turn, and undone again.
		if out, err := s.act(run(9, 3), false); err != nil || out.Amount != 109 {
			s.Errorf("%+v, %v", out, err)
		}
		s.is(1, 2, 1)
		if _, err := s.act(run(10, 4), false); err != nil {
			s.Error(err)
		}
		s.is(0, 2, 2)
		if n := s.count("perdure_guard"); n != 1 {
			s.Errorf("%d rows of one step", n)
		}
	})
}

// I10, F090: an undo of an action that never happened compensates nothing. The action that it has overtaken is refused,
// and is not tried again.
func TestUndoRefusesTheActionThatItOvertook(t *testing.T) {
	everywhere(t, func(s *stock) {
		if _, err := s.act(run(2, 2), false); err != nil {
			s.Fatal(err)
		}
		_, err := s.act(run(1, 1), false)
		var f *perdure.Failure
		if !errors.Is(err, guard.ErrUndone) || !errors.As(err, &f) || !f.Reject || !f.NoEffect {
			s.Errorf("%v", err)
		}
		s.is(0, 0, 0)
		if _, err := s.act(run(3, 3), false); err != nil { // the next turn is independent
			s.Error(err)
		}
		s.is(1, 1, 0)
	})
}

// F025, F091: runs from before the latest run are refused: the action after its undo, the undo after the redo, and an
// action under a key that an operator has given up.
func TestOldRunsAreRefused(t *testing.T) {
	everywhere(t, func(s *stock) {
		for _, r := range []*perdure.Run{run(2, 1), run(3, 2), run(5, 3)} {
			if _, err := s.act(r, false); err != nil {
				s.Fatal(err)
			}
		}
		s.is(1, 2, 1)
		for _, r := range []*perdure.Run{run(1, 1), run(4, 2), run(4, 3)} {
			if _, err := s.act(r, false); !errors.Is(err, guard.ErrStale) {
				s.Errorf("run %d: %v", r.Number, err)
			}
		}
		s.is(1, 2, 1)
	})
}

// F002, F036: a hundred duplicates race, and some of them fail after their effect. There is one effect.
func TestRacingDuplicatesHaveOneEffect(t *testing.T) {
	everywhere(t, func(s *stock) {
		s.race(100, func(i int) (*perdure.Run, bool) { return run(1, 1), i%3 == 0 })
		s.is(1, 1, 0)
		s.race(100, func(i int) (*perdure.Run, bool) { return run(2, 2), i%3 == 0 })
		s.is(0, 1, 1)
	})
}

// I10: actions and their undos race, in any order. In the end there is one effect and one compensation, or neither.
func TestRacingDoAndUndoLeaveNoHalf(t *testing.T) {
	everywhere(t, func(s *stock) {
		did := 0
		for round := range 10 {
			turn := 2*round + 1
			s.race(20, func(i int) (*perdure.Run, bool) {
				if rand.IntN(3) == 0 {
					return run(int64(2*turn+1), turn+1), i%4 == 0
				}
				return run(int64(2*turn), turn), i%4 == 1
			})
			if _, err := s.act(run(int64(2*turn+1), turn+1), false); err != nil {
				s.Error(err)
			}
			if n := s.count("reserved"); n != 0 {
				s.Errorf("round %d: %d reservations are left", round, n)
			}
			done, undone := s.count("journal where line = 'do'"), s.count("journal where line = 'undo'")
			if done != undone || done > int64(round+1) {
				s.Errorf("round %d: %d effects, %d compensations", round, done, undone)
			}
			did = int(done)
		}
		s.Logf("%d of 10 turns had their effect before the undo came", did)
	})
}

// race acts for many runs at once. A run that is refused has had no effect; any other error is one that broken has
// caused.
func (s *stock) race(n int, of func(int) (*perdure.Run, bool)) {
	var wg sync.WaitGroup
	for i := range n {
		r, broken := of(i)
		wg.Go(func() {
			_, err := s.act(r, broken)
			if err != nil && !errors.Is(err, errBroken) && !errors.Is(err, guard.ErrUndone) && !errors.Is(err, guard.ErrStale) {
				s.Error(err)
			}
		})
	}
	wg.Wait()
	// The failed runs may have been the first ones, so one more run follows, as with Perdure.
	if r, _ := of(1); n == 100 {
		if _, err := s.act(r, false); err != nil {
			s.Error(err)
		}
	}
}

// A second call of Do or Undo in one run is an error, in one transaction or in two, because its function would be left
// out. A transaction that is tried again is no second call, and a run that is delivered again is a repeat.
func TestSecondCallInOneRunIsAnError(t *testing.T) {
	everywhere(t, func(s *stock) {
		handler := func(r *perdure.Run) context.Context {
			return runcontext.With(context.Background(), r, time.Now().Add(time.Minute), nil)
		}
		line := func(ctx context.Context, tx guard.Tx, text string, err error) error {
			if err == nil {
				_, err = tx.Exec(ctx, "insert into journal values ('"+text+"')")
			}
			return err
		}
		do := func(ctx context.Context, tx guard.Tx, text string, fails error) error {
			_, err := guard.Do(ctx, tx, func() (int, error) { return 1, line(ctx, tx, text, fails) })
			return err
		}
		undo := func(ctx context.Context, tx guard.Tx, text string) error {
			return guard.Undo(ctx, tx, func(int) error { return line(ctx, tx, text, nil) })
		}
		is := func(want int64) {
			s.Helper()
			if n := s.count("journal"); n != want {
				s.Errorf("%d effects, want %d", n, want)
			}
		}
		ctx := handler(run(1, 1))
		if err := s.in(ctx, func(tx guard.Tx) error { return errors.Join(do(ctx, tx, "a", nil), do(ctx, tx, "b", nil)) }); !errors.Is(err, guard.ErrTwice) {
			s.Errorf("in one transaction: %v", err)
		}
		is(0)
		// The first transaction was rolled back, and is tried again in the same run. Then the handler makes a second
		// call.
		for _, n := range []int64{1, 2, 3} { // in a first run, and in its repeats
			ctx := handler(run(n, 1))
			if err := s.in(ctx, func(tx guard.Tx) error { return errors.Join(do(ctx, tx, "a", nil), errBroken) }); !errors.Is(err, errBroken) {
				s.Error(err)
			}
			if err := s.in(ctx, func(tx guard.Tx) error { return do(ctx, tx, "a", nil) }); err != nil {
				s.Errorf("tried again: %v", err)
			}
			if err := s.in(ctx, func(tx guard.Tx) error { return do(ctx, tx, "b", nil) }); !errors.Is(err, guard.ErrTwice) {
				s.Errorf("in two transactions: %v", err)
			}
			is(1)
		}
		// A run was delivered twice. The transaction of one delivery fails at its end, and is tried again after the
		// other's.
		one, other := handler(run(4, 1)), handler(run(4, 1))
		if err := s.in(one, func(tx guard.Tx) error { return errors.Join(do(one, tx, "a", nil), errBroken) }); !errors.Is(err, errBroken) {
			s.Error(err)
		}
		for _, ctx := range []context.Context{other, one} {
			if err := s.in(ctx, func(tx guard.Tx) error { return do(ctx, tx, "a", nil) }); err != nil {
				s.Errorf("delivered twice: %v", err)
			}
		}
		is(1)
		again := handler(run(4, 1)) // delivered again
		if err := s.in(again, func(tx guard.Tx) error { return do(again, tx, "a", nil) }); err != nil {
			s.Error(err)
		}
		for _, r := range []*perdure.Run{run(5, 2), run(7, 4)} { // for an action that has happened, and for one that has not
			ctx = handler(r)
			if err := s.in(ctx, func(tx guard.Tx) error { return errors.Join(undo(ctx, tx, "x"), undo(ctx, tx, "y")) }); !errors.Is(err, guard.ErrTwice) {
				s.Errorf("undone in one transaction: %v", err)
			}
			if err := s.in(ctx, func(tx guard.Tx) error { return undo(ctx, tx, "x") }); err != nil {
				s.Error(err)
			}
			if err := s.in(ctx, func(tx guard.Tx) error { return undo(ctx, tx, "y") }); !errors.Is(err, guard.ErrTwice) {
				s.Errorf("undone in two transactions: %v", err)
			}
			is(2)
		}
	})
}

// Without its table the guard returns an error that says how to create it.
func TestErrorWithoutTableSaysHowToMakeIt(t *testing.T) {
	everywhere(t, func(s *stock) {
		if _, err := s.exec("drop table perdure_guard"); err != nil {
			s.Fatal(err)
		}
		_, do := s.act(run(1, 1), false)
		_, undo := s.act(run(2, 2), false)
		forget := s.in(s.Context(), func(tx guard.Tx) error {
			_, err := guard.Forget(s.Context(), tx, time.Now(), 1)
			return err
		})
		for _, err := range []error{do, undo, forget} {
			if err == nil || !strings.Contains(err.Error(), "run guard.Schema in it") {
				s.Errorf("%v", err)
			}
		}
	})
}

// Old rows are deleted by age, and no more at once than the caller allows.
func TestOldRowsAreForgotten(t *testing.T) {
	everywhere(t, func(s *stock) {
		for i := range 3 {
			r := run(1, 1)
			r.Step = fmt.Sprint("s", i)
			if _, err := s.act(r, false); err != nil {
				s.Fatal(err)
			}
		}
		forget := func(before time.Time, max, want int) {
			s.Helper()
			err := s.in(context.Background(), func(tx guard.Tx) error {
				n, err := guard.Forget(context.Background(), tx, before, max)
				if n != want {
					s.Errorf("%d rows, want %d", n, want)
				}
				return err
			})
			if err != nil {
				s.Error(err)
			}
		}
		forget(time.Now().Add(-time.Hour), 9, 0)
		forget(time.Now().Add(time.Hour), 2, 2)
		forget(time.Now().Add(time.Hour), 2, 1)
	})
}

// Without a run, with a run of the other direction, or without a transaction, nothing is done.
func TestMisuseIsRefused(t *testing.T) {
	effect := func() (int, error) { t.Error("it acts"); return 0, nil }
	if _, err := guard.Do(t.Context(), nil, effect); !errors.Is(err, guard.ErrNoRun) {
		t.Error(err)
	}
	if _, err := guard.Do(runcontext.With(t.Context(), run(2, 2), time.Now().Add(time.Minute), nil), nil, effect); err == nil {
		t.Error("do in an undo")
	}
	if err := guard.Undo(runcontext.With(t.Context(), run(1, 1), time.Now().Add(time.Minute), nil), nil, func(int) error { _, err := effect(); return err }); err == nil {
		t.Error("undo in a do")
	}
	for name, tx := range map[string]guard.Tx{"nil": nil, "sqlite": guard.SQLite(nil), "postgres": guard.Postgres(nil), "pgx": pgxguard.Tx(nil)} {
		if _, err := guard.Do(runcontext.With(t.Context(), run(1, 1), time.Now().Add(time.Minute), nil), tx, effect); !errors.Is(err, guard.ErrNoTx) {
			t.Error(name, err)
		}
		if err := guard.Undo(runcontext.With(t.Context(), run(2, 2), time.Now().Add(time.Minute), nil), tx, func(int) error { _, err := effect(); return err }); !errors.Is(err, guard.ErrNoTx) {
			t.Error(name, err)
		}
		if _, err := guard.Forget(t.Context(), tx, time.Now(), 1); !errors.Is(err, guard.ErrNoTx) {
			t.Error(name, err)
		}
	}
}
