package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/node"
	consoles "github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/store/memory"
)

// submitMany submits jobs of a type that wait for an agent that no process has.
func submitMany(t *testing.T, n *node.Node, typ string, count int) (ids []perdure.JobID) {
	t.Helper()
	for ; count > 0; count -= 500 {
		values := make([]json.RawMessage, min(count, 500))
		for i := range values {
			values[i] = json.RawMessage(`{}`)
		}
		results, err := n.SubmitAll(t.Context(), json.RawMessage(`{"type":"`+typ+`","steps":{"s":{"agent":"absent"}}}`), values)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// bulkRequest is an undo of all jobs of a type.
func bulkRequest(typ string) consoles.BulkRequest {
	return consoles.BulkRequest{Act: perdure.VerbUndo, Filter: &consoles.BulkFilter{Type: typ}, Author: "anna", Reason: "ordered twice"}
}

func startBulk(t *testing.T, n *node.Node, r consoles.BulkRequest) *consoles.BulkView {
	t.Helper()
	v, err := n.StartBulk(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// ended waits until a bulk act does not run any more.
func ended(t *testing.T, n *node.Node, id string) *consoles.BulkView {
	t.Helper()
	var v *consoles.BulkView
	if !within(3*time.Minute, func() (ok bool) {
		var err error
		if v, err = n.GetBulk(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		return v.State != consoles.BulkRunning
	}) {
		t.Fatalf("the bulk act still runs: %+v", v)
	}
	return v
}

// actsOf counts the entries of an act in a job's history, each with author and reason.
func actsOf(t *testing.T, n *node.Node, id perdure.JobID, act, detail string) (count int) {
	t.Helper()
	page, err := n.History(t.Context(), perdure.HistoryQuery{Job: id.String()})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range page.Items {
		if e.Event == act && e.Author == "anna" && e.Detail == detail {
			count++
		}
	}
	return count
}

func counts(v *consoles.BulkView) string {
	return fmt.Sprintf("%s: %d matched, %d done, %d unchanged, %d refused", v.State, v.Matched, v.Done, v.Unchanged, v.Refused)
}

// A bulk act is performed on each job that matches, once, with its author and reason. A job for which its result already
// holds is left as it is. Jobs that do not match, and jobs that were submitted later, are not affected (I19).
func TestBulkActIsPerformedOnEachMatchingJobOnce(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		n := start(t, store, node.Config{})
		orders, others := submitMany(t, n, "order", 720), submitMany(t, n, "other", 3)
		for _, id := range orders[:7] {
			if _, err := n.Act(t.Context(), id.String(), perdure.Act{Verb: perdure.VerbUndo, Author: "ben"}); err != nil {
				t.Fatal(err)
			}
		}
		v := startBulk(t, n, bulkRequest("order"))
		later := submitMany(t, n, "order", 2)
		if v.State != consoles.BulkRunning || v.Expected.N != 720 || v.Author != "anna" || v.Filter.Type != "order" {
			t.Errorf("%+v", v)
		}
		v = ended(t, n, v.ID)
		if got := counts(v); got != "done: 720 matched, 713 done, 7 unchanged, 0 refused" || v.EndedAt.IsZero() {
			t.Error(got, v.EndedAt)
		}
		for _, id := range []perdure.JobID{orders[7], orders[8], orders[499], orders[500], orders[719]} {
			if n := actsOf(t, n, id, "undo", "ordered twice"); n != 1 {
				t.Errorf("job %s was undone %d times", id, n)
			}
		}
		for _, id := range []perdure.JobID{orders[0], others[0], later[0], later[1]} {
			if n := actsOf(t, n, id, "undo", "ordered twice"); n != 0 {
				t.Errorf("job %s was undone", id)
			}
		}
		undone := perdure.Undone
		page, err := n.ListJobs(t.Context(), perdure.JobQuery{Type: "order", Desired: &undone, WithCount: true, Limit: 1})
		if err != nil || page.Count.N != 720 {
			t.Error(page, err)
		}
		consistent(t, n)
	})
}

// The rules refuse an act on some jobs. These are counted, and the first of them are kept with the reason.
func TestBulkActKeepsItsRefusals(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		n := start(t, store, node.Config{})
		submitMany(t, n, "order", 1030)
		r := bulkRequest("order")
		r.Act = perdure.VerbResume
		p, err := n.PreviewBulk(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if p.Count.N != 1030 || len(p.Samples) != consoles.MaxBulkSamples || p.Refused[perdure.CodeConflict] != consoles.MaxBulkPreviewed {
			t.Errorf("preview: %+v, %d samples, %v", p.Count, len(p.Samples), p.Refused)
		}
		v := ended(t, n, startBulk(t, n, r).ID)
		if got := counts(v); got != "done: 1030 matched, 0 done, 0 unchanged, 1030 refused" {
			t.Error(got)
		}
		var all []consoles.BulkRefusal
		for q := (consoles.BulkRefusalQuery{ID: v.ID, Limit: 300}); ; {
			page, err := n.BulkRefusals(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, page.Items...)
			if q.Cursor = page.NextCursor; q.Cursor == "" {
				break
			}
		}
		if len(all) != consoles.MaxBulkRefusals || all[0].Code != perdure.CodeConflict || !strings.Contains(all[0].Message, "no step of this job is parked") {
			t.Errorf("%d refusals, %+v", len(all), all[0])
		}
		for i := range all[1:] {
			if all[i].Job.Compare(all[i+1].Job) >= 0 {
				t.Fatalf("refusals %d and %d are not in order", i, i+1)
			}
		}
	})
}

// A bulk act on jobs that were listed: keys and ids, in any order, some twice.
func TestBulkActOnListedJobs(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		n := start(t, store, node.Config{})
		ids := submitMany(t, n, "order", 4)
		keyed := submit(t, n, "type: order\nkey: k-1\nsteps:\n  s: {agent: absent}\n")
		missing := ids[0]
		missing[15] ^= 0xff
		r := consoles.BulkRequest{Act: perdure.VerbUndo, IDs: []string{ids[2].String(), "k-1", ids[0].String(), ids[2].String(), missing.String()}, Author: "anna", Reason: "x"}
		p, err := n.PreviewBulk(t.Context(), r)
		if err != nil || p.Count.N != 4 || p.Refused[perdure.CodeNotFound] != 1 {
			t.Errorf("%+v, %v", p, err)
		}
		v := ended(t, n, startBulk(t, n, r).ID)
		if got := counts(v); got != "done: 4 matched, 3 done, 0 unchanged, 1 refused" || v.Jobs != 4 {
			t.Error(got, v.Jobs)
		}
		for id, want := range map[perdure.JobID]int{ids[0]: 1, ids[1]: 0, ids[2]: 1, ids[3]: 0, keyed.ID: 1} {
			if got := actsOf(t, n, id, "undo", "x"); got != want {
				t.Errorf("job %s was undone %d times", id, got)
			}
		}
		r.IDs = append(r.IDs, "no such key")
		var e *perdure.Error
		if _, err := n.StartBulk(t.Context(), r); !errors.As(err, &e) || e.Code != perdure.CodeNotFound || len(e.Fields) != 1 || e.Fields[0].Pointer != "/ids/5" {
			t.Errorf("%+v", err)
		}
	})
}

// A start that is repeated under its key is the same bulk act, also when that one is done. Another act under the key is a
// conflict (F006).
func TestRepeatedStartIsTheSameBulkAct(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		n := start(t, store, node.Config{})
		submitMany(t, n, "order", 3)
		r := bulkRequest("order")
		r.Key = "ticket-881"
		first := startBulk(t, n, r)
		ended(t, n, first.ID)
		if again := startBulk(t, n, r); again.ID != first.ID || again.State != consoles.BulkDone {
			t.Errorf("%+v", again)
		}
		r.Act = perdure.VerbRedo
		if _, err := n.StartBulk(t.Context(), r); perdure.CodeOf(err) != perdure.CodeConflict || !strings.Contains(err.Error(), first.ID) {
			t.Error(err)
		}
		page, err := n.ListBulks(t.Context(), consoles.BulkQuery{})
		if err != nil || len(page.Items) != 1 {
			t.Errorf("%+v, %v", page, err)
		}
	})
}

// Ten bulk acts run at once. An eleventh is a conflict, and so is the resume of a stopped one, until another has ended.
func TestEleventhBulkActIsRefused(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		n := node.New(store, node.Config{}) // it is not started, so that no bulk act ends
		t.Cleanup(func() { n.Stop(context.Background()) })
		submitMany(t, n, "order", 1)
		var ids []string
		for range consoles.MaxBulkRunning {
			ids = append(ids, startBulk(t, n, bulkRequest("order")).ID)
		}
		refused := func(err error) {
			t.Helper()
			var e *perdure.Error
			if !errors.As(err, &e) || e.Code != perdure.CodeConflict || !strings.Contains(e.Message, "10 bulk acts are running") || e.Hint == "" {
				t.Error(err)
			}
		}
		_, err := n.StartBulk(t.Context(), bulkRequest("order"))
		refused(err)
		stopped, err := n.StopBulk(t.Context(), ids[0], "ben")
		if err != nil || stopped.State != consoles.BulkStopped || stopped.StoppedBy != "ben" {
			t.Fatalf("%+v, %v", stopped, err)
		}
		startBulk(t, n, bulkRequest("order"))
		_, err = n.ResumeBulk(t.Context(), ids[0], "ben")
		refused(err)
		page, err := n.ListBulks(t.Context(), consoles.BulkQuery{State: consoles.BulkRunning, Limit: 7})
		if err != nil || len(page.Items) != 7 || page.NextCursor == "" {
			t.Fatalf("%+v, %v", page, err)
		}
		more, err := n.ListBulks(t.Context(), consoles.BulkQuery{State: consoles.BulkRunning, Limit: 7, Cursor: page.NextCursor})
		if err != nil || len(more.Items) != 3 || more.NextCursor != "" {
			t.Errorf("%+v, %v", more, err)
		}
	})
}

// A request without jobs, without a reason, or with a filter that the server does not know stores nothing, and the error
// says which field to mend.
func TestBulkActIsCheckedBeforeItIsStored(t *testing.T) {
	n := start(t, memory.New(), node.Config{})
	for i := range perdure.MaxSearched {
		submit(t, n, fmt.Sprintf("type: t\nkey: order-%d\nsteps:\n  s: {agent: absent}\n", i))
	}
	for name, c := range map[string]struct {
		edit func(*consoles.BulkRequest)
		want string
	}{
		"no reason":      {func(r *consoles.BulkRequest) { r.Reason = " " }, "reason: is required"},
		"no jobs":        {func(r *consoles.BulkRequest) { r.Filter = nil }, "filter: a bulk act needs jobs"},
		"empty filter":   {func(r *consoles.BulkRequest) { r.Filter = &consoles.BulkFilter{} }, "filter: is empty"},
		"both":           {func(r *consoles.BulkRequest) { r.IDs = []string{"x"} }, "ids: cannot be given together with a filter"},
		"too many ids":   {func(r *consoles.BulkRequest) { r.Filter, r.IDs = nil, make([]string, consoles.MaxBulkIDs+1) }, "at most 10000"},
		"no such act":    {func(r *consoles.BulkRequest) { r.Act = "delete" }, `unknown act "delete"`},
		"step needed":    {func(r *consoles.BulkRequest) { r.Act = perdure.VerbSkip }, "name the step"},
		"unknown reason": {func(r *consoles.BulkRequest) { r.Filter.Reason = "bored" }, `unknown reason "bored"`},
		"no author":      {func(r *consoles.BulkRequest) { r.Author = "" }, "an act needs an author"},
		"vague search":   {func(r *consoles.BulkRequest) { r.Filter.Q = "order-" }, "filter.q: the search finds 200 jobs or more"},
	} {
		r := bulkRequest("t")
		c.edit(&r)
		for _, call := range []func() error{
			func() error { _, err := n.StartBulk(t.Context(), r); return err },
			func() error { _, err := n.PreviewBulk(t.Context(), r); return err },
		} {
			if err := call(); perdure.CodeOf(err) != perdure.CodeInvalid || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", name, err, c.want)
			}
		}
	}
	page, err := n.ListBulks(t.Context(), consoles.BulkQuery{})
	if err != nil || len(page.Items) != 0 {
		t.Errorf("%+v, %v", page, err)
	}
	// The place of a fault names the field, and its message does not name it again. An id is searched as a key is.
	for _, q := range []string{"order-", "job_0"} {
		r := bulkRequest("t")
		r.Filter.Q = q
		_, err = n.PreviewBulk(t.Context(), r)
		var e *perdure.Error
		if !errors.As(err, &e) || len(e.Fields) != 1 || e.Fields[0].Pointer != "/filter/q" || !strings.HasPrefix(e.Fields[0].Message, "the search finds") {
			t.Errorf("%s: %+v", q, err)
		}
	}
}

// A filter with a text, or by the reason why a step waits, selects what the list of jobs selects.
func TestBulkActBySearchAndByReason(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		n := start(t, store, node.Config{})
		a := submit(t, n, "type: order\nkey: order-1\nsteps:\n  s: {agent: absent}\n").ID
		b := submit(t, n, "type: order\nkey: invoice-1\nsteps:\n  s: {agent: sleep, with: {for: 1h}}\n").ID
		r := bulkRequest("order")
		r.Filter.Q = "order-"
		if v := ended(t, n, startBulk(t, n, r).ID); v.Done != 1 || actsOf(t, n, a, "undo", r.Reason) != 1 {
			t.Errorf("by search: %s", counts(v))
		}
		r = bulkRequest("order")
		r.Filter.Reason = perdure.WhyNotYet
		if v := ended(t, n, startBulk(t, n, r).ID); v.Done != 1 || actsOf(t, n, b, "undo", r.Reason) != 1 {
			t.Errorf("by reason: %s", counts(v))
		}
	})
}

// A page of a list by an error code, over steps: the jobs that have failed are resumed, and settle.
func TestBulkActResumesParkedJobs(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		var l ledger
		var healthy atomic.Bool
		n := start(t, store, node.Config{Agents: []*perdure.Agent{l.agent("bank", func(*perdure.Run) error {
			if healthy.Load() {
				return nil
			}
			return perdure.Rejected(errors.New("no"), "card_declined")
		})}})
		var ids []perdure.JobID
		for range 60 {
			ids = append(ids, submit(t, n, "type: order\nsteps:\n  charge: {agent: bank}\n").ID)
		}
		if !within(30*time.Second, func() bool {
			page, err := n.ListJobs(t.Context(), perdure.JobQuery{Phases: []perdure.Phase{perdure.Parked}, WithCount: true, Limit: 1})
			return err == nil && page.Count.N == 60
		}) {
			t.Fatal("the jobs were not parked")
		}
		healthy.Store(true)
		r := bulkRequest("order")
		r.Act, r.Filter.Error, r.Filter.Alert = perdure.VerbResume, "card_declined", perdure.AlertParked
		v := ended(t, n, startBulk(t, n, r).ID)
		if got := counts(v); got != "done: 60 matched, 60 done, 0 unchanged, 0 refused" {
			t.Error(got)
		}
		for _, id := range ids {
			if j := rest(t, n, id.String()); j.Current != perdure.Done {
				t.Fatalf("job %s is %s", id, j.Current)
			}
		}
		consistent(t, n)
	})
}

// A stopped bulk act goes no further, and goes on behind its latest job when it is resumed. Two bulk acts on the same jobs
// do each job once (F011).
func TestStoppedBulkActIsResumed(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		n := node.New(store, node.Config{})
		t.Cleanup(func() { n.Stop(context.Background()) })
		ids := submitMany(t, n, "order", 1000)
		one, two := startBulk(t, n, bulkRequest("order")).ID, startBulk(t, n, bulkRequest("order")).ID
		if err := n.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !within(20*time.Second, func() bool {
			v, err := n.GetBulk(t.Context(), one)
			return err == nil && v.Matched > 0
		}) {
			t.Fatal("nothing was done")
		}
		stopped, err := n.StopBulk(t.Context(), one, "ben")
		if err != nil {
			t.Fatal(err)
		}
		if stopped.State != consoles.BulkStopped || stopped.Matched == 1000 {
			t.Fatalf("stopped too late: %s", counts(stopped))
		}
		other := ended(t, n, two)
		still, err := n.GetBulk(t.Context(), one)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(stopped, still); diff != "" {
			t.Errorf("it went on after it was stopped: %s", diff)
		}
		if _, err := n.ResumeBulk(t.Context(), one, "ben"); err != nil {
			t.Fatal(err)
		}
		v := ended(t, n, one)
		if v.Matched != 1000 || other.Matched != 1000 || v.Done+other.Done != 1000 || v.Refused+other.Refused != 0 {
			t.Errorf("%s; %s", counts(v), counts(other))
		}
		for _, id := range []perdure.JobID{ids[0], ids[stopped.Matched-1], ids[stopped.Matched], ids[999]} {
			if n := actsOf(t, n, id, "undo", "ordered twice"); n != 1 {
				t.Errorf("job %s was undone %d times", id, n)
			}
		}
		for _, change := range []func(context.Context, string, string) (*consoles.BulkView, error){n.StopBulk, n.ResumeBulk} {
			if _, err := change(t.Context(), one, "ben"); perdure.CodeOf(err) != perdure.CodeConflict {
				t.Errorf("a bulk act that is done: %v", err)
			}
			if _, err := change(t.Context(), "bulk_1", "ben"); perdure.CodeOf(err) != perdure.CodeNotFound {
				t.Errorf("no such bulk act: %v", err)
			}
		}
	})
}

// The search for the jobs of a bulk act ends below the bound that its start has set, however many jobs are submitted
// afterwards, so that it ends.
func TestBulkPageEndsAtTheBound(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		n := node.New(store, node.Config{})
		t.Cleanup(func() { n.Stop(context.Background()) })
		before := submitMany(t, n, "order", 3)
		v := startBulk(t, n, bulkRequest("order"))
		time.Sleep(3 * time.Millisecond)
		submitMany(t, n, "order", 3)
		act, err := store.BulkAct(t.Context(), v.ID)
		if err != nil {
			t.Fatal(err)
		}
		page, err := n.FindBulk(t.Context(), act, 500)
		if err != nil || !page.Last || !cmp.Equal(page.Jobs, before) || page.End != before[2] {
			t.Errorf("%+v, %v", page, err)
		}
		act.Cursor = before[0]
		page, err = n.FindBulk(t.Context(), act, 1)
		if err != nil || page.Last || len(page.Jobs) != 1 || page.Jobs[0] != before[1] || page.End != before[1] {
			t.Errorf("%+v, %v", page, err)
		}
	})
}
