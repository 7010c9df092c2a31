package kernel

import (
	"encoding/json"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

// KeptValues are the values of a job that a view has read.
type KeptValues struct {
	Job       *Job
	Steps     []*Step // all steps of the job, in order
	Shape     *Shape
	Input     json.RawMessage // the input of the job
	InputRead bool            // false: Input was not read
	Payloads  map[int]SizedPayload
	Budget    *Budget // for inputs that are rendered again; once it is used up, no more are rendered
}

// input returns the stored input, or its size if it was not read.
func (p *SizedPayload) input() (in json.RawMessage, bytes int) {
	if p.Input != nil {
		return p.Input, 0
	}
	return nil, p.InputBytes
}

// output returns the stored output of a step; known is false if it was not read.
func (k *KeptValues) output(i int) (out json.RawMessage, known bool) {
	if !k.Steps[i].HasOutput {
		return plain.OrNull(nil), true
	}
	out = k.Payloads[i].Output
	return out, out != nil
}

// InputOf returns the input of step i for a view: that of its latest run or, after an edit, of its next run. An input
// that was not stored is rendered again if all values that it depends on were read and have not changed. If there is
// nothing to show, in is nil; bytes is the size of a stored input that was not read.
func (k *KeptValues) InputOf(i int) (in json.RawMessage, bytes int) {
	s, ps, kept := k.Steps[i], &k.Shape.Steps[i], k.Payloads[i]
	switch {
	case s.Edited == editedFor(s.nextDirection()):
		return kept.input()
	case s.Edited == editedDo || s.Edited == editedUndo:
		return nil, 0 // the edit is not for the next run, and may have replaced the input of the latest run
	case s.asksForApproval(ps):
		return k.renderRequest(ps.Do), 0
	case s.Run == 0:
		return nil, 0
	case s.Direction == perdure.Undo && ps.Revert != nil:
		return k.renderUndo(s, ps.Revert), 0
	case s.OwnInput:
		return kept.input()
	case ps.Do == nil:
		return plain.OrNull(nil), 0
	case s.Direction == perdure.Undo:
		return k.renderUndo(s, ps.Do), 0
	case len(ps.Do.Refs()) > 0:
		return nil, 0
	}
	return k.render(ps.Do, &Scope{}), 0
}

// InputRefs returns the other steps whose outputs InputOf needs to render the input of step i.
func (k *KeptValues) InputRefs(i int) []int {
	s, ps := k.Steps[i], &k.Shape.Steps[i]
	if request := ps.Do; s.asksForApproval(ps) {
		return request.Refs()
	}
	switch {
	case s.Direction != perdure.Undo || s.Run == 0:
		return nil
	case ps.Revert != nil:
		return ps.Revert.Refs()
	case s.OwnInput || ps.Do == nil:
		return nil
	}
	return ps.Do.Refs()
}

// asksForApproval reports whether the step is an approval, with a message or a role, that waits for an operator now.
func (s *Step) asksForApproval(ps *PlanStep) bool {
	return ps.Form == ByApproval && ps.Do != nil && s.Phase == perdure.Waiting && s.Blockers == 0 && s.Desired == perdure.Done && !s.StartedAt.IsZero()
}

// renderRequest renders what an approval asks. The steps before it are settled, so their outputs are final.
func (k *KeptValues) renderRequest(t Template) json.RawMessage {
	scope := &Scope{Outputs: map[string]json.RawMessage{}}
	for _, ref := range t.Refs() {
		out, known := k.output(ref)
		if !known {
			return nil
		}
		scope.Outputs[k.Steps[ref].Name] = out
	}
	return k.render(t, scope)
}

// renderUndo renders the input of an undo again, which was the latest run of the step. The values that it reads must
// not have changed since then. The step's own output has not changed if this run led to the present state of the step.
// Outputs of other steps change when these are done again, settled by an operator or skipped. If such a change
// has the same time as the start of the run, its order is not known, and nothing is rendered.
func (k *KeptValues) renderUndo(s *Step, t Template) json.RawMessage {
	own, known := k.output(s.Index)
	byRun := s.Current == perdure.Unsure || s.Current == perdure.Undone && s.Outcome == perdure.OutcomeDone
	if !known || !byRun || s.StartedAt.IsZero() {
		return nil
	}
	scope := &Scope{Outputs: map[string]json.RawMessage{}, Output: own, Key: s.Key(), DoKey: s.DoKey()}
	for _, ref := range t.Refs() {
		out, known := k.output(ref)
		if !known || !k.Steps[ref].UpdatedAt.Before(s.StartedAt) {
			return nil
		}
		scope.Outputs[k.Steps[ref].Name] = out
	}
	return k.render(t, scope)
}

// render returns nil if values that it needs were not read, or if rendering fails.
func (k *KeptValues) render(t Template, scope *Scope) json.RawMessage {
	if !k.InputRead {
		return nil
	}
	scope.Job, scope.Input, scope.Budget = k.Job, k.Input, k.Budget
	in, err := bounded(t.Render(scope))
	if err != nil {
		return nil
	}
	return in
}
