package guides

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/guard"
	"github.com/perdure/perdure/perduretest"
)

type shelf struct{ db *sql.DB }

type Reservation struct {
	Shelf int `json:"shelf"`
}

// show: guarded
func reservations(s *shelf) *perdure.Agent {
	a := perdure.NewAgent("stock")
	perdure.Handle(a, "reserve", perdure.Op[Order, Reservation]{
		Do: func(ctx context.Context, in Order) (r Reservation, err error) {
			err = s.inTx(ctx, func(tx *sql.Tx) error {
				r, err = guard.Do(ctx, guard.SQLite(tx), func() (Reservation, error) {
					return s.reserve(ctx, tx, in.SKU) // the effect: your SQL in tx
				})
				return err
			})
			return r, err
		},
		Undo: func(ctx context.Context, in Order, _ Reservation) error {
			return s.inTx(ctx, func(tx *sql.Tx) error {
				return guard.Undo(ctx, guard.SQLite(tx), func(Reservation) error {
					return s.release(ctx, tx, in.SKU)
				})
			})
		},
	})
	return a
}

// end

func (s *shelf) inTx(ctx context.Context, fn func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (s *shelf) reserve(ctx context.Context, tx *sql.Tx, sku string) (r Reservation, err error) {
	done, err := tx.ExecContext(ctx, "update shelf set free = free - 1 where sku = ? and free > 0", sku)
	if err != nil {
		return r, err
	}
	if n, err := done.RowsAffected(); err != nil || n == 0 {
		return r, errors.Join(err, perdure.NoEffect(perdure.Rejected(errors.New("no item is free"), "soldOut")))
	}
	return Reservation{Shelf: 7}, nil
}

func (s *shelf) release(ctx context.Context, tx *sql.Tx, sku string) error {
	_, err := tx.ExecContext(ctx, "update shelf set free = free + 1 where sku = ?", sku)
	return err
}

func (s *shelf) free(t *testing.T) (n int) {
	t.Helper()
	if err := s.db.QueryRow("select free from shelf").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// The handlers above, while the agent's process crashes after the effect and before the report.
func TestGuardedHandlersSurviveCrashes(t *testing.T) {
	db, err := sql.Open("sqlite", "file:"+t.TempDir()+"/shop.db?_txlock=immediate&_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("create table shelf (sku text, free int); insert into shelf values ('tea-12', 10);" + guard.Schema); err != nil {
		t.Fatal(err)
	}
	s := &shelf{db}
	perduretest.Run(t, func(w *perduretest.World) {
		w.Carry(reservations(s))
		w.Inject("reserve", perduretest.CrashAfter, perduretest.OfRuns(1, 2))
		w.Inject("reserve", perduretest.CrashAfter, perduretest.OfUndo)
		job := w.Submit(perdure.Define("order").Step("reserve", "stock").With(Order{SKU: "tea-12"}).Undo())
		job.Done()
		if n := s.free(t); n != 9 {
			t.Errorf("%d items are free", n)
		}
		job.Undo().Undone()
		if n := s.free(t); n != 10 {
			t.Errorf("%d items are free", n)
		}
		if _, err := db.Exec("update shelf set free = 0"); err != nil {
			t.Fatal(err)
		}
		sold := w.Submit(perdure.Define("order").OnFailure(perdure.UndoRung()).Step("reserve", "stock").With(Order{SKU: "tea-12"}).Undo()).Undone()
		if code := sold.Steps.Get("reserve").LastError; code == nil || code.Code != "soldOut" || s.free(t) != 0 {
			t.Errorf("%+v, %d items are free", code, s.free(t))
		}
	})
}
