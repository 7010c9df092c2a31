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

// waitingJob is a job as it is submitted: so many steps, each of which waits for the one before.
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

// here and there are two processes on one database.
func twoStores(t *testing.T) (here, there *Store) {
	t.Helper()
	url := pgtest.Start(t)
	if _, _, err := Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	for _, s := range []**Store{&here, &there} {
		var err error
		if *s, err = Open(t.Context(), url); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { (*s).Close() })
	}
	return here, there
}

// A step that waits for others at first has no row until something changes it, if its shape has the values of the row.
// Every reader reads it as it was submitted.
func TestImplicitStepsAreReadAsSubmitted(t *testing.T) {
	here, there := twoStores(t)
	submitAsScheduler(t, here, waitingJob(1, 4))
	submitAsScheduler(t, here, waitingJob(2, 4), waitingJob(3, 4))
	odd := waitingJob(4, 4)
	odd.Steps[1].Blockers, odd.Steps[2].Name = 2, "other"
	submitAsScheduler(t, here, odd)
	submitAsScheduler(t, there, waitingJob(5, 4))
	submitAsScheduler(t, there, waitingJob(6, 4))
	settled := waitingJob(7, 4)
	settled.Job.Phase = perdure.Settled
	submitAsScheduler(t, here, settled)
	for n, want := range map[int]int{1: 4, 2: 1, 3: 1, 4: 3, 5: 4, 6: 1, 7: 4} {
		if got := stepRows(t, here, n); got != want {
			t.Errorf("job %d has %d rows, not %d", n, got, want)
		}
	}
	for n, nj := range map[int]kernel.NewJob{1: waitingJob(1, 4), 2: waitingJob(2, 4), 4: odd, 6: waitingJob(6, 4), 7: settled} {
		for name, s := range map[string]*Store{"here": here, "there": there} {
			same := func(what string, got []*kernel.Step, err error, want ...*kernel.Step) {
				if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" || err != nil {
					t.Errorf("%s of job %d, %s: %v\n%s", what, n, name, err, diff)
				}
			}
			j, got, err := s.Job(t.Context(), idOf(n), 10)
			same("Job", got, err, nj.Steps...)
			if j.Unsettled != 4 {
				t.Errorf("%+v", j)
			}
			_, got, err = s.Job(t.Context(), idOf(n), 3)
			same("Job, cut", got, err, nj.Steps[:3]...)
			got, err = s.StepsOf(t.Context(), idOf(n), time.Time{})
			same("StepsOf", got, err, nj.Steps...)
			got, err = s.StepsOf(t.Context(), idOf(n), nj.Job.CreatedAt)
			same("StepsOf since", got, err, nj.Steps[1:]...)
			got, err = s.StepsOf(t.Context(), idOf(n), nj.Job.CreatedAt.Add(time.Microsecond))
			same("StepsOf since then", got, err)
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
	all, err := first(query(t.Context(), here, pgwire.New("select count(*) from perdure.steps where phase = 'waiting' and blockers = 1 and updated_at is not null and job_id = $1").
		UUID(idOf(2)), (*pgwire.Reader).Int))
	if err != nil || all != 3 {
		t.Errorf("the view shows %d of 3 steps that wait (%v)", all, err)
	}
	if faults, err := here.Check(t.Context()); err != nil || len(faults) > 0 {
		t.Errorf("%v, %v", faults, err)
	}
}

// An implicit row is stored when a step first changes. The transaction may know that there is no row, or may have only
// read the implicit one. It is refused if another transaction has stored the row meanwhile.
func TestImplicitStepsAreStoredWhenTheyChange(t *testing.T) {
	here, there := twoStores(t)
	submitAsScheduler(t, here, waitingJob(1, 4))
	submitAsScheduler(t, here, waitingJob(2, 4), waitingJob(3, 4))
	out := func(s *kernel.Step) {
		s.Phase, s.Agent, s.Run, s.LockedBy, s.Blockers = perdure.Running, "a", 1, "h", 0
	}
	fewer := func(s *kernel.Step) { s.Blockers, s.Progress = 2, "{}" }
	plain := func(s *kernel.Step) { s.Blockers, s.Progress = 1, "" }
	sees := func(s *Store, n, place int, want func(*kernel.Step)) {
		t.Helper()
		is := *waitingJob(n, 4).Steps[place]
		want(&is)
		_, got, err := s.Job(t.Context(), idOf(n), 10)
		if err != nil || len(got) != 4 || !cmp.Equal(*got[place], is) {
			t.Errorf("%v: %s", err, cmp.Diff(is, *got[place]))
		}
	}
	for n, s := range map[int]*Store{2: here, 3: there} {
		write(t, s, n, nil, map[int]func(*kernel.Step){1: out, 3: fewer}, nil)
		if rows := stepRows(t, here, n); rows != 3 {
			t.Errorf("%d rows of job %d", rows, n)
		}
		for _, s := range []*Store{here, there} {
			sees(s, n, 1, out)
			sees(s, n, 2, func(*kernel.Step) {})
			sees(s, n, 3, fewer)
		}
	}
	// It is there, and waits as one that may not be: all that has changed is written, also to nothing again.
	for _, s := range []*Store{here, there} {
		if n := write(t, s, 2, nil, map[int]func(*kernel.Step){3: plain}, nil); n != 1 {
			t.Errorf("tried %d times", n)
		}
		sees(here, 2, 3, plain)
		write(t, s, 2, nil, map[int]func(*kernel.Step){3: fewer}, nil)
		sees(there, 2, 3, fewer)
	}
	if n := write(t, here, 3, nil, map[int]func(*kernel.Step){3: func(*kernel.Step) {}}, nil); n != 1 { // it is as it was
		t.Errorf("tried %d times", n)
	}
	// What is not as it was read is not written.
	stale := *waitingJob(2, 4).Steps[1]
	now := stale
	out(&now)
	for _, s := range []*Store{here, there} {
		err := s.Update(t.Context(), func(tx kernel.Tx) error {
			if _, err := tx.LockJobs([]perdure.JobID{idOf(2)}); err != nil {
				return err
			}
			return tx.Save(&kernel.Changes{Steps: []kernel.StepChange{{Now: &now, Loaded: &stale}}})
		})
		if !errors.Is(err, kernel.ErrStale) || stepRows(t, here, 2) != 3 {
			t.Errorf("%v", err)
		}
	}
}

// What a transaction that is rolled back has made is not there, and is made by the next.
func TestImplicitStepsAreNotStoredByARollback(t *testing.T) {
	here, _ := twoStores(t)
	submitAsScheduler(t, here, waitingJob(1, 3))
	submitAsScheduler(t, here, waitingJob(2, 3))
	oops := errors.New("oops")
	out := map[int]func(*kernel.Step){1: func(s *kernel.Step) { s.Phase, s.Run, s.Blockers = perdure.Running, 1, 0 }}
	write(t, here, 2, nil, out, oops)
	if rows := stepRows(t, here, 2); rows != 1 {
		t.Errorf("%d rows", rows)
	}
	write(t, here, 2, nil, out, nil)
	if rows := stepRows(t, here, 2); rows != 2 {
		t.Errorf("%d rows", rows)
	}
}

// Of a shape no more than maxLater steps are made later, and of a job's first maxUnmade steps it is known that they
// have no row.
func TestImplicitStepsAreBounded(t *testing.T) {
	here, _ := twoStores(t)
	far := func(n int) kernel.NewJob { // the last step is further than is kept
		nj := waitingJob(n, cache.MaxImplicitIndex+1)
		for i, s := range nj.Steps[1:cache.MaxImplicitIndex] {
			if i%2 == 1 {
				s.Blockers = 0
			}
		}
		return nj
	}
	submitAsScheduler(t, here, waitingJob(1, cache.MaxImplicit+1), waitingJob(2, cache.MaxImplicit+2), far(3))
	submitAsScheduler(t, here, waitingJob(4, cache.MaxImplicit+1), waitingJob(5, cache.MaxImplicit+2), far(6))
	for n, want := range map[int]int{4: 1, 5: cache.MaxImplicit + 2, 6: cache.MaxImplicitIndex / 2} {
		if got := stepRows(t, here, n); got != want {
			t.Errorf("job %d has %d rows, not %d", n, got, want)
		}
	}
	out := func(s *kernel.Step) { s.Phase, s.Run, s.Blockers = perdure.Running, 1, 0 }
	for range 2 { // of the first it is known, of the second not
		write(t, here, 6, nil, map[int]func(*kernel.Step){cache.MaxImplicitIndex - 1: out, cache.MaxImplicitIndex: out}, nil)
		out = func(s *kernel.Step) { s.Phase = perdure.Settled }
	}
	if got := stepRows(t, here, 6); got != cache.MaxImplicitIndex/2+2 {
		t.Errorf("%d rows", got)
	}
}

// F016: a server that has been started, or has taken another's place, may have lost a shape: it is written once more.
func TestShapesAreStoredAgainOnAnotherServer(t *testing.T) {
	here, _ := twoStores(t)
	submitAsScheduler(t, here, waitingJob(1, 3))
	if _, err := query(t.Context(), here, pgwire.New("delete from perdure.shape"), (*pgwire.Reader).Int); err != nil {
		t.Fatal(err)
	}
	here.cache.Shapes.Add(map[kernel.ShapeID][]cache.ImplicitStep{{}: nil}, time.UnixMicro(1))
	submitAsScheduler(t, here, waitingJob(2, 3))
	j, steps, err := here.Job(t.Context(), idOf(2), 5)
	if err != nil || len(steps) != 3 {
		t.Fatal(steps, err)
	}
	if text, err := here.Shape(t.Context(), j.Shape); err != nil || string(text) != "{}" {
		t.Errorf("%q, %v", text, err)
	}
}
