package sim

import (
	"encoding/json"
	"errors"
	"slices"

	"perdure"
)

// Where transactions have little work for renderings (swarm.renderWork), these take place outside of them (F156).
// To know which, the templates of all plans are wrapped.

// compilerOf wraps the templates of what is compiled for a world.
type compilerOf struct{ w *world }

func (c compilerOf) Compile(text []byte) (*perdure.Shape, error) {
	s, err := compiler.Compile(text)
	if err != nil {
		return nil, err
	}
	return c.w.watch(s), nil
}

// watch wraps the templates of a shape, which other worlds use, too.
func (w *world) watch(s *perdure.Shape) *perdure.Shape {
	own := *s
	own.Steps = slices.Clone(s.Steps)
	for i := range own.Steps {
		for _, t := range []*perdure.Template{&own.Steps[i].Do, &own.Steps[i].Revert} {
			if *t != nil {
				*t = watchedTemplate{*t, w, i}
			}
		}
	}
	return &own
}

type watchedTemplate struct {
	perdure.Template
	w    *world
	step int
}

func (t watchedTemplate) Render(s *perdure.Scope) (json.RawMessage, error) {
	out, err := t.Template.Render(s)
	if errors.Is(s.Budget.Err(), perdure.ErrOverBudget) {
		t.w.hit("F156")
		t.w.postponed[perdure.StepRef{Job: s.Job.ID, Index: t.step}] = t.w.now
	}
	return out, err
}

// postponedBy says whether a transaction had not enough work for the input of a step.
func (w *world) postponedBy(t *watchedTx, ref perdure.StepRef) bool {
	at, ok := w.postponed[ref]
	return ok && at >= t.began
}
