package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/store/postgres"
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

// Commits that have stored notifications, or changed how they are delivered, wake the deliverers of other processes, and
// those that have added events to a stream wake the readers (F068). They do not wake the process itself, or its agents.
func TestCommitsWakeOtherDeliverersAndReaders(t *testing.T) {
	url := fresh(t)
	a, b := open(t, url), open(t, url)
	for _, s := range []*postgres.Store{a, b} {
		wakeups := s.Wakeups(t.Context())
		for _, c := range []<-chan struct{}{wakeups, s.OutboxWakeups(), s.StreamWakeups()} {
			select { // something may have been missed before
			case <-c:
			case <-time.After(30 * time.Second):
				t.Fatal("no wake-up when LISTEN has begun")
			}
		}
	}
	awake := func(c <-chan struct{}, within time.Duration) bool {
		select {
		case <-c:
			return true
		case <-time.After(within):
			return false
		}
	}
	at := time.Now()
	notification := kernel.Notification{ID: "ntc_1", Receiver: "s", Kind: operate.EventTest, At: at, Data: []byte("{}"), ExpiresAt: at.Add(time.Hour),
		DeliveryOutcome: kernel.DeliveryOutcome{State: operate.DeliveryPending, NextAt: at}}
	for _, c := range []struct {
		what            string
		change          func(kernel.Tx) error
		outbox, streams bool
	}{
		{"a receiver", func(tx kernel.Tx) error {
			if _, err := tx.LockReceivers(); err != nil {
				return err
			}
			return tx.PutReceiver(&kernel.Receiver{Name: "s", Settings: operate.WebhookSettings{Stream: true}, CreatedAt: at, UpdatedAt: at})
		}, true, false},
		{"a notification", func(tx kernel.Tx) error {
			return tx.Save(&kernel.Changes{Notifications: []kernel.Notification{notification}})
		}, true, false},
		{"a failed attempt", func(tx kernel.Tx) error {
			return tx.SaveDeliveries("s", []kernel.DeliveryResult{{Number: 1, DeliveryOutcome: kernel.DeliveryOutcome{State: operate.DeliveryPending, Attempts: 1, NextAt: at}}})
		}, false, false},
		{"an event", func(tx kernel.Tx) error {
			return tx.SaveDeliveries("s", []kernel.DeliveryResult{{Number: 1, DeliveryOutcome: kernel.DeliveryOutcome{State: operate.DeliveryDelivered, Attempts: 1, EndedAt: at, Position: 1}}})
		}, false, true},
		{"notifications sent again", func(tx kernel.Tx) error { _, err := tx.Resend("s", at, at, 1); return err }, true, false},
		{"a deleted receiver", func(tx kernel.Tx) error {
			if _, err := tx.LockReceivers(); err != nil {
				return err
			}
			_, err := tx.DeleteReceiver("s")
			return err
		}, true, true},
	} {
		if err := a.Update(t.Context(), c.change); err != nil {
			t.Fatal(c.what, err)
		}
		for _, k := range []struct {
			name   string
			c      <-chan struct{}
			wanted bool
		}{{"deliverer", b.OutboxWakeups(), c.outbox}, {"readers", b.StreamWakeups(), c.streams}} {
			within := 100 * time.Millisecond
			if k.wanted {
				within = 30 * time.Second
			}
			if got := awake(k.c, within); got != k.wanted {
				t.Errorf("%s: the %s: wake-up %v, want %v", c.what, k.name, got, k.wanted)
			}
		}
		if awake(a.OutboxWakeups(), 0) || awake(a.StreamWakeups(), 0) {
			t.Errorf("%s: the process has woken itself", c.what)
		}
	}
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
