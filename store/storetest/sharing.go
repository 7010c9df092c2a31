package storetest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// Rows that a store keeps together are changed by several transactions at the same time, and rolled back.
var sharedChecks = []check{
	{"InFlight/UnchangedByRollback", inFlightRollback},
	{"InFlight/LastRunsEndConcurrently", inFlightEndConcurrently},
	{"Permits/CountedWhileLimitsChange", permitsWhileLimitsChange},
	{"Race/NoStepOfALaneIsLost", raceLanes},
}

// After a rollback everything is found as before.
func inFlightRollback(s *suite) {
	s.submit(newJob(1, 2))
	s.changeSteps(run("h", "r", at(time.Minute)), ref(1, 0))
	for range 2 {
		_ = s.store.Update(ctx, func(tx kernel.Tx) error {
			_, err := tx.Ready("http", 10, nil, nil)
			s.must(err)
			s.must(tx.Save(&kernel.Changes{Steps: []kernel.StepChange{
				editStep(s.one(ref(1, 0), tx), settle), editStep(s.one(ref(1, 1), tx), run("h", "r2", at(time.Hour)))}}))
			_, err = tx.Expired(at(time.Hour), 10)
			s.must(err)
			return errOops
		})
		s.held("h", "", "", 1, 0)
		s.ready("ready after the rollback", "http", 10, nil, refs(1, 1))
		s.expired(time.Hour, 10, 1, 0)
		s.next(at(time.Minute))
	}
}

// While limits are set and deleted, the count of an existing limit is that of its held permits (I12).
func permitsWhileLimitsChange(s *suite) {
	const jobs, rounds = 6, 12
	var c kernel.Changes
	for i := range jobs {
		c.NewJobs = append(c.NewJobs, newJob(i, 1))
	}
	s.save(&c)
	s.concurrently(jobs+2, func(i int) error {
		for n := range rounds {
			err := s.store.Update(ctx, func(tx kernel.Tx) error {
				if i >= jobs {
					name := []string{"agent:http", "job:order"}[i-jobs]
					if n%2 == 0 {
						return tx.PutLimit(atMost(name, 100))
					}
					_, err := tx.DeleteLimit(name)
					return err
				}
				locked, err := tx.LockJobs(ids(i))
				if err != nil {
					return err
				}
				steps, err := tx.Steps(refs(i, 0))
				if err != nil {
					return err
				}
				edit := run("h", "", at(time.Minute))
				if steps[0].Phase == perdure.Running {
					edit = func(st *kernel.Step) { st.Phase = perdure.Ready }
				}
				return tx.Save(&kernel.Changes{
					Jobs:  []kernel.JobChange{editJob(locked[0], func(j *kernel.Job) { j.HasPermit = !j.HasPermit })},
					Steps: []kernel.StepChange{editStep(steps[0], edit)},
				})
			})
			if err != nil {
				return err
			}
			time.Sleep(rand.N(2 * time.Millisecond))
		}
		return nil
	})
	// After an even number of rounds each job is in its first state, and the limits are deleted. Now half of the steps
	// are dispatched.
	for i := range jobs / 2 {
		s.changeStep(ref(i, 0), run("h", "", at(time.Minute)))
		s.changeJob(i, permitted)
	}
	s.update(func(tx kernel.Tx) {
		s.must(tx.PutLimit(atMost("agent:http", 100)))
		s.must(tx.PutLimit(atMost("job:order", 100)))
	})
	s.use("agent:http", 0, jobs/2)
	s.use("job:order", 0, jobs/2)
	s.update(func(tx kernel.Tx) {
		limits, err := tx.LockLimits([]string{"agent:http", "job:order"})
		s.must(err)
		s.equal("used", limits, []kernel.Limit{used(atMost("agent:http", 100), jobs/2), used(atMost("job:order", 100), jobs/2)})
	})
}

// While steps become ready in lanes, are dispatched and end, no step is lost: each lane with a step exists, and each
// lane that is closed for a key is opened when the key has room. No key has more runs than its limit allows (L5, I12).
func raceLanes(s *suite) {
	const jobs, keys, most, workers = 240, 5, 2, 2
	s.update(func(tx kernel.Tx) {
		s.must(tx.PutLimit(kernel.Limit{Name: "ads", Max: kernel.Unbounded, PerKey: most}))
	})
	var made, settled atomic.Int64
	deadline := time.Now().Add(time.Minute)
	s.concurrently(3*workers, func(i int) error {
		for settled.Load() < jobs {
			if time.Now().After(deadline) {
				return fmt.Errorf("%d of %d jobs have settled after a minute", settled.Load(), jobs)
			}
			var err error
			switch i % 3 {
			case 0:
				n := int(made.Add(1)) - 1
				if n >= jobs {
					return nil
				}
				err = s.store.Update(ctx, func(tx kernel.Tx) error {
					return tx.Save(&kernel.Changes{NewJobs: []kernel.NewJob{withNeeds(adsNeed(fmt.Sprint(n%keys)), newJob(n, 1, priority(n%3)))}})
				})
			case 1:
				err = s.store.Update(ctx, func(tx kernel.Tx) error { return dispatchFromLanes(tx, most) })
			case 2:
				var ended int
				err = s.store.Update(ctx, func(tx kernel.Tx) (err error) {
					ended, err = endRunsOfLanes(tx)
					return err
				})
				if err == nil {
					settled.Add(int64(ended))
				}
			}
			if err != nil && !errors.Is(err, kernel.ErrStale) {
				return err
			}
		}
		return nil
	})
	s.checkConsistent()
	s.use("ads", 0, 0)
	s.ready("all are settled", "http", 9, nil, nil)
}

// dispatchFromLanes dispatches the steps that it finds, as far as their keys have room, and closes the lanes of the
// others.
func dispatchFromLanes(tx kernel.Tx, most int) error {
	found, err := tx.Ready("http", 6, nil, nil)
	if err != nil || len(found) == 0 {
		return err
	}
	if _, err := tx.LockLimits([]string{"ads"}); err != nil {
		return err
	}
	var of []perdure.JobID
	for _, r := range found {
		of = append(of, r.Job)
	}
	locked, err := tx.TryLockJobs(of)
	if err != nil {
		return err
	}
	found = found[:0]
	for _, j := range locked {
		found = append(found, kernel.StepRef{Job: j.ID})
	}
	steps, err := tx.Steps(found)
	if err != nil {
		return err
	}
	var c kernel.Changes
	for _, st := range steps {
		k := st.Needs.List()[0].LimitKey
		used, err := tx.KeyUse([]kernel.LimitKey{k})
		switch {
		case err != nil:
			return err
		case st.Phase != perdure.Ready:
			continue
		case used[k].Used >= most:
			c.CloseLanes = append(c.CloseLanes, kernel.ClosedLane{LaneRef: laneOf(k.Key), For: k})
			continue
		}
		if err := tx.Save(&kernel.Changes{Steps: []kernel.StepChange{editStep(st, run("h", "", at(time.Hour)))}}); err != nil {
			return err
		}
	}
	return tx.Save(&c)
}

// endRunsOfLanes ends the runs in flight, and opens the lanes that wait for their permits.
func endRunsOfLanes(tx kernel.Tx) (ended int, err error) {
	dispatched, err := tx.HeldBy("h", "", "", 4)
	if err != nil || len(dispatched) == 0 {
		return 0, err
	}
	var of []perdure.JobID
	for _, r := range dispatched {
		of = append(of, r.Job)
	}
	locked, err := tx.TryLockJobs(of)
	if err != nil {
		return 0, err
	}
	dispatched = dispatched[:0]
	for _, j := range locked {
		dispatched = append(dispatched, kernel.StepRef{Job: j.ID})
	}
	steps, err := tx.Steps(dispatched)
	if err != nil {
		return 0, err
	}
	var c kernel.Changes
	keys := map[kernel.LimitKey]bool{}
	for _, st := range steps {
		if st.Phase == perdure.Running {
			keys[st.Needs.List()[0].LimitKey] = true
			c.Steps = append(c.Steps, editStep(st, settle))
		}
	}
	if err := tx.Save(&c); err != nil {
		return 0, err
	}
	if _, err := tx.LockLimits([]string{"ads"}); err != nil {
		return 0, err
	}
	_, err = tx.OpenLanes(slices.SortedFunc(maps.Keys(keys), kernel.LimitKey.Compare), 9)
	return len(c.Steps), err
}

// Two transactions may end the last two of the runs that were dispatched together.
func inFlightEndConcurrently(s *suite) {
	for n := range 10 {
		s.submit(newJob(2*n, 1), newJob(2*n+1, 1))
		s.changeSteps(run("h", "r", at(time.Minute)), ref(2*n, 0), ref(2*n+1, 0))
		s.concurrently(2, func(i int) error {
			return s.store.Update(ctx, func(tx kernel.Tx) error {
				if _, err := tx.LockJobs(ids(2*n + i)); err != nil {
					return err
				}
				steps, err := tx.Steps(refs(2*n+i, 0))
				if err != nil {
					return err
				}
				return tx.Save(&kernel.Changes{Steps: []kernel.StepChange{editStep(steps[0], settle)}})
			})
		})
		s.held("h", "", "")
	}
	s.next(time.Time{})
}
