package storetest

import (
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// JobsInEachState stores jobs in each combination of states in which lists find them by tables or columns of their own, as
// an older program would have.
func JobsInEachState(t *testing.T, store kernel.Store) {
	t.Helper()
	var jobs []kernel.NewJob
	for _, phase := range []perdure.Phase{perdure.Settled, perdure.Waiting, perdure.Parked} {
		for _, current := range []perdure.State{perdure.Undone, perdure.Done, perdure.Unsure} {
			for _, desired := range []perdure.State{perdure.Undone, perdure.Done} {
				jobs = append(jobs, newJob(len(jobs)+1, 1, func(j *kernel.Job) { j.Phase, j.Current, j.Desired = phase, current, desired }))
			}
		}
	}
	s := &suite{T: t, store: store}
	s.submit(jobs...)
	s.save(&kernel.Changes{History: []kernel.Entry{
		{Job: id(1), Step: "s0", Run: 2, At: at(2 * time.Second), Event: "failed", Author: "h", Detail: "503"},
		{Job: id(1), Step: "s0", Run: 1, At: at(time.Second), Event: "expired", Author: "h"},
	}})
	s.raise(alert(1, "s0", perdure.AlertParked), alert(2, "s0", perdure.AlertWaiting))
}

// SameLists fails if a store with the jobs of JobsInEachState lists other jobs for a filter, or other runs, than the
// reference, which has them too.
func SameLists(t *testing.T, store, reference kernel.Store) {
	t.Helper()
	s := &suite{T: t}
	for name, f := range Filters() {
		f.Limit = 5
		got, err := walk(store, f)
		if err != nil {
			t.Fatal(err)
		}
		want, err := walk(reference, f)
		if err != nil {
			t.Fatal(err)
		}
		s.equal(name, got, want)
	}
	got, err := store.Runs(ctx, id(1), kernel.RunPlace{}, 10)
	if err != nil {
		t.Fatal(err)
	}
	want, err := reference.Runs(ctx, id(1), kernel.RunPlace{}, 10)
	if err != nil {
		t.Fatal(err)
	}
	s.equal("runs", got, want)
}

// AlertsHaveTheTypesOfTheirJobs fails unless each alert of a job has the job's type and key.
func AlertsHaveTheTypesOfTheirJobs(t *testing.T, s kernel.Store) {
	t.Helper()
	alerts, err := s.Alerts(t.Context(), kernel.AlertFilter{})
	if err != nil || len(alerts) == 0 {
		t.Fatalf("%d alerts, %v", len(alerts), err)
	}
	for _, a := range alerts {
		j, _, err := s.Job(t.Context(), a.Job, 0)
		if err != nil {
			t.Fatal(err)
		}
		if a.Type != j.Type || a.JobKey != j.Key {
			t.Errorf("an alert of job %s, type %q, key %q, has type %q and key %q", a.Job, j.Type, j.Key, a.Type, a.JobKey)
		}
	}
}
