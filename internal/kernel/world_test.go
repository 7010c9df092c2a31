package kernel

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// A world is one job, whose rows are kept in memory, and a clock. Every test of the rules uses one.
type world struct {
	t            testing.TB
	plan         *Plan
	job          *Job
	steps        []*Step
	loadedCopies map[*Step]Step // copies of rows that the rules received, to check that they are not changed
	kept         []Payload
	output       string  // of the job
	alerts       []Alert // open alerts
	closed       []Alert // alerts that were closed since the last line of the transcript
	history      []Entry
	dispatched   []dispatchedRun // all runs, see checkRecords
	now          time.Time
	limits       *Admission
	ordered      []Limit     // those with an order
	signals      []*Signal   // as they are stored
	loadOnDemand bool        // load only what the rules request
	transcript   *transcript // nil: not written
	runs         map[string]*perdure.Run
	values       []stepValues // what its agents and its operator have seen; see checkValues
	epoch        int          // see noteSkips

	withoutPreviews bool // acts are not compared with their previews
}

type transcript struct{ strings.Builder }

var startTime = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const tick = 10 * time.Second // the length of a run, a backoff, a wait and a sleep in these worlds

// submit returns a world in which the definition was submitted. For its language see words.
func submit(t testing.TB, definition string) *world {
	w := newWorld(t, definition)
	w.submitPlan()
	return w
}

func newWorld(t testing.TB, definition string) *world {
	return &world{t: t, plan: words(t, definition), now: startTime, limits: &Admission{}, runs: map[string]*perdure.Run{}, loadedCopies: map[*Step]Step{}}
}

func (w *world) submitPlan() {
	w.event(func(ws *Workset) { ws.Submit(perdure.JobID{15: 1}, w.plan) })
}

// event applies one event, loads what is missing, and stores the changes.
func (w *world) event(f func(*Workset)) *Changes {
	ws := NewWorkset(w.now, func() float64 { return 1 })
	ws.UseOrdered(w.ordered)
	if w.job != nil {
		j := *w.job
		ws.AddJob(&j, w.plan)
		if !w.loadOnDemand {
			ws.AddWhole(j.ID, w.load(w.all()...))
			ws.AddPayloads(w.all(), w.payloads(w.all()))
		}
	}
	f(ws)
	w.settleMissing(ws)
	c := ws.FinalChanges()
	w.write(c)
	w.compare(ws)
	for row, before := range w.loadedCopies {
		if *row != before {
			w.t.Fatalf("the rules changed a loaded row: %+v, was %+v", row, before)
		}
	}
	clear(w.loadedCopies)
	return c
}

func (w *world) settleMissing(ws *Workset) {
	for rounds := 0; !ws.Missing().Empty(); rounds++ {
		if rounds > 2*len(w.plan.Steps)+10 {
			w.t.Fatalf("the rules request %+v repeatedly", ws.Missing())
		}
		m := *ws.Missing()
		ws.AddSteps(w.load(m.Steps...))
		for _, id := range m.WholeJobs {
			ws.AddWhole(id, w.load(w.all()...))
		}
		ws.AddPayloads(m.Payloads, w.payloads(m.Payloads))
		for _, want := range m.Signals {
			w.addKept(ws, want)
		}
		ws.Continue()
	}
}

func (w *world) all() []StepRef {
	refs := make([]StepRef, len(w.plan.Steps))
	for i := range refs {
		refs[i] = StepRef{w.job.ID, i}
	}
	return refs
}

func (w *world) load(refs ...StepRef) []*Step {
	copies, rows := make([]Step, len(refs)), make([]*Step, len(refs))
	for i, ref := range refs {
		copies[i] = *w.steps[ref.Index]
		rows[i] = &copies[i]
		w.loadedCopies[rows[i]] = copies[i]
	}
	return rows
}

func (w *world) payloads(refs []StepRef) (found []Payload) {
	for _, ref := range refs {
		if w.kept == nil {
			continue // the job is new
		}
		if p := w.kept[ref.Index]; p.Input != nil || p.Output != nil {
			found = append(found, p)
		}
	}
	return found
}

func (w *world) write(c *Changes) {
	for _, n := range c.NewJobs {
		w.job, w.steps, w.kept, w.values = n.Job, n.Steps, make([]Payload, len(n.Steps)), make([]stepValues, len(n.Steps))
		for i := range w.kept {
			w.kept[i].StepRef = n.Steps[i].StepRef
		}
	}
	for _, ch := range c.Jobs {
		w.job = ch.Now
	}
	if len(c.Steps) > 0 {
		w.steps = slices.Clone(w.steps)
	}
	for _, ch := range c.Steps {
		if ch.Loaded.Run != w.steps[ch.Now.Index].Run || ch.Loaded.Phase != w.steps[ch.Now.Index].Phase {
			w.t.Fatalf("step %s was not loaded as %s run %d", ch.Loaded.Name, ch.Loaded.Phase, ch.Loaded.Run)
		}
		if ch.Now.Run != ch.Loaded.Run {
			w.dispatched = append(slices.Clip(w.dispatched), dispatchedRun{ch.Now.Index, ch.Now.Run, ch.Now.Turn, ch.Now.Direction, w.now})
		}
		w.steps[ch.Now.Index] = ch.Now
	}
	if len(c.Payloads) > 0 {
		w.kept = slices.Clone(w.kept)
	}
	for _, ch := range c.Payloads {
		if ch.Index == OutputIndex {
			w.output = string(ch.Output)
			continue
		}
		if kept := &w.kept[ch.Index]; ch.SetInput {
			kept.Input = ch.Input
		}
		if kept := &w.kept[ch.Index]; ch.SetOutput {
			kept.Output = ch.Output
		}
	}
	for _, ch := range c.CloseAlerts {
		w.alerts = slices.DeleteFunc(slices.Clone(w.alerts), func(a Alert) bool {
			closes := (ch.Step == "" || ch.Step == a.Step) && slices.Contains(ch.Kinds, a.Kind)
			if closes && w.transcript != nil {
				w.closed = append(w.closed, a)
			}
			return closes
		})
	}
	w.alerts = append(slices.Clip(w.alerts), c.Alerts...)
	w.saveSignals(c.Signals)
	w.history = append(slices.Clip(w.history), c.History...)
	w.noteSkips(c)
}

// dispatchedRun is a run as it was dispatched.
type dispatchedRun struct {
	step      int
	run       int64
	turn      int
	direction perdure.Direction
	at        time.Time
}

// checkRecords checks that each run that was ever dispatched has one record, with its start, direction and turn: in the
// step's row or in the history, and not in both.
func (w *world) checkRecords() {
	type handle struct {
		step string
		run  int64
	}
	type recordedRun struct {
		turn      int
		direction perdure.Direction
		at        time.Time
	}
	records := map[handle][]recordedRun{}
	for _, h := range w.history {
		if h.IsRun() {
			records[handle{h.Step, h.Run}] = append(records[handle{h.Step, h.Run}], recordedRun{h.Turn, h.Direction, h.StartedAt})
		}
	}
	for _, s := range w.steps {
		if s.RowHasRun() {
			records[handle{s.Name, s.Run}] = append(records[handle{s.Name, s.Run}], recordedRun{s.Turn, s.Direction, s.StartedAt})
		}
	}
	for _, d := range w.dispatched {
		at := handle{w.steps[d.step].Name, d.run}
		if got := records[at]; len(got) != 1 || got[0] != (recordedRun{d.turn, d.direction, d.at}) {
			w.t.Fatalf("run %d of step %s was dispatched as %+v, and is recorded as %+v", d.run, at.step, d, got)
		}
		delete(records, at)
	}
	if len(records) > 0 {
		w.t.Fatalf("runs are recorded that were not dispatched: %+v", records)
	}
}

// compare checks that the rows in the workset are the stored ones: nothing was changed that Changes did not return.
func (w *world) compare(ws *Workset) {
	e := ws.jobs[w.job.ID]
	if !sameJob(e.job, w.job) {
		w.t.Fatalf("the job was changed, but Changes did not return it:\n%+v\n%+v", e.job, w.job)
	}
	for i, r := range e.steps.all {
		if *r.Step != *w.steps[i] {
			w.t.Fatalf("step %s was changed, but Changes did not return it:\n%+v\n%+v", r.Name, *r.Step, *w.steps[i])
		}
	}
}

// sameJob compares what the rules can change.
func sameJob(a, b *Job) bool {
	return a.Current == b.Current && a.Desired == b.Desired && a.Phase == b.Phase && a.RestartPending == b.RestartPending &&
		a.Restarts == b.Restarts && a.HasPermit == b.HasPermit && a.Unsettled == b.Unsettled && a.Running == b.Running &&
		a.HasOutput == b.HasOutput && a.OutputError == b.OutputError && a.Active == b.Active && a.StartAt == b.StartAt && a.StartBy == b.StartBy && a.CompleteBy == b.CompleteBy && a.ParkedAt == b.ParkedAt && a.Overdue == b.Overdue &&
		a.GivenUpBy == b.GivenUpBy && a.GivenUpReason == b.GivenUpReason && a.UpdatedAt == b.UpdatedAt && a.SettledAt == b.SettledAt
}

// Events.

func (w *world) index(step string) int {
	i, ok := w.plan.Index[step]
	if !ok {
		w.t.Fatalf("no step %s", step)
	}
	return i
}

func (w *world) step(name string) *Step { return w.steps[w.index(name)] }
func (w *world) ref(i int) StepRef      { return StepRef{w.job.ID, i} }
func (w *world) ensureLoaded(ws *Workset, i ...int) {
	for _, i := range i {
		if !ws.HasStep(w.ref(i)) {
			ws.AddSteps(w.load(w.ref(i)))
		}
	}
}

func (w *world) claimAs(i int, req protocol.Claim) (run *perdure.Run, c *Changes) {
	req.Agent = cmpOr(req.Agent, w.steps[i].Agent)
	req.Holder = cmpOr(req.Holder, "host")
	s := w.steps[i]
	c = w.event(func(ws *Workset) {
		w.ensureLoaded(ws, i)
		w.loadForClaim(ws, w.ref(i))
		run = w.claimIn(ws, w.ref(i), &req)
	})
	if run != nil {
		w.checkValues(s, run)
		w.checkRepeatedClaim(run, &req)
	}
	return run, c
}

// loadForClaim, claimIn and againIn are the only functions of these tests that depend on how a run is dispatched.
func (w *world) loadForClaim(ws *Workset, ref StepRef) {
	refs := ws.ClaimRefs(ref)
	ws.AddPayloads(refs, w.payloads(refs))
}

func (w *world) claimIn(ws *Workset, ref StepRef, req *protocol.Claim) *perdure.Run {
	run, err := ws.Claim(ref, req, w.limits, perdure.MaxAnswerBytes)
	must(w.t, err)
	return run
}

func (w *world) againIn(ws *Workset, ref StepRef, req *protocol.Claim) *perdure.Run {
	run, err := ws.RepeatedClaim(ref, req)
	must(w.t, err)
	return run
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func (w *world) reportAs(i int, holder string, rep protocol.Report) (res protocol.ReportResult, c *Changes) {
	rep.Job, rep.Step = w.job.ID, w.steps[i].Name
	if err := rep.Check(); err != nil {
		w.t.Fatalf("a report that the scheduler would refuse: %v", err)
	}
	s := w.steps[i]
	c = w.event(func(ws *Workset) {
		w.ensureLoaded(ws, i)
		if !w.loadOnDemand {
			for _, ref := range ws.ReportRefs(nil, w.ref(i)) {
				w.ensureLoaded(ws, ref.Index)
			}
		}
		res = ws.Report(w.ref(i), holder, &rep)
	})
	w.noteReport(s, &rep, res)
	return res, c
}

func (w *world) heartbeat(i int, holder string, run int64) (res protocol.HeartbeatResult, c *Changes) {
	c = w.event(func(ws *Workset) {
		w.ensureLoaded(ws, i)
		res = ws.Heartbeat(w.ref(i), holder, &protocol.Heartbeat{Job: w.job.ID, Step: w.steps[i].Name, Run: run})
	})
	return res, c
}

func (w *world) expireAs(i int, holder string, cause Cause) (ok bool, c *Changes) {
	c = w.event(func(ws *Workset) {
		w.ensureLoaded(ws, i)
		ok = ws.Expire(w.ref(i), holder, cause)
	})
	return ok, c
}

func (w *world) dueAt(i int) (ok bool, c *Changes) {
	c = w.event(func(ws *Workset) {
		w.ensureLoaded(ws, i)
		ok = ws.Due(w.ref(i))
	})
	return ok, c
}

func (w *world) overdue() (ok bool, c *Changes) {
	c = w.event(func(ws *Workset) { ok = ws.ExpireJob(w.job.ID) })
	return ok, c
}

func (w *world) actAs(a perdure.Act) (c *Changes, err error) {
	i := -1
	if a.Step != "" {
		i = w.index(a.Step)
	}
	a.Author = cmpOr(a.Author, "op")
	var s *Step
	if i >= 0 {
		s = w.steps[i]
	}
	var preview Effects
	var refusal error
	if !w.withoutPreviews {
		preview, refusal = w.preview(i, a)
	}
	c = w.event(func(ws *Workset) {
		if NeedsWholeJob(&a) {
			ws.AddWhole(w.job.ID, w.load(w.all()...))
		} else {
			w.ensureLoaded(ws, i)
		}
		err = ws.Act(w.job.ID, i, &a)
	})
	if got := EffectsOf(c, w.plan.Shape); !w.withoutPreviews && (err == nil && !reflect.DeepEqual(got, preview) || (err == nil) != (refusal == nil)) {
		w.t.Fatalf("%s %s has the effects %+v (%v), and its preview %+v (%v)", a.Verb, a.Step, got, err, preview, refusal)
	}
	if err == nil && !c.Empty() && i >= 0 {
		w.noteAct(s, &a)
	}
	return c, err
}

// preview returns the effects that an act would have, and writes nothing.
func (w *world) preview(i int, a perdure.Act) (Effects, error) {
	ws, j := NewWorkset(w.now, LatestWait), *w.job
	ws.AddJob(&j, w.plan)
	ws.AddWhole(j.ID, w.load(w.all()...))
	err := ws.Act(j.ID, i, &a)
	w.settleMissing(ws)
	return EffectsOf(ws.FinalChanges(), w.plan.Shape), err
}

// nextTime returns the earliest time at which the passing of time changes something.
func (w *world) nextTime() (at time.Time, ok bool) {
	later := func(t time.Time) {
		if t.After(w.now) && (!ok || t.Before(at)) {
			at, ok = t, true
		}
	}
	for _, s := range w.steps {
		if s.Phase == perdure.Running {
			later(s.LockedUntil)
		}
		if s.Phase == perdure.Waiting {
			later(s.AvailableAt)
		}
	}
	if !w.job.AtRest() {
		later(w.job.OverdueAt())
	}
	return at, ok
}

// Definitions as text.

// words parses a definition: "onFailure restart:1; within 30s; startIn 20s; startWithin 10s; reserve undo; charge after reserve undo reads reserve". A
// step is its name, followed by any of: after A B · undo · revert (an undo with an input of its own) · reads A · when A
// · sleep · approval · signal (go/k) · lasts (with completeWithin) · attempts N · or RUNG,RUNG. "output A B" after the steps is the
// output of the job, which reads those of A and B.
func words(t testing.TB, text string) *Plan {
	d := &Definition{Type: "order"}
	p := &Plan{Definition: d, Shape: &Shape{Text: []byte(text), Common: d, Index: map[string]int{}}}
	for _, part := range strings.Split(text, ";") {
		f := strings.Fields(part)
		switch f[0] {
		case "onFailure":
			d.OnFailure = ladderOf(f[1])
		case "output":
			s := script{text: "output"}
			for _, name := range f[1:] {
				s.refs, s.names = append(s.refs, p.Index[name]), append(s.names, name)
			}
			p.Output = s
		case "within", "startIn", "startWithin":
			v, err := perdure.ParseDuration(f[1])
			must(t, err)
			*map[string]*perdure.Duration{"within": &d.CompleteWithin, "startIn": &d.StartIn, "startWithin": &d.StartWithin}[f[0]] = perdure.Duration(v)
		default:
			p.Index[f[0]] = len(p.Steps)
			p.Steps = append(p.Steps, stepOf(t, p, f))
		}
	}
	for i := range p.Steps {
		d.Steps = append(d.Steps, *p.Steps[i].StepDefinition)
		for _, j := range p.Steps[i].After {
			p.Steps[j].Before = append(p.Steps[j].Before, i)
		}
	}
	return p
}

func stepOf(t testing.TB, p *Plan, f []string) PlanStep {
	ps := PlanStep{StepDefinition: &StepDefinition{Name: f[0], Agent: "ag", CompleteWithin: perdure.Duration(tick),
		Retry: &perdure.Retry{Attempts: 1, Backoff: perdure.Duration(tick), MaxBackoff: perdure.Duration(4 * tick)}}}
	text, word := script{text: f[0]}, ""
	for _, v := range f[1:] {
		if word == "or" {
			ps.OnFailure, word = ladderOf(v), ""
			continue
		}
		switch v {
		case "undo":
			ps.Undo = &perdure.UndoDefinition{}
		case "revert":
			ps.Undo, ps.Revert = &perdure.UndoDefinition{}, script{text: "revert", own: true}
		case "secret":
			text.text = `{"data":"${secret.DATA}","k":"Bearer ${secret.K}"}`
			text.secrets = []SecretText{{"/k", "Bearer ${secret.K}"}}
		case "sleep":
			ps.Form, ps.Agent, text.text = BySleep, AgentSleep, `{"for":"10s"}`
		case "approval":
			ps.Form, ps.Agent, ps.CompleteWithin, text.text = ByApproval, AgentApproval, 0, "{}"
		case "signal":
			ps.Form, ps.Agent, ps.CompleteWithin, text.text = BySignal, AgentSignal, 0, `{"name":"go","key":"k"}`
		case "lasts":
			ps.CompleteWithin = perdure.Duration(tick)
		case "after", "reads", "when", "attempts", "or":
			word = v
			continue
		default:
			switch i := p.Index[v]; word {
			case "after":
				ps.After = append(ps.After, i)
			case "reads":
				text.refs, text.names = append(text.refs, i), append(text.names, v)
			case "when":
				ps.Test = script{refs: []int{i}, names: []string{v}}
			case "attempts":
				n, err := strconv.Atoi(v)
				must(t, err)
				ps.Retry.Attempts = n
			default:
				t.Fatalf("unknown word %q", v)
			}
		}
	}
	ps.Do = text
	return ps
}

func ladderOf(text string) (l Ladder) {
	for _, r := range strings.Split(text, ",") {
		kind, arg, _ := strings.Cut(r, ":")
		rung := Rung{Kind: RungKind(kind)}
		switch rung.Kind {
		case RungWait, RungRestart:
			rung.For = perdure.Duration(tick)
			rung.Times, _ = strconv.Atoi(arg)
		case RungAlert:
			rung.Name = arg
		}
		l = append(l, rung)
	}
	return l
}

// script stands for an expression. As a condition it is true if the output that it reads is not null, and fails if that
// is "bad".
type script struct {
	text  string
	refs  []int
	names []string
	own   bool

	secrets []SecretText
}

func (s script) Refs() []int { return s.refs }

func (s script) Secrets() []SecretText { return s.secrets }

func (s script) Eval(sc *Scope) (bool, error) {
	out := outputIn(sc, s.names[0])
	if out == `"bad"` {
		return false, errors.New("bad")
	}
	return out != "", nil
}

func (s script) Render(sc *Scope) (json.RawMessage, error) {
	if strings.HasPrefix(s.text, "{") {
		return json.RawMessage(s.text), nil
	}
	text := s.text
	for _, n := range s.names {
		out := outputIn(sc, n)
		if out == `"bad"` {
			return nil, errors.New("bad")
		}
		text += " " + n + "=" + out
	}
	if s.own {
		text += fmt.Sprintf(" output=%s key=%s doKey=%s", sc.Output, tail(sc.Key), tail(sc.DoKey))
	}
	return json.Marshal(text)
}

// outputIn returns an output as expressions see it; empty for null. It panics if the output was not loaded.
func outputIn(sc *Scope, step string) string {
	switch out := string(sc.Outputs[step]); out {
	case "":
		panic("the output of " + step + " is not loaded")
	case "null":
		return ""
	default:
		return out
	}
}

// tail returns a key without its job.
func tail(key string) string { _, t, _ := strings.Cut(key, "/"); return t }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
