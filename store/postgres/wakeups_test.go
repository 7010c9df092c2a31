package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// A commit of one process wakes the others up, also after they have lost a connection (F069, F100).
func TestCommitsWakeOtherProcesses(t *testing.T) {
	url := fresh(t)
	a, b := open(t, url), open(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	wakeups := b.Wakeups(ctx)
	awake := func(within time.Duration) bool {
		select {
		case _, open := <-wakeups:
			return open
		case <-time.After(within):
			return false
		}
	}
	if !awake(30 * time.Second) {
		t.Fatal("no wake-up when LISTEN has begun")
	}
	mustSubmit(t, a, job(1, ""))
	if !awake(30 * time.Second) {
		t.Error("no wake-up for a ready step")
	}
	if awake(100 * time.Millisecond) {
		t.Error("a wake-up without a cause")
	}
	check := func(what string, change func(kernel.Tx) error, wakes bool) {
		t.Helper()
		if err := a.Update(t.Context(), change); err != nil {
			t.Fatal(err)
		}
		if within := map[bool]time.Duration{true: 30 * time.Second, false: 100 * time.Millisecond}[wakes]; awake(within) != wakes {
			t.Errorf("%s: wake-up %v, want %v", what, !wakes, wakes)
		}
	}
	limit, id := kernel.AgentLimit("http"), job(1, "").Job.ID
	check("a limit", func(tx kernel.Tx) error {
		return tx.PutLimit(kernel.Limit{Name: limit, Max: 1, PerKey: kernel.Unbounded})
	}, true)
	check("a permit is taken", func(tx kernel.Tx) error { return dispatchUntil(tx, id, time.Now().Add(time.Minute)) }, false)
	check("a permit is freed", func(tx kernel.Tx) error {
		steps, err := tx.StepsOf(id)
		if err != nil {
			return err
		}
		now := *steps[0]
		now.Phase, now.LockedBy, now.LockedUntil, now.AvailableAt = perdure.Waiting, "", time.Time{}, time.Now().Add(time.Hour)
		return tx.Save(&kernel.Changes{Steps: []kernel.StepChange{{Now: &now, Loaded: steps[0]}}})
	}, true)
	check("a limit is deleted", func(tx kernel.Tx) error { _, err := tx.DeleteLimit(limit); return err }, true)
	killOthers(t, url)
	if !awake(30 * time.Second) {
		t.Error("no wake-up when LISTEN has begun again")
	}
	mustSubmit(t, a, job(2, ""))
	if !awake(30 * time.Second) {
		t.Error("no wake-up after a lost connection")
	}
	other := a.Wakeups(t.Context())
	cancel()
	awaitClosed(t, wakeups, "after the end of its context")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	awaitClosed(t, other, "after its store was closed")
}

// awaitClosed receives until a channel of wake-ups is closed.
func awaitClosed(t *testing.T, wakeups <-chan struct{}, when string) {
	t.Helper()
	late := time.After(30 * time.Second)
	for open := true; open; {
		select {
		case _, open = <-wakeups:
		case <-late:
			t.Fatalf("the channel is open %s", when)
		}
	}
}
