package main

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/store/sqlite"
)

// The jobs of `make demo-console` come into the states that its page of instructions promises.
func TestShowcaseHasJobsInEveryState(t *testing.T) {
	store, err := sqlite.Open(filepath.Join(t.TempDir(), "showcase.db"))
	if err != nil {
		t.Fatal(err)
	}
	n := node.New(store, node.Config{Agents: showcaseAgents()})
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := n.Stop(ctx); err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := submitShowcase(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	parked := func(step, code string, failures int64) func(*perdure.JobView) bool {
		return func(j *perdure.JobView) bool {
			s := j.Steps.Get(step)
			return s.Phase == perdure.Parked && s.LastError != nil && s.LastError.Code == code && int64(s.Failures) == failures
		}
	}
	for ref, want := range map[string]func(*perdure.JobView) bool{
		"order-1039": func(j *perdure.JobView) bool { return j.Phase == perdure.Settled && j.Current == perdure.Done },
		"order-1040": func(j *perdure.JobView) bool { return j.Phase == perdure.Settled && j.Current == perdure.Undone },
		"order-1041": func(j *perdure.JobView) bool { return j.Steps.Get("ship").Phase == perdure.Running },
		"order-1042": parked("charge", "card_declined", 5),
		"order-1045": parked("ship", "unknown_address", 1),
		"order-1046": func(j *perdure.JobView) bool {
			s := j.Steps.Get("charge")
			return s.Phase == perdure.Running && s.Direction == perdure.Undo
		},
		"refund-77":          func(j *perdure.JobView) bool { return len(j.Alerts) == 1 && j.Alerts[0].Kind == perdure.AlertApproval },
		"newsletter-2026-11": func(j *perdure.JobView) bool { return j.Steps.Get("write").Current == perdure.Done },
		"catalogue-2027":     func(j *perdure.JobView) bool { return len(j.Steps) == 1000 },
	} {
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			job, err := n.Job(t.Context(), ref, 0)
			if err != nil {
				t.Fatal(err)
			}
			if want(job) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s after 30 s: %s", ref, describe(job))
			}
		}
	}
}
