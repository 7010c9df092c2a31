package sqlite

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// first returns a job's first step as a transaction reads it.
func first(t *testing.T, s *Store, job byte) (st *kernel.Step) {
	t.Helper()
	err := s.Update(ctx, func(tx kernel.Tx) error {
		if _, err := tx.LockJobs([]perdure.JobID{{15: job}}); err != nil {
			return err
		}
		steps, err := tx.Steps([]kernel.StepRef{{Job: perdure.JobID{15: job}}})
		if len(steps) > 0 {
			st = steps[0]
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// A transaction that is rolled back leaves none of its changes in the cache.
func TestRolledBackChangesAreNotCached(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "perdure.db"))
	if err := save(s, &kernel.Changes{NewJobs: []kernel.NewJob{runsOf(1, 1, "h")}}); err != nil {
		t.Fatal(err)
	}
	if len(s.rows) != 1 {
		t.Fatalf("%d rows are cached", len(s.rows))
	}
	oops := errors.New("oops")
	err := s.Update(ctx, func(tx kernel.Tx) error {
		steps, err := tx.Steps([]kernel.StepRef{{Job: perdure.JobID{15: 1}}})
		if err != nil {
			return err
		}
		now := *steps[0]
		now.Failures = 7
		if err := tx.Save(&kernel.Changes{Steps: []kernel.StepChange{{Loaded: steps[0], Now: &now}}}); err != nil {
			return err
		}
		steps[0].Failures = 9 // in the caller's copy
		return oops
	})
	if !errors.Is(err, oops) {
		t.Fatal(err)
	}
	if st := first(t, s, 1); st.Failures != 0 {
		t.Errorf("%d failures", st.Failures)
	}
	edit(t, s, 1, settle, 0)
	if first(t, s, 1).Phase != perdure.Settled || first(t, s, 2) != nil {
		t.Error("the row does not have its new phase")
	}
}

// Limits and settings of agents are cached. Later transactions read no stale ones, neither after a transaction that
// changes them and is rolled back, nor after another program has written to the file.
func TestCachedSettingsAreNotStale(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "perdure.db"))
	put := func(name string, max int, failure error) {
		err := s.Update(ctx, func(tx kernel.Tx) error {
			err := cmp.Or(tx.PutLimit(kernel.Limit{Name: name, Max: max, PerKey: -1}),
				tx.PutAgent("mail", perdure.AgentSettings{Ageing: perdure.Duration(max) * perdure.Duration(time.Second)}))
			agents, errs := tx.Agents()
			if len(agents) != 1 {
				t.Errorf("agents in the transaction: %v", agents)
			}
			return cmp.Or(err, errs, failure)
		})
		if !errors.Is(err, failure) {
			t.Fatal(err)
		}
	}
	check := func(limit bool, ageing int) {
		t.Helper()
		err := s.Update(ctx, func(of kernel.Tx) error {
			tx := of.(*tx)
			defined, err := tx.limits()
			agents, errs := tx.Agents()
			if defined["job:a"] != limit || agents["mail"].Ageing != perdure.Duration(ageing)*perdure.Duration(time.Second) {
				t.Errorf("limits %v, agents %v; want limit %v, ageing %d s", defined, agents, limit, ageing)
			}
			return errors.Join(err, errs)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	check(false, 0)
	put("job:a", 1, errors.New("oops"))
	check(false, 0)
	put("job:a", 2, nil)
	check(true, 2)
	if len(s.limits) != 1 || len(s.agents) != 1 {
		t.Errorf("cached are %v and %v", s.limits, s.agents)
	}
	check(true, 2)
	tool, err := connect(s.path)
	if err != nil {
		t.Fatal(err)
	}
	defer tool.close()
	if err := cmp.Or(tool.once(`DELETE FROM perdure_limit`), tool.once(`UPDATE perdure_agent SET ageing = 7000000`)); err != nil {
		t.Fatal(err)
	}
	check(false, 7)
}

// A write of another program empties the cache. A write of the store's other connection does not.
func TestCacheIsEmptiedByOtherWriters(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "perdure.db"))
	if err := save(s, &kernel.Changes{NewJobs: []kernel.NewJob{runsOf(1, 2, "h")}}); err != nil {
		t.Fatal(err)
	}
	if err := rollCall(s); err != nil {
		t.Fatal(err)
	}
	first(t, s, 2)
	if len(s.rows) != 1 {
		t.Errorf("%d rows are cached after ReportNode", len(s.rows))
	}
	tool, err := connect(s.path)
	if err != nil {
		t.Fatal(err)
	}
	defer tool.close()
	if err := tool.once(`UPDATE perdure_step SET failures = 5`); err != nil {
		t.Fatal(err)
	}
	if st := first(t, s, 1); st.Failures != 5 {
		t.Errorf("%d failures", st.Failures)
	}
}

// A read ends when its context ends, and its connection can be used again.
func TestCancelledReadsEnd(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "perdure.db"))
	for range 2 * readers {
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		_, err := view(short, s, (*row).int, `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n`)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		if _, err := s.Backlog(ctx, 1); err != nil {
			t.Fatal(err)
		}
	}
}

// A job is stored in the row of its first step. Save refuses a job without one.
func TestJobWithoutItsFirstStepIsRefused(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "perdure.db"))
	nj := runsOf(1, 2, "h")
	nj.Steps = nj.Steps[1:]
	if err := save(s, &kernel.Changes{NewJobs: []kernel.NewJob{nj}}); err == nil {
		t.Error("a job without its first step was stored")
	}
}
