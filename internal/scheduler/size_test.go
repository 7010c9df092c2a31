package scheduler_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/protocol"
)

// F033, F034: a job of ten thousand steps, and claims of a thousand runs, do not delay small jobs.
func TestLargeJobDoesNotDelaySmallOnes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		var b strings.Builder
		b.WriteString("type: large\nsteps:\n")
		for i := range perdure.MaxSteps {
			fmt.Fprintf(&b, "  s%d: {agent: a}\n", i)
		}
		large := plan(t, b.String())
		var all sync.WaitGroup
		var slowest time.Duration
		var mu sync.Mutex
		all.Go(func() {
			if _, err := d.Submit(t.Context(), large); err != nil {
				t.Error(err)
			}
		})
		for range 50 {
			all.Go(func() {
				began := time.Now()
				if _, err := d.Submit(t.Context(), plan(t, one)); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				slowest = max(slowest, time.Since(began))
			})
		}
		all.Wait()
		left, longest := perdure.MaxSteps+50, time.Duration(0)
		for left > 0 {
			began := time.Now()
			runs := d.claim(protocol.Claim{Agent: "a", Holder: "h", Max: perdure.MaxBatch})
			longest = max(longest, time.Since(began))
			if len(runs) == 0 {
				t.Fatalf("%d are left", left)
			}
			left -= len(runs)
		}
		t.Logf("slowest small submission %v, longest claim of a thousand %v", slowest, longest)
		if slowest > 20*time.Second || longest > 10*time.Second {
			t.Errorf("slowest small submission %v, longest claim of a thousand %v", slowest, longest)
		}
	})
}
