package kernel

import (
	"reflect"
	"slices"
	"strconv"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// The values that the agents and the operator of a world have seen (I19, F149). In every test of the rules that claims a
// run, the run is compared with the values that it must have.

// stepValues are the values of one step.
type stepValues struct {
	output        string // as it was reported or given by the operator; "": null
	ran           bool   // a do run was dispatched
	input         string // the input of that run
	doKey         string // under this key; "": the operator says that it had no effect
	edit          string // an input that the operator gave; "": none
	forUndo       bool   // edit is for undo runs
	setByOperator bool   // the operator settled the step

	key      string // of the latest run
	keyInput string // the input of the run with that key
	epoch    int    // the world's epoch at that time
}

// updateValues changes the values of a step. Copies of a world share them, so they are not changed in place.
func (w *world) updateValues(i int, change func(*stepValues)) {
	w.values = slices.Clone(w.values)
	change(&w.values[i])
}

// noteSkips clears the outputs of skipped steps. It increments epoch if the input that belongs to a key may have
// changed: the job changes direction, or the operator sets values.
func (w *world) noteSkips(c *Changes) {
	turned := false
	for _, e := range c.History {
		switch perdure.Verb(e.Event) {
		case perdure.VerbUndo, perdure.VerbRedo, "overdue":
			turned = true
			w.epoch++
		case perdure.VerbEdit, perdure.VerbSettle:
			w.epoch++
		case perdure.VerbSkip:
			w.updateValues(w.plan.Index[e.Step], func(v *stepValues) { v.output = "" })
		}
	}
	for _, ch := range c.Steps {
		briefly := turned && !ch.Now.HasOutput && w.plan.Steps[ch.Now.Index].Test != nil // skipped and then flipped back in one event
		if ch.Now.Skipped && !ch.Loaded.Skipped || briefly {
			w.updateValues(ch.Now.Index, func(v *stepValues) { v.output = "" })
		}
	}
}

// noteReport keeps the output of a report if it is that of the latest run, reported as done while it ran.
func (w *world) noteReport(s *Step, rep *protocol.Report, res protocol.ReportResult) {
	if res.Accepted && s.Phase == perdure.Running && s.Direction == perdure.Do && rep.Outcome == perdure.OutcomeDone {
		w.updateValues(s.Index, func(v *stepValues) { v.output = notNull(rep.Output) })
	}
}

func (w *world) noteAct(s *Step, a *perdure.Act) {
	w.updateValues(s.Index, func(v *stepValues) {
		if a.Verb == perdure.VerbSettle {
			v.setByOperator = true
			if a.Output != nil {
				v.output = notNull(a.Output)
			}
		}
		if a.NewKey {
			v.doKey = ""
		}
		if a.Input != nil {
			v.edit, v.forUndo = string(a.Input), s.Desired == perdure.Undone || s.Current == perdure.Unsure && s.Run > 0 && s.Direction == perdure.Undo
		}
	})
}

func notNull(b []byte) string {
	if string(b) == "null" {
		return ""
	}
	return string(b)
}

func orNullText(s string) string {
	if s == "" {
		return "null"
	}
	return s
}

// expectedInputs returns the inputs that the run may have: usually exactly one.
func (w *world) expectedInputs(i int, run *perdure.Run) []string {
	ps, v := &w.plan.Steps[i], &w.values[i]
	if v.edit != "" && v.forUndo == (run.Direction == perdure.Undo) {
		return []string{v.edit}
	}
	if run.Direction == perdure.Do {
		return []string{w.renderScript(ps.Do.(script), run)}
	}
	if ps.Revert != nil {
		return []string{w.renderScript(ps.Revert.(script), run)}
	}
	if !v.ran {
		return []string{w.renderScript(ps.Do.(script), run)}
	}
	if v.edit != "" {
		// A store keeps one input of a step. An input that the operator gave, and that no run has received yet,
		// replaces that of the latest do run.
		return []string{v.input, w.renderScript(ps.Do.(script), run)}
	}
	return []string{v.input}
}

// renderScript renders an input as script.Render does.
func (w *world) renderScript(s script, run *perdure.Run) string {
	if len(s.secrets) > 0 {
		return s.text
	}
	text := s.text
	for _, name := range s.names {
		text += " " + name + "=" + w.values[w.plan.Index[name]].output
	}
	if s.own {
		step := w.plan.Index[run.Step]
		text += " output=" + orNullText(w.values[step].output) + " key=" + tail(run.Key) + " doKey=" + tail(run.DoKey)
	}
	return strconv.Quote(text)
}

// checkValues compares a run with the values that it must have. s is its step before the run was dispatched.
func (w *world) checkValues(s *Step, run *perdure.Run) {
	w.t.Helper()
	v := w.values[s.Index]
	if may := w.expectedInputs(s.Index, run); !slices.Contains(may, string(run.Input)) {
		w.t.Fatalf("I19: %s run %d %s has input %s, want one of %v", run.Step, run.Number, run.Direction, run.Input, may)
	}
	if run.Direction == perdure.Undo && (string(run.Output) != orNullText(v.output) || v.doKey != "" && run.DoKey != v.doKey) {
		w.t.Fatalf("I19: the undo of %s has output %s and doKey %s, want %s and %s", run.Step, run.Output, run.DoKey, orNullText(v.output), v.doKey)
	}
	if v.key == run.Key && v.epoch == w.epoch && v.keyInput != string(run.Input) && !v.setByOperator {
		w.t.Fatalf("I19: key %s has input %s, and had %s", run.Key, run.Input, v.keyInput)
	}
	w.updateValues(s.Index, func(v *stepValues) {
		v.key, v.keyInput, v.epoch = run.Key, string(run.Input), w.epoch
		if run.Direction == perdure.Undo {
			return
		}
		if s.Direction == perdure.Undo {
			v.output = ""
		}
		if v.forUndo {
			v.edit = ""
		}
		v.ran, v.input, v.doKey = true, string(run.Input), run.Key
	})
}

// checkRepeatedClaim checks that a repeated claim returns the same run, with only those values loaded that the rules
// request.
func (w *world) checkRepeatedClaim(run *perdure.Run, req *protocol.Claim) {
	w.t.Helper()
	ws, i := NewWorkset(w.now, func() float64 { return 1 }), w.index(run.Step)
	j := *w.job
	ws.AddJob(&j, w.plan)
	w.ensureLoaded(ws, i)
	w.loadForClaim(ws, w.ref(i))
	again := w.againIn(ws, w.ref(i), req)
	if again == nil || !reflect.DeepEqual(again, run) {
		w.t.Fatalf("F019: the repeated claim of %s returns %+v, want %+v", run.Step, again, *run)
	}
}
