package postgres_test

import (
	"context"
	"testing"
	"time"
)

// What one process commits, another hears of; also after its connection was cut (F069, F100).
func TestHints(t *testing.T) {
	url := fresh(t)
	a, b := open(t, url), open(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	signs := b.Hints(ctx)
	heard := func(within time.Duration) bool {
		select {
		case _, open := <-signs:
			return open
		case <-time.After(within):
			return false
		}
	}
	if !heard(5 * time.Second) {
		t.Fatal("no sign that it listens")
	}
	mustSubmit(t, a, job(1, ""))
	if !heard(5 * time.Second) {
		t.Error("no sign of a step that is ready")
	}
	if heard(100 * time.Millisecond) {
		t.Error("a sign of nothing")
	}
	killOthers(t, url)
	if !heard(5 * time.Second) {
		t.Error("does not listen again")
	}
	mustSubmit(t, a, job(2, ""))
	if !heard(5 * time.Second) {
		t.Error("no sign after a lost connection")
	}
	cancel()
	if heard(5 * time.Second) {
		t.Error("open after its end")
	}
}
