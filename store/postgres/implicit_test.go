package postgres

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store/postgres/internal/cache"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

// waitingJob returns a new job with this number of steps, each of which waits for the one before.
func waitingJob(n, steps int) kernel.NewJob {
	nj := laneJob(n, 5)
	nj.Job.Shape, nj.Job.CreatedAt, nj.Job.Unsettled = kernel.ShapeID{byte(steps), 1}, time.UnixMicro(7_000_000).UTC(), steps
	nj.Steps[0].Desired, nj.Steps[0].Turn = perdure.Done, 1
	for i := 1; i < steps; i++ {
		nj.Steps = append(nj.Steps, &kernel.Step{StepRef: kernel.StepRef{Job: nj.Job.ID, Index: i}, Name: fmt.Sprint("s", i), Type: "t", Priority: 5,
			Desired: perdure.Done, Phase: perdure.Waiting, Turn: 1, Blockers: 1, UpdatedAt: nj.Job.CreatedAt})
	}
	return nj
}

func stepRows(t *testing.T, s *Store, n int) int {
	t.Helper()
	rows, err := first(query(t.Context(), s, pgwire.New("select count(*) from perdure.step where job = $1").UUID(idOf(n)), (*pgwire.Reader).Int))
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// twoStores opens one database in two stores, as two processes do.
func twoStores(t *testing.T) (local, remote *Store) {
	t.Helper()
	url := pgtest.Start(t)
	if _, _, err := Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	for _, s := range []**Store{&local, &remote} {
		var err error
		if *s, err = Open(t.Context(), url); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { (*s).Close() })
	}
	return local, remote
}

// A step that waits for others when it is submitted has no row until it changes, if the shape has its values. Every
// reader reads it as it was submitted.
func TestImplicitStepsAreReadAsSubmitted(t *testing.T) {
	local, remote := twoStores(t)
	submitAsScheduler(t, local, waitingJob(1, 4))
	submitAsScheduler(t, local, waitingJob(2, 4), waitingJob(3, 4))
	different := waitingJob(4, 4)
	different.Steps[1].Blockers, different.Steps[2].Name = 2, "other"
	submitAsScheduler(t, local, different)
	submitAsScheduler(t, remote, waitingJob(5, 4))
	submitAsScheduler(t, remote, waitingJob(6, 4))
	settled := waitingJob(7, 4)
	settled.Job.Phase = perdure.Settled
	submitAsScheduler(t, local, settled)
	for n, want := range map[int]int{1: 4, 2: 1, 3: 1, 4: 3, 5: 4, 6: 1, 7: 4} {
		if got := stepRows(t, local, n); got != want {
			t.Errorf("job %d has %d rows, want %d", n, got, want)
		}
	}
	for n, nj := range map[int]kernel.NewJob{1: waitingJob(1, 4), 2: waitingJob(2, 4), 4: different, 6: waitingJob(6, 4), 7: settled} {
		for name, s := range map[string]*Store{"local": local, "remote": remote} {
			same := func(what string, got []*kernel.Step, err error, want ...*kernel.Step) {
				if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" || err != nil {
					t.Errorf("%s of job %d, %s: %v\n%s", what, n, name, err, diff)
				}
			}
			j, got, err := s.Job(t.Context(), idOf(n), 10)
			same("Job", got, err, nj.Steps...)
			if j.Unsettled != 4 {
				t.Errorf("job %d has %d unsettled steps, want 4", n, j.Unsettled)
			}
			_, got, err = s.Job(t.Context(), idOf(n), 3)
			same("Job, some steps", got, err, nj.Steps[:3]...)
			got, err = s.StepsOf(t.Context(), idOf(n), time.Time{})
			same("StepsOf", got, err, nj.Steps...)
			got, err = s.StepsOf(t.Context(), idOf(n), nj.Job.CreatedAt)
			same("StepsOf since", got, err, nj.Steps[1:]...)
			got, err = s.StepsOf(t.Context(), idOf(n), nj.Job.CreatedAt.Add(time.Microsecond))
			same("StepsOf since a later time", got, err)
			err = s.Update(t.Context(), func(tx kernel.Tx) error {
				if _, err := tx.LockJobs([]perdure.JobID{idOf(n)}); err != nil {
					return err
				}
				got, err := tx.Steps([]kernel.StepRef{nj.Steps[3].StepRef, nj.Steps[1].StepRef, {Job: idOf(n), Index: 9}})
				same("Steps", got, err, nj.Steps[1], nj.Steps[3])
				got, err = tx.StepsOf(idOf(n))
				same("StepsOf, locked", got, err, nj.Steps...)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
	}
	all, err := first(query(t.Context(), local, pgwire.New("select count(*) from perdure.steps where phase = 'waiting' and blockers = 1 and updated_at is not null and job_id = $1").
		UUID(idOf(2)), (*pgwire.Reader).Int))
	if err != nil || all != 3 {
		t.Errorf("the view shows %d of 3 waiting steps (%v)", all, err)
	}
	if faults, err := local.Check(t.Context()); err != nil || len(faults) > 0 {
		t.Errorf("Check: %v, %v", faults, err)
	}
}

// An implicit row is stored when its step first changes. The transaction may know from the cache that there is no row,
// or may have read the implicit one. It is refused if another transaction has stored the row meanwhile.
func TestImplicitStepsAreStoredWhenTheyChange(t *testing.T) {
	local, remote := twoStores(t)
	submitAsScheduler(t, local, waitingJob(1, 4))
	submitAsScheduler(t, local, waitingJob(2, 4), waitingJob(3, 4))
	dispatch := func(s *kernel.Step) {
		s.Phase, s.Agent, s.Run, s.LockedBy, s.Blockers = perdure.Running, "a", 1, "h", 0
	}
	progress := func(s *kernel.Step) { s.Blockers, s.Progress = 2, "{}" }
	implicit := func(s *kernel.Step) { s.Blockers, s.Progress = 1, "" }
	check := func(s *Store, n, place int, want func(*kernel.Step)) {
		t.Helper()
		expected := *waitingJob(n, 4).Steps[place]
		want(&expected)
		_, got, err := s.Job(t.Context(), idOf(n), 10)
		if err != nil || len(got) != 4 || !cmp.Equal(*got[place], expected) {
			t.Errorf("%v: %s", err, cmp.Diff(expected, *got[place]))
		}
	}
	for n, s := range map[int]*Store{2: local, 3: remote} {
		write(t, s, n, nil, map[int]func(*kernel.Step){1: dispatch, 3: progress}, nil)
		if rows := stepRows(t, local, n); rows != 3 {
			t.Errorf("%d rows of job %d", rows, n)
		}
		for _, s := range []*Store{local, remote} {
			check(s, n, 1, dispatch)
			check(s, n, 2, func(*kernel.Step) {})
			check(s, n, 3, progress)
		}
	}
	// A step has a row, but has values like those of an implicit step. Each change is written, also back to the implicit
	// values.
	for _, s := range []*Store{local, remote} {
		if n := write(t, s, 2, nil, map[int]func(*kernel.Step){3: implicit}, nil); n != 1 {
			t.Errorf("the transaction was tried %d times", n)
		}
		check(local, 2, 3, implicit)
		write(t, s, 2, nil, map[int]func(*kernel.Step){3: progress}, nil)
		check(remote, 2, 3, progress)
	}
	if n := write(t, local, 3, nil, map[int]func(*kernel.Step){3: func(*kernel.Step) {}}, nil); n != 1 { // nothing changed
		t.Errorf("the transaction was tried %d times", n)
	}
	// A change of a row that differs from the loaded one is refused.
	stale := *waitingJob(2, 4).Steps[1]
	now := stale
	dispatch(&now)
	for _, s := range []*Store{local, remote} {
		err := s.Update(t.Context(), func(tx kernel.Tx) error {
			if _, err := tx.LockJobs([]perdure.JobID{idOf(2)}); err != nil {
				return err
			}
			return tx.Save(&kernel.Changes{Steps: []kernel.StepChange{{Now: &now, Loaded: &stale}}})
		})
		if !errors.Is(err, kernel.ErrStale) || stepRows(t, local, 2) != 3 {
			t.Errorf("a change of a stale row: %v, want ErrStale and 3 rows", err)
		}
	}
}

// If the transaction that stores an implicit row is rolled back, there is no row, and the next transaction stores it.
func TestImplicitStepsAreNotStoredByARollback(t *testing.T) {
	local, _ := twoStores(t)
	submitAsScheduler(t, local, waitingJob(1, 3))
	submitAsScheduler(t, local, waitingJob(2, 3))
	oops := errors.New("oops")
	changes := map[int]func(*kernel.Step){1: func(s *kernel.Step) { s.Phase, s.Run, s.Blockers = perdure.Running, 1, 0 }}
	write(t, local, 2, nil, changes, oops)
	if rows := stepRows(t, local, 2); rows != 1 {
		t.Errorf("%d rows after the rollback, want 1", rows)
	}
	write(t, local, 2, nil, changes, nil)
	if rows := stepRows(t, local, 2); rows != 2 {
		t.Errorf("%d rows after the commit, want 2", rows)
	}
}

// A shape has at most MaxImplicit implicit steps. The cache knows of a job's first MaxImplicitIndex steps whether they
// have rows.
func TestImplicitStepsAreBounded(t *testing.T) {
	local, _ := twoStores(t)
	far := func(n int) kernel.NewJob { // the index of the last step is not cached
		nj := waitingJob(n, cache.MaxImplicitIndex+1)
		for i, s := range nj.Steps[1:cache.MaxImplicitIndex] {
			if i%2 == 1 {
				s.Blockers = 0
			}
		}
		return nj
	}
	submitAsScheduler(t, local, waitingJob(1, cache.MaxImplicit+1), waitingJob(2, cache.MaxImplicit+2), far(3))
	submitAsScheduler(t, local, waitingJob(4, cache.MaxImplicit+1), waitingJob(5, cache.MaxImplicit+2), far(6))
	for n, want := range map[int]int{4: 1, 5: cache.MaxImplicit + 2, 6: cache.MaxImplicitIndex / 2} {
		if got := stepRows(t, local, n); got != want {
			t.Errorf("job %d has %d rows, want %d", n, got, want)
		}
	}
	dispatch := func(s *kernel.Step) { s.Phase, s.Run, s.Blockers = perdure.Running, 1, 0 }
	for range 2 { // the cache knows the first step, but not the second
		write(t, local, 6, nil, map[int]func(*kernel.Step){cache.MaxImplicitIndex - 1: dispatch, cache.MaxImplicitIndex: dispatch}, nil)
		dispatch = func(s *kernel.Step) { s.Phase = perdure.Settled }
	}
	if got := stepRows(t, local, 6); got != cache.MaxImplicitIndex/2+2 {
		t.Errorf("%d rows", got)
	}
}

// F016: a server that was restarted, or that has taken another's place, may have lost a shape. The store writes the
// shape again.
func TestShapesAreStoredAgainOnAnotherServer(t *testing.T) {
	local, _ := twoStores(t)
	submitAsScheduler(t, local, waitingJob(1, 3))
	if _, err := query(t.Context(), local, pgwire.New("delete from perdure.shape"), (*pgwire.Reader).Int); err != nil {
		t.Fatal(err)
	}
	local.cache.Shapes.Add(map[kernel.ShapeID][]cache.ImplicitStep{{}: nil}, time.UnixMicro(1))
	submitAsScheduler(t, local, waitingJob(2, 3))
	j, steps, err := local.Job(t.Context(), idOf(2), 5)
	if err != nil || len(steps) != 3 {
		t.Fatal(steps, err)
	}
	if text, err := local.Shape(t.Context(), j.Shape); err != nil || string(text) != "{}" {
		t.Errorf("the shape is %q, %v", text, err)
	}
}
