package guides

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "modernc.org/sqlite"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/store/postgres"
	"github.com/perdure/perdure/store/sqlite"
)

// show: pgx
func placeOrder(ctx context.Context, pool *pgxpool.Pool, id string, o Order) (job perdure.JobID, err error) {
	plan, err := definition.FromDefinition(order(id, o)) // an invalid definition is refused here
	if err != nil {
		return job, err
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "insert into orders (id, sku, amount) values ($1, $2, $3)", id, o.SKU, o.Amount); err != nil {
			return err
		}
		submitted, err := postgres.SubmitTx(ctx, tx, plan)
		job = submitted.ID
		return err
	})
	return job, err
}

// end

func placeOrderSQLite(ctx context.Context, db *sql.DB, n *node.Node, id string, o Order) error {
	plan, err := definition.FromDefinition(order(id, o))
	if err != nil {
		return err
	}
	// show: sqlite
	tx, err := db.BeginTx(ctx, nil) // opened with "file:shop.db?_txlock=immediate&_pragma=busy_timeout(5000)"
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "insert into orders (id, sku, amount) values (?, ?, ?)", id, o.SKU, o.Amount); err != nil {
		return err
	}
	if _, err := sqlite.SubmitTx(ctx, tx, plan); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	n.Wake() // without it, the node finds the submission within 250 ms
	// end
	return nil
}

const ordersTable = "create table orders (id text primary key, sku text, amount int)"

func TestTransactions(t *testing.T) {
	url := pgtest.Start(t)
	if _, _, err := postgres.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	store, err := postgres.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	b := &bank{}
	n := node.New(store, node.Config{Agents: []*perdure.Agent{payments(b), stock(b.note)}})
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer n.Stop(context.Background())
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(t.Context(), ordersTable); err != nil {
		t.Fatal(err)
	}
	id, err := placeOrder(t.Context(), pool, "order-1", Order{"tea-12", 4200})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := placeOrder(t.Context(), pool, "order-1", Order{"tea-12", 9900}); err == nil {
		t.Error("a second order with the same id was accepted")
	}
	if v, err := perdure.Wait(t.Context(), n, id.String()); err != nil || v.Current != perdure.Done || v.Key != "order-1" {
		t.Errorf("%+v, %v", v, err)
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// show: by-sql
	const submit = `
select perdure.submit(
	jsonb_build_object('type', 'order', 'input', jsonb_build_object('sku', $2::text),
		'steps', '{"reserve": {"agent": "stock", "with": {"sku": "${input.sku}"}, "undo": {}}}'::jsonb),
	key => $1)`
	// end
	var job, state string
	if err := tx.QueryRow(t.Context(), submit, "order-2", "tea-13").Scan(&job); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v, err := perdure.Wait(t.Context(), n, "order-2"); err != nil || v.Current != perdure.Done || v.ID.String() != job {
		t.Errorf("%+v, %v", v, err)
	}
	// show: outcome
	const outcome = `select state, job, refusal from perdure.submission($1)`
	// end
	if err := pool.QueryRow(t.Context(), outcome, job).Scan(&state, new(*string), new(*string)); err != nil || state != "taken" {
		t.Error(state, err)
	}
}

func TestTransactionsOnSQLite(t *testing.T) {
	path := t.TempDir() + "/shop.db"
	store, err := sqlite.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	b := &bank{}
	n := node.New(store, node.Config{Agents: []*perdure.Agent{payments(b), stock(b.note)}})
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer n.Stop(context.Background())
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(ordersTable); err != nil {
		t.Fatal(err)
	}
	if err := placeOrderSQLite(t.Context(), db, n, "order-1", Order{"tea-12", 4200}); err != nil {
		t.Fatal(err)
	}
	if v, err := n.Job(t.Context(), "order-1", 10*time.Second); err != nil || v.Current != perdure.Done {
		t.Errorf("%+v, %v", v, err)
	}
}
