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
	g.park(*parkedJobs)

	request := func(typ string) operate.BulkRequest {
		return operate.BulkRequest{Act: perdure.VerbUndo, Author: "figures", Reason: "measured", Filter: &operate.BulkFilter{Type: typ, Phase: []perdure.Phase{perdure.Parked}}}
	}
	var none []time.Duration
	for range noMatches {
		began := time.Now()
		v, err := g.node.StartBulk(t.Context(), request("none"))
		if err != nil {
			t.Fatal(err)
		}
		none = append(none, time.Since(began))
		g.eventually("the bulk act is done", func() bool { return g.bulk(v.ID).State == operate.BulkDone })
	}
	slices.Sort(none)
	r.addJudged(t, figure{Part: "bulk", Name: "a bulk act whose filter matches nothing is stored", Value: ms(quantileOf(none, 0.5)), Unit: "ms", Goal: goalNoMatch,
		Detail: fmt.Sprintf("median of %d, up to %s ms", len(none), number(ms(none[len(none)-1])))}, judged)

	began := time.Now()
	v, err := g.node.StartBulk(t.Context(), request("broken"))
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Minute); v.State == operate.BulkRunning && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		v = g.bulk(v.ID)
	}
	took := time.Since(began)
	if v.Done != *parkedJobs || v.Refused != 0 {
		t.Fatalf("%d of %d jobs were undone, %d refused", v.Done, *parkedJobs, v.Refused)
	}
	r.addJudged(t, figure{Part: "bulk", Name: fmt.Sprintf("%d parked jobs undone", *parkedJobs), Value: ms(took), Unit: "ms", Goal: goalBulk, Detail: fmt.Sprintf("%.0f jobs a second", float64(v.Done)/took.Seconds())}, judged)
	g.check()
}

func (g *grid) bulk(id string) *operate.BulkView {
	v, err := g.node.GetBulk(g.t.Context(), id)
	if err != nil {
		g.t.Fatal(err)
	}
	return v
}

// park submits jobs whose only step is rejected, and so parked, by an agent that this test carries itself.
func (g *grid) park(count int) {
	const base = `{"type":"broken","steps":{"s":{"agent":"broken","undo":{}}}}`
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
