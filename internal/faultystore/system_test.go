package faultystore_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/agenthost"
	"github.com/perdure/perdure/internal/faultystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/internal/supervisor"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/store/memory"
	"github.com/perdure/perdure/store/sqlite"
)

var (
	seeds = flag.Int("seeds", 150, "how many seeds on the store in memory")
	seed  = flag.Uint64("seed", 0, "one seed alone")
)

// kinds are the definitions of the jobs: orders, joins, ladders, limits.
var kinds = []string{
	`{type: chain, flow: chain, onFailure: undo, steps: {a: {agent: x, undo: {}, with: {n: 1}}, b: {agent: y, undo: {}, with: {was: "${steps.a.output}"}}, c: {agent: x, undo: {}}}}`,
	`{type: diamond, onFailure: [{restart: 1}, undo], steps: {top: {agent: x, undo: {}}, left: {agent: y, after: [top], undo: {}}, right: {agent: x, after: [top], undo: {}}, end: {agent: y, after: [left, right], undo: {}}}}`,
	`{type: ladder, flow: chain, onFailure: [{wait: 30s, times: 1}, {restart: 2}, park], steps: {a: {agent: x, undo: {}}, b: {agent: y, undo: {}}, c: {agent: y, onFailure: skip, undo: {}}, d: {agent: x, undo: {}}}}`,
	`{type: limited, onFailure: undo, steps: {a: {agent: x, undo: {}}, b: {agent: x, undo: {}}, c: {agent: y, after: [a, b], undo: {}}, d: {agent: sleep, after: [c], with: {for: 3s}}, e: {agent: x, after: [d]}}}`,
	`{type: wide, onFailure: undo, completeWithin: 10m, steps: {a: {agent: x, undo: {}}, b: {agent: x, undo: {}}, c: {agent: y}, d: {agent: y, undo: {}}, join: {agent: x, after: [a, b, c, d], undo: {}}}}`,
}

// world is a scheduler, agents and an operator on one store that fails.
type world struct {
	t      *testing.T
	seed   uint64
	store  *faultystore.Store
	s      *scheduler.Scheduler
	ledger ledger

	mu          sync.Mutex
	rand        *rand.Rand
	faultsEnded bool
	acked       map[perdure.JobID]string // type
}

func (w *world) chance(p float64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.faultsEnded && w.rand.Float64() < p
}

func (w *world) randomDuration(d time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(w.rand.Int64N(int64(d)))
}

func (w *world) randomInt(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rand.IntN(n)
}

// ledger is the resource on which all agents act. It deduplicates by key, refuses lower run numbers, and records
// violations of the order.
type ledger struct {
	mu      sync.Mutex
	jobs    map[perdure.JobID]map[string]*effect
	active  map[string]int // agent → runs in progress
	plans   map[string]*kernel.Plan
	answers map[string]int // results of reports, by reason
	undos   int
	wrong   []string
}

// effect is the state of a step at the resource.
type effect struct {
	run    int64 // the highest run number seen
	doKey  string
	done   bool            // the effect of a do exists now
	undone map[string]bool // keys of do turns that were undone
	active int64           // the run in progress; 0: none
}

func (l *ledger) errorf(format string, args ...any) {
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

func (l *ledger) of(job perdure.JobID, step string) *effect {
	if l.jobs[job] == nil {
		l.jobs[job] = map[string]*effect{}
	}
	if l.jobs[job][step] == nil {
		l.jobs[job][step] = &effect{undone: map[string]bool{}}
	}
	return l.jobs[job][step]
}

func (l *ledger) begin(agent string, run *perdure.Run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.of(run.Job, run.Step)
	if e.active != 0 {
		l.errorf("I6: run %d of %s/%s begins while run %d is in progress", run.Number, run.Job, run.Step, e.active)
	}
	if run.Number <= e.run {
		l.errorf("I6: run %d of %s/%s after run %d", run.Number, run.Job, run.Step, e.run)
	}
	e.run, e.active = max(e.run, run.Number), run.Number
	l.active[agent]++
	if agent == "y" && l.active[agent] > limitOfY {
		l.errorf("I12: %d runs of agent y at once", l.active[agent])
	}
}

func (l *ledger) end(agent string, run *perdure.Run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of(run.Job, run.Step).active = 0
	l.active[agent]--
}

// act applies the effect of a run, once per key.
func (l *ledger) act(plan *kernel.Plan, run *perdure.Run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.of(run.Job, run.Step)
	if run.Direction == perdure.Undo {
		for _, s := range plan.Steps {
			for _, before := range s.StepDefinition.After {
				if before == run.Step && l.of(run.Job, s.Name).done && s.Undo != nil {
					l.errorf("I10: %s/%s is undone before %s, which came after it", run.Job, run.Step, s.Name)
				}
			}
		}
		if e.done && e.doKey != run.DoKey {
			l.errorf("I10: %s/%s was done under %s, but is undone under %s", run.Job, run.Step, e.doKey, run.DoKey)
		}
		l.undos++
		e.undone[run.DoKey], e.done = true, false
		return
	}
	if e.undone[run.Key] {
		l.errorf("I10: %s/%s is done under %s, which was undone", run.Job, run.Step, run.Key)
	}
	if e.done && e.doKey != run.Key {
		l.errorf("I5: %s/%s is done under %s and %s", run.Job, run.Step, e.doKey, run.Key)
	}
	for _, before := range plan.Steps[plan.Index[run.Step]].StepDefinition.After {
		if p := plan.Steps[plan.Index[before]]; p.Form == kernel.ByAgent && !l.of(run.Job, before).done && p.Name != "c" {
			l.errorf("I9: %s/%s is done before %s", run.Job, run.Step, before)
		}
	}
	e.done, e.doKey = true, run.Key
}

const limitOfY = 3

// agent returns an agent that carries out its runs, sometimes late, sometimes not at all, and sometimes without a
// report.
func (w *world) agent(name string) *perdure.Agent {
	a := perdure.NewAgent(name)
	a.Slots = 4
	a.HandleAny(func(ctx context.Context, run *perdure.Run) (json.RawMessage, error) {
		w.ledger.begin(name, run)
		defer w.ledger.end(name, run)
		duration := w.randomDuration(2 * time.Second)
		if w.chance(0.03) {
			duration = time.Minute
		}
		if !wait(ctx, duration/2) {
			return nil, ctx.Err()
		}
		if w.chance(0.1) {
			return nil, perdure.NoEffect(errors.New("before it began"))
		}
		w.ledger.mu.Lock()
		plan := w.ledger.plans[w.typeOf(run.Job)]
		w.ledger.mu.Unlock()
		if plan != nil {
			w.ledger.act(plan, run)
		}
		if !wait(ctx, duration/2) || w.chance(0.1) {
			return nil, errors.New("who knows")
		}
		if w.chance(0.03) {
			return nil, perdure.Rejected(errors.New("no"), "no")
		}
		return json.RawMessage(`{"run":` + fmt.Sprint(run.Number) + `}`), nil
	})
	return a
}

func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// reportChecker checks the answers that a host receives.
type reportChecker struct {
	protocol.Exchange
	w *world
}

// Report checks that a holder that reports in time, and always the same outcome, is never answered that it contradicts
// itself, whatever was lost in between (F063). A report of a failure may be answered as stale: the step may be
// dispatched again before the outcome of the commit is looked up.
func (x *reportChecker) Report(ctx context.Context, holder string, reports []protocol.Report, next *protocol.Claim) ([]protocol.ReportResult, []perdure.Run, error) {
	results, runs, err := x.Exchange.Report(ctx, holder, reports, next)
	x.w.ledger.mu.Lock()
	defer x.w.ledger.mu.Unlock()
	for i := range results {
		x.w.ledger.answers[string(results[i].Reason)]++
		switch reason := results[i].Reason; {
		case reason == protocol.RefusedStale && reports[i].Outcome != perdure.OutcomeDone, reason == protocol.RefusedLate, reason == "":
		default:
			x.w.ledger.errorf("F063: report %+v is answered %+v", reports[i], results[i])
		}
	}
	return results, runs, err
}

// typeOf returns the type of a job. Its read never fails.
func (w *world) typeOf(id perdure.JobID) string {
	j, _, err := w.store.Store.Job(context.Background(), id, 0)
	if err != nil || j == nil {
		return ""
	}
	return j.Type
}

func (w *world) submit(ctx context.Context, i int) {
	plan := w.plan(i)
	for try := 0; try < 20; try++ {
		submitted, err := w.s.Submit(ctx, plan)
		if err == nil {
			w.mu.Lock()
			w.acked[submitted.ID] = plan.Definition.Type
			w.mu.Unlock()
			return
		}
		wait(ctx, w.randomDuration(time.Second))
	}
}

func (w *world) plan(i int) *kernel.Plan {
	body := strings.Replace(kinds[i%len(kinds)], "{type", fmt.Sprintf("{key: k%d, priority: %d, type", i, i%10), 1)
	body = strings.ReplaceAll(body, "agent: x", "agent: x, completeWithin: 20s, retry: {attempts: 3, backoff: 500ms}")
	body = strings.ReplaceAll(body, "agent: y", "agent: y, completeWithin: 8s, retry: {attempts: 3, backoff: 100ms}")
	plans, err := definition.Parse([]byte(body), definition.YAML, definition.Options{})
	if err != nil {
		w.t.Fatal(definition.FormatError("body", []byte(body), err))
	}
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	w.ledger.plans[plans[0].Definition.Type] = plans[0]
	return plans[0]
}

// operate changes the direction of jobs while they run.
func (w *world) operate(ctx context.Context, times int) {
	verbs := []perdure.Verb{perdure.VerbUndo, perdure.VerbRedo, perdure.VerbResume}
	for range times {
		if !wait(ctx, w.randomDuration(6*time.Second)) {
			return
		}
		for _, id := range w.jobs() {
			if w.chance(0.15) {
				_ = w.s.Act(ctx, id, perdure.Act{Verb: verbs[w.randomInt(3)], Author: "operator"})
			}
		}
	}
}

func (w *world) jobs() (ids []perdure.JobID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.acked {
		ids = append(ids, id)
	}
	return ids
}

// finish waits until all jobs are settled, and resumes parked ones.
func (w *world) finish(ctx context.Context, within time.Duration) {
	w.mu.Lock()
	w.faultsEnded = true
	w.mu.Unlock()
	w.store.StopFaults()
	began := time.Now()
	for time.Since(began) < within {
		wait(ctx, within/200)
		open := 0
		jobs, _, err := w.store.ListJobs(ctx, kernel.JobFilter{Limit: 500})
		if err != nil {
			w.t.Fatal(err)
		}
		for _, j := range jobs {
			if j.Phase == perdure.Parked {
				if err := w.s.Act(ctx, j.ID, perdure.Act{Verb: perdure.VerbResume, Author: "operator"}); err != nil && perdure.CodeOf(err) != perdure.CodeConflict {
					w.t.Errorf("resume: %v", err)
				}
			}
			if j.Phase != perdure.Settled {
				open++
			}
		}
		if open == 0 {
			return
		}
	}
	w.t.Errorf("L1: not all jobs have ended")
}

func (w *world) check(ctx context.Context) {
	jobs, _, err := w.store.ListJobs(ctx, kernel.JobFilter{Limit: 500})
	if err != nil {
		w.t.Fatal(err)
	}
	stored := map[perdure.JobID]bool{}
	keys := map[string]bool{}
	for _, j := range jobs {
		stored[j.ID] = true
		if keys[j.Key] {
			w.t.Errorf("I2: two jobs of key %s", j.Key)
		}
		keys[j.Key] = true
		w.checkJob(ctx, j)
	}
	for id := range w.acked {
		if !stored[id] {
			w.t.Errorf("I1: job %s was acknowledged but does not exist", id)
		}
	}
	for _, wrong := range w.ledger.wrong {
		w.t.Error(wrong)
	}
}

func (w *world) checkJob(ctx context.Context, j *kernel.Job) {
	plan, err := w.s.Plan(ctx, j)
	if err != nil {
		w.t.Fatal(err)
	}
	steps, err := w.store.StepsOf(ctx, j.ID, time.Time{})
	if err != nil {
		w.t.Fatal(err)
	}
	alerts, _ := w.store.Alerts(ctx, kernel.AlertFilter{Job: j.ID})
	now, _ := w.store.Now(ctx)
	for _, f := range kernel.CheckJob(j, plan, steps, alerts, now) {
		w.t.Errorf("check: %+v", f)
	}
	for _, s := range steps {
		e := w.ledger.of(j.ID, s.Name)
		ps := &plan.Steps[s.Index]
		switch {
		case ps.Form != kernel.ByAgent:
		case s.Current == perdure.Done && !e.done:
			w.t.Errorf("I5: %s/%s is done without an effect", j.ID, s.Name)
		case s.Current == perdure.Undone && e.done && ps.Undo != nil:
			w.t.Errorf("I10: %s/%s is undone but its effect exists", j.ID, s.Name)
		case s.Run == 0 && e.run > 0:
			w.t.Errorf("I5: %s/%s was never dispatched", j.ID, s.Name)
		}
	}
}

// runWorld runs a world from its first submission until its last job is settled.
func runWorld(t *testing.T, seed uint64, inner kernel.Store, rate float64, pace time.Duration, jobs int, within time.Duration) *world {
	w := &world{t: t, seed: seed, store: faultystore.New(inner, seed, rate, pace), rand: rand.New(rand.NewPCG(seed, 1)),
		acked: map[perdure.JobID]string{}}
	w.ledger.jobs, w.ledger.active, w.ledger.plans = map[perdure.JobID]map[string]*effect{}, map[string]int{}, map[string]*kernel.Plan{}
	w.ledger.answers = map[string]int{}
	w.s = scheduler.New(scheduler.Config{Store: w.store, Compiler: &definition.Compiler{}, Writers: 1 + int(seed%3)})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { w.s.Run(ctx) })
	for w.s.PutLimit(ctx, "agent:y", perdure.LimitSettings{Max: new(limitOfY)}) != nil || w.s.PutLimit(ctx, "job:limited", perdure.LimitSettings{Max: new(2)}) != nil {
	}
	for range 1 + int(seed/3%2) {
		sup := supervisor.New(supervisor.Config{Scheduler: w.s, Store: w.store, Log: slog.New(slog.DiscardHandler)})
		running.Go(func() { sup.Run(ctx) })
	}
	for _, holder := range []string{"h1", "h2"} {
		host := agenthost.New(agenthost.Config{Exchange: &reportChecker{w.s, w}, Holder: holder, Agents: []*perdure.Agent{w.agent("x"), w.agent("y")},
			Heartbeat: 5 * time.Second})
		running.Go(func() { _ = host.Run(ctx) })
	}
	var acting sync.WaitGroup
	for i := range jobs {
		acting.Go(func() { w.submit(ctx, i); w.submit(ctx, i) })
	}
	acting.Go(func() { w.operate(ctx, 10) })
	acting.Wait()
	w.finish(ctx, within)
	w.check(ctx)
	cancel()
	running.Wait()
	return w
}

// Jobs keep all promises on a store that fails in all its ways, on virtual time (F006, F063, F070, F101, F107, F115).
func TestJobsOnFaultyStore(t *testing.T) {
	hits := [faultystore.Faults]int{}
	answers, undos := map[string]int{}, 0
	one := func(t *testing.T, seed uint64) {
		defer func() {
			if t.Failed() {
				t.Fatalf("repeat with: go test ./internal/faultystore -run TestJobsOnFaultyStore$ -seed %d", seed)
			}
		}()
		synctest.Test(t, func(t *testing.T) {
			clock := strictlyIncreasingClock()
			w := runWorld(t, seed, memory.New(memory.WithClock(clock)), 0.02+0.3*float64(seed%7)/6, time.Millisecond, 8, 4*time.Hour)
			for i, n := range w.store.Hits {
				hits[i] += n
			}
			for reason, n := range w.ledger.answers {
				answers[reason] += n
			}
			undos += w.ledger.undos
		})
	}
	if *seed != 0 {
		one(t, *seed)
		return
	}
	for i := range *seeds {
		one(t, uint64(i+1))
	}
	for f, n := range hits {
		if n == 0 {
			t.Errorf("fault %d was never drawn", f)
		}
	}
	t.Logf("%d seeds, faults %v, answers to reports %v, %d undos", *seeds, hits, answers, undos)
}

// strictlyIncreasingClock returns a wall clock that never returns a time twice, like virtual time.
func strictlyIncreasingClock() func() time.Time {
	var mu sync.Mutex
	var last time.Time
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		t := time.Now()
		if !t.After(last.Add(time.Microsecond)) {
			t = last.Add(time.Microsecond)
		}
		last = t
		return t
	}
}

// The same on SQLite, with a virtual clock and a real disk.
func TestJobsOnFaultySQLite(t *testing.T) {
	for seed := range uint64(max(*seeds/30, 2)) {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			store, err := sqlite.Open(dir+"/f.db", sqlite.WithClock(strictlyIncreasingClock()))
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			runWorld(t, seed+1, store, 0.02+0.3*float64(seed%7)/6, time.Millisecond, 6, time.Hour)
		})
	}
}
