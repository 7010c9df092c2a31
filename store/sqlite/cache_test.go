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

// first reads a job's first step as a transaction has it.
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

// A transaction that was rolled back leaves nothing for the next one to read.
func TestRolledBackChangesAreNotCached(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "perdure.db"))
	if err := save(s, &kernel.Changes{NewJobs: []kernel.NewJob{runsOf(1, 1, "h")}}); err != nil {
		t.Fatal(err)
	}
	if len(s.rows) != 1 {
		t.Fatalf("%d rows are known", len(s.rows))
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
		steps[0].Failures = 9 // the caller's own
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
		t.Error("the row is not as it was written")
	}
}

// Limits and settings of agents are read once. Neither a transaction that changes them and is rolled back, nor a tool
// that writes to the file, makes later readers read stale ones.
func TestCachedSettingsAreNotStale(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "perdure.db"))
	put := func(name string, max int, then error) {
		err := s.Update(ctx, func(tx kernel.Tx) error {
			err := cmp.Or(tx.PutLimit(kernel.Limit{Name: name, Max: max, PerKey: -1}),
				tx.PutAgent("mail", perdure.AgentSettings{Ageing: perdure.Duration(max) * perdure.Duration(time.Second)}))
			agents, errs := tx.Agents()
			if len(agents) != 1 {
				t.Errorf("agents %v", agents)
			}
			return cmp.Or(err, errs, then)
		})
		if !errors.Is(err, then) {
			t.Fatal(err)
		}
	}
	is := func(limit bool, ageing int) {
		t.Helper()
		err := s.Update(ctx, func(of kernel.Tx) error {
			tx := of.(*tx)
			defined, err := tx.limits()
			agents, errs := tx.Agents()
			if defined["job:a"] != limit || agents["mail"].Ageing != perdure.Duration(ageing)*perdure.Duration(time.Second) {
				t.Errorf("limits %v, agents %v", defined, agents)
			}
			return errors.Join(err, errs)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	is(false, 0)
	put("job:a", 1, errors.New("oops"))
	is(false, 0)
	put("job:a", 2, nil)
	is(true, 2)
	if len(s.limits) != 1 || len(s.agents) != 1 {
		t.Errorf("known are %v and %v", s.limits, s.agents)
	}
	is(true, 2)
	tool, err := connect(s.path)
	if err != nil {
		t.Fatal(err)
	}
	defer tool.close()
	if err := cmp.Or(tool.once(`DELETE FROM perdure_limit`), tool.once(`UPDATE perdure_agent SET ageing = 7000000`)); err != nil {
		t.Fatal(err)
	}
	is(false, 7)
}

// What another program writes to the file is seen. What the store itself writes beside makes it forget nothing.
func TestCacheIsEmptiedByOtherWriters(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "perdure.db"))
	if err := save(s, &kernel.Changes{NewJobs: []kernel.NewJob{runsOf(1, 2, "h")}}); err != nil {
		t.Fatal(err)
	}
	if err := attend(s); err != nil {
		t.Fatal(err)
	}
	first(t, s, 2)
	if len(s.rows) != 1 {
		t.Errorf("%d rows are known after a node was noted", len(s.rows))
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

// A reader stops reading when its caller no longer waits, and its connection is as good as new.
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

// A job's row is its first step's: without one there is none.
func TestJobWithoutItsFirstStepIsRefused(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "perdure.db"))
	nj := runsOf(1, 2, "h")
	nj.Steps = nj.Steps[1:]
	if err := save(s, &kernel.Changes{NewJobs: []kernel.NewJob{nj}}); err == nil {
		t.Error("it was taken")
	}
}
