package scheduler_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/store/memory"
)

// I19, F149: one agent serves two types of jobs, and the type `order` has a limit. A transaction that dispatches a step
// of an order locks that limit, unless the agent's latest dispatch search locked it, too. Before it locks, it saves.
// Values that the transaction had set by then stay loaded: the outputs of its reports, and the inputs of its acts.

const order = `type: order
key: order-%d
flow: chain
input: {sku: tea}
steps:
  reserve:
    agent: a
    with: {sku: "${input.sku}"}
    undo: {}
  charge:
    agent: a
    with: {from: "${steps.reserve.output.token}", next: "${steps.reserve.output.n + 1}", text: "of ${steps.reserve.output.token}"}
    undo: {with: {of: "${doKey}", was: "${output}"}}
  ship:
    agent: a
    with: {first: "${steps.reserve.output}", second: "${steps.charge.output}"}
    undo: {}
`

// orderHarness is a scheduler with orders and a limit on them.
type orderHarness struct {
	*harness
	claims int
}

func openShop(t *testing.T, store kernel.Store) *orderHarness {
	s := &orderHarness{harness: open(t, store, scheduler.Config{})}
	if err := s.PutLimit(t.Context(), "job:order", perdure.LimitSettings{Max: new(100)}); err != nil {
		t.Fatal(err)
	}
	return s
}

// request returns a claim for one run.
func (s *orderHarness) request(wait time.Duration) protocol.Claim {
	s.claims++
	return protocol.Claim{Agent: "a", Holder: "h", Max: 1, Wait: wait, RequestID: fmt.Sprint("r", s.claims), First: true}
}

// searchWithoutLimit runs a dispatch search that locks no limit, so that it is the agent's latest one.
func (s *orderHarness) searchWithoutLimit() {
	s.t.Helper()
	s.submit("type: note\npriority: 9\nsteps:\n  n: {agent: a}\n")
	runs := s.claim(s.request(0))
	if len(runs) != 1 || runs[0].Step != "n" {
		s.t.Fatalf("the note is not claimed: %+v", runs)
	}
	s.report("h", runs[0], perdure.OutcomeDone)
}

// reportAndClaimNext reports a run, and claims the next one in the same call.
func (s *orderHarness) reportAndClaimNext(run perdure.Run, o perdure.Outcome, output string) perdure.Run {
	s.t.Helper()
	s.searchWithoutLimit()
	c := s.request(0)
	rep := protocol.Report{Job: run.Job, Step: run.Step, Run: run.Number, Outcome: o, Output: json.RawMessage(output)}
	res, runs, err := s.Report(s.t.Context(), "h", []protocol.Report{rep}, &c)
	if err != nil || !res[0].Accepted || len(runs) != 1 {
		steps, _ := s.store.StepsOf(s.t.Context(), run.Job, time.Time{})
		for _, step := range steps {
			s.t.Logf("%s: %s, %s", step.Name, step.Phase, step.LastError)
		}
		s.t.Fatalf("%s of %s is reported %s: %+v, %d runs, %v", run.Direction, run.Step, o, res, len(runs), err)
	}
	again := c
	again.First = false
	if repeated := s.claim(again); len(repeated) != 1 || string(repeated[0].Input) != string(runs[0].Input) || string(repeated[0].Output) != string(runs[0].Output) {
		s.t.Errorf("the claim of %s gave %s, %s; repeated, it gives %+v", runs[0].Step, runs[0].Input, runs[0].Output, repeated)
	}
	return runs[0]
}

// expectRun compares a run with the values that it must have.
func (s *orderHarness) expectRun(run perdure.Run, step string, d perdure.Direction, input, output string) {
	s.t.Helper()
	if run.Step != step || run.Direction != d || string(run.Input) != input || string(run.Output) != output {
		s.t.Errorf("%s %s is given input %s and output %s; wanted %s %s with %s and %s", run.Direction, run.Step, run.Input, run.Output, d, step, input, output)
	}
}

func TestInputsOfLimitedTypesAreComplete(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		s := openShop(t, store)
		s.submit(fmt.Sprintf(order, 1))
		run := s.claim(s.request(0))[0]
		s.expectRun(run, "reserve", perdure.Do, `{"sku":"tea"}`, "")
		charge := s.reportAndClaimNext(run, perdure.OutcomeDone, `{"token":"t1","n":4}`)
		const charged = `{"from":"t1","next":5,"text":"of t1"}`
		s.expectRun(charge, "charge", perdure.Do, charged, "")
		run = s.reportAndClaimNext(charge, perdure.OutcomeDone, `{"token":"t2"}`)
		s.expectRun(run, "ship", perdure.Do, `{"first":{"token":"t1","n":4},"second":{"token":"t2"}}`, "")
	})
}

// A retry under the same key has the same input.
func TestRetryHasTheSameInput(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		s := openShop(t, store)
		id := s.submit("type: order\nflow: chain\nsteps:\n  one: {agent: a}\n  two: {agent: a, with: {of: \"${steps.one.output}\"}, retry: {attempts: 3, backoff: 1ms}}\n")
		run := s.reportAndClaimNext(s.claim(s.request(0))[0], perdure.OutcomeDone, `"t1"`)
		s.expectRun(run, "two", perdure.Do, `{"of":"t1"}`, "")
		s.report("h", run, perdure.OutcomeFailed)
		again := s.claimReady(id)
		if s.expectRun(again, "two", perdure.Do, `{"of":"t1"}`, ""); again.Key != run.Key {
			t.Errorf("key %s became %s", run.Key, again.Key)
		}
	})
}

// claimReady claims the one step that is ready, or soon will be.
func (s *orderHarness) claimReady(id perdure.JobID) perdure.Run {
	s.t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if _, err := s.SweepDue(s.t.Context(), 10); err != nil {
			s.t.Fatal(err)
		}
		if runs := s.claim(s.request(0)); len(runs) == 1 {
			return runs[0]
		}
	}
	s.t.Fatalf("nothing of job %s becomes ready", id)
	return perdure.Run{}
}

// An undo run receives the output that was reported in the same transaction.
func TestUndoReceivesAnOutputOfTheSameTransaction(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		s := openShop(t, store)
		id := s.submit(fmt.Sprintf(order, 1))
		run := s.claim(s.request(0))[0]
		if err := s.Act(t.Context(), id, perdure.Act{Verb: perdure.VerbUndo, Author: "op"}); err != nil {
			t.Fatal(err)
		}
		undo := s.reportAndClaimNext(run, perdure.OutcomeDone, `{"token":"t1","n":4}`)
		if s.expectRun(undo, "reserve", perdure.Undo, `{"sku":"tea"}`, `{"token":"t1","n":4}`); undo.DoKey != run.Key {
			t.Errorf("doKey is %s, and the do's key was %s", undo.DoKey, run.Key)
		}

		// With its own input, and after a later step: each run is dispatched in the transaction that ends the run
		// before.
		id = s.submit(fmt.Sprintf(order, 2))
		run = s.reportAndClaimNext(s.claim(s.request(0))[0], perdure.OutcomeDone, `{"token":"t3","n":8}`)
		s.expectRun(run, "charge", perdure.Do, `{"from":"t3","next":9,"text":"of t3"}`, "")
		if err := s.Act(t.Context(), id, perdure.Act{Verb: perdure.VerbUndo, Author: "op"}); err != nil {
			t.Fatal(err)
		}
		undo = s.reportAndClaimNext(run, perdure.OutcomeDone, `{"token":"t4"}`)
		s.expectRun(undo, "charge", perdure.Undo, fmt.Sprintf(`{"of":%q,"was":{"token":"t4"}}`, run.Key), `{"token":"t4"}`)
		undo = s.reportAndClaimNext(undo, perdure.OutcomeDone, "")
		s.expectRun(undo, "reserve", perdure.Undo, `{"sku":"tea"}`, `{"token":"t3","n":8}`)
	})
}

// A step gets the input that the operator gave, even if a claim is waiting for it already.
func TestEditedInputIsDispatched(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		s := openShop(t, store)
		id := s.submit("type: order\nsteps:\n  s: {agent: a, with: {plain: 1}, onFailure: park, undo: {}}\n")
		s.report("h", s.claim(s.request(0))[0], perdure.OutcomeRejected)
		s.searchWithoutLimit()
		waiting := make(chan []perdure.Run, 1)
		c := s.request(time.Minute)
		go func() {
			runs, err := s.Claim(t.Context(), c)
			if err != nil {
				t.Error(err)
			}
			waiting <- runs
		}()
		s.awaitWaitingClaim("a")
		if err := s.Act(t.Context(), id, perdure.Act{Verb: perdure.VerbResume, Step: "s", Author: "op", Input: json.RawMessage(`{"edited":true}`)}); err != nil {
			t.Fatal(err)
		}
		runs := <-waiting
		if len(runs) != 1 {
			t.Fatalf("%d runs", len(runs))
		}
		s.expectRun(runs[0], "s", perdure.Do, `{"edited":true}`, "")
		if err := s.Act(t.Context(), id, perdure.Act{Verb: perdure.VerbUndo, Author: "op"}); err != nil {
			t.Fatal(err)
		}
		undo := s.reportAndClaimNext(runs[0], perdure.OutcomeDone, `"out"`)
		s.expectRun(undo, "s", perdure.Undo, `{"edited":true}`, `"out"`)
	})
}

// losing is a store that has lost the outputs of steps, although their rows say that they have one.
type losing struct {
	kernel.Store
	lost atomic.Bool
}

func (s *losing) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	return s.Store.Update(ctx, func(tx kernel.Tx) error { return fn(losingTx{tx, s}) })
}

type losingTx struct {
	kernel.Tx
	s *losing
}

func (tx losingTx) Payloads(refs []kernel.StepRef, maxBytes int) ([]kernel.Payload, error) {
	found, err := tx.Tx.Payloads(refs, maxBytes)
	if tx.s.lost.Load() {
		for i := range found {
			found[i].Output = nil
		}
	}
	return found, err
}

// F149: if a step's row names an output that the store does not have, the output is not read as null. No undo run gets
// it, and other jobs go on. When the store has the output again, a node that starts then dispatches the undo run.
func TestOutputThatTheStoreHasLostIsNotNull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &losing{Store: memory.New()}
		d := open(t, s, scheduler.Config{})
		claim := protocol.Claim{Agent: "a", Holder: "h", Max: 1, Wait: time.Second}
		id := d.submit("type: t\npriority: 9\nsteps:\n  a: {agent: a, undo: {}}\n")
		run := d.claim(claim)[0]
		reports := []protocol.Report{{Job: id, Step: "a", Run: run.Number, Outcome: perdure.OutcomeDone, Output: json.RawMessage(`7`)}}
		if res, _, err := d.Report(t.Context(), "h", reports, nil); err != nil || !res[0].Accepted {
			t.Fatal(res, err)
		}
		s.lost.Store(true)
		if err := d.Act(t.Context(), id, perdure.Act{Verb: perdure.VerbUndo, Author: "me"}); err != nil {
			t.Fatal(err)
		}
		other := d.submit(one)
		if runs := d.claim(claim); len(runs) != 1 || runs[0].Job != other {
			t.Errorf("beside the lost output: %+v", runs)
		}
		s.lost.Store(false)
		d = open(t, s, scheduler.Config{})
		if runs := d.claim(claim); len(runs) != 1 || runs[0].Job != id || string(runs[0].Output) != `7` {
			t.Errorf("with the output: %+v", runs)
		}
	})
}
