package node_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/node"
	console "github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
)

// claimAndReport dispatches the next run of an agent, and reports it.
func claimAndReport(t *testing.T, n *node.Node, outcome perdure.Outcome) {
	t.Helper()
	runs, err := n.Claim(t.Context(), protocol.Claim{Agent: "ours", Holder: "h", Max: 1, Wait: 10 * time.Second, RequestID: fmt.Sprint(time.Now().UnixNano())})
	if err != nil || len(runs) != 1 {
		t.Fatalf("%d runs, %v", len(runs), err)
	}
	rep := protocol.Report{Job: runs[0].Job, Step: runs[0].Step, Run: runs[0].Number, Outcome: outcome}
	if outcome == perdure.OutcomeFailed {
		rep.Error = &perdure.RunError{Code: "busy", Message: "try later"}
	}
	results, _, err := n.Report(t.Context(), "h", []protocol.Report{rep}, nil)
	if err != nil || !results[0].Accepted {
		t.Fatalf("%+v, %v", results, err)
	}
}

func allRuns(t *testing.T, n *node.Node, limit int) (runs []console.RunRecord) {
	t.Helper()
	q := console.RunsQuery{Job: "k", Limit: limit}
	for {
		page, err := n.Runs(t.Context(), q)
		if err != nil || limit > 0 && len(page.Items) > limit {
			t.Fatalf("%d runs, %v", len(page.Items), err)
		}
		runs = append(runs, page.Items...)
		if q.Cursor = page.NextCursor; q.Cursor == "" {
			return runs
		}
	}
}

// A run that is done has its holder in its log, also after its step has run again.
func TestRunsWithLogsHaveHolders(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		n := start(t, store, node.Config{})
		submit(t, n, "type: t\nkey: k\nsteps:\n  a: {agent: ours, undo: {}}\n  b: {agent: ours, after: [a]}\n")
		for _, holder := range []string{"host/h1/x", "host/h2/y"} {
			runs, err := n.Claim(t.Context(), protocol.Claim{Agent: "ours", Holder: holder, Max: 1, Wait: 10 * time.Second, RequestID: holder})
			if err != nil || len(runs) != 1 {
				t.Fatalf("%d runs, %v", len(runs), err)
			}
			var chunks []protocol.LogChunk
			for _, stream := range []console.LogStream{console.Stdout, console.Stderr} {
				chunks = append(chunks, protocol.LogChunk{Job: runs[0].Job, Step: runs[0].Step, Run: runs[0].Number, Stream: stream})
			}
			results, err := n.AppendLogs(t.Context(), holder, chunks)
			if err != nil || !results[0].Accepted || !results[1].Accepted {
				t.Fatalf("%+v, %v", results, err)
			}
			reports, _, err := n.Report(t.Context(), holder, []protocol.Report{{Job: runs[0].Job, Step: runs[0].Step, Run: runs[0].Number, Outcome: perdure.OutcomeDone}}, nil)
			if err != nil || !reports[0].Accepted {
				t.Fatalf("%+v, %v", reports, err)
			}
			if holder == "host/h1/x" {
				claimAndReport(t, n, perdure.OutcomeDone)
				if _, err := n.Act(t.Context(), "k", perdure.Act{Verb: perdure.VerbUndo, Author: "anna"}); err != nil {
					t.Fatal(err)
				}
			}
		}
		var got []string
		for _, r := range allRuns(t, n, 2) {
			got = append(got, fmt.Sprintf("%s %d %s %s", r.Step, r.Run, r.Direction, r.Holder))
		}
		if want := []string{"a 1 do host/h1/x", "b 1 do ", "a 2 undo host/h2/y"}; !slices.Equal(got, want) {
			t.Errorf("runs are %q, not %q", got, want)
		}
	})
}

// A job's runs are listed in the order of their starts, also those that a later run of their step has replaced in its
// row (I17).
func TestRunsOfAJobAreListed(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		n := start(t, store, node.Config{})
		submit(t, n, "type: t\nkey: k\nsteps:\n  a: {agent: ours, undo: {}}\n  b: {agent: ours, undo: {}, after: [a], retry: {attempts: 2, backoff: 1ms}}\n")
		act := func(verb perdure.Verb) {
			if _, err := n.Act(t.Context(), "k", perdure.Act{Verb: verb, Author: "anna"}); err != nil {
				t.Fatal(err)
			}
		}
		if runs := allRuns(t, n, 0); len(runs) != 0 {
			t.Fatalf("before the first dispatch: %+v", runs)
		}
		claimAndReport(t, n, perdure.OutcomeDone)
		claimAndReport(t, n, perdure.OutcomeFailed)
		claimAndReport(t, n, perdure.OutcomeDone)
		act(perdure.VerbUndo)
		claimAndReport(t, n, perdure.OutcomeDone)
		claimAndReport(t, n, perdure.OutcomeDone)
		act(perdure.VerbRedo)
		if _, err := n.Claim(t.Context(), protocol.Claim{Agent: "ours", Holder: "h2", Max: 1, Wait: 10 * time.Second, RequestID: "last"}); err != nil {
			t.Fatal(err)
		}
		text := func(r console.RunRecord) string {
			return fmt.Sprintf("%s %d turn %d %s %s %s %s", r.Step, r.Run, r.Turn, r.Direction, r.Holder, r.Outcome, r.Error)
		}
		want := []string{"a 1 turn 1 do  done ", "b 1 turn 1 do h failed busy: try later", "b 2 turn 1 do  done ", "b 3 turn 2 undo  done ", "a 2 turn 2 undo  done ", "a 3 turn 3 do h2  "}
		for _, limit := range []int{0, 1, 2, 4} {
			runs := allRuns(t, n, limit)
			var got []string
			for i, r := range runs {
				got = append(got, text(r))
				flying := i == len(runs)-1
				if r.StartedAt.IsZero() || r.EndedAt.IsZero() != flying || !flying && r.EndedAt.Before(r.StartedAt) || i > 0 && r.StartedAt.Before(runs[i-1].StartedAt) {
					t.Errorf("times of %+v", r)
				}
				if failed := i == 1; (failed || flying) && (r.ReadyAt.IsZero() || r.ReadyAt.After(r.StartedAt)) {
					t.Errorf("%s was ready at %s", got[i], r.ReadyAt)
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("pages of %d:\n got %q\nwant %q", limit, got, want)
			}
		}
	})
}

// A cursor that no page has given, and a job that does not exist, are refused (F157).
func TestRunsRefuseBadCursors(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		n := start(t, store, node.Config{})
		submit(t, n, "type: t\nkey: k\nsteps:\n  a: {agent: absent}\n")
		for _, text := range []string{"-1", "1 2", "1 0 a", "-1 1 a", "x 1 a", "1 1 ", "1 1 \xff", "1 1 a\x00", "99999999999999999999 1 a"} {
			cursor := base64.RawURLEncoding.EncodeToString([]byte(text))
			if _, err := n.Runs(t.Context(), console.RunsQuery{Job: "k", Cursor: cursor}); perdure.CodeOf(err) != perdure.CodeInvalid {
				t.Errorf("%q: %v", text, err)
			}
		}
		if _, err := n.Runs(t.Context(), console.RunsQuery{Job: "k", Cursor: "é"}); perdure.CodeOf(err) != perdure.CodeInvalid {
			t.Error(err)
		}
		if _, err := n.Runs(context.Background(), console.RunsQuery{Job: "other"}); perdure.CodeOf(err) != perdure.CodeNotFound {
			t.Error(err)
		}
	})
}
