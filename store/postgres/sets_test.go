package postgres

import (
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

// The process that wrote a set of runs finds that another process has ended all of them, and deletes the set long before
// its time. A set with a run in flight stays.
func TestRunSetsEndedByAnotherProcessAreDeleted(t *testing.T) {
	url := pgtest.Start(t)
	s, other := slowLanes(t, url, time.Hour), slowLanes(t, url, time.Hour)
	s.cache.Sets.CheckInterval = 0
	submitLane(t, s, laneJob(1, 5), laneJob(2, 5), laneJob(3, 5), laneJob(4, 5))
	change := func(of *Store, edit func(*kernel.Step), ns ...int) {
		t.Helper()
		if err := of.Update(t.Context(), func(tx kernel.Tx) error {
			var c kernel.Changes
			for _, n := range ns {
				id := laneJob(n, 5).Job.ID
				if _, err := tx.LockJobs([]perdure.JobID{id}); err != nil {
					return err
				}
				steps, err := tx.Steps([]kernel.StepRef{{Job: id}})
				if err != nil {
					return err
				}
				now := *steps[0]
				edit(&now)
				c.Steps = append(c.Steps, kernel.StepChange{Now: &now, Loaded: steps[0]})
			}
			return tx.Save(&c)
		}); err != nil {
			t.Fatal(err)
		}
	}
	count := func() (n int) {
		t.Helper()
		n, err := first(query(t.Context(), s, pgwire.New("select count(*)::int from perdure.out"), (*pgwire.Reader).Int))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	until := time.Now().Add(time.Hour)
	run := func(st *kernel.Step) {
		st.Phase, st.LockedBy, st.LockedUntil = perdure.Running, "h", until
	}
	end := func(st *kernel.Step) { st.Phase = perdure.Settled }
	touch := func(st *kernel.Step) { st.Failures++ }
	change(s, run, 1, 2)
	change(s, run, 3)
	change(other, end, 1, 2)
	if n := count(); n != 2 {
		t.Errorf("%d sets, want 2", n)
	}
	for range 3 {
		time.Sleep(20 * time.Millisecond)
		change(s, touch, 4)
	}
	if runs, sets := s.cache.Sets.Len(); count() != 1 || runs != 1 || sets != 1 {
		t.Errorf("%d sets; %d runs and %d sets are cached", count(), runs, sets)
	}
	change(s, end, 3)
	change(s, touch, 4)
	if runs, sets := s.cache.Sets.Len(); count() != 0 || runs+sets != 0 {
		t.Errorf("%d sets; %d runs and %d sets are cached", count(), runs, sets)
	}
}
