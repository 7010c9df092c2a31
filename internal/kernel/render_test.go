package kernel

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// costly is a template or condition that costs ten units of work.
type costly struct{ script }

func (d costly) Render(sc *Scope) (json.RawMessage, error) {
	if err := sc.Budget.Spend(10); err != nil {
		return nil, err
	}
	return d.script.Render(sc)
}

func (d costly) Eval(sc *Scope) (bool, error) {
	if err := sc.Budget.Spend(10); err != nil {
		return false, err
	}
	return d.script.Eval(sc)
}

// preparedResults is a set of prepared renderings.
type preparedResults map[RenderingKey]*Rendered

func (s preparedResults) Rendered(key RenderingKey) *Rendered { return s[key] }

func claimWithin(w *world, b *Budget, p Prepared) (run *perdure.Run, err error) {
	w.event(func(ws *Workset) {
		ws.SetBudget(b, p)
		w.ensureLoaded(ws, 1)
		w.loadForClaim(ws, w.ref(1))
		run, err = ws.Claim(w.ref(1), &protocol.Claim{Agent: w.steps[1].Agent, Holder: "host"}, &Admission{}, perdure.MaxAnswerBytes)
	})
	return run, err
}

func little() *Budget {
	return &Budget{Work: 5, Bytes: perdure.MaxAnswerBytes, Read: perdure.MaxReadBytes}
}

// An input that needs more work than the budget has left is rendered outside of the transaction, and the result is used
// (F156). If the values that it was rendered from have changed since, it is not used (F149).
func TestPreparedInputIsUsedIfValuesAreUnchanged(t *testing.T) {
	w := submit(t, "a; b after a reads a")
	w.plan.Steps[1].Do = costly{w.plan.Steps[1].Do.(script)}
	w.run("a")
	before := *w.steps[1]
	_, err := claimWithin(w, little(), preparedResults{})
	var more *Postponed
	if !errors.As(err, &more) || *w.steps[1] != before {
		t.Fatalf("the claim gave %v, and step b is %+v", err, *w.steps[1])
	}
	if _, err := more.Run(little()); !errors.Is(err, ErrOverBudget) {
		t.Errorf("run within a budget that is too small: %v", err)
	}
	done, err := more.Run(&Budget{Work: 100})
	if err != nil {
		t.Fatal(err)
	}
	kept := w.kept[0].Output
	w.kept[0].Output = json.RawMessage(`"another"`)
	if run, err := claimWithin(w, little(), preparedResults{more.Key: done}); !errors.As(err, &more) {
		t.Errorf("a result made of other values: %+v, %v", run, err)
	}
	w.kept[0].Output = kept
	run, err := claimWithin(w, little(), preparedResults{more.Key: done})
	if want, _ := json.Marshal("b a=" + string(kept)); err != nil || run == nil || string(run.Input) != string(want) {
		t.Errorf("the run is %+v, %v", run, err)
	}
}

// A postponed rendering keeps the values of its own step, whatever is rendered after it (F156).
func TestPostponedRenderingsAreIndependent(t *testing.T) {
	w := submit(t, "a; b; c after a reads a; d after b reads b")
	w.run("a")
	w.run("b")
	var inputs []string
	w.event(func(ws *Workset) {
		ws.SetBudget(little(), preparedResults{})
		w.ensureLoaded(ws, 2, 3)
		var all []*Postponed
		for _, i := range []int{2, 3} {
			w.plan.Steps[i].Do = costly{w.plan.Steps[i].Do.(script)}
			w.loadForClaim(ws, w.ref(i))
			_, err := ws.Claim(w.ref(i), &protocol.Claim{Agent: w.steps[i].Agent, Holder: "host"}, &Admission{}, perdure.MaxAnswerBytes)
			var more *Postponed
			if !errors.As(err, &more) {
				t.Fatalf("the claim of step %d gave %v", i, err)
			}
			all = append(all, more)
		}
		for _, more := range all {
			done, err := more.Run(&Budget{Work: 100})
			must(t, err)
			inputs = append(inputs, string(done.Input))
		}
	})
	for i, reads := range []string{"c a=", "d b="} {
		if want, _ := json.Marshal(reads + string(w.kept[i].Output)); inputs[i] != string(want) {
			t.Errorf("rendered %s, want %s", inputs[i], want)
		}
	}
}

// An error of a rendering outside of the transaction fails the step as it does in a transaction.
func TestPreparedErrorFailsStep(t *testing.T) {
	w := submit(t, "a; b after a reads a")
	w.plan.Steps[1].Do = costly{w.plan.Steps[1].Do.(script)}
	w.claim("a")
	w.report("a", done, output(`"bad"`))
	_, err := claimWithin(w, little(), preparedResults{})
	var more *Postponed
	if !errors.As(err, &more) {
		t.Fatalf("the claim gave %v", err)
	}
	fault, err := more.Run(&Budget{Work: 100})
	must(t, err)
	if run, err := claimWithin(w, little(), preparedResults{more.Key: fault}); run != nil || err != nil {
		t.Errorf("the claim gave %+v, %v", run, err)
	}
	if w.steps[1].Phase != perdure.Parked || w.steps[1].LastError != "bad" {
		t.Errorf("step b is %+v", *w.steps[1])
	}
}

// A condition that needs more work than the budget has left makes its step due at once. The next evaluation uses the
// result (F156).
func TestPostponedConditionIsDueAtOnce(t *testing.T) {
	for _, value := range []string{`1`, `null`} {
		w := submit(t, "a; b after a when a")
		w.plan.Steps[1].Test = costly{w.plan.Steps[1].Test.(script)}
		w.claim("a")
		var postponed []*Rendering
		evaluate := func(event func(*Workset), p Prepared) {
			w.event(func(ws *Workset) {
				ws.SetBudget(little(), p)
				w.ensureLoaded(ws, 0, 1)
				event(ws)
				w.settleMissing(ws)
				postponed = ws.Postponed()
			})
		}
		evaluate(func(ws *Workset) {
			ws.Report(w.ref(0), "host", &protocol.Report{Run: 1, Outcome: perdure.OutcomeDone, Output: json.RawMessage(value)})
		}, nil)
		if s := w.steps[1]; s.Phase != perdure.Waiting || !s.AvailableAt.Equal(w.now) || len(postponed) != 1 {
			t.Fatalf("step b is %+v, postponed are %d", *s, len(postponed))
		}
		for _, f := range CheckJob(w.job, w.plan, w.steps, w.alerts, w.now) {
			t.Errorf("%+v", f)
		}
		result, err := postponed[0].Run(&Budget{Work: 100})
		must(t, err)
		w.now = w.now.Add(time.Second)
		evaluate(func(ws *Workset) { ws.Due(w.ref(1)) }, preparedResults{postponed[0].Key: result})
		if s := w.steps[1]; (s.Phase == perdure.Ready) != (value == `1`) || s.Skipped != (value != `1`) {
			t.Errorf("after output %s step b is %+v", value, *s)
		}
	}
}

// If a job's input is stored apart and was not loaded, reading it is an error, and does not give null (F149).
func TestMissingJobInputIsAnError(t *testing.T) {
	shape := &Shape{Common: &Definition{}}
	if p, err := shape.PlanOf(&Job{InputStoredApart: true}, nil); err == nil {
		t.Errorf("a plan was made: %+v", p)
	}
	if p, err := shape.PlanOf(&Job{InputStoredApart: true}, json.RawMessage(`1`)); err != nil || string(p.Definition.Input) != `1` {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := shape.PlanOf(&Job{}, nil); err != nil || p.Definition.Input != nil {
		t.Errorf("%+v, %v", p, err)
	}
}
