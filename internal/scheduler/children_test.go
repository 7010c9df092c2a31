package scheduler_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/protocol"
)

// family plays a parent and its children: it carries out the runs of agent a, and sweeps what is due.
type family struct {
	*harness
	outcome func(perdure.Run) protocol.Report
	runs    []string // STEP/DIRECTION of runs, with the input
}

func newFamily(t *testing.T, store kernel.Store) *family {
	return &family{harness: open(t, store, scheduler.Config{}), outcome: func(perdure.Run) protocol.Report { return protocol.Report{Outcome: perdure.OutcomeDone} }}
}

// once carries out the runs that are ready, and one sweep. It reports whether there was anything to do.
func (f *family) once() bool {
	f.t.Helper()
	runs := f.claim(protocol.Claim{Agent: "a", Holder: "h", RequestID: fmt.Sprint(time.Now().UnixNano()), Max: 100})
	var reports []protocol.Report
	for _, run := range runs {
		rep := f.outcome(run)
		rep.Job, rep.Step, rep.Run = run.Job, run.Step, run.Number
		reports = append(reports, rep)
		f.runs = append(f.runs, fmt.Sprintf("%s %s %s", run.Step, run.Direction, run.Input))
	}
	if len(reports) > 0 {
		if _, _, err := f.Report(f.t.Context(), "h", reports, nil); err != nil {
			f.t.Fatal(err)
		}
	}
	n, err := f.SweepDue(f.t.Context(), 500)
	if err != nil {
		f.t.Fatal(err)
	}
	return len(runs)+n > 0
}

// until plays until a job is in a phase.
func (f *family) until(id perdure.JobID, phases ...perdure.Phase) *kernel.Job {
	f.t.Helper()
	for end := time.Now().Add(60 * time.Second); ; {
		busy := f.once()
		if j := f.job(id); slices.Contains(phases, j.Phase) {
			return j
		}
		if !busy {
			time.Sleep(5 * time.Millisecond)
		}
		if time.Now().After(end) {
			f.t.Fatalf("the job is not %v:\n%s", phases, f.dump(id))
		}
	}
}

func (f *family) dump(id perdure.JobID) string {
	j, steps, _ := f.store.Job(f.t.Context(), id, 100)
	text := fmt.Sprintf("%s %s %s\n", j.Current, j.Desired, j.Phase)
	for _, s := range steps {
		text += fmt.Sprintf("%s %s %s %s run %d: %s %s %s\n", s.Name, s.Current, s.Desired, s.Phase, s.Run, s.Children, s.ErrorCode, s.LastError)
	}
	for _, c := range f.children(id, 0) {
		text += fmt.Sprintf("  %s %s %s %s\n", c.ID, c.Current, c.Desired, c.Phase)
	}
	return text
}

// step returns a step, and what it records of its children.
func (f *family) step(id perdure.JobID, name string) (*kernel.Step, kernel.Children) {
	f.t.Helper()
	_, steps, err := f.store.Job(f.t.Context(), id, 100)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, s := range steps {
		if s.Name == name {
			c, err := s.Children.Read()
			if err != nil {
				f.t.Fatal(err)
			}
			return s, c
		}
	}
	f.t.Fatalf("no step %s", name)
	return nil, kernel.Children{}
}

// children returns the children of a step in their order.
func (f *family) children(id perdure.JobID, index int) []*kernel.Job {
	f.t.Helper()
	jobs, _, err := f.store.ListJobs(f.t.Context(), kernel.JobFilter{Ascending: true, Limit: 100_000})
	if err != nil {
		f.t.Fatal(err)
	}
	return slices.DeleteFunc(jobs, func(j *kernel.Job) bool {
		p, ok := j.Parent.Parts()
		return !ok || p.StepRef != (kernel.StepRef{Job: id, Index: index})
	})
}

// states counts the children by their state.
func (f *family) states(id perdure.JobID, index int) string {
	counts := map[string]int{}
	for _, c := range f.children(id, index) {
		counts[c.Phase.String()+" "+c.Current.String()]++
	}
	var words []string
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		words = append(words, fmt.Sprintf("%d %s", counts[k], k))
	}
	return strings.Join(words, ", ")
}

// check checks the rows of a job, of its children, and C1 to C3.
func (f *family) check(id perdure.JobID) {
	f.t.Helper()
	ctx := f.t.Context()
	j := f.job(id)
	p, err := f.Plan(ctx, j)
	if err != nil {
		f.t.Fatal(err)
	}
	steps, _ := f.store.StepsOf(ctx, id, time.Unix(0, 0))
	alerts, _ := f.store.Alerts(ctx, kernel.AlertFilter{Job: id})
	now, _ := f.store.Now(ctx)
	found := kernel.CheckJob(j, p, steps, alerts, now)
	for _, s := range steps {
		if s.Children == "" {
			continue
		}
		news, err := f.store.ReadChildNews(ctx, s.StepRef, 1000)
		if err != nil {
			f.t.Fatal(err)
		}
		c, _ := s.Children.Read()
		own := slices.DeleteFunc(f.children(id, s.Index), func(j *kernel.Job) bool { return kernel.ChildID(j.ID, 0) != c.First })
		found = append(found, kernel.CheckChildren(s, &p.Steps[s.Index], own, news)...)
	}
	for _, x := range found {
		f.t.Errorf("%s %s: %s", x.Rule, x.Step, x.Message)
	}
}

func (f *family) act(id perdure.JobID, a perdure.Act) {
	f.t.Helper()
	a.Author = "o"
	if err := f.Act(f.t.Context(), id, a); err != nil {
		f.t.Fatal(err)
	}
}

func (f *family) output(id perdure.JobID, index int) string {
	f.t.Helper()
	p, err := f.store.Payload(f.t.Context(), kernel.StepRef{Job: id, Index: index})
	if err != nil || p == nil {
		f.t.Fatal(p, err)
	}
	return string(p.Output)
}

// One child: its output is that of the step. Undo of the parent undoes it, redo does it again.
func TestOneChild(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		f := newFamily(t, store)
		f.outcome = func(run perdure.Run) protocol.Report {
			return protocol.Report{Outcome: perdure.OutcomeDone, Output: json.RawMessage(`{"of":` + string(run.Input) + `}`)}
		}
		id := f.submit(`
type: order
input: {n: 7}
labels: {customer: c}
priority: 3
steps:
  settle:
    job:
      definition:
        type: settlement
        steps: {pay: {agent: a, with: "${input.n}", undo: {}}}
        output: ${steps.pay.output}
      input: {n: "${input.n}"}
  after: {after: [settle], agent: a, with: "${steps.settle.output}"}
`)
		if j := f.until(id, perdure.Settled); j.Current != perdure.Done {
			t.Fatal(f.dump(id))
		}
		f.check(id)
		if got := f.output(id, 0); got != `{"of":7}` {
			t.Errorf("output %s", got)
		}
		kids := f.children(id, 0)
		if len(kids) != 1 || kids[0].Type != "settlement" || kids[0].Labels["customer"] != "c" || kids[0].Priority != 3 || kids[0].Parent.Shown() != id.String()+"/settle" {
			t.Fatalf("children: %+v", kids)
		}
		f.act(id, perdure.Act{Verb: perdure.VerbUndo})
		if j := f.until(id, perdure.Settled); j.Current != perdure.Undone || f.states(id, 0) != "1 settled undone" {
			t.Fatal(f.dump(id))
		}
		f.check(id)
		f.act(id, perdure.Act{Verb: perdure.VerbRedo})
		if j := f.until(id, perdure.Settled); j.Current != perdure.Done || f.states(id, 0) != "1 settled done" {
			t.Fatal(f.dump(id))
		}
		f.check(id)
		if s, _ := f.step(id, "settle"); s.Turn != 3 || s.Run != 3 {
			t.Errorf("turn %d, run %d", s.Turn, s.Run)
		}
	})
}

const many = `
type: album
input: {n: %d, list: [{name: x}, {name: y}, {name: z}]}
onFailure: %s
steps:
  resize:
    forEach: %s
    as: image
    maxParallel: 4
    agent: a
    action: scale
    with: {image: "${image}", index: "${index}"}
    undo: {with: {image: "${image}", got: "${output}"}}
    retry: {attempts: 1}
    collect: list
    %s
`

// Children of the short form: a list, with the outputs in order. Nothing wakes the owner: the due scan finds its news (F312).
func TestForEachOverAList(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		f := newFamily(t, store)
		f.outcome = func(run perdure.Run) protocol.Report {
			var in struct {
				Image struct{ Name string }
				Index int
			}
			if err := json.Unmarshal(run.Input, &in); err != nil {
				t.Errorf("input %s: %v", run.Input, err)
			}
			return protocol.Report{Outcome: perdure.OutcomeDone, Output: json.RawMessage(fmt.Sprintf("%q", in.Image.Name+fmt.Sprint(in.Index)))}
		}
		id := f.submit(fmt.Sprintf(many, 0, "park", `{in: "${input.list}"}`, ""))
		if j := f.until(id, perdure.Settled); j.Current != perdure.Done {
			t.Fatal(f.dump(id))
		}
		f.check(id)
		if got := f.output(id, 0); got != `{"total":3,"done":3,"failed":0,"items":["x0","y1","z2"]}` {
			t.Errorf("output %s", got)
		}
		f.runs = nil
		f.act(id, perdure.Act{Verb: perdure.VerbUndo})
		f.until(id, perdure.Settled)
		f.check(id)
		slices.Sort(f.runs)
		if got := strings.Join(f.runs, "; "); got != `resize undo {"got":"x0","image":{"name":"x"}}; resize undo {"got":"y1","image":{"name":"y"}}; resize undo {"got":"z2","image":{"name":"z"}}` {
			t.Error(got)
		}
	})
}

// failing fails the do runs of some numbers.
func (f *family) failing(numbers ...int) {
	f.outcome = func(run perdure.Run) protocol.Report {
		var in struct{ Index int }
		_ = json.Unmarshal(run.Input, &in)
		if run.Direction == perdure.Do && slices.Contains(numbers, in.Index) {
			return protocol.Report{Outcome: perdure.OutcomeFailed, Error: &perdure.RunError{Code: "bad"}, Effect: protocol.EffectNone}
		}
		return protocol.Report{Outcome: perdure.OutcomeDone}
	}
}

// Failures up to the tolerance leave the step done. Beyond it the ladder decides: undo turns all children.
func TestToleranceAndUndo(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		f := newFamily(t, store)
		f.failing(3, 7)
		id := f.submit(fmt.Sprintf(many, 20, "undo", `{range: [0, "${input.n}"]}`, "tolerate: {failed: 10%}"))
		if j := f.until(id, perdure.Settled); j.Current != perdure.Done || f.states(id, 0) != "18 settled done, 2 settled undone" {
			t.Fatal(f.dump(id))
		}
		f.check(id)
		f.failing(3, 7, 11)
		id = f.submit(fmt.Sprintf(many, 20, "undo", `{range: [0, "${input.n}"]}`, "tolerate: {failed: 2}"))
		j := f.until(id, perdure.Settled)
		s, c := f.step(id, "resize")
		if j.Current != perdure.Undone || c.Undone != c.Spawned || c.Spawned >= 20 || s.Phase != perdure.Settled {
			t.Fatal(f.dump(id))
		}
		f.check(id)
	})
}

// A parked owner waits for an operator. Resume does only the failed children again, and then the rest.
func TestResumeRedoesTheFailedChildren(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		f := newFamily(t, store)
		f.failing(5)
		id := f.submit(fmt.Sprintf(many, 12, "undo", `{range: [0, "${input.n}"]}`, "onFailure: park"))
		if f.until(id, perdure.Parked); f.job(id).Phase != perdure.Parked {
			t.Fatal(f.dump(id))
		}
		s, _ := f.step(id, "resize")
		if s.ErrorCode != "childFailed" || !strings.Contains(s.LastError, "1 of 12 children have failed, the first is job_") {
			t.Errorf("%s: %s", s.ErrorCode, s.LastError)
		}
		f.check(id)
		f.failing()
		f.runs = nil
		f.act(id, perdure.Act{Verb: perdure.VerbResume})
		if j := f.until(id, perdure.Settled); j.Current != perdure.Done || f.states(id, 0) != "12 settled done" {
			t.Fatal(f.dump(id))
		}
		f.check(id)
		for _, run := range f.runs {
			if strings.Contains(run, `"index":0`) {
				t.Errorf("a child that was done was done again: %s", run)
			}
		}
	})
}

// An undo while children are submitted turns those that exist, and a redo does them again and submits the rest (F313).
func TestUndoWhileChildrenAreSubmitted(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		f := newFamily(t, store)
		id := f.submit(fmt.Sprintf(many, 30, "undo", `{range: [0, "${input.n}"]}`, "undoOrder: reverse"))
		for f.once(); len(f.children(id, 0)) < 8; f.once() {
			time.Sleep(5 * time.Millisecond)
		}
		f.act(id, perdure.Act{Verb: perdure.VerbUndo})
		if j := f.until(id, perdure.Settled); j.Current != perdure.Undone {
			t.Fatal(f.dump(id))
		}
		f.check(id)
		before := len(f.children(id, 0))
		if before >= 30 {
			t.Fatalf("%d children", before)
		}
		f.act(id, perdure.Act{Verb: perdure.VerbRedo})
		if j := f.until(id, perdure.Settled); j.Current != perdure.Done || f.states(id, 0) != "30 settled done" {
			t.Fatal(f.dump(id))
		}
		f.check(id)
	})
}
