package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// sample is a job in the middle of things: one step of each kind.
func sample() *perdure.JobView {
	id, _ := perdure.ParseJobID("job_0193a6f0b2c37d4e8f00112233445566")
	return &perdure.JobView{
		ID: id, Key: "order-1042", Type: "order", Current: perdure.Unsure, Desired: perdure.Done, Phase: perdure.Running,
		Unsettled: 4, SubmittedAt: noon.Add(-12 * time.Second), CompleteBy: noon.Add(time.Minute),
		Steps: perdure.StepViews{
			{Name: "ship", After: []string{"charge", "pack"}, Desired: perdure.Done, Phase: perdure.Waiting,
				Why: &perdure.Reason{Kind: perdure.WhyAfterSteps, Text: "waits for charge, pack"}},
			{Name: "reserve", Current: perdure.Done, Desired: perdure.Done, Run: 1, Outcome: perdure.OutcomeDone,
				StartedAt: noon.Add(-11 * time.Second), EndedAt: noon.Add(-10*time.Second + 200*time.Millisecond)},
			{Name: "charge", After: []string{"reserve"}, Current: perdure.Unsure, Desired: perdure.Done, Phase: perdure.Running, Run: 2, LockedBy: "payments@h3",
				CompleteBy: noon.Add(41 * time.Second), Failures: 1, Outcome: perdure.NoOutcome, Progress: json.RawMessage(`{"done":3,"total":10,"message":"paging"}`),
				Why: &perdure.Reason{Kind: perdure.WhyRunning}},
			{Name: "pack", After: []string{"reserve"}, Current: perdure.Undone, Desired: perdure.Done, Phase: perdure.Waiting, Run: 1, Failures: 1, Outcome: perdure.OutcomeFailed,
				Why: &perdure.Reason{Kind: perdure.WhyBackoff, Until: noon.Add(3 * time.Second), Text: "again in 9s, after 1 failure, last: 503"}},
			{Name: "gift", After: []string{"reserve"}, Skipped: true, Desired: perdure.Done},
			{Name: "mail", Agent: "mailer", After: []string{"reserve"}, Current: perdure.Unsure, Desired: perdure.Done, Phase: perdure.Parked, Run: 5, Failures: 5,
				Why: &perdure.Reason{Kind: perdure.WhyParked, Text: "parked after 5 failures, last: no\x1b[31m address; try: resume"}},
		},
	}
}

func TestLinesShowEveryKindOfStep(t *testing.T) {
	job := newTracker(sample(), perdure.Done)
	want := []string{
		"order  order-1042  job_0193a6f0b2c37d4e  unsure → done, running  2 of 6 steps done  submitted 12s ago, 1m left",
		"  ✓ reserve  done      run 1, 1.2s",
		"  ● charge   running   run 2 by payments@h3, 41s left, 3/10 paging",
		"  ↻ pack     waiting   again in 3s, after 1 failure, last: 503",
		"  ○ ship     waiting   waits for charge, pack",
		"  – gift     skipped",
		"  ■ mail     parked    parked after 5 failures, last: no\uFFFD[31m address; try: resume",
	}
	if diff := cmp.Diff(want, job.lines(style{}, noon, 0, 0, -1)); diff != "" {
		t.Error(diff)
	}
}

func TestLinesFitTheTerminal(t *testing.T) {
	job := newTracker(sample(), perdure.Done)
	for _, width := range []int{1, 10, 40, 80} {
		for height := 1; height < 9; height++ {
			for _, st := range []style{{}, {on: true}} {
				lines := job.lines(st, noon, width, height, 0)
				if len(lines) > height {
					t.Errorf("%d lines in %d", len(lines), height)
				}
				for _, l := range lines {
					if n := visible(l); n > width && width > 20 {
						t.Errorf("width %d: %q takes %d", width, l, n)
					}
				}
			}
		}
	}
}

func TestUrgentStepsComeFirst(t *testing.T) {
	job := newTracker(sample(), perdure.Done)
	got := strings.Join(job.lines(style{}, noon, 100, 4, -1), "\n")
	for _, want := range []string{"charge", "mail", "4 more: 2 waiting, 1 done, 1 skipped"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Index(got, "charge") > strings.Index(got, "mail") {
		t.Errorf("what is shown keeps the order of dependency:\n%s", got)
	}
}

func TestManyJobsShareTheScreen(t *testing.T) {
	var jobs []*tracker
	for i := range 30 {
		v := sample()
		if i%3 == 0 {
			v.Phase, v.Current = perdure.Settled, perdure.Done
		}
		jobs = append(jobs, newTracker(v, perdure.Done))
	}
	lines := screen(jobs, style{}, noon, 100, 24, 0)
	if len(lines) > 24 {
		t.Errorf("%d lines on a screen of 24", len(lines))
	}
	if last := lines[len(lines)-1]; !strings.Contains(last, " more jobs: ") || !strings.Contains(last, "10 settled") {
		t.Errorf("the last line counts the rest: %q", last)
	}
}

func TestUsersNamesForThePoles(t *testing.T) {
	v := sample()
	v.States = &perdure.StateNames{Undone: "free", Done: "booked"}
	v.Current = perdure.Undone
	got := strings.Join(newTracker(v, perdure.Done).lines(style{}, noon, 0, 0, -1), "\n")
	for _, want := range []string{"free → booked", "2 of 6 steps booked", "✓ reserve  booked"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestOrderIsThatOfDependency(t *testing.T) {
	v := &perdure.JobView{}
	for i := range 2000 { // a chain, written backwards: deep enough that recursion would show
		s := perdure.StepView{Name: name(i)}
		if i < 1999 {
			s.After = []string{name(i + 1)}
		}
		v.Steps = append(v.Steps, s)
	}
	job := newTracker(v, perdure.Done)
	for at, i := range job.order {
		if i != 1999-at {
			t.Fatalf("place %d has step %d", at, i)
		}
	}
}

func name(i int) string { return "s" + strings.Repeat("i", i%7) + time.Duration(i).String() }

func TestTakeMergesPartsAndTellsWhatMoved(t *testing.T) {
	job := newTracker(sample(), perdure.Done)
	part := *sample()
	charge := *part.Steps.Get("charge")
	charge.Phase, charge.Current, charge.Outcome, charge.Why = perdure.Settled, perdure.Done, perdure.OutcomeDone, nil
	charge.StartedAt, charge.EndedAt = noon, noon.Add(time.Second)
	part.Steps = perdure.StepViews{charge}
	part.Unsettled = 3
	changes := job.take(&part)
	if len(changes) != 1 || len(job.view.Steps) != 6 || job.settled() != 3 {
		t.Fatalf("%d changes, %d steps, %d settled", len(changes), len(job.view.Steps), job.settled())
	}
	if got := happened(&job.view, changes[0]); len(got) != 1 || got[0] != (event{"done", "run 2, 1s"}) {
		t.Errorf("%q", got)
	}
	if again := job.take(&part); len(again) != 1 || len(happened(&job.view, again[0])) != 0 {
		t.Error("news that is none has no line")
	}
}

func TestWhatHappenedAsWords(t *testing.T) {
	base := perdure.StepView{Name: "charge", Desired: perdure.Done, Phase: perdure.Ready, Why: &perdure.Reason{Kind: perdure.WhyAgentBusy}}
	with := func(change func(*perdure.StepView)) perdure.StepView {
		s := base
		change(&s)
		return s
	}
	running := with(func(s *perdure.StepView) {
		s.Phase, s.Run, s.LockedBy, s.StartedAt, s.CompleteBy = perdure.Running, 1, "h1", noon, noon.Add(5*time.Minute)
	})
	failed := with(func(s *perdure.StepView) {
		s.Phase, s.Run, s.Failures, s.Outcome, s.LastError = perdure.Waiting, 1, 1, perdure.OutcomeFailed, &perdure.RunError{Code: "http_503", Message: "no luck"}
		s.Why = &perdure.Reason{Kind: perdure.WhyBackoff, Text: "again in 1s, after 1 failure, last: no luck"}
	})
	parked := with(func(s *perdure.StepView) {
		s.Phase, s.Run, s.Failures, s.Outcome, s.LastError = perdure.Parked, 2, 2, perdure.OutcomeExpired, nil
		s.Why = &perdure.Reason{Kind: perdure.WhyParked, Text: "parked after 2 failures"}
	})
	undoing := with(func(s *perdure.StepView) {
		s.Phase, s.Run, s.Direction, s.Desired = perdure.Running, 3, perdure.Undo, perdure.Undone
	})
	for _, c := range []struct {
		name          string
		before, after perdure.StepView
		want          []string
	}{
		{"starts", base, running, []string{"running  run 1 by h1, for at most 5m"}},
		{"fails", running, failed, []string{"failed   run 1: http_503: no luck", "waiting  again in 1s, after 1 failure, last: no luck"}},
		{"expires and parks", failed, parked, []string{"expired  run 2", "parked   parked after 2 failures"}},
		{"turns", parked, undoing, []string{"undoing  run 3"}},
		{"stays", running, running, nil},
	} {
		var got []string
		for _, e := range happened(&perdure.JobView{}, change{c.before, c.after}) {
			got = append(got, e.String())
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

func TestAdviceCanBeTyped(t *testing.T) {
	v := sample()
	v.Key = "it's an order"
	got := strings.Join(advice(v, " --store sqlite:x.db"), "\n")
	for _, want := range []string{
		`perdure resume 'it'\''s an order'/mail --store sqlite:x.db`,
		`perdure settle 'it'\''s an order'/mail --as done --reason '…' --store sqlite:x.db`,
		`perdure undo 'it'\''s an order' --store sqlite:x.db`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestStateCode(t *testing.T) {
	job := func(phase perdure.Phase, current perdure.State, mark *perdure.Mark) *perdure.JobView {
		return &perdure.JobView{Phase: phase, Current: current, GivenUp: mark}
	}
	for _, c := range []struct {
		v    *perdure.JobView
		want perdure.State
		code int
	}{
		{job(perdure.Settled, perdure.Done, nil), perdure.Done, exitOK},
		{job(perdure.Settled, perdure.Undone, nil), perdure.Done, exitOther},
		{job(perdure.Settled, perdure.Undone, nil), perdure.Undone, exitOK},
		{job(perdure.Parked, perdure.Unsure, nil), perdure.Done, exitParked},
		{job(perdure.Settled, perdure.Unsure, &perdure.Mark{By: "anna"}), perdure.Done, exitOther},
	} {
		if got := stateCode(c.v, c.want); got != c.code {
			t.Errorf("%v %v wanted %v: %d, not %d", c.v.Phase, c.v.Current, c.want, got, c.code)
		}
	}
}

func TestRunThatIsToStop(t *testing.T) {
	s := perdure.StepView{Name: "a", Phase: perdure.Running, Run: 3, Desired: perdure.Undone}
	if got := rowOf(&perdure.JobView{}, &s, noon).detail; got != "run 3, stop requested" {
		t.Errorf("a run of a job that is undone: %q", got)
	}
	s.Direction = perdure.Undo
	if got := rowOf(&perdure.JobView{}, &s, noon).detail; got != "run 3" {
		t.Errorf("the run of the undo: %q", got)
	}
}

// The time in the header is that since the submission, also of a job that is being undone, or whose step was settled in
// another state after the job had settled.
func TestTimeOfTheHeader(t *testing.T) {
	v := &perdure.JobView{SubmittedAt: noon.Add(-time.Hour), SettledAt: noon.Add(-time.Minute), Phase: perdure.Settled}
	for _, test := range []struct {
		phase perdure.Phase
		want  string
	}{{perdure.Settled, "settled 59m after submission"}, {perdure.Waiting, "submitted 1h ago"}, {perdure.Running, "submitted 1h ago"}} {
		v.Phase, v.Desired = test.phase, perdure.Undone
		if got := newTracker(v, perdure.Undone).clock(noon); got != test.want {
			t.Errorf("%s: %q, not %q", test.phase, got, test.want)
		}
	}
}

func TestRowsOfStepsThatWereGivenUpOrSkipped(t *testing.T) {
	v := &perdure.JobView{}
	for _, test := range []struct {
		step         perdure.StepView
		word, detail string
	}{
		{perdure.StepView{GivenUp: true, Current: perdure.Unsure, Desired: perdure.Done, Run: 2, Outcome: perdure.OutcomeExpired}, "given up", "unsure, run 2 expired"},
		{perdure.StepView{GivenUp: true, Current: perdure.Done, Desired: perdure.Undone}, "given up", "done"},
		{perdure.StepView{Skipped: true, Desired: perdure.Done}, "skipped", ""},
		{perdure.StepView{Skipped: true, Desired: perdure.Undone, Run: 2, Direction: perdure.Undo, Outcome: perdure.OutcomeDone}, "undone", "was skipped; run 2"},
	} {
		if r := settledRow(v, &test.step); r.word != test.word || r.detail != test.detail {
			t.Errorf("%+v: %q %q, not %q %q", test.step, r.word, r.detail, test.word, test.detail)
		}
	}
}
