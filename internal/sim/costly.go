package sim

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/kernel"
)

// If the budget of transactions is small (swarm.renderWork), costly inputs are rendered outside of them (F156). To learn
// which inputs these are, the simulation wraps the templates of all plans.

// compilerOf is a compiler that wraps the templates of the shapes that it compiles for a world.
type compilerOf struct {
	*definition.Compiler
	w *world
}

func (c compilerOf) Compile(text []byte) (*kernel.Shape, error) {
	s, err := c.Compiler.Compile(text)
	if err != nil {
		return nil, err
	}
	return c.w.watch(s), nil
}

func (c compilerOf) Parse(text []byte, f definition.Format, o definition.Options) ([]*definition.Plan, error) {
	plans, err := c.Compiler.Parse(text, f, o)
	for _, p := range plans {
		p.Shape = c.w.watch(p.Shape)
	}
	return plans, err
}

func (c compilerOf) Children(text []byte, values []json.RawMessage) ([]*kernel.Plan, []error) {
	plans, errs := c.Compiler.Children(text, values)
	for i, p := range plans {
		if errs[i] == nil {
			own := *p
			own.Shape = c.w.watch(p.Shape)
			plans[i] = &own
		}
	}
	return plans, errs
}

// watch returns a copy of a shape with wrapped templates. The shape itself is shared with other worlds, and not
// changed.
func (w *world) watch(s *kernel.Shape) *kernel.Shape {
	own := *s
	own.Steps = slices.Clone(s.Steps)
	for i := range own.Steps {
		for _, t := range []*kernel.Template{&own.Steps[i].Do, &own.Steps[i].Revert} {
			if *t != nil {
				*t = watchedTemplate{*t, w, i}
			}
		}
	}
	return &own
}

type watchedTemplate struct {
	kernel.Template
	w    *world
	step int
}

func (t watchedTemplate) Render(s *kernel.Scope) (json.RawMessage, error) {
	out, err := t.Template.Render(s)
	if errors.Is(s.Budget.Err(), kernel.ErrOverBudget) {
		t.w.hit("F156")
		t.w.postponed[kernel.StepRef{Job: s.Job.ID, Index: t.step}] = t.w.Now
	}
	return out, err
}

// postponedBy reports whether a transaction has postponed the input of a step because its budget was too small.
func (w *world) postponedBy(t *watchedTx, ref kernel.StepRef) bool {
	at, ok := w.postponed[ref]
	return ok && at >= t.began
}
