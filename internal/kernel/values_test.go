package kernel

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// The values of a world as its agents and its operator know them (I19, F149). In every test of the rules that claims,
// each run is compared with the values that it must have.

// stepValues are those of one step.
type stepValues struct {
	output  string // as it was reported or given by the operator; "": null
	ran     bool   // a do run was dispatched,
	input   string // with this,
	doKey   string // under this key; "": the operator says that it had no effect
	edit    string // an input that the operator gave; "": none
	forUndo bool   // that is for undo runs
	hand    bool   // the operator said what the step is

	key   string // of the latest run,
	under string // the input that came with it,
	epoch int    // and the world's epoch then
}

// remember changes the values of a step. Copies of a world share the values, so they are not changed in place.
func (w *world) remember(i int, change func(*stepValues)) {
	w.values = slices.Clone(w.values)
	change(&w.values[i])
}

// keepSkips: a step that is skipped has no output. epoch counts what may change the input that goes with a key: the job
// turns, or the operator gives values.
func (w *world) keepSkips(c *Changes) {
	turned := false
	for _, e := range c.History {
		switch perdure.Verb(e.Event) {
		case perdure.VerbUndo, perdure.VerbRedo, "overdue":
			turned = true
			w.epoch++
		case perdure.VerbEdit, perdure.VerbSettle:
			w.epoch++
		case perdure.VerbSkip:
			w.remember(w.plan.Index[e.Step], func(v *stepValues) { v.output = "" })
		}
	}
	for _, ch := range c.Steps {
		briefly := turned && !ch.Now.HasOutput && w.plan.Steps[ch.Now.Index].Test != nil // and the job has turned twice since
		if ch.Now.Skipped && !ch.Was.Skipped || briefly {
			w.remember(ch.Now.Index, func(v *stepValues) { v.output = "" })
		}
	}
}

// keepReport: an output counts if it is the latest run's, reported as done while it ran.
func (w *world) keepReport(s *Step, rep *protocol.Report, res protocol.ReportResult) {
	if res.Accepted && s.Phase == perdure.Running && s.Direction == perdure.Do && rep.Outcome == perdure.OutcomeDone {
		w.remember(s.Index, func(v *stepValues) { v.output = notNull(rep.Output) })
	}
}

func (w *world) keepAct(s *Step, a *perdure.Act) {
	w.remember(s.Index, func(v *stepValues) {
		if a.Verb == perdure.VerbSettle {
			v.hand = true
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

// mustGive returns the inputs that the run may be given: usually exactly one.
func (w *world) mustGive(i int, run *perdure.Run) []string {
	ps, v := &w.plan.Steps[i], &w.values[i]
	if v.edit != "" && v.forUndo == (run.Direction == perdure.Undo) {
		return []string{v.edit}
	}
	if run.Direction == perdure.Do {
		return []string{w.inWords(ps.Do.(script), run)}
	}
	if ps.Revert != nil {
		return []string{w.inWords(ps.Revert.(script), run)}
	}
	if !v.ran {
		return []string{w.inWords(ps.Do.(script), run)}
	}
	if v.edit != "" {
		// A store keeps one input of a step. An input that the operator gave, and that no run has received yet,
		// replaces that of the latest do run.
		return []string{v.input, w.inWords(ps.Do.(script), run)}
	}
	return []string{v.input}
}

// inWords writes an input as the script does; see script.
func (w *world) inWords(s script, run *perdure.Run) string {
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

// given compares a run with the values that it must have. s is its step before the run was dispatched.
func (w *world) given(s *Step, run *perdure.Run) {
	w.t.Helper()
	v := w.values[s.Index]
	if may := w.mustGive(s.Index, run); !slices.Contains(may, string(run.Input)) {
		w.t.Fatalf("I19: %s run %d %s is given %s, not %v", run.Step, run.Number, run.Direction, run.Input, may)
	}
	if run.Direction == perdure.Undo && (string(run.Output) != orNullText(v.output) || v.doKey != "" && run.DoKey != v.doKey) {
		w.t.Fatalf("I19: the undo of %s is given output %s and doKey %s, not %s and %s", run.Step, run.Output, run.DoKey, orNullText(v.output), v.doKey)
	}
	if v.key == run.Key && v.epoch == w.epoch && v.under != string(run.Input) && !v.hand {
		w.t.Fatalf("I19: key %s comes with %s, and came with %s", run.Key, run.Input, v.under)
	}
	w.remember(s.Index, func(v *stepValues) {
		v.key, v.under, v.epoch = run.Key, string(run.Input), w.epoch
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

// sameAgain checks that a repeated claim returns the same run, with only those values loaded that the rules request.
func (w *world) sameAgain(run *perdure.Run, req *protocol.Claim) {
	w.t.Helper()
	ws, i := NewWorkset(w.now, func() float64 { return 1 }), w.index(run.Step)
	j := *w.job
	ws.AddJob(&j, w.plan)
	w.need(ws, i)
	w.loadForClaim(ws, w.ref(i))
	again := w.againIn(ws, w.ref(i), req)
	if again == nil || fmt.Sprintf("%+v", *again) != fmt.Sprintf("%+v", *run) {
		w.t.Fatalf("F019: the claim of %s is repeated, and gives %+v after %+v", run.Step, again, *run)
	}
}
