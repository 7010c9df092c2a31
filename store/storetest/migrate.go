package storetest

import (
	"testing"

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
	s.raise(alert(1, "s0", perdure.AlertParked), alert(2, "s0", perdure.AlertWaiting))
}

// SameLists fails if a store with the jobs of JobsInEachState lists other jobs for a filter than the reference, which has them too.
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
}
