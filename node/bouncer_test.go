package node_test

import (
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/store/postgres"
)

// F104, L3: two nodes behind PgBouncer in transaction mode receive no wake-ups of each other, and work by polling: a
// step that one node makes ready is dispatched by the other after about a quarter of a second.
func TestGridBehindPgBouncerWorksByPolling(t *testing.T) {
	url := pgtest.Start(t)
	everystore.Postgres(t, url) // creates the schema
	through := pgtest.Bouncer(t, url)
	open := func() *postgres.Store {
		store, err := postgres.Open(t.Context(), through)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		return store
	}
	var l ledger
	taker := start(t, open(), node.Config{})
	worker := start(t, open(), node.Config{Agents: []*perdure.Agent{l.agent("a", nil)}})
	var slowest time.Duration
	for range 5 {
		began := time.Now()
		v := rest(t, worker, submit(t, taker, "type: t\nflow: chain\nsteps:\n  s: {agent: a}\n  r: {agent: a}\n").ID.String())
		if v.Current != perdure.Done {
			t.Errorf("%+v", v)
		}
		slowest = max(slowest, time.Since(began))
	}
	t.Logf("the slowest took %v", slowest)
	consistent(t, taker)
}
