package postgres

import (
	"sync"

	"perdure"
)

// shapes are those that this process knows to be stored, so that their texts are not sent again and again.
type shapes struct {
	mu    sync.Mutex
	known map[perdure.ShapeID]bool
}

const maxShapes = 100_000

func (s *shapes) has(id perdure.ShapeID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[id]
}

// add notes what a committed transaction has written.
func (s *shapes) add(ids []perdure.ShapeID) {
	if len(ids) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known)+len(ids) > maxShapes {
		s.known = map[perdure.ShapeID]bool{}
	}
	for _, id := range ids {
		s.known[id] = true
	}
}
