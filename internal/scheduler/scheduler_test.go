package scheduler_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/store/memory"
)

// harness is a running scheduler for a test.
type harness struct {
	*scheduler.Scheduler
	t     *testing.T
	store kernel.Store
}

func open(t *testing.T, store kernel.Store, cfg scheduler.Config) *harness {
	cfg.Store, cfg.Compiler = store, &definition.Compiler{}
	s := scheduler.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return &harness{s, t, store}
}

func plan(t *testing.T, body string) *kernel.Plan {
	t.Helper()
	plans, err := definition.Parse([]byte(body), definition.YAML, definition.Options{})
	if err != nil {
		t.Fatal(definition.FormatError("body", []byte(body), err))
	}
	return plans[0]
}

func (d *harness) submit(body string) perdure.JobID {
	d.t.Helper()
	submitted, err := d.Submit(d.t.Context(), plan(d.t, body))
	if err != nil {
		d.t.Fatal(err)
	}
	return submitted.ID
}

func (d *harness) claim(c protocol.Claim) []perdure.Run {
	d.t.Helper()
	if c.Max == 0 {
		c.Max = 1
	}
	runs, err := d.Claim(d.t.Context(), c)
	if err != nil {
		d.t.Fatal(err)
	}
	return runs
}

func (d *harness) report(holder string, run perdure.Run, o perdure.Outcome) protocol.ReportResult {
	d.t.Helper()
	res, _, err := d.Report(d.t.Context(), holder, []protocol.Report{{Job: run.Job, Step: run.Step, Run: run.Number, Outcome: o}}, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	return res[0]
}

func (d *harness) job(id perdure.JobID) *kernel.Job {
	d.t.Helper()
	j, _, err := d.store.Job(d.t.Context(), id, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	return j
}

// awaitWaitingClaim waits until a claim of the agent waits for work.
func (d *harness) awaitWaitingClaim(agent string) {
	d.t.Helper()
	for end := time.Now().Add(30 * time.Second); !slices.Contains(d.WaitingAgents(), agent); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			d.t.Fatalf("no claim of %s waits", agent)
		}
	}
}

const one = "type: t\nsteps:\n  s: {agent: a}\n"

// I2, F002, F003: the same key and definition is the same job, and the same key with another definition is a conflict.
func TestSameKeyIsTheSameJob(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		body := "key: k\n" + one
		var all sync.WaitGroup
		ids := make([]perdure.JobID, 20)
		for i := range ids {
			all.Go(func() {
				submitted, _ := d.Submit(context.Background(), plan(t, body))
				ids[i] = submitted.ID
			})
		}
		all.Wait()
		for _, id := range ids {
			if id != ids[0] || id.IsZero() {
				t.Fatalf("equal submissions made several jobs: %v", ids)
			}
		}
		if _, err := d.Submit(t.Context(), plan(t, "key: k\npriority: 1\n"+one)); perdure.CodeOf(err) != perdure.CodeConflict {
			t.Fatalf("another body: %v", err)
		}
		jobs, _, _ := store.ListJobs(t.Context(), kernel.JobFilter{Limit: 10})
		if len(jobs) != 1 {
			t.Fatalf("%d jobs", len(jobs))
		}
	})
}

// A progress that cannot be stored is left out. The heartbeats of the caller, who may have given up, are not written.
func TestHeartbeatsOfTheCallerAreNotWritten(t *testing.T) {
	d := open(t, memory.New(), scheduler.Config{})
	d.submit(one)
	run := d.claim(protocol.Claim{Agent: "a", Holder: "h"})[0]
	heartbeats := []protocol.Heartbeat{{Job: run.Job, Step: run.Step, Run: run.Number, Progress: json.RawMessage("{")}}
	results, err := d.Heartbeat(t.Context(), "h", heartbeats)
	if err != nil || results[0].Stop || string(heartbeats[0].Progress) != "{" {
		t.Errorf("%+v, %v; %+v", results, err, heartbeats)
	}
	if steps, err := d.store.StepsOf(t.Context(), run.Job, time.Time{}); err != nil || steps[0].Progress != "" {
		t.Errorf("%+v, %v", steps, err)
	}
}

// F019: a claim whose answer was lost is repeated and returns the same runs.
func TestClaimRepeatedReturnsTheSameRuns(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		for range 3 {
			d.submit(one)
		}
		c := protocol.Claim{Agent: "a", Holder: "h", Max: 2, RequestID: "r1"}
		first := d.claim(c)
		again := d.claim(c)
		if len(first) != 2 || len(again) != 2 || again[0].Job != first[0].Job || again[1].Number != first[1].Number || again[0].Key != first[0].Key {
			t.Fatalf("first %v, again %v", first, again)
		}
		c.Holder = "other"
		if other := d.claim(c); len(other) != 1 || other[0].Job == first[0].Job || other[0].Job == first[1].Job {
			t.Fatalf("another holder's request of that name: %v", other)
		}
		c.Holder = "h"
		d.report("h", first[0], perdure.OutcomeDone)
		if left := d.claim(c); len(left) != 1 || left[0].Job != first[1].Job {
			t.Fatalf("after one report: %v", left)
		}
		d.report("h", first[1], perdure.OutcomeDone)
		if none := d.claim(c); len(none) != 0 {
			t.Fatalf("after both: %v", none)
		}
	})
}

// A claim is repeated while the first one still waits: its connection broke, and the node does not know.
func TestClaimRepeatedWhileItWaitsIsServedOnce(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{Writers: 4})
		c := protocol.Claim{Agent: "a", Holder: "h", Max: 2, RequestID: "r1", Wait: time.Minute}
		var answers [3][]perdure.Run
		var waiting sync.WaitGroup
		for i := range answers {
			waiting.Go(func() { answers[i], _ = d.Claim(t.Context(), c) })
		}
		d.awaitWaitingClaim("a")
		for range 6 {
			d.submit(one)
		}
		waiting.Wait()
		c.Wait = 0
		for _, got := range append(answers[:], d.claim(c)) {
			if len(got) == 0 || len(got) > c.Max || got[0].Job != answers[0][0].Job || len(got) != len(answers[0]) {
				t.Errorf("answers %v and %v", answers[0], got)
			}
		}
		// F019: a claim that gives up waiting for its turn does not disturb the others, and is not answered "no work",
		// because the outcome of the first one is not known yet.
		c.RequestID, c.Agent, c.Wait = "r2", "idle", time.Minute
		var first []perdure.Run
		waiting.Go(func() { first, _ = d.Claim(t.Context(), c) })
		d.awaitWaitingClaim("idle")
		short := c
		short.Wait = 50 * time.Millisecond
		if second, err := d.Claim(t.Context(), short); len(second) > 0 || perdure.CodeOf(err) != perdure.CodeUnavailable {
			t.Errorf("while another has the turn: %v %v", second, err)
		}
		d.submit("type: t\nsteps:\n  s: {agent: idle}\n")
		waiting.Wait()
		if again := d.claim(c); len(first) != 1 || len(again) != 1 || again[0].Job != first[0].Job {
			t.Errorf("answers %v and %v", first, again)
		}
	})
}

// F019 with two nodes at once.
func TestClaimRepeatedOnGridReturnsTheSameRuns(t *testing.T) {
	url := pgtest.Start(t)
	nodes := []*harness{open(t, everystore.Postgres(t, url), scheduler.Config{Writers: 3}), open(t, everystore.Postgres(t, url), scheduler.Config{Writers: 3})}
	polling := time.NewTicker(100 * time.Millisecond) // as nodes do: a search may find all steps locked by another node
	stop := make(chan struct{})
	defer func() { polling.Stop(); close(stop) }()
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-polling.C:
				nodes[0].WakeReady(t.Context())
				nodes[1].WakeReady(t.Context())
			}
		}
	}()
	for i := range 20 {
		for range 6 {
			nodes[0].submit(one)
		}
		var got [2][]perdure.Run
		var both sync.WaitGroup
		for n, d := range nodes {
			both.Go(func() {
				got[n], _ = d.Claim(context.Background(), protocol.Claim{Agent: "a", Holder: "h", Max: 3, Wait: time.Minute, RequestID: fmt.Sprint("r", i)})
			})
		}
		both.Wait()
		if len(got[0]) != 3 || len(got[1]) != 3 {
			t.Fatalf("%d and %d runs", len(got[0]), len(got[1]))
		}
		out := map[perdure.JobID]bool{}
		for _, r := range append(got[0], got[1]...) {
			out[r.Job] = true
		}
		if len(out) != 3 {
			t.Fatalf("one claim was given %d runs", len(out))
		}
	}
}

// I7, I8, F044 to F046, F056, F057: stale, repeated and unknown reports are answered and change nothing.
func TestReportsThatChangeNothing(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		d.submit("type: t\nsteps:\n  s: {agent: a, completeWithin: 150ms, retry: {attempts: 1000, backoff: 1ms}}\n")
		run := d.claim(protocol.Claim{Agent: "a", Holder: "h"})[0]
		expect := func(what string, got protocol.ReportResult, want protocol.RefusalReason) {
			t.Helper()
			if got.Reason != want || got.Accepted != (want == "") {
				t.Errorf("%s: %+v", what, got)
			}
		}
		expect("foreign holder", d.report("x", run, perdure.OutcomeDone), protocol.RefusedForbidden)
		future := run
		future.Number = 7
		expect("never dispatched", d.report("h", future, perdure.OutcomeDone), protocol.RefusedUnknown)
		time.Sleep(160 * time.Millisecond)
		expect("late, and not swept yet", d.report("h", run, perdure.OutcomeDone), protocol.RefusedLate)
		if n, err := d.SweepExpired(t.Context(), 10); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		expect("late, and swept", d.report("h", run, perdure.OutcomeDone), protocol.RefusedLate)
		next := func() perdure.Run {
			for {
				time.Sleep(5 * time.Millisecond)
				d.SweepExpired(t.Context(), 10)
				d.SweepDue(t.Context(), 10)
				if runs := d.claim(protocol.Claim{Agent: "a", Holder: "h"}); len(runs) == 1 {
					return runs[0]
				}
			}
		}
		second := next()
		if second.Key != run.Key || second.Number <= run.Number {
			t.Errorf("second run %+v after %+v", second, run)
		}
		expect("stale", d.report("h", run, perdure.OutcomeDone), protocol.RefusedStale)
		res := d.report("h", second, perdure.OutcomeDone)
		for try := 1; res.Reason == protocol.RefusedLate && try < 10; try++ { // because the machine was slow
			second = next()
			res = d.report("h", second, perdure.OutcomeDone)
		}
		expect("in time", res, "")
		expect("repeated", d.report("h", second, perdure.OutcomeDone), "")
		expect("another outcome", d.report("h", second, perdure.OutcomeFailed), protocol.RefusedConflict)
	})
}

// I12, F029: a step that waits for a limit does not hold up others, and a settled step holds no permit.
func TestStepsThatWaitForALimitHoldNoOthersBack(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		if err := d.PutLimit(t.Context(), "job:full", perdure.LimitSettings{Max: new(2)}); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			d.submit("type: full\npriority: 9\nflow: chain\nsteps:\n  s: {agent: a}\n  r: {agent: a}\n")
		}
		d.submit("type: other\nsteps:\n  s: {agent: a}\n")
		types := func(runs []perdure.Run) string {
			var ts []string
			for _, r := range runs {
				ts = append(ts, d.job(r.Job).Type)
			}
			return strings.Join(ts, " ")
		}
		runs := d.claim(protocol.Claim{Agent: "a", Holder: "h", Max: 10})
		if got := types(runs); got != "full full other" {
			t.Fatalf("dispatched: %s", got)
		}
		d.report("h", runs[0], perdure.OutcomeDone)
		runs = d.claim(protocol.Claim{Agent: "a", Holder: "h", Max: 10})
		if len(runs) != 1 || runs[0].Step != "r" {
			t.Fatalf("the job that holds the permit goes on, and no other: %+v", runs)
		}
		d.report("h", runs[0], perdure.OutcomeDone)
		if runs = d.claim(protocol.Claim{Agent: "a", Holder: "h", Max: 10}); len(runs) != 1 || runs[0].Step != "s" {
			t.Fatalf("a permit is free again: %+v", runs)
		}
		if err := d.PutLimit(t.Context(), "agent:a", perdure.LimitSettings{Max: new(3)}); err != nil {
			t.Fatal(err)
		}
		if err := d.DeleteLimit(t.Context(), "job:full"); err != nil {
			t.Fatal(err)
		}
		if runs = d.claim(protocol.Claim{Agent: "a", Holder: "h", Max: 10}); len(runs) != 0 {
			t.Fatalf("three are out, and three are allowed: %+v", runs)
		}
		if err := d.PutLimit(t.Context(), "agent:a", perdure.LimitSettings{Max: new(5)}); err != nil {
			t.Fatal(err)
		}
		if runs = d.claim(protocol.Claim{Agent: "a", Holder: "h", Max: 10}); len(runs) != 2 {
			t.Fatalf("raised by two: %d", len(runs))
		}
	})
}

// I12 with two nodes on one database that claim as fast as they can.
func TestLimitHoldsOnGrid(t *testing.T) {
	url := pgtest.Start(t)
	nodes := []*harness{open(t, everystore.Postgres(t, url), scheduler.Config{Writers: 3}), open(t, everystore.Postgres(t, url), scheduler.Config{Writers: 3})}
	const limit, jobs = 4, 60
	if err := nodes[0].PutLimit(t.Context(), "agent:a", perdure.LimitSettings{Max: new(limit)}); err != nil {
		t.Fatal(err)
	}
	for range jobs {
		nodes[0].submit(one)
	}
	var mu sync.Mutex
	out, most, done := 0, 0, 0
	var workers sync.WaitGroup
	for i := range 12 {
		d := nodes[i%2]
		workers.Go(func() {
			holder := fmt.Sprint("h", i)
			for {
				runs, err := d.Claim(context.Background(), protocol.Claim{Agent: "a", Holder: holder, Max: 2, Wait: 50 * time.Millisecond})
				if perdure.CodeOf(err) == perdure.CodeUnavailable {
					err = nil // no transaction searched in time
				}
				mu.Lock()
				out += len(runs)
				most = max(most, out)
				finished := done == jobs
				mu.Unlock()
				if finished {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				for _, r := range runs {
					mu.Lock()
					out-- // counted before the report, so that the count can only be too low for other runs
					mu.Unlock()
					if res := d.report(holder, r, perdure.OutcomeDone); !res.Accepted {
						t.Errorf("%+v", res)
					}
					mu.Lock()
					done++
					mu.Unlock()
				}
			}
		})
	}
	workers.Wait()
	if most > limit || most == 0 {
		t.Errorf("%d were out at once, %d allowed", most, limit)
	}
}

func TestClaimsFollowPriorityThenAge(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		for _, p := range []int{0, 9, 5, 9} {
			d.submit(fmt.Sprintf("priority: %d\n%s", p, one))
		}
		var got []int
		var jobs []perdure.JobID
		for _, r := range d.claim(protocol.Claim{Agent: "a", Holder: "h", Max: 10}) {
			got, jobs = append(got, r.Priority), append(jobs, r.Job)
		}
		if fmt.Sprint(got) != "[9 9 5 0]" || strings.Compare(jobs[0].String(), jobs[1].String()) >= 0 {
			t.Errorf("%v %v", got, jobs)
		}
	})
}

func TestFullBacklogRefusesSubmissions(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{MaxBacklog: 3})
		for range 3 {
			d.submit(one)
		}
		_, err := d.Submit(t.Context(), plan(t, one))
		if perdure.CodeOf(err) != perdure.CodeBacklogFull {
			t.Fatalf("the fourth: %v", err)
		}
		run := d.claim(protocol.Claim{Agent: "a", Holder: "h"})[0]
		d.report("h", run, perdure.OutcomeDone)
		d.submit(one)
	})
}

// If a holder is known to be dead, its runs are dispatched again at once in the same direction. A run in the other
// direction waits for the old lock.
func TestRunsOfALostHolderAreDispatchedAgain(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		const body = "type: t\nsteps:\n  s: {agent: %s, undo: {}, completeWithin: %s, retry: {backoff: 1ms}}\n"
		ids := []perdure.JobID{d.submit(fmt.Sprintf(body, "a", "400ms")), d.submit(fmt.Sprintf(body, "b", "1h"))}
		d.claim(protocol.Claim{Agent: "a", Holder: "@dead"})
		d.claim(protocol.Claim{Agent: "b", Holder: "@dead"})
		holders, err := d.EmbeddedHolders(t.Context())
		if err != nil || len(holders) != 1 || holders[0] != "@dead" {
			t.Fatal(holders, err)
		}
		if n, err := d.SweepLost(t.Context(), "@dead", 10); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		for _, id := range ids {
			if err := d.Act(t.Context(), id, perdure.Act{Verb: perdure.VerbUndo, Author: "me"}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(400 * time.Millisecond)
		d.SweepDue(t.Context(), 10)
		if runs := d.claim(protocol.Claim{Agent: "b", Holder: "h"}); len(runs) != 0 {
			t.Fatalf("the undo did not wait: %+v", runs)
		}
		if runs := d.claim(protocol.Claim{Agent: "a", Holder: "h"}); len(runs) != 1 || runs[0].Direction != perdure.Undo {
			t.Fatalf("%+v", runs)
		}
	})
}

// F029, F030: a claim that finds its limit full waits, and is served by the report that releases a permit. No supervisor
// runs here.
func TestFreedPermitServesWaitingClaim(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		for i, c := range []struct {
			limit    string
			settings perdure.LimitSettings
		}{
			{"job:t0", perdure.LimitSettings{Max: new(1)}},
			{"agent:a1", perdure.LimitSettings{Max: new(1)}},
			{"l2", perdure.LimitSettings{Max: new(1)}},
			{"l3", perdure.LimitSettings{PerKey: &perdure.KeyLimit{Max: new(1)}}},
		} {
			if err := d.PutLimit(t.Context(), c.limit, c.settings); err != nil {
				t.Fatal(err)
			}
			agent := fmt.Sprint("a", i)
			body := fmt.Sprintf("type: t%d\nsteps:\n  s: {agent: %s, limits: [{name: l%d, key: k}]}\n", i, agent, i)
			d.submit(body)
			second := d.submit(body)
			first := d.claim(protocol.Claim{Agent: agent, Holder: "h"})
			if runs := d.claim(protocol.Claim{Agent: agent, Holder: "h"}); len(first) != 1 || len(runs) != 0 {
				t.Fatalf("%s: dispatched %+v, then %+v", c.limit, first, runs)
			}
			granted := make(chan []perdure.Run)
			go func() {
				runs, err := d.Claim(t.Context(), protocol.Claim{Agent: agent, Holder: "h", Max: 1, Wait: 20 * time.Second})
				if err != nil {
					t.Error(err)
				}
				granted <- runs
			}()
			d.awaitWaitingClaim(agent)
			d.report("h", first[0], perdure.OutcomeDone)
			if runs := <-granted; len(runs) != 1 || runs[0].Job != second {
				t.Errorf("%s: a permit is free, and the waiting claim is granted %+v", c.limit, runs)
			}
		}
	})
}

// F134: the permits of a run without a report are released when the run is ended, and not before.
func TestExpiredRunReleasesItsPermit(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		if err := d.PutLimit(t.Context(), "agent:a", perdure.LimitSettings{Max: new(1)}); err != nil {
			t.Fatal(err)
		}
		d.submit("type: t\nsteps:\n  s: {agent: a, completeWithin: 300ms, retry: {backoff: 1h, maxBackoff: 1h}}\n")
		d.claim(protocol.Claim{Agent: "a", Holder: "dead"})
		second := d.submit(one)
		if runs := d.claim(protocol.Claim{Agent: "a", Holder: "h"}); len(runs) != 0 {
			t.Fatalf("above the limit: %+v", runs)
		}
		time.Sleep(300 * time.Millisecond)
		if n, err := d.SweepExpired(t.Context(), 10); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if runs := d.claim(protocol.Claim{Agent: "a", Holder: "h", Wait: time.Minute}); len(runs) != 1 || runs[0].Job != second {
			t.Errorf("the permit was not given back: %+v", runs)
		}
	})
}

// F020: runs that were granted to a caller who has gone are returned at once.
func TestRunsOfAClaimantGoneAreReturned(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		for range 100 {
			ctx, cancel := context.WithCancel(t.Context())
			var claimant sync.WaitGroup
			var got []perdure.Run
			claimant.Go(func() {
				got, _ = d.Claim(ctx, protocol.Claim{Agent: "a", Holder: "h", Max: 1, Wait: time.Minute})
			})
			id := d.submit(one)
			cancel()
			claimant.Wait()
			if len(got) == 0 {
				got = d.claim(protocol.Claim{Agent: "a", Holder: "h", Wait: time.Minute})
			}
			if len(got) != 1 || got[0].Job != id {
				t.Fatalf("%+v", got)
			}
			d.report("h", got[0], perdure.OutcomeDone)
		}
	})
}

// F034, F062: the cost of a report does not depend on the size of the job.
func TestCostOfAReportDoesNotDependOnTheSizeOfTheJob(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		var b strings.Builder
		b.WriteString("type: t\nsteps:\n")
		var names []string
		for i := range 300 {
			names = append(names, fmt.Sprint("s", i))
			fmt.Fprintf(&b, "  s%d: {agent: a}\n", i)
		}
		fmt.Fprintf(&b, "  join: {agent: a, after: [%s]}\n", strings.Join(names, ", "))
		id := d.submit(b.String())
		runs := d.claim(protocol.Claim{Agent: "a", Holder: "h", Max: 1000})
		if len(runs) != 300 {
			t.Fatalf("%d dispatched", len(runs))
		}
		var reporters sync.WaitGroup
		for part := range 30 {
			reports := make([]protocol.Report, 0, 10)
			for _, r := range runs[part*10 : part*10+10] {
				reports = append(reports, protocol.Report{Job: r.Job, Step: r.Step, Run: r.Number, Outcome: perdure.OutcomeDone, Output: json.RawMessage(`1`)})
			}
			reporters.Go(func() {
				if res, _, err := d.Report(context.Background(), "h", reports, nil); err != nil || !res[9].Accepted {
					t.Error(res, err)
				}
			})
		}
		reporters.Wait()
		last := d.claim(protocol.Claim{Agent: "a", Holder: "h", Wait: time.Minute})
		if len(last) != 1 || last[0].Step != "join" {
			t.Fatalf("%+v", last)
		}
		d.report("h", last[0], perdure.OutcomeDone)
		if j := d.job(id); j.Phase != perdure.Settled || j.Current != perdure.Done {
			t.Errorf("%+v", j)
		}
	})
}
