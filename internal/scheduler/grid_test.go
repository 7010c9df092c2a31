package scheduler_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/internal/supervisor"
	"github.com/perdure/perdure/protocol"
)

// F101, F102: four nodes on one database, each with submissions of the same keys, reports on the same wide jobs, and
// claims of several agents and under limits, in the same transactions. There are no errors, and the nodes spend little
// time waiting for each other.
func TestGridWithSharedKeysAndJobs(t *testing.T) {
	url := pgtest.Start(t)
	const nodes, chains = 4, 150
	var grid [nodes]*harness
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for i := range grid {
		store := everystore.Postgres(t, url)
		grid[i] = open(t, store, scheduler.Config{Writers: 3})
		sup := supervisor.New(supervisor.Config{Scheduler: grid[i], Store: store})
		var running sync.WaitGroup
		running.Go(func() { sup.Run(ctx) })
		t.Cleanup(running.Wait)
	}
	for name, max := range map[string]int{"agent:a": 40, "agent:b": 40, "job:x": 20, "job:y": 30, "job:z": 1000} {
		if err := grid[0].PutLimit(ctx, name, perdure.LimitSettings{Max: new(max)}); err != nil {
			t.Fatal(err)
		}
	}
	wide := "key: wide\ntype: z\nsteps:\n"
	for i := range 300 {
		wide += fmt.Sprintf("  s%d: {agent: %c}\n", i, "abc"[i%3])
	}
	began := time.Now()
	var left atomic.Int64
	left.Store(chains*3*3 + 300)
	var work sync.WaitGroup
	for i := range grid {
		d := grid[i]
		work.Go(func() { // each node submits all jobs
			for k := range chains {
				for _, typ := range []string{"x", "y", "z"} {
					body := fmt.Sprintf("key: %s%d\ntype: %s\nflow: chain\nsteps:\n  p: {agent: a}\n  q: {agent: b}\n  r: {agent: c}\n", typ, k, typ)
					work.Go(func() {
						if _, err := d.Submit(ctx, plan(t, body)); err != nil {
							t.Errorf("submit: %v", err)
						}
					})
				}
			}
			if _, err := d.Submit(ctx, plan(t, wide)); err != nil {
				t.Errorf("submit: %v", err)
			}
		})
		for h := range 9 {
			work.Go(func() {
				c := protocol.Claim{Agent: string("abc"[h%3]), Holder: fmt.Sprint(i, "-", h), Max: 10, Wait: 3 * time.Second}
				for left.Load() > 0 && ctx.Err() == nil {
					runs, err := d.Claim(ctx, c)
					if err != nil {
						t.Errorf("claim: %v", err)
						return
					}
					for _, r := range runs {
						work.Go(func() {
							res, _, err := grid[(i+1)%nodes].Report(ctx, c.Holder, []protocol.Report{{Job: r.Job, Step: r.Step, Run: r.Number, Outcome: perdure.OutcomeDone, Output: json.RawMessage(`1`)}}, nil)
							if err != nil || !res[0].Accepted {
								t.Errorf("report: %+v, %v", res, err)
							}
							left.Add(-1)
						})
					}
				}
			})
		}
	}
	work.Wait()
	duration := time.Since(began)
	if n := left.Load(); n != 0 {
		t.Errorf("%d runs are left", n)
	}
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var deadlocks, rolledBack, committed int
	time.Sleep(1200 * time.Millisecond) // until the database has updated its statistics
	if err := conn.QueryRow(context.Background(), "select deadlocks, xact_rollback, xact_commit from pg_stat_database where datname = current_database()").Scan(&deadlocks, &rolledBack, &committed); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d runs in %v; %d deadlocks, %d transactions rolled back of %d", chains*9+300, duration, deadlocks, rolledBack, committed)
	// A transaction that finds that another node has just used a key is retried. Most retries are of this kind, because
	// all nodes submit the same keys.
	if deadlocks > 0 || rolledBack > committed/5 {
		t.Errorf("%d deadlocks, %d transactions rolled back of %d", deadlocks, rolledBack, committed)
	}
	cancel()
}
