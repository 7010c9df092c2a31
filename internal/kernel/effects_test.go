package kernel

import (
	"fmt"
	"strings"
	"testing"

	"github.com/perdure/perdure"
)

// effects is one act at the end of a story, and what it does to the steps.
var effects = []struct {
	name, definition string
	story            func(w *world)
	verb             perdure.Verb
	step             string
	set              func(*perdure.Act)
	want             string
}{
	{"undo stops nothing that runs, and keeps what has no undo", "reserve undo; notify after reserve; charge undo after notify; ship undo after charge; mail undo after ship", func(w *world) {
		w.run("reserve", "notify")
		w.claim("charge")
	}, perdure.VerbUndo, "", nil, "settle ship mail; wait charge 10s; without undo notify"},
	{"undo of a done job dispatches the last steps with an undo", "a undo; b after a; c undo after a", func(w *world) {
		w.run("a", "b", "c")
	}, perdure.VerbUndo, "", nil, "dispatch c; settle b; without undo b"},
	{"undo of a step that is unsure", "a undo attempts 2; b after a", func(w *world) {
		w.claim("a")
		w.report("a", failed)
	}, perdure.VerbUndo, "", nil, "dispatch a; settle b"},
	{"undo of a step that is ready to be tried again", "a undo attempts 2", func(w *world) {
		w.claim("a")
		w.report("a", failed)
		w.wait(tick)
	}, perdure.VerbUndo, "", nil, "dispatch a"},
	{"undo of a job that has not begun", "a undo; b after a", func(*world) {}, perdure.VerbUndo, "", nil, "settle a b"},
	{"undo waits for the lock of a dead holder", "a undo attempts 3", func(w *world) {
		w.claim("a")
		w.holderDies("a")
	}, perdure.VerbUndo, "", nil, "wait a 10s"},
	{"undo of a skipped step that never ran", "a or skip; b undo after a", func(w *world) {
		w.act(perdure.VerbSkip, "a")
		w.run("b")
	}, perdure.VerbUndo, "", nil, "dispatch b"},
	{"undo of a step that an operator has settled as done", "a; b after a", func(w *world) {
		w.act(perdure.VerbSettle, "a", as(perdure.Done))
	}, perdure.VerbUndo, "", nil, "settle a b; without undo a"},
	{"undo twice", "a undo", func(w *world) { w.run("a"); w.undo() }, perdure.VerbUndo, "", nil, ""},
	{"redo begins with the first steps", "a undo; b undo after a; c sleep", func(w *world) {
		w.run("a", "b")
		w.undo()
		w.run("b", "a")
	}, perdure.VerbRedo, "", nil, "dispatch a; wait c 10s"},
	{"redo skips a step whose condition fails", "a undo; b when a after a; c after b", func(w *world) {
		w.claim("a")
		w.report("a", done)
		w.run("c")
		w.undo()
		w.run("a")
		w.redo()
		w.claim("a")
	}, perdure.VerbUndo, "", nil, "settle b c; wait a 10s"},
	{"resume", "a; b after a; c", func(w *world) {
		w.claim("a")
		w.report("a", rejected)
		w.claim("c")
	}, perdure.VerbResume, "", nil, "dispatch a"},
	{"resume of a step whose input cannot be evaluated parks it again", "a; b after a reads a", func(w *world) {
		w.claim("a")
		w.report("a", done, output(`"bad"`))
		w.cannotClaim("b")
		w.act(perdure.VerbResume, "b")
		w.cannotClaim("b")
	}, perdure.VerbSkip, "b", nil, "settle b"},
	{"resume of a step whose condition cannot be evaluated parks it again", "a; b after a when a", func(w *world) {
		w.claim("a")
		w.report("a", done, output(`"bad"`))
	}, perdure.VerbResume, "b", nil, "park b"},
	{"settle makes the next steps ready, or waiting", "a; b after a; nap after a sleep; ask after a approval; asks after a approval lasts; late after b", func(*world) {},
		perdure.VerbSettle, "a", as(perdure.Done), "dispatch b; settle a; wait nap 10s; wait ask; wait asks 10s"},
	{"settle as undone begins again", "a", func(w *world) {
		w.claim("a")
		w.wait(tick)
	}, perdure.VerbSettle, "a", as(perdure.Undone), "dispatch a"},
	{"skip", "a; b after a", func(w *world) {
		w.claim("a")
		w.report("a", rejected)
	}, perdure.VerbSkip, "a", nil, "dispatch b; settle a"},
	{"an edited step stays parked", "a; b after a", func(w *world) {
		w.claim("a")
		w.report("a", rejected)
	}, perdure.VerbEdit, "a", input(`1`), "park a"},
	{"an edited step stays ready", "a", func(*world) {}, perdure.VerbEdit, "a", input(`1`), ""},
	{"an edit ends an expired run, and the policy undoes the job", "onFailure undo; a undo; b after a", func(w *world) {
		w.run("a")
		w.claim("b")
		w.now = w.now.Add(tick)
	}, perdure.VerbEdit, "b", input(`1`), "dispatch a; settle b; without undo b"},
	{"an edit ends an expired run, which waits for its backoff at most", "a attempts 2", func(w *world) {
		w.claim("a")
		w.now = w.now.Add(tick)
	}, perdure.VerbEdit, "a", input(`1`), "wait a 10s"},
	{"give up", "a; b after a", func(w *world) {
		w.claim("a")
		w.wait(tick)
	}, perdure.VerbGiveUp, "", nil, "settle a b"},
}

func TestEffectsOfActs(t *testing.T) {
	for _, test := range effects {
		t.Run(test.name, func(t *testing.T) {
			w := submit(t, test.definition)
			test.story(w)
			a := perdure.Act{Verb: test.verb, Step: test.step}
			if test.set != nil {
				test.set(&a)
			}
			c, err := w.actAs(a)
			must(t, err)
			e := EffectsOf(c, w.plan.Shape)
			if got := w.effectText(&e); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func (w *world) effectText(e *Effects) string {
	var parts []string
	add := func(what string, steps []string) {
		if len(steps) > 0 {
			parts = append(parts, what+" "+strings.Join(steps, " "))
		}
	}
	add("dispatch", e.Dispatch)
	add("settle", e.Settle)
	add("park", e.Park)
	for _, wait := range e.WaitFor {
		text := "wait " + wait.Step
		if !wait.Until.IsZero() {
			text += fmt.Sprintf(" %s", span(wait.Until.Sub(w.now)))
		}
		parts = append(parts, text)
	}
	add("without undo", e.WithoutUndo)
	return strings.Join(parts, "; ")
}
