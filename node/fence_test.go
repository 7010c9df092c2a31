package node_test

import (
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/protocol"
)

// F112, I6: after the fence is raised, new runs have numbers above all earlier ones, and reports of earlier runs are
// refused. The next numbers continue from there.
func TestRunNumbersAreAboveTheFence(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		n := start(t, store, node.Config{})
		submit(t, n, "type: t\nkey: k\nsteps:\n  s: {agent: a, undo: {}, retry: {attempts: 5, backoff: 1ms}}\n")
		claim := func() perdure.Run {
			t.Helper()
			runs, err := n.Claim(t.Context(), protocol.Claim{Agent: "a", Holder: "h", Max: 1, Wait: 10e9})
			if err != nil || len(runs) != 1 {
				t.Fatal(runs, err)
			}
			return runs[0]
		}
		report := func(r perdure.Run, number int64, outcome perdure.Outcome) protocol.ReportResult {
			t.Helper()
			got, _, err := n.Report(t.Context(), "h", []protocol.Report{{Job: r.Job, Step: r.Step, Run: number, Outcome: outcome}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return got[0]
		}
		first := claim()
		if first.Number != 1 || !report(first, 1, perdure.OutcomeFailed).Accepted {
			t.Fatalf("%+v", first)
		}
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) { // a transaction that began before the fence was raised has read the old one
			v, err := n.Job(t.Context(), "@latest", 0)
			if err != nil || time.Now().After(end) {
				t.Fatal(v, err)
			}
			if v.Steps.Get("s").Phase == perdure.Ready {
				break
			}
		}
		fence, err := n.RaiseFence(t.Context(), "anna", "restored")
		if err != nil {
			t.Fatal(err)
		}
		second := claim()
		if second.Number != fence {
			t.Errorf("run %d, the fence is at %d", second.Number, fence)
		}
		// Such a number was given before the restore, so the store does not know it.
		if got := report(second, 2, perdure.OutcomeDone); got.Accepted || got.Reason != protocol.RefusedStale {
			t.Errorf("a run of before: %+v", got)
		}
		if got := report(second, second.Number, perdure.OutcomeFailed); !got.Accepted {
			t.Errorf("%+v", got)
		}
		third := claim()
		if third.Number != fence+1 || third.Key != first.Key {
			t.Errorf("%+v after %+v", third, second)
		}
		report(third, third.Number, perdure.OutcomeDone)
		rest(t, n, "k")
		page, err := n.ListAlerts(t.Context(), perdure.AlertQuery{})
		if err != nil || len(page.Items) != 1 || page.Items[0].Kind != perdure.AlertSetback || !strings.Contains(page.Items[0].Message, "anna has raised the fence") {
			t.Fatalf("%+v, %v", page, err)
		}
		if _, err := n.CloseAlert(t.Context(), page.Items[0].ID, "bert"); err != nil {
			t.Error(err)
		}
		consistent(t, n)
	})
}
