package storetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

var raceChecks = []check{
	{"Race/NoUpdateIsLost", raceOneJob},
	{"Race/SameKeyIsOneJob", raceSameKey},
	{"Race/DeadlockIsRetried", raceDeadlock},
	{"Race/TimeIsReadAfterLock", raceTimeAfterLock},
	{"Race/TryLockSkipsLockedRows", raceTryLock},
	{"Race/RepeatedClaimFindsItsRuns", raceRepeatedClaim},
	{"Race/GrantedDoesNotLockTheClaim", raceGrantedClaim},
	{"Race/LimitIsNotExceeded", raceLimit},
	{"Race/LimitIsCountedAfterLock", raceLimitCountedAfterLock},
}

// concurrently runs n calls of fn at the same time, and waits for them.
func (s *suite) concurrently(n int, fn func(i int) error) {
	s.Helper()
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() { errs[i] = fn(i) })
	}
	wg.Wait()
	for _, err := range errs {
		s.must(err)
	}
}

// The holder of a job's lock is alone with the row: no update is lost.
func raceOneJob(s *suite) {
	s.submit(newJob(1, 1))
	const goroutines, each = 8, 10
	s.concurrently(goroutines, func(int) error {
		for range each {
			err := s.store.Update(ctx, func(tx kernel.Tx) error {
				jobs, err := tx.LockJobs(ids(1))
				if err != nil {
					return err
				}
				return tx.Save(&kernel.Changes{
					Jobs:    []kernel.JobChange{editJob(jobs[0], func(j *kernel.Job) { j.Unsettled++ })},
					History: []kernel.Entry{{Job: id(1), At: at(0), Event: "failed"}},
				})
			})
			if err != nil {
				return err
			}
			if j, _, err := s.store.Job(ctx, id(1), 0); err != nil || j.Unsettled < 2 {
				return fmt.Errorf("read %+v, %w", j, err)
			}
		}
		return nil
	})
	s.equal("count", s.job(1).Unsettled, 1+goroutines*each)
	entries, err := s.store.History(ctx, id(1), 0, 1000)
	s.must(err)
	s.equal("entries", len(entries), goroutines*each)
}

// Equal submissions at the same time create one job (F002).
func raceSameKey(s *suite) {
	const n = 8
	answers := make([]perdure.JobID, n)
	s.concurrently(n, func(i int) error {
		return s.store.Update(ctx, func(tx kernel.Tx) error {
			byKey, err := tx.JobsByKey([]string{"k"})
			if err != nil || !byKey["k"].ID.IsZero() {
				answers[i] = byKey["k"].ID
				return err
			}
			answers[i] = id(i)
			return tx.Save(&kernel.Changes{NewJobs: []kernel.NewJob{newJob(i, 1, keyed("k"))}})
		})
	})
	for _, a := range answers {
		s.equal("answer", a, answers[0])
	}
	jobs, _, err := s.store.ListJobs(ctx, kernel.JobFilter{})
	s.must(err)
	s.equal("jobs", len(jobs), 1)
}

// A deadlock is never returned to the caller (F101).
func raceDeadlock(s *suite) {
	s.submit(newJob(1, 1), newJob(2, 1))
	s.concurrently(6, func(i int) error {
		for range 5 {
			err := s.store.Update(ctx, func(tx kernel.Tx) error {
				for _, n := range []int{1 + i%2, 2 - i%2} {
					jobs, err := tx.LockJobs(ids(n))
					if err != nil {
						return err
					}
					if err := tx.Save(&kernel.Changes{Jobs: []kernel.JobChange{editJob(jobs[0], func(j *kernel.Job) { j.Active++ })}}); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	s.equal("one", s.job(1).Active, 1+30)
	s.equal("two", s.job(2).Active, 1+30)
}

// A transaction that waited for a lock reads a later time than the previous holder did (F058).
func raceTimeAfterLock(s *suite) {
	s.submit(newJob(1, 1))
	held := make(chan struct{})
	var first time.Time
	s.concurrently(2, func(i int) error {
		if i == 1 {
			<-held
		}
		return s.store.Update(ctx, func(tx kernel.Tx) error {
			if _, err := tx.LockJobs(ids(1)); err != nil {
				return err
			}
			if i == 0 {
				close(held)
				time.Sleep(50 * time.Millisecond)
			}
			now, err := tx.Now()
			if i == 0 {
				first = now
			} else if now.Before(first) {
				s.Errorf("time %v, but the lock was held until %v", now, first)
			}
			return err
		})
	})
}

// TryLockJobs returns a row only if no other transaction has locked it.
func raceTryLock(s *suite) {
	s.submit(newJob(1, 1), newJob(2, 1))
	held := make(chan struct{})
	var freed atomic.Bool
	s.concurrently(2, func(i int) error {
		if i == 1 {
			<-held
		}
		return s.store.Update(ctx, func(tx kernel.Tx) error {
			if i == 0 {
				_, err := tx.LockJobs(ids(1))
				close(held)
				time.Sleep(50 * time.Millisecond)
				freed.Store(true)
				return err
			}
			jobs, err := tx.TryLockJobs(ids(1, 2))
			if err != nil {
				return err
			}
			if len(jobs) == 0 || jobs[len(jobs)-1].ID != id(2) || len(jobs) == 2 && !freed.Load() {
				return fmt.Errorf("got %d jobs; lock released: %v", len(jobs), freed.Load())
			}
			return nil
		})
	})
}

// Two transactions search for the same claim. The later one finds the runs that the earlier one grants, or gets
// ErrLocked; it never finds nothing. A transaction that searches for another claim is not affected (F155).
func raceRepeatedClaim(s *suite) {
	s.submit(newJob(1, 1))
	const locking, same, other = 0, 1, 2
	held := make(chan struct{})
	granted := sync.OnceFunc(func() { close(held) })
	s.concurrently(3, func(i int) error {
		if i != locking {
			<-held
		}
		return s.store.Update(ctx, func(tx kernel.Tx) error {
			request := map[bool]string{false: "r", true: "other"}[i == other]
			refs, err := tx.HeldBy("h", "http", request, 10)
			switch {
			case i == same && errors.Is(err, kernel.ErrLocked):
				return nil
			case err != nil || i == other:
				return err
			case i == same:
				if len(refs) != 1 {
					return fmt.Errorf("%d runs, without an error", len(refs))
				}
				return nil
			}
			jobs, err := tx.LockJobs(ids(1))
			if err != nil || len(jobs) != 1 {
				return fmt.Errorf("%d jobs, %w", len(jobs), err)
			}
			steps, err := tx.Steps([]kernel.StepRef{ref(1, 0)})
			if err != nil {
				return err
			}
			if err := tx.Save(&kernel.Changes{Steps: []kernel.StepChange{editStep(steps[0], run("h", "r", at(time.Minute)))}}); err != nil {
				return err
			}
			granted()
			time.Sleep(50 * time.Millisecond)
			return nil
		})
	})
	checkTx(s, "held", []kernel.StepRef{ref(1, 0)}, func(tx kernel.Tx) ([]kernel.StepRef, error) { return tx.HeldBy("h", "http", "r", 10) })
}

// A transaction that has called Granted for a claim does not lock the claim for others (F155).
func raceGrantedClaim(s *suite) {
	searched := make(chan struct{})
	s.concurrently(2, func(i int) error {
		if i == 1 {
			<-searched
		}
		tried := sync.OnceFunc(func() { close(searched) })
		return s.store.Update(ctx, func(tx kernel.Tx) error {
			if i == 1 {
				_, err := tx.HeldBy("h", "http", "r", 10)
				return err
			}
			_, err := tx.Granted("h", "http", "r", 10)
			tried()
			time.Sleep(50 * time.Millisecond)
			return err
		})
	})
}

// Under the limit's lock, never more permits are given than the limit allows (I12).
func raceLimit(s *suite) {
	const jobs, most = 12, 3
	var c kernel.Changes
	for i := range jobs {
		c.NewJobs = append(c.NewJobs, newJob(i, 1))
	}
	s.save(&c)
	s.update(func(tx kernel.Tx) { s.must(tx.PutLimit(atMost("agent:http", most))) })
	s.concurrently(jobs, func(i int) error {
		return s.store.Update(ctx, func(tx kernel.Tx) error {
			if _, err := tx.LockJobs(ids(i)); err != nil {
				return err
			}
			limits, err := tx.LockLimits([]string{"agent:http"})
			if err != nil || limits[0].Used >= limits[0].Max {
				return err
			}
			steps, err := tx.Steps(refs(i, 0))
			if err != nil {
				return err
			}
			return tx.Save(&kernel.Changes{Steps: []kernel.StepChange{editStep(steps[0], run("h", "", at(time.Minute)))}})
		})
	})
	s.use("agent:http", 0, most)
}

// A transaction that waits for a limit's lock counts the permits after it has the lock, including those given while it
// waited (I12).
func raceLimitCountedAfterLock(s *suite) {
	s.submit(newJob(1, 1))
	s.update(func(tx kernel.Tx) { s.must(tx.PutLimit(atMost("agent:http", 1))) })
	locked := make(chan struct{})
	var once sync.Once
	lock := func(tx kernel.Tx) (int, error) {
		limits, err := tx.LockLimits([]string{"agent:http"})
		if err != nil {
			return 0, err
		}
		return limits[0].Used, nil
	}
	s.concurrently(2, func(i int) error {
		if i == 1 {
			<-locked
			return s.store.Update(ctx, func(tx kernel.Tx) error {
				if used, err := lock(tx); err != nil || used != 1 {
					return fmt.Errorf("counted %d permits, but one run is in flight (%w)", used, err)
				}
				return nil
			})
		}
		return s.store.Update(ctx, func(tx kernel.Tx) error {
			if _, err := tx.LockJobs(ids(1)); err != nil {
				return err
			}
			if _, err := lock(tx); err != nil {
				return err
			}
			once.Do(func() { close(locked) })
			time.Sleep(100 * time.Millisecond) // until the other transaction waits for the lock
			steps, err := tx.Steps(refs(1, 0))
			if err != nil {
				return err
			}
			return tx.Save(&kernel.Changes{Steps: []kernel.StepChange{editStep(steps[0], run("h", "", at(time.Minute)))}})
		})
	})
}
