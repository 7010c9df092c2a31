package scheduler_test

import (
	"context"
	"errors"
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

const mostSearches = 20

// searched is a store that calls a function after the first search of a transaction, and counts searches. If it is
// stale, further searches find the same steps again.
type searched struct {
	kernel.Store
	then  func() // nil once it was called
	stale bool
	n     atomic.Int64
}

func (s *searched) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	return s.Store.Update(ctx, func(tx kernel.Tx) error { return fn(&searchedTx{Tx: tx, s: s}) })
}

type searchedTx struct {
	kernel.Tx
	s     *searched
	first []kernel.StepRef
}

func (tx *searchedTx) Ready(agent string, max int, full []string, serves kernel.Serves) ([]kernel.StepRef, error) {
	switch n := tx.s.n.Add(1); {
	case n > mostSearches:
		return nil, errors.New("too many searches")
	case tx.s.stale && tx.first != nil:
		return tx.first, nil
	}
	found, err := tx.Tx.Ready(agent, max, full, serves)
	tx.first = found
	if then := tx.s.then; then != nil && len(found) > 0 {
		tx.s.then = nil
		then()
	}
	return found, err
}

// Another node takes a step after a search has found it and before the transaction has its lock. Later searches of the
// transaction skip this step (F018).
func TestStepTakenByAnotherNodeIsSkipped(t *testing.T) {
	for name, stale := range map[string]bool{"": false, "the store finds it again": true} {
		t.Run(name, func(t *testing.T) {
			url := pgtest.Start(t)
			s := &searched{Store: everystore.Postgres(t, url), stale: stale}
			d := open(t, s, scheduler.Config{Writers: 1})
			other := open(t, everystore.Postgres(t, url), scheduler.Config{Writers: 1})
			if err := d.PutLimit(t.Context(), "l", perdure.LimitSettings{Max: new(100)}); err != nil {
				t.Fatal(err)
			}
			for range 5 {
				d.submit("type: t\nsteps:\n  s: {agent: a, limits: [{name: l, key: k}]}\n")
			}
			taken := 0
			s.then = func() { taken = len(other.claim(protocol.Claim{Agent: "a", Holder: "o"})) }
			runs, err := d.Claim(t.Context(), protocol.Claim{Agent: "a", Holder: "h", Max: 1, Wait: 15 * time.Second})
			if n := s.n.Load(); len(runs) != 1 || err != nil || taken != 1 || n > mostSearches {
				t.Errorf("%d runs, %v, after %d searches; the other has %d", len(runs), err, n, taken)
			}
		})
	}
}
