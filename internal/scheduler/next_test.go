package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/protocol"
)

func (d *harness) reportAndClaim(run perdure.Run, next protocol.Claim) []perdure.Run {
	d.t.Helper()
	results, runs, err := d.Report(d.t.Context(), "h", doneReport(run), &next)
	if err != nil || !results[0].Accepted {
		d.t.Fatal(results, err)
	}
	return runs
}

const chain = "type: chain\npriority: %d\nflow: chain\nsteps:\n  s: {agent: a}\n  r: {agent: a}\n  q: {agent: a}\n"

// The answer to a report brings the next step of the job, unless an older step comes first, and further ready steps up
// to the size of the claim.
func TestAnswerToAReportBringsTheNextStep(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		next := protocol.Claim{Agent: "a", Holder: "h", Max: 1, RequestID: "1", First: true}
		expect := func(runs []perdure.Run, want ...string) perdure.Run {
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
		run := expect(d.claim(protocol.Claim{Agent: "a", Holder: "h"}), "5 s")
		run = expect(d.reportAndClaim(run, next), "5 r") // not the first step of the other job
		urgent := d.submit(fmt.Sprintf(chain, 9))
		next.RequestID = "2"
		before := run
		if run = expect(d.reportAndClaim(before, next), "9 s"); run.Job != urgent {
			t.Errorf("%+v", run)
		}
		next.First = false // the repeated claim returns the same run (F019)
		if again := expect(d.reportAndClaim(before, next), "9 s"); again.Key != run.Key || again.Number != run.Number {
			t.Errorf("%+v after %+v", again, run)
		}
		next.RequestID, next.First = "3", true
		run = expect(d.reportAndClaim(run, next), "9 r")
		next.RequestID, next.Max = "4", 10
		runs := d.reportAndClaim(run, next)
		expect(runs, "9 q", "5 q", "5 s")
		next.First = false
		if again := d.claim(next); len(again) != 3 || !slices.ContainsFunc(again, func(r perdure.Run) bool { return r.Key == runs[0].Key }) {
			t.Errorf("%+v after %+v", again, runs)
		}
		// Nothing else is ready, and the claim does not wait.
		next = protocol.Claim{Agent: "a", Holder: "h", Max: 1, RequestID: "5", Wait: time.Hour}
		for i, more := range []int{0, 0, 1} {
			next.RequestID = fmt.Sprint("x", i)
			if got := d.reportAndClaim(runs[i], next); len(got) != more {
				t.Errorf("%+v", got)
			}
		}
		if _, got, err := d.Report(t.Context(), "h", nil, &next); err != nil || len(got) != 1 { // the same claim without a report
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// While a claim with the same name is in progress, the reports wait as well, because it is not known yet what that claim
// is granted.
func TestReportsWaitForAClaimInProgress(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		d.submit(one)
		run := d.claim(protocol.Claim{Agent: "a", Holder: "h"})[0]
		c := protocol.Claim{Agent: "a", Holder: "h", Max: 1, RequestID: "r", Wait: time.Minute}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _, _ = d.Claim(ctx, c) }()
		d.awaitWaitingClaim("a")
		if _, _, err := d.Report(t.Context(), "h", doneReport(run), &c); perdure.CodeOf(err) != perdure.CodeUnavailable {
			t.Errorf("%v", err)
		}
		if j := d.job(run.Job); j.Phase == perdure.Settled {
			t.Errorf("%+v", j)
		}
		cancel()
		<-ended
		if _, _, err := d.Report(t.Context(), "h", doneReport(run), &c); err != nil {
			t.Error(err)
		}
	})
}

// reportAndClaimDuringSearch reports and claims while another writer is about to search for the agent, for another claim.
func (d *harness) reportAndClaimDuringSearch(g *gate, run perdure.Run) (next, other []perdure.Run) {
	d.t.Helper()
	g.shut.Store(1)
	var going sync.WaitGroup
	going.Go(func() {
		other, _ = d.Claim(d.t.Context(), protocol.Claim{Agent: "a", Holder: "other", Max: 1, Wait: time.Minute})
	})
	<-g.waiting
	next = d.reportAndClaim(run, protocol.Claim{Agent: "a", Holder: "h", Max: 4, RequestID: "R", First: true})
	close(g.open)
	going.Wait()
	return next, other
}

// While another writer searches for the agent, a claim with reports gets the steps that the reports make ready, unless a
// more urgent step is ready.
func TestClaimWithReportsDuringASearchGetsTheirSteps(t *testing.T) {
	for _, stored := range []int{0, 5, 9} {
		everystore.Run(t, func(t *testing.T, store kernel.Store) {
			g := shut(store)
			d := open(t, g, scheduler.Config{Writers: 3})
			d.submit(fmt.Sprintf(chain, 5))
			run := d.claim(protocol.Claim{Agent: "a", Holder: "h"})[0]
			d.submit(fmt.Sprintf(chain, stored))
			d.submit(fmt.Sprintf(chain, stored))
			runs, other := d.reportAndClaimDuringSearch(g, run)
			if len(runs) > 0 != (stored <= 5) || len(runs) > 0 && runs[0].Step != "r" {
				t.Errorf("beside %d: %+v", stored, runs)
			}
			if len(other) != 1 || stored == 9 && other[0].Priority != 9 {
				t.Errorf("beside %d, the other: %+v", stored, other)
			}
		})
	}
}

// L5: it does not get steps after a step of a job that the reports have locked, because the other writer could not find
// that step.
func TestClaimWithReportsPassesNoLockedStep(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		g := shut(store)
		d := open(t, g, scheduler.Config{Writers: 3})
		d.submit("type: t\nsteps:\n  first: {agent: a}\n  s: {agent: b}\n  last: {agent: a, after: [s]}\n")
		run := d.claim(protocol.Claim{Agent: "b", Holder: "h"})[0]
		next, other := d.reportAndClaimDuringSearch(g, run)
		if len(next) > 0 {
			t.Errorf("%+v", next)
		}
		if len(other) != 1 || other[0].Step != "first" {
			t.Errorf("the other: %+v", other)
		}
	})
}

// gate is a store that holds the next transactions until it is opened.
type gate struct {
	kernel.Store
	shut    atomic.Int64
	waiting chan struct{}
	open    chan struct{}
}

func (g *gate) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	if g.shut.Add(-1) >= 0 {
		g.waiting <- struct{}{}
		<-g.open
	}
	return g.Store.Update(ctx, fn)
}

func shut(store kernel.Store) *gate {
	return &gate{Store: store, waiting: make(chan struct{}, 10), open: make(chan struct{})}
}

func doneReport(run perdure.Run) []protocol.Report {
	return []protocol.Report{{Job: run.Job, Step: run.Step, Run: run.Number, Outcome: perdure.OutcomeDone}}
}

// F019: the caller's time ends while reports and claim are queued or in a transaction. The claim is then repeated.
func TestClaimIsRepeatedWhileItsReportsAreQueued(t *testing.T) {
	for _, taken := range []bool{false, true} {
		for _, wait := range []time.Duration{0, 5 * time.Second} {
			t.Run(fmt.Sprintf("taken %v, wait %v", taken, wait), func(t *testing.T) {
				everystore.Run(t, func(t *testing.T, store kernel.Store) {
					g := shut(store)
					d := open(t, g, scheduler.Config{Writers: 1})
					d.submit(fmt.Sprintf(chain, 5))
					d.submit(fmt.Sprintf(chain, 5))
					run := d.claim(protocol.Claim{Agent: "a", Holder: "h"})[0]
					g.shut.Store(1)
					var going sync.WaitGroup
					if !taken { // the only writer is busy
						going.Go(func() {
							_, _ = d.Heartbeat(context.Background(), "h", []protocol.Heartbeat{{Job: run.Job, Step: run.Step, Run: run.Number}})
						})
						<-g.waiting
					}
					next := protocol.Claim{Agent: "a", Holder: "h", Max: 1, RequestID: "R", First: true}
					ctx, cancel := context.WithCancel(t.Context())
					reported := make(chan error, 1)
					go func() { _, _, err := d.Report(ctx, "h", doneReport(run), &next); reported <- err }()
					if taken {
						<-g.waiting
					} else {
						time.Sleep(10 * time.Millisecond) // queued or not yet: both must work
					}
					cancel()
					if err := <-reported; !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					next.First, next.Wait = false, wait
					var answered []perdure.Run
					var err error
					going.Go(func() { answered, err = d.Claim(t.Context(), next) })
					time.Sleep(10 * time.Millisecond)
					close(g.open)
					going.Wait()
					next.Wait = 0
					held := d.claim(next)
					if err == nil && len(answered) != len(held) {
						t.Errorf("the answer has %d runs, and %d are held", len(answered), len(held))
					}
				})
			})
		}
	}
}

// Steps that became ready while no claim waited are neither overtaken nor missed.
func TestStepsReadyWithoutAClaimKeepTheirPlace(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		d.submit(fmt.Sprintf(chain, 5))
		run := d.claim(protocol.Claim{Agent: "a", Holder: "h", Max: 10})[0]
		urgent := d.submit(fmt.Sprintf(chain, 9))
		runs := d.reportAndClaim(run, protocol.Claim{Agent: "a", Holder: "h", Max: 1, RequestID: "1", First: true})
		if len(runs) != 1 || runs[0].Job != urgent {
			t.Errorf("%+v", runs)
		}
		d.submit("type: t\nsteps:\n  s: {agent: b}\n")
		alone := d.claim(protocol.Claim{Agent: "b", Holder: "h", Max: 10})[0]
		d.submit("type: t\nsteps:\n  s: {agent: b}\n")
		if runs := d.reportAndClaim(alone, protocol.Claim{Agent: "b", Holder: "h", Max: 1, RequestID: "2", First: true}); len(runs) != 1 {
			t.Errorf("%+v", runs)
		}
	})
}

// A step whose input cannot be rendered does not hide ready steps after it.
func TestStepWithoutInputHidesNoOtherSteps(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		g := shut(store)
		d := open(t, g, scheduler.Config{Writers: 1})
		d.submit("type: t\npriority: 5\nflow: chain\nsteps:\n  s: {agent: a}\n  r: {agent: a, with: {x: \"${steps.s.output.no.such}\"}}\n")
		run := d.claim(protocol.Claim{Agent: "a", Holder: "h"})[0]
		behind := d.submit(one)
		g.shut.Store(1)
		var going sync.WaitGroup
		going.Go(func() {
			_, _ = d.Heartbeat(context.Background(), "h", []protocol.Heartbeat{{Job: run.Job, Step: run.Step, Run: run.Number}})
		})
		<-g.waiting
		going.Go(func() { _, _, _ = d.Report(context.Background(), "h", doneReport(run), nil) })
		var runs []perdure.Run
		going.Go(func() {
			runs, _ = d.Claim(context.Background(), protocol.Claim{Agent: "a", Holder: "h", Max: 1, Wait: 30 * time.Second})
		})
		d.awaitWaitingClaim("a")
		close(g.open)
		going.Wait()
		if len(runs) != 1 || runs[0].Job != behind {
			t.Errorf("%+v", runs)
		}
	})
}

// While another writer searches for the agent, a claim with reports does not overtake claims that wait for a limit.
func TestClaimsWithReportsDoNotOvertakeClaimsThatWaitForALimit(t *testing.T) {
	for _, first := range []bool{true, false} {
		everystore.Run(t, func(t *testing.T, store kernel.Store) {
			g := shut(store)
			d := open(t, g, scheduler.Config{Writers: 3})
			if err := d.PutLimit(t.Context(), "agent:a", perdure.LimitSettings{Max: new(1)}); err != nil {
				t.Fatal(err)
			}
			d.submit(fmt.Sprintf(chain, 0))
			run := d.claim(protocol.Claim{Agent: "a", Holder: "h"})[0]
			d.submit(fmt.Sprintf(chain, 9))
			if runs := d.claim(protocol.Claim{Agent: "a", Holder: "other", Wait: time.Second}); len(runs) > 0 { // the limit is full
				t.Fatalf("%+v", runs)
			}
			g.shut.Store(1)
			var going sync.WaitGroup
			going.Go(func() {
				_, _ = d.Claim(t.Context(), protocol.Claim{Agent: "a", Holder: "third", Max: 1, Wait: time.Second})
			})
			<-g.waiting
			runs := d.reportAndClaim(run, protocol.Claim{Agent: "a", Holder: "h", Max: 1, RequestID: "R", First: first})
			if len(runs) > 0 && runs[0].Priority != 9 {
				t.Errorf("%+v", runs)
			}
			close(g.open)
			going.Wait()
		})
	}
}
