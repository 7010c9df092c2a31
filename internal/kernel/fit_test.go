package kernel

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/perdure/perdure"
)

// onlyText is a schema that only texts fit.
type onlyText struct{}

func (onlyText) Check(v json.RawMessage) []ValueFault {
	if v[0] == '"' {
		return nil
	}
	return []ValueFault{{"/a", "no text"}, {"", "wrong"}}
}

// A do run whose output does not fit has failed, and is not tried again: its effect is not known. A repeated report gets the
// same answer (F304).
func TestOutputThatDoesNotFitIsAFailureWithoutRetry(t *testing.T) {
	w := newWorld(t, "a undo attempts 5")
	w.plan.Steps[0].Returns = onlyText{}
	w.submitPlan()
	w.claim("a")
	w.report("a", done, output(`{"a":1}`))
	w.stepIs("a", "unsure parked")
	s := w.step("a")
	w.require(s.Outcome == perdure.OutcomeFailed && s.ErrorCode == "outputInvalid" && strings.HasSuffix(s.LastError, "outputSchema: /a: no text; wrong"), "%s %s: %s", s.Outcome, s.ErrorCode, s.LastError)
	w.require(!s.HasOutput, "the output is kept")
	res := w.tryReport("a", 1, done, output(`{"a":1}`))
	w.require(res.Accepted, "the repeated report is refused: %s", res.Reason)
	res = w.tryReport("a", 1, done, output(`"x"`))
	w.require(!res.Accepted, "another report of the run is accepted")

	err := w.tryAct(perdure.VerbSettle, "a", func(act *perdure.Act) { act.As, act.Output = new(perdure.Done), []byte(`7`) })
	w.require(perdure.CodeOf(err) == perdure.CodeInvalid && strings.Contains(err.Error(), "outputSchema"), "an operator's output: %v", err)
	w.act(perdure.VerbSettle, "a", func(act *perdure.Act) { act.As, act.Output = new(perdure.Done), []byte(`"x"`) })
	w.undo()
	w.claim("a")
	w.report("a", done, output(`7`)) // the schema is that of do runs
	w.jobIs("undone settled")
}

// If the input of a step does not fit, no run is dispatched, and an operator can give another one.
func TestInputThatDoesNotFitIsNotDispatched(t *testing.T) {
	w := newWorld(t, "a secret undo attempts 5")
	w.plan.Steps[0].Accepts = onlyText{}
	w.submitPlan()
	w.cannotClaim("a")
	w.stepIs("a", "undone parked")
	s := w.step("a")
	w.require(s.Run == 0 && s.ErrorCode == "inputInvalid", "run %d, %s: %s", s.Run, s.ErrorCode, s.LastError)
	err := w.tryAct(perdure.VerbResume, "a", input(`7`))
	w.require(perdure.CodeOf(err) == perdure.CodeInvalid && strings.Contains(err.Error(), "inputSchema"), "an operator's input: %v", err)
	w.act(perdure.VerbResume, "a", input(`"x"`))
	w.run("a")
	w.jobIs("done settled")
}

// An output of the job that does not fit is left out, and the job is done.
func TestJobOutputThatDoesNotFit(t *testing.T) {
	w := newWorld(t, "a; output a")
	w.plan.Output = script{text: `{"a":1}`}
	w.plan.Returns = onlyText{}
	w.submitPlan()
	w.run("a")
	w.jobIs("done settled")
	w.require(!w.job.HasOutput && strings.Contains(w.job.OutputError, "outputSchema: /a: no text"), "%q", w.job.OutputError)
}
