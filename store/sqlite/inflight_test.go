package sqlite

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// runsOf returns a job with this number of runs in flight.
func runsOf(n byte, runs int, holder string) kernel.NewJob {
	j := &kernel.Job{ID: perdure.JobID{15: n}, Type: "t", HasPermit: true, Phase: perdure.Running, Unsettled: runs, Running: runs}
	nj := kernel.NewJob{Job: j}
	for i := range runs {
		nj.Steps = append(nj.Steps, &kernel.Step{StepRef: kernel.StepRef{Job: j.ID, Index: i}, Name: fmt.Sprint(i), Type: "t",
			Phase: perdure.Running, Run: 1, Agent: "a", LockedBy: holder, LockedUntil: noon})
	}
	return nj
}

// edit changes steps of a job in one Save.
func edit(t *testing.T, s *Store, job byte, change func(*kernel.Step), idxs ...int) {
	t.Helper()
	err := s.Update(ctx, func(tx kernel.Tx) error {
		var c kernel.Changes
		for _, i := range idxs {
			steps, err := tx.Steps([]kernel.StepRef{{Job: perdure.JobID{15: job}, Index: i}})
			if err != nil {
				return err
			}
			now := *steps[0]
			change(&now)
			c.Steps = append(c.Steps, kernel.StepChange{Loaded: steps[0], Now: &now})
		}
		return tx.Save(&c)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func settle(st *kernel.Step) { st.Phase = perdure.Settled }

// runSets returns the rows for runs that were dispatched together: seconds after noon, holder, number of runs.
func runSets(t *testing.T, s *Store) []string {
	t.Helper()
	got, err := all(s.write, func(r *row) string { return fmt.Sprint(r.num(), " ", r.text(), " ", r.num()) },
		`SELECT (until_at - ?) / 1000000, locked_by, length(steps) / 8 FROM perdure_out ORDER BY until_at, locked_by`, noon.UnixMicro())
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func want(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// Runs that are dispatched together are one row, which a heartbeat does not write. A due scan corrects the time of the
// row, and the end of the last run deletes it, also if the cache has lost it.
func TestRunSetIsDeletedWithItsLastRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "perdure.db")
	s := open(t, path)
	if err := save(s, &kernel.Changes{NewJobs: []kernel.NewJob{runsOf(1, 3, "h"), runsOf(2, 2, "h"), runsOf(3, 1, "k")}}); err != nil {
		t.Fatal(err)
	}
	want(t, "after the dispatch", runSets(t, s), "0 h 5", "0 k 1")
	later := func(st *kernel.Step) { st.LockedUntil = noon.Add(30 * time.Second) }
	edit(t, s, 1, later, 0, 1, 2)
	edit(t, s, 2, later, 0)
	want(t, "after heartbeats", runSets(t, s), "0 h 5", "0 k 1")
	sweep := func(found int) {
		t.Helper()
		err := s.Update(ctx, func(tx kernel.Tx) error {
			refs, err := tx.Expired(noon.Add(time.Second), 10)
			if len(refs) != found {
				t.Errorf("expired: %v, want %d runs", refs, found)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	sweep(2)
	edit(t, s, 2, settle, 1)
	edit(t, s, 3, settle, 0)
	want(t, "the last run of a set has ended", runSets(t, s), "0 h 5")
	sweep(0)
	want(t, "after a due scan", runSets(t, s), "30 h 5")
	s.remaining = map[int64]int{} // the cache loses them
	edit(t, s, 1, settle, 0)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	edit(t, s, 1, settle, 1, 2)
	want(t, "one run is left", runSets(t, s), "30 h 5")
	edit(t, s, 2, func(st *kernel.Step) { st.LockedUntil = noon }, 0)
	want(t, "a lock was shortened", runSets(t, s), "0 h 1")
	edit(t, s, 2, settle, 0)
	want(t, "no run is left", runSets(t, s))
	if faults, err := s.Check(ctx); len(faults) > 0 || err != nil {
		t.Errorf("Check: %v, %v", faults, err)
	}
}

// Check reports each entry of the queue tables that is missing, wrong, or not derived from a step.
func TestCheckFindsWrongQueueEntries(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "perdure.db"))
	err := s.Update(ctx, func(tx kernel.Tx) error {
		for _, name := range []string{"agent:a", "job:t", "agent:b"} {
			if err := tx.PutLimit(kernel.Limit{Name: name, Max: 5, PerKey: kernel.Unbounded}); err != nil {
				return err
			}
		}
		ready := runsOf(2, 1, "k")
		ready.Steps[0].Phase, ready.Steps[0].Needs = perdure.Ready, kernel.Needs(`[{"name":"ads"}]`).WithShare("gold")
		return tx.Save(&kernel.Changes{NewJobs: []kernel.NewJob{runsOf(1, 2, "h"), ready}})
	})
	if err != nil {
		t.Fatal(err)
	}
	if faults, err := s.Check(ctx); len(faults) > 0 || err != nil {
		t.Fatalf("Check: %v, %v", faults, err)
	}
	for sql, want := range map[string]string{
		`DELETE FROM perdure_out`:                                                                              "is running, and is missing in out",
		`UPDATE perdure_out SET steps = substr(steps, 1, 8)`:                                                   "is running, and is missing in out",
		`UPDATE perdure_out SET locked_by = 'else'`:                                                            "is running, and is missing in out",
		`UPDATE perdure_out SET until_at = until_at + 1`:                                                       "is running, and is missing in out",
		`UPDATE perdure_step SET phase = 4 WHERE phase = 3`:                                                    "none of them is in flight",
		`UPDATE perdure_step SET out = 99 WHERE phase = 3`:                                                     "is running, and is missing in out",
		`DELETE FROM perdure_permit WHERE name = 'agent:a'`:                                                    "holds a permit of agent:a, and is missing",
		`DELETE FROM perdure_permit WHERE name = 'job:t'`:                                                      "holds a permit of job:t, and is missing in permit",
		`INSERT INTO perdure_permit VALUES ('agent:b', '', zeroblob(16), 0, 1)`:                                "holds none",
		`INSERT INTO perdure_permit VALUES ('agent:c', '', zeroblob(16), 0, 1)`:                                "holds none of agent:c",
		`DELETE FROM perdure_limit WHERE name = 'job:t'`:                                                       "holds none",
		`UPDATE perdure_step SET ready = NULL WHERE phase = 2`:                                                 "is ready, and is missing in ready",
		`UPDATE perdure_step SET ready = 3 WHERE phase = 3`:                                                    "is in ready, and does not belong there",
		`UPDATE perdure_step SET open = NULL WHERE idx = 0`:                                                    "is not settled, and is missing in open",
		`UPDATE perdure_step SET look_at = 1 WHERE idx = 0`:                                                    "is not settled, and is missing in open or has other values",
		`UPDATE perdure_step SET due_at = 1 WHERE idx = 0`:                                                     "is in due, and does not belong there",
		`UPDATE perdure_step SET permit = NULL WHERE permit = 1`:                                               "holds none",
		`UPDATE perdure_step SET phase = 3 WHERE phase = 2`:                                                    "is running, and is missing in out",
		`UPDATE perdure_step SET agent = 'b' WHERE phase = 3`:                                                  "holds a permit of agent:b",
		`UPDATE perdure_step SET locked_until = 1 WHERE phase = 3`:                                             "is running, and is missing in out",
		`UPDATE perdure_permit SET amount = 2`:                                                                 "is in permit, and holds none",
		`UPDATE perdure_lane SET ord = ord - 1`:                                                                "is in lane, and does not belong there",
		`DELETE FROM perdure_lane`:                                                                             "needs limits, and is missing in lane",
		`UPDATE perdure_lane SET ord = ord + 1`:                                                                "needs limits, and is missing in lane or has other values",
		`UPDATE perdure_share SET waiting = 0`:                                                                 "share gold of agent a has open lanes, and is not marked as waiting",
		`INSERT INTO perdure_share SELECT agent, 7, share, kind, value, type, limits, 5, 0 FROM perdure_share`: "share gold of agent a has rows with different counts",
		`INSERT INTO perdure_lane VALUES ('agent', -7, 7, 't', '[]', 1, zeroblob(16), 0, NULL, NULL)`:          "is in lane, and does not belong there",
	} {
		if err := errors.Join(begin(s.write), s.write.once(sql)); err != nil {
			t.Fatal(err)
		}
		faults, err := checkQueues(s.write)
		rollback(s.write)
		if err != nil || !strings.Contains(strings.Join(faults, "\n"), want) {
			t.Errorf("after %s\n\tCheck returns %q, %v; want %q", sql, faults, err, want)
		}
	}
}
