package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/node"
	consoles "github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/store/memory"
)

// Lists find jobs by their open steps, times, alerts and a text, count them, and summarize them.
func TestListsOfJobs(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		bank := perdure.NewAgent("bank")
		bank.HandleAny(func(context.Context, *perdure.Run) (json.RawMessage, error) {
			return nil, perdure.Rejected(errors.New("no money"), "card_declined")
		})
		n := start(t, store, node.Config{Agents: []*perdure.Agent{bank}})
		submit := func(key, typ, steps string) {
			t.Helper()
			if _, _, err := n.Submit(t.Context(), fmt.Appendf(nil, `{"type":%q,"key":%q,"labels":{"customer":"c-%s"},"steps":%s}`, typ, key, key, steps), "application/json"); err != nil {
				t.Fatal(err)
			}
		}
		parked := `{"charge":{"agent":"bank","onFailure":["park"]},"mail":{"agent":"idle","after":["charge"]}}`
		submit("order-1", "order", parked)
		submit("order-2", "order", parked)
		submit("trip-1", "trip", `{"hotel":{"agent":"idle"}}`)
		submit("trip-2", "trip", `{"sign":{"agent":"approval"}}`)
		submit("nap-1", "nap", `{"sleep":{"agent":"sleep","with":{"for":"1h"}}}`)
		for _, key := range []string{"order-1", "order-2"} {
			if v, err := n.Job(t.Context(), key, time.Minute); err != nil || v.Phase != perdure.Parked {
				t.Fatalf("%s is %v: %v", key, v.Phase, err)
			}
		}
		list := func(q perdure.JobQuery) (keys []string, page *perdure.Page[perdure.JobView]) {
			t.Helper()
			page, err := n.ListJobs(t.Context(), q)
			if err != nil {
				t.Fatalf("%+v: %v", q, err)
			}
			for _, v := range page.Items {
				keys = append(keys, v.Key)
			}
			return keys, page
		}
		undone := perdure.Undone
		for name, test := range map[string]struct {
			q    perdure.JobQuery
			want []string
		}{
			"parked":                   {perdure.JobQuery{Phases: []perdure.Phase{perdure.Parked}}, []string{"trip-2", "order-2", "order-1"}},
			"parked, oldest first":     {perdure.JobQuery{Phases: []perdure.Phase{perdure.Parked}, OldestFirst: true}, []string{"order-1", "order-2", "trip-2"}},
			"error":                    {perdure.JobQuery{Error: "card_declined", Type: "order"}, []string{"order-2", "order-1"}},
			"another error":            {perdure.JobQuery{Error: "503"}, nil},
			"agent":                    {perdure.JobQuery{Agent: "idle"}, []string{"trip-1"}},
			"step":                     {perdure.JobQuery{Step: "charge"}, []string{"order-2", "order-1"}},
			"step that waits":          {perdure.JobQuery{Step: "mail"}, nil},
			"alert":                    {perdure.JobQuery{Alert: perdure.AlertApproval}, []string{"trip-2"}},
			"reason noAgent":           {perdure.JobQuery{Reason: perdure.WhyNoAgent}, []string{"trip-1"}},
			"reason approval":          {perdure.JobQuery{Reason: perdure.WhyApproval}, []string{"trip-2"}},
			"reason notYet":            {perdure.JobQuery{Reason: perdure.WhyNotYet}, []string{"nap-1"}},
			"reason afterSteps":        {perdure.JobQuery{Reason: perdure.WhyAfterSteps}, []string{"order-2", "order-1"}},
			"reason and type":          {perdure.JobQuery{Reason: perdure.WhyParked, Type: "trip"}, nil},
			"beginning of a key":       {perdure.JobQuery{Search: "order-"}, []string{"order-2", "order-1"}},
			"beginning and state":      {perdure.JobQuery{Search: "trip", Phases: []perdure.Phase{perdure.Waiting, perdure.Parked}, Reason: perdure.WhyApproval}, []string{"trip-2"}},
			"value of a label":         {perdure.JobQuery{Search: "c-nap-1"}, []string{"nap-1"}},
			"text of nothing":          {perdure.JobQuery{Search: "xyz"}, nil},
			"since":                    {perdure.JobQuery{Since: time.Now().Add(-time.Hour), Type: "trip"}, []string{"trip-2", "trip-1"}},
			"until":                    {perdure.JobQuery{Until: time.Now().Add(-time.Hour)}, nil},
			"until, with a search":     {perdure.JobQuery{Until: time.Now().Add(-time.Hour), Search: "order-"}, nil},
			"at the beginning of time": {perdure.JobQuery{Until: time.Unix(0, 0)}, nil},
			"to be undone":             {perdure.JobQuery{Desired: &undone}, nil},
		} {
			test.q.WithCount = true
			got, page := list(test.q)
			if !slices.Equal(got, test.want) {
				t.Errorf("%s: %q, want %q", name, got, test.want)
			}
			if page.Count == nil || page.Count.N != len(test.want) || page.Count.Capped || page.NextCursor != "" {
				t.Errorf("%s: count %+v, next %q", name, page.Count, page.NextCursor)
			}
		}
		// The beginning of an id.
		job, err := n.Job(t.Context(), "order-2", 0)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := list(perdure.JobQuery{Search: job.ID.String()[:34]}); !slices.Contains(got, "order-2") {
			t.Errorf("by the beginning of its id: %q", got)
		}
		// Pages.
		q := perdure.JobQuery{Limit: 2, WithSummary: true}
		var all []string
		for {
			keys, page := list(q)
			all = append(all, keys...)
			if q.Cursor = page.NextCursor; q.Cursor == "" {
				break
			}
		}
		if want := []string{"nap-1", "trip-2", "trip-1", "order-2", "order-1"}; !slices.Equal(all, want) {
			t.Errorf("pages: %q", all)
		}
		_, page := list(perdure.JobQuery{WithSummary: true})
		summary := page.Items[4].Summary
		if summary == nil || summary.Steps != 2 || summary.Settled != 0 || summary.Parked != 1 || summary.Running != 0 || summary.Step != "charge" ||
			summary.Why == nil || summary.Why.Kind != perdure.WhyParked || summary.Why.Code != "card_declined" {
			t.Errorf("summary of order-1: %+v", summary)
		}
		if _, page := list(perdure.JobQuery{}); page.Items[0].Summary != nil {
			t.Errorf("a summary that was not asked for: %+v", page.Items[0].Summary)
		}
		// What cannot be is refused.
		for _, q := range []perdure.JobQuery{{Reason: "tired"}, {Cursor: "xyz"}} {
			if _, err := n.ListJobs(t.Context(), q); perdure.CodeOf(err) != perdure.CodeInvalid {
				t.Errorf("%+v: %v", q, err)
			}
		}
	})
}

// A list that is read in parts says how far it has come, and goes on from there.
func TestListThatReadsItsBoundGoesOn(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		n := start(t, store, node.Config{})
		const jobs = 700 // more than a list by a reason reads at once
		definitions := make([]json.RawMessage, jobs)
		for i := range definitions {
			steps := `{"a":{"agent":"idle"}}`
			if i == 0 {
				steps = `{"a":{"agent":"approval"}}`
			}
			definitions[i] = fmt.Appendf(nil, `{"type":"t","key":"k-%d","steps":%s}`, i, steps)
		}
		results, err := n.SubmitAll(t.Context(), nil, definitions)
		if err != nil || results[0].Err != nil {
			t.Fatal(err, results[0].Err)
		}
		q := perdure.JobQuery{Reason: perdure.WhyApproval, WithCount: true}
		page, err := n.ListJobs(t.Context(), q)
		if err != nil || len(page.Items) != 0 || page.NextCursor == "" || time.Since(page.ScannedBackTo) > time.Minute || !page.Count.Capped {
			t.Fatalf("first part: %+v, %v", page, err)
		}
		q.Cursor = page.NextCursor
		if page, err = n.ListJobs(t.Context(), q); err != nil || len(page.Items) != 1 || page.Items[0].Key != "k-0" || page.NextCursor != "" || !page.ScannedBackTo.IsZero() {
			t.Fatalf("second part: %+v, %v", page, err)
		}
		// The count begins with the newest jobs, and does not meet the one that is found: it is never less than what is shown.
		if page.Count.N != 1 || !page.Count.Capped {
			t.Errorf("count of the second part: %+v", page.Count)
		}
		p, err := n.PreviewBulk(t.Context(), consoles.BulkRequest{Act: perdure.VerbUndo, Filter: &consoles.BulkFilter{Reason: perdure.WhyApproval}, Author: "anna", Reason: "r"})
		if err != nil || len(p.Samples) != 1 || p.Count.N != 1 || !p.Count.Capped {
			t.Errorf("preview: %+v, %v", p, err)
		}
	})
}

// A search finds a bounded number of jobs. Its count says when there may be more.
func TestCountOfASearchIsCapped(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		n := start(t, store, node.Config{})
		definitions := make([]json.RawMessage, perdure.MaxSearched+2)
		for i := range definitions {
			definitions[i] = fmt.Appendf(nil, `{"type":"t","key":"big-%d","labels":{"size":"huge"},"steps":{"a":{"agent":"absent"}}}`, i)
		}
		definitions[0] = json.RawMessage(`{"type":"t","key":"small","steps":{"a":{"agent":"absent"}}}`)
		if _, err := n.SubmitAll(t.Context(), nil, definitions); err != nil {
			t.Fatal(err)
		}
		for q, want := range map[string]perdure.Count{
			"big": {N: perdure.MaxSearched, Capped: true}, "huge": {N: perdure.MaxSearched, Capped: true}, "job_0": {N: perdure.MaxSearched, Capped: true},
			"big-1": {N: 1 + 10 + 100}, "small": {N: 1}, "none": {},
		} {
			page, err := n.ListJobs(t.Context(), perdure.JobQuery{Search: q, WithCount: true, Limit: 1})
			if err != nil || *page.Count != want {
				t.Errorf("%s: %+v, %v, want %+v", q, page.Count, err, want)
			}
		}
	})
}

// A cursor that no list can have given is refused, at its place.
func TestForeignCursorsAreRefused(t *testing.T) {
	n := start(t, memory.New(), node.Config{})
	submit(t, n, "type: t\nkey: k\nsteps:\n  s: {agent: absent}\n")
	bulk := startBulk(t, n, bulkRequest("none")).ID
	numbers := slices.Clip([]string{"😀", "0", "zz", "d1", "a0", "h01", "r+1", "a-1", "aZZ", "hzzzzzzzzzzzzzz", "a 1"}) // "d1" is one of deliveries
	for name, list := range map[string]struct {
		read func(cursor string) error
		bad  []string
		good string
	}{
		"jobs": {func(c string) error { _, err := n.ListJobs(t.Context(), perdure.JobQuery{Cursor: c}); return err },
			[]string{"😀", "xyz", "01A1FCF4403B76EC83056E30413368DB"}, "01a1fcf4403b76ec83056e30413368db"},
		"alerts": {func(c string) error { _, err := n.ListAlerts(t.Context(), perdure.AlertQuery{Cursor: c}); return err }, append(numbers, "hzz"), "azz"},
		"history": {func(c string) error {
			_, err := n.History(t.Context(), perdure.HistoryQuery{Job: "k", Cursor: c})
			return err
		}, append(numbers, "azz"), "hzz"},
		"refusals": {func(c string) error {
			_, err := n.BulkRefusals(t.Context(), consoles.BulkRefusalQuery{ID: bulk, Cursor: c})
			return err
		}, append(numbers, "rzz"), "r5"},
		"runs": {func(c string) error {
			_, err := n.Runs(t.Context(), consoles.RunsQuery{Job: "k", Cursor: c})
			return err
		},
			[]string{"😀", "zz", "MDUgMSBz", "NSAwMSBz"}, "NSAxIHM"},
		"bulk acts": {func(c string) error { _, err := n.ListBulks(t.Context(), consoles.BulkQuery{Cursor: c}); return err },
			[]string{"😀", "bulk_", "01a1fcf4403b76ec83056e30413368db", "bulk_01A1FCF4403B76EC83056E30413368DB", "bulk_01a1fcf4403b76ec83056e30413368dbff"},
			"bulk_01a1fcf4403b76ec83056e30413368db"},
	} {
		for _, cursor := range list.bad {
			err := list.read(cursor)
			var e *perdure.Error
			if !errors.As(err, &e) || e.Code != perdure.CodeInvalid || len(e.Fields) != 1 || e.Fields[0].Pointer != "/query/cursor" {
				t.Errorf("%s: %q: %+v", name, cursor, err)
			}
		}
		for _, cursor := range []string{"", list.good} {
			if err := list.read(cursor); err != nil {
				t.Errorf("%s: %q: %v", name, cursor, err)
			}
		}
	}
}
