package scheduler_test

import (
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

// gated is a gate that counts looks, those for no step at all apart.
type gated struct {
	*gate
	vain  atomic.Int32
	looks atomic.Int32
}

func (g *gated) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	return g.gate.Update(ctx, func(tx kernel.Tx) error { return fn(gatedTx{tx, g}) })
}

type gatedTx struct {
	kernel.Tx
	g *gated
}

func (tx gatedTx) Ready(agent string, max int, full []string) ([]kernel.StepRef, error) {
	tx.g.looks.Add(1)
	if max == 0 {
		tx.g.vain.Add(1)
	}
	return tx.Tx.Ready(agent, max, full)
}

// L5: where a step that was found ready is moved on in the same transaction, the next older one gets its place,
// and not one that the transaction has just made ready. (Found by the simulation.)
func TestOlderGoesBeforeNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &gated{gate: shut(memory.New())}
		d := open(t, store, scheduler.Config{})
		first, second := d.submit(one), d.submit(one)
		store.shut.Store(1)
		var runs []perdure.Run
		var all sync.WaitGroup
		all.Go(func() { _, _ = d.Submit(t.Context(), plan(t, "type: u\nsteps:\n  s: {agent: b}\n")) }) // keeps the writer at the gate
		synctest.Wait()
		all.Go(func() { runs = d.claim(protocol.Claim{Agent: "a", Holder: "h", Wait: time.Minute}) })
		all.Go(func() { _ = d.Act(t.Context(), first, perdure.Act{Verb: perdure.VerbUndo, Author: "me"}) })
		all.Go(func() { _, _ = d.Submit(t.Context(), plan(t, one)) })
		synctest.Wait()
		close(store.open)
		all.Wait()
		if len(runs) != 1 || runs[0].Job != second || d.job(first).Phase != perdure.Settled {
			t.Errorf("let out: %+v, and %s stands before all others", runs, second)
		}
	})
}

// A claim that has got all that it asked for does not look once more for what stands behind a full limit.
func TestNoLookInVain(t *testing.T) {
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
	if n := store.looks.Load(); n != 1 || store.vain.Load() != 0 {
		t.Errorf("%d looks, %d of them for nothing", n, store.vain.Load())
	}
}
