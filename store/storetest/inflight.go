package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// A store may keep runs that were dispatched together in one row, and search by that row. It may also store the holders
// of permits. These checks require that this is not visible.
var inFlightChecks = []check{
	{"InFlight/DispatchedOnSubmission", inFlightFromSubmission},
	{"InFlight/JobWithAllStepsInFlight", inFlightAll},
	{"InFlight/HeartbeatsExtendRuns", inFlightHeartbeats},
	{"InFlight/ShortenedLockExpires", inFlightLockShortened},
	{"InFlight/HolderChanges", inFlightHolderChanges},
	{"InFlight/DispatchedAgainIsFoundOnce", inFlightDispatchedAgain},
	{"InFlight/ManyRunsAtOnce", inFlightMany},
	{"Permits/CountedWhenLimitIsSetLater", permitsLimitSetLater},
	{"Permits/CountedWhenLimitIsSetAgain", permitsLimitDeleted},
	{"Permits/CountedByKey", permitsByKey},
	{"Permits/LimitsWithRates", limitsWithRates},
	{"Permits/Lines", lines},
	{"Permits/OpensTheLaneOfTheFirst", opensFirst},
	{"Permits/OpensWhatOthersChange", opensWhatOthersChange},
	{"Permits/Buckets", buckets},
	{"Unique/RowsAreReplacedAndReleased", uniqueRows},
	{"Unique/ConflictsAreRetried", uniqueConflicts},
	{"Children/NewsIsFoundAndTakenOnce", childNews},
	{"Children/ColumnsAreKept", childColumns},
	{"Permits/LimitSetInTheTransaction", permitsLimitSetInTheTransaction},
	{"Permits/FollowTheirRows", permitsFollowTheirRows},
	{"Save/JobAndFirstStepSeparately", saveJobAndFirstStep},
	{"Save/StaleJobOrFirstStepRefusesBoth", saveStaleJobOrFirstStep},
	{"Save/SameRowTwice", saveTwice},
	{"Save/NewRowsAreFoundInTheTransaction", saveNewAndAgain},
}

// selfChecker is a store that can check its own consistency.
type selfChecker interface {
	Check(context.Context) ([]string, error)
}

// checkConsistent fails if a store that can check itself reports findings.
func (s *suite) checkConsistent() {
	s.Helper()
	if c, ok := s.store.(selfChecker); ok {
		faults, err := c.Check(ctx)
		s.must(err)
		s.equal("faults", faults, nil)
	}
}

// changeSteps edits stored steps in one Save.
func (s *suite) changeSteps(edit func(*kernel.Step), of ...kernel.StepRef) {
	s.Helper()
	s.update(func(tx kernel.Tx) {
		var c kernel.Changes
		for _, r := range of {
			c.Steps = append(c.Steps, editStep(s.one(r, tx), edit))
		}
		s.must(tx.Save(&c))
	})
}

func (s *suite) expired(now time.Duration, max int, want ...int) {
	s.Helper()
	checkTx(s, "expired at "+now.String(), refs(want...), func(tx kernel.Tx) ([]kernel.StepRef, error) { return tx.Expired(at(now), max) })
}

func (s *suite) held(holder, agent, request string, want ...int) {
	s.Helper()
	checkTx(s, "held by "+holder, refs(want...), func(tx kernel.Tx) ([]kernel.StepRef, error) {
		return tx.HeldBy(holder, agent, request, 1000)
	})
}

func (s *suite) next(want time.Time) {
	s.Helper()
	l, err := exactPoll(s.store, nil)
	s.must(err)
	s.equal("next", l.Next, want)
}

// exactPoll repeats Poll and searches for expired runs until Next no longer changes. If a lock was extended or a run has
// ended, a store may at first return the earlier time of its lock.
func exactPoll(store kernel.Store, agents []string) (kernel.PollAnswer, error) {
	for latest := (time.Time{}); ; {
		l, err := store.Poll(ctx, agents)
		if err != nil || l.Next.IsZero() || l.Next.Equal(latest) {
			return l, err
		}
		if l.Next.Before(latest) {
			return l, fmt.Errorf("searched until %v, but Next is %v", latest, l.Next)
		}
		latest = l.Next
		if err := store.Update(ctx, func(tx kernel.Tx) error {
			_, err := tx.Expired(latest, 1000)
			return err
		}); err != nil {
			return l, err
		}
	}
}

func until(t time.Duration) func(*kernel.Step) {
	return func(st *kernel.Step) { st.LockedUntil = at(t) }
}

// A step may be dispatched in the transaction that submits its job.
func inFlightFromSubmission(s *suite) {
	s.update(func(tx kernel.Tx) {
		s.must(tx.PutLimit(atMost("agent:http", 9)))
		s.must(tx.PutLimit(atMost("job:order", 9)))
	})
	var jobs []kernel.NewJob
	for n := range 40 {
		nj := newJob(n, 1+n%2, permitted)
		nj.Job.Phase, nj.Job.Running = perdure.Running, 1
		run("h", "r", at(time.Minute))(nj.Steps[0])
		jobs = append(jobs, nj)
	}
	s.submit(jobs...)
	s.equal("job", s.job(7), jobs[7].Job)
	s.equal("steps", s.steps(7), jobs[7].Steps)
	s.next(at(time.Minute))
	s.expired(time.Minute, 3, 0, 0, 1, 0, 2, 0)
	s.ready("the second steps", "http", 2, nil, refs(1, 1, 3, 1))
	n, _, err := s.store.LimitUse(ctx, kernel.LimitKey{Name: "agent:http"}, 0)
	s.must(err)
	s.equal("used", n, 40)
	n, _, err = s.store.LimitUse(ctx, kernel.LimitKey{Name: "job:order"}, 0)
	s.must(err)
	s.equal("used", n, 40)
	s.update(func(tx kernel.Tx) {
		var c kernel.Changes
		for n := range 40 {
			c.Jobs = append(c.Jobs, editJob(s.jobIn(tx, n), func(j *kernel.Job) { settleJob(j); j.Running, j.HasPermit = 0, false }))
			c.Steps = append(c.Steps, editStep(s.one(ref(n, 0), tx), settle))
		}
		s.must(tx.Save(&c))
	})
	s.expired(time.Hour, 3)
	s.next(time.Time{})
	s.use("agent:http", 9, 0)
	s.use("job:order", 9, 0)
}

// A job is found until it is settled, also if all its unsettled steps are in flight.
func inFlightAll(s *suite) {
	hash, all := [32]byte{7}, []int{4, 3, 2, 1, 0}
	running, waiting := perdure.Running, perdure.Waiting
	dispatched := func(nj kernel.NewJob, n int) kernel.NewJob {
		nj.Job.Hash, nj.Job.Phase, nj.Job.Running, nj.Job.HasPermit = hash, perdure.Running, n, true
		for _, st := range nj.Steps[:n] {
			run("h", "r", at(time.Minute))(st)
		}
		return nj
	}
	timed := newJob(3, 1)
	timed.Job.CompleteBy = at(time.Hour)
	s.submit(dispatched(newJob(0, 1), 1), dispatched(newJob(1, 2), 2), dispatched(newJob(2, 2), 1), dispatched(timed, 1), dispatched(newJob(4, 1), 1))
	checkFound := func(newest int, run, wait []int) {
		s.Helper()
		s.list("running", kernel.JobFilter{Phases: []perdure.Phase{running}}, run...)
		s.list("running, a page", kernel.JobFilter{Phases: []perdure.Phase{running}, Before: id(4), Limit: 2, Type: "order"},
			slices.DeleteFunc(slices.Clone(run), func(n int) bool { return n == 4 })[:min(2, len(run))]...)
		s.list("waiting", kernel.JobFilter{Phases: []perdure.Phase{waiting}}, wait...)
		n, err := s.store.Backlog(ctx, 100)
		s.must(err)
		s.equal("backlog", n, len(run)+len(wait))
		n, _, err = s.store.LimitUse(ctx, kernel.LimitKey{Name: "job:order"}, 9)
		s.must(err)
		s.equal("holders of a new limit", n, len(run)+len(wait))
		s.update(func(tx kernel.Tx) {
			found, _, err := tx.JobByHash("order", hash)
			s.must(err)
			s.equal("by hash", found, id(newest))
		})
		s.checkConsistent()
	}
	checkFound(4, all, nil)
	s.changeSteps(until(2*time.Minute), ref(0, 0), ref(1, 1)) // found once, whatever entries lead to it
	checkFound(4, all, nil)

	s.changeJobAndStep(4, func(j *kernel.Job) { j.Phase, j.Running = perdure.Waiting, 0 }, waitUntil(at(time.Hour)))
	checkFound(4, all[1:], []int{4})
	s.changeJobAndStep(4, func(j *kernel.Job) { j.Phase, j.Running = perdure.Running, 1 }, run("h2", "", at(time.Hour)))
	checkFound(4, all, nil)
	s.changeJob(3, func(j *kernel.Job) { j.Overdue = true })
	checkFound(4, all, nil)

	s.limit("job:order", 9)
	s.used("job:order", 5)
	s.update(func(tx kernel.Tx) {
		_, err := tx.DeleteLimit("job:order")
		s.must(err)
	})
	for n := range 3 {
		s.changeJobAndStep(4-n, func(j *kernel.Job) { settleJob(j); j.Running, j.HasPermit = 0, false }, settle)
		checkFound(3-n, all[n+1:], nil)
	}
}

// changeJobAndStep changes a job and its first step.
func (s *suite) changeJobAndStep(n int, job func(*kernel.Job), step func(*kernel.Step)) {
	s.Helper()
	s.update(func(tx kernel.Tx) {
		st := s.one(ref(n, 0), tx)
		s.must(tx.Save(&kernel.Changes{
			Jobs:  []kernel.JobChange{editJob(s.jobIn(tx, n), job)},
			Steps: []kernel.StepChange{editStep(st, step)},
		}))
	})
}

// Heartbeats extend runs one by one, also those that were dispatched together.
func inFlightHeartbeats(s *suite) {
	s.submit(newJob(1, 4), newJob(2, 1))
	s.changeSteps(run("@h", "r", at(time.Second)), ref(1, 0), ref(1, 1), ref(1, 2))
	s.changeSteps(run("@h", "r", at(9*time.Second)), ref(2, 0))
	s.changeSteps(until(5*time.Second), ref(1, 1))
	s.changeSteps(until(7*time.Second), ref(1, 2))
	s.next(at(time.Second))
	s.expired(4*time.Second, 9, 1, 0)
	s.changeSteps(settle, ref(1, 0))
	s.next(at(5 * time.Second))
	s.expired(4*time.Second, 9)
	s.next(at(5 * time.Second))
	s.expired(6*time.Second, 9, 1, 1)
	s.expired(time.Minute, 9, 1, 1, 1, 2, 2, 0)
	s.expired(time.Minute, 2, 1, 1, 1, 2)
	s.changeSteps(until(20*time.Second), ref(1, 1), ref(1, 2)) // later than the end of the runs dispatched after them
	s.next(at(9 * time.Second))
	s.expired(time.Minute, 1, 2, 0)
	s.expired(time.Minute, 9, 2, 0, 1, 1, 1, 2)
	s.held("@h", "", "r", 1, 1, 1, 2, 2, 0)
	s.changeSteps(settle, ref(1, 1), ref(2, 0))
	s.held("@h", "", "", 1, 2)
	s.next(at(20 * time.Second))
	checkTx(s, "holders", []string{"@h"}, kernel.Tx.EmbeddedHolders)
	s.changeSteps(settle, ref(1, 2))
	checkTx(s, "no holders", nil, kernel.Tx.EmbeddedHolders)
	s.next(time.Time{})
}

// If a lock is shortened, its end is found in time.
func inFlightLockShortened(s *suite) {
	s.submit(newJob(1, 3))
	s.changeSteps(run("h", "r", at(time.Minute)), ref(1, 0), ref(1, 1))
	s.changeSteps(until(time.Second), ref(1, 1))
	s.next(at(time.Second))
	s.expired(time.Second, 9, 1, 1)
	s.held("h", "http", "r", 1, 0, 1, 1)
	s.changeSteps(settle, ref(1, 1))
	s.next(at(time.Minute))
	s.expired(time.Minute, 9, 1, 0)
}

// The holder, the agent and the request of a run may change while it is in flight.
func inFlightHolderChanges(s *suite) {
	s.submit(newJob(1, 3))
	s.changeSteps(run("h", "r", at(time.Minute)), ref(1, 0), ref(1, 1), ref(1, 2))
	s.changeSteps(func(st *kernel.Step) { st.LockedBy = "@k" }, ref(1, 0))
	s.changeSteps(func(st *kernel.Step) { st.Request = "q" }, ref(1, 1))
	s.changeSteps(func(st *kernel.Step) { st.Agent = "ftp" }, ref(1, 2))
	s.held("h", "", "", 1, 1, 1, 2)
	s.held("h", "", "r", 1, 2)
	s.held("h", "", "q", 1, 1)
	s.held("h", "http", "", 1, 1)
	s.held("h", "ftp", "", 1, 2)
	s.held("@k", "http", "r", 1, 0)
	checkTx(s, "holders", []string{"@k"}, kernel.Tx.EmbeddedHolders)
	s.expired(time.Minute, 9, 1, 0, 1, 1, 1, 2)
	s.use("agent:http", 9, 2, kernel.LimitHolder{Job: id(1), Step: "s0", Run: 1, Amount: 1}, kernel.LimitHolder{Job: id(1), Step: "s1", Run: 1, Amount: 1})
	s.use("agent:ftp", 9, 1, kernel.LimitHolder{Job: id(1), Step: "s2", Run: 1, Amount: 1})
}

// A step that was dispatched, returned and dispatched again is in flight once.
func inFlightDispatchedAgain(s *suite) {
	s.submit(newJob(1, 2))
	s.changeSteps(run("h", "r1", at(time.Minute)), ref(1, 0), ref(1, 1))
	s.changeSteps(func(st *kernel.Step) { st.Phase = perdure.Ready }, ref(1, 0))
	s.changeSteps(run("h", "r2", at(time.Second)), ref(1, 0))
	s.expired(time.Hour, 9, 1, 0, 1, 1)
	s.held("h", "", "", 1, 0, 1, 1)
	s.held("h", "", "r1", 1, 1)
	s.held("h", "", "r2", 1, 0)
	s.update(func(tx kernel.Tx) { // ended and dispatched again in one transaction
		s.must(tx.Save(&kernel.Changes{Steps: []kernel.StepChange{editStep(s.one(ref(1, 1), tx), settle)}}))
		s.must(tx.Save(&kernel.Changes{Steps: []kernel.StepChange{editStep(s.one(ref(1, 1), tx), run("k", "r3", at(time.Hour)))}}))
		s.must(tx.Save(&kernel.Changes{Steps: []kernel.StepChange{editStep(s.one(ref(1, 0), tx), settle)}}))
		held, err := tx.HeldBy("k", "", "", 9)
		s.must(err)
		s.equal("in the transaction", held, refs(1, 1))
	})
	s.held("h", "", "")
	s.held("k", "http", "r3", 1, 1)
	s.next(at(time.Hour))
}

// More runs are dispatched at once than a store may want to keep together.
func inFlightMany(s *suite) {
	const n = 2300
	s.submit(newJob(1, n))
	var all []kernel.StepRef
	for i := range n {
		all = append(all, ref(1, i))
	}
	s.changeSteps(run("h", "r", at(time.Minute)), all...)
	for max, want := range map[int]int{1: 1, 1500: 1500, 5000: n} {
		checkTx(s, "expired", all[:want], func(tx kernel.Tx) ([]kernel.StepRef, error) { return tx.Expired(at(time.Hour), max) })
		checkTx(s, "held", all[:want], func(tx kernel.Tx) ([]kernel.StepRef, error) { return tx.HeldBy("h", "", "r", max) })
	}
	s.changeSteps(settle, all[:n-1]...)
	s.expired(time.Hour, 9, 1, n-1)
	s.held("h", "", "", 1, n-1)
	s.next(at(time.Minute))
	s.changeSteps(settle, all[n-1])
	s.expired(time.Hour, 9)
	s.next(time.Time{})
}

func (s *suite) limit(name string, most int) {
	s.Helper()
	s.update(func(tx kernel.Tx) { s.must(tx.PutLimit(atMost(name, most))) })
}

// used checks the count of LockLimits and that of LimitUse.
func (s *suite) used(name string, want int) {
	s.Helper()
	s.update(func(tx kernel.Tx) {
		limits, err := tx.LockLimits([]string{name})
		s.must(err)
		if len(limits) != 1 || limits[0].Used != want {
			s.Errorf("%s: got %+v; want %d used", name, limits, want)
		}
	})
	n, _, err := s.store.LimitUse(ctx, kernel.LimitKey{Name: name}, 0)
	s.must(err)
	s.equal(name, n, want)
}

// A limit that is set later counts the permits that are already held.
func permitsLimitSetLater(s *suite) {
	s.submit(newJob(1, 2, permitted), newJob(2, 1, permitted, typed("other")), newJob(3, 1))
	s.changeSteps(run("h", "r", at(time.Minute)), ref(1, 0), ref(1, 1), ref(2, 0))
	s.changeSteps(func(st *kernel.Step) { st.Phase = perdure.Parked }, ref(1, 1))
	s.limit("job:order", 1)
	s.limit("agent:http", 1)
	s.used("job:order", 1)
	s.used("agent:http", 2)
	s.limit("agent:http", 5) // replaced, not new
	s.used("agent:http", 2)
	s.changeSteps(run("h", "r", at(time.Minute)), ref(3, 0))
	s.changeJob(3, permitted)
	s.used("job:order", 2)
	s.used("agent:http", 3)
	s.changeSteps(settle, ref(1, 0), ref(2, 0))
	s.changeJob(1, func(j *kernel.Job) { j.HasPermit = false })
	s.used("job:order", 1)
	s.used("agent:http", 1)
	s.ready("full", "http", 9, []string{"job:order"}, nil)
}

// A limit that is deleted and set again counts the permits that are held then.
func permitsLimitDeleted(s *suite) {
	s.limit("agent:http", 5)
	s.submit(newJob(1, 4))
	s.changeSteps(run("h", "r", at(time.Minute)), ref(1, 0), ref(1, 1))
	s.used("agent:http", 2)
	s.update(func(tx kernel.Tx) {
		had, err := tx.DeleteLimit("agent:http")
		s.must(err)
		s.equal("had", had, true)
	})
	s.changeSteps(settle, ref(1, 0))
	s.changeSteps(run("h", "r", at(time.Minute)), ref(1, 2), ref(1, 3))
	n, _, err := s.store.LimitUse(ctx, kernel.LimitKey{Name: "agent:http"}, 0)
	s.must(err)
	s.equal("counted without the limit", n, 3)
	s.limit("agent:http", 5)
	s.used("agent:http", 3)
}

// A transaction that sets a limit counts what it wrote before and after that. A limit that is rolled back leaves
// nothing.
func permitsLimitSetInTheTransaction(s *suite) {
	s.submit(newJob(1, 4))
	dispatched := func(tx kernel.Tx, i int) {
		s.must(tx.Save(&kernel.Changes{Steps: []kernel.StepChange{editStep(s.one(ref(1, i), tx), run("h", "r", at(time.Minute)))}}))
	}
	both := func(tx kernel.Tx) {
		dispatched(tx, 0)
		s.must(tx.PutLimit(atMost("agent:http", 5)))
		dispatched(tx, 1)
		limits, err := tx.LockLimits([]string{"agent:http"})
		s.must(err)
		s.equal("in the transaction", limits, []kernel.Limit{used(atMost("agent:http", 5), 2)})
	}
	err := s.store.Update(ctx, func(tx kernel.Tx) error { both(tx); return errOops })
	s.equal("refused", err == nil, false)
	s.use("agent:http", 9, 0)
	s.update(both)
	s.used("agent:http", 2)
	s.update(func(tx kernel.Tx) {
		_, err := tx.DeleteLimit("agent:http")
		s.must(err)
		dispatched(tx, 2)
		s.must(tx.PutLimit(atMost("agent:http", 1)))
		dispatched(tx, 3)
	})
	s.used("agent:http", 4)
}

// A permit follows the row that holds it.
func permitsFollowTheirRows(s *suite) {
	s.limit("agent:http", 5)
	s.limit("agent:ftp", 5)
	s.submit(newJob(1, 2))
	s.changeSteps(run("h", "r", at(time.Minute)), ref(1, 0), ref(1, 1))
	s.changeSteps(func(st *kernel.Step) { st.Agent = "ftp" }, ref(1, 0))
	s.used("agent:http", 1)
	s.used("agent:ftp", 1)
	s.changeSteps(until(time.Hour), ref(1, 0), ref(1, 1))
	s.used("agent:http", 1)
	s.used("agent:ftp", 1)
}

// A store may keep a job and its first step in one row. A change of one does not change the other.
func saveJobAndFirstStep(s *suite) {
	nj := newJob(1, 2, keyed("k"), labelled("a", "b"))
	nj.Job.Input = []byte(`{"n":1}`)
	s.submit(nj)
	want, steps := *nj.Job, []*kernel.Step{nj.Steps[0], nj.Steps[1]}
	same := func(what string) {
		s.Helper()
		s.equal(what+": job", s.job(1), &want)
		s.equal(what+": steps", s.steps(1), steps)
	}
	grow := func(j *kernel.Job) { j.Restarts++; j.UpdatedAt = j.UpdatedAt.Add(time.Second) }
	fail := func(st *kernel.Step) { st.Failures++; st.UpdatedAt = st.UpdatedAt.Add(time.Second) }
	s.changeJob(1, grow)
	grow(&want)
	same("the job alone")
	s.changeSteps(fail, ref(1, 0))
	fail(steps[0])
	same("the step alone")
	both := func(tx kernel.Tx) *kernel.Changes {
		return &kernel.Changes{
			Jobs:  []kernel.JobChange{editJob(s.jobIn(tx, 1), grow)},
			Steps: []kernel.StepChange{editStep(s.one(ref(1, 0), tx), fail), editStep(s.one(ref(1, 1), tx), fail)},
		}
	}
	for range 2 {
		s.update(func(tx kernel.Tx) { s.must(tx.Save(both(tx))) })
		grow(&want)
		fail(steps[0])
		fail(steps[1])
		same("both")
	}
	s.update(func(tx kernel.Tx) {
		c := both(tx)
		s.must(tx.Save(&kernel.Changes{Steps: c.Steps}))
		s.must(tx.Save(&kernel.Changes{Jobs: c.Jobs}))
	})
	grow(&want)
	fail(steps[0])
	fail(steps[1])
	same("one after the other")
}

// If one of the two is stale, the change of the other is refused too.
func saveStaleJobOrFirstStep(s *suite) {
	s.submit(newJob(1, 1))
	job, step := s.job(1), s.steps(1)[0]
	wrongJob, wrongStep := *job, *step
	wrongJob.Unsettled++
	wrongStep.Run++
	s.refused("job", &kernel.Changes{
		Jobs:  []kernel.JobChange{editJob(&wrongJob, settleJob)},
		Steps: []kernel.StepChange{editStep(step, settle)},
	})
	s.refused("step", &kernel.Changes{
		Jobs:  []kernel.JobChange{editJob(job, settleJob)},
		Steps: []kernel.StepChange{editStep(&wrongStep, settle)},
	})
	s.checkUntouched(1, 1)
}

// A transaction finds the steps of a job that it has saved itself.
func saveNewAndAgain(s *suite) {
	s.submit(newJob(1, 1))
	s.update(func(tx kernel.Tx) {
		s.must(tx.Save(&kernel.Changes{NewJobs: []kernel.NewJob{newJob(2, 3)}}))
		for i := range 3 {
			loaded := s.one(ref(2, i), tx)
			s.must(tx.Save(&kernel.Changes{Steps: []kernel.StepChange{editStep(loaded, run("h", "r", at(time.Minute)))}}))
		}
	})
	for _, st := range s.steps(2) {
		s.equal("dispatched with its job", st.Phase, perdure.Running)
	}
}

// A transaction may save a row again that it has saved before.
func saveTwice(s *suite) {
	s.submit(newJob(1, 3), newJob(2, 1))
	s.update(func(tx kernel.Tx) {
		loaded := s.one(ref(1, 0), tx)
		dispatched := editStep(loaded, run("h", "r", at(time.Minute)))
		s.must(tx.Save(&kernel.Changes{Steps: []kernel.StepChange{dispatched}}))
		done := editStep(dispatched.Now, settle)
		s.must(tx.Save(&kernel.Changes{Steps: []kernel.StepChange{done}}))
		s.equal("as saved", s.one(ref(1, 0), tx), done.Now)
		all, err := tx.StepsOf(id(1))
		s.must(err)
		s.equal("all steps", all[0], done.Now)
		s.equal("all steps", len(all), 3)
	})
	s.equal("kept", s.steps(1)[0].Phase, perdure.Settled)
	err := s.store.Update(ctx, func(tx kernel.Tx) error {
		loaded := s.one(ref(1, 1), tx)
		if err := tx.Save(&kernel.Changes{Steps: []kernel.StepChange{editStep(loaded, run("h", "r", at(time.Minute)))}}); err != nil {
			return err
		}
		return tx.Save(&kernel.Changes{Steps: []kernel.StepChange{editStep(loaded, settle)}})
	})
	s.equal("a save based on the earlier row", err.Error(), kernel.ErrStale.Error())
	if i := slices.IndexFunc(s.steps(1), func(st *kernel.Step) bool { return st.Phase == perdure.Running }); i >= 0 {
		s.Errorf("step %d is in flight", i)
	}
}

// atMost returns a limit without a bound for each key.
func atMost(name string, max int) kernel.Limit {
	return kernel.Limit{Name: name, Max: max, PerKey: kernel.Unbounded}
}

func used(l kernel.Limit, n int) kernel.Limit {
	l.Used = n
	return l
}

// Permits of named limits are stored whether the limit exists or not, and counted with their amounts, in total and by
// key (I12).
func permitsByKey(s *suite) {
	s.submit(withNeeds(adsNeed("a"), newJob(1, 2)), withNeeds(`[{"name":"ads","key":"a","amount":3},{"name":"mail"}]`, newJob(2, 1)), withNeeds(adsNeed("b"), newJob(3, 1)))
	s.changeSteps(run("h", "", at(time.Minute)), refs(1, 0, 2, 0, 3, 0)...)
	count := func(a, b, mail int) {
		s.Helper()
		s.update(func(tx kernel.Tx) {
			keys := []kernel.LimitKey{{Name: "ads"}, {Name: "ads", Key: "a"}, {Name: "ads", Key: "b"}, {Name: "mail"}, {Name: "ads", Key: "none"}}
			got, err := tx.KeyUse(append(keys, keys[1])) // one key is given twice
			s.must(err)
			s.equal("used", got, map[kernel.LimitKey]kernel.Taken{keys[0]: {}, keys[1]: {Used: a}, keys[2]: {Used: b}, keys[3]: {Used: mail}, keys[4]: {}})
		})
	}
	count(4, 1, 1)
	for _, l := range []kernel.Limit{{Name: "ads", Max: 9, PerKey: 2, Taken: kernel.Taken{Used: 5}}, {Name: "ads", Max: kernel.Unbounded, PerKey: 2}} { // deleting a limit does not delete permits
		s.update(func(tx kernel.Tx) { s.must(tx.PutLimit(kernel.Limit{Name: "ads", Max: l.Max, PerKey: 2})) })
		checkTx(s, "locked", []kernel.Limit{l}, func(tx kernel.Tx) ([]kernel.Limit, error) { return tx.LockLimits([]string{"ads", "mail"}) })
		s.update(func(tx kernel.Tx) {
			_, err := tx.DeleteLimit("ads")
			s.must(err)
		})
	}
	use := func(k kernel.LimitKey, most, want int, holders ...kernel.LimitHolder) {
		s.Helper()
		n, got, err := s.store.LimitUse(ctx, k, most)
		s.must(err)
		s.equal(k.String()+" used", n, want)
		s.equal(k.String()+" holders", got, holders)
	}
	one := kernel.LimitHolder{Job: id(1), Step: "s0", Run: 1, Key: "a", Amount: 1}
	three := kernel.LimitHolder{Job: id(2), Step: "s0", Run: 1, Key: "a", Amount: 3}
	use(kernel.LimitKey{Name: "ads"}, 9, 5, one, three, kernel.LimitHolder{Job: id(3), Step: "s0", Run: 1, Key: "b", Amount: 1})
	use(kernel.LimitKey{Name: "ads", Key: "a"}, 9, 4, one, three)
	use(kernel.LimitKey{Name: "ads", Key: "a"}, 1, 4, one)
	use(kernel.LimitKey{Name: "mail"}, 9, 1, kernel.LimitHolder{Job: id(2), Step: "s0", Run: 1, Amount: 1})
	s.changeSteps(settle, ref(2, 0))
	count(1, 1, 0)
	s.changeStep(ref(1, 0), func(st *kernel.Step) { st.Needs = adsNeed("b") }) // no rule does this
	count(0, 2, 0)
	s.checkConsistent()

	// A job holds permits beside its first step, which may hold some with the same key.
	s.submit(withNeeds(adsNeed("a"), newJob(4, 1, permitted, func(j *kernel.Job) { j.Needs = `[{"name":"ads","key":"a","amount":2},{"name":"mail"}]` })))
	count(2, 2, 1)
	s.changeSteps(run("h", "", at(time.Minute)), refs(4, 0)...)
	count(3, 2, 1)
	ofJob := kernel.LimitHolder{Job: id(4), Key: "a", Amount: 2}
	use(kernel.LimitKey{Name: "ads", Key: "a"}, 9, 3, ofJob, kernel.LimitHolder{Job: id(4), Step: "s0", Run: 1, Key: "a", Amount: 1})
	use(kernel.LimitKey{Name: "mail"}, 9, 1, kernel.LimitHolder{Job: id(4), Amount: 1})
	s.checkConsistent()
	s.changeSteps(settle, ref(4, 0))
	count(2, 2, 1)
	s.changeJob(4, func(j *kernel.Job) { settleJob(j); j.HasPermit = false })
	count(0, 2, 0)
	s.checkConsistent()
}

// A step stands in line for its keys while it is ready, or waits to be tried again. Of each line the first is read: those
// whose jobs have begun first, then by job.
func lines(s *suite) {
	line := func(rank string) kernel.Needs {
		return kernel.Needs(`[{"name":"ads","key":"a","line":` + rank + `},{"name":"ads","key":"b"},{"name":"ads","key":"c","line":` + rank + `},{"name":"ads","key":"c","line":` + rank + `,"job":true},{"name":"mail","key":"a","line":` + rank + `}]`)
	}
	s.submit(withNeeds(line("2"), newJob(1, 1)))
	s.submit(withNeeds(line("2"), newJob(2, 2)))
	s.submit(withNeeds(line("1"), newJob(3, 1)))
	s.submit(withNeeds(adsNeed("a"), newJob(4, 1)))
	first := func(rank kernel.LineRank, of kernel.StepRef, ready bool) {
		s.Helper()
		want := kernel.FirstInLine{LinePlace: kernel.LinePlace{Rank: rank, StepRef: of}}
		if ready {
			want.Lane = kernel.LaneRef{Agent: "http", Lane: kernel.LaneOf("order", line(fmt.Sprint(int(rank))))}
		}
		if rank == kernel.NotInLine {
			want = kernel.FirstInLine{}
		}
		keys := []kernel.LimitKey{{Name: "ads", Key: "a"}, {Name: "ads", Key: "b"}, {Name: "ads", Key: "c"}, {Name: "mail", Key: "a"}, {Name: "mail"}}
		s.update(func(tx kernel.Tx) {
			got, err := tx.KeyUse(keys)
			s.must(err)
			for i, k := range keys {
				if i == 1 || i == 4 {
					s.equal("no line for "+k.String(), got[k].First, kernel.FirstInLine{})
				} else {
					s.equal("first in line for "+k.String(), got[k].First, want)
				}
			}
		})
		read, err := s.store.FirstInLine(ctx, keys)
		s.must(err)
		all := map[kernel.LimitKey]kernel.FirstInLine{}
		if rank != kernel.NotInLine {
			all[keys[0]], all[keys[2]], all[keys[3]] = want, want, want
		}
		s.equal("the first of all lines", read, all)
		s.checkConsistent()
	}
	again := func(st *kernel.Step) { st.Phase, st.AvailableAt = perdure.Waiting, at(time.Hour) }
	first(kernel.RankBegun, ref(3, 0), true)
	s.changeStep(ref(3, 0), again)
	first(kernel.RankBegun, ref(3, 0), false)
	s.changeSteps(run("h", "", at(time.Minute)), ref(3, 0))
	first(kernel.RankNew, ref(1, 0), true)
	s.changeStep(ref(1, 0), func(st *kernel.Step) { again(st); st.Blockers = 1 }) // it waits for another step
	first(kernel.RankNew, ref(2, 0), true)
	s.changeStep(ref(2, 0), again)
	first(kernel.RankNew, ref(2, 0), true) // the other step of its job is ready
	s.changeStep(ref(2, 1), again)
	first(kernel.RankNew, ref(2, 0), false)
	s.changeStep(ref(2, 1), func(st *kernel.Step) { st.Phase, st.AvailableAt = perdure.Ready, time.Time{} })
	s.changeStep(ref(2, 1), func(st *kernel.Step) { st.Needs = line("1") })
	first(kernel.RankBegun, ref(2, 1), true)
	s.changeSteps(settle, refs(1, 0, 2, 0, 2, 1)...)
	first(kernel.NotInLine, kernel.StepRef{}, false)
}

// Exactly the lanes that are closed for the given keys are opened.
func opensFirst(s *suite) {
	a, b := kernel.LimitKey{Name: "ads", Key: "a"}, kernel.LimitKey{Name: "ads", Key: "b"}
	both := kernel.Needs(`[{"name":"ads","key":"a"},{"name":"ads","key":"b"}]`)
	s.submit(withNeeds(adsNeed("a"), newJob(1, 1)))
	s.submit(withNeeds(both, newJob(2, 1)))
	s.submit(withNeeds(adsNeed("b"), newJob(3, 1)))
	lane := func(needs kernel.Needs) kernel.LaneRef {
		return kernel.LaneRef{Agent: "http", Lane: kernel.LaneOf("order", needs)}
	}
	s.save(&kernel.Changes{CloseLanes: []kernel.ClosedLane{{LaneRef: lane(adsNeed("a")), For: a}, {LaneRef: lane(both), For: b}, {LaneRef: lane(adsNeed("b")), For: b}}})
	s.ready("closed", "http", 9, nil, nil)
	open := func(want []string, of ...kernel.ClosedLane) {
		s.Helper()
		s.update(func(tx kernel.Tx) {
			agents, err := tx.OpenFirst(of)
			s.must(err)
			s.equal("agents", agents, want)
		})
	}
	open(nil)
	open(nil, kernel.ClosedLane{LaneRef: lane(both), For: a}, kernel.ClosedLane{LaneRef: lane(adsNeed("c")), For: b}, kernel.ClosedLane{LaneRef: kernel.LaneRef{Agent: "ftp", Lane: lane(both).Lane}, For: b})
	s.ready("others are opened", "http", 9, nil, nil)
	open([]string{"http"}, kernel.ClosedLane{LaneRef: lane(both), For: b}, kernel.ClosedLane{LaneRef: lane(adsNeed("a")), For: b})
	s.ready("one is opened", "http", 9, nil, refs(2, 0))
	open([]string{"http"}, kernel.ClosedLane{LaneRef: lane(adsNeed("b")), For: b}, kernel.ClosedLane{LaneRef: lane(adsNeed("a")), For: a})
	s.ready("all are open", "http", 9, nil, refs(1, 0, 2, 0, 3, 0))
	s.checkConsistent()
}

// A lane is opened although another transaction changes it at the same time: a step with an earlier place becomes ready there
// (F345).
func opensWhatOthersChange(s *suite) {
	const rounds = 60
	lane := laneOf("a")
	a := kernel.ClosedLane{LaneRef: lane, For: kernel.LimitKey{Name: "ads", Key: "a"}}
	s.submit(withNeeds(adsNeed("a"), newJob(2*rounds, 1)))
	for n := range rounds {
		s.save(&kernel.Changes{CloseLanes: []kernel.ClosedLane{a}})
		s.concurrently(2, func(i int) error {
			if i == 0 {
				nj := withNeeds(adsNeed("a"), newJob(rounds-n, 1)) // each before all others
				return s.store.Update(ctx, func(tx kernel.Tx) error { return tx.Save(&kernel.Changes{NewJobs: []kernel.NewJob{nj}}) })
			}
			return s.store.Update(ctx, func(tx kernel.Tx) (err error) {
				if n%2 == 0 {
					_, err = tx.OpenFirst([]kernel.ClosedLane{a})
				} else {
					_, err = tx.OpenLanes([]kernel.LimitKey{a.For}, 9)
				}
				return err
			})
		})
		s.ready(fmt.Sprint("round ", n), "http", 1, nil, refs(rounds-n, 0))
	}
}

// Rates, and the bounds of single keys, are stored with their limit.
func limitsWithRates(s *suite) {
	all := []kernel.Limit{
		{Name: "ads", Max: 9, Rate: kernel.Rate{Count: 5, Per: time.Second, Burst: 10}, PerKey: 2, KeyRate: kernel.Rate{Count: 1, Per: time.Minute, Burst: 1},
			Keys: map[string]kernel.KeyBound{"a": {Max: 7}, "b \"c\"": {Max: kernel.Unbounded, Rate: kernel.Rate{Count: 9, Per: time.Hour, Burst: 3}}}},
		{Name: "agent:http", Max: kernel.Unbounded, PerKey: kernel.Unbounded, Rate: kernel.Rate{Count: 100000, Per: time.Second, Burst: 10000}},
		{Name: "mail", Max: kernel.Unbounded, PerKey: kernel.Unbounded, KeyRate: kernel.Rate{Count: 2, Per: 24 * time.Hour, Burst: 1}},
		{Name: "turns", Max: kernel.Unbounded, PerKey: 1, Ordered: true},
	}
	s.update(func(tx kernel.Tx) {
		for _, l := range all {
			s.must(tx.PutLimit(l))
		}
	})
	checkTx(s, "locked", all, func(tx kernel.Tx) ([]kernel.Limit, error) {
		return tx.LockLimits([]string{"ads", "agent:http", "mail", "turns"})
	})
	checkTx(s, "read", all, func(tx kernel.Tx) ([]kernel.Limit, error) { return tx.Limits() })
	list, err := s.store.ListLimits(ctx)
	s.must(err)
	s.equal("listed", list, all)
	s.update(func(tx kernel.Tx) { s.must(tx.PutLimit(atMost("ads", 1))) })
	checkTx(s, "replaced", []kernel.Limit{atMost("ads", 1)}, func(tx kernel.Tx) ([]kernel.Limit, error) { return tx.LockLimits([]string{"ads"}) })
}

// Buckets are written with what was taken, or not at all, and deleted once they are full. Deleting a limit deletes no bucket:
// nothing is above its rate if it is set again (I26).
func buckets(s *suite) {
	all, a, b := kernel.LimitKey{Name: "ads"}, kernel.LimitKey{Name: "ads", Key: "a"}, kernel.LimitKey{Name: "ads", Key: "b"}
	early, late := kernel.Bucket{FullAt: at(time.Second).Add(1), Permit: 1}, kernel.Bucket{FullAt: at(time.Minute).Add(999), Permit: time.Hour}
	s.update(func(tx kernel.Tx) {
		s.must(tx.PutLimit(kernel.Limit{Name: "ads", Max: 5, PerKey: 3, Rate: kernel.Rate{Count: 1, Per: time.Second, Burst: 1}}))
	})
	some := func(want bool) {
		s.Helper()
		poll, err := s.store.Poll(ctx, nil)
		s.must(err)
		s.equal("there are buckets", poll.Buckets, want)
	}
	some(false)
	s.save(&kernel.Changes{Buckets: []kernel.KeyBucket{{LimitKey: all, Bucket: early}, {LimitKey: a, Bucket: early}}})
	s.save(&kernel.Changes{Buckets: []kernel.KeyBucket{{LimitKey: a, Bucket: late}, {LimitKey: b, Bucket: early}}})
	some(true)
	err := s.store.Update(ctx, func(tx kernel.Tx) error {
		s.must(tx.Save(&kernel.Changes{Buckets: []kernel.KeyBucket{{LimitKey: b, Bucket: late}}}))
		return errOops
	})
	if !errors.Is(err, errOops) {
		s.Errorf("rolled back: %v", err)
	}
	has := func(want map[kernel.LimitKey]kernel.Bucket) {
		s.Helper()
		got, err := s.store.Buckets(ctx, []kernel.LimitKey{a, all, b, {Name: "none"}})
		s.must(err)
		s.equal("buckets", got, want)
	}
	has(map[kernel.LimitKey]kernel.Bucket{all: early, a: late, b: early})
	checkTx(s, "of keys", map[kernel.LimitKey]kernel.Taken{a: {Bucket: late}, b: {Bucket: early}}, func(tx kernel.Tx) (map[kernel.LimitKey]kernel.Taken, error) {
		return tx.KeyUse([]kernel.LimitKey{a, b})
	})
	s.update(func(tx kernel.Tx) {
		l, err := tx.LockLimits([]string{"ads"})
		s.must(err)
		s.equal("of the limit", l[0].Bucket, early)
		_, err = tx.DeleteLimit("ads")
		s.must(err)
	})
	sweep := func(after kernel.LimitKey, max int, now time.Time, last kernel.LimitKey) {
		s.Helper()
		s.update(func(tx kernel.Tx) {
			got, err := tx.DeleteBuckets(after, max, now)
			s.must(err)
			s.equal("last", got, last)
		})
	}
	sweep(kernel.LimitKey{}, 9, early.FullAt.Add(-1), kernel.LimitKey{})
	has(map[kernel.LimitKey]kernel.Bucket{all: early, a: late, b: early})
	sweep(kernel.LimitKey{}, 2, early.FullAt, a)
	has(map[kernel.LimitKey]kernel.Bucket{a: late, b: early})
	sweep(a, 2, early.FullAt, kernel.LimitKey{})
	has(map[kernel.LimitKey]kernel.Bucket{a: late})
	sweep(kernel.LimitKey{}, 2, late.FullAt, kernel.LimitKey{})
	has(map[kernel.LimitKey]kernel.Bucket{})
	some(false)
}
