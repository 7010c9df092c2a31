package scheduler_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/protocol"
)

// saveGate stops the first transaction that releases its search, before it saves, and then ends it as the test demands.
type saveGate struct {
	kernel.Store
	first   atomic.Bool
	waiting chan bool
	open    chan error
}

func (g *saveGate) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	return g.Store.Update(ctx, func(tx kernel.Tx) error { return fn(&saveGateTx{Tx: tx, g: g}) })
}

type saveGateTx struct {
	kernel.Tx
	g        *saveGate
	releases bool
}

func (tx *saveGateTx) AnnounceDispatch(agent string) {
	tx.releases = tx.g.first.CompareAndSwap(true, false)
	tx.Tx.AnnounceDispatch(agent)
}

func (tx *saveGateTx) Save(c *kernel.Changes) error {
	if tx.releases {
		tx.releases = false
		tx.g.waiting <- true
		if err := <-tx.g.open; err != nil {
			return err
		}
	}
	return tx.Tx.Save(c)
}

// While one writer saves the steps that it dispatches from a backlog, another one dispatches the steps after them.
// Whether the first transaction is committed, retried or fails, each step is dispatched once (I6, L2).
func TestSearchDuringASaveDispatchesEachStepOnce(t *testing.T) {
	for name, end := range map[string]error{"committed": nil, "stale": kernel.ErrStale, "failed": errors.New("oops")} {
		t.Run(name, func(t *testing.T) {
			g := &saveGate{Store: everystore.Postgres(t, pgtest.Start(t)), waiting: make(chan bool), open: make(chan error)}
			d := open(t, g, scheduler.Config{Writers: 2})
			var want []perdure.JobID
			for range 6 {
				want = append(want, d.submit(one))
			}
			if runs := d.claim(protocol.Claim{Agent: "a", Holder: "h", Max: 1}); len(runs) != 1 || runs[0].Job != want[0] {
				t.Fatalf("%+v", runs) // from now on the store has the type
			}
			g.first.Store(true)
			var first []perdure.Run
			var going sync.WaitGroup
			going.Go(func() {
				first = d.claim(protocol.Claim{Agent: "a", Holder: "h", Max: 2, Wait: 20 * time.Second})
			})
			select {
			case <-g.waiting:
			case <-time.After(20 * time.Second):
				t.Fatal("nothing is passed")
			}
			second := d.claim(protocol.Claim{Agent: "a", Holder: "h", Max: 2, Wait: 20 * time.Second})
			g.open <- end
			going.Wait()
			rest := d.claim(protocol.Claim{Agent: "a", Holder: "h", Max: 9, Wait: 20 * time.Second})
			var got []perdure.JobID
			for _, runs := range [][]perdure.Run{first, second, rest} {
				for _, r := range runs {
					got = append(got, r.Job)
				}
			}
			if len(second) != 2 || second[0].Job != want[3] || second[1].Job != want[4] {
				t.Errorf("while the first is saved, %v was dispatched; want %v", second, want[3:5])
			}
			if len(first) != 2 || first[0].Job != want[1] || len(got) != 5 {
				t.Errorf("dispatched %v; want each of %v once", got, want[1:])
			}
		})
	}
}

// A writer releases its search only if there is more and it has dispatched all that it found: not if a limit or a step
// that it left is in the way.
func TestSearchIsNotReleasedAtAFullLimit(t *testing.T) {
	g := &saveGate{Store: everystore.Postgres(t, pgtest.Start(t)), waiting: make(chan bool, 9), open: make(chan error)}
	close(g.open)
	d := open(t, g, scheduler.Config{Writers: 2})
	for range 3 {
		d.submit(one)
	}
	if err := d.PutLimit(t.Context(), "agent:a", perdure.LimitSettings{Max: new(3)}); err != nil {
		t.Fatal(err)
	}
	claim := func(max int) int {
		g.first.Store(true)
		return len(d.claim(protocol.Claim{Agent: "a", Holder: "h", Max: max}))
	}
	if n := claim(1); n != 1 || len(g.waiting) != 1 {
		t.Errorf("%d runs, passed: %v", n, len(g.waiting) == 1)
	}
	<-g.waiting
	if n := claim(3); n != 2 || len(g.waiting) != 0 {
		t.Errorf("%d runs under a limit, passed: %v", n, len(g.waiting) == 1)
	}
	if err := d.PutLimit(t.Context(), "agent:a", perdure.LimitSettings{Max: new(100)}); err != nil {
		t.Fatal(err)
	}
	d.submit(one)
	if n := claim(3); n != 1 || len(g.waiting) != 0 {
		t.Errorf("%d runs, the last, passed: %v", n, len(g.waiting) == 1)
	}
}
