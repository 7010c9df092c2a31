// Package perduretest runs jobs in a test: against the agents that you carry or against fakes, over the real
// rules, in virtual time. A backoff of an hour and a deadline of a day take milliseconds.
//
//	func TestChargeSurvivesACrash(t *testing.T) {
//		perduretest.Run(t, func(w *perduretest.World) {
//			bank := w.Fake("payments")
//			w.Inject("charge", perduretest.CrashAfter) // the process dies after the effect, before the report
//			w.Submit(order()).Done()
//			bank.Once("charge")
//		})
//	}
//
// All of a test runs in a bubble of testing/synctest: its clock jumps as soon as everything waits. What waits for the
// world outside (a socket, a database, a file) keeps it from jumping, so handlers under test speak to fakes.
package perduretest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/agenthost"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/runcontext"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/store/memory"
)

// World is a node on a store in memory, and the agents of one test. Its methods fail the test on any error.
type World struct {
	testing.TB
	// Patience is how long a job may take, in virtual time, to be settled or parked. The default is a week.
	Patience time.Duration

	ctx   context.Context
	node  *node.Node
	hosts []*agenthost.Host
	fakes []*Fake
	going sync.WaitGroup
	begun time.Time

	mu      sync.Mutex
	carried map[string]bool // names of agents that run
	plans   []*injection
	muted   map[handle]bool // reports and heartbeats of these runs are dropped
	holding map[handle]Fault
	refused []Refusal
}

// Run runs a test in a world of its own.
func Run(t *testing.T, test func(w *World)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &World{TB: t, Patience: 7 * 24 * time.Hour, ctx: context.Background(), begun: time.Now(),
			carried: map[string]bool{}, muted: map[handle]bool{}, holding: map[handle]Fault{}}
		w.node = node.New(memory.New(), node.Config{})
		if err := w.node.Start(w.ctx); err != nil {
			t.Fatal(err)
		}
		defer w.end()
		test(w)
	})
}

// end stops everything, checks the store, and reports faults that have not happened.
func (w *World) end() {
	ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
	defer cancel()
	for _, h := range w.hosts {
		_ = h.Drain(ctx) // a handler that hangs is the test's own problem
	}
	w.going.Wait()
	if err := w.node.Check(ctx, func(f kernel.Finding) { w.Errorf("perduretest: %+v", f) }); err != nil {
		w.Error(err)
	}
	w.checkFakes(ctx)
	if err := w.node.Stop(ctx); err != nil {
		w.Error(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, in := range w.plans {
		if !in.met {
			w.Errorf("perduretest: %s was never met: no such run of step %s", in.fault, in.step)
		}
	}
}

// checkFakes reports fakes of steps that no job has: their names are misspelled.
func (w *World) checkFakes(ctx context.Context) {
	if !slices.ContainsFunc(w.fakes, func(f *Fake) bool { return len(f.set) > 0 }) {
		return
	}
	known := map[string]bool{}
	for job, err := range perdure.All(ctx, w.node, perdure.JobQuery{Limit: perdure.MaxListLimit}) {
		if err == nil {
			job, err = w.node.Job(ctx, job.ID.String(), 0)
		}
		if err != nil {
			w.Error(err)
			return
		}
		for i := range job.Steps {
			known[job.Steps[i].Name] = true
		}
	}
	if len(known) == 0 {
		return // the test submits no job
	}
	for _, f := range w.fakes {
		for _, step := range f.unknown(known) {
			w.Errorf("perduretest: fake %s: no job has a step %q; the steps are %s", f.name, step, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	}
}

// Node returns the node of this world, for what the other methods do not offer.
func (w *World) Node() *node.Node { return w.node }

// Elapsed returns how much virtual time has passed since the test began.
func (w *World) Elapsed() time.Duration { return time.Since(w.begun) }

// Sleep waits in virtual time.
func (w *World) Sleep(d time.Duration) { time.Sleep(d) }

// Carry runs agents, as a process of their own would.
func (w *World) Carry(agents ...*perdure.Agent) {
	shaky := make([]*perdure.Agent, len(agents))
	w.mu.Lock()
	for i, a := range agents {
		shaky[i] = w.shaky(a)
		w.carried[a.Name] = true
	}
	w.mu.Unlock()
	h := agenthost.New(agenthost.Config{Exchange: &exchange{w.node, w}, Holder: fmt.Sprintf("perduretest-%d", len(w.hosts)), Agents: shaky})
	w.hosts = append(w.hosts, h)
	w.going.Go(func() {
		if err := h.Run(w.ctx); err != nil {
			w.Error(err)
		}
	})
}

func (w *World) carries(agent string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.carried[agent]
}

// Submit submits a job that was built in Go.
func (w *World) Submit(job perdure.Definable) *Job {
	w.Helper()
	plan, err := definition.FromDefinition(job)
	if err != nil {
		w.Fatal(err)
	}
	return w.submit(plan)
}

// SubmitText submits the one definition in a text, YAML or JSON.
func (w *World) SubmitText(text string) *Job {
	w.Helper()
	return w.parse("the definition", []byte(text), nil)
}

// SubmitFile submits the one definition in a file. input replaces fields of its input: names and JSON values alternate.
func (w *World) SubmitFile(path string, input ...string) *Job {
	w.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		w.Fatal(err)
	}
	return w.parse(path, text, input)
}

func (w *World) parse(name string, text []byte, input []string) *Job {
	w.Helper()
	opts := definition.Options{Input: map[string]rawJSON{}}
	for i := 0; i+1 < len(input); i += 2 {
		opts.Input[input[i]] = rawJSON(input[i+1])
	}
	plans, err := definition.Parse(text, definition.FormatOf(name), opts)
	if err != nil {
		w.Fatalf("%s", strings.TrimSpace(definition.FormatError(name, text, err)))
	}
	if len(plans) != 1 {
		w.Fatalf("%s has %d definitions", name, len(plans))
	}
	return w.submit(plans[0])
}

func (w *World) submit(plan *kernel.Plan) *Job {
	w.Helper()
	view, _, err := w.node.SubmitPlan(w.ctx, plan)
	if err != nil {
		w.Fatal(err)
	}
	return &Job{w: w, ID: view.ID}
}

// WithRun returns the context of a handler that is called without a node: perdure.RunOf returns run, and the deadline is
// until. perdure.Progress has no effect.
func WithRun(ctx context.Context, run *perdure.Run, until time.Time) context.Context {
	return runcontext.With(ctx, run, until, nil)
}
