package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

var readChecks = []check{
	{"Read/ListJobsFilters", listJobs},
	{"Read/ListJobsByLabels", listJobsByLabels},
	{"Read/ListJobsByPages", listJobsByPages},
	{"Read/FindJobs", findJobs},
	{"Read/JobWithSteps", jobWithSteps},
	{"Read/StepsSince", stepsSince},
	{"Read/Poll", poll},
	{"Read/Backlog", backlog},
}

func (s *suite) list(what string, f kernel.JobFilter, want ...int) {
	s.Helper()
	jobs, _, err := s.store.ListJobs(ctx, f)
	s.must(err)
	var got []perdure.JobID
	for _, j := range jobs {
		got = append(got, j.ID)
	}
	s.equal(what, got, ids(want...))
}

// Jobs are listed newest first, and every field of the filter restricts the list.
func listJobs(s *suite) {
	s.submit(newJob(3, 1, typed("a"), keyed("k")), newJob(1, 1, typed("a")), newJob(2, 1, typed("b")),
		newJob(4, 1, typed("a"), func(j *kernel.Job) { j.Desired, j.Current = perdure.Undone, perdure.Unsure }),
		newJob(5, 1, typed("a"), settleJob))
	waiting, settled, parked := perdure.Waiting, perdure.Settled, perdure.Parked
	undone, done, unsure := perdure.Undone, perdure.Done, perdure.Unsure
	s.list("all", kernel.JobFilter{}, 5, 4, 3, 2, 1)
	s.list("type", kernel.JobFilter{Type: "a"}, 5, 4, 3, 1)
	s.list("key", kernel.JobFilter{Key: "k"}, 3)
	s.list("phase", kernel.JobFilter{Phases: []perdure.Phase{waiting}}, 4, 3, 2, 1)
	s.list("phase settled", kernel.JobFilter{Phases: []perdure.Phase{settled}}, 5)
	s.list("phase parked", kernel.JobFilter{Phases: []perdure.Phase{parked}})
	s.list("desired", kernel.JobFilter{Desired: &undone}, 4)
	s.list("current", kernel.JobFilter{Current: &undone}, 3, 2, 1)
	s.list("current done", kernel.JobFilter{Current: &done}, 5)
	s.list("all at once", kernel.JobFilter{
		Type: "a", Phases: []perdure.Phase{waiting}, Current: &unsure, Desired: &undone, After: id(3), Before: id(5), Limit: 7,
	}, 4)
	s.list("none", kernel.JobFilter{Type: "b", Key: "k"})
	jobs, _, err := s.store.ListJobs(ctx, kernel.JobFilter{Key: "k"})
	s.must(err)
	s.equal("whole rows", jobs, []*kernel.Job{newJob(3, 1, typed("a"), keyed("k")).Job})
}

func listJobsByLabels(s *suite) {
	s.submit(newJob(1, 1, labelled("customer", "c-77", "zone", "eu")), newJob(2, 1, labelled("customer", "c-77", "zone", "us")),
		newJob(3, 1, labelled("customer", "c-7")), newJob(4, 1), newJob(5, 1, labelled("empty", "", "a.b\"c", "%")))
	label := func(kv ...string) kernel.JobFilter {
		return kernel.JobFilter{Labels: newJob(0, 0, labelled(kv...)).Job.Labels}
	}
	s.list("one label", label("customer", "c-77"), 2, 1)
	s.list("two labels", label("customer", "c-77", "zone", "eu"), 1)
	s.list("a prefix of a value does not match", label("customer", "c-"))
	s.list("an empty value", label("empty", ""), 5)
	s.list("an empty value does not match an absent label", label("zone", ""))
	s.list("a name with special characters", label("a.b\"c", "%"), 5)
	s.list("no labels", label(), 5, 4, 3, 2, 1)
	f := label("customer", "c-77")
	f.Before = id(2)
	s.list("paged", f, 1)
	f.Before, f.Type = perdure.JobID{}, "other"
	s.list("of another type", f)
}

func listJobsByPages(s *suite) {
	const n = perdure.DefaultListLimit + 10
	var c kernel.Changes
	for i := range n {
		c.NewJobs = append(c.NewJobs, newJob(i, 1))
	}
	s.save(&c)
	jobs, _, err := s.store.ListJobs(ctx, kernel.JobFilter{})
	s.must(err)
	s.equal("without a limit", len(jobs), perdure.DefaultListLimit)
	s.list("first page", kernel.JobFilter{Limit: 2}, n-1, n-2)
	s.list("next page", kernel.JobFilter{Limit: 2, Before: id(n - 2)}, n-3, n-4)
	s.list("last page", kernel.JobFilter{Limit: 2, Before: id(1)}, 0)
	s.list("past the last page", kernel.JobFilter{Limit: 2, Before: id(0)})
	s.list("first page, ascending", kernel.JobFilter{Limit: 3, Ascending: true}, 0, 1, 2)
	s.list("next page, ascending", kernel.JobFilter{Limit: 3, Ascending: true, After: id(2)}, 3, 4, 5)
	s.list("newer", kernel.JobFilter{Limit: 2, After: id(5)}, n-1, n-2)
	s.list("between", kernel.JobFilter{After: id(5), Before: id(8)}, 7, 6)
}

// A job is found by its key, or by the beginning of its id, with or without "job_".
func findJobs(s *suite) {
	hex := func(n int) string { return strings.TrimPrefix(id(n).String(), "job_") }
	s.submit(newJob(1, 1, keyed("order-1")), newJob(2, 1), newJob(700, 1), newJob(3, 1, keyed(hex(2)[:12])), newJob(4, 1, keyed("%")))
	for _, c := range []struct {
		what, ref string
		max       int
		want      []perdure.JobID
	}{
		{"key", "order-1", 2, ids(1)},
		{"start of a key", "order-", 2, nil},
		{"a wild card", "%", 9, ids(4)},
		{"whole id", id(2).String(), 2, ids(2)},
		{"whole id without job_", hex(2), 2, ids(2)},
		{"unique start", "job_" + hex(700)[:12], 2, ids(700)},
		{"odd number of digits", hex(700)[:11], 2, ids(700)},
		{"common start", "job_" + hex(1)[:9], 9, ids(1, 2, 3, 4, 700)},
		{"common start, bounded", "job_" + hex(1)[:9], 2, ids(1, 2)},
		{"one digit", hex(1)[:1], 9, ids(1, 2, 3, 4, 700)},
		{"key first, then ids", hex(2)[:12], 9, ids(3, 2)},
		{"an id is never a key", "job_" + hex(2)[:12], 9, ids(2)},
		{"upper case", "job_" + strings.ToUpper(hex(2)), 9, nil},
		{"too long", id(2).String() + "0", 9, nil},
		{"not hex", "job_xyz", 9, nil},
		{"no digit", "job_", 9, nil},
		{"empty", "", 9, nil},
		{"none asked for", "order-1", 0, nil},
	} {
		got, err := s.store.FindJobs(ctx, c.ref, c.max)
		s.must(err)
		s.equal(c.what, got, c.want)
	}
}

// StepsOf with a time returns the steps that were written since then.
func stepsSince(s *suite) {
	s.submit(newJob(1, 4))
	for i, t := range []time.Duration{3, 1, 2} {
		s.changeStep(ref(1, i), func(st *kernel.Step) { st.UpdatedAt = at(t * time.Second) })
	}
	for since, want := range map[time.Duration][]int{4: nil, 3: {0}, 2: {0, 2}, 1: {0, 1, 2}, 0: {0, 1, 2, 3}} {
		steps, err := s.store.StepsOf(ctx, id(1), at(since*time.Second))
		s.must(err)
		var got []int
		for _, st := range steps {
			got = append(got, st.Index)
		}
		s.equal(since.String(), got, want)
	}
}

// Job returns as many steps as requested.
func jobWithSteps(s *suite) {
	s.submit(newJob(1, 4), newJob(2, 2))
	s.changeStep(ref(1, 1), func(st *kernel.Step) { st.Progress = "half" })
	for most, want := range map[int]int{0: 0, 1: 1, 3: 3, 4: 4, 5: 4} {
		j, steps, err := s.store.Job(ctx, id(1), most)
		s.must(err)
		s.equal("job", j, s.job(1))
		s.equal(fmt.Sprint("of at most ", most), len(steps), want)
		for i, st := range steps {
			s.equal("step", st, s.steps(1)[i])
		}
	}
}

// PollAnswer.Next is the earliest time at which a step, a run or a job needs an event.
func poll(s *suite) {
	next := func(what string, want time.Time) {
		s.Helper()
		got, err := exactPoll(s.store, nil)
		s.must(err)
		if !got.Next.Equal(want) || got.Now.IsZero() || len(got.Ready) > 0 {
			s.Errorf("%s: got %+v; want %v", what, got, want)
		}
	}
	next("nothing", time.Time{})
	s.submit(newJob(1, 3), newJob(2, 1))
	next("nothing by time", time.Time{})
	s.changeJob(2, func(j *kernel.Job) { j.CompleteBy = at(time.Hour) })
	next("a job", at(time.Hour))
	s.changeStep(ref(1, 0), waitUntil(at(time.Minute)))
	next("a step", at(time.Minute))
	s.changeStep(ref(1, 1), run("h", "", at(time.Second)))
	next("a run", at(time.Second))
	s.changeStep(ref(1, 1), settle)
	next("a step again", at(time.Minute))
	s.changeStep(ref(1, 0), settle)
	next("a job again", at(time.Hour))
	s.changeJob(2, func(j *kernel.Job) { j.Overdue = true })
	next("nothing again", time.Time{})
	ready := func(want ...string) {
		s.Helper()
		got, err := s.store.Poll(ctx, []string{"shell", "none", "http"})
		s.must(err)
		if !slices.Equal(got.Ready, want) {
			s.Errorf("ready are %v; want %v", got.Ready, want)
		}
	}
	ready("http")
	s.changeStep(ref(1, 2), func(st *kernel.Step) { st.Agent = "shell" })
	ready("http", "shell")
	s.changeStep(ref(2, 0), run("h", "", at(time.Second)))
	ready("shell")
	s.changeStep(ref(1, 2), settle)
	ready()
}

func backlog(s *suite) {
	for i := range 5 {
		s.submit(newJob(i, 1))
	}
	s.changeJob(0, settleJob)
	s.changeJob(1, func(j *kernel.Job) { j.Phase = perdure.Parked })
	for max, want := range map[int]int{0: 0, 3: 3, 4: 4, 100: 4} {
		got, err := s.store.Backlog(ctx, max)
		s.must(err)
		s.equal("backlog", got, want)
	}
}
