package kernel

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// shownInput records the input that the latest run of a step received, and the input that an operator has set since.
type shownInput struct {
	handed  json.RawMessage
	edited  json.RawMessage // for a run in direction forRuns; nil: not edited since
	forRuns perdure.Direction
}

// A view shows the input of the latest run, or the edited input that the next run will receive, or none. It never shows
// another value, whatever has happened in between (F149).
func TestShownInputIsThatOfARun(tb *testing.T) {
	events := []string{"claim", "claim", "claim", "done", "done", "done", "failed", "failed without effect", "rejected", "returned", "expired",
		"due", "due", "time", "undo", "redo", "resume", "resume step", "settle as done", "settle as undone", "skip", "edit", "edit", "edit with a new key"}
	rapid.Check(tb, func(t *rapid.T) {
		x := &explored{world: *newWorld(rapidTB{tb, t}, randomJob(t))}
		x.submitPlan()
		x.receivers = make([]receiverState, len(x.steps))
		known := make([]shownInput, len(x.steps))
		for n := range rapid.IntRange(1, 150).Draw(t, "events") {
			event := rapid.SampledFrom(events).Draw(t, "event")
			h := eventKinds[slices.IndexFunc(eventKinds, func(h eventKind) bool { return h.name == event })]
			i := -1
			if h.ofStep {
				i = x.drawStep(t, event)
			}
			x.playEvent(t, known, event, i, n, h)
			all, none := x.keptValues(true), x.keptValues(false)
			for i := range x.steps {
				x.checkShown(t, &known[i], i, event, all, none)
			}
		}
	})
}

// playEvent plays one event, with values that are unique to it.
func (x *explored) playEvent(t *rapid.T, known []shownInput, event string, i, n int, h eventKind) {
	value := fmt.Appendf(nil, `"event %d"`, n)
	switch event {
	case "claim":
		if run, _ := x.claimAs(i, protocol.Claim{}); run != nil {
			k := &known[i]
			if k.handed = run.Input; run.Direction == perdure.Do || k.forRuns == perdure.Undo {
				k.edited = nil
			}
		}
	case "done":
		x.reportAs(i, "host", protocol.Report{Run: x.steps[i].Run, Outcome: perdure.OutcomeDone, Output: value})
	case "settle as done":
		_, _ = x.actAs(perdure.Act{Verb: perdure.VerbSettle, Step: x.steps[i].Name, As: new(perdure.Done), Output: value})
	case "edit":
		wants := x.steps[i].nextDirection()
		if _, err := x.actAs(perdure.Act{Verb: perdure.VerbEdit, Step: x.steps[i].Name, Input: value}); err == nil {
			known[i].edited, known[i].forRuns = value, wants
		}
	default:
		h.try(x, i)
	}
}

// keptValues returns the values of the job as a view has read them: all values, or only their sizes.
func (x *explored) keptValues(all bool) *KeptValues {
	k := &KeptValues{Job: x.job, Steps: x.steps, Shape: x.plan.Shape, InputRead: all, Payloads: map[int]SizedPayload{}}
	for i, p := range x.kept {
		sized := SizedPayload{Payload: p, InputBytes: len(p.Input), OutputBytes: len(p.Output)}
		if !all {
			sized.Input, sized.Output = nil, nil
		}
		k.Payloads[i] = sized
	}
	return k
}

func (x *explored) checkShown(t *rapid.T, known *shownInput, i int, event string, all, none *KeptValues) {
	s := x.steps[i]
	in, _ := all.InputOf(i)
	want := known.handed
	if known.edited != nil && s.nextDirection() == known.forRuns {
		want = known.edited
	}
	switch {
	case s.asksForApproval(&x.plan.Steps[i]): // it shows what it asks, and is never dispatched
	case in != nil && string(in) != string(want):
		t.Fatalf("after %s: step %s %s run %d shows %s, want %s", event, s.Name, s.Direction, s.Run, in, want)
	case in == nil && s.Phase == perdure.Running && (s.Direction == perdure.Do || s.OwnInput && s.Edited != editedDo):
		t.Fatalf("after %s: step %s, run %d in flight, shows no input", event, s.Name, s.Run)
	case in != nil && s.Run == 0 && known.edited == nil:
		t.Fatalf("after %s: step %s, which was never dispatched, shows %s", event, s.Name, in)
	}
	// A value that was not read is not shown, not even as null.
	left, bytes := none.InputOf(i)
	if left != nil && string(left) != string(in) || bytes != 0 && bytes != len(in) {
		t.Fatalf("after %s: step %s shows %s (%d bytes) if no value is read, and %s otherwise", event, s.Name, left, bytes, in)
	}
}

// viewed returns a world with one job, and a function for acts that must succeed.
func viewed(t *testing.T, job string) (*explored, func(perdure.Act)) {
	x := &explored{world: *newWorld(t, job)}
	x.submitPlan()
	x.receivers = make([]receiverState, len(x.steps))
	return x, func(a perdure.Act) {
		t.Helper()
		_, err := x.actAs(a)
		must(t, err)
	}
}

// For an undo that received outputs of other steps, the view does not show later outputs of these steps.
func TestShownInputOfUndoIgnoresLaterOutputs(t *testing.T) {
	x, act := viewed(t, "a undo; b after a reads a undo")
	x.claimAs(0, protocol.Claim{})
	x.reportAs(0, "host", protocol.Report{Run: x.steps[0].Run, Outcome: perdure.OutcomeDone, Output: []byte(`1`)})
	act(perdure.Act{Verb: perdure.VerbSettle, Step: "b", As: new(perdure.Done)}) // it never ran, so no input of it is stored
	act(perdure.Act{Verb: perdure.VerbUndo})
	x.now = x.now.Add(time.Second) // an output of the same instant may be a later one
	run, _ := x.claimAs(1, protocol.Claim{})
	if run == nil || run.Direction != perdure.Undo {
		t.Fatalf("claimed %+v", run)
	}
	if in, _ := x.keptValues(true).InputOf(1); string(in) != string(run.Input) {
		t.Fatalf("it shows %s, and was handed %s", in, run.Input)
	}
	x.now = x.now.Add(time.Second)
	act(perdure.Act{Verb: perdure.VerbSettle, Step: "a", As: new(perdure.Done), Output: []byte(`2`)})
	if in, _ := x.keptValues(true).InputOf(1); in != nil && string(in) != string(run.Input) {
		t.Errorf("it shows %s, and was handed %s", in, run.Input)
	}
}

// An undo receives the output of its do. The view does not show it with an output that was settled or cleared later, nor
// with the key of a later turn.
func TestShownInputOfUndoHasOwnOutputAndKey(t *testing.T) {
	undo, redo := perdure.Act{Verb: perdure.VerbUndo}, perdure.Act{Verb: perdure.VerbRedo}
	as := func(s perdure.State, output string) perdure.Act {
		a := perdure.Act{Verb: perdure.VerbSettle, Step: "a", As: new(s)}
		if output != "" {
			a.Output = []byte(output)
		}
		return a
	}
	for name, c := range map[string]struct {
		end  perdure.Outcome
		acts []perdure.Act
	}{
		"settled as done and as undone":            {perdure.OutcomeRejected, []perdure.Act{as(perdure.Done, "2"), as(perdure.Undone, "")}},
		"redone, settled as done and as undone":    {perdure.OutcomeDone, []perdure.Act{redo, as(perdure.Done, "2"), undo, as(perdure.Undone, "")}},
		"redone, skipped and undone":               {perdure.OutcomeDone, []perdure.Act{redo, {Verb: perdure.VerbSkip, Step: "a"}, undo}},
		"redone, skipped, and twice undone":        {perdure.OutcomeDone, []perdure.Act{redo, {Verb: perdure.VerbSkip, Step: "a"}, undo, redo, undo}},
		"redone, edited with a new key and undone": {perdure.OutcomeDone, []perdure.Act{redo, {Verb: perdure.VerbEdit, Step: "a", NewKey: true}, undo}},
	} {
		t.Run(name, func(t *testing.T) {
			x, act := viewed(t, "a revert; b after a undo")
			x.claimAs(0, protocol.Claim{})
			x.reportAs(0, "host", protocol.Report{Run: x.steps[0].Run, Outcome: perdure.OutcomeDone, Output: []byte(`1`)})
			act(undo)
			run, _ := x.claimAs(0, protocol.Claim{})
			if in, _ := x.keptValues(true).InputOf(0); string(in) != string(run.Input) {
				t.Fatalf("it shows %s, and was handed %s", in, run.Input)
			}
			x.reportAs(0, "host", protocol.Report{Run: run.Number, Outcome: c.end})
			if in, _ := x.keptValues(true).InputOf(0); string(in) != string(run.Input) {
				t.Fatalf("once it has ended, it shows %s, and was handed %s", in, run.Input)
			}
			for _, a := range c.acts {
				act(a)
			}
			if in, _ := x.keptValues(true).InputOf(0); in != nil && string(in) != string(run.Input) {
				t.Errorf("it shows %s, and was handed %s", in, run.Input)
			}
		})
	}
}
