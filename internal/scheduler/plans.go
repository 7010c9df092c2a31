package scheduler

import (
	"context"
	"encoding/json"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/lru"
)

// Bounds of the memory for cached definitions and inputs of jobs.
const (
	shapeCacheBytes      = 64 << 20
	inputCacheBytes      = 32 << 20
	definitionCacheBytes = 16 << 20
)

// plans compiles and caches the definitions of jobs.
type plans struct {
	compiler    kernel.Compiler
	shapes      *lru.Cache[kernel.ShapeID, *kernel.Shape]
	inputs      *lru.Cache[perdure.JobID, json.RawMessage] // inputs that are stored apart from the job's row
	definitions *lru.Cache[string, json.RawMessage]        // stored definitions of children, by name and version
}

func newPlans(c kernel.Compiler) *plans {
	return &plans{compiler: c,
		shapes:      lru.New[kernel.ShapeID](shapeCacheBytes, func(s *kernel.Shape) int { return s.Size }),
		inputs:      lru.New[perdure.JobID](inputCacheBytes, func(b json.RawMessage) int { return len(b) + 100 }),
		definitions: lru.New[string](definitionCacheBytes, func(b json.RawMessage) int { return len(b) + 200 })}
}

// compile compiles a stored definition. If that fails, only the jobs with this definition are affected (F077).
func (p *plans) compile(id kernel.ShapeID, text []byte) (*kernel.Shape, error) {
	s, err := p.compiler.Compile(text)
	if err == nil && s.ID != id {
		err = errWrongText
	}
	if err != nil {
		return nil, perdure.Refuse(perdure.CodeUnavailable, "the stored definition %x cannot be read: %v", id, err)
	}
	p.shapes.Put(s.ID, s)
	return s, nil
}

var errWrongText = perdure.Refuse(perdure.CodeUnavailable, "the text does not match its hash")

// Shape returns the compiled definition of a job, from the cache or the store.
func (s *Scheduler) Shape(ctx context.Context, j *kernel.Job) (*kernel.Shape, error) {
	return s.ShapeByID(ctx, j.Shape)
}

// ShapeByID returns a compiled definition, from the cache or the store.
func (s *Scheduler) ShapeByID(ctx context.Context, id kernel.ShapeID) (*kernel.Shape, error) {
	if shape, ok := s.plans.shapes.Get(id); ok {
		return shape, nil
	}
	text, err := s.cfg.Store.Shape(ctx, id)
	if err != nil {
		return nil, err
	}
	if text == nil {
		return nil, perdure.Refuse(perdure.CodeNotFound, "there is no definition with the hash %x", id)
	}
	return s.plans.compile(id, text)
}

// Plan returns the plan of a job, with its input.
func (s *Scheduler) Plan(ctx context.Context, j *kernel.Job) (*kernel.Plan, error) {
	shape, err := s.Shape(ctx, j)
	if err != nil {
		return nil, err
	}
	var input json.RawMessage
	if j.InputStoredApart {
		if input, _, err = s.cfg.Store.Input(ctx, j.ID, perdure.MaxPayloadBytes); err != nil {
			return nil, err
		}
	}
	return shape.PlanOf(j, input)
}

// plan returns the plan of a locked job, from its parts. It quarantines the job and returns nil if its definition cannot
// be read.
func (b *batch) plan(j *kernel.Job, p *parts) *kernel.Plan {
	shape := p.shapes[j.Shape]
	if shape == nil {
		var err error
		if shape, err = b.s.plans.compile(j.Shape, p.texts[j.Shape]); err != nil {
			return b.quarantineUnreadable(j, err)
		}
		p.shapes[j.Shape] = shape
	}
	plan, err := shape.PlanOf(j, p.inputs[j.ID])
	if err != nil {
		return b.quarantineUnreadable(j, err)
	}
	return plan
}

func (b *batch) quarantineUnreadable(j *kernel.Job, err error) *kernel.Plan {
	b.s.log.Error("job quarantined: its definition cannot be read", "job", j.ID, "error", err)
	b.s.quarantineJob(j.ID, err)
	return nil
}

// parts are the definitions and inputs of some jobs.
type parts struct {
	shapes map[kernel.ShapeID]*kernel.Shape // nil if texts has the definition, not compiled yet
	texts  map[kernel.ShapeID][]byte
	inputs map[perdure.JobID]json.RawMessage
}

func (b *batch) parts(jobs []*kernel.Job) (p *parts, err error) {
	p = &parts{shapes: map[kernel.ShapeID]*kernel.Shape{}, inputs: map[perdure.JobID]json.RawMessage{}}
	var unknown []kernel.ShapeID
	var apart []perdure.JobID
	for _, j := range jobs {
		if _, seen := p.shapes[j.Shape]; !seen {
			shape, known := b.s.plans.shapes.Get(j.Shape)
			if p.shapes[j.Shape] = shape; !known {
				unknown = append(unknown, j.Shape)
			}
		}
		if j.InputStoredApart {
			if in, known := b.s.plans.inputs.Get(j.ID); known {
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
			b.s.plans.inputs.Put(id, in)
		}
	}
	return p, nil
}
