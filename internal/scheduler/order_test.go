package scheduler_test

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/store/memory"
)

// gated is a gate that counts searches, and separately those for no step at all.
type gated struct {
	*gate
	vain     atomic.Int32
	searches atomic.Int32
}

func (g *gated) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	return g.gate.Update(ctx, func(tx kernel.Tx) error { return fn(gatedTx{tx, g}) })
}

type gatedTx struct {
	kernel.Tx
	g *gated
}

func (tx gatedTx) Ready(agent string, max int, full []string, serves kernel.Serves) ([]kernel.StepRef, error) {
	tx.g.searches.Add(1)
	if max == 0 {
		tx.g.vain.Add(1)
	}
	return tx.Tx.Ready(agent, max, full, serves)
}

// L5: if a step that was found ready is changed by the same transaction, the next older step takes its place, not one
// that the transaction has just made ready. (Found by the simulation.)
func TestOlderStepGoesBeforeOneMadeReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &gated{gate: shut(memory.New())}
		d := open(t, store, scheduler.Config{})
		first, second := d.submit(one), d.submit(one)
		store.shut.Store(1)
		var runs []perdure.Run
		var all sync.WaitGroup
		all.Go(func() { _, _ = d.Submit(t.Context(), plan(t, "type: u\nsteps:\n  s: {agent: b}\n")) }) // keeps the writer in the gate
		synctest.Wait()
		all.Go(func() { runs = d.claim(protocol.Claim{Agent: "a", Holder: "h", Wait: time.Minute}) })
		all.Go(func() { _ = d.Act(t.Context(), first, perdure.Act{Verb: perdure.VerbUndo, Author: "me"}) })
		all.Go(func() { _, _ = d.Submit(t.Context(), plan(t, one)) })
		synctest.Wait()
		close(store.open)
		all.Wait()
		if len(runs) != 1 || runs[0].Job != second || d.job(first).Phase != perdure.Settled {
			t.Errorf("dispatched: %+v, and %s comes before all others", runs, second)
		}
	})
}

// A claim that has got all that it asked for does not search again past a full limit.
func TestSatisfiedClaimDoesNotSearchPastAFullLimit(t *testing.T) {
	store := &gated{gate: shut(memory.New())}
	d := open(t, store, scheduler.Config{})
	if err := d.PutLimit(t.Context(), "job:t", perdure.LimitSettings{Max: new(1)}); err != nil {
		t.Fatal(err)
	}
	d.submit(one)
	d.submit(one)
	if runs := d.claim(protocol.Claim{Agent: "a", Holder: "h"}); len(runs) != 1 {
		t.Fatalf("%+v", runs)
	}
	if n := store.searches.Load(); n != 1 || store.vain.Load() != 0 {
		t.Errorf("%d searches, %d of them for nothing", n, store.vain.Load())
	}
}

// While older steps wait, steps that a transaction makes ready itself may go first, if they are equally urgent, no limit
// holds an older step back, and for up to fifteen of sixteen runs (F162).
func TestYoungerStepsMayGoFirstWithinBounds(t *testing.T) {
	const older, younger, most = 40, 40, 32
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		prepare       func(d *harness)
		first         string // definition of the two oldest; empty: before
		before, after string // definitions before and after it
		max, want     int    // runs of younger jobs
	}{
		"as urgent":     {before: one, after: one, max: most, want: most - most/16},
		"a small claim": {before: one, after: one, max: 1},
		"more urgent":   {before: one, after: "type: t\npriority: 1\nsteps:\n  s: {agent: a}\n", max: most, want: most},
		"less urgent":   {before: "type: t\npriority: 1\nsteps:\n  s: {agent: a}\n", after: one, max: most},
		"of an agent with ageing": {before: one, after: one, max: most, prepare: func(d *harness) {
			must(d.PutAgent(d.t.Context(), "a", perdure.AgentSettings{Ageing: perdure.Duration(time.Minute)}))
		}},
		"that need a limit": {before: one, after: "type: t\nsteps:\n  s: {agent: a, limits: [{name: l}]}\n", max: most,
			prepare: func(d *harness) { must(d.PutLimit(d.t.Context(), "l", perdure.LimitSettings{Max: new(100)})) }},
		"while a limit holds the oldest back": {first: "type: u\nsteps:\n  s: {agent: a}\n", before: one, after: one, max: most,
			prepare: func(d *harness) { must(d.PutLimit(d.t.Context(), "job:u", perdure.LimitSettings{Max: new(1)})) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &gated{gate: shut(memory.New())}
				d := open(t, store, scheduler.Config{})
				if c.prepare != nil {
					c.prepare(d)
				}
				old := map[perdure.JobID]bool{}
				for i := range older {
					def := c.before
					if i < 2 {
						def = cmp.Or(c.first, def)
					}
					old[d.submit(def)] = true
				}
				store.shut.Store(1)
				var runs []perdure.Run
				var all sync.WaitGroup
				all.Go(func() { _, _ = d.Submit(t.Context(), plan(t, "type: u\nsteps:\n  s: {agent: b}\n")) }) // keeps the writer in the gate
				synctest.Wait()
				all.Go(func() { runs = d.claim(protocol.Claim{Agent: "a", Holder: "h", Max: c.max, Wait: time.Minute}) })
				for range younger {
					all.Go(func() { d.submit(c.after) })
				}
				synctest.Wait()
				close(store.open)
				all.Wait()
				got := 0
				for _, r := range runs {
					if !old[r.Job] {
						got++
					}
				}
				if len(runs) != c.max || got != c.want {
					t.Errorf("%d runs, %d of younger jobs, want %d", len(runs), got, c.want)
				}
			})
		})
	}
}

// L5: a step that was ready before, and that an act makes ready to be undone, does not go before older ones. (Found by
// seed 7074858 of the simulation.)
func TestStepToBeUndoneKeepsItsPlace(t *testing.T) {
	const old = "type: t\nsteps:\n  first: {agent: b}\n  s: {agent: a, after: [first]}\n"
	synctest.Test(t, func(t *testing.T) {
		store := &gated{gate: shut(memory.New())}
		d := open(t, store, scheduler.Config{})
		for range 2 {
			d.submit(old)
		}
		turned := d.submit("type: u\nsteps:\n  s: {agent: a, undo: {}, onFailure: [{wait: 1s, times: 5}]}\n")
		runs := d.claim(protocol.Claim{Agent: "a", Holder: "h", Max: 5})
		if len(runs) != 1 || runs[0].Job != turned {
			t.Fatalf("%+v", runs)
		}
		d.report("h", runs[0], perdure.OutcomeFailed)
		time.Sleep(2 * time.Second)
		if n, err := d.SweepDue(t.Context(), 10); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		for _, r := range d.claim(protocol.Claim{Agent: "b", Holder: "h", Max: 5}) {
			d.report("h", r, perdure.OutcomeDone)
		}
		d.inOneTransaction(store.gate, func() { runs = d.claim(protocol.Claim{Agent: "a", Holder: "h", Max: 2, Wait: time.Minute}) }, func() {
			if err := d.Act(t.Context(), turned, perdure.Act{Verb: perdure.VerbUndo, Author: "o"}); err != nil {
				t.Error(err)
			}
		})
		if len(runs) != 2 || runs[0].Job == turned || runs[1].Job == turned {
			t.Errorf("%+v", runs)
		}
	})
}
