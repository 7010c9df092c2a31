package kernel

import (
	"encoding/json"
	"errors"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

// The output of a job is rendered from the outputs of its steps when the last of them settles, in the same transaction.
// If that needs more work than the transaction has left, the step stays unsettled and is due at once, as a step whose
// condition is postponed. An error leaves the job done: its work is not undone for the sake of a text.

// outputPending renders the output of a job before step r settles, if r is the last one. It reports whether the step
// cannot settle now, because values are missing or the rendering is postponed.
func (w *Workset) outputPending(e *entry, r *row) bool {
	t := e.plan.Output
	if t == nil || e.job.Desired != perdure.Done || e.job.Unsettled != 1 || r.Phase == perdure.Settled {
		return false
	}
	out, err := w.renderOutput(e, r, t)
	if w.deferAdvance(e, r, err) {
		return true
	}
	text := ""
	if err == nil && e.plan.Returns != nil {
		if found := e.plan.Returns.Check(plain.OrNull(out)); len(found) > 0 {
			err = errors.New("the output does not fit outputSchema: " + faultText(found))
		}
	}
	if err != nil {
		out, text = nil, plain.Clip(err.Error(), perdure.MaxReasonBytes)
	}
	w.setJobOutput(e, meaningful(out), text)
	return false
}

func (w *Workset) renderOutput(e *entry, r *row, t Template) (json.RawMessage, error) {
	if r.readsTooMuch {
		return nil, errReadsTooMuch
	}
	refs := t.Refs()
	scope, err := w.scope(e, r, perdure.Do, nil, refs)
	if err != nil {
		return nil, err
	}
	done, err := w.evaluate(e, &Rendering{Key: RenderingKey{r.StepRef, r.Turn, OfOutput}, template: t, scope: scope, reads: refs})
	if err != nil {
		return nil, err
	}
	return done.Input, done.err
}

// setJobOutput sets the output of a job, and why it has none; nil and "" clear both.
func (w *Workset) setJobOutput(e *entry, out []byte, text string) {
	j := e.job
	if out == nil && !j.HasOutput && text == j.OutputError {
		return
	}
	if out != nil || j.HasOutput {
		e.jobOutput.set(out)
	}
	j.HasOutput, j.OutputError, e.dirty = out != nil, text, true
}

// raiseOutputAlert raises an alert if the job has settled without its output. The job stays settled; the alert is closed by
// an operator, or when the job is undone or redone.
func (w *Workset) raiseOutputAlert(e *entry) {
	if e.job.OutputError != "" {
		w.raiseAlert(e, nil, perdure.AlertOutput, "", "the job is done, but its output could not be computed: "+e.job.OutputError)
	}
}

// collectOutput adds the output of a job to the changes, if it was set.
func (e *entry) collectOutput(c *Changes) {
	out, set := e.jobOutput.collect()
	if !set {
		return
	}
	ref := StepRef{e.job.ID, OutputIndex}
	c.Payloads = append(c.Payloads, PayloadChange{StepRef: ref, SetOutput: true, Output: out})
	c.useArtifacts(e.job.ID, ArtifactsIn(out))
}
