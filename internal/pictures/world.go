package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/protocol"
)

// world is one job, as rows in memory, that the rules are played with. It is a value: an event makes another one.
type world struct {
	plan     *kernel.Plan
	now      time.Time
	job      *kernel.Job
	steps    []*kernel.Step
	payloads map[int]kernel.Payload
	alerts   []kernel.Alert // raised so far
}

var (
	startTime = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	jobID     = perdure.JobID{15: 1}
)

const holder = "host"

// submit makes a world of a definition in YAML.
func submit(text string) (*world, error) {
	plans, err := definition.Parse([]byte(text), definition.YAML, definition.Options{})
	if err != nil {
		return nil, err
	}
	w := &world{plan: plans[0], now: startTime, payloads: map[int]kernel.Payload{}}
	return w.after(func(ws *kernel.Workset) { ws.Submit(jobID, w.plan) }), nil
}

// after is the world after an event; nil if it changed nothing.
func (w *world) after(event func(*kernel.Workset)) *world {
	ws := kernel.NewWorkset(w.now, func() float64 { return 1 })
	if w.job != nil {
		ws.AddJob(w.job, w.plan)
		ws.AddWhole(jobID, w.steps)
		var refs []kernel.StepRef
		var found []kernel.Payload
		for i := range w.steps {
			refs = append(refs, kernel.StepRef{Job: jobID, Index: i})
			if p, ok := w.payloads[i]; ok {
				found = append(found, p)
			}
		}
		ws.AddPayloads(refs, found)
	}
	event(ws)
	if !ws.Missing().Empty() {
		panic(fmt.Sprintf("rows are missing: %+v", ws.Missing()))
	}
	c := ws.FinalChanges()
	if c.Empty() {
		return nil
	}
	return w.with(c)
}

func (w *world) with(c *kernel.Changes) *world {
	next := *w
	next.steps = append([]*kernel.Step(nil), w.steps...)
	for _, n := range c.NewJobs {
		next.job, next.steps = n.Job, n.Steps
	}
	for _, j := range c.Jobs {
		next.job = j.Now
	}
	for _, s := range c.Steps {
		next.steps[s.Now.Index] = s.Now
	}
	if len(c.Payloads) > 0 {
		next.payloads = map[int]kernel.Payload{}
		for i, p := range w.payloads {
			next.payloads[i] = p
		}
		for _, p := range c.Payloads {
			one := next.payloads[p.Index]
			one.StepRef = p.StepRef
			if p.SetInput {
				one.Input = p.Input
			}
			if p.SetOutput {
				one.Output = p.Output
			}
			next.payloads[p.Index] = one
		}
	}
	next.alerts = append(next.alerts[:len(next.alerts):len(next.alerts)], c.Alerts...)
	return &next
}

// events are what can happen, by name: to the job (step -1), or to a step.
var events = []struct {
	name string
	of   func(w *world, s *kernel.Step) *world // s is nil for events of the job
	job  bool
}{
	{name: "claim", of: (*world).claim},
	{name: "report done", of: report(protocol.Report{Outcome: perdure.OutcomeDone, Output: json.RawMessage(`{"ok":true}`)})},
	{name: "report done with another output", of: report(protocol.Report{Outcome: perdure.OutcomeDone, Output: json.RawMessage(`7`)})},
	{name: "report failed", of: report(protocol.Report{Outcome: perdure.OutcomeFailed})},
	{name: "report failed without effect", of: report(protocol.Report{Outcome: perdure.OutcomeFailed, Effect: protocol.EffectNone})},
	{name: "report rejected", of: report(protocol.Report{Outcome: perdure.OutcomeRejected})},
	{name: "report returned", of: report(protocol.Report{Outcome: perdure.OutcomeReturned})},
	{name: "lock expires", of: (*world).expire},
	{name: "holder dies", of: (*world).lose},
	{name: "time comes", of: (*world).due},
	{name: "settle as done", of: act(perdure.Act{Verb: perdure.VerbSettle, As: new(perdure.Done)})},
	{name: "settle as undone", of: act(perdure.Act{Verb: perdure.VerbSettle, As: new(perdure.Undone)})},
	{name: "skip", of: act(perdure.Act{Verb: perdure.VerbSkip})},
	{name: "resume", of: act(perdure.Act{Verb: perdure.VerbResume})},
	{name: "edit with a new key", of: act(perdure.Act{Verb: perdure.VerbEdit, NewKey: true})},
	{name: "undo", of: act(perdure.Act{Verb: perdure.VerbUndo}), job: true},
	{name: "redo", of: act(perdure.Act{Verb: perdure.VerbRedo}), job: true},
	{name: "give up", of: act(perdure.Act{Verb: perdure.VerbGiveUp}), job: true},
	{name: "job overdue", of: (*world).overdue, job: true},
	{name: "time passes", of: (*world).pass, job: true},
}

func (w *world) claim(s *kernel.Step) *world {
	return w.after(func(ws *kernel.Workset) {
		if s.Phase == perdure.Ready {
			_, err := ws.Claim(s.StepRef, &protocol.Claim{Agent: s.Agent, Holder: holder, Max: 1}, &kernel.Admission{}, perdure.MaxAnswerBytes)
			if err != nil {
				panic(err)
			}
		}
	})
}

func report(rep protocol.Report) func(*world, *kernel.Step) *world {
	return func(w *world, s *kernel.Step) *world {
		return w.after(func(ws *kernel.Workset) {
			rep := rep
			rep.Job, rep.Step, rep.Run = jobID, s.Name, s.Run
			ws.Report(s.StepRef, holder, &rep)
		})
	}
}

func (w *world) expire(s *kernel.Step) *world {
	return w.after(func(ws *kernel.Workset) { ws.Expire(s.StepRef, "", kernel.CauseTime) })
}

func (w *world) lose(s *kernel.Step) *world {
	return w.after(func(ws *kernel.Workset) { ws.Expire(s.StepRef, holder, kernel.CauseLost) })
}

func (w *world) due(s *kernel.Step) *world {
	return w.after(func(ws *kernel.Workset) { ws.Due(s.StepRef) })
}

func (w *world) overdue(*kernel.Step) *world {
	return w.after(func(ws *kernel.Workset) { ws.ExpireJob(jobID) })
}

func act(a perdure.Act) func(*world, *kernel.Step) *world {
	return func(w *world, s *kernel.Step) *world {
		a, index := a, -1
		a.Author = "operator"
		if s != nil {
			a.Step, index = s.Name, s.Index
		}
		return w.after(func(ws *kernel.Workset) { _ = ws.Act(jobID, index, &a) }) // a refusal changes nothing
	}
}

// pass moves the clock to the next instant at which something is due; no row changes.
func (w *world) pass(*kernel.Step) *world {
	var at time.Time
	note := func(t time.Time) {
		if t.After(w.now) && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	note(w.job.OverdueAt())
	for _, s := range w.steps {
		note(kernel.DueOf(s))
		note(kernel.InFlightOf(s).Until)
	}
	if at.IsZero() {
		return nil
	}
	next := *w
	next.now = at
	return &next
}

// key tells worlds apart by what decides how they go on. Numbers that only grow are left out, and of times only their
// order counts: so the worlds of a job are few enough to meet all of them.
func (w *world) key() string {
	j := w.job
	times := []time.Time{j.CompleteBy, j.StartAt, j.StartBy}
	for _, s := range w.steps {
		times = append(times, s.AvailableAt, s.LockedUntil)
	}
	slices.SortFunc(times, time.Time.Compare)
	times = slices.Compact(times)
	order := func(t time.Time) int {
		if !t.After(w.now) {
			return 0
		}
		past, _ := slices.BinarySearchFunc(times, w.now.Add(1), time.Time.Compare)
		at, _ := slices.BinarySearchFunc(times, t, time.Time.Compare)
		return 1 + at - past
	}
	var b strings.Builder
	fmt.Fprint(&b, j.Desired, j.Phase, j.RestartPending, j.Restarts, j.Overdue, j.GivenUp(), order(j.CompleteBy), order(j.StartAt), order(j.StartBy))
	for i, s := range w.steps {
		fmt.Fprint(&b, "|", s.Current, s.Phase, s.Skipped, s.Direction, s.CurrentBeforeRun, s.Failures, s.Rung, s.Waits, min(s.Returns, 1),
			s.Turn > 1, s.Run > 0, order(s.AvailableAt), order(s.LockedUntil), string(w.payloads[i].Output))
	}
	return b.String()
}

// explore plays every order of events from the beginning, at most limit worlds, and shows each event with the worlds
// before and after it.
func explore(text string, limit int, see func(event string, step int, before, after *world)) error {
	first, err := submit(text)
	if err != nil {
		return fmt.Errorf("%w in\n%s", err, text)
	}
	seen, open := map[string]bool{first.key(): true}, []*world{first}
	for len(open) > 0 && len(seen) < limit {
		w := open[0]
		open = open[1:]
		try := func(name string, step int, next *world) {
			if next == nil {
				return
			}
			see(name, step, w, next)
			if k := next.key(); !seen[k] {
				seen[k] = true
				open = append(open, next)
			}
		}
		for _, e := range events {
			if e.job {
				try(e.name, -1, e.of(w, nil))
				continue
			}
			for i, s := range w.steps {
				try(e.name, i, e.of(w, s))
			}
		}
	}
	return nil
}
