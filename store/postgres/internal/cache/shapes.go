package cache

import (
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/speed"
)

// Shapes are the shapes that are known to be stored, so that their texts are not sent again, each with its implicit
// steps.
type Shapes struct {
	mu     sync.Mutex
	known  map[kernel.ShapeID][]ImplicitStep
	weight int
	server time.Time // start time of the server that has these shapes; another server may lack some
}

// ImplicitStep is a step that waits for other steps from the beginning. It has no row until it is dispatched or
// otherwise changed: it is read as the row that it would have, which follows from the shape and the job.
type ImplicitStep struct {
	Index    int    `json:"idx"`
	Name     string `json:"name"`
	Blockers int    `json:"blockers"`
}

const (
	maxShapes = 100_000 // counted with their implicit steps
	// MaxImplicit bounds the implicit steps of a shape, because each read of a job reads all of them.
	MaxImplicit = 100
)

// Of returns the implicit steps of a shape; known is false if it may not be stored on this server.
func (s *Shapes) Of(id kernel.ShapeID, server time.Time) (list []ImplicitStep, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, known = s.known[id]
	return list, known && s.server.Equal(server)
}

// Add caches what a committed transaction has written or read.
func (s *Shapes) Add(found map[kernel.ShapeID][]ImplicitStep, server time.Time) {
	if len(found) == 0 || server.IsZero() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || s.weight > maxShapes || !s.server.Equal(server) {
		s.known, s.weight, s.server = map[kernel.ShapeID][]ImplicitStep{}, 0, server
	}
	for id, list := range found {
		s.known[id] = list
		s.weight += 1 + len(list)
	}
}

// implicitSet is a set of indexes of implicit steps.
type implicitSet [(MaxImplicitIndex + 63) / 64]uint64

// MaxImplicitIndex bounds the indexes: of a step with a higher index it is unknown whether it has a row.
const MaxImplicitIndex = 128

func (u *implicitSet) has(place int) bool {
	return place < MaxImplicitIndex && u[place/64]&(1<<(place%64)) != 0
}

func (u *implicitSet) add(place int) {
	if place < MaxImplicitIndex {
		u[place/64] |= 1 << (place % 64)
	}
}

func (u *implicitSet) remove(place int) {
	if place < MaxImplicitIndex {
		u[place/64] &^= 1 << (place % 64)
	}
}

// ImplicitOf returns the steps of a new job that may be implicit; none if there are more than MaxImplicit.
func ImplicitOf(n *kernel.NewJob) (list []ImplicitStep) {
	if !speed.ImplicitRows.On() {
		return nil
	}
	for _, s := range n.Steps {
		if l := (ImplicitStep{s.Index, s.Name, s.Blockers}); l.equals(n.Job, s) {
			if len(list) == MaxImplicit {
				return nil
			}
			list = append(list, l)
		}
	}
	return list
}

// IsImplicit reports whether a new job's step is one of these implicit steps, which are in order.
func IsImplicit(list []ImplicitStep, j *kernel.Job, s *kernel.Step) bool {
	if len(list) == 0 || s.Phase != perdure.Waiting {
		return false
	}
	at, met := slices.BinarySearchFunc(list, s.Index, func(l ImplicitStep, place int) int { return l.Index - place })
	return met && list[at].equals(j, s)
}

// equals reports whether a job's step is exactly what is read for it without a row.
func (l *ImplicitStep) equals(j *kernel.Job, s *kernel.Step) bool {
	return s.Index > 0 && s.Blockers > 0 && j.Phase != perdure.Settled && *s == l.Step(j)
}

// Step returns the step as it is read without a row.
func (l *ImplicitStep) Step(j *kernel.Job) kernel.Step {
	return kernel.InitialStep(j, l.Index, l.Name, l.Blockers)
}
