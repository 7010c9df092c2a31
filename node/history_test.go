package node_test

import (
	"fmt"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/node"
)

// F157: a history is returned in pages, none of which exceeds the limit. An entry that is written meanwhile is on the
// last page.
func TestHistoryIsPaged(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		n := start(t, store, node.Config{})
		submit(t, n, "type: t\nkey: k\nsteps:\n  a: {agent: nobody, undo: {}}\n")
		act := func(i int) {
			verb := []perdure.Verb{perdure.VerbUndo, perdure.VerbRedo}[i%2]
			if _, err := n.Act(t.Context(), "k", perdure.Act{Verb: verb, Author: "anna", Reason: fmt.Sprint(i)}); err != nil {
				t.Fatal(err)
			}
		}
		const entries = 7
		for i := range entries {
			act(i)
		}
		var got []string
		q := perdure.HistoryQuery{Job: "k", Limit: 3}
		for pages := 1; ; pages++ {
			page, err := n.History(t.Context(), q)
			if err != nil || len(page.Items) > q.Limit {
				t.Fatalf("%d entries, %v", len(page.Items), err)
			}
			for _, e := range page.Items {
				got = append(got, e.Detail)
			}
			if pages == 2 {
				act(entries)
			}
			if q.Cursor = page.NextCursor; q.Cursor == "" {
				break
			}
		}
		if want := "[0 1 2 3 4 5 6 7]"; fmt.Sprint(got) != want {
			t.Errorf("%v, want %s", got, want)
		}
		for _, cursor := range []string{"-1", "0", "é", "99999999999999999999"} {
			if _, err := n.History(t.Context(), perdure.HistoryQuery{Job: "k", Cursor: cursor}); perdure.CodeOf(err) != perdure.CodeInvalid {
				t.Errorf("%q: %v", cursor, err)
			}
		}
		for range perdure.DefaultListLimit {
			act(0)
			act(1)
		}
		if page, err := n.History(t.Context(), perdure.HistoryQuery{Job: "k"}); err != nil || len(page.Items) != perdure.DefaultListLimit || page.NextCursor == "" {
			t.Errorf("%d entries by default, %v", len(page.Items), err)
		}
	})
}
