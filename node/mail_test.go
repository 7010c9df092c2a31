package node_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/store/postgres"
	"github.com/perdure/perdure/store/sqlite"
)

// shop is a business database that contains a Perdure store.
type shop struct {
	name  string
	store kernel.Store
	begin func(t *testing.T) shopTx
	query func(sql string) (string, error) // returns one text
}

// shopTx is a transaction of the business.
type shopTx interface {
	insert(order string) error
	submit(plan *kernel.Plan) (perdure.Submitted, error)
	end(commit bool) error
}

type pgxTx struct {
	ctx context.Context
	pgx.Tx
}

func (tx pgxTx) insert(order string) error {
	_, err := tx.Exec(tx.ctx, "insert into orders values ($1)", order)
	return err
}
func (tx pgxTx) submit(plan *kernel.Plan) (perdure.Submitted, error) {
	return postgres.SubmitTx(tx.ctx, tx.Tx, plan)
}
func (tx pgxTx) end(commit bool) error {
	if commit {
		return tx.Commit(tx.ctx)
	}
	return tx.Rollback(tx.ctx)
}

type sqlTx struct {
	ctx context.Context
	*sql.Tx
	by func(context.Context, *sql.Tx, *kernel.Plan) (perdure.Submitted, error)
}

func (tx sqlTx) insert(order string) error {
	_, err := tx.ExecContext(tx.ctx, "insert into orders values ($1)", order)
	return err
}
func (tx sqlTx) submit(plan *kernel.Plan) (perdure.Submitted, error) {
	return tx.by(tx.ctx, tx.Tx, plan)
}
func (tx sqlTx) end(commit bool) error {
	if commit {
		return tx.Commit()
	}
	return tx.Rollback()
}

// shops runs a test with each way to submit inside a transaction.
func shops(t *testing.T, test func(t *testing.T, s shop)) {
	std := func(t *testing.T, s shop, driver, dsn string, by func(context.Context, *sql.Tx, *kernel.Plan) (perdure.Submitted, error)) {
		db, err := sql.Open(driver, dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		if _, err := db.Exec("create table orders (id text primary key)"); err != nil {
			t.Fatal(err)
		}
		s.begin = func(t *testing.T) shopTx {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return sqlTx{context.WithoutCancel(t.Context()), tx, by}
		}
		s.query = func(q string) (got string, err error) { err = db.QueryRow(q).Scan(&got); return got, err }
		test(t, s)
	}
	t.Run("sqlite", func(t *testing.T) {
		path := t.TempDir() + "/f.db"
		std(t, shop{name: "sqlite", store: everystore.SQLite(t, path)}, "sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(10000)", sqlite.SubmitTx)
	})
	t.Run("stdlib", func(t *testing.T) {
		url := pgtest.Start(t)
		std(t, shop{name: "stdlib", store: everystore.Postgres(t, url)}, "pgx", url, postgres.SubmitSQLTx)
	})
	t.Run("pgx", func(t *testing.T) {
		url := pgtest.Start(t)
		s := shop{name: "pgx", store: everystore.Postgres(t, url)}
		pool, err := pgxpool.New(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		if _, err := pool.Exec(t.Context(), "create table orders (id text primary key)"); err != nil {
			t.Fatal(err)
		}
		s.begin = func(t *testing.T) shopTx {
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return pgxTx{context.WithoutCancel(t.Context()), tx}
		}
		s.query = func(q string) (got string, err error) {
			err = pool.QueryRow(context.Background(), q).Scan(&got)
			return got, err
		}
		test(t, s)
	})
}

func orderPlan(t *testing.T, key string, n int) *kernel.Plan {
	t.Helper()
	return plan(t, fmt.Sprintf(`{"type":"order","key":%q,"input":{"n":%d},"steps":{"charge":{"agent":"a","with":{"amount":"${input.n}"},"undo":{}}}}`, key, n))
}

func plan(t *testing.T, text string) *kernel.Plan {
	t.Helper()
	plans, err := definition.Parse([]byte(text), definition.JSON, definition.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return plans[0]
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// I1, I2: the business row and the job are committed together, or neither is. A submitted job is found by its id and its
// key before the courier has created it.
func TestSubmitTxIsCommittedWithItsTransaction(t *testing.T) {
	shops(t, func(t *testing.T, s shop) {
		var l ledger
		n := start(t, s.store, node.Config{Agents: []*perdure.Agent{l.agent("a", nil)}})
		for i, commit := range []bool{true, false} {
			key := fmt.Sprintf("order-%d", i)
			tx := s.begin(t)
			if err := tx.insert(key); err != nil {
				t.Fatal(err)
			}
			submitted := must[perdure.Submitted](t)(tx.submit(orderPlan(t, key, i)))
			if !submitted.Created || submitted.Key != key || submitted.ID.IsZero() {
				t.Fatalf("%+v", submitted)
			}
			if err := tx.end(commit); err != nil {
				t.Fatal(err)
			}
			if !commit {
				for _, ref := range []string{submitted.ID.String(), key} {
					if v, err := n.Job(t.Context(), ref, 0); perdure.CodeOf(err) != perdure.CodeNotFound {
						t.Errorf("rolled back, and yet %+v, %v", v, err)
					}
				}
				continue
			}
			if v := rest(t, n, key); v.Current != perdure.Done || v.ID != submitted.ID {
				t.Errorf("%+v", v)
			}
			if v := rest(t, n, submitted.ID.String()); v.Key != key {
				t.Errorf("%+v", v)
			}
			if _, err := n.History(t.Context(), perdure.HistoryQuery{Job: key}); err != nil {
				t.Error(err)
			}
		}
		// A caller can follow or undo the job before the courier has created it.
		tx := s.begin(t)
		submitted := must[perdure.Submitted](t)(tx.submit(orderPlan(t, "followed", 7)))
		if err := tx.end(true); err != nil {
			t.Fatal(err)
		}
		if _, err := taken(func() (*perdure.Page[perdure.EntryView], error) {
			return n.History(t.Context(), perdure.HistoryQuery{Job: submitted.ID.String()})
		}); err != nil {
			t.Error(err)
		}
		var last *perdure.JobView
		for v, err := range perdure.Watch(t.Context(), n, submitted.ID.String()) {
			if err != nil {
				t.Fatal(err)
			}
			last = v
		}
		if last == nil || last.Current != perdure.Done || last.Key != "followed" {
			t.Errorf("%+v", last)
		}
		tx = s.begin(t)
		must[perdure.Submitted](t)(tx.submit(orderPlan(t, "turned", 8)))
		if err := tx.end(true); err != nil {
			t.Fatal(err)
		}
		must[*perdure.JobView](t)(taken(func() (*perdure.JobView, error) {
			return n.Act(t.Context(), "turned", perdure.Act{Verb: perdure.VerbUndo, Author: "me"})
		}))
		if v := rest(t, n, "turned"); v.Current != perdure.Undone {
			t.Errorf("%+v", v)
		}
		if got := must[string](t)(s.query("select count(*) from " + submissions(s))); got != "3" {
			t.Errorf("%s submissions", got)
		}
		consistent(t, n)
	})
}

// Each id that is made for a store with a number contains the number, whether SubmitTx, a node, or perdure.submit in SQL
// makes it. A store without a number makes ids with 0.
func TestIDsHaveTheNumberOfTheirCell(t *testing.T) {
	shops(t, func(t *testing.T, s shop) {
		for _, cell := range []int{0, 2730} {
			if cell != 0 {
				if err := s.store.Update(t.Context(), func(tx kernel.Tx) error { return tx.SetCell(cell) }); err != nil {
					t.Fatal(err)
				}
			}
			n := start(t, s.store, node.Config{})
			ids := map[string]string{}
			tx := s.begin(t)
			ids["SubmitTx"] = must[perdure.Submitted](t)(tx.submit(orderPlan(t, fmt.Sprint("k", cell), cell))).ID.String()
			if err := tx.end(true); err != nil {
				t.Fatal(err)
			}
			ids["node"] = submit(t, n, "type: order\nsteps: {s: {agent: a}}\n").ID.String()
			if s.name != "sqlite" {
				ids["perdure.submit"] = must[string](t)(s.query(`select perdure.submit('{"type":"order","steps":{"s":{"agent":"a"}}}')`))
			}
			for by, text := range ids {
				id := must[perdure.JobID](t)(perdure.ParseJobID(text))
				if got := kernel.CellOf(id); got != cell {
					t.Errorf("%s made %s, of cell %d, not %d", by, id, got, cell)
				}
			}
		}
	})
}

// taken calls ask again while the answer is that the courier has not created the job yet.
func taken[T any](call func() (T, error)) (answer T, err error) {
	for range 10 {
		if answer, err = call(); err == nil || !strings.Contains(err.Error(), "no node has taken it yet") {
			break
		}
	}
	return answer, err
}

func submissions(s shop) string {
	if s.name == "sqlite" {
		return "submissions"
	}
	return "perdure.submissions"
}

// I2, F002, F003: inside a transaction, the same key with the same definition is the same job. The same key with another
// definition is refused, whether the first submission is mail, was applied, or was made at a node. A refusal leaves the
// transaction unchanged.
func TestSameKeyInATransactionIsTheSameJob(t *testing.T) {
	shops(t, func(t *testing.T, s shop) {
		var l ledger
		n := node.New(s.store, node.Config{Agents: []*perdure.Agent{l.agent("a", nil)}})
		t.Cleanup(func() { n.Stop(context.Background()) })
		same := func(want perdure.JobID) {
			t.Helper()
			tx := s.begin(t)
			if submitted, err := tx.submit(orderPlan(t, "k", 1)); err != nil || submitted.Created || submitted.ID != want {
				t.Errorf("again: %+v, %v, want %s", submitted, err, want)
			}
			if submitted, err := tx.submit(orderPlan(t, "k", 2)); perdure.CodeOf(err) != perdure.CodeConflict || submitted != (perdure.Submitted{}) {
				t.Errorf("another: %+v, %v", submitted, err)
			}
			if err := tx.insert(fmt.Sprint("after ", want, time.Now().UnixNano())); err != nil {
				t.Error("a refusal has spoiled the transaction: ", err)
			}
			if err := tx.end(true); err != nil {
				t.Fatal(err)
			}
		}
		tx := s.begin(t)
		submitted := must[perdure.Submitted](t)(tx.submit(orderPlan(t, "k", 1)))
		if submitted, err := tx.submit(orderPlan(t, "k", 1)); err != nil || submitted.Created {
			t.Errorf("in the same transaction: %+v, %v", submitted, err)
		}
		if err := tx.end(true); err != nil {
			t.Fatal(err)
		}
		same(submitted.ID) // the submission is mail
		if _, err := n.SubmitPlans(t.Context(), []*kernel.Plan{orderPlan(t, "k", 2)}); err != nil {
			t.Fatal(err)
		}
		for i, want := range []perdure.Submitted{{ID: submitted.ID, Key: "k"}, {Key: "k", Err: perdure.Refuse(perdure.CodeConflict, "")}} {
			got := must[[]perdure.Submitted](t)(n.SubmitPlans(t.Context(), []*kernel.Plan{orderPlan(t, "k", i+1)}))[0]
			if got.ID != want.ID || got.Created || perdure.CodeOf(got.Err) != perdure.CodeOf(want.Err) {
				t.Errorf("to a node, while it lies in the inbox: %+v", got)
			}
		}
		if err := n.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if v := rest(t, n, submitted.ID.String()); v.ID != submitted.ID || v.Key != "k" {
			t.Errorf("%+v", v)
		}
		same(submitted.ID) // the submission was applied
		submit(t, n, "type: order\nkey: direct\ninput: {n: 1}\nsteps: {charge: {agent: a, with: {amount: '${input.n}'}, undo: {}}}\n")
		tx = s.begin(t)
		direct := must[*perdure.JobView](t)(n.Job(t.Context(), "direct", 0))
		if submitted, err := tx.submit(orderPlan(t, "direct", 1)); err != nil || submitted.Created || submitted.ID != direct.ID {
			t.Errorf("%+v, %v", submitted, err)
		}
		if _, err := tx.submit(orderPlan(t, "direct", 2)); perdure.CodeOf(err) != perdure.CodeConflict {
			t.Error(err)
		}
		if err := tx.end(true); err != nil {
			t.Fatal(err)
		}
		consistent(t, n)
	})
}

// I2, F002: fifty transactions submit one key at the same time, half of them are rolled back, and there is one job.
func TestRacingSubmitTxMakeOneJob(t *testing.T) {
	shops(t, func(t *testing.T, s shop) {
		var l ledger
		n := start(t, s.store, node.Config{Agents: []*perdure.Agent{l.agent("a", nil)}})
		const keys, each = 5, 10
		var mu sync.Mutex
		ids := map[string]map[perdure.JobID]int{}
		var wg sync.WaitGroup
		for i := range keys * each {
			wg.Go(func() {
				key := fmt.Sprintf("k%d", i%keys)
				tx := s.begin(t)
				submitted, err := tx.submit(orderPlan(t, key, i%keys))
				if err != nil {
					t.Error(err)
				}
				if err := tx.end(i/keys%2 == 0); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				if i/keys%2 == 0 {
					if ids[key] == nil {
						ids[key] = map[perdure.JobID]int{}
					}
					ids[key][submitted.ID]++
				}
			})
		}
		wg.Wait()
		for key, jobs := range ids {
			v := rest(t, n, key)
			if len(jobs) != 1 || jobs[v.ID] != each/2 {
				t.Errorf("%s is %s, and was answered as %v", key, v.ID, jobs)
			}
		}
		if len(l.read()) != keys {
			t.Errorf("%v", l.read())
		}
		consistent(t, n)
	})
}

// F003: one key is submitted with two definitions at the same time: in an open transaction, and at a node. On PostgreSQL
// neither sees the other, so both are accepted, and the submission in the transaction is refused with an alert when its
// mail is applied (ADR 18). On SQLite the node waits for the transaction, and refuses.
func TestOneKeyInATransactionAndAtANodeIsAConflict(t *testing.T) {
	shops(t, func(t *testing.T, s shop) {
		var l ledger
		n := start(t, s.store, node.Config{Agents: []*perdure.Agent{l.agent("a", nil)}})
		tx := s.begin(t)
		posted := must[perdure.Submitted](t)(tx.submit(orderPlan(t, "k", 1)))
		direct := make(chan perdure.Submitted, 1)
		go func() {
			submitted, err := n.SubmitPlans(t.Context(), []*kernel.Plan{orderPlan(t, "k", 2)})
			if err != nil {
				submitted = []perdure.Submitted{{Err: err}}
			}
			direct <- submitted[0]
		}()
		var result perdure.Submitted
		if s.name != "sqlite" {
			if result = <-direct; !posted.Created || !result.Created {
				t.Fatalf("%+v, %+v", posted, result)
			}
		}
		if err := tx.end(true); err != nil {
			t.Fatal(err)
		}
		alerts := 1
		if s.name == "sqlite" {
			if result = <-direct; perdure.CodeOf(result.Err) != perdure.CodeConflict {
				t.Errorf("%+v", result)
			}
			result.ID, alerts = posted.ID, 0
		} else if _, err := n.Job(t.Context(), posted.ID.String(), time.Minute); perdure.CodeOf(err) != perdure.CodeConflict {
			t.Errorf("%v", err)
		}
		if v := rest(t, n, "k"); v.ID != result.ID || v.Current != perdure.Done {
			t.Errorf("%+v", v)
		}
		page := must[*perdure.Page[perdure.AlertView]](t)(n.ListAlerts(t.Context(), perdure.AlertQuery{}))
		if len(page.Items) != alerts || alerts > 0 && (page.Items[0].Kind != perdure.AlertRefused || page.Items[0].Job != posted.ID) {
			t.Errorf("%+v", page.Items)
		}
		consistent(t, n)
	})
}

// F164: a key whose submission in a transaction waits to be applied is not free, and its job cannot be shown yet. A
// caller that submits the same again gets an error that asks it to repeat the call, and gets the job once a courier
// works (found by seed 1812 of the simulation).
func TestSubmitWhileTheSameIsMailIsToBeRepeated(t *testing.T) {
	shops(t, func(t *testing.T, s shop) {
		var l ledger
		tx := s.begin(t)
		posted := must[perdure.Submitted](t)(tx.submit(orderPlan(t, "k", 1)))
		if err := tx.end(true); err != nil {
			t.Fatal(err)
		}
		n := node.New(s.store, node.Config{Agents: []*perdure.Agent{l.agent("a", nil)}}) // its courier runs only after Start
		defer func() { _ = n.Stop(context.Background()) }()
		if _, _, err := n.SubmitPlan(t.Context(), orderPlan(t, "k", 1)); perdure.CodeOf(err) != perdure.CodeUnavailable {
			t.Fatal(err)
		}
		if err := n.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		view, created, err := n.SubmitPlan(t.Context(), orderPlan(t, "k", 1))
		if err != nil || created || view.ID != posted.ID {
			t.Fatalf("%+v, %v, %v", view, created, err)
		}
	})
}

// Mail that a newer or older program, or a manual change, has written is checked before it is applied. A refused
// submission is kept with its reason, which callers can read.
func TestMailIsCheckedBeforeItIsApplied(t *testing.T) {
	url := pgtest.Start(t)
	n := start(t, everystore.Postgres(t, url), node.Config{})
	conn := must[*pgx.Conn](t)(pgx.Connect(t.Context(), url))
	defer conn.Close(context.Background())
	var id string
	if err := conn.QueryRow(t.Context(), `select perdure.submit('{"type":"t","key":"k","steps":{"a":{"agent":"x","after":["b"]}}}')`).Scan(&id); err != nil {
		t.Fatal(err)
	}
	_, err := n.Job(t.Context(), id, time.Minute)
	if perdure.CodeOf(err) != perdure.CodeInvalid || !strings.Contains(err.Error(), "b") {
		t.Fatal(err)
	}
	var state, code, pointer string
	if err := conn.QueryRow(t.Context(), `select state, refusal->>'code', refusal->'errors'->0->>'pointer' from perdure.submission($1)`, id).Scan(&state, &code, &pointer); err != nil {
		t.Fatal(err)
	}
	if state != "refused" || code != "invalid" || pointer != "/steps/a/after/0" {
		t.Error(state, code, pointer)
	}
	if _, err := n.History(t.Context(), perdure.HistoryQuery{Job: id}); perdure.CodeOf(err) != perdure.CodeInvalid {
		t.Error("its history: ", err)
	}
	page := must[*perdure.Page[perdure.AlertView]](t)(n.ListAlerts(t.Context(), perdure.AlertQuery{}))
	if len(page.Items) != 1 || page.Items[0].Kind != perdure.AlertRefused || page.Items[0].Job.String() != id {
		t.Errorf("%+v", page.Items)
	}
	// The key is free again.
	if err := conn.QueryRow(t.Context(), `select perdure.submit('{"type":"t","key":"k","steps":{"a":{"agent":"sleep","with":{"for":"1ms"}}}}')`).Scan(&id); err != nil {
		t.Fatal(err)
	}
	if v := rest(t, n, id); v.Current != perdure.Done || v.Key != "k" {
		t.Errorf("%+v", v)
	}
	consistent(t, n)
}

// Callers in any language get the same keys, the same answers, and refusals with codes.
func TestSubmitBySQLHasTheSameAnswers(t *testing.T) {
	url := pgtest.Start(t)
	var l ledger
	n := node.New(everystore.Postgres(t, url), node.Config{Agents: []*perdure.Agent{l.agent("a", nil)}})
	t.Cleanup(func() { n.Stop(context.Background()) })
	conn := must[*pgx.Conn](t)(pgx.Connect(t.Context(), url))
	defer conn.Close(context.Background())
	submit := func(args string) string {
		t.Helper()
		var id string
		if err := conn.QueryRow(t.Context(), "select perdure.submit("+args+")").Scan(&id); err != nil {
			var code interface{ SQLState() string }
			if ok := asState(err, &code); ok {
				return code.SQLState()
			}
			t.Fatal(err)
		}
		return id
	}
	const one, other = `'{"type":"order","key":"k1","steps":{"s":{"agent":"a"}}}'`, `'{"type":"order","key":"k1","steps":{"s":{"agent":"b"}}}'`
	id := submit(one)
	if _, err := perdure.ParseJobID(id); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		one: id,
		`'{"steps": {"s":  {"agent":"a"}}, "key": "k1", "type":"order"}'`: id,
		`'{"type":"order","steps":{"s":{"agent":"a"}}}', key => 'k1'`:     id,
		other:  "PD409",
		`'[]'`: "PD422",
		`null`: "PD422",
		`'{"type":"t","key":"k-${input.n}","steps":{}}'`: "PD422",
		// A key that is empty or no text is refused: it would be the same for every job.
		`'{"type":"t","key":17,"steps":{}}'`:                              "PD422",
		`'{"type":"t","key":{"a":1},"steps":{}}'`:                         "PD422",
		`'{"type":"t","key":null,"steps":{}}'`:                            "PD422",
		`'{"type":"t","key":"","steps":{}}'`:                              "PD422",
		`'{"type":"t","steps":{}}', key => ''`:                            "PD422",
		`'{"type":"t","key":"k2","steps":{}}', key => ''`:                 "PD422",
		`jsonb_build_object('type', 't', 'x', repeat('y', 17*1024*1024))`: "PD413",
	} {
		if got := submit(args); got != want {
			t.Errorf("submit(%.60s): %s, want %s", args, got, want)
		}
	}
	// The function needs no right but to use the schema.
	for _, sql := range []string{"create role clerk_" + id[28:], "grant usage on schema perdure to clerk_" + id[28:], "set role clerk_" + id[28:]} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if got := submit(one); got != id {
		t.Errorf("as a clerk: %s", got)
	}
	var state string
	if err := conn.QueryRow(t.Context(), "select state from perdure.submission($1)", id).Scan(&state); err != nil || state != "waiting" {
		t.Error(state, err)
	}
	if _, err := conn.Exec(t.Context(), "delete from perdure.inbox"); err == nil {
		t.Error("a clerk may write to the inbox")
	}
	for _, sql := range []string{"reset role", "drop owned by clerk_" + id[28:], "drop role clerk_" + id[28:]} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	// A key in mail that was submitted in SQL is not free at a node either.
	unkeyed := submit(`'{"type":"order","steps":{"s":{"agent":"a"}}}'`)
	direct := must[[]perdure.Submitted](t)(n.SubmitPlans(t.Context(), []*kernel.Plan{
		plan(t, `{"type":"order","key":"k2","steps":{"s":{"agent":"a"}}}`), plan(t, `{"type":"order","key":"k3","steps":{"s":{"agent":"a"}}}`)}))
	alias := submit(`'{"type":"order","key":"k2","steps":{"s":{"agent":"a"}}}'`)
	clash := submit(`'{"type":"order","key":"k3","steps":{"s":{"agent":"b"}}}'`)
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{id, unkeyed, alias} {
		if v := rest(t, n, ref); v.Current != perdure.Done || ref == alias && v.ID != direct[0].ID {
			t.Errorf("%s: %+v", ref, v)
		}
	}
	if _, err := n.Job(t.Context(), clash, time.Minute); perdure.CodeOf(err) != perdure.CodeConflict {
		t.Error(err)
	}
	if got := submit(one); got != id {
		t.Errorf("after it was taken: %s, want %s", got, id)
	}
	if got := submit(`'{"type":"order","key":"k1","priority":5,"steps":{"s":{"agent":"a"}}}'`); got == "PD409" {
		t.Error("other words are for the rules to judge")
	}
	consistent(t, n)
}

func asState(err error, into *interface{ SQLState() string }) bool {
	for err != nil {
		if s, ok := err.(interface{ SQLState() string }); ok {
			*into = s
			return true
		}
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return false
		}
		err = u.Unwrap()
	}
	return false
}

// Mail is bounded: beyond the bound it is refused, and there is room again after a courier has applied some.
func TestInboxIsBounded(t *testing.T) {
	shops(t, func(t *testing.T, s shop) {
		if s.name == "stdlib" {
			t.Skip("as pgx")
		}
		var l ledger
		n := node.New(s.store, node.Config{Agents: []*perdure.Agent{l.agent("a", nil)}})
		t.Cleanup(func() { n.Stop(context.Background()) })
		fill := `insert into perdure.mail (recipient, id, kind, digest, body) select gen_random_uuid(), 'submit', 'submit', '', '{"type":"t","steps":{}}' from generate_series(1, 10000) returning 'x'`
		if s.name == "sqlite" {
			fill = `with recursive g(i) as (select 1 union all select i + 1 from g where i < 10000)
				insert into perdure_mail (recipient, id, kind, body, posted_at) select randomblob(16), 'submit', 'submit', '{"type":"t","steps":{}}', 0 from g returning 'x'`
		}
		must[string](t)(s.query(fill))
		tx := s.begin(t)
		if _, err := tx.submit(orderPlan(t, "k", 1)); perdure.CodeOf(err) != perdure.CodeBacklogFull {
			t.Fatal(err)
		}
		if err := tx.end(true); err != nil {
			t.Fatal(err)
		}
		if err := n.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
			tx := s.begin(t)
			submitted, err := tx.submit(orderPlan(t, "k", 1))
			if err := tx.end(true); err != nil {
				t.Fatal(err)
			}
			if err == nil {
				rest(t, n, submitted.ID.String())
				return
			}
			if time.Now().After(deadline) {
				t.Fatal("the inbox is not emptied: ", err)
			}
		}
	})
}

// F018, F071: several nodes read the same mail, and each submission is applied once.
func TestManyNodesApplyEachMailOnce(t *testing.T) {
	url := pgtest.Start(t)
	var l ledger
	var nodes []*node.Node
	for range 3 {
		nodes = append(nodes, start(t, everystore.Postgres(t, url), node.Config{Agents: []*perdure.Agent{l.agent("a", nil)}}))
	}
	pool := must[*pgxpool.Pool](t)(pgxpool.New(t.Context(), url))
	defer pool.Close()
	const posts = 300
	var ids []perdure.JobID
	for i := range posts / 3 {
		if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			for k := range 3 {
				key := ""
				if k > 0 {
					key = fmt.Sprintf("k%d-%d", i, k)
				}
				text := fmt.Sprintf(`{"type":"t","key":%q,"steps":{"s":{"agent":"a"}}}`, key)
				if key == "" {
					text = `{"type":"t","steps":{"s":{"agent":"a"}}}`
				}
				submitted, err := postgres.SubmitTx(t.Context(), tx, plan(t, text))
				if err != nil {
					return err
				}
				ids = append(ids, submitted.ID)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for i, id := range ids {
		if v := rest(t, nodes[i%3], id.String()); v.ID != id || v.Current != perdure.Done {
			t.Errorf("%+v", v)
		}
	}
	if n := len(l.read()); n != posts {
		t.Errorf("%d runs of %d jobs", n, posts)
	}
	consistent(t, nodes[0])
}

// shaken is a store of mail that loses the answers to some commits, whether they succeeded or not.
type shaken struct {
	*sqlite.Store
	mu    sync.Mutex
	calls int
	lost  [2]int
}

func (s *shaken) count(which int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost[which]++
}

var errUndone = errors.New("taken back")

func (s *shaken) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	s.mu.Lock()
	s.calls++
	n := s.calls % 5
	s.mu.Unlock()
	switch n {
	case 1:
		if err := s.Store.Update(ctx, fn); err != nil {
			return err
		}
		s.count(0)
		return fmt.Errorf("done: %w", kernel.ErrUnknown)
	case 3:
		err := s.Store.Update(ctx, func(tx kernel.Tx) error {
			if err := fn(tx); err != nil {
				return err
			}
			return errUndone
		})
		if !errors.Is(err, errUndone) {
			return err
		}
		s.count(1)
		return fmt.Errorf("not done: %w", kernel.ErrUnknown)
	}
	return s.Store.Update(ctx, fn)
}

// F006, F063: the answers to commits are lost while mail is applied. Each submission is applied once.
func TestMailIsAppliedOnceDespiteLostCommits(t *testing.T) {
	path := t.TempDir() + "/f.db"
	store := &shaken{Store: everystore.SQLite(t, path).(*sqlite.Store)}
	db := must[*sql.DB](t)(sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(10000)"))
	defer db.Close()
	var l ledger
	n := start(t, store, node.Config{Agents: []*perdure.Agent{l.agent("a", nil)}})
	var ids []perdure.JobID
	for i := range 60 {
		tx := must[*sql.Tx](t)(db.BeginTx(t.Context(), nil))
		submitted := must[perdure.Submitted](t)(sqlite.SubmitTx(t.Context(), tx, orderPlan(t, fmt.Sprint("k", i), i)))
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		n.Wake()
		ids = append(ids, submitted.ID)
	}
	for i, id := range ids {
		if v := rest(t, n, id.String()); v.ID != id || v.Key != fmt.Sprint("k", i) || v.Current != perdure.Done {
			t.Errorf("%+v", v)
		}
	}
	store.mu.Lock()
	defer store.mu.Unlock()
	if store.lost[0] == 0 || store.lost[1] == 0 {
		t.Errorf("lost answers: %v", store.lost)
	}
	var taken int
	if err := db.QueryRow("select count(*) from perdure_inbox where closed_at is not null and job = id").Scan(&taken); err != nil || taken != len(ids) {
		t.Errorf("%d were taken, %v", taken, err)
	}
	consistent(t, n)
}

// A node without a wake-up finds mail in its file within a quarter of a second.
func TestSubmitTxIsFoundWithoutWakeUp(t *testing.T) {
	path := t.TempDir() + "/f.db"
	synctest.Test(t, func(t *testing.T) {
		store := must[*sqlite.Store](t)(sqlite.Open(path))
		defer store.Close()
		n := node.New(store, node.Config{})
		if err := n.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer n.Stop(context.Background())
		db := must[*sql.DB](t)(sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(10000)"))
		defer db.Close()
		for i := range 30 {
			time.Sleep(time.Duration(i) * 17 * time.Millisecond) // at another moment each time
			tx := must[*sql.Tx](t)(db.BeginTx(t.Context(), nil))
			must[perdure.Submitted](t)(sqlite.SubmitTx(t.Context(), tx, orderPlan(t, fmt.Sprint("k", i), i)))
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(250 * time.Millisecond)
			synctest.Wait()
			var waiting int
			if err := db.QueryRow("select count(*) from submissions where state = 'waiting'").Scan(&waiting); err != nil || waiting > 0 {
				t.Fatalf("%d lie there after a quarter of a second, %v", waiting, err)
			}
		}
	})
}
