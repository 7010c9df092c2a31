package scheduler

import (
	"slices"
	"testing"

	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
)

// F156: agents take turns at the renderers, however many renderings of one agent came first.
func TestAgentsTakeTurnsAtTheRenderers(t *testing.T) {
	r := newRenderers(env.Real{})
	var all []postponed
	for i, agent := range []string{"a", "a", "a", "b", "c", "b"} {
		key := kernel.RenderingKey{Step: kernel.StepRef{Index: i}}
		all = append(all, postponed{&kernel.Rendering{Key: key}, agent})
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
