package scheduler_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"perdure"
	"perdure/internal/everystore"
	"perdure/internal/scheduler"
)

func (d *desk) reportAndClaim(run perdure.Run, next perdure.ClaimRequest) []perdure.Run {
	d.t.Helper()
	reports := []perdure.Report{{Job: run.Job, Step: run.Step, Run: run.Number, Outcome: perdure.OutcomeDone}}
	results, runs, err := d.Report(d.t.Context(), "h", reports, &next)
	if err != nil || !results[0].Accepted {
		d.t.Fatal(results, err)
	}
	return runs
}

const chain = "type: chain\npriority: %d\nflow: chain\nsteps:\n  s: {agent: a}\n  r: {agent: a}\n  q: {agent: a}\n"

// A job's next step comes with the answer to the report of the one before it, unless something stands before it; and
// so does what else is ready, as far as the claim goes.
func TestReportAndClaim(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store perdure.Store) {
		d := open(t, store, scheduler.Config{})
		next := perdure.ClaimRequest{Agent: "a", Holder: "h", Max: 1, RequestID: "1", First: true}
		is := func(runs []perdure.Run, want ...string) perdure.Run {
			t.Helper()
			var got []string
			for _, r := range runs {
				got = append(got, fmt.Sprintf("%d %s", r.Priority, r.Step))
			}
			if !slices.Equal(got, want) {
				t.Fatalf("got %v, want %v", got, want)
			}
			return append(runs, perdure.Run{})[0]
		}
		d.submit(fmt.Sprintf(chain, 5))
		d.submit(fmt.Sprintf(chain, 5))
		run := is(d.claim(perdure.ClaimRequest{Agent: "a", Holder: "h"}), "5 s")
		run = is(d.reportAndClaim(run, next), "5 r") // not the other job's first
		urgent := d.submit(fmt.Sprintf(chain, 9))
		next.RequestID = "2"
		before := run
		if run = is(d.reportAndClaim(before, next), "9 s"); run.Job != urgent {
			t.Errorf("%+v", run)
		}
		next.First = false // repeated, it brings the same (F019)
		if again := is(d.reportAndClaim(before, next), "9 s"); again.Key != run.Key || again.Number != run.Number {
			t.Errorf("%+v after %+v", again, run)
		}
		next.RequestID, next.First = "3", true
		run = is(d.reportAndClaim(run, next), "9 r")
		next.RequestID, next.Max = "4", 10
		runs := d.reportAndClaim(run, next)
		is(runs, "9 q", "5 q", "5 s")
		next.First = false
		if again := d.claim(next); len(again) != 3 || !slices.ContainsFunc(again, func(r perdure.Run) bool { return r.Key == runs[0].Key }) {
			t.Errorf("%+v after %+v", again, runs)
		}
		// There is no more: it does not wait.
		next = perdure.ClaimRequest{Agent: "a", Holder: "h", Max: 1, RequestID: "5", Wait: time.Hour}
		for i, more := range []int{0, 0, 1} {
			next.RequestID = fmt.Sprint("x", i)
			if got := d.reportAndClaim(runs[i], next); len(got) != more {
				t.Errorf("%+v", got)
			}
		}
		if _, got, err := d.Report(t.Context(), "h", nil, &next); err != nil || len(got) != 1 { // no report, and the same claim
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// A claim of the same name that is under way keeps the reports back as well: nobody knows yet what it will bring.
func TestReportWhileItsClaimIsUnderWay(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store perdure.Store) {
		d := open(t, store, scheduler.Config{})
		d.submit(one)
		run := d.claim(perdure.ClaimRequest{Agent: "a", Holder: "h"})[0]
		c := perdure.ClaimRequest{Agent: "a", Holder: "h", Max: 1, RequestID: "r", Wait: time.Minute}
		ctx, leave := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _, _ = d.Claim(ctx, c) }()
		for len(d.Waiting()) == 0 {
			time.Sleep(time.Millisecond)
		}
		reports := []perdure.Report{{Job: run.Job, Step: run.Step, Run: run.Number, Outcome: perdure.OutcomeDone}}
		if _, _, err := d.Report(t.Context(), "h", reports, &c); perdure.CodeOf(err) != perdure.CodeUnavailable {
			t.Errorf("%v", err)
		}
		if j := d.job(run.Job); j.Phase == perdure.Settled {
			t.Errorf("%+v", j)
		}
		leave()
		<-ended
		if _, _, err := d.Report(t.Context(), "h", reports, &c); err != nil {
			t.Error(err)
		}
	})
}

// Where there are several writers, one that has many reports to fold in leaves the look into the store to another: a
// claim that comes with them is given what they make ready, unless something stands before it.
func TestManyReportsAndAClaim(t *testing.T) {
	const many = 100 // shortFrom
	for _, test := range []struct {
		writers, jobs int
		urgent        bool
		want          int
	}{
		{writers: 3, jobs: many, want: many},
		{writers: 3, jobs: many, urgent: true, want: 0},
		{writers: 3, jobs: many - 1, want: many - 1 + 10},
		{writers: 3, jobs: many - 1, urgent: true, want: many - 1 + 11},
		{writers: 1, jobs: many, want: many + 10},
	} {
		t.Run(fmt.Sprintf("%+v", test), func(t *testing.T) {
			everystore.Run(t, func(t *testing.T, store perdure.Store) {
				d := open(t, store, scheduler.Config{Writers: test.writers})
				submit := func(n, priority int) {
					for range n {
						d.submit(fmt.Sprintf(chain, priority))
					}
				}
				submit(test.jobs, 5)
				runs := d.claim(perdure.ClaimRequest{Agent: "a", Holder: "h", Max: test.jobs})
				submit(10, 5)
				if test.urgent {
					submit(1, 9)
				}
				reports := make([]perdure.Report, len(runs))
				for i, r := range runs {
					reports[i] = perdure.Report{Job: r.Job, Step: r.Step, Run: r.Number, Outcome: perdure.OutcomeDone}
				}
				results, got, err := d.Report(t.Context(), "h", reports, &perdure.ClaimRequest{Agent: "a", Holder: "h", Max: 1000, RequestID: "r"})
				if err != nil || len(results) != test.jobs || len(got) != test.want {
					t.Errorf("%d results, %d runs, %v", len(results), len(got), err)
				}
				rest := d.claim(perdure.ClaimRequest{Agent: "a", Holder: "h", Max: 1000})
				all := test.jobs + 10
				if test.urgent {
					if all++; test.want == 0 && (len(rest) == 0 || rest[0].Priority != 9) {
						t.Errorf("%+v", rest)
					}
				}
				if len(got)+len(rest) != all {
					t.Errorf("%d and %d runs of %d steps", len(got), len(rest), all)
				}
			})
		})
	}
}
