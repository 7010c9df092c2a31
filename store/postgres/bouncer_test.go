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

// The contract holds through PgBouncer in transaction mode, and without prepared statements: each transaction
// may have another connection (F104).
func TestContractThroughPgBouncer(t *testing.T) {
	racedetector.Skip(t)
	if testing.Short() {
		t.Skip("the contract once more")
	}
	through := pgtest.Bouncer(t, pgtest.Start(t))
	storetest.Run(t, func(t *testing.T) kernel.Store { return open(t, pgtest.SameDatabase(t, through, fresh(t))) })
}

// It takes LISTEN and lets nothing through: the store finds out by itself, and says so (F104).
func TestMissingNotificationsBehindPgBouncerAreDetected(t *testing.T) {
	url := fresh(t)
	direct, through := open(t, url), open(t, pgtest.Bouncer(t, url))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	direct.Wakeups(ctx)
	signs := through.Wakeups(ctx)
	<-signs // it listens, it thinks
	mustSubmit(t, direct, job(1, ""))
	for start := time.Now(); !direct.Listening(); time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > 30*time.Second {
			t.Fatal("deaf without a pooler")
		}
	}
	time.Sleep(3 * time.Second) // longer than it waits for an echo
	if through.Listening() {
		t.Error("it believes that it hears")
	}
	select {
	case <-signs:
		t.Error("a sign came through a pooler in transaction mode: this test tests nothing")
	default:
	}
}
