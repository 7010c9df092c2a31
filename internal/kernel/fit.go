package kernel

import (
	"encoding/json"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/protocol"
)

// Inputs and outputs that do not fit the schemas of their step.

const (
	codeInputInvalid  = "inputInvalid"
	codeOutputInvalid = "outputInvalid"
)

// checkOutput returns a report as it counts. A do run whose output does not fit the step's schema has failed, and is not
// tried again (unfit): it may have had its effect, and would return the same. The result is the same if the report is
// repeated.
func (w *Workset) checkOutput(e *entry, r *row, rep *protocol.Report) (_ *protocol.Report, unfit bool) {
	s := e.plan.Steps[r.Index].Returns
	if s == nil || rep.Outcome != perdure.OutcomeDone || r.Direction != perdure.Do || rep.Run != r.Run {
		return rep, false
	}
	found := s.Check(plain.OrNull(meaningful(rep.Output)))
	if len(found) == 0 {
		return rep, false
	}
	failed := *rep
	failed.Outcome, failed.Output, failed.Effect = perdure.OutcomeFailed, nil, protocol.EffectUnknown
	failed.Error = &perdure.RunError{Code: codeOutputInvalid, Message: "the output does not fit outputSchema: " + faultText(found)}
	return &failed, true
}

// failInput fails a step whose input does not fit its schema. No run is dispatched.
func (w *Workset) failInput(e *entry, r *row, d perdure.Direction, input json.RawMessage) bool {
	s := e.plan.Steps[r.Index].Accepts
	if s == nil || d == perdure.Undo {
		return false
	}
	found := s.Check(input)
	if len(found) == 0 {
		return false
	}
	w.failBeforeRun(e, r, failure{event: "rejected", code: codeInputInvalid, final: true,
		message: plain.Clip("the input does not fit inputSchema: "+faultText(found), perdure.MaxReasonBytes)})
	return true
}

// misfit returns the refusal of a value that an operator gives, or nil.
func misfit(what string, r *row, found []ValueFault) error {
	if len(found) == 0 {
		return nil
	}
	return perdure.Refuse(perdure.CodeInvalid, "the %s does not fit the %sSchema of step %s: %s", what, what, r.Name, faultText(found))
}

// faultText lists faults in one line.
func faultText(found []ValueFault) (text string) {
	for i, f := range found {
		if i > 0 {
			text += "; "
		}
		if f.Pointer != "" {
			text += f.Pointer + ": "
		}
		text += f.Message
	}
	return text
}
