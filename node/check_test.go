package node_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/protocol"
)

// Each of these is damage that a bug, a bad disk or a manual change of the tables may cause. All jobs are chains of two
// steps, a and b: one job is done, one undone, one runs a, one waits for an agent, one is parked.
var corruptions = []struct{ job, sql string }{
	{"done", "UPDATE perdure_step SET phase = 1 WHERE job = ? AND idx = 1"},
	{"done", "UPDATE perdure_step SET current = 0 WHERE job = ? AND idx = 0"},
	{"done", "UPDATE perdure_step SET unsettled = 1 WHERE job = ? AND idx = 0"},
	{"done", "UPDATE perdure_step SET permit = 1 WHERE job = ? AND idx = 0"},
	{"done", "UPDATE perdure_step SET job_current = 2 WHERE job = ? AND idx = 0"},
	{"done", "DELETE FROM perdure_step WHERE job = ? AND idx = 1"},
	{"done", "DELETE FROM perdure_shape WHERE id = (SELECT shape FROM perdure_step WHERE job = ? AND idx = 0)"},
	{"done", "UPDATE perdure_shape SET text = '{\"what\":1}' WHERE id = (SELECT shape FROM perdure_step WHERE job = ? AND idx = 0)"},
	{"done", "UPDATE perdure_shape SET text = replace(text, '\"b\"', '\"c\"') WHERE id = (SELECT shape FROM perdure_step WHERE job = ? AND idx = 0)"},
	{"done", "UPDATE perdure_step SET locked_by = 'h' WHERE job = ? AND idx = 0"},
	{"done", "UPDATE perdure_step SET outcome = 0 WHERE job = ? AND idx = 0"},
	{"done", "UPDATE perdure_step SET run = 0 WHERE job = ? AND idx = 0"},
	{"done", "DELETE FROM perdure_payload WHERE job = ?"},
	{"undone", "UPDATE perdure_step SET turn = 1 WHERE job = ? AND idx = 0"},
	{"undone", "UPDATE perdure_step SET current = 1 WHERE job = ? AND idx = 0"},
	{"undone", `UPDATE perdure_step SET job_then = 1 WHERE job = ? AND idx = 0`},
	{"runs", "UPDATE perdure_step SET locked_until = NULL WHERE job = ? AND idx = 0"},
	{"runs", "UPDATE perdure_step SET locked_until = complete_by + 1 WHERE job = ? AND idx = 0"},
	{"runs", "UPDATE perdure_step SET blockers = 0 WHERE job = ? AND idx = 1"},
	{"runs", "UPDATE perdure_step SET running = 0 WHERE job = ? AND idx = 0"},
	{"runs", "UPDATE perdure_step SET permit = 0 WHERE job = ? AND idx = 0"},
	{"runs", "UPDATE perdure_step SET desired = 0 WHERE job = ? AND idx = 0"},
	{"runs", "UPDATE perdure_step SET phase = 2, blockers = 0, agent = 'a' WHERE job = ? AND idx = 1"},
	{"waits", "UPDATE perdure_step SET phase = 1 WHERE job = ? AND idx = 0"},
	{"waits", "UPDATE perdure_step SET agent = 'other' WHERE job = ? AND idx = 0"},
	{"waits", "UPDATE perdure_step SET job_phase = 0 WHERE job = ? AND idx = 0"},
	{"parked", "DELETE FROM perdure_alert WHERE job = ?"},
	{"parked", "UPDATE perdure_alert SET closed_at = 1 WHERE job = ?"},
	{"parked", "UPDATE perdure_step SET parked_at = NULL WHERE job = ? AND idx = 0"},
	{"parked", "UPDATE perdure_step SET job_phase = 1 WHERE job = ? AND idx = 0"},
}

func TestCheckFindsDamage(t *testing.T) {
	path := t.TempDir() + "/f.db"
	store := everystore.SQLite(t, path)
	release := make(chan struct{})
	defer close(release)
	var l ledger
	agents := []*perdure.Agent{l.agent("a", func(run *perdure.Run) error {
		if run.Key[:4] == "job_" && run.Action == "hang" {
			<-release
		}
		if run.Action == "fail" {
			return errors.New("no")
		}
		return nil
	})}
	n := node.New(store, node.Config{Agents: agents})
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ids := make([]perdure.JobID, len(corruptions))
	for i, c := range corruptions {
		agent, action := "a", "a"
		switch c.job {
		case "runs":
			agent = "b"
		case "waits":
			agent = "nobody"
		case "parked":
			action = "fail"
		}
		ids[i] = submit(t, n, fmt.Sprintf("type: t%[1]d\nkey: k%[1]d\nflow: chain\nsteps:\n  a: {agent: %[2]s, action: %[3]s, undo: {}, completeWithin: 1h, retry: {attempts: 1}}\n  b: {agent: a}\n", i, agent, action)).ID
	}
	for i, c := range corruptions {
		switch c.job {
		case "runs":
			if runs, err := n.Claim(t.Context(), protocol.Claim{Agent: "b", Holder: "h", Max: 1, Wait: time.Minute}); len(runs) != 1 {
				t.Fatal(err)
			}
		case "waits":
		case "undone":
			rest(t, n, ids[i].String())
			if _, err := n.Act(t.Context(), ids[i].String(), perdure.Act{Verb: perdure.VerbUndo, Author: "me"}); err != nil {
				t.Fatal(err)
			}
			rest(t, n, ids[i].String())
		default:
			rest(t, n, ids[i].String())
		}
	}
	consistent(t, n)
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for i, c := range corruptions {
		res, err := db.Exec(c.sql, ids[i][:])
		if err != nil {
			t.Fatalf("%s: %v", c.sql, err)
		}
		if n, _ := res.RowsAffected(); n == 0 {
			t.Fatalf("%s: changes nothing", c.sql)
		}
	}
	fresh := node.New(store, node.Config{})
	defer fresh.Stop(context.Background())
	found := map[perdure.JobID]bool{}
	if err := fresh.Check(t.Context(), func(f kernel.Finding) { found[f.Job] = true }); err != nil {
		t.Fatal(err)
	}
	for i, c := range corruptions {
		if !found[ids[i]] {
			t.Errorf("not found: %s: %s", c.job, c.sql)
		}
	}
}

// A job that changes during the check is not reported as damaged.
func TestCheckUnderLoadReportsNoDamage(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		var l ledger
		n := start(t, store, node.Config{Agents: []*perdure.Agent{l.agent("a", func(run *perdure.Run) error {
			if run.Number == 1 {
				return errors.New("the first time")
			}
			return nil
		})}})
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
		defer stop()
		var load sync.WaitGroup
		for range 4 {
			load.Go(func() {
				for ctx.Err() == nil {
					v, _, err := n.Submit(ctx, []byte("type: t\nsteps:\n  a: {agent: a, undo: {}, retry: {backoff: 1ms}}\n  b: {agent: a, undo: {}, retry: {backoff: 1ms}}\n  c: {agent: a, after: [a, b]}\n"), "application/yaml")
					if err == nil {
						_, _ = n.Act(ctx, v.ID.String(), perdure.Act{Verb: perdure.VerbUndo, Author: "me"})
					}
					time.Sleep(5 * time.Millisecond)
				}
			})
		}
		for ctx.Err() == nil {
			if err := n.Check(context.Background(), func(f kernel.Finding) { t.Errorf("%+v", f) }); err != nil {
				t.Fatal(err)
			}
		}
		load.Wait()
	})
}
