package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/racedetector"
	"github.com/perdure/perdure/store/storetest"
)

// The contract holds through PgBouncer in transaction mode and without prepared statements: each transaction may use
// another connection (F104).
func TestContractThroughPgBouncer(t *testing.T) {
	racedetector.Skip(t)
	if testing.Short() {
		t.Skip("repeats the contract")
	}
	through := pgtest.Bouncer(t, pgtest.Start(t))
	storetest.Run(t, func(t *testing.T) kernel.Store { return open(t, pgtest.SameDatabase(t, through, fresh(t))) })
}

// PgBouncer in transaction mode accepts LISTEN but delivers no notifications. The store detects this, and Listening
// returns false (F104).
func TestMissingNotificationsBehindPgBouncerAreDetected(t *testing.T) {
	url := fresh(t)
	direct, through := open(t, url), open(t, pgtest.Bouncer(t, url))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	direct.Wakeups(ctx)
	wakeups := through.Wakeups(ctx)
	<-wakeups // LISTEN was accepted
	mustSubmit(t, direct, job(1, ""))
	for start := time.Now(); !direct.Listening(); time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > 30*time.Second {
			t.Fatal("not listening without a pooler")
		}
	}
	time.Sleep(3 * time.Second) // longer than the store waits for its own notification
	if through.Listening() {
		t.Error("Listening returns true behind PgBouncer")
	}
	select {
	case <-wakeups:
		t.Error("a notification came through PgBouncer in transaction mode, so this test cannot fail")
	default:
	}
}
