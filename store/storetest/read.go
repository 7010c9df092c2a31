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
	{"Read/ListJobsByState", listJobsByState},
	{"Read/ListJobsBySteps", listJobsBySteps},
	{"Read/ListJobsByAlerts", listJobsByAlerts},
	{"Read/ListJobsInParts", listJobsInParts},
	{"Read/SearchJobs", searchJobs},
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
	n, _, err := s.store.CountJobs(ctx, f)
	s.must(err)
	s.equal(what+", counted", n, len(want))
}

// Jobs are found by their state, among those that are done, and leave a list when their state changes.
func listJobsByState(s *suite) {
	state := func(phase perdure.Phase, current, desired perdure.State) func(*kernel.Job) {
		return func(j *kernel.Job) { j.Phase, j.Current, j.Desired = phase, current, desired }
	}
	s.submit(newJob(1, 1, state(perdure.Settled, perdure.Done, perdure.Done)), newJob(2, 1, state(perdure.Parked, perdure.Unsure, perdure.Done)),
		newJob(3, 1, state(perdure.Waiting, perdure.Undone, perdure.Done)), newJob(4, 1, state(perdure.Parked, perdure.Unsure, perdure.Undone)),
		newJob(5, 1, state(perdure.Waiting, perdure.Done, perdure.Undone)), newJob(6, 1, state(perdure.Settled, perdure.Undone, perdure.Undone)),
		newJob(7, 1, state(perdure.Settled, perdure.Unsure, perdure.Done)), newJob(8, 1, state(perdure.Settled, perdure.Done, perdure.Undone)))
	settled, waiting, parked := []perdure.Phase{perdure.Settled}, []perdure.Phase{perdure.Waiting}, []perdure.Phase{perdure.Parked}
	undone, done, unsure := perdure.Undone, perdure.Done, perdure.Unsure
	s.list("parked", kernel.JobFilter{Phases: parked}, 4, 2)
	s.list("parked or waiting", kernel.JobFilter{Phases: append(parked, waiting...)}, 5, 4, 3, 2)
	s.list("parked, to be undone", kernel.JobFilter{Phases: parked, Desired: &undone}, 4)
	s.list("to be undone", kernel.JobFilter{Desired: &undone}, 8, 6, 5, 4)
	s.list("to be undone, open", kernel.JobFilter{Desired: &undone, Phases: append(parked, waiting...)}, 5, 4)
	s.list("settled, to be undone", kernel.JobFilter{Desired: &undone, Phases: settled}, 8, 6)
	s.list("settled, not done", kernel.JobFilter{Current: &undone, Phases: settled}, 6)
	s.list("settled, unsure", kernel.JobFilter{Current: &unsure, Phases: settled}, 7)
	s.list("settled, done", kernel.JobFilter{Current: &done, Phases: settled}, 8, 1)
	s.list("unsure", kernel.JobFilter{Current: &unsure}, 7, 4, 2)
	s.list("settled or parked", kernel.JobFilter{Phases: append(settled, parked...)}, 8, 7, 6, 4, 2, 1)
	s.list("parked, oldest first", kernel.JobFilter{Phases: parked, Ascending: true}, 2, 4)
	s.list("parked, before", kernel.JobFilter{Phases: parked, Before: id(4)}, 2)
	s.list("parked, of a type", kernel.JobFilter{Phases: parked, Type: "another"})
	for n, to := range map[int]func(*kernel.Job){2: state(perdure.Waiting, perdure.Unsure, perdure.Done), 4: state(perdure.Settled, perdure.Undone, perdure.Undone), 7: state(perdure.Waiting, perdure.Unsure, perdure.Undone)} {
		s.changeJob(n, to)
	}
	s.list("parked, afterwards", kernel.JobFilter{Phases: parked})
	s.list("to be undone, afterwards", kernel.JobFilter{Desired: &undone}, 8, 7, 6, 5, 4)
	s.list("settled, not done, afterwards", kernel.JobFilter{Current: &undone, Phases: settled}, 6, 4)
}

// Jobs are found by an open step that waits for no other step.
func listJobsBySteps(s *suite) {
	front := func(phase perdure.Phase, agent, code string) func(*kernel.Step) {
		return func(st *kernel.Step) { st.Phase, st.Agent, st.ErrorCode, st.Desired = phase, agent, code, perdure.Done }
	}
	jobs := []kernel.NewJob{newJob(1, 2), newJob(2, 2), newJob(3, 1), newJob(4, 1, settleJob)}
	front(perdure.Waiting, "bank", "503")(jobs[0].Steps[0])
	front(perdure.Ready, "mail", "")(jobs[0].Steps[1])
	front(perdure.Parked, "bank", "declined")(jobs[1].Steps[0])
	front(perdure.Waiting, "bank", "503")(jobs[1].Steps[1])
	jobs[1].Steps[1].Blockers = 1
	front(perdure.Settled, "bank", "503")(jobs[2].Steps[0])
	front(perdure.Ready, "bank", "503")(jobs[3].Steps[0])
	s.submit(jobs...)
	s.list("agent", kernel.JobFilter{Agent: "bank"}, 2, 1)
	s.list("another agent", kernel.JobFilter{Agent: "mail"}, 1)
	s.list("step", kernel.JobFilter{Step: "s1"}, 1)
	s.list("error", kernel.JobFilter{ErrorCode: "503"}, 1)
	s.list("error of an agent", kernel.JobFilter{Agent: "bank", ErrorCode: "declined"}, 2)
	s.list("error of another agent", kernel.JobFilter{Agent: "mail", ErrorCode: "503"})
	s.list("settled", kernel.JobFilter{Agent: "bank", Phases: []perdure.Phase{perdure.Settled}})
}

// Jobs are found by the kind of an open alert.
func listJobsByAlerts(s *suite) {
	s.submit(newJob(1, 1), newJob(2, 1), newJob(3, 1))
	alert := func(job int, kind perdure.AlertKind) kernel.Alert {
		return kernel.Alert{Job: id(job), Kind: kind, RaisedAt: at(0)}
	}
	for n := 1; n <= 3; n++ {
		s.changeJob(n, func(j *kernel.Job) { j.Alerted = true })
	}
	s.save(&kernel.Changes{Alerts: []kernel.Alert{alert(1, perdure.AlertWaiting), alert(2, perdure.AlertWaiting), alert(2, perdure.AlertWaiting), alert(3, perdure.AlertNamed)}})
	s.list("waiting", kernel.JobFilter{Alert: perdure.AlertWaiting}, 2, 1)
	s.list("waiting, oldest first", kernel.JobFilter{Alert: perdure.AlertWaiting, Ascending: true, After: id(1)}, 2)
	s.list("overdue", kernel.JobFilter{Alert: perdure.AlertOverdue})
	s.save(&kernel.Changes{CloseAlerts: []kernel.CloseAlerts{{Job: id(2), Kinds: []perdure.AlertKind{perdure.AlertWaiting}, By: "anna"}}})
	s.list("waiting, afterwards", kernel.JobFilter{Alert: perdure.AlertWaiting}, 1)
}

// A search that reads its bound stops, says where, and continues there.
func listJobsInParts(s *suite) {
	const n = 30
	for i := range n {
		typ := "common"
		if i%10 == 3 {
			typ = "rare"
		}
		s.submit(newJob(i, 1+i%3, typed(typ), keyed(fmt.Sprint("k", i))))
	}
	waiting := []perdure.Phase{perdure.Waiting}
	f := kernel.JobFilter{Phases: waiting, Type: "rare", MaxRead: 5}
	jobs, stopped, err := s.store.ListJobs(ctx, f)
	s.must(err)
	if len(jobs) != 0 || stopped != id(n-5) {
		s.Errorf("%d jobs, stopped at %s, not at %s", len(jobs), stopped, id(n-5))
	}
	count, stopped, err := s.store.CountJobs(ctx, f)
	s.must(err)
	if count != 0 || stopped != id(n-5) {
		s.Errorf("%d counted, stopped at %s, not at %s", count, stopped, id(n-5))
	}
	for name, f := range map[string]kernel.JobFilter{
		"newest first": {Phases: waiting, Type: "rare", MaxRead: 5}, "oldest first": {Phases: waiting, Type: "rare", MaxRead: 5, Ascending: true},
		"by label": {Labels: map[string]string{"zone": "eu"}, Type: "rare", MaxRead: 4}, "unsettled": {Step: "s0", Type: "rare", MaxRead: 7},
	} {
		f.Limit = 2
		got, err := walk(s.store, f)
		s.must(err)
		f.MaxRead, f.Limit = 0, n
		all, stopped, err := s.store.ListJobs(ctx, f)
		s.must(err)
		var want []perdure.JobID
		for _, j := range all {
			want = append(want, j.ID)
		}
		s.equal(name, got, want)
		s.equal(name+", to its end", stopped, perdure.JobID{})
	}
	// A page that is full is complete, whatever was read.
	jobs, _, err = s.store.ListJobs(ctx, kernel.JobFilter{MaxRead: 5, Limit: 10})
	s.must(err)
	s.equal("a page of all jobs", len(jobs), 10)
}

// Jobs are searched by the beginning of their key, and by a label's value.
func searchJobs(s *suite) {
	s.submit(newJob(1, 1, keyed("order-1")), newJob(2, 1, keyed("order-2"), labelled("zone", "eu")), newJob(3, 1, keyed("refund-2"), labelled("customer", "order-1")),
		newJob(4, 1, labelled("zone", "eu", "other", "eu")), newJob(5, 1, keyed("注文-1")))
	search := func(text string, want ...int) {
		s.Helper()
		got, err := s.store.SearchJobs(ctx, text, 10)
		s.must(err)
		s.equal(text, got, ids(want...))
	}
	search("order-", 2, 1)
	search("order-1", 3, 1)
	search("eu", 4, 2)
	search("注", 5)
	search("e")
	search("order-3")
	got, err := s.store.SearchJobs(ctx, "eu", 1)
	s.must(err)
	s.equal("one of two", got, ids(4))
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
		if most == 0 {
			continue
		}
		several, err := s.store.StepsOfJobs(ctx, append(ids(1, 9, 2), slices.Repeat(ids(8), 100)...), most)
		s.must(err)
		s.equal("steps of several jobs", several, map[perdure.JobID][]*kernel.Step{id(1): s.steps(1)[:want], id(2): s.steps(2)[:min(most, 2)]})
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
