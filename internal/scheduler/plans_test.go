package scheduler

import (
	"fmt"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/racedetector"
)

// F158: the caches of compiled definitions and of inputs are bounded in bytes.
func TestMemoryOfDefinitionsIsBounded(t *testing.T) {
	racedetector.Skip(t)
	compiler := &definition.Compiler{}
	p := newPlans(compiler)
	sum := 0
	for n := 0; sum < 2*shapeCacheBytes; n++ {
		// Many expressions in little text, so that the size of the text says nothing about the memory.
		body := fmt.Sprintf(`{"type":"t%d","steps":{"a":{"agent":"a","with":["${job.id}"%s]}}}`, n, strings.Repeat(`,"${job.id}"`, 20_000))
		plans, err := compiler.Parse([]byte(body), definition.JSON, definition.Options{})
		if err != nil {
			t.Fatal(err)
		}
		shape, err := p.compile(plans[0].ID, plans[0].Text)
		if err != nil {
			t.Fatal(err)
		}
		if shape.Size < 10*len(shape.Text) {
			t.Fatalf("%d bytes are counted for a text of %d", shape.Size, len(shape.Text))
		}
		sum += shape.Size
		if got := p.shapes.Bytes(); got > shapeCacheBytes || got < min(sum, shapeCacheBytes-shape.Size) {
			t.Fatalf("after %d bytes: %d bytes of definitions are kept, want at most %d", sum, got, shapeCacheBytes)
		}
	}
	for n := range 3 * inputCacheBytes / perdure.MaxPayloadBytes {
		p.inputs.Put(perdure.JobID{byte(n)}, make([]byte, perdure.MaxPayloadBytes))
		if got := p.inputs.Bytes(); got > inputCacheBytes {
			t.Fatalf("%d bytes of inputs are kept, want at most %d", got, inputCacheBytes)
		}
	}
}
