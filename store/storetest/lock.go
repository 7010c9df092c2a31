package storetest

import (
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

var lockChecks = []check{
	{"Lock/JobsInOrder", lockJobs},
	{"Lock/StepsInOrder", lockSteps},
	{"Lock/Shapes", lockShapes},
	{"Lock/LimitsUntilDeleted", lockLimits},
	{"Lock/LimitsCountHeldPermits", lockLimitsCount},
	{"Lock/TimeNeverRunsBack", lockNow},
}

// Jobs are returned in the order of their ids, each once, whatever the order of the request.
func lockJobs(s *suite) {
	s.submit(newJob(3, 1), newJob(1, 1), newJob(2, 1))
	for what, lock := range map[string]func(kernel.Tx) func([]perdure.JobID) ([]*kernel.Job, error){
		"LockJobs":    func(tx kernel.Tx) func([]perdure.JobID) ([]*kernel.Job, error) { return tx.LockJobs },
		"TryLockJobs": func(tx kernel.Tx) func([]perdure.JobID) ([]*kernel.Job, error) { return tx.TryLockJobs },
	} {
		checkTx(s, what, []*kernel.Job{newJob(1, 1).Job, newJob(2, 1).Job, newJob(3, 1).Job}, func(tx kernel.Tx) ([]*kernel.Job, error) {
			return lock(tx)(ids(3, 1, 9, 2, 1))
		})
		checkTx(s, what+" of nothing", nil, func(tx kernel.Tx) ([]*kernel.Job, error) { return lock(tx)(nil) })
	}
}

// Steps are returned in the order of job and index, each once.
func lockSteps(s *suite) {
	one, two := newJob(1, 12), newJob(2, 2)
	s.submit(one, two)
	want := []*kernel.Step{one.Steps[0], one.Steps[2], one.Steps[10], two.Steps[1]}
	checkTx(s, "steps", want, func(tx kernel.Tx) ([]*kernel.Step, error) {
		return tx.Steps(refs(2, 1, 1, 10, 1, 2, 3, 0, 1, 99, 1, 0, 1, 2))
	})
	checkTx(s, "no steps", nil, func(tx kernel.Tx) ([]*kernel.Step, error) { return tx.Steps(nil) })
	checkTx(s, "steps of a job", one.Steps, func(tx kernel.Tx) ([]*kernel.Step, error) { return tx.StepsOf(id(1)) })
	checkTx(s, "steps of no job", nil, func(tx kernel.Tx) ([]*kernel.Step, error) { return tx.StepsOf(id(9)) })
}

func lockShapes(s *suite) {
	one, two := newJob(1, 1), newJob(2, 1)
	s.submit(one, two)
	checkTx(s, "shapes", map[kernel.ShapeID][]byte{one.Job.Shape: one.Shape, two.Job.Shape: two.Shape},
		func(tx kernel.Tx) (map[kernel.ShapeID][]byte, error) {
			return tx.Shapes([]kernel.ShapeID{two.Job.Shape, {9, 9}, one.Job.Shape})
		})
}

// A limit takes effect at once, and exists until it is deleted.
func lockLimits(s *suite) {
	s.update(func(tx kernel.Tx) {
		s.must(tx.PutLimit(atMost("job:order", 3)))
		s.must(tx.PutLimit(atMost("agent:http", 5)))
		s.must(tx.PutLimit(atMost("agent:Ü", 0)))
	})
	want := []kernel.Limit{atMost("agent:http", 5), atMost("job:order", 3)}
	checkTx(s, "locked", want, func(tx kernel.Tx) ([]kernel.Limit, error) {
		return tx.LockLimits([]string{"job:order", "agent:none", "agent:http", "job:order"})
	})
	all := []kernel.Limit{atMost("agent:http", 5), atMost("agent:Ü", 0), atMost("job:order", 3)}
	checkTx(s, "all", all, kernel.Tx.Limits)
	s.update(func(tx kernel.Tx) {
		s.must(tx.PutLimit(atMost("job:order", 0)))
		had, err := tx.DeleteLimit("agent:http")
		s.must(err)
		s.equal("deleted", had, true)
		had, err = tx.DeleteLimit("agent:http")
		s.must(err)
		s.equal("deleted again", had, false)
	})
	listed, err := s.store.ListLimits(ctx)
	s.must(err)
	s.equal("listed", listed, []kernel.Limit{atMost("agent:Ü", 0), atMost("job:order", 0)})
}

// Permits are counted from the rows that hold them (F029, F136).
func lockLimitsCount(s *suite) {
	s.submit(newJob(1, 2, permitted), newJob(2, 3, permitted), newJob(3, 1), newJob(4, 1, permitted, typed("other")))
	s.update(func(tx kernel.Tx) {
		s.must(tx.PutLimit(atMost("job:order", 1)))
		s.must(tx.PutLimit(atMost("agent:http", 10)))
		s.must(tx.PutLimit(atMost("agent:ftp", 10)))
	})
	s.changeStep(ref(2, 1), run("h1", "", at(time.Minute)))
	s.changeStep(ref(1, 0), run("h2", "", at(0))) // a run holds its permit after the end of its lock, until it is expired
	s.changeStep(ref(1, 1), func(st *kernel.Step) { run("h1", "", at(time.Minute))(st); st.Agent = "ftp" })
	s.changeStep(ref(2, 2), settle)
	count := func(job, http, ftp int) {
		s.Helper()
		checkTx(s, "used", []kernel.Limit{
			used(atMost("agent:ftp", 10), ftp), used(atMost("agent:http", 10), http), used(atMost("job:order", 1), job),
		}, func(tx kernel.Tx) ([]kernel.Limit, error) {
			return tx.LockLimits([]string{"agent:ftp", "agent:http", "job:order"})
		})
	}
	count(2, 2, 1)
	s.use("job:order", 10, 2, kernel.LimitHolder{Job: id(1), Amount: 1}, kernel.LimitHolder{Job: id(2), Amount: 1})
	s.use("job:order", 1, 2, kernel.LimitHolder{Job: id(1), Amount: 1})
	s.use("job:order", 0, 2)
	s.use("job:other", 10, 1, kernel.LimitHolder{Job: id(4), Amount: 1}) // permits are counted although the limit is not set
	s.use("agent:http", 10, 2, kernel.LimitHolder{Job: id(1), Step: "s0", Run: 1, Amount: 1}, kernel.LimitHolder{Job: id(2), Step: "s1", Run: 1, Amount: 1})
	s.use("agent:unused", 10, 0)
	s.use("neither", 10, 0)

	s.changeStep(ref(1, 0), settle)
	s.changeJob(1, func(j *kernel.Job) { j.HasPermit = false })
	count(1, 1, 1)
}

func (s *suite) use(name string, max, used int, holders ...kernel.LimitHolder) {
	s.Helper()
	n, got, err := s.store.LimitUse(ctx, kernel.LimitKey{Name: name}, max)
	s.must(err)
	s.equal(name+" used", n, used)
	s.equal(name+" holders", got, holders)
}

// The clock goes forward, in UTC and to the microsecond, and all users of the store read the same clock.
func lockNow(s *suite) {
	var last time.Time
	later := func(what string, t time.Time) {
		s.Helper()
		if t.Before(last) || t.IsZero() || t.Location() != time.UTC || t.Nanosecond()%1000 != 0 {
			s.Errorf("%s: %v after %v", what, t, last)
		}
		last = t
	}
	for range 20 {
		s.update(func(tx kernel.Tx) {
			for range 2 {
				t, err := tx.Now()
				s.must(err)
				later("tx", t)
			}
		})
		t, err := s.store.Now(ctx)
		s.must(err)
		later("reader", t)
	}
	if d := time.Since(last).Abs(); d > time.Hour {
		s.Errorf("the store's clock is off by %v", d)
	}
}
