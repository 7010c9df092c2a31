package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	root "github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/e2e/rig"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
)

var bulkJobs = flag.Int("bulkjobs", 2000, "jobs of the bulk act of TestBulkActOfAKilledNodeGoesOn")

// F070: a node is killed with SIGKILL, several times, while it carries out a bulk act on thousands of parked jobs, and is
// started again. The bulk act ends, and the history of each job has one entry of it.
func TestBulkActOfAKilledNodeGoesOn(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	t.Run("sqlite", func(t *testing.T) {
		killDuringBulkAct(t, "sqlite:"+filepath.Join(t.TempDir(), "perdure.db"))
	})
	t.Run("postgres", func(t *testing.T) { killDuringBulkAct(t, pgtest.Start(t)) })
}

func killDuringBulkAct(t *testing.T, store string) {
	const kills, agent = 3, "manual"
	address := rig.FreeAddress(t)
	start := func() *exec.Cmd {
		node := begin(t, "serve", "--listen", address, "--store", store, "--migrate", "--agents", "none", "--log-level", "warn")
		eventually(t, "the node is ready", func() bool { return ready("http://" + address) })
		return node
	}
	node := start()
	c, err := client.New("http://"+address, client.Author("anna"))
	if err != nil {
		t.Fatal(err)
	}
	park(t, c, agent, *bulkJobs)

	// The filter also matches jobs that are resumed already: a bulk act that met them again would be refused on them.
	request := operate.BulkRequest{Act: root.VerbResume, Filter: &operate.BulkFilter{Type: "parked"}, Reason: "the agent works again", Key: "bulk"}
	act, err := c.StartBulk(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	for i := range kills {
		// Kill when a part of the jobs is done: the next part each time.
		least := act.Matched + 1
		if i > 0 {
			least = max(least, *bulkJobs*i/(kills+1))
		}
		act = awaitBulk(t, c, act.ID, func(v *operate.BulkView) bool { return v.Matched >= least })
		kill(t, node)
		node = start()
		before := act.Matched
		if act, err = c.GetBulk(t.Context(), act.ID); err != nil {
			t.Fatal(err)
		}
		t.Logf("killed with %d jobs met, %d after the restart", before, act.Matched)
		if act.Matched < before {
			t.Errorf("%d jobs had been met before the kill, %d after it", before, act.Matched)
		}
		if before >= *bulkJobs {
			t.Fatalf("the bulk act had ended before kill %d", i+1)
		}
	}
	act = awaitBulk(t, c, act.ID, func(v *operate.BulkView) bool { return v.State != operate.BulkRunning })
	if act.State != operate.BulkDone || act.Matched != *bulkJobs || act.Done != *bulkJobs {
		t.Errorf("%s: %d matched, %d done, %d unchanged, %d refused; there are %d jobs", act.State, act.Matched, act.Done, act.Unchanged, act.Refused, *bulkJobs)
	}
	wrong := 0
	for i := range *bulkJobs {
		page, err := c.History(t.Context(), root.HistoryQuery{Job: parkedKey(i), Limit: root.MaxListLimit})
		if err != nil {
			t.Fatal(err)
		}
		if n := entriesOfBulk(page.Items, &request); n != 1 {
			if wrong++; wrong <= 10 {
				t.Errorf("job %s has %d entries of the bulk act", parkedKey(i), n)
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%d jobs of %d do not have one entry of the bulk act", wrong, *bulkJobs)
	}
	if again, err := c.StartBulk(t.Context(), request); err != nil || again.ID != act.ID {
		t.Errorf("the same request starts another bulk act: %+v, %v", again, err)
	}
	kill(t, node)
	must(t, "check", "--store", store)
}

func parkedKey(i int) string { return fmt.Sprint("parked-", i) }

// park submits jobs of type parked, whose runs fail for good.
func park(t *testing.T, c *client.Client, agent string, n int) {
	t.Helper()
	parkRange(t, c, agent, 0, n)
}

// parkRange parks the jobs with the numbers from begin to before end.
func parkRange(t *testing.T, c *client.Client, agent string, begin, end int) {
	t.Helper()
	const atOnce = 250
	for from := begin; from < end; from += atOnce {
		var jobs []json.RawMessage
		for i := from; i < min(from+atOnce, end); i++ {
			jobs = append(jobs, fmt.Appendf(nil, `{"type": "parked", "key": %q, "steps": {"a": {"agent": %q, "onFailure": "park", "retry": {"attempts": 1}}}}`, parkedKey(i), agent))
		}
		submitted, err := c.SubmitAll(t.Context(), nil, jobs)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range submitted {
			if s.Err != nil {
				t.Fatal(s.Err)
			}
		}
		for parked := 0; parked < len(jobs); {
			runs, err := c.Claim(t.Context(), protocol.Claim{Agent: agent, Holder: "e2e", Max: atOnce, Wait: 10 * time.Second})
			if err != nil || len(runs) == 0 {
				t.Fatalf("%d of %d runs claimed: %v", parked, len(jobs), err)
			}
			var reports []protocol.Report
			for _, r := range runs {
				reports = append(reports, protocol.Report{Job: r.Job, Step: r.Step, Run: r.Number, Outcome: root.OutcomeFailed, Effect: protocol.EffectNone, Error: &root.RunError{Message: "out of order"}})
			}
			results, _, err := c.Report(t.Context(), "e2e", reports, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range results {
				if !r.Accepted {
					t.Fatal(r.Reason, r.Message)
				}
			}
			parked += len(runs)
		}
	}
}

// awaitBulk waits until a bulk act has come so far.
func awaitBulk(t *testing.T, c *client.Client, id string, ok func(*operate.BulkView) bool) (v *operate.BulkView) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for {
		v, err := c.GetBulk(ctx, id)
		if err != nil {
			t.Fatalf("bulk act %s: %v", id, err)
		}
		if ok(v) {
			return v
		}
		time.Sleep(5 * time.Millisecond)
	}
}
