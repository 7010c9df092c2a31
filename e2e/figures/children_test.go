package figures

import (
	"encoding/json"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
)

var childJobs = flag.Int("children", 3000, "children of one step; from 100,000 on, the goals are judged")

const (
	fullChildren   = 100_000
	childrenRounds = 3
	goalOfJobs     = 1.5  // the time of N children, in that of N jobs
	goalUndoOfDo   = 2.5  // the time of their undo, in that of their do; docs/performance.md says why it is not 1
	goalOwner      = 2.0  // for 1,000 children
	goalHeap       = 64.0 // MiB that N children need more than N/4
)

// TestChildrenFigures compares a step with N children to N jobs of the same definition, on PostgreSQL, in interleaved rounds.
//
//	make test-children                      # 100,000 children; CHILDREN=10000 for a tenth
func TestChildrenFigures(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a database server")
	}
	r := &report{}
	t.Cleanup(func() { r.write(t, *out) })
	url := startPostgres(t)
	g := newGrid(t, url)
	r.store = g.kind
	n := *childJobs
	judged := n >= fullChildren
	written := g.countOwnerWrites()

	g.independent(n / 10) // once, so that plans and caches exist
	g.family(n / 10)
	var jobs, children, undo, ratios, undoRatios []float64
	var owners int64
	for range childrenRounds {
		jobs = append(jobs, seconds(func() { g.independent(n) }))
		before := written()
		var parent string
		children = append(children, seconds(func() { parent = g.family(n) }))
		owners = written() - before
		undo = append(undo, seconds(func() { g.undoFamily(parent) }))
		i := len(jobs) - 1
		ratios, undoRatios = append(ratios, children[i]/jobs[i]), append(undoRatios, undo[i]/children[i])
		t.Logf("%d jobs in %.1f s; %d children in %.1f s, undone in %.1f s; the row of the owner was written %d times", n, jobs[i], n, children[i], undo[i], owners)
	}
	small := g.heapDuring(func() { g.family(n / 4) })
	large := g.heapDuring(func() { g.family(n) })

	detail := func(v []float64) string {
		return fmt.Sprintf("median of %d, %.2f to %.2f", len(v), slices.Min(v), slices.Max(v))
	}
	name := fmt.Sprintf("%d children", n)
	r.addJudged(t, figure{Part: "children", Name: name + " of one step, in the time of as many jobs", Value: middle(ratios), Unit: "times", Goal: goalOfJobs,
		Detail: fmt.Sprintf("%s; %.0f children a second", detail(ratios), float64(n)/middle(children))}, judged)
	r.addJudged(t, figure{Part: "children", Name: name + " undone, in the time of their do", Value: middle(undoRatios), Unit: "times", Goal: goalUndoOfDo, Detail: detail(undoRatios)}, judged)
	r.addJudged(t, figure{Part: "children", Name: "writes of the row of the owner for 1,000 children", Value: 1000 * float64(owners) / float64(n), Unit: "writes", Goal: goalOwner,
		Detail: fmt.Sprintf("%d writes for %d children", owners, n)}, judged)
	r.addJudged(t, figure{Part: "children", Name: fmt.Sprintf("heap that %s need more than a quarter of them", name), Value: max(large-small, 0), Unit: "MiB", Goal: goalHeap,
		Detail: fmt.Sprintf("%.0f MiB and %.0f MiB", large, small)}, judged)
	if n <= maxChecked/10 {
		g.check()
	}
}

func seconds(f func()) float64 {
	began := time.Now()
	f()
	return time.Since(began).Seconds()
}

func middle(v []float64) float64 {
	sorted := slices.Sorted(slices.Values(v))
	return sorted[len(sorted)/2]
}

const oneStep = `{"type":"one","onFailure":"undo","steps":{"s":{"agent":"service","with":{"last":true,"first":true},"undo":{}}}}`

// independent submits n jobs, and waits until all are done.
func (g *grid) independent(n int) {
	g.t.Helper()
	g.finished.Store(0)
	for left := n; left > 0; left -= 1000 {
		values := make([]json.RawMessage, min(left, 1000))
		for i := range values {
			values[i] = json.RawMessage(`{}`)
		}
		g.submit(oneStep, values)
	}
	g.until(n)
}

func (g *grid) until(n int) {
	g.t.Helper()
	for end := time.Now().Add(30 * time.Minute); g.finished.Load() < int64(n); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			g.t.Fatalf("%d of %d jobs have ended", g.finished.Load(), n)
		}
	}
}

// family submits a job whose only step has n children, and waits until it is done.
func (g *grid) family(n int) (id string) {
	g.t.Helper()
	job := g.submit(fmt.Sprintf(`{"type":"family","steps":{"s":{"forEach":{"range":[0,%d]},"maxParallel":10000,"job":{"definition":%s}}}}`, n, oneStep), []json.RawMessage{json.RawMessage(`{}`)})[0]
	g.settled(job.String(), perdure.Done)
	return job.String()
}

func (g *grid) undoFamily(id string) {
	g.t.Helper()
	if _, err := g.node.Act(g.t.Context(), id, perdure.Act{Verb: perdure.VerbUndo, Author: "figures"}); err != nil {
		g.t.Fatal(err)
	}
	g.settled(id, perdure.Undone)
}

func (g *grid) settled(id string, as perdure.State) {
	g.t.Helper()
	for end := time.Now().Add(30 * time.Minute); ; {
		v, err := g.node.Job(g.t.Context(), id, perdure.MaxJobWait)
		if err != nil {
			g.t.Fatal(err)
		}
		if v.Phase == perdure.Settled && v.Current == as {
			return
		}
		if v.Phase == perdure.Parked || time.Now().After(end) {
			g.t.Fatalf("job %s is %s, %s", id, v.Current, v.Phase)
		}
	}
}

// countOwnerWrites returns a function that returns how often what steps record of their children was written.
func (g *grid) countOwnerWrites() func() int64 {
	g.t.Helper()
	query := func(sql string) (n int64) {
		conn, err := pgx.Connect(g.t.Context(), g.url)
		if err != nil {
			g.t.Fatal(err)
		}
		defer conn.Close(g.t.Context())
		if err := conn.QueryRow(g.t.Context(), sql).Scan(&n); err != nil {
			g.t.Fatal(err)
		}
		return n
	}
	for _, sql := range []string{
		`create sequence owner_writes`,
		`create function note_owner_write() returns trigger language plpgsql as $$ begin perform nextval('owner_writes'); return new; end $$`,
		`create trigger note_owner_write after update on perdure.step for each row when (old.children is distinct from new.children) execute function note_owner_write()`,
	} {
		conn, err := pgx.Connect(g.t.Context(), g.url)
		if err != nil {
			g.t.Fatal(err)
		}
		if _, err := conn.Exec(g.t.Context(), sql); err != nil {
			g.t.Fatal(err)
		}
		conn.Close(g.t.Context())
	}
	return func() int64 { return query(`select last_value from owner_writes`) }
}

// heapDuring returns the most MiB in use on the heap while f runs, after a collection at the beginning.
func (g *grid) heapDuring(f func()) float64 {
	var most atomic.Uint64
	stop := make(chan struct{})
	ended := make(chan struct{})
	runtime.GC()
	go func() {
		defer close(ended)
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most.Store(max(most.Load(), m.HeapInuse))
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	f()
	close(stop)
	<-ended
	return float64(most.Load()) / (1 << 20)
}
