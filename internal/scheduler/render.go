package scheduler

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/lru"
)

// A transaction renders inputs and conditions within a small budget, because all other requests wait for it (F156). If a
// rendering takes more, it is postponed: a renderer evaluates it outside of any transaction, and then wakes the claims
// for its agent or, for a condition, the supervisor. The next transaction uses the result, if the values that it was
// rendered from are unchanged.
const (
	maxWork      = 1 << 17  // units of work in one part of a transaction: its requests, each due scan, and its claims (shared by the agents) are parts
	maxBytes     = 32 << 20 // bytes of inputs and outputs that a transaction dispatches
	maxPostponed = 16       // bound on renderings that wait for a renderer
	sourceBytes  = 64 << 20 // bytes of values that waiting renderings keep in memory; there is always room for one rendering
	resultBytes  = 32 << 20 // bytes of rendered inputs that have not been used yet
	wakeEvery    = 50 * time.Millisecond
)

// budget returns the rendering budget for one part of a transaction. It is smaller while renderers are busy, so that
// costly renderings are postponed early.
func (s *Scheduler) budget() *kernel.Budget {
	work := s.cfg.RenderWork
	if s.renderers.busy() {
		work /= 8
	}
	return &kernel.Budget{Work: work, Full: s.cfg.RenderWork, Bytes: maxBytes, Read: perdure.MaxReadBytes}
}

// unbounded returns the budget for runs of a repeated claim: they were bounded when they were granted.
func unbounded() *kernel.Budget {
	return &kernel.Budget{Work: math.MaxInt, Bytes: math.MaxInt, Read: math.MaxInt}
}

// postponed is a postponed rendering and the agent that waits for it. For a condition, the agent is empty.
type postponed struct {
	*kernel.Rendering
	agent string
}

// renderers holds the postponed renderings and their results.
type renderers struct {
	results *lru.Cache[kernel.RenderingKey, *kernel.Rendered]

	env         env.Env
	mu          sync.Mutex
	wake        sync.Cond
	waiting     []postponed
	latestAgent string                       // agent of the rendering that was taken last
	pending     map[kernel.RenderingKey]bool // waiting, or being rendered
	bytes       int                          // size of the values that these keep
	leftOut     map[string]bool              // agents with renderings for which there was no room
	closed      bool
}

func newRenderers(e env.Env) *renderers {
	r := &renderers{env: e, pending: map[kernel.RenderingKey]bool{}, leftOut: map[string]bool{},
		results: lru.New[kernel.RenderingKey](resultBytes, func(x *kernel.Rendered) int { return len(x.Input) + 500 })}
	r.wake.L = &r.mu
	return r
}

// Rendered implements kernel.Prepared.
func (r *renderers) Rendered(key kernel.RenderingKey) *kernel.Rendered {
	x, _ := r.results.Get(key)
	return x
}

func (r *renderers) busy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pending) > 0
}

// put queues renderings while there is room. The next transaction postpones the others again.
func (r *renderers) put(all []postponed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range all {
		switch {
		case r.pending[x.Key]:
		case len(r.pending) > 0 && (len(r.pending) >= maxPostponed || r.bytes+x.Size() > sourceBytes):
			r.leftOut[x.agent] = true
		default:
			r.pending[x.Key] = true
			r.bytes += x.Size()
			r.waiting = append(r.waiting, x)
			r.wake.Signal()
		}
	}
}

// take waits for the next rendering. Agents take turns. ok is false once the renderers are closed.
func (r *renderers) take() (x postponed, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.closed && len(r.waiting) == 0 {
		r.env.WaitCond(&r.wake)
	}
	if r.closed {
		return x, false
	}
	i := max(0, slices.IndexFunc(r.waiting, func(x postponed) bool { return x.agent != r.latestAgent }))
	x = r.waiting[i]
	r.waiting = slices.Delete(r.waiting, i, i+1)
	r.latestAgent = x.agent
	return x, true
}

// done removes a rendering. If no other one waits, it returns the agents whose renderings had no room. more is true if
// other renderings of the same agent wait.
func (r *renderers) done(x postponed) (left []string, more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pending, x.Key)
	r.bytes -= x.Size()
	for _, other := range r.waiting {
		more = more || other.agent == x.agent
	}
	if len(r.waiting) == 0 {
		left = slices.Sorted(maps.Keys(r.leftOut))
		clear(r.leftOut)
	}
	return left, more
}

func (r *renderers) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.wake.Broadcast()
}

// render is a renderer: it evaluates postponed renderings until the renderers are closed.
func (s *Scheduler) render(ctx context.Context) {
	var woken time.Time
	for x, ok := s.renderers.take(); ok; x, ok = s.renderers.take() {
		s.renderOne(ctx, x.Rendering)
		s.meter.RenderedOutside(x.agent)
		left, more := s.renderers.done(x)
		if now := s.env.Now(); !more || now.Sub(woken) >= wakeEvery {
			woken = now
			s.rendered(append(left, x.agent))
		} else if len(left) > 0 {
			s.rendered(left)
		}
	}
}

// renderOne evaluates one rendering and keeps the result. If it panics, it panics again in the transaction, which
// quarantines the job.
func (s *Scheduler) renderOne(ctx context.Context, x *kernel.Rendering) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("panic while rendering an input", "step", x.Key.Step.Index, "job", x.Key.Step.Job, "error", p)
			s.quarantineJob(x.Key.Step.Job, errPanic)
		}
	}()
	b := &kernel.Budget{Work: math.MaxInt, Stop: ctx.Err}
	if result, err := x.Run(b); err == nil {
		s.renderers.results.Put(x.Key, result)
	}
}

var errPanic = errors.New("internal error while an input was rendered")

// rendered wakes the claims of these agents or, for a condition, the supervisor.
func (s *Scheduler) rendered(agents []string) {
	for _, agent := range agents {
		if agent == "" {
			s.cfg.OnWait(s.env.Now())
			continue
		}
		s.queue.Wake([]string{agent})
	}
}
