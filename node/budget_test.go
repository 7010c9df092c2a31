package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/racedetector"
	"github.com/perdure/perdure/node"
)

// budget is what a step may cost from its submission to its last report, in allocations and bytes of this process: about
// half as much again as it does. Time is not measured, because it depends on the other users of the machine. These
// figures are the same everywhere, and show a gross regression.
var budget = map[string]map[string]struct{ allocs, bytes float64 }{
	"one":   {"memory": {110, 23_000}, "sqlite": {55, 19_000}, "postgres": {60, 25_000}},
	"three": {"memory": {90, 20_000}, "sqlite": {38, 17_000}, "postgres": {48, 24_000}},
	"wide":  {"memory": {70, 15_000}, "sqlite": {27, 13_000}, "postgres": {36, 20_000}},
}

func TestAllocationBudget(t *testing.T) {
	racedetector.Skip(t)
	shapes := map[string]string{
		"one":   `{"type":"one","input":{"n":1},"steps":{"s":{"agent":"a","with":{"n":"${input.n}"}}}}`,
		"three": `{"type":"three","flow":"chain","steps":{"a":{"agent":"a"},"b":{"agent":"a"},"c":{"agent":"a"}}}`,
		"wide":  wide(500),
	}
	for name, text := range shapes {
		t.Run(name, func(t *testing.T) {
			everystore.Run(t, func(t *testing.T, store kernel.Store) {
				storeName := strings.TrimPrefix(t.Name(), "TestAllocationBudget/"+name+"/")
				max := budget[name][storeName]
				allocs, bytes := cost(t, store, text)
				t.Logf("%.0f allocations and %.0f bytes a step", allocs, bytes)
				if allocs > max.allocs || bytes > max.bytes {
					t.Errorf("%.0f allocations and %.0f bytes a step; the budget is %.0f and %.0f", allocs, bytes, max.allocs, max.bytes)
				}
			})
		})
	}
}

// wide returns a definition with n parallel steps and a join.
func wide(n int) string {
	var steps, names []string
	for i := range n {
		steps = append(steps, fmt.Sprintf(`"s%d":{"agent":"a"}`, i))
		names = append(names, fmt.Sprintf(`"s%d"`, i))
	}
	return `{"type":"wide","steps":{` + strings.Join(steps, ",") + `,"join":{"agent":"a","after":[` + strings.Join(names, ",") + `]}}}`
}

// cost runs some thousand steps in jobs of this shape, submitted in groups, and counts.
func cost(t *testing.T, store kernel.Store, text string) (allocs, bytes float64) {
	a := perdure.NewAgent("a")
	a.Slots = 1000
	a.HandleAny(func(context.Context, *perdure.Run) (json.RawMessage, error) { return nil, nil })
	n := start(t, store, node.Config{Agents: []*perdure.Agent{a}})
	compiler := &definition.Compiler{}
	plans, err := compiler.Parse([]byte(text), definition.JSON, definition.Options{})
	if err != nil {
		t.Fatal(err)
	}
	jobs := 4000/len(plans[0].Steps) + 1
	round := func() {
		set := make([]*kernel.Plan, jobs)
		for i := range set {
			if set[i], err = compiler.With(plans[0], definition.Values{Input: json.RawMessage(`{"n":7}`)}); err != nil {
				t.Fatal(err)
			}
		}
		for len(set) > 0 {
			part := min(500, len(set))
			if _, err := n.SubmitPlans(t.Context(), set[:part]); err != nil {
				t.Fatal(err)
			}
			set = set[part:]
		}
		for left := 1; left > 0; time.Sleep(5 * time.Millisecond) {
			if left, err = store.Backlog(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	round() // allocates what is kept from then on
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	round()
	runtime.ReadMemStats(&after)
	steps := float64(jobs * len(plans[0].Steps))
	return float64(after.Mallocs-before.Mallocs) / steps, float64(after.TotalAlloc-before.TotalAlloc) / steps
}
