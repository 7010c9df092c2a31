package figures

import (
	"encoding/json"
	"flag"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

var rateTime = flag.Duration("ratetime", time.Second, "how long each rate is measured; from 20s on, the goals are judged")

const (
	fullRateTime = 20 * time.Second
	goalUnused   = 1 // percent of a rate that is not used although enough jobs wait
)

// TestRateFigures measures how much of a rate is used if enough jobs wait for it: of one rate, and of one for each of many
// keys. That a rate is never exceeded is shown by the tests of its rules, and by the simulation.
//
//	make test-rates
func TestRateFigures(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a database server")
	}
	r := &report{}
	t.Cleanup(func() { r.write(t, *out) })
	t.Run("sqlite", func(t *testing.T) { measureRates(t, r, "sqlite:"+filepath.Join(t.TempDir(), "rates.db")) })
	t.Run("postgres", func(t *testing.T) { measureRates(t, r, startPostgres(t)) })
}

func measureRates(t *testing.T, r *report, url string) {
	g := newGrid(t, url)
	r.store = g.kind
	for _, c := range []struct {
		name string
		keys int
		rate int // a second, of each key
		set  perdure.LimitSettings
	}{
		{"slow", 1, 5, perdure.LimitSettings{Rate: "5/s"}},
		{"fast", 1, 500, perdure.LimitSettings{Rate: "500/s"}},
		{"keys", 100, 5, perdure.LimitSettings{PerKey: &perdure.KeyLimit{Rate: "5/s"}}},
	} {
		if _, err := g.node.PutLimit(t.Context(), c.name, c.set); err != nil {
			t.Fatal(err)
		}
		base := fmt.Sprintf(`{"type": %q, "steps": {"call": {"agent": "service", "with": {"last": true}, "limits": [{"name": %q, "key": "${input.k}"}]}}}`, c.name, c.name)
		if c.keys == 1 {
			base = fmt.Sprintf(`{"type": %q, "steps": {"call": {"agent": "service", "with": {"last": true}, "limits": [{"name": %q}]}}}`, c.name, c.name)
		}
		waiting := int((*rateTime + 10*time.Second).Seconds()) * c.rate * c.keys
		values := make([]json.RawMessage, waiting)
		for i := range values {
			values[i] = json.RawMessage(fmt.Sprintf(`{"input": {"k": "k%d"}}`, i%c.keys))
		}
		for len(values) > 0 {
			n := min(len(values), perdure.MaxBatch)
			g.submit(base, values[:n])
			values = values[n:]
		}
		time.Sleep(500 * time.Millisecond) // the bursts of the beginning are over
		first, began := g.finished.Load(), time.Now()
		time.Sleep(*rateTime)
		of := float64(g.finished.Load()-first) / (time.Since(began).Seconds() * float64(c.rate*c.keys))
		r.addJudged(t, figure{Part: "rates", Name: fmt.Sprintf("unused of %d/s for each of %d keys", c.rate, c.keys), Value: 100 * (1 - of), Unit: "%", Goal: goalUnused,
			Detail: fmt.Sprintf("%d of %d jobs waited", waiting-int(g.finished.Load()-first), waiting)}, *rateTime >= fullRateTime)
		if err := g.node.DeleteLimit(t.Context(), c.name); err != nil {
			t.Fatal(err)
		}
		g.eventually("the jobs are done", g.idle)
	}
	g.check()
}

// idle reports whether no job is unsettled.
func (g *grid) idle() bool {
	page, err := g.node.ListJobs(g.t.Context(), perdure.JobQuery{Phases: []perdure.Phase{perdure.Waiting, perdure.Ready, perdure.Running}, Limit: 1})
	if err != nil {
		g.t.Fatal(err)
	}
	return len(page.Items) == 0
}
