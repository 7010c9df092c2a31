package figures

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

var waitingJobs = flag.Int("waiting", 100_000, "jobs of one customer that wait while those of others arrive; from 1,000,000 on, the goals are judged")

const (
	fullWaiting = 1_000_000
	goalFlood   = 1.5  // multiple of the time that the others' jobs need for themselves
	goalLanes   = 1.43 // multiple of the time without many shares: 70 % of the rate

	floodOthers   = 100 // customers beside the one with many jobs
	floodEach     = 10  // their jobs
	floodSlots    = 20
	floodDuration = 50 * time.Millisecond // of a run
	rateClaims    = 4                     // claims at a time while rates are measured
	rateRounds    = 5
)

// TestFairFigures measures how long the jobs of a hundred customers wait beside those of one customer with very many, and what
// ten thousand shares cost.
//
//	make test-fair                          # 1,000,000 jobs wait, on SQLite and PostgreSQL; WAITING=100000 for a tenth
func TestFairFigures(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a database server")
	}
	r := &report{}
	t.Cleanup(func() { r.write(t, *out) })
	for kind, url := range map[string]func(*testing.T) string{
		"sqlite":   func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "fair.db") },
		"postgres": startPostgres,
	} {
		t.Run(kind+" flood", func(t *testing.T) { measureFlood(t, r, url(t)) })
		t.Run(kind+" lanes", func(t *testing.T) { measureLanes(t, r, url(t)) })
	}
}

const fairBase = `{"type":"fair","steps":{"s":{"agent":"fair"}}}`

// flood is an agent's slots, which this test carries itself. It notes when the last job of others was dispatched.
type flood struct {
	g      *grid
	jobs   sync.Map     // of the others, that have not been dispatched
	left   atomic.Int64 // number of them
	runs   atomic.Int64 // dispatched since they began to arrive
	ended  chan struct{}
	onLast sync.Once
}

func measureFlood(t *testing.T, r *report, url string) {
	g := newGrid(t, url)
	r.store = g.kind
	judged := *waitingJobs >= fullWaiting
	g.fairBy("job.labels.customer")
	flooded := *waitingJobs - floodOthers*floodEach // a store takes at most a million unsettled jobs
	spread(flooded/1000, func(int) { g.submit(fairBase, customers(1000, func(int) string { return "flood" })) })

	f := &flood{g: g, ended: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for n := range floodSlots {
		all.Go(func() { f.slot(ctx, fmt.Sprintf("slot-%d", n)) })
	}
	time.Sleep(20 * floodDuration)
	f.runs.Store(0)
	f.left.Store(floodOthers * floodEach)
	began := time.Now()
	for _, id := range g.submit(fairBase, customers(floodOthers*floodEach, func(i int) string { return fmt.Sprint("other-", i%floodOthers) })) {
		f.expect(id)
	}
	select {
	case <-f.ended:
	case <-time.After(10 * time.Minute):
		t.Fatalf("after ten minutes, %d jobs of the others wait", f.left.Load())
	}
	took := time.Since(began)
	alone := floodOthers * floodEach * floodDuration / floodSlots
	runs := f.runs.Load()
	if most := int64(1.5 * floodOthers * floodEach); runs > most && judged {
		t.Errorf("%d runs were dispatched before the last of %d jobs of others", runs, floodOthers*floodEach)
	}
	r.addJudged(t, figure{Part: "fair", Name: fmt.Sprintf("%d customers with %d jobs each, beside one with %d", floodOthers, floodEach, flooded), Value: float64(took) / float64(alone),
		Unit: "× the time of their runs", Goal: goalFlood, Detail: fmt.Sprintf("%s ms, %d runs in all", number(ms(took)), runs)}, judged)
	if *waitingJobs <= maxChecked {
		cancel()
		all.Wait()
		g.check()
	}
}

// expect counts a job of others, unless it was dispatched before its id was known here.
func (f *flood) expect(id perdure.JobID) {
	if _, dispatched := f.jobs.LoadOrStore(id, false); dispatched {
		f.count()
	}
}

func (f *flood) count() {
	if f.left.Add(-1) == 0 {
		f.onLast.Do(func() { close(f.ended) })
	}
}

// slot carries out one run after the other.
func (f *flood) slot(ctx context.Context, holder string) {
	for n := 0; ctx.Err() == nil; n++ {
		runs, err := f.g.node.Claim(ctx, protocol.Claim{Agent: "fair", Holder: holder, Max: 1, Wait: time.Second, RequestID: fmt.Sprint(n)})
		if err != nil {
			if ctx.Err() == nil {
				f.g.t.Error(err)
			}
			return
		}
		for i := range runs {
			run := &runs[i]
			f.runs.Add(1)
			if _, expected := f.jobs.LoadOrStore(run.Job, true); expected {
				f.count()
			}
			time.Sleep(floodDuration)
			f.g.done(holder, runs[i:i+1])
		}
	}
}

// measureLanes compares the rate with ten thousand shares with that of one, and with that of an agent that is not fair, in
// rounds whose order changes.
func measureLanes(t *testing.T, r *report, url string) {
	g := newGrid(t, url)
	r.store = g.kind
	judged := *waitingJobs >= fullWaiting
	shares := min(*waitingJobs/100, 10_000)
	jobs := 4 * shares
	none := func() time.Duration {
		g.fairBy("")
		return g.carryOut(jobs, 1)
	}
	one := func() time.Duration {
		g.fairBy("job.labels.customer")
		return g.carryOut(jobs, 1)
	}
	many := func() time.Duration {
		g.fairBy("job.labels.customer")
		return g.carryOut(jobs, shares)
	}
	one()
	var ratios, cost []float64
	var lines []string
	for round := range rateRounds {
		times := map[string]time.Duration{}
		order := []string{"none", "one", "many"}
		for i := range order {
			switch name := order[(i+round)%len(order)]; name {
			case "none":
				times[name] = none()
			case "one":
				times[name] = one()
			case "many":
				times[name] = many()
			}
		}
		ratios = append(ratios, float64(times["many"])/float64(times["one"]))
		cost = append(cost, float64(times["one"])/float64(times["none"]))
		lines = append(lines, fmt.Sprintf("%.0f/%.0f/%.0f", float64(jobs)/times["none"].Seconds(), float64(jobs)/times["one"].Seconds(), float64(jobs)/times["many"].Seconds()))
	}
	slices.Sort(ratios)
	slices.Sort(cost)
	r.addJudged(t, figure{Part: "fair", Name: fmt.Sprintf("%d shares, compared with one", shares), Value: ratios[len(ratios)/2], Unit: "× the time", Goal: goalLanes,
		Detail: fmt.Sprintf("%.2f to %.2f; jobs a second without fairBy/one share/%d shares: %s", ratios[0], ratios[len(ratios)-1], shares, strings.Join(lines, ", "))}, judged)
	r.addJudged(t, figure{Part: "fair", Name: "one share, compared with an agent without fairBy", Value: cost[len(cost)/2], Unit: "× the time",
		Detail: fmt.Sprintf("%.2f to %.2f", cost[0], cost[len(cost)-1])}, judged)
	if jobs*(3*rateRounds+1) <= maxChecked {
		g.check()
	}
}

// carryOut submits jobs of so many customers, and returns how long it takes to carry them out.
func (g *grid) carryOut(jobs, customersN int) time.Duration {
	const set = 1000
	spread((jobs+set-1)/set, func(n int) {
		g.submit(fairBase, customers(min(set, jobs-n*set), func(i int) string { return fmt.Sprint("customer-", (n*set+i)%customersN) }))
	})
	left := atomic.Int64{}
	left.Store(int64(jobs))
	began := time.Now()
	var all sync.WaitGroup
	for c := range rateClaims {
		all.Go(func() {
			holder := fmt.Sprint("rate-", c)
			for left.Load() > 0 {
				runs, err := g.node.Claim(g.t.Context(), protocol.Claim{Agent: "fair", Holder: holder, Max: 200, Wait: 100 * time.Millisecond})
				if err != nil {
					g.t.Error(err)
					return
				}
				g.done(holder, runs)
				left.Add(-int64(len(runs)))
			}
		})
	}
	all.Wait()
	return time.Since(began)
}

func (g *grid) done(holder string, runs []perdure.Run) {
	if len(runs) == 0 {
		return
	}
	reports := make([]protocol.Report, len(runs))
	for i := range runs {
		reports[i] = protocol.Report{Job: runs[i].Job, Step: runs[i].Step, Run: runs[i].Number, Outcome: perdure.OutcomeDone}
	}
	if _, _, err := g.node.Report(context.WithoutCancel(g.t.Context()), holder, reports, nil); err != nil {
		g.t.Error(err)
	}
}

// fairBy divides the steps of agent fair into shares.
func (g *grid) fairBy(by string) {
	if _, err := g.node.PutAgent(g.t.Context(), "fair", perdure.AgentSettings{Ageing: perdure.Duration(perdure.DefaultAgeing), FairBy: by}); err != nil {
		g.t.Fatal(err)
	}
}

// customers returns n jobs, each with a customer as its label.
func customers(n int, of func(i int) string) []json.RawMessage {
	values := make([]json.RawMessage, n)
	for i := range values {
		values[i] = fmt.Appendf(nil, `{"labels":{"customer":%q}}`, of(i))
	}
	return values
}

// spread calls f for each of n, four at a time.
func spread(n int, f func(int)) {
	var all sync.WaitGroup
	var next atomic.Int64
	for range 4 {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	all.Wait()
}
