package scheduler_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/admission"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/racedetector"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/store/memory"
)

// fan returns a job of one step with a large output, and n steps after it.
func fan(n int, step string) string {
	var b strings.Builder
	b.WriteString("type: fan\nsteps:\n  big: {agent: big}\n")
	for i := range n {
		fmt.Fprintf(&b, "  s%d: {after: [big], %s}\n", i, strings.ReplaceAll(step, "@", fmt.Sprint(i)))
	}
	return b.String()
}

// listOfOnes returns a JSON list of n ones.
func listOfOnes(n int) json.RawMessage {
	return json.RawMessage("[" + strings.TrimSuffix(strings.Repeat("1,", n), ",") + "]")
}

// finish reports the next run of an agent as done, with an output.
func (d *harness) finish(agent string, output json.RawMessage) {
	d.t.Helper()
	runs := d.claim(protocol.Claim{Agent: agent, Holder: "h", Max: 1})
	if len(runs) != 1 {
		d.t.Fatalf("%d runs of %s", len(runs), agent)
	}
	rep := protocol.Report{Job: runs[0].Job, Step: runs[0].Step, Run: runs[0].Number, Outcome: perdure.OutcomeDone, Output: output}
	if res, _, err := d.Report(d.t.Context(), "h", []protocol.Report{rep}, nil); err != nil || !res[0].Accepted {
		d.t.Fatalf("%+v, %v", res, err)
	}
}

// drainAgent claims until it has n runs, and returns how many runs each claim was granted.
func (d *harness) drainAgent(agent string, n int, check func(perdure.Run)) (sizes []int, steps map[string]int) {
	d.t.Helper()
	steps = map[string]int{}
	for len(steps) < n {
		runs := d.claim(protocol.Claim{Agent: agent, Holder: "h", Max: perdure.MaxBatch, Wait: time.Minute})
		if len(runs) == 0 {
			d.t.Fatalf("%d of %d runs of agent %s came", len(steps), n, agent)
		}
		sizes = append(sizes, len(runs))
		for _, run := range runs {
			steps[run.Step]++
			check(run)
		}
	}
	if runs := d.claim(protocol.Claim{Agent: agent, Holder: "h", Max: perdure.MaxBatch}); len(runs) > 0 {
		d.t.Errorf("%d runs of agent %s too many", len(runs), agent)
	}
	return sizes, steps
}

// costly reads a list of 60,000 values four times, each time with a different expression.
const costly = `agent: a, with: {n: "${len(filter(steps.big.output, # > 0)) + @}", m: "${sum(steps.big.output)}", l: "${len(map(steps.big.output, # + 1))}", f: "${count(steps.big.output, # == 1)}"}`

// F156: inputs that take much work are rendered outside of transactions, and each claim is granted the runs whose inputs
// are rendered by then. In the end all are dispatched, with the right inputs.
func TestCostlyInputsAreDispatchedInParts(t *testing.T) {
	racedetector.Skip(t)
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		const n = 6
		d.submit(fan(n, costly))
		d.finish("big", listOfOnes(60_000))
		sizes, steps := d.drainAgent("a", n, func(run perdure.Run) {
			var in struct{ N, M, L, F int }
			var i int
			if _, err := fmt.Sscanf(run.Step, "s%d", &i); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(run.Input, &in); err != nil || in.N != 60_000+i || in.M != 60_000 || in.L != 60_000 || in.F != 60_000 {
				t.Errorf("step %s is handed %s, %v", run.Step, run.Input, err)
			}
		})
		for step, runs := range steps {
			if runs != 1 {
				t.Errorf("step %s was dispatched %d times", step, runs)
			}
		}
		if len(sizes) < 2 {
			t.Errorf("claims were given %v runs: no transaction has postponed any", sizes)
		}
	})
}

// F156: an agent whose inputs take much work does not delay those of another agent.
func TestCheapInputsDoNotWaitForCostlyOnes(t *testing.T) {
	racedetector.Skip(t)
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{Renderers: 1})
		d.submit(fan(8, costly))
		d.submit(fan(8, `agent: b, with: {n: "${len(steps.big.output)}"}`))
		d.finish("big", listOfOnes(60_000))
		d.finish("big", listOfOnes(10))
		var order sync.Map
		var all sync.WaitGroup
		turn := atomic.Int32{}
		for _, agent := range []string{"a", "b"} {
			all.Go(func() {
				d.drainAgent(agent, 8, func(perdure.Run) {})
				order.Store(agent, turn.Add(1))
			})
		}
		all.Wait()
		if first, _ := order.Load("b"); first != int32(1) {
			t.Error("agent b has waited for all inputs of agent a")
		}
	})
}

// F157: the answer to a claim has at most 16 MiB. The other runs come with the next claim. (An undo run receives the
// output of the step, which need not be rendered.)
func TestAnswerToAClaimIsBounded(t *testing.T) {
	racedetector.Skip(t)
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		const n = 40
		definition := "type: t\nsteps:\n"
		for i := range n {
			definition += fmt.Sprintf("  s%d: {agent: a, undo: {}}\n", i)
		}
		id := d.submit(definition)
		big, err := json.Marshal(strings.Repeat("x", perdure.MaxPayloadBytes-2))
		if err != nil {
			t.Fatal(err)
		}
		for range n {
			d.finish("a", big)
		}
		if err := d.Act(t.Context(), id, perdure.Act{Verb: perdure.VerbUndo, Author: "me"}); err != nil {
			t.Fatal(err)
		}
		sizes, steps := d.drainAgent("a", n, func(run perdure.Run) {
			if string(run.Output) != string(big) {
				t.Errorf("step %s is handed %d bytes", run.Step, len(run.Output))
			}
		})
		for _, size := range sizes {
			if size*len(big) > perdure.MaxAnswerBytes {
				t.Errorf("a claim was given %d runs of %d bytes", size, len(big))
			}
		}
		if len(steps) != n || slices.Max(sizes) < 3 {
			t.Errorf("%d of %d steps were dispatched, by claims of %v", len(steps), n, sizes)
		}
	})
}

// F157: a claim is granted no more than its server has room for. Without room it is refused, or waits until there is
// some.
func TestClaimsFitIntoTheRoomOfTheirServer(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		const n = 8
		d.submit(fan(n, `agent: a, with: "${steps.big.output}"`))
		d.submit("{type: t, steps: {small: {agent: b}}}")
		big, err := json.Marshal(strings.Repeat("x", perdure.MaxPayloadBytes-2))
		if err != nil {
			t.Fatal(err)
		}
		d.finish("big", big)
		var room atomic.Int64
		ctx := admission.With(t.Context(), admission.Gate{Room: func() int { return int(room.Load()) }})
		c := protocol.Claim{Agent: "a", Holder: "h", Max: n, RequestID: "r"}
		if runs, err := d.Claim(ctx, c); len(runs) > 0 || perdure.CodeOf(err) != perdure.CodeTooManyRequests {
			t.Errorf("without room: %d runs, %v", len(runs), err)
		}
		if runs, err := d.Claim(ctx, protocol.Claim{Agent: "b", Holder: "h", Max: 1}); len(runs) != 1 {
			t.Errorf("a small run without room: %v", err)
		}
		var going sync.WaitGroup
		going.Go(func() {
			c := c
			c.Wait = time.Minute
			if runs, err := d.Claim(ctx, c); len(runs) != 3 {
				t.Errorf("with room for three: %d, %v", len(runs), err)
			}
		})
		time.Sleep(200 * time.Millisecond)
		room.Store(int64(3*len(big) + 4<<10))
		going.Wait()
		room.Store(int64(2 * len(big)))
		if runs, err := d.Claim(ctx, c); len(runs) > 0 || perdure.CodeOf(err) != perdure.CodeTooManyRequests {
			t.Errorf("repeated with room for less: %d runs, %v", len(runs), err)
		}
		room.Store(1 << 30)
		if runs, err := d.Claim(ctx, c); len(runs) != 3 {
			t.Errorf("repeated with room: %d runs, %v", len(runs), err)
		}
	})
}

// F155, F156: a repeated claim of costly inputs is granted all of its runs again, also in a transaction with other
// claims.
func TestRepeatedClaimOfCostlyInputs(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		d.submit(fan(12, costly))
		d.finish("big", listOfOnes(60_000))
		var answers [4][]perdure.Run
		claim := func(i int) protocol.Claim {
			return protocol.Claim{Agent: "a", Holder: "h", Max: 3, Wait: time.Minute, RequestID: fmt.Sprint("r", i)}
		}
		for i := range answers {
			answers[i] = d.claim(claim(i))
		}
		again := make(chan int, len(answers))
		for i := range answers {
			go func() {
				runs, err := d.Claim(t.Context(), claim(i))
				if len(runs) != len(answers[i]) {
					t.Errorf("claim %d was given %d runs, and then %d, %v", i, len(answers[i]), len(runs), err)
				}
				byStep := map[string]perdure.Run{}
				for _, run := range runs {
					byStep[run.Step] = run
				}
				for _, before := range answers[i] {
					if run := byStep[before.Step]; run.Number != before.Number || string(run.Input) != string(before.Input) {
						t.Errorf("claim %d: run %+v instead of %+v", i, run, before)
					}
				}
				again <- i
			}()
		}
		for range answers {
			<-again
		}
	})
}

// F156: conditions that take much work are evaluated outside of transactions. Their steps stay due, and the supervisor
// is woken when a condition has been evaluated.
func TestCostlyConditionsArePostponed(t *testing.T) {
	racedetector.Skip(t)
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		sooner := make(chan time.Time, 100)
		d := open(t, store, scheduler.Config{OnWait: func(at time.Time) { sooner <- at }})
		const n = 12
		id := d.submit(fan(n, `agent: a, when: "len(filter(steps.big.output, # > 0)) + sum(map(steps.big.output, #)) + count(steps.big.output, # == 1) > 180000 - 6 + @"`))
		d.finish("big", listOfOnes(60_000))
		count := func() (ready, due, skipped int) {
			steps, err := store.StepsOf(t.Context(), id, time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range steps {
				switch {
				case s.Phase == perdure.Ready:
					ready++
				case s.Phase == perdure.Waiting && !s.AvailableAt.IsZero():
					due++
				case s.Skipped:
					skipped++
				}
			}
			return ready, due, skipped
		}
		if ready, due, skipped := count(); ready+skipped > 2 || ready+skipped+due != n {
			t.Errorf("one transaction made %d steps ready, skipped %d and postponed %d, of %d", ready, skipped, due, n)
		}
		for ready, due, skipped := count(); due > 0; ready, due, skipped = count() {
			select {
			case <-sooner:
			case <-time.After(time.Minute):
				t.Fatalf("the supervisor was not woken; %d are ready, %d skipped, %d postponed", ready, skipped, due)
			}
			if _, err := d.SweepDue(t.Context(), 1000); err != nil {
				t.Fatal(err)
			}
		}
		if ready, _, skipped := count(); ready != 6 || skipped != 6 {
			t.Errorf("%d steps are ready and %d skipped, of %d", ready, skipped, n)
		}
	})
}

// F156: an input, or a condition, that reads more than a node loads for one step fails like an expression that cannot
// be evaluated.
func TestStepThatReadsTooMuchIsRejected(t *testing.T) {
	racedetector.Skip(t)
	for name, step := range map[string]string{"an input": `with: {all: "${len(%s)}"}`, "a condition": `when: "len(%s) > 0"`} {
		t.Run(name, func(t *testing.T) {
			everystore.Run(t, func(t *testing.T, store kernel.Store) {
				d := open(t, store, scheduler.Config{})
				const n = perdure.MaxReadBytes/perdure.MaxPayloadBytes + 2
				id := d.submit(join(n, step))
				big := json.RawMessage(`"` + strings.Repeat("x", perdure.MaxPayloadBytes-2) + `"`)
				for range n {
					d.finish("big", big)
				}
				for range 3 { // a postponed rendering has a transaction of its own
					if _, err := d.SweepDue(t.Context(), 1000); err != nil {
						t.Fatal(err)
					}
				}
				if runs := d.claim(protocol.Claim{Agent: "b", Holder: "h", Max: 10}); len(runs) > 0 {
					t.Fatalf("it was dispatched: %d", len(runs))
				}
				steps, err := store.StepsOf(t.Context(), id, time.Time{})
				if err != nil {
					t.Fatal(err)
				}
				if s := steps[n]; s.Phase != perdure.Parked || !strings.Contains(s.LastError, fmt.Sprint(perdure.MaxReadBytes)) {
					t.Errorf("step %s is %s, failed with %q", s.Name, s.Phase, s.LastError)
				}
			})
		})
	}
}

// F156: agents whose runs take all bytes of a transaction take turns.
func TestAgentsWithLargeValuesTakeTurns(t *testing.T) {
	d := open(t, memory.New(), scheduler.Config{})
	const many = 150
	definition := "type: t\nsteps:\n"
	for i := range many {
		definition += fmt.Sprintf("  a%d: {agent: a, undo: {}}\n", i)
	}
	id := d.submit(definition + "  b: {agent: b, undo: {}}\n  c: {agent: c, undo: {}}\n")
	big := json.RawMessage(`"` + strings.Repeat("x", perdure.MaxPayloadBytes-2) + `"`)
	for range many {
		d.finish("a", big)
	}
	d.finish("b", big)
	d.finish("c", big)

	var ofA atomic.Int64
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			for end := time.Now().Add(time.Minute); ofA.Load() < many && time.Now().Before(end); {
				runs, err := d.Claim(t.Context(), protocol.Claim{Agent: "a", Holder: "h", Max: many, Wait: time.Second})
				if err != nil && perdure.CodeOf(err) != perdure.CodeUnavailable { // on a slow machine it may not be served in time
					t.Error(err)
					return
				}
				ofA.Add(int64(len(runs)))
			}
		})
	}
	for _, agent := range []string{"b", "c"} {
		all.Go(func() {
			runs := d.claim(protocol.Claim{Agent: agent, Holder: "h", Max: 1, Wait: time.Minute})
			if before := ofA.Load(); len(runs) != 1 || before > many/2 {
				t.Errorf("agent %s was given %d runs after %d of agent a", agent, len(runs), before)
			}
		})
	}
	for _, agent := range []string{"a", "b", "c"} {
		d.awaitWaitingClaim(agent)
	}
	if err := d.Act(t.Context(), id, perdure.Act{Verb: perdure.VerbUndo, Author: "me"}); err != nil {
		t.Fatal(err)
	}
	all.Wait()
}

// F156: if the values of other agents have used up the bytes of a transaction, the next transaction serves the remaining
// agents, without any other wake-up.
func TestAgentsWithoutBytesAreServedNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := shut(memory.New())
		d := open(t, g, scheduler.Config{})
		const many = 40
		definition := "type: t\nsteps:\n"
		for i := range many {
			definition += fmt.Sprintf("  a%d: {agent: a, undo: {}}\n", i)
		}
		id := d.submit(definition + "  b: {agent: b, undo: {}}\n  c: {agent: c, undo: {}}\n")
		big := json.RawMessage(`"` + strings.Repeat("x", perdure.MaxPayloadBytes-2) + `"`)
		for range many {
			d.finish("a", big)
		}
		d.finish("b", big)
		d.finish("c", big)
		if err := d.Act(t.Context(), id, perdure.Act{Verb: perdure.VerbUndo, Author: "me"}); err != nil {
			t.Fatal(err)
		}
		var claims []func()
		for _, c := range []protocol.Claim{{Agent: "a", Holder: "h", Max: many, Wait: time.Minute}, {Agent: "b", Holder: "h", Max: 1, Wait: time.Minute}, {Agent: "c", Holder: "h", Max: 1, Wait: time.Minute}} {
			claims = append(claims, func() {
				began := time.Now()
				runs := d.claim(c)
				if duration := time.Since(began); len(runs) == 0 || duration > 0 {
					t.Errorf("agent %s was given %d runs after %s", c.Agent, len(runs), duration)
				}
			})
		}
		d.inOneTransaction(g, claims...)
	})
}

// F156: if the renderers have enough renderings of one agent, this does not end the search of another one, whose first
// step a limit holds back.
func TestPostponedInputsDoNotEndTheSearchOfAnotherAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := shut(memory.New())
		d := open(t, g, scheduler.Config{})
		if err := d.PutLimit(t.Context(), "job:full", perdure.LimitSettings{Max: new(1)}); err != nil {
			t.Fatal(err)
		}
		d.submit(fan(40, costly))
		d.finish("big", listOfOnes(60_000))
		for range 2 {
			d.submit("type: full\nsteps:\n  s: {agent: b}\n")
		}
		d.claim(protocol.Claim{Agent: "b", Holder: "h", Max: 1})
		free := d.submit("type: free\nsteps:\n  s: {agent: b}\n")

		time.Sleep(time.Minute) // until the full limit is forgotten

		g.shut.Store(1)
		var all sync.WaitGroup
		all.Go(func() { d.submit("type: t\nsteps:\n  s: {agent: c}\n") }) // keeps the writer in the gate
		synctest.Wait()
		all.Go(func() { d.claim(protocol.Claim{Agent: "a", Holder: "h", Max: 40}) })
		all.Go(func() {
			runs := d.claim(protocol.Claim{Agent: "b", Holder: "h", Max: 1, Wait: time.Minute})
			if len(runs) != 1 || runs[0].Job != free {
				t.Errorf("agent b was given %v", runNames(runs))
			}
		})
		synctest.Wait()
		g.open <- struct{}{}
		all.Wait()
	})
}

// L5, F156: steps that a limit holds back do not use up the bytes that a transaction reads. Here many jobs of a type are
// undone, and each undo run receives an output of 1 MB.
func TestValuesOfStepsThatALimitHoldsBackAreNotRead(t *testing.T) {
	d := open(t, memory.New(), scheduler.Config{})
	if err := d.PutLimit(t.Context(), "job:full", perdure.LimitSettings{Max: new(1)}); err != nil {
		t.Fatal(err)
	}
	done := func(typ string, output json.RawMessage) perdure.JobID {
		id := d.submit("{type: " + typ + ", steps: {s: {agent: b, undo: {}}}}")
		d.finish("b", output)
		return id
	}
	undo := func(id perdure.JobID) {
		if err := d.Act(t.Context(), id, perdure.Act{Verb: perdure.VerbUndo, Author: "me"}); err != nil {
			t.Fatal(err)
		}
	}
	big := json.RawMessage(`"` + strings.Repeat("x", perdure.MaxPayloadBytes-2) + `"`)
	var full []perdure.JobID
	for range perdure.MaxReadBytes/perdure.MaxPayloadBytes + 2 {
		full = append(full, done("full", big))
	}
	free := done("free", json.RawMessage("1"))
	for _, id := range full {
		undo(id)
	}
	if runs := d.claim(protocol.Claim{Agent: "b", Holder: "h", Max: 1}); len(runs) != 1 {
		t.Fatalf("%d runs", len(runs))
	}
	undo(free)
	time.Sleep(1100 * time.Millisecond) // until the full limit is forgotten
	runs := d.claim(protocol.Claim{Agent: "b", Holder: "h", Max: 100, Wait: 5 * time.Second})
	if len(runs) != 1 || runs[0].Job != free {
		t.Errorf("%d runs were dispatched: %v", len(runs), runNames(runs))
	}
}

// join returns a job of n steps of the agent big, and a step after them that reads all of their outputs.
func join(n int, step string) string {
	var b strings.Builder
	var after, outputs []string
	b.WriteString("type: join\nsteps:\n")
	for i := range n {
		fmt.Fprintf(&b, "  p%d: {agent: big}\n", i)
		after, outputs = append(after, fmt.Sprint("p", i)), append(outputs, fmt.Sprintf("steps.p%d.output", i))
	}
	fmt.Fprintf(&b, "  join: {agent: b, after: [%s], "+step+"}\n", strings.Join(after, ","), "["+strings.Join(outputs, ",")+"]")
	return b.String()
}

// inOneTransaction makes calls that one transaction carries out, in their order.
func (d *harness) inOneTransaction(g *gate, calls ...func()) {
	var all sync.WaitGroup
	g.shut.Store(1)
	all.Go(func() { d.submit("type: t\nsteps:\n  s: {agent: nobody}\n") }) // keeps the writer in the gate
	synctest.Wait()
	for _, call := range calls {
		all.Go(call)
		synctest.Wait()
	}
	g.open <- struct{}{}
	all.Wait()
}

// F156: a due scan decides whether a condition reads too much, even if other requests of the same transaction read
// values.
func TestConditionThatReadsTooMuchIsRejectedBesideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := shut(memory.New())
		d := open(t, g, scheduler.Config{})
		const n = perdure.MaxReadBytes/perdure.MaxPayloadBytes + 3
		id := d.submit(join(n, `when: "len(%s) > 0"`))
		big := json.RawMessage(`"` + strings.Repeat("x", perdure.MaxPayloadBytes-2) + `"`)
		for range n - 1 {
			d.finish("big", big)
		}
		var reads []perdure.Run // each report makes a transaction read a small value
		for range 2 {
			d.submit("type: small\nsteps:\n  p: {agent: b}\n  q: {agent: b}\n  r: {agent: a, after: [p, q], when: \"steps.p.output > 0\"}\n")
			d.finish("b", json.RawMessage("1"))
			reads = append(reads, d.claim(protocol.Claim{Agent: "b", Holder: "h"})...)
		}
		last := d.claim(protocol.Claim{Agent: "big", Holder: "h"})[0]
		d.inOneTransaction(g, func() { d.report("h", reads[0], perdure.OutcomeDone) }, func() { d.report("h", last, perdure.OutcomeDone) })
		d.inOneTransaction(g, func() { d.report("h", reads[1], perdure.OutcomeDone) }, func() {
			if _, err := d.SweepDue(t.Context(), 1000); err != nil {
				t.Error(err)
			}
		})
		steps, err := d.store.StepsOf(t.Context(), id, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		if s := steps[n]; s.Phase != perdure.Parked || !strings.Contains(s.LastError, fmt.Sprint(perdure.MaxReadBytes)) {
			t.Errorf("step %s is %s, available at %v, failed with %q", s.Name, s.Phase, s.AvailableAt, s.LastError)
		}
	})
}

// F156: a due scan finds due steps behind more postponed conditions than it has room for.
func TestPostponedConditionsDoNotHoldUpOtherSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, memory.New(), scheduler.Config{})
		const n, page = 100, 50
		sleeper := d.submit("type: t\nsteps:\n  s: {agent: sleep, with: {for: 1h}}\n")
		d.submit(fan(n, `agent: a, when: "len(filter(steps.big.output, # > 0)) + sum(map(steps.big.output, #)) + count(steps.big.output, # == 1) > @"`))
		d.finish("big", listOfOnes(60_000))
		time.Sleep(time.Hour) // until the conditions are decided for which the renderers had room
		if moved, err := d.SweepDue(t.Context(), page); err != nil || moved == 0 {
			t.Fatalf("%d steps were moved on, %v", moved, err)
		}
		if j := d.job(sleeper); j.Phase != perdure.Settled {
			t.Errorf("a job whose sleep is over is %s", j.Phase)
		}
	})
}

// F156: if other agents have left nothing of the budget for an agent, it goes first in the next transaction.
func TestAgentThatWasLeftNothingGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := shut(memory.New())
		d := open(t, g, scheduler.Config{})
		const n = perdure.MaxReadBytes/perdure.MaxPayloadBytes + 2
		id := d.submit(join(n, `with: {all: "${len(%s)}"}`))
		for range n {
			d.finish("big", json.RawMessage(`"`+strings.Repeat("x", perdure.MaxPayloadBytes-2)+`"`))
		}
		d.submit(fan(3, `agent: a, with: "${steps.big.output}"`))
		d.finish("big", json.RawMessage("1"))

		g.shut.Store(4)
		var all sync.WaitGroup
		all.Go(func() { d.submit("type: t\nsteps:\n  s: {agent: nobody}\n") }) // keeps the writer in the gate
		synctest.Wait()
		all.Go(func() { d.claim(protocol.Claim{Agent: "b", Holder: "h", Wait: time.Minute}) })
		for range 3 { // each transaction has a claim of agent a, too
			all.Go(func() { d.claim(protocol.Claim{Agent: "a", Holder: "h"}) })
			synctest.Wait()
			g.open <- struct{}{}
			synctest.Wait()
		}
		steps, err := d.store.StepsOf(t.Context(), id, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		if s := steps[n]; s.Phase != perdure.Parked {
			t.Errorf("step %s, which reads too much, is %s", s.Name, s.Phase)
		}
		g.open <- struct{}{}
		all.Wait()
	})
}

// F157: a report is answered although the server has no room for the runs of the claim that comes with it.
func TestReportIsAnsweredWithoutRoomForRuns(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		d.submit(fan(1, `agent: big, with: "${steps.big.output}"`))
		run := d.claim(protocol.Claim{Agent: "big", Holder: "h"})[0]
		rep := doneReport(run)
		rep[0].Output = json.RawMessage(`"` + strings.Repeat("x", perdure.MaxPayloadBytes-2) + `"`)
		ctx := admission.With(t.Context(), admission.Gate{Room: func() int { return 0 }})
		next := protocol.Claim{Agent: "big", Holder: "h", Max: 1, RequestID: "r", First: true}
		if res, runs, err := d.Report(ctx, "h", rep, &next); err != nil || !res[0].Accepted || len(runs) > 0 {
			t.Errorf("%+v, %d runs, %v", res, len(runs), err)
		}
		next.First, next.Wait = false, time.Minute
		if runs := d.claim(next); len(runs) != 1 {
			t.Errorf("the claim that comes next was granted %d runs", len(runs))
		}
	})
}

// F155, F156: the values that one run of a repeated claim has read do not decide whether another run can be rendered.
func TestRunsOfARepeatedClaimAreRenderedEachForItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, memory.New(), scheduler.Config{})
		const n, bytes = 5, 1_000_000
		var with strings.Builder
		for i := range 10 {
			fmt.Fprintf(&with, "n%d: \"${len(output) + %d}\", ", i, i)
		}
		definition := "type: t\nsteps:\n"
		for i := range n {
			definition += fmt.Sprintf("  s%d: {agent: a, undo: {with: {%s}}}\n", i, strings.TrimSuffix(with.String(), ", "))
		}
		id := d.submit(definition)
		for range n {
			d.finish("a", listOfOnes(bytes/2))
		}
		if err := d.Act(t.Context(), id, perdure.Act{Verb: perdure.VerbUndo, Author: "me"}); err != nil {
			t.Fatal(err)
		}
		d.claim(protocol.Claim{Agent: "a", Holder: "h", Max: n})
		synctest.Wait() // until the inputs are rendered
		claim := protocol.Claim{Agent: "a", Holder: "h", Max: n, RequestID: "r"}
		before := runNames(d.claim(claim))
		if again := runNames(d.claim(claim)); len(before) != n || !slices.Equal(before, again) {
			t.Errorf("a claim was granted %v, and then %v", before, again)
		}
	})
}
