package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// Several waiting jobs of one definition are submitted in one transaction. A store may keep them in one row (a bundle)
// until one of them changes.
var togetherChecks = []check{
	{"Together/Read", togetherRead},
	{"Together/List", togetherList},
	{"Together/ReadyInOrder", togetherInOrder},
	{"Together/ChangedJobLeavesOthers", togetherMiddleJob},
	{"Together/WaitingStepsChange", togetherWaitingSteps},
	{"Together/DispatchedOnSubmission", togetherDispatchedOnSubmission},
	{"Together/ConcurrentSearchesShare", togetherTwoSearches},
	{"Together/Rollback", togetherRollback},
	{"Together/LockedJobsStay", togetherLocked},
	{"Together/WithOtherJobs", togetherWithOthers},
	{"Together/Stale", togetherStale},
	{"Together/ByHash", togetherByHash},
}

var errInterrupted = errors.New("interrupted")

// similarJobs returns jobs of one definition, each with its own input; every fifth has none.
func similarJobs(from, n, steps int, edits ...func(*kernel.Job)) (all []kernel.NewJob) {
	for i := from; i < from+n; i++ {
		nj := newJob(i, steps, append([]func(*kernel.Job){func(j *kernel.Job) {
			j.Shape, j.Active = kernel.ShapeID{77, byte(steps)}, 1
			if i%5 > 0 {
				j.Input = fmt.Appendf(nil, `{"n":%d}`, i)
			}
		}}, edits...)...)
		nj.Shape = fmt.Appendf(nil, `{"type":"order", "steps":%d}`, steps)
		for k, s := range nj.Steps {
			if s.Type, s.Priority = nj.Job.Type, nj.Job.Priority; k > 0 {
				*s = kernel.InitialStep(nj.Job, k, s.Name, 1)
			}
		}
		all = append(all, nj)
	}
	return all
}

// submitNow stores new jobs after reading the clock, as the scheduler does.
func (s *suite) submitNow(jobs ...kernel.NewJob) {
	s.Helper()
	s.update(func(tx kernel.Tx) {
		_, err := tx.Now()
		s.must(err)
		s.must(tx.Save(&kernel.Changes{NewJobs: jobs}))
	})
}

// similarJob returns job n of similarJobs, with its steps.
func similarJob(n, steps int) kernel.NewJob { return similarJobs(n, 1, steps)[0] }

// storeDefinition stores the definition, from which stores learn which steps wait.
func (s *suite) storeDefinition(steps int) {
	s.Helper()
	one := similarJobs(60_000, 1, steps)
	s.submitNow(one...)
	s.save(&kernel.Changes{Jobs: []kernel.JobChange{editJob(one[0].Job, settleJob)}, Steps: settled(one[0].Steps)})
}

func settled(steps []*kernel.Step) (changes []kernel.StepChange) {
	for _, st := range steps {
		changes = append(changes, editStep(st, settle))
	}
	return changes
}

func (s *suite) hasJob(n, steps int) {
	s.Helper()
	want := similarJob(n, steps)
	job, found, err := s.store.Job(ctx, id(n), steps)
	s.must(err)
	s.equal(fmt.Sprint("job ", n), job, want.Job)
	s.equal(fmt.Sprint("steps of job ", n), found, want.Steps)
}

func togetherRead(s *suite) {
	s.storeDefinition(3)
	s.submitNow(similarJobs(1, 300, 3)...)
	for _, n := range []int{1, 5, 250, 251, 300} {
		s.hasJob(n, 3)
		want := similarJob(n, 3)
		steps, err := s.store.StepsOf(ctx, id(n), time.Time{})
		s.must(err)
		s.equal("StepsOf", steps, want.Steps)
		in, size, err := s.store.Input(ctx, id(n), 100)
		s.must(err)
		s.equal("input", string(in), string(want.Job.Input))
		s.equal("size", size, len(want.Job.Input))
		if len(want.Job.Input) > 0 {
			in, size, err = s.store.Input(ctx, id(n), 3)
			s.must(err)
			s.equal("input that is too large", in == nil && size == len(want.Job.Input), true)
		}
		payloads, err := s.store.Payloads(ctx, id(n), 1000, 1000)
		s.must(err)
		s.equal("payloads", len(payloads), 0)
		several, err := s.store.StepsOfJobs(ctx, ids(n, 301), 2)
		s.must(err)
		s.equal("StepsOfJobs", several, map[perdure.JobID][]*kernel.Step{id(n): want.Steps[:2]})
		refs, err := s.store.FindJobs(ctx, id(n).String(), 3)
		s.must(err)
		s.equal("FindJobs", refs, ids(n))
	}
	job, _, err := s.store.Job(ctx, id(301), 1)
	s.must(err)
	s.equal("job 301", job, (*kernel.Job)(nil))
	since, err := s.store.StepsOf(ctx, id(7), at(time.Hour))
	s.must(err)
	s.equal("since", len(since), 0)
	beginning := id(100).String()[:14]
	found, err := s.store.FindJobs(ctx, beginning, 1000)
	s.must(err)
	var begin []perdure.JobID
	for _, n := range numbers(1, 300) {
		if strings.HasPrefix(id(n).String(), beginning) {
			begin = append(begin, id(n))
		}
	}
	s.equal("FindJobs by a prefix", found, begin)
	n, err := s.store.Backlog(ctx, 10_000)
	s.must(err)
	s.equal("backlog", n, 300)
	n, err = s.store.Backlog(ctx, 100)
	s.must(err)
	s.equal("backlog, bounded", n, 100)
	answer, err := s.store.Poll(ctx, []string{"http", "ftp"})
	s.must(err)
	s.equal("agents with ready steps", answer.Ready, []string{"http"})
}

func numbers(from, to int) (list []int) {
	for ; from <= to; from++ {
		list = append(list, from)
	}
	return list
}

func togetherList(s *suite) {
	s.submitNow(similarJobs(1, 20, 1)...)
	s.submitNow(similarJobs(2000, 600, 1, typed("other"))...)
	s.submitNow(newJob(30, 1), newJob(2300, 1, typed("third"), func(j *kernel.Job) { j.ID[15]++ })) // one between the two, one among the others
	s.changeStep(ref(5, 0), settle)
	s.changeJob(5, settleJob)
	down := func(list []int) []int { slices.Reverse(list); return list }
	asc := kernel.JobFilter{Ascending: true}
	list := func(what string, f kernel.JobFilter, want []int) {
		s.Helper()
		jobs, _, err := s.store.ListJobs(ctx, f)
		s.must(err)
		got := make([]perdure.JobID, len(jobs))
		for i, j := range jobs {
			got[i] = j.ID
		}
		if !slices.Equal(got, ids(want...)) {
			s.Errorf("%s: %v, want %v", what, got, ids(want...))
		}
	}
	f := asc
	f.Limit = 25
	list("first", f, append(numbers(1, 20), 30, 2000, 2001, 2002, 2003))
	f.After = id(10)
	list("after 10", f, append(numbers(11, 20), append([]int{30}, numbers(2000, 2013)...)...))
	list("newest", kernel.JobFilter{Limit: 3}, []int{2599, 2598, 2597})
	list("before 2005", kernel.JobFilter{Limit: 8, Before: id(2005)}, []int{2004, 2003, 2002, 2001, 2000, 30, 20, 19})
	list("between", kernel.JobFilter{Limit: 100, Before: id(2005), After: id(15)}, append([]int{2004, 2003, 2002, 2001, 2000, 30}, down(numbers(16, 20))...))
	waiting, done, undone := perdure.Waiting, perdure.Done, perdure.Undone
	list("that wait", kernel.JobFilter{Phases: []perdure.Phase{waiting}, Type: "order", Ascending: true, Limit: 100}, append(append(numbers(1, 4), numbers(6, 20)...), 30))
	list("of a type", kernel.JobFilter{Type: "other", Ascending: true, Limit: 2, After: id(2300)}, []int{2301, 2302})
	list("done", kernel.JobFilter{Current: &done, Limit: 100}, []int{5})
	list("to be undone", kernel.JobFilter{Desired: &undone, Limit: 100}, nil)
	jobs, _, err := s.store.ListJobs(ctx, kernel.JobFilter{Limit: 1000})
	s.must(err)
	s.equal("all", len(jobs), 622)
	for i, j := range jobs {
		if i > 0 && jobs[i-1].ID.Compare(j.ID) <= 0 {
			s.Errorf("%v after %v", j.ID, jobs[i-1].ID)
		}
	}
}

// Steps are found in the usual order: by priority, then by time.
func togetherInOrder(s *suite) {
	s.submitNow(similarJobs(100, 40, 1)...)
	s.submitNow(newJob(120, 1, func(j *kernel.Job) { j.ID[15] = 7; j.ID[14] = 7 })) // between two of them
	s.submitNow(similarJobs(10, 10, 1)...)
	s.submitNow(similarJobs(200, 10, 1, priority(9))...)
	s.submitNow(newJob(300, 1, priority(9)))
	want := refs()
	for _, n := range numbers(200, 209) {
		want = append(want, ref(n, 0))
	}
	want = append(want, ref(300, 0))
	for _, n := range append(numbers(10, 19), numbers(100, 120)...) {
		want = append(want, ref(n, 0))
	}
	want = append(want, kernel.StepRef{Job: newJob(120, 1, func(j *kernel.Job) { j.ID[15] = 7; j.ID[14] = 7 }).Job.ID})
	for _, n := range numbers(121, 139) {
		want = append(want, ref(n, 0))
	}
	slices.SortFunc(want[11:], kernel.StepRef.Compare)
	for _, max := range []int{1, 5, 12, 40, 1000} {
		s.ready(fmt.Sprint("first ", max), "http", max, nil, want[:min(max, len(want))])
	}
	s.ready("others", "ftp", 10, nil, nil)
	s.limit("job:order", 0)
	s.ready("full", "http", 100, []string{"job:order"}, nil)
}

// run dispatches the first steps of these jobs.
func (s *suite) run(tx kernel.Tx, all ...int) {
	s.Helper()
	jobs, err := tx.LockJobs(ids(all...))
	s.must(err)
	s.equal("locked", len(jobs), len(all))
	var steps []kernel.StepRef
	for _, n := range all {
		steps = append(steps, ref(n, 0))
	}
	found, err := tx.Steps(steps)
	s.must(err)
	c := &kernel.Changes{}
	for _, j := range jobs {
		c.Jobs = append(c.Jobs, editJob(j, func(j *kernel.Job) { j.Running, j.Active, j.Phase, j.Current = 1, 0, perdure.Running, perdure.Unsure }))
	}
	for _, st := range found {
		c.Steps = append(c.Steps, editStep(st, func(st *kernel.Step) {
			st.Phase, st.Run, st.LockedBy, st.Request, st.LockedUntil, st.Current = perdure.Running, 1, "h", "r", at(time.Minute), perdure.Unsure
		}))
	}
	s.must(tx.Save(c))
}

// If one job of a bundle changes, the others remain ready, each unchanged.
func togetherMiddleJob(s *suite) {
	s.storeDefinition(3)
	s.submitNow(similarJobs(1, 30, 3)...)
	s.update(func(tx kernel.Tx) { s.run(tx, 12) })
	s.update(func(tx kernel.Tx) { s.run(tx, 20, 21) })
	want := refs()
	for n := 1; n <= 30; n++ {
		if n != 12 && n != 20 && n != 21 {
			s.hasJob(n, 3)
			want = append(want, ref(n, 0))
		}
	}
	s.ready("the others", "http", 100, nil, want)
	s.held("h", "http", "r", 12, 0, 20, 0, 21, 0)
	s.equal("running", s.job(12).Running, 1)
	s.equal("steps", len(s.steps(12)), 3)
	n, err := s.store.Backlog(ctx, 1000)
	s.must(err)
	s.equal("backlog", n, 30)
}

// Further steps wait, and are changed like those of other jobs.
func togetherWaitingSteps(s *suite) {
	s.storeDefinition(3)
	s.submitNow(similarJobs(1, 20, 3)...)
	s.update(func(tx kernel.Tx) {
		_, err := tx.LockJobs(ids(3))
		s.must(err)
		steps, err := tx.Steps(refs(3, 1, 3, 0, 3, 2))
		s.must(err)
		s.equal("steps", steps, similarJob(3, 3).Steps)
		all, err := tx.StepsOf(id(3))
		s.must(err)
		s.equal("all", all, similarJob(3, 3).Steps)
		payloads, err := tx.Payloads(refs(3, 0, 3, 1), 1000)
		s.must(err)
		s.equal("payloads", len(payloads), 0)
		s.must(tx.Save(&kernel.Changes{
			Jobs:  []kernel.JobChange{editJob(similarJob(3, 3).Job, func(j *kernel.Job) { j.Active = 2 })},
			Steps: []kernel.StepChange{editStep(steps[1], func(st *kernel.Step) { st.Blockers, st.Phase, st.Agent = 0, perdure.Ready, "ftp" })},
		}))
	})
	s.ready("ftp", "ftp", 10, nil, refs(3, 1))
	s.equal("first", s.steps(3)[0], similarJob(3, 3).Steps[0])
	s.equal("last", s.steps(3)[2], similarJob(3, 3).Steps[2])
	s.ready("http", "http", 4, nil, refs(1, 0, 2, 0, 3, 0, 4, 0))
}

// One transaction stores jobs and dispatches some of them, with a Save in between.
func togetherDispatchedOnSubmission(s *suite) {
	s.storeDefinition(3)
	s.update(func(tx kernel.Tx) {
		all := similarJobs(1, 20, 3)
		_, err := tx.Now()
		s.must(err)
		s.must(tx.Save(&kernel.Changes{NewJobs: all}))
		found, err := tx.Ready("http", 3, nil, nil)
		s.must(err)
		s.equal("ready", found, refs(1, 0, 2, 0, 3, 0))
		c := &kernel.Changes{}
		for _, n := range []int{1, 4} { // they are in the workset, and are not locked again
			c.Jobs = append(c.Jobs, editJob(all[n-1].Job, func(j *kernel.Job) { j.Running, j.Active, j.Phase = 1, 0, perdure.Running }))
			c.Steps = append(c.Steps, editStep(all[n-1].Steps[0], func(st *kernel.Step) {
				st.Phase, st.Run, st.LockedBy, st.Request, st.LockedUntil = perdure.Running, 1, "h", "r", at(time.Minute)
			}))
		}
		s.must(tx.Save(c))
		c = &kernel.Changes{Jobs: []kernel.JobChange{editJob(c.Jobs[0].Now, settleJob)}, Steps: []kernel.StepChange{editStep(c.Steps[0].Now, settle)}}
		s.must(tx.Save(c))
	})
	s.held("h", "http", "r", 4, 0)
	s.ready("the others", "http", 4, nil, refs(2, 0, 3, 0, 5, 0, 6, 0))
	s.hasJob(2, 3)
	s.equal("settled", s.job(1).Phase, perdure.Settled)
}

// Two transactions search at the same time. Neither waits for the other, and neither takes steps that the other takes.
// Steps that neither takes remain available.
func togetherTwoSearches(s *suite) {
	s.submitNow(similarJobs(1, 20, 1)...)
	s.submitNow(similarJobs(100, 20, 1)...)
	taken := map[perdure.JobID]bool{}
	take := func(tx kernel.Tx, max int) (n int) {
		found, err := tx.Ready("http", max, nil, nil)
		s.must(err)
		var jobs []perdure.JobID
		for _, r := range found {
			jobs = append(jobs, r.Job)
		}
		locked, err := tx.TryLockJobs(jobs)
		s.must(err)
		c := &kernel.Changes{}
		for _, j := range locked {
			if taken[j.ID] {
				s.Errorf("%v is dispatched twice", j.ID)
			}
			taken[j.ID] = true
			steps, err := tx.Steps([]kernel.StepRef{{Job: j.ID}})
			s.must(err)
			c.Jobs = append(c.Jobs, editJob(j, settleJob))
			c.Steps = append(c.Steps, editStep(steps[0], settle))
		}
		s.must(tx.Save(c))
		return len(locked)
	}
	var second sync.WaitGroup
	s.update(func(tx kernel.Tx) {
		s.equal("first", take(tx, 5), 5)
		ended := make(chan struct{})
		second.Go(func() {
			defer close(ended)
			s.update(func(other kernel.Tx) {
				if n := take(other, 40); n == 0 { // more than the first one has locked
					s.Error("the second search found nothing")
				}
			})
		})
		select {
		case <-ended:
		case <-time.After(200 * time.Millisecond): // the store has one writer at a time
		}
	})
	second.Wait()
	for n := 1; n > 0; {
		s.update(func(tx kernel.Tx) { n = take(tx, 7) })
	}
	s.equal("taken", len(taken), 40)
	n, err := s.store.Backlog(ctx, 1000)
	s.must(err)
	s.equal("backlog", n, 0)
}

func togetherRollback(s *suite) {
	s.storeDefinition(3)
	s.submitNow(similarJobs(1, 20, 3)...)
	for range 2 {
		err := s.store.Update(ctx, func(tx kernel.Tx) error {
			s.run(tx, 1, 2, 9)
			return errInterrupted
		})
		s.equal("error", errors.Is(err, errInterrupted), true)
	}
	for _, n := range []int{1, 2, 3, 9, 20} {
		s.hasJob(n, 3)
	}
	s.ready("all", "http", 3, nil, refs(1, 0, 2, 0, 3, 0))
	s.update(func(tx kernel.Tx) { s.run(tx, 1, 2) })
	s.ready("the others", "http", 2, nil, refs(3, 0, 4, 0))
}

// Jobs that are locked and not changed stay as they are.
func togetherLocked(s *suite) {
	s.submitNow(similarJobs(1, 20, 1)...)
	s.update(func(tx kernel.Tx) {
		jobs, err := tx.LockJobs(ids(1, 7, 99))
		s.must(err)
		s.equal("jobs", len(jobs), 2)
		s.equal("job", jobs[1], similarJob(7, 1).Job)
		jobs, err = tx.TryLockJobs(ids(2, 7, 8))
		s.must(err)
		s.equal("jobs of TryLockJobs", len(jobs), 3)
	})
	s.hasJob(7, 1)
	s.ready("all", "http", 3, nil, refs(1, 0, 2, 0, 3, 0))
	s.update(func(tx kernel.Tx) { s.run(tx, 7) })
	s.equal("running", s.job(7).Running, 1)
}

// Only some of the jobs of one transaction are similar.
func togetherWithOthers(s *suite) {
	all := similarJobs(1, 20, 1)
	all[3].Job.Key, all[5].Job.Labels, all[7].Job.CompleteBy = "k", map[string]string{"a": "b"}, at(time.Hour)
	all[9].Steps[0].Phase, all[9].Job.Phase = perdure.Settled, perdure.Settled
	all[11].Steps[0].Agent, all[12].Job.Input = "ftp", []byte(`"`+string(make([]byte, perdure.MaxInlineInput))+`"`)
	for i := range all[12].Job.Input[1 : perdure.MaxInlineInput+1] {
		all[12].Job.Input[i+1] = 'x'
	}
	s.submitNow(all...)
	s.list("labelled", kernel.JobFilter{Labels: map[string]string{"a": "b"}}, 6)
	s.list("keyed", kernel.JobFilter{Key: "k"}, 4)
	s.ready("ftp", "ftp", 5, nil, refs(12, 0))
	var want []kernel.StepRef
	for _, n := range numbers(1, 20) {
		if n != 10 && n != 12 {
			want = append(want, ref(n, 0))
		}
	}
	s.ready("http", "http", 100, nil, want)
	answer, err := s.store.Poll(ctx, []string{"ftp"})
	s.must(err)
	s.equal("next", answer.Next.Equal(at(time.Hour)), true)
	s.equal("job", s.job(8).CompleteBy.Equal(at(time.Hour)), true)
}

func togetherStale(s *suite) {
	s.submitNow(similarJobs(1, 20, 1)...)
	s.refused("a run number that was not given", &kernel.Changes{Steps: []kernel.StepChange{editStep(func() *kernel.Step {
		st := *similarJob(4, 1).Steps[0]
		st.Run = 3
		return &st
	}(), settle)}})
	s.refused("a job that differs from its row", &kernel.Changes{Jobs: []kernel.JobChange{editJob(func() *kernel.Job {
		j := *similarJob(4, 1).Job
		j.Running = 1
		return &j
	}(), settleJob)}})
	s.hasJob(4, 1)
}

func togetherByHash(s *suite) {
	hash := func(j *kernel.Job) {
		if j.ID == id(5) || j.ID == id(9) || j.ID == id(40) {
			j.Hash = [32]byte{31: 9}
		}
	}
	s.submitNow(similarJobs(1, 20, 1, hash)...)
	s.submitNow(similarJobs(30, 20, 1, hash, typed("other"))...)
	same := func(what string, typ string, want int) {
		s.Helper()
		s.update(func(tx kernel.Tx) {
			got, found, err := tx.JobByHash(typ, [32]byte{31: 9})
			s.must(err)
			s.equal(what, found, want > 0)
			if found {
				s.equal(what, got, id(want))
			}
		})
	}
	same("newest job with the hash", "order", 9)
	same("job of another type", "other", 40)
	same("unknown type", "third", 0)
	s.changeStep(ref(9, 0), settle)
	s.changeJob(9, settleJob)
	same("newest job that is not settled", "order", 5)
}
