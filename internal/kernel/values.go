package kernel

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/perdure/perdure/internal/plain"
)

// A workset has the two large values of a step, its input and its output, only if they were loaded or set in the same
// transaction. A value that is not loaded never reads as null: each accessor returns the value, or the error NotLoaded.

// value is an input or an output, and whether the workset has it.
type value struct {
	state valueState
	json  json.RawMessage    // nil: the step has none
	sum   *[sha256.Size]byte // of json; nil: not computed yet
}

type valueState uint8

const (
	valueNotLoaded valueState = iota
	valueLoaded               // equal to the stored value, as of the saves of this transaction
	valueSet                  // changed, and not returned by Changes yet
)

// values are the input and the output of a step.
type values struct{ input, output value }

// load stores loaded values, unless the workset has newer ones.
func (v *values) load(p *Payload) {
	v.input.load(p.Input)
	v.output.load(p.Output)
}

func (v *value) load(stored []byte) {
	if v.state == valueNotLoaded {
		*v = value{state: valueLoaded, json: stored}
	}
}

// set changes a value.
func (v *value) set(json []byte) { *v = value{state: valueSet, json: json} }

// collect appends a value that was set to the changes. The value stays loaded.
func (v *values) collect(ref StepRef, c *Changes) {
	if v.input.state != valueSet && v.output.state != valueSet {
		return
	}
	change := PayloadChange{StepRef: ref}
	change.Input, change.SetInput = v.input.collect()
	change.Output, change.SetOutput = v.output.collect()
	c.Payloads = append(c.Payloads, change)
	c.useArtifacts(ref.Job, ArtifactsIn(change.Input))
	c.useArtifacts(ref.Job, ArtifactsIn(change.Output))
}

func (v *value) collect() (json []byte, set bool) {
	if v.state != valueSet {
		return nil, false
	}
	v.state = valueLoaded
	return v.json, true
}

// NotLoaded is the error of a rule that reads a value which is not loaded. Nothing has changed: load the payloads of
// these steps (AddPayloads), and call the rule again.
type NotLoaded struct{ Steps []StepRef }

func (n *NotLoaded) Error() string {
	return fmt.Sprintf("inputs and outputs of %d steps are not loaded, the first is step %d of job %s", len(n.Steps), n.Steps[0].Index, n.Steps[0].Job)
}

// missingValue is the error for a value that must exist according to the step's row, but that the store does not have.
type missingValue struct {
	ref  StepRef
	name string
}

func (m *missingValue) Error() string {
	return fmt.Sprintf("the store does not have the %s of step %d of job %s, which its row names", m.name, m.ref.Index, m.ref.Job)
}

// valuesOf returns the values of step i. Until the row of the step is loaded, they are kept in valuesWithoutRow.
func (e *entry) valuesOf(i int) *values {
	if r := e.steps.at(i); r != nil {
		return &r.values
	}
	v := e.valuesWithoutRow[i]
	if v == nil {
		v = &values{}
		if e.valuesWithoutRow == nil {
			e.valuesWithoutRow = map[int]*values{}
		}
		e.valuesWithoutRow[i] = v
	}
	return v
}

// output returns the stored output of step i; nil if it has none.
func (e *entry) output(i int) (json.RawMessage, error) {
	r := e.steps.at(i)
	switch {
	case r == nil && e.valuesWithoutRow[i] == nil:
		return nil, &NotLoaded{Steps: []StepRef{{e.job.ID, i}}}
	case r == nil:
		return e.loadedValue(i, "output", e.valuesWithoutRow[i].output, false)
	case !r.HasOutput:
		return nil, nil
	}
	return e.loadedValue(i, "output", r.values.output, true)
}

// input returns the stored input of a step that has one (OwnInput).
func (e *entry) input(r *row) (json.RawMessage, error) {
	return e.loadedValue(r.Index, "input", r.values.input, true)
}

// loadedValue returns a value that is loaded. named means that the value must exist, according to the step's row.
func (e *entry) loadedValue(i int, name string, v value, named bool) (json.RawMessage, error) {
	ref := StepRef{e.job.ID, i}
	switch {
	case v.state == valueNotLoaded:
		return nil, &NotLoaded{Steps: []StepRef{ref}}
	case named && v.json == nil:
		return nil, &missingValue{ref, name}
	}
	return v.json, nil
}

// outputs returns the outputs of several steps by name, null for a step that has none. If some are not loaded, the
// error names all of them.
func (e *entry) outputs(refs []int) (map[string]json.RawMessage, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	all := make(map[string]json.RawMessage, len(refs))
	var missing NotLoaded
	for _, i := range refs {
		out, err := e.output(i)
		if err := missing.gather(err); err != nil {
			return nil, err
		}
		all[e.plan.Steps[i].Name] = plain.OrNull(out)
	}
	return all, missing.orNil()
}

// gather adds the steps of err, if it is a NotLoaded, and returns any other error.
func (n *NotLoaded) gather(err error) error {
	if err == nil {
		return nil
	}
	var more *NotLoaded
	if !errors.As(err, &more) {
		return err
	}
	n.Steps = append(n.Steps, more.Steps...)
	return nil
}

// orNil returns n as an error; nil if nothing was missing.
func (n NotLoaded) orNil() error {
	if len(n.Steps) == 0 {
		return nil
	}
	return &NotLoaded{n.Steps}
}

// setOutput sets the output of a do run; nil deletes it.
func (w *Workset) setOutput(r *row, out []byte) {
	if out != nil || r.HasOutput {
		r.HasOutput, r.dirty = out != nil, true
		r.values.output = value{state: valueSet, json: out}
	}
}

// setInput sets an input that cannot be rendered again from the definition alone; nil deletes it.
func (w *Workset) setInput(r *row, in []byte) {
	if in != nil || r.OwnInput {
		r.OwnInput, r.dirty = in != nil, true
		r.values.input = value{state: valueSet, json: in}
	}
}
