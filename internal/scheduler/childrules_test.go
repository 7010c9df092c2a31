package scheduler_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/store/memory"
)

// turnedAlerts counts the open alerts childTurned of a job.
func (f *family) turnedAlerts(id perdure.JobID) (n int) {
	f.t.Helper()
	alerts, err := f.store.Alerts(f.t.Context(), kernel.AlertFilter{Job: id})
	if err != nil {
		f.t.Fatal(err)
	}
	for _, a := range alerts {
		if a.Kind == perdure.AlertChildTurned {
			n++
		}
	}
	return n
}

// settled plays until a job is settled in a state, all news of its step 0 is counted, and the step is in a state. Then it checks
// the invariants.
func (f *family) settled(id perdure.JobID, job, step perdure.State) {
	f.t.Helper()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		f.once()
		j := f.job(id)
		_, steps, err := f.store.Job(f.t.Context(), id, 100)
		if err != nil {
			f.t.Fatal(err)
		}
		news, err := f.store.ReadChildNews(f.t.Context(), kernel.StepRef{Job: id}, 1)
		if err != nil {
			f.t.Fatal(err)
		}
		if j.Phase == perdure.Settled && j.Current == job && steps[0].Current == step && len(news) == 0 {
			break
		}
		if time.Now().After(end) {
			f.t.Fatalf("the job is not %s with a step that is %s:\n%s", job, step, f.dump(id))
		}
	}
	f.check(id)
}

// awaitStates plays until the states of the children of step 0 have a text.
func (f *family) awaitStates(id perdure.JobID, text string) {
	f.t.Helper()
	for end := time.Now().Add(30 * time.Second); !strings.Contains(f.states(id, 0), text); f.once() {
		if time.Now().After(end) {
			f.t.Fatalf("there are not %s:\n%s", text, f.dump(id))
		}
	}
}

// If an operator undoes a child alone, the settled step is unsure and an alert is open, until the child is done again. If the
// parent is undone, all is undone, and a child that is done alone then makes the step unsure again (F314).
func TestChildThatIsTurnedAloneMakesItsStepUnsure(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		f := newFamily(t, store)
		id := f.submit(fmt.Sprintf(many, 3, "undo", `{range: [0, "${input.n}"]}`, ""))
		expect := func(job, step perdure.State, alerts int, states string) {
			t.Helper()
			f.settled(id, job, step)
			if n := f.turnedAlerts(id); n != alerts || f.states(id, 0) != states {
				t.Fatalf("%d alerts, %s", n, f.dump(id))
			}
		}
		expect(perdure.Done, perdure.Done, 0, "3 settled done")
		child := f.children(id, 0)[1].ID
		f.act(child, perdure.Act{Verb: perdure.VerbUndo})
		expect(perdure.Done, perdure.Unsure, 1, "2 settled done, 1 settled undone")
		f.act(child, perdure.Act{Verb: perdure.VerbRedo})
		expect(perdure.Done, perdure.Done, 0, "3 settled done")
		f.act(child, perdure.Act{Verb: perdure.VerbUndo})
		expect(perdure.Done, perdure.Unsure, 1, "2 settled done, 1 settled undone")
		f.act(id, perdure.Act{Verb: perdure.VerbUndo})
		expect(perdure.Undone, perdure.Undone, 0, "3 settled undone")
		f.act(child, perdure.Act{Verb: perdure.VerbRedo})
		expect(perdure.Undone, perdure.Unsure, 1, "1 settled done, 2 settled undone")
		f.act(id, perdure.Act{Verb: perdure.VerbRedo}) // first it is undone
		expect(perdure.Done, perdure.Done, 0, "3 settled done")
		if s, _ := f.step(id, "resize"); s.Run != 4 || s.Turn != 4 && s.Turn != 3 {
			t.Errorf("run %d, turn %d", s.Run, s.Turn)
		}
	})
}

// An operator does a child alone while its step waits to be done again. If the step is not done after all, it is unsure when it
// settles, as if the child had been done later (F314).
func TestChildThatIsTurnedWhileItsStepWaits(t *testing.T) {
	const body = `
type: album
steps:
  resize:
    after: [hold]
    forEach: {range: [0, 2]}
    agent: a
    undo: {}
  hold: {agent: absent}
`
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		f := newFamily(t, store)
		id := f.submit(body)
		release := func() { f.act(id, perdure.Act{Verb: perdure.VerbSettle, Step: "hold", As: new(perdure.Done)}) }
		release()
		f.settled(id, perdure.Done, perdure.Done)
		f.act(id, perdure.Act{Verb: perdure.VerbUndo})
		f.settled(id, perdure.Undone, perdure.Undone)
		f.act(id, perdure.Act{Verb: perdure.VerbRedo})
		f.act(f.children(id, 0)[1].ID, perdure.Act{Verb: perdure.VerbRedo})
		f.awaitStates(id, "1 settled done, 1 settled undone")
		f.act(id, perdure.Act{Verb: perdure.VerbUndo})
		f.settled(id, perdure.Undone, perdure.Unsure)
		if n := f.turnedAlerts(id); n != 1 {
			t.Fatalf("%d alerts:\n%s", n, f.dump(id))
		}
		f.act(id, perdure.Act{Verb: perdure.VerbRedo})
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); f.once() { // the children are undone first
			if s, _ := f.step(id, "hold"); s.Phase == perdure.Ready {
				break
			}
		}
		release()
		f.settled(id, perdure.Done, perdure.Done)
		if n := f.turnedAlerts(id); n != 0 {
			t.Errorf("%d alerts:\n%s", n, f.dump(id))
		}
	})
}

// A child of a stored definition that names a limit of its parent would wait for permits that its parent holds: its step fails (F344).
func TestChildThatNamesALimitOfItsParent(t *testing.T) {
	f := newFamily(t, memory.New())
	const resize = `{"type":"one","limits":[{"name":"tenant"}],"steps":{"s":{"agent":"a"}}}`
	if _, _, err := f.PutDefinition(t.Context(), kernel.StoredDefinition{Name: "resize", Text: []byte(resize)}); err != nil {
		t.Fatal(err)
	}
	id := f.submit("{type: album, onFailure: park, limits: [{name: tenant}], steps: {c: {job: {definition: resize}}}}")
	f.until(id, perdure.Parked)
	if s, c := f.step(id, "c"); s.ErrorCode != "childInvalid" || !strings.Contains(s.LastError, "it names limit tenant, of which its parent holds permits") || c.Spawned != 0 {
		t.Fatal(f.dump(id))
	}
}

// A redo while the children are undone first completes the undo.
func TestRedoWhileChildrenAreUndone(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		f := newFamily(t, store)
		id := f.submit(fmt.Sprintf(many, 6, "undo", `{range: [0, "${input.n}"]}`, "undoOrder: reverse"))
		f.settled(id, perdure.Done, perdure.Done)
		f.act(id, perdure.Act{Verb: perdure.VerbUndo})
		f.awaitStates(id, "undone")
		f.act(id, perdure.Act{Verb: perdure.VerbRedo})
		f.settled(id, perdure.Done, perdure.Done)
		if states := f.states(id, 0); states != "6 settled done" {
			t.Error(states)
		}
		runs, err := store.Runs(t.Context(), id, kernel.RunPlace{}, 100)
		if err != nil {
			t.Fatal(err)
		}
		var outcomes []string
		for _, r := range runs {
			outcomes = append(outcomes, r.Event)
		}
		if s, _ := f.step(id, "resize"); s.Run != 3 || strings.Join(outcomes, " ") != "done done" {
			t.Errorf("run %d, and before it %v", s.Run, outcomes)
		}
	})
}

// If an undo ends the run of a step with children before they are settled, the history has the run.
func TestEarlyEndOfARunWithChildren(t *testing.T) {
	f := newFamily(t, memory.New())
	id := f.submit(fmt.Sprintf(many, 3, "undo", `{range: [0, "${input.n}"]}`, ""))
	f.act(id, perdure.Act{Verb: perdure.VerbUndo})
	f.settled(id, perdure.Undone, perdure.Undone)
	runs, err := f.store.Runs(t.Context(), id, kernel.RunPlace{}, 100)
	if err != nil {
		t.Fatal(err)
	}
	if s, _ := f.step(id, "resize"); len(runs) != 1 || runs[0].Event != "returned" || runs[0].Run != 1 || s.Run != 2 {
		t.Errorf("run %d, and before it %+v", s.Run, runs)
	}
}

// With onFailure: skip the step is skipped when its other children are settled, and the next step begins.
func TestStepIsSkippedWhenChildrenHaveFailed(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		f := newFamily(t, store)
		f.failing(1)
		id := f.submit(fmt.Sprintf(many, 9, "undo", `{range: [0, "${input.n}"]}`, "onFailure: skip") + "  next: {after: [resize], agent: a}\n")
		j := f.until(id, perdure.Settled)
		s, c := f.step(id, "resize")
		if j.Current != perdure.Done || !s.Skipped || c.Unsettled() != 0 || c.Undone != 1 || c.Spawned == 9 {
			t.Fatal(f.dump(id))
		}
		if next, _ := f.step(id, "next"); next.Current != perdure.Done || next.Skipped {
			t.Error(f.dump(id))
		}
		f.check(id)
		f.act(id, perdure.Act{Verb: perdure.VerbUndo})
		f.settled(id, perdure.Undone, perdure.Undone)
	})
}

// A parked child has not failed: the step waits for it. With parkedIs: failed it is undone (F315).
func TestParkedChildren(t *testing.T) {
	const body = `
type: album
steps:
  resize:
    forEach: {range: [0, 2]}
    %s
    onFailure: park
    job:
      input: {index: "${index}"}
      definition: {type: one, onFailure: park, steps: {s: {agent: a, retry: {attempts: 1}, with: {index: "${input.index}"}, undo: {}}}}
`
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		f := newFamily(t, store)
		f.failing(1)
		id := f.submit(fmt.Sprintf(body, "parkedIs: failed"))
		f.until(id, perdure.Parked)
		if s, _ := f.step(id, "resize"); s.ErrorCode != "childFailed" || f.states(id, 0) != "1 settled done, 1 settled undone" {
			t.Fatal(f.dump(id))
		}
		f.check(id)

		id = f.submit(fmt.Sprintf(body, ""))
		f.awaitStates(id, "1 parked unsure, 1 settled done")
		for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			f.once()
		}
		s, c := f.step(id, "resize")
		if !s.Owns || c.Parked != 1 || c.FirstParked != f.children(id, 0)[1].ID {
			t.Fatal(f.dump(id))
		}
		f.check(id)
		f.act(f.children(id, 0)[1].ID, perdure.Act{Verb: perdure.VerbGiveUp}) // that is a failure
		f.until(id, perdure.Parked)
		f.check(id)
		f.failing()
		f.act(id, perdure.Act{Verb: perdure.VerbResume}) // it is opened again, and done
		f.settled(id, perdure.Done, perdure.Done)
	})
}

// If the items are others after a redo, the children of the earlier turn stay undone, and there are new ones (F317).
func TestOtherItemsAfterARedo(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		f := newFamily(t, store)
		list := `["a", "b"]`
		f.outcome = func(run perdure.Run) protocol.Report {
			r := protocol.Report{Outcome: perdure.OutcomeDone}
			if run.Step == "list" && run.Direction == perdure.Do {
				r.Output = json.RawMessage(list)
			}
			return r
		}
		id := f.submit(`
type: album
steps:
  list: {agent: a, undo: {}}
  resize:
    after: [list]
    forEach: {in: "${steps.list.output}"}
    agent: a
    with: "${item}"
    undo: {}
`)
		if j := f.until(id, perdure.Settled); j.Current != perdure.Done {
			t.Fatal(f.dump(id))
		}
		_, first := f.step(id, "resize")
		turn := func(verb perdure.Verb, states string) kernel.Children {
			t.Helper()
			f.act(id, perdure.Act{Verb: verb})
			f.until(id, perdure.Settled)
			f.check(id)
			if got := f.states(id, 1); got != states {
				t.Fatalf("after %s: %s\n%s", verb, got, f.dump(id))
			}
			_, c := f.step(id, "resize")
			return c
		}
		turn(perdure.VerbUndo, "2 settled undone")
		if c := turn(perdure.VerbRedo, "2 settled done"); c.First != first.First {
			t.Error("the items are the same, and there are other children")
		}
		turn(perdure.VerbUndo, "2 settled undone")
		list = `["a", "c", "d"]`
		if c := turn(perdure.VerbRedo, "3 settled done, 2 settled undone"); c.First == first.First || c.Total != 3 {
			t.Error("the items are others, and the children are the same")
		}
		turn(perdure.VerbUndo, "5 settled undone")
	})
}

// hiding is a store that does not find some jobs, as if their rows were deleted.
type hiding struct {
	kernel.Store
	mu     sync.Mutex
	hidden map[perdure.JobID]bool
}

type hidingTx struct {
	kernel.Tx
	s *hiding
}

func (s *hiding) hides(id perdure.JobID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hidden[id]
}

func (s *hiding) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	return s.Store.Update(ctx, func(tx kernel.Tx) error { return fn(hidingTx{tx, s}) })
}

func (tx hidingTx) LockJobs(ids []perdure.JobID) ([]*kernel.Job, error) {
	return tx.Tx.LockJobs(slices.DeleteFunc(slices.Clone(ids), tx.s.hides))
}

func (tx hidingTx) TryLockJobs(ids []perdure.JobID) ([]*kernel.Job, error) {
	return tx.Tx.TryLockJobs(slices.DeleteFunc(slices.Clone(ids), tx.s.hides))
}

func (tx hidingTx) Steps(refs []kernel.StepRef) ([]*kernel.Step, error) {
	return tx.Tx.Steps(slices.DeleteFunc(slices.Clone(refs), func(ref kernel.StepRef) bool { return tx.s.hides(ref.Job) }))
}

// A child whose row was deleted cannot be undone: the step is not undone, says so, and waits for an operator, who settles it
// (F316). `perdure check` does not take such rows for a fault.
func TestDeletedChild(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		h := &hiding{Store: store, hidden: map[perdure.JobID]bool{}}
		f := newFamily(t, h)
		id := f.submit(fmt.Sprintf(many, 5, "undo", `{range: [0, "${input.n}"]}`, ""))
		f.settled(id, perdure.Done, perdure.Done)
		h.hidden[f.children(id, 0)[2].ID] = true
		f.act(id, perdure.Act{Verb: perdure.VerbUndo})
		f.until(id, perdure.Parked)
		s, c := f.step(id, "resize")
		if want := "1 of 5 children are not undone; 1 of them were deleted"; s.LastError != want || s.Current != perdure.Unsure || c.Gone != 1 {
			t.Fatalf("%s\n%s", s.LastError, f.dump(id))
		}
		rows := slices.Delete(f.children(id, 0), 2, 3)
		p, err := f.Plan(t.Context(), f.job(id))
		if err != nil {
			t.Fatal(err)
		}
		if found := kernel.CheckChildren(s, &p.Steps[0], rows, nil); len(found) > 0 {
			t.Error(found)
		}
		for _, j := range rows[:2] {
			j.Current = perdure.Done
		}
		if found := kernel.CheckChildren(s, &p.Steps[0], rows, nil); len(found) != 1 || found[0].Rule != "C3" {
			t.Errorf("two children are done that were counted as undone: %v", found)
		}
		f.act(id, perdure.Act{Verb: perdure.VerbSettle, Step: "resize", As: new(perdure.Undone)})
		if j := f.until(id, perdure.Settled); j.Current != perdure.Undone {
			t.Fatal(f.dump(id))
		}
	})
}

// News for a step that was deleted is deleted, so that it is not due for ever (F316).
func TestNewsForADeletedParentIsDeleted(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		h := &hiding{Store: store, hidden: map[perdure.JobID]bool{}}
		f := newFamily(t, h)
		id := f.submit(fmt.Sprintf(many, 2, "undo", `{range: [0, "${input.n}"]}`, ""))
		f.settled(id, perdure.Done, perdure.Done)
		h.hidden[id] = true
		f.act(f.children(id, 0)[0].ID, perdure.Act{Verb: perdure.VerbUndo})
		for end := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			f.once()
			news, err := store.ReadChildNews(t.Context(), kernel.StepRef{Job: id}, 10)
			if err != nil {
				t.Fatal(err)
			}
			if len(news) == 0 && strings.Contains(f.states(id, 0), "undone") {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("news is left: %+v", news)
			}
		}
		poll, err := store.Poll(t.Context(), nil)
		if err != nil || !poll.Next.IsZero() {
			t.Errorf("something is due at %s: %v", poll.Next, err)
		}
	})
}

// At most MaxChildDepth jobs may be above a job.
func TestDepthOfChildren(t *testing.T) {
	f := newFamily(t, memory.New())
	nested := func(depth int) string {
		def := "{type: t, onFailure: park, steps: {s: {agent: a}}}"
		for range depth {
			def = "{type: t, onFailure: park, steps: {c: {job: {definition: " + def + "}}}}"
		}
		return def
	}
	id := f.submit(nested(kernel.MaxChildDepth))
	if j := f.until(id, perdure.Settled); j.Current != perdure.Done {
		t.Fatal(f.dump(id))
	}
	if len(f.runs) != 1 {
		t.Errorf("%d runs", len(f.runs))
	}
	f.submit(nested(kernel.MaxChildDepth + 1))
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		f.once()
		parked, _, err := f.store.ListJobs(t.Context(), kernel.JobFilter{Phases: []perdure.Phase{perdure.Parked}, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		if len(parked) > 0 {
			s, _ := f.step(parked[0].ID, "c")
			if s.ErrorCode != "tooDeep" || s.LastError != "8 jobs are above this one, which is the maximum" {
				t.Errorf("%s: %s", s.ErrorCode, s.LastError)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatal("no job is parked")
		}
	}
}

// A step has at most MaxItems children whose outputs are collected, and MaxUncollectedItems others.
func TestMostItems(t *testing.T) {
	f := newFamily(t, memory.New())
	f.outcome = func(perdure.Run) protocol.Report { return protocol.Report{Outcome: perdure.OutcomeReturned} }
	const body = "type: t\ninput: {n: %d}\nonFailure: park\nsteps: {s: {forEach: {range: [0, \"${input.n}\"]}, maxParallel: 1, collect: %s, agent: a}}\n"
	for _, c := range []struct {
		n       int
		collect string
		refusal string
	}{
		{kernel.MaxItems, "list", ""}, {kernel.MaxItems + 1, "list", "100001 items; at most 100000 with collect: list (1000000 without)"},
		{kernel.MaxUncollectedItems, "none", ""}, {kernel.MaxUncollectedItems + 1, "none", "1000001 items; at most 1000000"},
	} {
		id := f.submit(fmt.Sprintf(body, c.n, c.collect))
		f.once()
		s, children := f.step(id, "s")
		if c.refusal == "" && (children.Total != c.n || children.Spawned != 1 || s.ErrorCode != "") || c.refusal != "" && (s.ErrorCode != "tooManyItems" || s.LastError != c.refusal || s.Phase != perdure.Parked) {
			t.Errorf("%d items, collect: %s: %s, %s, %+v", c.n, c.collect, s.ErrorCode, s.LastError, children)
		}
	}
}

// The collected outputs have at most 1 MiB in total, with the counts and the commas.
func TestMostThatIsCollected(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		f := newFamily(t, store)
		const head, tail = `{"total":2,"done":2,"failed":0,"items":[`, `]}`
		room := perdure.MaxPayloadBytes - len(head) - len(tail) - len(`"","a"`)
		for _, more := range []int{0, 1} {
			big := `"` + strings.Repeat("x", room+more) + `"`
			f.outcome = func(run perdure.Run) protocol.Report {
				out := `"a"`
				if strings.Contains(string(run.Input), `"index":0`) {
					out = big
				}
				return protocol.Report{Outcome: perdure.OutcomeDone, Output: json.RawMessage(out)}
			}
			id := f.submit(fmt.Sprintf(many, 2, "park", `{range: [0, "${input.n}"]}`, ""))
			if j := f.until(id, perdure.Settled); j.Current != perdure.Done {
				t.Fatal(f.dump(id))
			}
			want := head + big + `,"a"` + tail
			if more > 0 {
				want = `{"total":2,"done":2,"failed":0,"items":null,"itemsError":"the outputs have more than 1048576 bytes in total"}`
			}
			if got := f.output(id, 0); got != want {
				t.Errorf("%d bytes more: %d bytes, %.100s", more, len(got), got)
			}
			f.check(id)
		}
	})
}

// mortal is a store in which a node dies in one of the transactions that submit children or count their news.
type mortal struct {
	kernel.Store
	mu     sync.Mutex
	at     int  // the number of the transaction, from 1 on
	after  bool // it is committed, and the node does not learn that
	passed int
}

type mortalTx struct {
	kernel.Tx
	counts *bool
}

func (tx mortalTx) Save(c *kernel.Changes) error {
	if len(c.TakenNews) > 0 || slices.ContainsFunc(c.NewJobs, func(n kernel.NewJob) bool { return n.Job.Parent != "" }) {
		*tx.counts = true
	}
	return tx.Tx.Save(c)
}

var errDied = errors.New("the node dies")

func (s *mortal) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	dies := false
	err := s.Store.Update(ctx, func(tx kernel.Tx) error {
		counts := false
		if err := fn(mortalTx{tx, &counts}); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if counts {
			s.passed++
		}
		if dies = counts && s.passed == s.at; dies && !s.after {
			return errDied
		}
		return nil
	})
	if err == nil && dies {
		err = errDied
	}
	return err
}

// The node of a parent dies before or after the commit of each of the transactions that submit or count children. Another node
// goes on: each child exists once, and each change is counted once (F311, F312).
func TestNodeOfAParentDiesInEachTransaction(t *testing.T) {
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprintf("after the commit %v", after), func(t *testing.T) {
			for at := 1; ; at++ {
				store := &mortal{Store: memory.New(), at: at, after: after}
				if !dyingParent(t, store) {
					if at < 8 {
						t.Errorf("only %d such transactions", at-1)
					}
					return
				}
			}
		})
	}
}

// dyingParent plays a parent that is done, undone, and done again. It reports whether the node has died.
func dyingParent(t *testing.T, store *mortal) bool {
	t.Helper()
	f := &family{harness: open(t, store, scheduler.Config{}), outcome: func(perdure.Run) protocol.Report { return protocol.Report{Outcome: perdure.OutcomeDone} }}
	untilDone := func(call func() error) { // a client repeats what was not answered
		t.Helper()
		for range 3 {
			err := call()
			if err == nil {
				return
			}
			if perdure.CodeOf(err) != perdure.CodeUnavailable {
				t.Fatal(err)
			}
			f.harness = open(t, store, scheduler.Config{})
		}
		t.Fatal("no answer")
	}
	var id perdure.JobID
	untilDone(func() error {
		submitted, err := f.Submit(t.Context(), plan(t, "key: k"+fmt.Sprintf(many, 5, "undo", `{range: [0, "${input.n}"]}`, "")))
		if err == nil {
			id = submitted.ID
		}
		return err
	})
	until := func(current perdure.State) {
		t.Helper()
		for end := time.Now().Add(60 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			f.carryOn(store)
			j := f.job(id)
			news, err := store.ReadChildNews(t.Context(), kernel.StepRef{Job: id}, 1)
			if j.Phase == perdure.Settled && j.Current == current && len(news) == 0 && err == nil {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("at %d: the job is not %s:\n%s", store.at, current, f.dump(id))
			}
		}
		f.check(id)
		if got := f.states(id, 0); got != "5 settled "+current.String() {
			t.Fatalf("at %d: %s", store.at, got)
		}
	}
	until(perdure.Done)
	untilDone(func() error {
		return f.Act(t.Context(), id, perdure.Act{Verb: perdure.VerbUndo, Author: "o"})
	})
	until(perdure.Undone)
	untilDone(func() error {
		return f.Act(t.Context(), id, perdure.Act{Verb: perdure.VerbRedo, Author: "o"})
	})
	until(perdure.Done)
	return store.passed >= store.at
}

// carryOn carries out what is ready, and one sweep. After an error it begins again with another scheduler, which knows nothing.
func (f *family) carryOn(store *mortal) {
	ctx := f.t.Context()
	runs, err := f.Claim(ctx, protocol.Claim{Agent: "a", Holder: "h", RequestID: fmt.Sprint(time.Now().UnixNano()), Max: 100})
	var reports []protocol.Report
	for _, run := range runs {
		reports = append(reports, protocol.Report{Job: run.Job, Step: run.Step, Run: run.Number, Outcome: perdure.OutcomeDone})
	}
	for range 3 { // a holder repeats its report
		if err != nil || len(reports) == 0 {
			break
		}
		if _, _, err = f.Report(ctx, "h", reports, nil); err == nil {
			break
		}
		f.harness, err = open(f.t, store, scheduler.Config{}), nil
	}
	if _, sweep := f.SweepDue(ctx, 500); sweep != nil || err != nil {
		f.harness = open(f.t, store, scheduler.Config{})
	}
}

// Children are submitted although the items use up most of what one transaction may compute, or all of it. If not even one child
// can be made in a transaction of its own, the step fails; it does not try for ever. Neither depends on whether the renderers are busy.
func TestCostlyItemsAndChildren(t *testing.T) {
	for n := range 2 * 39 {
		store := memory.New()
		f := newFamily(t, store)
		work := 1 + n/2
		f.harness = open(t, store, scheduler.Config{RenderWork: work, Renderers: 1})
		if n%2 == 1 {
			f.KeepRenderersBusy()
		}
		id := f.submit(fmt.Sprintf(many, 6, "undo", "{in: \"${filter(input.list, .name != '')}\"}", ""))
		f.until(id, perdure.Settled)
		const oneChild = 4 // units of work
		if s, _ := f.step(id, "resize"); (work < oneChild) != (s.ErrorCode == "childInvalid") || (work < oneChild) != (s.Current == perdure.Undone) {
			t.Errorf("%d units of work: %s", work, f.dump(id))
		}
	}
}
