package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	root "github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/protocol"
)

// Each corruption is what a bug, a bad disk or a manual change may leave in the tables. Each has a job of its own: a
// chain of two steps that is done, undone, runs its first step, waits for an agent, or is parked.
var corruptions = []struct{ job, rule, sql string }{
	{"done", "a settled job has a step that is not", "UPDATE perdure_step SET phase = 1 WHERE job = $1 AND idx = 1"},
	{"done", "a step of a done job is undone", "UPDATE perdure_step SET current = 0 WHERE job = $1 AND idx = 0"},
	{"done", "a settled job counts a step as open", "UPDATE perdure_step SET unsettled = 1 WHERE job = $1 AND idx = 0"},
	{"done", "a step is lost", "DELETE FROM perdure_step WHERE job = $1 AND idx = 1"},
	{"done", "the definition is lost", "DELETE FROM perdure_shape WHERE id = (SELECT shape FROM perdure_step WHERE job = $1 AND idx = 0)"},
	{"done", "an output is lost", "DELETE FROM perdure_payload WHERE job = $1"},
	{"done", "a run that was never dispatched has an outcome", "UPDATE perdure_step SET run = 0 WHERE job = $1 AND idx = 0"},
	{"undone", "an effect is left", "UPDATE perdure_step SET current = 1 WHERE job = $1 AND idx = 0"},
	{"runs", "a run has no end", "UPDATE perdure_step SET locked_until = NULL WHERE job = $1 AND idx = 0"},
	{"runs", "a step waits without a step to wait for", "UPDATE perdure_step SET blockers = 0 WHERE job = $1 AND idx = 1"},
	{"runs", "a job wants what its steps do not", "UPDATE perdure_step SET desired = 0 WHERE job = $1 AND idx = 0"},
	{"runs", "a permit is lost", "DELETE FROM perdure_permit WHERE job = $1"},
	{"waits", "no search finds a step again", "UPDATE perdure_step SET phase = 1 WHERE job = $1 AND idx = 0"},
	{"waits", "a step waits for an agent that is not its own", "UPDATE perdure_step SET agent = 'other' WHERE job = $1 AND idx = 0"},
	{"parked", "an alert is missing", "DELETE FROM perdure_alert WHERE job = $1"},
	{"parked", "a parked job is not", "UPDATE perdure_step SET job_phase = 1 WHERE job = $1 AND idx = 0"},
}

// `perdure check` finds nothing in a sound store, and finds each of these corruptions (F111, I17).
func TestCheckFindsCorruptions(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "perdure.db")
		checkFinds(t, "sqlite:"+path, "sqlite", path, "perdure_")
	})
	t.Run("postgres", func(t *testing.T) {
		url := pgtest.Start(t)
		checkFinds(t, url, "pgx", url, "perdure.")
	})
}

func checkFinds(t *testing.T, store, driver, at, prefix string) {
	ids := corruptible(t, store)
	must(t, "check", "--store", store)
	db, err := sql.Open(driver, at)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range corruptions {
		var id any = ids[i][:]
		if driver == "pgx" {
			id = fmt.Sprintf("%x", ids[i][:])
		}
		res, err := db.Exec(strings.ReplaceAll(c.sql, "perdure_", prefix), id)
		if err != nil {
			t.Fatalf("%s: %v", c.sql, err)
		}
		if n, _ := res.RowsAffected(); n == 0 {
			t.Fatalf("%s changes nothing", c.sql)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	out, exit := run(t, "check", "--store", store)
	if exit != 1 {
		t.Errorf("exit %d", exit)
	}
	for i, c := range corruptions {
		if !strings.Contains(out, ids[i].String()) {
			t.Errorf("not found: %s: %s", c.rule, c.sql)
		}
	}
	if strings.Contains(out, ids[len(corruptions)].String()) {
		t.Errorf("a sound job is reported:\n%s", out)
	}
}

// corruptible makes a job for each corruption, and one more that is sound, and stops the node.
func corruptible(t *testing.T, store string) []root.JobID {
	t.Helper()
	server, node := serve(t, "--store", store, "--migrate", "--agents", "none")
	c, err := client.New(server)
	if err != nil {
		t.Fatal(err)
	}
	p := &fakeAgents{t: t, c: c}
	if _, err := c.PutLimit(t.Context(), "agent:runs", root.LimitSettings{Max: new(100)}); err != nil {
		t.Fatal(err)
	}
	ids := make([]root.JobID, len(corruptions)+1)
	for i := range ids {
		state := "done"
		if i < len(corruptions) {
			state = corruptions[i].job
		}
		ids[i] = p.job(i, state)
	}
	if err := node.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = node.Wait()
	return ids
}

// fakeAgents acts as the agents of these jobs.
type fakeAgents struct {
	t *testing.T
	c *client.Client
}

func (p *fakeAgents) job(i int, state string) root.JobID {
	p.t.Helper()
	body := fmt.Sprintf("type: t%d\nflow: chain\nsteps:\n  a: {agent: %s, undo: {}, completeWithin: 1h, retry: {attempts: 1}}\n  b: {agent: %[2]s, undo: {}}\n", i, state)
	view, _, err := p.c.Submit(p.t.Context(), []byte(body), "application/yaml")
	if err != nil {
		p.t.Fatal(err)
	}
	switch state {
	case "done":
		p.answers(state, root.OutcomeDone, root.OutcomeDone)
	case "undone":
		p.answers(state, root.OutcomeDone)
		if _, err := p.c.Act(p.t.Context(), view.ID.String(), root.Act{Verb: root.VerbUndo}); err != nil {
			p.t.Fatal(err)
		}
		p.answers(state, root.OutcomeDone)
	case "runs":
		p.answers(state)
	case "parked":
		p.answers(state, root.OutcomeFailed)
	}
	return view.ID
}

// answers claims runs and reports them. Without an outcome it claims one run and keeps it.
func (p *fakeAgents) answers(agent string, outcomes ...root.Outcome) {
	p.t.Helper()
	for i := 0; i == 0 || i < len(outcomes); i++ {
		ctx, cancel := context.WithTimeout(p.t.Context(), 30*time.Second)
		defer cancel()
		runs, err := p.c.Claim(ctx, protocol.Claim{Agent: agent, Holder: "h", Max: 1, Wait: 10 * time.Second})
		if err != nil || len(runs) != 1 {
			p.t.Fatalf("%v, %v", runs, err)
		}
		if len(outcomes) == 0 {
			return
		}
		rep := protocol.Report{Job: runs[0].Job, Step: runs[0].Step, Run: runs[0].Number, Outcome: outcomes[i]}
		if rep.Outcome == root.OutcomeDone {
			rep.Output = []byte(`{"seen":true}`)
		}
		if res, _, err := p.c.Report(ctx, "h", []protocol.Report{rep}, nil); err != nil || !res[0].Accepted {
			p.t.Fatalf("%v, %v", res, err)
		}
	}
}
