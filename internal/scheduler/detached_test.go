package scheduler_test

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/protocol"
)

const keyed = `
type: album
input: %s
steps:
  resize:
    forEach: {in: "${input}"}
    as: image
    maxParallel: 2
    job:
      key: %s
      definition: {type: one, onFailure: undo, steps: {s: {agent: a, retry: {attempts: 1}}}}
`

// The keys of children are rendered for each of them. Text that looks like an expression stays text.
func TestKeysOfChildren(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		f := newFamily(t, store)
		id := f.submit(fmt.Sprintf(keyed, `[{id: a}, {id: 7}, {id: "$${input.x}"}]`, `"img-${image.id}-${index}"`))
		if j := f.until(id, perdure.Settled); j.Current != perdure.Done {
			t.Fatal(f.dump(id))
		}
		f.check(id)
		var keys []string
		for _, c := range f.children(id, 0) {
			keys = append(keys, c.Key)
		}
		if got := strings.Join(keys, " "); got != "img-a-0 img-7-1 img-$${input.x}-2" {
			t.Error(got)
		}
		number := f.submit(fmt.Sprintf(keyed, `[{id: 5}]`, `"${image.id}"`))
		if f.until(number, perdure.Settled); f.children(number, 0)[0].Key != "5" {
			t.Error(f.dump(number))
		}
	})
}

// A key that another job has, or a child before it, fails the step. So does a key that is none.
func TestChildWithATakenKeyFailsTheStep(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		f := newFamily(t, store)
		other := f.submit("type: t\nkey: taken\nsteps: {s: {agent: a}}\n")
		for _, c := range []struct {
			input, key, want string
			children         int
		}{
			{`[{id: fine}, {id: taken}]`, `"${image.id}"`, "child 1: the key taken belongs to " + other.String(), 1},
			{`[{id: twice}, {id: twice}]`, `"${image.id}"`, "child 1: the key twice belongs to job_", 1},
			{`[{id: third}, {id: x}, {id: third}]`, `"${image.id}"`, "child 2: the key third belongs to job_", 2},
			{`[{id: a/b}]`, `"${image.id}"`, "child 0: /key: a key cannot contain a /", 0},
			{`[{id: {}}]`, `"${image.id}"`, "child 0: key: neither text nor a number: {}", 0},
			{`[{}]`, `"${image.id}"`, "child 0: key: ", 0},
			{`[{id: ` + strings.Repeat("x", 201) + `}]`, `"${image.id}"`, "child 0: /key: a key of 201 characters; at most 200", 0},
		} {
			id := f.submit(fmt.Sprintf(keyed, c.input, c.key))
			f.until(id, perdure.Parked)
			if s, _ := f.step(id, "resize"); s.ErrorCode != "childInvalid" || !strings.Contains(s.LastError, c.want) {
				t.Errorf("%s: %s: %s", c.input, s.ErrorCode, s.LastError)
			}
			if n := len(f.children(id, 0)); n != c.children {
				t.Errorf("%s: %d children", c.input, n)
			}
			f.check(id)
			f.act(id, perdure.Act{Verb: perdure.VerbUndo})
			if j := f.until(id, perdure.Settled); j.Current != perdure.Undone {
				t.Fatal(f.dump(id))
			}
			f.check(id)
		}
	})
}

// A child of a stored definition has the key that the definition computes. A definition with unique is none for children.
func TestChildrenOfStoredDefinitionsWithKeys(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		f := newFamily(t, store)
		for name, text := range map[string]string{"keyed": `"key":"k-${input.id}"`, "unique": `"unique":{"key":"x","within":"1h"}`} {
			d := `{"type":"one",` + text + `,"steps":{"s":{"agent":"a"}}}`
			if _, _, err := f.PutDefinition(t.Context(), kernel.StoredDefinition{Name: name, Hash: sha256.Sum256([]byte(d)), Text: []byte(d)}); err != nil {
				t.Fatal(err)
			}
		}
		const parent = "type: t\nsteps: {s: {forEach: {in: [{id: 1}, {id: 1}]}, job: {definition: %s, input: \"${item}\"}}}\n"
		for name, want := range map[string]string{"keyed": "child 1: the key k-1 belongs to job_", "unique": "child 0: its definition has unique"} {
			id := f.submit(fmt.Sprintf(parent, name))
			f.until(id, perdure.Parked)
			if s, _ := f.step(id, "s"); s.ErrorCode != "childInvalid" || !strings.Contains(s.LastError, want) {
				t.Errorf("%s: %s", s.ErrorCode, s.LastError)
			}
		}
	})
}

const detached = `
type: order
input: {list: [a, b, c, d, e]}
onFailure: park
steps:
  mails:
    forEach: {in: "${input.list}"}
    job:
      wait: false
      undoChild: %v
      definition: {type: mail, onFailure: undo, completeWithin: 1h, steps: {s: {agent: a, undo: {}, retry: {attempts: 1}}}}
  after: {after: [mails], agent: sleep, with: {for: 1ms}}
  one:
    job: {wait: false, undoChild: %[1]v, definition: {type: one, steps: {s: {agent: a, undo: {}}}}}
`

// A step with wait: false is done when its children are submitted. Its undo leaves them, or, with undoChild, undoes them.
func TestStepThatDoesNotWaitForItsChildren(t *testing.T) {
	for _, undoes := range []bool{false, true} {
		t.Run(fmt.Sprint(undoes), func(t *testing.T) {
			everystore.Run(t, func(t *testing.T, store kernel.Store) {
				f := newFamily(t, store)
				id := f.submit(fmt.Sprintf(strings.Replace(detached, "onFailure: park", "onFailure: park\ncompleteWithin: 10m", 1), undoes))
				for f.job(id).Phase != perdure.Settled { // no child is done meanwhile
					if _, err := f.SweepDue(t.Context(), 500); err != nil {
						t.Fatal(err)
					}
				}
				if got := f.states(id, 0) + "; " + f.states(id, 2); f.job(id).Current != perdure.Done || got != "5 waiting undone; 1 waiting undone" {
					t.Fatal(got, f.dump(id))
				}
				f.check(id)
				kid := f.children(id, 2)[0]
				if got := f.output(id, 0) + f.output(id, 2); got != `{"total":5}{"job":"`+kid.ID.String()+`"}` {
					t.Error(got)
				}
				if !kid.CompleteBy.IsZero() || f.children(id, 0)[0].CompleteBy.Sub(f.job(id).CompleteBy) < 30*60e9 {
					t.Error("the deadline of the parent is that of its children")
				}
				for f.once() || f.states(id, 0) != "5 settled done" {
				}
				f.check(id)
				f.act(kid.ID, perdure.Act{Verb: perdure.VerbUndo}) // the parent does not mind
				f.until(kid.ID, perdure.Settled)
				f.act(id, perdure.Act{Verb: perdure.VerbUndo})
				if j := f.until(id, perdure.Settled); j.Current != perdure.Undone {
					t.Fatal(f.dump(id))
				}
				want := map[bool]string{false: "5 settled done", true: "5 settled undone"}[undoes]
				if got := f.states(id, 0); got != want {
					t.Fatal(got)
				}
				f.check(id)
				f.act(id, perdure.Act{Verb: perdure.VerbRedo})
				for f.job(id).Phase != perdure.Settled {
					f.once()
				}
				for f.once() || f.states(id, 0) != "5 settled done" {
				}
				f.check(id)
				if n := len(f.children(id, 0)); n != 5 {
					t.Errorf("%d children", n)
				}
			})
		})
	}
}

// Failures and parked children of such a step are theirs alone.
func TestFailuresOfDetachedChildrenAreTheirs(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		f := newFamily(t, store)
		f.outcome = func(perdure.Run) protocol.Report {
			return protocol.Report{Outcome: perdure.OutcomeFailed, Error: &perdure.RunError{Code: "bad"}, Effect: protocol.EffectNone}
		}
		id := f.submit(fmt.Sprintf(detached, true))
		for f.once() || f.states(id, 0) != "5 settled undone" || f.job(id).Phase != perdure.Settled {
		}
		if j := f.job(id); j.Current != perdure.Done || j.Phase != perdure.Settled {
			t.Fatal(f.dump(id))
		}
		alerts, err := store.Alerts(t.Context(), kernel.AlertFilter{Job: id})
		if err != nil || len(alerts) > 0 {
			t.Fatal(alerts, err)
		}
		f.check(id)
	})
}

// The counts of a step name the first child that is parked, while it is.
func TestFirstParkedChildIsNamed(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		f := newFamily(t, store)
		f.failing(1, 3)
		id := f.submit(`
type: album
steps:
  s:
    forEach: {range: [0, 5]}
    job: {input: {index: "${index}"}, definition: {type: one, onFailure: park, steps: {s: {agent: a, with: "${input}", retry: {attempts: 1}}}}}
`)
		counts := func() (kernel.Children, *perdure.ChildCounts) {
			s, c := f.step(id, "s")
			return c, kernel.ChildCountsOf(s, &c)
		}
		for c, _ := counts(); c.Parked < 2; c, _ = counts() {
			f.once()
		}
		parked := slices.DeleteFunc(f.children(id, 0), func(j *kernel.Job) bool { return j.Phase != perdure.Parked })
		_, n := counts()
		if n.FirstParked != parked[0].ID && n.FirstParked != parked[1].ID {
			t.Fatalf("%+v", n)
		}
		f.failing()
		f.act(n.FirstParked, perdure.Act{Verb: perdure.VerbResume})
		for c, _ := counts(); c.Parked > 1; c, _ = counts() {
			f.once()
		}
		if _, n := counts(); n.Parked != 1 || !n.FirstParked.IsZero() {
			t.Fatalf("%+v", n)
		}
	})
}

// Children are in the backlog as soon as they exist. They are not refused when it is full; other submissions are.
func TestChildrenAreInTheBacklog(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		f := &family{harness: open(t, store, scheduler.Config{MaxBacklog: 5}), outcome: func(perdure.Run) protocol.Report { return protocol.Report{Outcome: perdure.OutcomeDone} }}
		id := f.submit("type: t\nsteps: {s: {forEach: {range: [0, 10]}, agent: a}}\n")
		for len(f.children(id, 0)) < 10 {
			if _, err := f.SweepDue(t.Context(), 500); err != nil {
				t.Fatal(err)
			}
		}
		plans, err := definition.Parse([]byte("type: t\nsteps: {s: {agent: a}}\n"), definition.YAML, definition.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Submit(t.Context(), plans[0]); perdure.CodeOf(err) != perdure.CodeBacklogFull {
			t.Errorf("a submission beyond the backlog: %v", err)
		}
		f.until(id, perdure.Settled)
		if _, err := f.Submit(t.Context(), plans[0]); err != nil {
			t.Error(err)
		}
	})
}
