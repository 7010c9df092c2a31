package metrics

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// F158: definitions choose types and agents, and cannot make a node keep an unbounded number of series.
func TestMetricLabelsAreBounded(t *testing.T) {
	m := New("v")
	var counting sync.WaitGroup
	for g := range 4 {
		counting.Go(func() {
			for i := range 500 {
				name := fmt.Sprint("n", (i+g)%500)
				m.Submitted(name)
				m.Settled(name, perdure.Done, time.Second)
				m.Dispatched(name, perdure.Do, time.Second)
				m.Reported(name, perdure.Do, "done", time.Second)
			}
		})
	}
	counting.Wait()
	families, err := m.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "perdure_") {
			continue
		}
		values, others, total := map[string]map[string]bool{}, 0.0, 0.0
		for _, metric := range f.Metric {
			for _, l := range metric.Label {
				if values[l.GetName()] == nil {
					values[l.GetName()] = map[string]bool{}
				}
				values[l.GetName()][l.GetValue()] = true
				if l.GetValue() == otherLabel {
					others += metric.GetCounter().GetValue()
				}
			}
			total += metric.GetCounter().GetValue()
		}
		for label, all := range values {
			if len(all) > maxLabelValues {
				t.Errorf("%s: label %s has %d values", f.GetName(), label, len(all))
			}
		}
		if f.GetName() == "perdure_jobs_submitted_total" || f.GetName() == "perdure_runs_dispatched_total" {
			if seen++; total != 2000 || others != 2000-4*(maxLabelValues-1) {
				t.Errorf("%s: %v in all, %v of others", f.GetName(), total, others)
			}
		}
	}
	if seen != 2 {
		t.Errorf("%d of the counters are there", seen)
	}
}
