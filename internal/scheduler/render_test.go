package scheduler

import (
	"slices"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/env"
)

// F156: renderings of several agents are taken in turns, however many of one agent came first.
func TestAgentsTakeTurnsAtTheRenderers(t *testing.T) {
	r := newRenderers(env.Real{})
	var all []postponed
	for i, agent := range []string{"a", "a", "a", "b", "c", "b"} {
		key := perdure.RenderingKey{Step: perdure.StepRef{Index: i}}
		all = append(all, postponed{&perdure.Rendering{Key: key}, agent})
	}
	r.put(all)
	var taken []string
	for range all {
		x, ok := r.take()
		if !ok {
			t.Fatal("the renderers are closed")
		}
		taken = append(taken, x.agent)
	}
	if want := []string{"a", "b", "a", "c", "a", "b"}; !slices.Equal(taken, want) {
		t.Errorf("taken in the order %v", taken)
	}
}
