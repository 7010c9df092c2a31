package scheduler

import (
	"context"
	"encoding/json"

	"perdure"
)

// Bounds of what is kept of definitions.
const (
	shapeCacheBytes = 64 << 20
	inputCacheBytes = 32 << 20
)

// plans makes the plans of jobs from what the store keeps of their definitions.
type plans struct {
	compiler perdure.Compiler
	shapes   *cache[perdure.ShapeID, *perdure.Shape]
	inputs   *cache[perdure.JobID, json.RawMessage] // those that are apart
}

func newPlans(c perdure.Compiler) *plans {
	return &plans{compiler: c,
		shapes: newCache[perdure.ShapeID](shapeCacheBytes, shapeSize),
		inputs: newCache[perdure.JobID](inputCacheBytes, func(b json.RawMessage) int { return len(b) + 100 })}
}

// shapeSize is about what a shape takes: its text, the tree made of it, and programs for each step.
func shapeSize(s *perdure.Shape) int { return 8*len(s.Text) + 4096 + 4096*len(s.Steps) }

// compile makes a shape of its stored text. One that cannot be compiled concerns its own jobs alone (F077).
func (p *plans) compile(job *perdure.Job, text []byte) (*perdure.Shape, error) {
	s, err := p.compiler.Compile(text)
	if err == nil && s.ID != job.Shape {
		err = errExchanged
	}
	if err != nil {
		return nil, perdure.Refuse(perdure.CodeUnavailable, "the stored definition of %s cannot be read: %v", job.ID, err)
	}
	p.shapes.put(s.ID, s)
	return s, nil
}

var errExchanged = perdure.Refuse(perdure.CodeUnavailable, "it is not the text that was stored")

// Plan is the plan of a job, read from the store where it is not at hand.
func (s *Scheduler) Plan(ctx context.Context, j *perdure.Job) (*perdure.Plan, error) {
	shape, ok := s.plans.shapes.get(j.Shape)
	if !ok {
		text, err := s.cfg.Store.Shape(ctx, j.Shape)
		if err != nil {
			return nil, err
		}
		if shape, err = s.plans.compile(j, text); err != nil {
			return nil, err
		}
	}
	p := shape.PlanOf(j)
	if j.Apart {
		in, err := s.cfg.Store.Input(ctx, j.ID)
		if err != nil {
			return nil, err
		}
		p.Definition.Input = in
	}
	return p, nil
}

// plan makes the plan of a job that is locked, once its parts were looked up (parts); nil where it cannot
// be read: the job is left alone.
func (b *batch) plan(j *perdure.Job, p *parts) *perdure.Plan {
	shape := p.shapes[j.Shape]
	if shape == nil {
		var err error
		if shape, err = b.s.plans.compile(j, p.texts[j.Shape]); err != nil {
			b.s.log.Error("a job is left alone: its definition cannot be read", "job", j.ID, "error", err)
			b.s.isolate(j.ID, err)
			return nil
		}
		p.shapes[j.Shape] = shape
	}
	plan := shape.PlanOf(j)
	if j.Apart {
		plan.Definition.Input = p.inputs[j.ID]
	}
	return plan
}

// parts are what the plans of some jobs are made of.
type parts struct {
	shapes map[perdure.ShapeID]*perdure.Shape // nil: to be compiled of texts
	texts  map[perdure.ShapeID][]byte
	inputs map[perdure.JobID]json.RawMessage
}

func (b *batch) parts(jobs []*perdure.Job) (p *parts, err error) {
	p = &parts{shapes: map[perdure.ShapeID]*perdure.Shape{}, inputs: map[perdure.JobID]json.RawMessage{}}
	var unknown []perdure.ShapeID
	var apart []perdure.JobID
	for _, j := range jobs {
		if _, seen := p.shapes[j.Shape]; !seen {
			shape, known := b.s.plans.shapes.get(j.Shape)
			if p.shapes[j.Shape] = shape; !known {
				unknown = append(unknown, j.Shape)
			}
		}
		if j.Apart {
			if in, known := b.s.plans.inputs.get(j.ID); known {
				p.inputs[j.ID] = in
			} else {
				apart = append(apart, j.ID)
			}
		}
	}
	if len(unknown) > 0 {
		if p.texts, err = b.tx.Shapes(unknown); err != nil {
			return nil, err
		}
	}
	if len(apart) > 0 {
		found, err := b.tx.Inputs(apart)
		if err != nil {
			return nil, err
		}
		for id, in := range found {
			p.inputs[id] = in
			b.s.plans.inputs.put(id, in)
		}
	}
	return p, nil
}
