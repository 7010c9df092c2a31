package node_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/store/postgres"
	"github.com/perdure/perdure/store/sqlite"
)

const shopEnv = "PERDURE_TEST_SHOP"

// TestMain is also the program that TestKilledShopLosesNoOrder kills.
func TestMain(m *testing.M) {
	if where := os.Getenv(shopEnv); where != "" {
		driver, dsn, _ := strings.Cut(where, " ")
		if err := killedShop(driver, dsn); err != nil {
			fmt.Println("error:", err)
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// killedShop submits orders, each with its job, until the process is killed. It prints each order that was acknowledged.
func killedShop(driver, dsn string) error {
	by := postgres.SubmitSQLTx
	if driver == "sqlite" {
		by = sqlite.SubmitTx
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return err
	}
	ctx := context.Background()
	for i := 0; ; i++ {
		key := fmt.Sprintf("order-%d-%d", os.Getpid(), i)
		plans, err := definition.Parse(fmt.Appendf(nil, `{"type":"order","key":%q,"steps":{"charge":{"agent":"a","undo":{}}}}`, key), definition.JSON, definition.Options{})
		if err != nil {
			return err
		}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "insert into orders values ($1)", key); err != nil {
			return err
		}
		if _, err := by(ctx, tx, plans[0]); err != nil {
			return err
		}
		if i%3 == 2 {
			err = tx.Rollback()
		} else if err = tx.Commit(); err == nil {
			fmt.Println(key)
		}
		if err != nil {
			return err
		}
	}
}

// I1, F004 to F007: a process is killed at any point around the commit of its orders. Each stored order has its job,
// which ends; no job lacks its order; and each acknowledged order is stored.
func TestKilledShopLosesNoOrder(t *testing.T) {
	run := func(t *testing.T, store kernel.Store, driver, dsn, killPoint string) {
		db, err := sql.Open(driver, dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.Exec("create table orders (id text primary key)"); err != nil {
			t.Fatal(err)
		}
		var l ledger
		n := start(t, store, node.Config{Agents: []*perdure.Agent{l.agent("a", nil)}})
		acked := 0
		for round := range 6 {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), shopEnv+"="+driver+" "+killPoint)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			for acknowledged := 0; lines.Scan(); acknowledged++ {
				if strings.HasPrefix(lines.Text(), "error") {
					t.Error(lines.Text())
				}
				acked++
				if acknowledged == 3 {
					time.AfterFunc(time.Duration(round)*700*time.Microsecond, func() { _ = cmd.Process.Kill() })
				}
			}
			_ = cmd.Wait()
		}
		for left := driver == "pgx"; left; time.Sleep(time.Millisecond) { // the server may still process the last commit
			if err := db.QueryRow("select exists (select from pg_stat_activity where application_name = 'doomed')").Scan(&left); err != nil {
				t.Fatal(err)
			}
		}
		rows, err := db.Query("select id from orders")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		orders := map[string]bool{}
		for rows.Next() {
			var key string
			if err := rows.Scan(&key); err != nil {
				t.Fatal(err)
			}
			orders[key] = true
			if v := rest(t, n, key); v.Current != perdure.Done {
				t.Errorf("%+v", v)
			}
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		if len(orders) < acked || acked < 20 {
			t.Errorf("%d orders, %d were acknowledged", len(orders), acked)
		}
		jobs := 0
		for q := (perdure.JobQuery{Limit: perdure.MaxListLimit}); ; {
			page := must[*perdure.Page[perdure.JobView]](t)(n.ListJobs(t.Context(), q))
			for _, v := range page.Items {
				if jobs++; !orders[v.Key] {
					t.Errorf("%s has no order", v.Key)
				}
			}
			if q.Cursor = page.NextCursor; q.Cursor == "" {
				break
			}
		}
		t.Logf("%d orders, %d jobs, %d acknowledged", len(orders), jobs, acked)
		if jobs != len(orders) {
			t.Errorf("%d jobs of %d orders", jobs, len(orders))
		}
		consistent(t, n)
	}
	t.Run("sqlite", func(t *testing.T) {
		path := t.TempDir() + "/f.db"
		dsn := "file:" + path + "?_txlock=immediate&_pragma=busy_timeout(10000)"
		run(t, everystore.SQLite(t, path), "sqlite", dsn, dsn)
	})
	t.Run("postgres", func(t *testing.T) {
		url := pgtest.Start(t)
		run(t, everystore.Postgres(t, url), "pgx", url, url+"&application_name=doomed")
	})
}
