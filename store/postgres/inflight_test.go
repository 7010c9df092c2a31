package postgres_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres"
)

// runTogether dispatches steps of these jobs in one transaction.
func runTogether(t *testing.T, s *postgres.Store, until time.Time, jobs ...kernel.NewJob) {
	t.Helper()
	changeSteps(t, s, func(st *kernel.Step) {
		st.Phase, st.Run, st.LockedBy, st.Request, st.LockedUntil = perdure.Running, st.Run+1, "h", "r", until
	}, jobs...)
}

func changeSteps(t *testing.T, s *postgres.Store, edit func(*kernel.Step), jobs ...kernel.NewJob) {
	t.Helper()
	if err := s.Update(t.Context(), func(tx kernel.Tx) error {
		var c kernel.Changes
		for _, nj := range jobs {
			if _, err := tx.LockJobs([]perdure.JobID{nj.Job.ID}); err != nil {
				return err
			}
			steps, err := tx.StepsOf(nj.Job.ID)
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

func ended(st *kernel.Step) { st.Phase = perdure.Settled }

func runSets(t *testing.T, url string) string {
	t.Helper()
	return fmt.Sprint(row(t, url, "select count(*), coalesce(sum(cardinality(jobs)), 0)::int, min(until_at) from perdure.out")...)
}

func sweep(t *testing.T, s *postgres.Store, now time.Time) (found int) {
	t.Helper()
	if err := s.Update(t.Context(), func(tx kernel.Tx) error {
		refs, err := tx.Expired(now, 1000)
		found = len(refs)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

// Runs that are dispatched together are one row. The process that wrote the row deletes it with its last run. If another
// process ended the runs, a due scan deletes the row when its time has come, or sets its time again if a run in it is
// still in flight.
func TestRunSetsAreUpdatedAndDeleted(t *testing.T) {
	url := fresh(t)
	a, b := open(t, url), open(t, url)
	at := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
	want := func(what string, n, members int, until any) {
		t.Helper()
		if got, want := runSets(t, url), fmt.Sprint(n, members, until); got != want {
			t.Errorf("%s: %s; want %s", what, got, want)
		}
	}
	jobs := []kernel.NewJob{job(1, ""), job(2, ""), job(3, "")}
	mustSubmit(t, a, jobs...)
	want("before", 0, 0, nil)
	runTogether(t, a, at, jobs...)
	want("dispatched", 1, 3, at)
	changeSteps(t, a, ended, jobs[0], jobs[1])
	want("one run is left", 1, 3, at)
	changeSteps(t, a, ended, jobs[2])
	want("no run is left", 0, 0, nil)

	again := func(st *kernel.Step) { st.Phase = perdure.Ready }
	changeSteps(t, a, again, jobs...)
	runTogether(t, a, at, jobs...)
	changeSteps(t, b, func(st *kernel.Step) { st.LockedUntil = at.Add(time.Minute) }, jobs[0])
	changeSteps(t, b, ended, jobs[1], jobs[2])
	want("another process has ended two runs", 1, 3, at)
	if n := sweep(t, b, at.Add(-2*time.Second)); n != 0 {
		t.Errorf("%d expired", n)
	}
	want("swept two seconds before its time", 1, 3, at)
	if l, err := b.Poll(t.Context(), nil); err != nil || !l.Next.Equal(at) { // Poll returns the time of the row, not that of its runs
		t.Errorf("Poll returns %v; Next is %v", err, l.Next)
	}
	if n := sweep(t, b, at.Add(-time.Second)); n != 0 {
		t.Errorf("%d expired", n)
	}
	want("swept a second before its time", 1, 3, at.Add(time.Minute))
	if l, err := b.Poll(t.Context(), nil); err != nil || !l.Next.Equal(at.Add(time.Minute)) {
		t.Errorf("Poll returns %v; Next is %v", err, l.Next)
	}
	changeSteps(t, b, ended, jobs[0])
	want("another process has ended the last run", 1, 3, at.Add(time.Minute))
	sweep(t, a, at.Add(time.Hour))
	want("swept after its time", 0, 0, nil)
}

// The transaction that inserts a key first owns it. Another transaction with the key waits for it. Then it finds the
// key, or owns it if the first one was rolled back (F002).
func TestKeyBelongsToItsFirstTransaction(t *testing.T) {
	url := fresh(t)
	a, b := open(t, url), open(t, url)
	for n, fail := range []error{nil, errors.New("oops")} {
		key := fmt.Sprint("key-", n)
		one, two := job(10*n+1, key), job(10*n+2, key)
		inserted := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			err := a.Update(t.Context(), func(tx kernel.Tx) error {
				err := tx.Save(&kernel.Changes{NewJobs: []kernel.NewJob{one}})
				_, sent := tx.StepsOf(one.Job.ID)
				close(inserted)
				time.Sleep(100 * time.Millisecond)
				return errors.Join(err, sent, fail)
			})
			if !errors.Is(err, fail) {
				t.Error(err)
			}
		})
		<-inserted
		tries := 0
		var known map[string]kernel.Keyed
		if err := b.Update(t.Context(), func(tx kernel.Tx) (err error) {
			if tries++; tries > 1 {
				known, err = tx.JobsByKey([]string{key})
				return err
			}
			return tx.Save(&kernel.Changes{NewJobs: []kernel.NewJob{job(10*n+3, ""), two}})
		}); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if fail == nil && (tries != 2 || known[key].ID != one.Job.ID) || fail != nil && tries != 1 {
			t.Errorf("%d tries, %v", tries, known)
		}
	}
}
