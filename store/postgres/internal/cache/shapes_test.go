package cache

import (
	"testing"
	"time"

	"github.com/perdure/perdure/internal/kernel"
)

// F016: a shape that one server has stored may be missing on another one, which has taken its place.
func TestShapesAreKnownOfOneServer(t *testing.T) {
	var s Shapes
	first, second := time.Unix(1, 0), time.Unix(2, 0)
	id, other := kernel.ShapeID{1}, kernel.ShapeID{2}
	s.Add(map[kernel.ShapeID][]ImplicitStep{id: {{Index: 1}}}, first)
	if list, known := s.Of(id, first); !known || len(list) != 1 {
		t.Errorf("on its server: %v, %v", list, known)
	}
	if _, known := s.Of(id, second); known {
		t.Error("the shape is known on another server")
	}
	s.Add(map[kernel.ShapeID][]ImplicitStep{other: nil}, second)
	for shape, want := range map[kernel.ShapeID]bool{id: false, other: true} {
		if _, known := s.Of(shape, second); known != want {
			t.Errorf("after the change of the server, shape %v is known: %v", shape[0], known)
		}
	}
}
