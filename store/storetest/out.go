package storetest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"perdure"
)

// Runs that are let out together may be kept together; what is found is each run as it is.
var outing = []check{
	{"Out/LockMovesOn", outLockMovesOn},
	{"Out/LockMovesBack", outLockMovesBack},
	{"Out/HolderChanges", outHolderChanges},
	{"Out/EndsOneByOne", outEndsOneByOne},
	{"Out/AtSubmission", outAtSubmission},
	{"Out/LetOutAgain", outLetOutAgain},
	{"Out/Rollback", outRollback},
	{"Save/FirstRows", saveFirstRows},
	{"Race/LimitComesAndGoes", raceLimitComesAndGoes},
	{"Race/EndTogether", raceEndTogether},
}

func lockUntil(t time.Time) func(*perdure.Step) {
	return func(st *perdure.Step) { st.LockedUntil = t }
}

func (s *suite) expired(what string, now time.Duration, max int, want []perdure.StepRef) {
	s.Helper()
	found(s, what, want, func(tx perdure.Tx) ([]perdure.StepRef, error) { return tx.Expired(at(now), max) })
}

func (s *suite) held(what, holder string, want []perdure.StepRef) {
	s.Helper()
	found(s, what, want, func(tx perdure.Tx) ([]perdure.StepRef, error) { return tx.HeldBy(holder, "", "", 100) })
}

// next is what Look says once the runs whose time has come were looked at: it may be early before that.
func (s *suite) next(what string, want time.Time) {
	s.Helper()
	l, err := s.store.Look(ctx, nil)
	s.must(err)
	if !want.IsZero() && l.Next.IsZero() || l.Next.After(want) && !want.IsZero() {
		s.Errorf("%s: Look says %v, too late for %v", what, l.Next, want)
	}
	s.update(func(tx perdure.Tx) {
		_, err := tx.Expired(at(24*time.Hour), 1000)
		s.must(err)
	})
	l, err = s.store.Look(ctx, nil)
	s.must(err)
	if !l.Next.Equal(want) {
		s.Errorf("%s: Look says %v, not %v", what, l.Next, want)
	}
}

// A heartbeat moves the lock of one: the others expire at their time, and it does at its own.
func outLockMovesOn(s *suite) {
	s.submit(newJob(1, 3))
	s.changeSteps(run("h", "r", at(time.Minute)), refs(1, 0, 1, 1, 1, 2)...)
	s.changeStep(ref(1, 1), lockUntil(at(2*time.Minute)))
	s.expired("before", time.Minute-time.Microsecond, 10, nil)
	s.expired("the others", time.Minute, 10, refs(1, 0, 1, 2))
	s.expired("bounded", time.Minute, 1, refs(1, 0))
	s.held("all are", "h", refs(1, 0, 1, 1, 1, 2))
	s.next("the others'", at(time.Minute))
	s.changeSteps(settle, refs(1, 0, 1, 2)...)
	s.expired("it is not", time.Minute, 10, nil)
	s.held("it is", "h", refs(1, 1))
	s.next("its own", at(2*time.Minute))
	s.changeStep(ref(1, 1), lockUntil(at(3*time.Minute)))
	s.expired("again not", 2*time.Minute, 10, nil)
	s.expired("now it is", 3*time.Minute, 10, refs(1, 1))
	s.changeStep(ref(1, 1), settle)
	s.expired("nobody", time.Hour, 10, nil)
	s.next("never", time.Time{})
}

func outLockMovesBack(s *suite) {
	s.submit(newJob(1, 2), newJob(2, 1))
	s.changeSteps(run("h", "r", at(time.Hour)), refs(1, 0, 1, 1, 2, 0)...)
	s.changeStep(ref(1, 1), lockUntil(at(time.Minute)))
	s.next("the earlier", at(time.Minute))
	s.expired("the earlier", time.Minute, 10, refs(1, 1))
	s.expired("each once", 2*time.Hour, 10, refs(1, 1, 1, 0, 2, 0))
	s.expired("bounded", 2*time.Hour, 2, refs(1, 1, 1, 0))
	s.held("each once", "h", refs(1, 0, 1, 1, 2, 0))
	s.changeStep(ref(1, 1), lockUntil(at(2*time.Hour))) // and on again
	s.expired("not the earlier", 90*time.Minute, 10, refs(1, 0, 2, 0))
	s.next("the others", at(time.Hour))
}

// Who holds a run, and for what, is what its row says.
func outHolderChanges(s *suite) {
	s.submit(newJob(1, 3))
	s.changeSteps(run("@a", "r", at(time.Minute)), refs(1, 0, 1, 1, 1, 2)...)
	s.changeStep(ref(1, 1), func(st *perdure.Step) { st.LockedBy = "@b" })
	s.changeStep(ref(1, 2), func(st *perdure.Step) { st.Request = "r2" })
	s.held("a", "@a", refs(1, 0, 1, 2))
	s.held("b", "@b", refs(1, 1))
	found(s, "by request", refs(1, 2), func(tx perdure.Tx) ([]perdure.StepRef, error) { return tx.HeldBy("@a", "http", "r2", 9) })
	found(s, "holders", []string{"@a", "@b"}, perdure.Tx.EmbeddedHolders)
	s.changeStep(ref(1, 1), func(st *perdure.Step) { st.LockedBy = "@a" })
	s.held("a again", "@a", refs(1, 0, 1, 1, 1, 2))
	found(s, "one holder", []string{"@a"}, perdure.Tx.EmbeddedHolders)
	s.expired("each once", time.Hour, 10, refs(1, 0, 1, 1, 1, 2))
}

func outEndsOneByOne(s *suite) {
	s.submit(newJob(1, 4), newJob(2, 1))
	s.changeSteps(run("@h", "r", at(time.Minute)), refs(1, 0, 1, 1, 1, 2, 1, 3, 2, 0)...)
	left := refs(1, 0, 1, 1, 1, 2, 1, 3, 2, 0)
	for len(left) > 0 {
		s.expired(fmt.Sprintf("%d left", len(left)), time.Hour, 10, left)
		s.held(fmt.Sprintf("%d left", len(left)), "@h", left)
		s.changeStep(left[0], settle)
		left = left[1:]
	}
	s.next("none left", time.Time{})
	found(s, "nobody", nil, perdure.Tx.EmbeddedHolders)
}

// A submission may be let out with it.
func outAtSubmission(s *suite) {
	s.update(func(tx perdure.Tx) { s.must(tx.PutLimit("agent:http", 5)); s.must(tx.PutLimit("job:order", 5)) })
	one, two := newJob(1, 2), newJob(2, 1)
	for _, nj := range []perdure.NewJob{one, two} {
		run("h", "r", at(time.Minute))(nj.Steps[0])
		nj.Job.Phase, nj.Job.Running, nj.Job.Permit = perdure.Running, 1, true
	}
	s.submit(one, two)
	s.expired("both", time.Minute, 10, refs(1, 0, 2, 0))
	s.held("both", "h", refs(1, 0, 2, 0))
	s.ready("the rest", "http", 10, nil, refs(1, 1))
	s.use("agent:http", 9, 2, perdure.LimitHolder{Job: id(1), Step: "s0", Run: 1}, perdure.LimitHolder{Job: id(2), Step: "s0", Run: 1})
	s.use("job:order", 9, 2, perdure.LimitHolder{Job: id(1)}, perdure.LimitHolder{Job: id(2)})
	s.changeSteps(settle, refs(1, 0, 2, 0)...)
	s.next("never", time.Time{})
	s.use("agent:http", 9, 0)
}

// A run that ends and the next one of its step are different ones.
func outLetOutAgain(s *suite) {
	s.submit(newJob(1, 2))
	for i := range 4 {
		until := at(time.Duration(10-i) * time.Minute)
		s.changeSteps(run(fmt.Sprint("h", i), "r", until), refs(1, 0, 1, 1)...)
		s.held("the latest", fmt.Sprint("h", i), refs(1, 0, 1, 1))
		s.held("not the one before", fmt.Sprint("h", i-1), nil)
		s.next("the latest", until)
		s.changeStep(ref(1, 0), func(st *perdure.Step) { st.Phase = perdure.Ready })
		s.changeStep(ref(1, 1), func(st *perdure.Step) { st.Phase = perdure.Ready })
		s.next("none", time.Time{})
	}
	// In one transaction: ended, and let out again.
	s.changeSteps(run("h", "r", at(time.Minute)), refs(1, 0, 1, 1)...)
	s.update(func(tx perdure.Tx) {
		s.must(tx.Save(&perdure.Changes{Steps: []perdure.StepChange{editStep(s.one(ref(1, 0), tx), settle)}}))
		s.must(tx.Save(&perdure.Changes{Steps: []perdure.StepChange{editStep(s.one(ref(1, 0), tx), run("h", "r", at(time.Hour)))}}))
	})
	s.held("both", "h", refs(1, 0, 1, 1))
	s.expired("the other", time.Minute, 10, refs(1, 1))
	s.changeStep(ref(1, 1), settle)
	s.next("the later", at(time.Hour))
}

// What was taken back is found as before.
func outRollback(s *suite) {
	s.submit(newJob(1, 2))
	s.changeSteps(run("h", "r", at(time.Minute)), refs(1, 0)...)
	for range 2 {
		_ = s.store.Update(ctx, func(tx perdure.Tx) error {
			_, err := tx.Ready("http", 10, nil)
			s.must(err)
			s.must(tx.Save(&perdure.Changes{Steps: []perdure.StepChange{
				editStep(s.one(ref(1, 0), tx), settle), editStep(s.one(ref(1, 1), tx), run("h", "r2", at(time.Hour)))}}))
			_, err = tx.Expired(at(time.Hour), 10)
			s.must(err)
			return errOops
		})
		s.held("as before", "h", refs(1, 0))
		s.ready("as before", "http", 10, nil, refs(1, 1))
		s.expired("as before", time.Hour, 10, refs(1, 0))
		s.next("as before", at(time.Minute))
	}
}

// A job and its first step may share a row: each is written without the other, and both at once.
func saveFirstRows(s *suite) {
	s.submit(newJob(1, 2), newJob(2, 2), newJob(3, 2), newJob(4, 1))
	s.update(func(tx perdure.Tx) {
		jobs, err := tx.LockJobs(ids(1, 2, 3, 4))
		s.must(err)
		steps, err := tx.Steps(refs(1, 0, 1, 1, 3, 0, 3, 1, 4, 0))
		s.must(err)
		s.must(tx.Save(&perdure.Changes{
			Jobs:  []perdure.JobChange{editJob(jobs[2], parkJob), editJob(jobs[1], parkJob)},
			Steps: []perdure.StepChange{editStep(steps[1], settle), editStep(steps[2], settle), editStep(steps[0], settle)},
		}))
		// And once more, what has been written and what has not.
		again := s.jobIn(tx, 3)
		s.must(tx.Save(&perdure.Changes{
			Jobs:  []perdure.JobChange{editJob(again, func(j *perdure.Job) { j.Restarts = 7 }), editJob(jobs[3], parkJob)},
			Steps: []perdure.StepChange{editStep(s.one(ref(3, 0), tx), func(st *perdure.Step) { st.Failures = 3 })},
		}))
	})
	for n, want := range map[int]perdure.Phase{1: perdure.Waiting, 2: perdure.Parked, 3: perdure.Parked, 4: perdure.Parked} {
		s.equal(fmt.Sprintf("job %d", n), s.job(n).Phase, want)
	}
	for r, want := range map[perdure.StepRef]perdure.Phase{ref(1, 0): perdure.Settled, ref(1, 1): perdure.Settled, ref(2, 0): perdure.Ready,
		ref(3, 0): perdure.Settled, ref(3, 1): perdure.Ready, ref(4, 0): perdure.Ready} {
		s.equal(fmt.Sprintf("step %v", r), s.steps(int(r.Job[15]))[r.Index].Phase, want)
	}
	s.equal("written twice", [2]int{s.job(3).Restarts, s.steps(3)[0].Failures}, [2]int{7, 3})
}

func parkJob(j *perdure.Job) { j.Phase = perdure.Parked }

// While limits come and go, what is counted of one that is there is what holds it (I12).
func raceLimitComesAndGoes(s *suite) {
	const jobs, rounds = 6, 12
	var c perdure.Changes
	for i := range jobs {
		c.NewJobs = append(c.NewJobs, newJob(i, 1))
	}
	s.save(&c)
	s.together(jobs+2, func(i int) error {
		for n := range rounds {
			err := s.store.Update(ctx, func(tx perdure.Tx) error {
				if i >= jobs {
					name := []string{"agent:http", "job:order"}[i-jobs]
					if n%2 == 0 {
						return tx.PutLimit(name, 100)
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
					edit = func(st *perdure.Step) { st.Phase = perdure.Ready }
				}
				return tx.Save(&perdure.Changes{
					Jobs:  []perdure.JobChange{editJob(locked[0], func(j *perdure.Job) { j.Permit = !j.Permit })},
					Steps: []perdure.StepChange{editStep(steps[0], edit)},
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
	s.update(func(tx perdure.Tx) { s.must(tx.PutLimit("agent:http", 100)); s.must(tx.PutLimit("job:order", 100)) })
	s.use("agent:http", 0, jobs/2)
	s.use("job:order", 0, jobs/2)
	s.update(func(tx perdure.Tx) {
		limits, err := tx.LockLimits([]string{"agent:http", "job:order"})
		s.must(err)
		s.equal("used", limits, []perdure.Limit{{Name: "agent:http", Max: 100, Used: jobs / 2}, {Name: "job:order", Max: 100, Used: jobs / 2}})
	})
}

// Two transactions may end the last two runs that were let out together.
func raceEndTogether(s *suite) {
	for n := range 10 {
		s.submit(newJob(2*n, 1), newJob(2*n+1, 1))
		s.changeSteps(run("h", "r", at(time.Minute)), ref(2*n, 0), ref(2*n+1, 0))
		s.together(2, func(i int) error {
			return s.store.Update(ctx, func(tx perdure.Tx) error {
				if _, err := tx.LockJobs(ids(2*n + i)); err != nil {
					return err
				}
				steps, err := tx.Steps(refs(2*n+i, 0))
				if err != nil {
					return err
				}
				return tx.Save(&perdure.Changes{Steps: []perdure.StepChange{editStep(steps[0], settle)}})
			})
		})
		s.held("nobody", "h", nil)
	}
	s.next("never", time.Time{})
}
