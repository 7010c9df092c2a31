package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// What one process commits, another hears of; also after its connection was cut (F069, F100).
func TestCommitsWakeOtherProcesses(t *testing.T) {
	url := fresh(t)
	a, b := open(t, url), open(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	signs := b.Wakeups(ctx)
	heard := func(within time.Duration) bool {
		select {
		case _, open := <-signs:
			return open
		case <-time.After(within):
			return false
		}
	}
	if !heard(30 * time.Second) {
		t.Fatal("no sign that it listens")
	}
	mustSubmit(t, a, job(1, ""))
	if !heard(30 * time.Second) {
		t.Error("no sign of a step that is ready")
	}
	if heard(100 * time.Millisecond) {
		t.Error("a sign of nothing")
	}
	does := func(what string, does func(kernel.Tx) error, told bool) {
		t.Helper()
		if err := a.Update(t.Context(), does); err != nil {
			t.Fatal(err)
		}
		if within := map[bool]time.Duration{true: 30 * time.Second, false: 100 * time.Millisecond}[told]; heard(within) != told {
			t.Errorf("%s: told %v, want %v", what, !told, told)
		}
	}
	limit, id := kernel.AgentLimit("http"), job(1, "").Job.ID
	does("a limit", func(tx kernel.Tx) error {
		return tx.PutLimit(kernel.Limit{Name: limit, Max: 1, PerKey: kernel.Unbounded})
	}, true)
	does("a permit is taken", func(tx kernel.Tx) error { return letOut(tx, id, time.Now().Add(time.Minute)) }, false)
	does("a permit is freed", func(tx kernel.Tx) error {
		steps, err := tx.StepsOf(id)
		if err != nil {
			return err
		}
		now := *steps[0]
		now.Phase, now.LockedBy, now.LockedUntil, now.AvailableAt = perdure.Waiting, "", time.Time{}, time.Now().Add(time.Hour)
		return tx.Save(&kernel.Changes{Steps: []kernel.StepChange{{Now: &now, Loaded: steps[0]}}})
	}, true)
	does("a limit is deleted", func(tx kernel.Tx) error { _, err := tx.DeleteLimit(limit); return err }, true)
	killOthers(t, url)
	if !heard(30 * time.Second) {
		t.Error("does not listen again")
	}
	mustSubmit(t, a, job(2, ""))
	if !heard(30 * time.Second) {
		t.Error("no sign after a lost connection")
	}
	other := a.Wakeups(t.Context())
	cancel()
	awaitClosed(t, signs, "after the end of its context")
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
