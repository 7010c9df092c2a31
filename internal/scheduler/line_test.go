package scheduler_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/dispatch"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/store/memory"
)

// Jobs of one key follow each other in the order of submission, and at once, however many lanes are closed for the key; no
// supervisor is needed.
// (F345).
func TestFirstOfManyLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const jobs = 3*dispatch.MaxOpened + 1
		d := open(t, memory.New(), scheduler.Config{})
		if err := d.PutLimit(t.Context(), "turns", perdure.LimitSettings{PerKey: &perdure.KeyLimit{Max: new(1)}, Order: "submitted"}); err != nil {
			t.Fatal(err)
		}
		for i := range jobs {
			d.submit(fmt.Sprintf("type: t%d\npriority: %d\nsteps:\n  s: {agent: a, limits: [{name: turns, key: k}]}\n", i, i%10))
		}
		began := time.Now()
		for i := range jobs {
			runs := d.claim(protocol.Claim{Agent: "a", Holder: "h", Max: 8, Wait: time.Second})
			if len(runs) != 1 || d.job(runs[0].Job).Type != fmt.Sprint("t", i) {
				t.Fatalf("job %d: %d runs, the first of %s", i, len(runs), d.job(runs[0].Job).Type)
			}
			d.report("h", runs[0], perdure.OutcomeDone)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("took %s", took)
		}
	})
}

// A step whose input cannot be evaluated leaves its line as it would be dispatched, and the next one is dispatched at once (F345).
func TestLineGoesOnAfterAnInputThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, memory.New(), scheduler.Config{})
		if err := d.PutLimit(t.Context(), "turns", perdure.LimitSettings{PerKey: &perdure.KeyLimit{Max: new(1)}, Order: "submitted"}); err != nil {
			t.Fatal(err)
		}
		const turn = "limits: [{name: turns, key: k}]"
		ids := []perdure.JobID{
			d.submit("type: fails\nsteps:\n  p: {agent: b}\n  s: {agent: a, after: [p], onFailure: park, with: {x: \"${steps.p.output.x.y}\"}, " + turn + "}\n"),
			d.submit("type: one\nsteps:\n  s: {agent: a, " + turn + "}\n"), d.submit("type: two\nsteps:\n  s: {agent: a, " + turn + "}\n")}
		next := func(agent, typ string) perdure.Run {
			t.Helper()
			began := time.Now()
			runs := d.claim(protocol.Claim{Agent: agent, Holder: "h", Max: 1, Wait: 10 * time.Second})
			if len(runs) != 1 || d.job(runs[0].Job).Type != typ || time.Since(began) > 100*time.Millisecond {
				for _, id := range ids {
					_, steps, _ := d.store.Job(t.Context(), id, 9)
					for _, s := range steps {
						t.Logf("%s %s %s %s %q", d.job(id).Type, s.Name, s.Phase, s.Needs, s.LastError)
					}
				}
				t.Fatalf("%d runs after %s, want one of %s", len(runs), time.Since(began), typ)
			}
			return runs[0]
		}
		p, one := next("b", "fails"), next("a", "one")
		if runs := d.claim(protocol.Claim{Agent: "a", Holder: "h", Max: 1}); len(runs) > 0 {
			t.Fatalf("%d runs, although the key is full", len(runs))
		}
		d.report("h", p, perdure.OutcomeDone) // without an output
		d.report("h", one, perdure.OutcomeDone)
		next("a", "two")
	})
}
