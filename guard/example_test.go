package guard_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"time"

	_ "modernc.org/sqlite"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/guard"
	"github.com/perdure/perdure/perduretest"
)

// A handler is called as Perdure calls it: the action twice, its undo, and the action once more, late.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "guard")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", "file:"+dir+"/shop.db?_txlock=immediate&_pragma=busy_timeout(5000)")
	if err != nil {
		panic(err)
	}
	defer db.Close()
	if _, err := db.Exec(guard.Schema + "; create table shelf (free int); insert into shelf values (10)"); err != nil {
		panic(err)
	}
	reserve := func(ctx context.Context) (left int, err error) {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return 0, err
		}
		defer tx.Rollback()
		left, err = guard.Do(ctx, guard.SQLite(tx), func() (left int, err error) {
			err = tx.QueryRowContext(ctx, "update shelf set free = free - 1 returning free").Scan(&left)
			return left, err
		})
		if err != nil {
			return 0, err
		}
		return left, tx.Commit()
	}
	release := func(ctx context.Context) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		err = guard.Undo(ctx, guard.SQLite(tx), func(left int) error {
			fmt.Println("there were", left, "left")
			_, err := tx.ExecContext(ctx, "update shelf set free = free + 1")
			return err
		})
		if err != nil {
			return err
		}
		return tx.Commit()
	}
	as := func(run perdure.Run) context.Context {
		return perduretest.WithRun(ctx, &run, time.Now().Add(time.Minute))
	}
	first := perdure.Run{Job: perdure.JobID{1}, Step: "reserve", Number: 1, Key: "job/reserve/1"}
	fmt.Println(reserve(as(first)))
	fmt.Println(reserve(as(perdure.Run{Job: perdure.JobID{1}, Step: "reserve", Number: 2, Key: "job/reserve/1"})))
	fmt.Println(release(as(perdure.Run{Job: perdure.JobID{1}, Step: "reserve", Number: 3, Direction: perdure.Undo, DoKey: "job/reserve/1"})))
	fmt.Println(reserve(as(first)))
	// Output:
	// 9 <nil>
	// 9 <nil>
	// there were 9 left
	// <nil>
	// 0 guard: the action was undone before it came
}
