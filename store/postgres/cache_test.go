package postgres

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/pgtest"
)

// twoSteps returns a job whose two steps are both running.
func twoSteps(n int) kernel.NewJob {
	j := laneJob(n, 5)
	second := *j.Steps[0]
	second.Index, second.Name = 1, "t"
	j.Steps = append(j.Steps, &second)
	for _, s := range j.Steps {
		s.Phase, s.Run, s.LockedBy, s.LockedUntil = perdure.Running, 1, "h", time.UnixMicro(5_000_000).UTC()
	}
	j.Job.Unsettled, j.Job.Running, j.Job.Active = 2, 2, 0
	j.Job.Labels = map[string]string{"a": "b"}
	return j
}

// submitAsScheduler stores new jobs after a lock, which reads the clock and so identifies the server.
func submitAsScheduler(t *testing.T, s *Store, jobs ...kernel.NewJob) {
	t.Helper()
	err := s.Update(t.Context(), func(tx kernel.Tx) error {
		if _, err := tx.LockJobs([]perdure.JobID{idOf(9)}); err != nil {
			return err
		}
		return tx.Save(&kernel.Changes{NewJobs: jobs})
	})
	if err != nil {
		t.Fatal(err)
	}
}

func idOf(n int) perdure.JobID { return laneJob(n, 5).Job.ID }

// locked returns a job and its first two steps, as a transaction reads them under the job's lock.
func locked(t *testing.T, s *Store, n int) (j *kernel.Job, steps []*kernel.Step) {
	t.Helper()
	err := s.Update(t.Context(), func(tx kernel.Tx) error {
		jobs, err := tx.LockJobs([]perdure.JobID{idOf(n)})
		if err != nil {
			return err
		}
		j = jobs[0]
		steps, err = tx.Steps([]kernel.StepRef{{Job: j.ID}, {Job: j.ID, Index: 1}})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return j, steps
}

// write changes rows in a transaction under the job's lock, which then returns the error failure. It returns how often
// the transaction was tried.
func write(t *testing.T, s *Store, n int, job func(*kernel.Job), step map[int]func(*kernel.Step), failure error) (tries int) {
	t.Helper()
	err := s.Update(t.Context(), func(tx kernel.Tx) error {
		tries++
		jobs, err := tx.LockJobs([]perdure.JobID{idOf(n)})
		if err != nil {
			return err
		}
		var c kernel.Changes
		if job != nil {
			now := *jobs[0]
			job(&now)
			c.Jobs = append(c.Jobs, kernel.JobChange{Now: &now, Loaded: jobs[0]})
		}
		for i, edit := range step {
			steps, err := tx.Steps([]kernel.StepRef{{Job: idOf(n), Index: i}})
			if err != nil {
				return err
			}
			now := *steps[0]
			edit(&now)
			c.Steps = append(c.Steps, kernel.StepChange{Now: &now, Loaded: steps[0]})
		}
		return errors.Join(tx.Save(&c), failure)
	})
	if !errors.Is(err, failure) {
		t.Fatal(err)
	}
	return tries
}

func isCached(s *Store, n int) bool { return s.cache.Rows.Has(idOf(n)) }

// A transaction reads what others have written to any row, also if its process has the row in its cache (F018, F058,
// I6).
func TestCachedRowsAreComparedWithTheStore(t *testing.T) {
	until := time.UnixMicro(9_000_000).UTC()
	extend := func(s *kernel.Step) { s.LockedUntil = until }
	oops := errors.New("oops")
	for name, c := range map[string]struct {
		do     func(t *testing.T, a, b *Store, url string)
		check  func(j *kernel.Job, steps []*kernel.Step) bool
		cached bool // the cache still has the job
	}{
		"no change": {
			func(*testing.T, *Store, *Store, string) {},
			func(j *kernel.Job, steps []*kernel.Step) bool {
				return j.Labels["a"] == "b" && j.Unsettled == 2 && len(steps) == 2 && steps[1].Name == "t" && steps[1].LockedBy == "h"
			}, true},
		"a change of its own process": {
			func(t *testing.T, a, _ *Store, _ string) {
				write(t, a, 1, func(j *kernel.Job) { j.Active = 7 }, map[int]func(*kernel.Step){1: extend}, nil)
			},
			func(j *kernel.Job, steps []*kernel.Step) bool {
				return j.Active == 7 && steps[1].LockedUntil.Equal(until)
			}, true},
		"a change of the job by another process": {
			func(t *testing.T, _, b *Store, _ string) {
				write(t, b, 1, func(j *kernel.Job) { j.Active = 7 }, nil, nil)
			},
			func(j *kernel.Job, _ []*kernel.Step) bool { return j.Active == 7 }, true},
		"a heartbeat of the second step by another process": {
			func(t *testing.T, _, b *Store, _ string) {
				write(t, b, 1, nil, map[int]func(*kernel.Step){1: extend}, nil)
			},
			func(_ *kernel.Job, steps []*kernel.Step) bool { return steps[1].LockedUntil.Equal(until) }, true},
		"a heartbeat by a transaction that has not locked the job": {
			func(t *testing.T, _, b *Store, _ string) {
				err := b.Update(t.Context(), func(tx kernel.Tx) error {
					steps, err := tx.Steps([]kernel.StepRef{{Job: idOf(1), Index: 1}})
					if err != nil {
						return err
					}
					now := *steps[0]
					extend(&now)
					return tx.Save(&kernel.Changes{Steps: []kernel.StepChange{{Now: &now, Loaded: steps[0]}}})
				})
				if err != nil {
					t.Fatal(err)
				}
			},
			func(_ *kernel.Job, steps []*kernel.Step) bool { return steps[1].LockedUntil.Equal(until) }, true},
		"a change that was rolled back": {
			func(t *testing.T, a, _ *Store, _ string) {
				write(t, a, 1, func(j *kernel.Job) { j.Active = 7 }, map[int]func(*kernel.Step){0: extend, 1: extend}, oops)
			},
			func(j *kernel.Job, steps []*kernel.Step) bool {
				return j.Active == 0 && !steps[0].LockedUntil.Equal(until) && !steps[1].LockedUntil.Equal(until)
			}, false},
		"a manual change": {
			func(t *testing.T, _, _ *Store, url string) {
				conn, err := pgx.Connect(t.Context(), url)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close(context.WithoutCancel(t.Context()))
				if _, err := conn.Exec(t.Context(), "update perdure.step set failures = 3 where idx = 0"); err != nil {
					t.Fatal(err)
				}
			},
			func(_ *kernel.Job, steps []*kernel.Step) bool { return steps[0].Failures == 3 }, true},
		"another server": {
			func(_ *testing.T, a, _ *Store, _ string) { a.cache.Rows.UseServer(time.UnixMicro(1)) },
			func(j *kernel.Job, steps []*kernel.Step) bool { return j.Unsettled == 2 && steps[1].LockedBy == "h" }, false},
		"a settled job": {
			func(t *testing.T, a, _ *Store, _ string) {
				write(t, a, 1, func(j *kernel.Job) { j.Phase = perdure.Settled }, nil, nil)
			},
			func(j *kernel.Job, _ []*kernel.Step) bool { return j.Phase == perdure.Settled }, false},
	} {
		t.Run(name, func(t *testing.T) {
			url := pgtest.Start(t)
			a, b := slowLanes(t, url, time.Hour), slowLanes(t, url, time.Hour)
			submitAsScheduler(t, a, twoSteps(1))
			locked(t, b, 1)
			c.do(t, a, b, url)
			if got := isCached(a, 1); got != c.cached {
				t.Errorf("the job is cached: %v", got)
			}
			if j, steps := locked(t, a, 1); !c.check(j, steps) {
				t.Errorf("read under the lock: %+v %+v %+v", j, steps[0], steps[1])
			}
		})
	}
}

// A transaction that waited for a lock reads what the previous holder of the lock wrote, not its cached rows (F058).
func TestCachedRowsAreComparedAfterALockWait(t *testing.T) {
	url := pgtest.Start(t)
	a, b := slowLanes(t, url, time.Hour), slowLanes(t, url, time.Hour)
	submitAsScheduler(t, a, twoSteps(1))
	held, waits := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		err := b.Update(t.Context(), func(tx kernel.Tx) error {
			jobs, err := tx.LockJobs([]perdure.JobID{idOf(1)})
			if err != nil {
				return err
			}
			close(held)
			<-waits
			time.Sleep(50 * time.Millisecond)
			now := *jobs[0]
			now.Active = 7
			return tx.Save(&kernel.Changes{Jobs: []kernel.JobChange{{Now: &now, Loaded: jobs[0]}}})
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-held
	if !isCached(a, 1) {
		t.Fatal("the job is not cached")
	}
	close(waits)
	if j, _ := locked(t, a, 1); j.Active != 7 {
		t.Errorf("read after the wait: %+v, want Active 7", j)
	}
	wg.Wait()
}

// The cache keeps no large input, and TryLockJobs skips cached rows that another transaction has locked.
func TestCacheKeepsNoLargeInputAndSkipsLockedRows(t *testing.T) {
	url := pgtest.Start(t)
	a, b := slowLanes(t, url, time.Hour), slowLanes(t, url, time.Hour)
	one, two := twoSteps(1), twoSteps(2)
	one.Job.Input = slices.Repeat([]byte(" "), perdure.MaxInlineInput+1)
	submitAsScheduler(t, a, one, two)
	if !isCached(a, 1) || !isCached(a, 2) {
		t.Fatal("the jobs are not cached")
	}
	err := b.Update(t.Context(), func(tx kernel.Tx) error {
		if _, err := tx.LockJobs([]perdure.JobID{idOf(2)}); err != nil {
			return err
		}
		return a.Update(t.Context(), func(tx kernel.Tx) error {
			jobs, err := tx.TryLockJobs([]perdure.JobID{idOf(1), idOf(2)})
			if err == nil && (len(jobs) != 1 || jobs[0].ID != idOf(1) || !jobs[0].InputStoredApart || jobs[0].Input != nil) {
				t.Errorf("TryLockJobs returns %+v, want job 1 without its input", jobs)
			}
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}
