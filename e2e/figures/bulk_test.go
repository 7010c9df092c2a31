package figures

import (
	"encoding/json"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
)

var parkedJobs = flag.Int("parked", 500, "parked jobs that a bulk act undoes; from 100,000 on, the goals are judged")

const (
	fullParked  = 100_000
	goalBulk    = 60_000 // milliseconds, for fullParked jobs on two cores
	goalNoMatch = 50     // milliseconds, until a bulk act whose filter matches nothing is stored
	goalLive    = 10     // percent, by which a bulk act lowers the rate of other jobs
	liveRate    = 1000   // other jobs a second
	noMatches   = 20
)

// TestBulkFigures measures how long a bulk act takes to undo many parked jobs, and to find that a filter matches none.
//
//	make test-bulk                          # 100,000 parked jobs, on SQLite and PostgreSQL; PARKED=10000 for a tenth
func TestBulkFigures(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a database server")
	}
	r := &report{}
	t.Cleanup(func() { r.write(t, *out) })
	t.Run("sqlite", func(t *testing.T) { measureBulk(t, r, "sqlite:"+filepath.Join(t.TempDir(), "bulk.db")) })
	t.Run("postgres", func(t *testing.T) { measureBulk(t, r, startPostgres(t)) })
}

func measureBulk(t *testing.T, r *report, url string) {
	g := newGrid(t, url)
	r.store = g.kind
	judged := *parkedJobs >= fullParked
	g.park("broken", *parkedJobs)

	request := func(typ string) operate.BulkRequest {
		return operate.BulkRequest{Act: perdure.VerbUndo, Author: "figures", Reason: "measured", Filter: &operate.BulkFilter{Type: typ, Phase: []perdure.Phase{perdure.Parked}}}
	}
	var none []time.Duration
	for range noMatches {
		began := time.Now()
		v := g.startBulk(request("none"))
		none = append(none, time.Since(began))
		g.eventually("the bulk act is done", func() bool { return g.bulk(v.ID).State == operate.BulkDone })
	}
	slices.Sort(none)
	r.addJudged(t, figure{Part: "bulk", Name: "a bulk act whose filter matches nothing is stored", Value: ms(quantileOf(none, 0.5)), Unit: "ms", Goal: goalNoMatch,
		Detail: fmt.Sprintf("median of %d, up to %s ms", len(none), number(ms(none[len(none)-1])))}, judged)

	before := g.finished.Load()
	stop := g.load(liveRate)
	time.Sleep(time.Second) // the load has begun
	began, first := time.Now(), g.finished.Load()
	v := g.startBulk(request("broken"))
	g.eventually("the bulk act is done", func() bool { return g.bulk(v.ID).State == operate.BulkDone })
	took := time.Since(began)
	live := float64(g.finished.Load()-first) / took.Seconds()
	submitted := stop()
	if v = g.bulk(v.ID); v.Done != *parkedJobs || v.Refused != 0 {
		t.Fatalf("%d of %d jobs were undone, %d refused", v.Done, *parkedJobs, v.Refused)
	}
	g.eventually("the load is over", func() bool { return g.finished.Load()-before >= int64(submitted) })
	r.addJudged(t, figure{Part: "bulk", Name: fmt.Sprintf("%d parked jobs undone beside %d other jobs a second", *parkedJobs, liveRate), Value: ms(took), Unit: "ms", Goal: goalBulk,
		Detail: fmt.Sprintf("%.0f jobs a second", float64(v.Done)/took.Seconds())}, judged)
	r.addJudged(t, figure{Part: "bulk", Name: fmt.Sprintf("%d other jobs a second fall meanwhile by", liveRate), Value: 100 * (1 - live/liveRate), Unit: "%", Goal: goalLive}, judged)

	turns, length := 2, 500*time.Millisecond
	if judged {
		turns, length = 9, 4*time.Second
	}
	g.park("later", *parkedJobs)
	v = g.startBulk(request("later"))
	var without, with, falls []float64
	met, beside := 0, time.Duration(0)
	for range turns {
		if _, err := g.node.StopBulk(t.Context(), v.ID, "figures"); err != nil {
			t.Fatal(err)
		}
		a, before := g.throughput(length), g.bulk(v.ID).Done
		if _, err := g.node.ResumeBulk(t.Context(), v.ID, "figures"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		b := g.throughput(length)
		met, beside = met+g.bulk(v.ID).Done-before, beside+time.Since(began)
		if g.bulk(v.ID).State == operate.BulkDone {
			break
		}
		without, with, falls = append(without, a), append(with, b), append(falls, 100*(1-b/a))
	}
	if len(falls) > 0 {
		slices.Sort(without)
		slices.Sort(with)
		slices.Sort(falls)
		middle := len(falls) / 2
		r.addJudged(t, figure{Part: "bulk", Name: "as many other jobs as the node can carry out fall beside a bulk act by", Value: falls[middle], Unit: "%", Goal: goalLive,
			Detail: fmt.Sprintf("median of %d turns of %s, %.0f to %.0f %%; without %.0f jobs/s, with %.0f, and the bulk act undoes %.0f jobs a second", len(falls), length,
				falls[0], falls[len(falls)-1], without[middle], with[middle], float64(met)/beside.Seconds())}, judged)
	}
	began, left := time.Now(), *parkedJobs-g.bulk(v.ID).Done
	g.eventually("the bulk act is done", func() bool { return g.bulk(v.ID).State == operate.BulkDone })
	r.addJudged(t, figure{Part: "bulk", Name: fmt.Sprintf("%d parked jobs undone without other jobs", left), Value: ms(time.Since(began)), Unit: "ms", Goal: goalBulk,
		Detail: fmt.Sprintf("%.0f jobs a second", float64(left)/time.Since(began).Seconds())}, judged)
	g.check()
}

func (g *grid) startBulk(r operate.BulkRequest) *operate.BulkView {
	v, err := g.node.StartBulk(g.t.Context(), r)
	if err != nil {
		g.t.Fatal(err)
	}
	return v
}

func (g *grid) bulk(id string) *operate.BulkView {
	v, err := g.node.GetBulk(g.t.Context(), id)
	if err != nil {
		g.t.Fatal(err)
	}
	return v
}

// park submits jobs whose only step is rejected, and so parked, by an agent that this test carries itself.
func (g *grid) park(typ string, count int) {
	base := fmt.Sprintf(`{"type":%q,"steps":{"s":{"agent":"broken","undo":{}}}}`, typ)
	for left := count; left > 0; left -= 1000 {
		values := make([]json.RawMessage, min(left, 1000))
		for i := range values {
			values[i] = json.RawMessage(`{}`)
		}
		g.submit(base, values)
		for reported := 0; reported < len(values); {
			runs, err := g.node.Claim(g.t.Context(), protocol.Claim{Agent: "broken", Holder: "figures", Max: perdure.MaxBatch, Wait: time.Second})
			if err != nil {
				g.t.Fatal(err)
			}
			reports := make([]protocol.Report, len(runs))
			for i := range runs {
				reports[i] = protocol.Report{Job: runs[i].Job, Step: runs[i].Step, Run: runs[i].Number, Outcome: perdure.OutcomeRejected, Effect: protocol.EffectNone, Error: &perdure.RunError{Code: "broken", Message: "rejected"}}
			}
			if len(reports) == 0 {
				continue
			}
			if _, _, err := g.node.Report(g.t.Context(), "figures", reports, nil); err != nil {
				g.t.Fatal(err)
			}
			reported += len(runs)
		}
	}
}
