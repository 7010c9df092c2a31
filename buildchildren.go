package perdure

import "encoding/json"

// builtOwner are the fields of a step with children.
type builtOwner struct {
	ForEach     json.RawMessage `json:"forEach,omitempty"`
	As          string          `json:"as,omitempty"`
	MaxParallel int             `json:"maxParallel,omitempty"`
	Tolerate    json.RawMessage `json:"tolerate,omitempty"`
	ParkedIs    string          `json:"parkedIs,omitempty"`
	UndoOrder   string          `json:"undoOrder,omitempty"`
	Collect     string          `json:"collect,omitempty"`
	Job         *builtChild     `json:"job,omitempty"`
}

type builtChild struct {
	Definition json.RawMessage `json:"definition"`
	Input      json.RawMessage `json:"input,omitempty"`
	Key        string          `json:"key,omitempty"`
	Wait       *bool           `json:"wait,omitempty"`
	UndoChild  bool            `json:"undoChild,omitempty"`
}

// Child adds a step whose child is a job, or, with ForEach, a job for each item. definition is the name of a stored definition
// ("resize@3"), or a Definable. With sets the input of the job.
//
//	job.Child("resize", "resize@3").ForEach("${steps.list.output}", "image").With(map[string]any{"image": "${image}"})
func (b *JobBuilder) Child(name string, definition any) *StepBuilder {
	s := b.Step(name, "")
	child := &builtChild{}
	switch d := definition.(type) {
	case string:
		child.Definition = b.json("definition of step "+name, d)
	case Definable:
		raw, err := d.Define()
		if err != nil && b.err == nil {
			b.err = err
		}
		child.Definition = raw
	default:
		child.Definition = b.json("definition of step "+name, d)
	}
	s.step.Job = child
	return s
}

// Child adds the next step of the job, as JobBuilder.Child.
func (s *StepBuilder) Child(name string, definition any) *StepBuilder {
	return s.job.Child(name, definition)
}

// ForEach makes the step have a child for each item of a list: a slice, or a text with an expression. as is the name of the
// item in expressions; empty: "item". index is its number. A step of an agent has children that are one run each.
func (s *StepBuilder) ForEach(list any, as string) *StepBuilder {
	s.step.ForEach = s.job.json("forEach of step "+s.name, map[string]any{"in": list})
	s.step.As = as
	return s
}

// ForRange is ForEach with the whole numbers from first up to the one before end. Each is a number, or a text with an
// expression.
func (s *StepBuilder) ForRange(first, end any, as string) *StepBuilder {
	s.step.ForEach = s.job.json("forEach of step "+s.name, map[string]any{"range": []any{first, end}})
	s.step.As = as
	return s
}

// MaxParallel sets how many children of ForEach are unsettled at a time. The default is 100.
func (s *StepBuilder) MaxParallel(n int) *StepBuilder { s.step.MaxParallel = n; return s }

// Tolerate sets how many children of ForEach may fail: a number, or a share such as "1%". The default is none.
func (s *StepBuilder) Tolerate(failed any) *StepBuilder {
	s.step.Tolerate = s.job.json("tolerate of step "+s.name, map[string]any{"failed": failed})
	return s
}

// ParkedIsFailed makes a child that is parked count as failed, and undoes it.
func (s *StepBuilder) ParkedIsFailed() *StepBuilder { s.step.ParkedIs = "failed"; return s }

// UndoReversed makes the children of ForEach be undone from the last to the first.
func (s *StepBuilder) UndoReversed() *StepBuilder { s.step.UndoOrder = "reverse"; return s }

// CollectList adds the outputs of the children of ForEach to that of the step.
func (s *StepBuilder) CollectList() *StepBuilder { s.step.Collect = "list"; return s }

// ChildKey sets the key of the child. With ForEach it contains ${…} of the item.
func (s *StepBuilder) ChildKey(key string) *StepBuilder {
	s.child("ChildKey").Key = key
	return s
}

// WithoutWaiting makes the step done when its children are submitted. With undoChild, the undo of the step undoes them.
func (s *StepBuilder) WithoutWaiting(undoChild bool) *StepBuilder {
	c := s.child("WithoutWaiting")
	c.Wait, c.UndoChild = new(bool), undoChild
	return s
}

// child returns the job of a step that Child has added.
func (s *StepBuilder) child(method string) *builtChild {
	if s.step.Job == nil {
		if s.job.err == nil {
			s.job.err = Refuse(CodeInvalid, "%s of step %s: Child has not added it", method, s.name)
		}
		return &builtChild{}
	}
	return s.step.Job
}

// built returns the step as its definition has it.
func (s *StepBuilder) built() builtStep {
	step := s.step
	if step.Job != nil {
		child := *step.Job
		child.Input, step.With = step.With, nil
		step.Job = &child
	}
	return step
}
