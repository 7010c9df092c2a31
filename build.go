package perdure

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// Definable is what a job can be made of: a Definition, or what builds one.
type Definable interface {
	Define() (*Definition, error)
}

// Define implements Definable.
func (d *Definition) Define() (*Definition, error) { return d, nil }

// JobBuilder builds a Definition in Go. It checks nothing: what it has built is checked as a file is, with the
// same refusals, when it is submitted or made a plan of (definition.FromDefinition).
//
//	job := perdure.Define("order").Key("order-1042").Input(order).OnFailure(perdure.UndoRung())
//	job.Step("reserve", "stock").With(map[string]any{"sku": "${input.sku}"}).Undo()
//	job.Step("charge", "payments").After("reserve").With(Charge{Amount: 4200}).Undo()
type JobBuilder struct {
	def   Definition
	steps []*StepBuilder
	chain bool
	err   error // the first value that is no JSON
}

// Define begins a job of this type.
func Define(typ string) *JobBuilder { return &JobBuilder{def: Definition{Type: typ}} }

// Key says under which key this is the same job. Like every text it may hold ${…} of the input.
func (b *JobBuilder) Key(key string) *JobBuilder { b.def.Key = key; return b }

// Priority is 0 to 9, 9 first.
func (b *JobBuilder) Priority(p int) *JobBuilder { b.def.Priority = p; return b }

// Label adds a label.
func (b *JobBuilder) Label(name, value string) *JobBuilder {
	if b.def.Labels == nil {
		b.def.Labels = map[string]string{}
	}
	b.def.Labels[name] = value
	return b
}

// Input is what the job's expressions see as input: anything that is JSON.
func (b *JobBuilder) Input(v any) *JobBuilder { b.def.Input = b.json("input", v); return b }

// OnFailure is the ladder of steps that have none of their own.
func (b *JobBuilder) OnFailure(rungs ...Rung) *JobBuilder { b.def.OnFailure = rungs; return b }

// CompleteWithin is the job's own ultimatum.
func (b *JobBuilder) CompleteWithin(d time.Duration) *JobBuilder {
	b.def.CompleteWithin = Duration(d)
	return b
}

// States gives the two poles names of your own.
func (b *JobBuilder) States(undone, done string) *JobBuilder {
	b.def.States = &StateNames{Undone: undone, Done: done}
	return b
}

// Chain makes each step come after the one before it.
func (b *JobBuilder) Chain() *JobBuilder { b.chain = true; return b }

// Step adds a step, done by this agent.
func (b *JobBuilder) Step(name, agent string) *StepBuilder {
	s := &StepBuilder{job: b, def: StepDefinition{Name: name, Agent: agent}}
	b.steps = append(b.steps, s)
	return s
}

// Define implements Definable.
func (b *JobBuilder) Define() (*Definition, error) {
	d := b.def
	d.Steps = nil
	for i, s := range b.steps {
		step := s.def
		if b.chain && i > 0 {
			step.After = append([]string{b.steps[i-1].def.Name}, step.After...)
		}
		d.Steps = append(d.Steps, step)
	}
	return &d, b.err
}

func (b *JobBuilder) json(what string, v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil && b.err == nil {
		b.err = Refuse(CodeMalformed, "%s of job type %s is not JSON: %v", what, b.def.Type, err)
	}
	return raw
}

// StepBuilder builds one step of a job.
type StepBuilder struct {
	job *JobBuilder
	def StepDefinition
}

// Action is what is asked of the agent; the step's name if nothing is said.
func (s *StepBuilder) Action(name string) *StepBuilder { s.def.Action = name; return s }

// After names the steps that come before this one.
func (s *StepBuilder) After(names ...string) *StepBuilder {
	s.def.After = append(s.def.After, names...)
	return s
}

// When skips the step where the expression is false.
func (s *StepBuilder) When(expression string) *StepBuilder { s.def.When = expression; return s }

// With is the step's input: anything that is JSON. Texts in it may hold ${…}, and are computed when the step is
// let out; what others have written belongs into the job's Input, or goes through Literal.
func (s *StepBuilder) With(v any) *StepBuilder {
	s.def.With = s.job.json(fmt.Sprintf("with of step %s", s.def.Name), v)
	return s
}

// Undo says that the step can be undone: the same agent is asked for the same action, the other way round.
func (s *StepBuilder) Undo() *StepBuilder { return s.UndoBy(UndoDefinition{}) }

// UndoWith is Undo with an input of its own.
func (s *StepBuilder) UndoWith(v any) *StepBuilder {
	return s.UndoBy(UndoDefinition{With: s.job.json(fmt.Sprintf("undo of step %s", s.def.Name), v)})
}

// UndoBy is Undo where more is to be said.
func (s *StepBuilder) UndoBy(d UndoDefinition) *StepBuilder { s.def.Undo = &d; return s }

// CompleteWithin is the ultimatum of each run.
func (s *StepBuilder) CompleteWithin(d time.Duration) *StepBuilder {
	s.def.CompleteWithin = Duration(d)
	return s
}

// Retry is how often and how soon a failed run is tried again.
func (s *StepBuilder) Retry(r Retry) *StepBuilder { s.def.Retry = &r; return s }

// OnFailure is the step's ladder.
func (s *StepBuilder) OnFailure(rungs ...Rung) *StepBuilder { s.def.OnFailure = rungs; return s }

// Step adds the next step of the job.
func (s *StepBuilder) Step(name, agent string) *StepBuilder { return s.job.Step(name, agent) }

// Define implements Definable: it is the whole job.
func (s *StepBuilder) Define() (*Definition, error) { return s.job.Define() }

// Literal is a value of With in which no text is an expression.
func Literal(v any) any { return literal{v} }

type literal struct{ v any }

func (l literal) MarshalJSON() ([]byte, error) {
	raw, err := json.Marshal(l.v)
	return bytes.ReplaceAll(raw, []byte("${"), []byte("$${")), err
}

// The rungs of a ladder.

// ParkRung takes the step out of the loop, until a person has looked at it.
func ParkRung() Rung { return Rung{Kind: RungPark} }

// UndoRung undoes the whole job.
func UndoRung() Rung { return Rung{Kind: RungUndo} }

// SkipRung goes on without the step.
func SkipRung() Rung { return Rung{Kind: RungSkip} }

// WaitRung tries again so much later, so often.
func WaitRung(d time.Duration, times int) Rung {
	return Rung{Kind: RungWait, For: Duration(d), Times: times}
}

// RestartRung undoes the job and does it again, so often over its life.
func RestartRung(times int) Rung { return Rung{Kind: RungRestart, Times: times} }

// AlertRung raises an alert of this name, and goes on to the next rung.
func AlertRung(name string) Rung { return Rung{Kind: RungAlert, Name: name} }
