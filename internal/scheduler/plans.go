package scheduler

import (
	"container/list"
	"context"
	"sync"

	"perdure"
)

// planCacheBytes bounds what compiled plans may take, roughly: a hint, made again from the store.
const planCacheBytes = 32 << 20

// planCache keeps the plans of the jobs met last.
type planCache struct {
	compiler perdure.Compiler

	mu    sync.Mutex
	plans map[perdure.JobID]*list.Element
	order *list.List // of *cached, latest first
	size  int
}

type cached struct {
	id   perdure.JobID
	plan *perdure.Plan
	size int
}

func newPlanCache(c perdure.Compiler) *planCache {
	return &planCache{compiler: c, plans: map[perdure.JobID]*list.Element{}, order: list.New()}
}

func (c *planCache) get(id perdure.JobID) *perdure.Plan {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.plans[id]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*cached).plan
}

func (c *planCache) put(id perdure.JobID, p *perdure.Plan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.plans[id] != nil {
		return
	}
	size := planSize(p)
	c.plans[id] = c.order.PushFront(&cached{id, p, size})
	c.size += size
	for c.size > planCacheBytes && c.order.Len() > 1 {
		last := c.order.Remove(c.order.Back()).(*cached)
		delete(c.plans, last.id)
		c.size -= last.size
	}
}

// planSize is about what a plan takes: its text, the tree made of it, and programs for each step.
func planSize(p *perdure.Plan) int { return 8*len(p.Canonical) + 4096 + 4096*len(p.Steps) }

// drop forgets the plan of a job that has settled: the next that needs it is a person, and rare.
func (c *planCache) drop(id perdure.JobID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.plans[id]; e != nil {
		c.size -= c.order.Remove(e).(*cached).size
		delete(c.plans, id)
	}
}

// Plan is a job's plan, read from the store where it is not at hand; not found where the job is not there.
func (s *Scheduler) Plan(ctx context.Context, id perdure.JobID) (*perdure.Plan, error) {
	if p := s.plans.get(id); p != nil {
		return p, nil
	}
	text, err := s.cfg.Store.Definition(ctx, id)
	if err != nil {
		return nil, err
	}
	if text == nil {
		return nil, perdure.Refuse(perdure.CodeNotFound, "there is no job %s", id)
	}
	return s.plans.compile(id, text)
}

// compile makes a job's plan from its stored definition. One that cannot be compiled concerns its own
// job alone (F077).
func (c *planCache) compile(id perdure.JobID, definition []byte) (*perdure.Plan, error) {
	p, err := c.compiler.Compile(definition)
	if err != nil {
		return nil, perdure.Refuse(perdure.CodeUnavailable, "the stored definition of %s cannot be read: %v", id, err)
	}
	c.put(id, p)
	return p, nil
}
