package storetest

import (
	"math/rand/v2"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// What is kept together is changed by several at once, and taken back.
var sharing = []check{
	{"Out/Rollback", outRollback},
	{"Out/EndTogether", outEndTogether},
	{"Permits/LimitComesAndGoes", permitsLimitComesAndGoes},
}

// What was taken back is found as before.
func outRollback(s *suite) {
	s.submit(newJob(1, 2))
	s.changeSteps(run("h", "r", at(time.Minute)), ref(1, 0))
	for range 2 {
		_ = s.store.Update(ctx, func(tx kernel.Tx) error {
			_, err := tx.Ready("http", 10, nil)
			s.must(err)
			s.must(tx.Save(&kernel.Changes{Steps: []kernel.StepChange{
				editStep(s.one(ref(1, 0), tx), settle), editStep(s.one(ref(1, 1), tx), run("h", "r2", at(time.Hour)))}}))
			_, err = tx.Expired(at(time.Hour), 10)
			s.must(err)
			return errOops
		})
		s.held("h", "", "", 1, 0)
		s.ready("as before", "http", 10, nil, refs(1, 1))
		s.expired(time.Hour, 10, 1, 0)
		s.next(at(time.Minute))
	}
}

// While limits come and go, what is counted of one that is there is what holds it (I12).
func permitsLimitComesAndGoes(s *suite) {
	const jobs, rounds = 6, 12
	var c kernel.Changes
	for i := range jobs {
		c.NewJobs = append(c.NewJobs, newJob(i, 1))
	}
	s.save(&c)
	s.together(jobs+2, func(i int) error {
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
					Jobs:  []kernel.JobChange{editJob(locked[0], func(j *kernel.Job) { j.Permit = !j.Permit })},
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
	// An even number of rounds: each is back where it was, and the limits are gone. Now half of them are out.
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

// Two transactions may end the last two runs that were let out together.
func outEndTogether(s *suite) {
	for n := range 10 {
		s.submit(newJob(2*n, 1), newJob(2*n+1, 1))
		s.changeSteps(run("h", "r", at(time.Minute)), ref(2*n, 0), ref(2*n+1, 0))
		s.together(2, func(i int) error {
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
