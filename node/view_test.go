package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/admission"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/store/memory"
)

// text returns a JSON string of so many bytes.
func text(bytes int) json.RawMessage {
	return json.RawMessage(`"` + strings.Repeat("x", bytes-2) + `"`)
}

func stepOf(t *testing.T, n *node.Node, ref, name string) *perdure.StepDetail {
	t.Helper()
	d, err := n.Step(t.Context(), ref, name)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// F157: a value at the bound is in the view, one above it is left out with its size; one call returns it in full.
func TestLargeValuesAreLeftOutOfAView(t *testing.T) {
	const most = perdure.MaxShownValue
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		a := perdure.NewAgent("a")
		a.HandleAny(func(_ context.Context, run *perdure.Run) (json.RawMessage, error) {
			var bytes int
			if err := json.Unmarshal(run.Input, &bytes); err == nil {
				return text(bytes), nil
			}
			return nil, nil
		})
		n := start(t, store, node.Config{Agents: []*perdure.Agent{a}})
		job, created, err := n.Submit(t.Context(), fmt.Appendf(nil, `{"type":"t","key":"k","input":{"large":%s},"steps":{
			"at":{"agent":"a","with":%d},
			"above":{"agent":"a","with":%d},
			"reads":{"agent":"a","after":["at","above"],"with":"${steps.at.output}"},
			"readsMore":{"agent":"a","after":["above"],"with":"${steps.above.output}"},
			"readsInput":{"agent":"a","with":"${input.large}"},
			"none":{"agent":"a","when":"false"}}}`, text(most), most, most+1), "application/json")
		if err != nil || !created {
			t.Fatal(created, err)
		}
		if job.Input != nil || job.InputBytes != most+len(`{"large":}`) {
			t.Errorf("answer to the submission: input of %d bytes, %d left out", len(job.Input), job.InputBytes)
		}
		v := rest(t, n, "k")
		if v.Current != perdure.Done {
			t.Fatalf("%+v", v)
		}
		if v.Input != nil || v.InputBytes != job.InputBytes {
			t.Errorf("input of %d bytes, %d left out", len(v.Input), v.InputBytes)
		}
		definition, err := n.Definition(t.Context(), "k")
		if err != nil || v.Definition != nil || v.DefinitionBytes != len(definition) {
			t.Errorf("definition of %d bytes, %d left out, %d in full; %v", len(v.Definition), v.DefinitionBytes, len(definition), err)
		}
		if again, created, err := n.Submit(t.Context(), definition, "application/json"); err != nil || created || again.ID != v.ID {
			t.Errorf("its definition, submitted again: created %v, %v", created, err)
		}
		// The job's input is left out, and an input that is rendered again may read it: then it is not shown.
		for _, want := range []struct {
			step          string
			input, output int // bytes of the complete values
			shows         perdure.StepView
		}{
			{"at", len(fmt.Sprint(most)), most, perdure.StepView{Output: text(most)}},
			{"above", len(fmt.Sprint(most + 1)), most + 1, perdure.StepView{OutputBytes: most + 1}},
			{"reads", most, 0, perdure.StepView{Input: text(most)}},
			{"readsMore", most + 1, 0, perdure.StepView{InputBytes: most + 1}},
			{"readsInput", most, 0, perdure.StepView{}},
			{"none", 0, 0, perdure.StepView{}},
		} {
			s, d := v.Steps.Get(want.step), stepOf(t, n, "k", want.step)
			if d.Job != v.ID || d.Name != want.step || d.Key != s.Key || len(d.Input) != want.input || len(d.Output) != want.output || d.InputBytes+d.OutputBytes != 0 {
				t.Errorf("step %s in full: %s %s, input of %d bytes, output of %d, and %d and %d left out; want %d and %d", want.step, d.Name, d.Key,
					len(d.Input), len(d.Output), d.InputBytes, d.OutputBytes, want.input, want.output)
			}
			if string(s.Input) != string(want.shows.Input) || string(s.Output) != string(want.shows.Output) ||
				s.InputBytes != want.shows.InputBytes || s.OutputBytes != want.shows.OutputBytes {
				t.Errorf("step %s shows an input of %d bytes (%d left out) and an output of %d (%d left out)",
					want.step, len(s.Input), s.InputBytes, len(s.Output), s.OutputBytes)
			}
		}
		if _, err := perdure.OutputOf[string](v, "at"); err != nil {
			t.Error(err)
		}
		if _, err := perdure.OutputOf[string](v, "above"); perdure.CodeOf(err) != perdure.CodeTooLarge {
			t.Errorf("an output that was left out: %v", err)
		}
		if _, err := n.Step(t.Context(), "k", "nope"); perdure.CodeOf(err) != perdure.CodeNotFound {
			t.Errorf("a step that is not there: %v", err)
		}
		if _, err := n.Definition(t.Context(), "nope"); perdure.CodeOf(err) != perdure.CodeNotFound {
			t.Errorf("a job that is not there: %v", err)
		}
		consistent(t, n)
	})
}

// F157: the values of a view are bounded in total, kept ones and rendered ones together. The sizes of the others are there.
func TestValuesOfAViewAreBoundedInTotal(t *testing.T) {
	a := perdure.NewAgent("a")
	a.HandleAny(func(context.Context, *perdure.Run) (json.RawMessage, error) { return text(perdure.MaxShownValue), nil })
	n := start(t, memory.New(), node.Config{Agents: []*perdure.Agent{a}})
	const steps = 2 * perdure.MaxShownValues / perdure.MaxShownValue
	var b strings.Builder
	for i := range steps {
		fmt.Fprintf(&b, `,"s%d":{"agent":"a","with":["${input.text}"]}`, i)
	}
	body := fmt.Appendf(nil, `{"type":"t","key":"k","input":{"text":%s},"steps":{%s}}`, text(20<<10), b.String()[1:])
	if _, _, err := n.Submit(t.Context(), body, "application/json"); err != nil {
		t.Fatal(err)
	}
	v := rest(t, n, "k")
	sum, left := 0, 0
	for _, s := range v.Steps {
		sum += len(s.Input) + len(s.Output)
		if s.OutputBytes > 0 {
			left++
		}
		if s.Output == nil && s.OutputBytes != perdure.MaxShownValue || s.Input == nil && s.InputBytes != 0 && s.InputBytes != 20<<10+2 {
			t.Errorf("step %s: %d and %d bytes left out", s.Name, s.InputBytes, s.OutputBytes)
		}
	}
	if sum > perdure.MaxShownValues || sum < perdure.MaxShownValues-2*perdure.MaxShownValue || left < steps/2 {
		t.Errorf("%d bytes are shown, want at most %d; %d of %d outputs are left out", sum, perdure.MaxShownValues, left, steps)
	}
}

// F157: the error messages of a view are bounded in total. A request for the one step has the whole message.
func TestErrorMessagesOfAViewAreBoundedInTotal(t *testing.T) {
	a := perdure.NewAgent("a")
	message := strings.Repeat("\x01", perdure.MaxReasonBytes)
	a.HandleAny(func(context.Context, *perdure.Run) (json.RawMessage, error) {
		return nil, perdure.Rejected(errors.New(message))
	})
	n := start(t, memory.New(), node.Config{Agents: []*perdure.Agent{a}})
	var b strings.Builder
	for i := range 500 {
		fmt.Fprintf(&b, `,"s%d":{"agent":"a"}`, i)
	}
	if _, _, err := n.Submit(t.Context(), fmt.Appendf(nil, `{"type":"t","key":"k","steps":{%s}}`, b.String()[1:]), "application/json"); err != nil {
		t.Fatal(err)
	}
	v := rest(t, n, "k")
	whole, err := json.Marshal(v)
	if err != nil || len(whole) > perdure.MaxShownTexts+500*2<<10 {
		t.Errorf("the view has %d bytes, %v", len(whole), err)
	}
	if first := v.Steps[0].LastError; first == nil || first.Message != message {
		t.Errorf("the first message is clipped: %v", first)
	}
	last, err := n.Step(t.Context(), "k", "s499")
	if err != nil || last.LastError == nil || last.LastError.Message != message {
		t.Errorf("the message of one step: %v", err)
	}
}

// F157: each step that a full limit holds back names the holders, but not beyond the bound on texts.
func TestHoldersInAViewAreBoundedInTotal(t *testing.T) {
	n := start(t, memory.New(), node.Config{})
	const holders, steps = perdure.MaxHoldersShown, 800
	if _, err := n.PutLimit(t.Context(), "agent:x", perdure.LimitSettings{Max: new(holders)}); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for i := range steps {
		fmt.Fprintf(&b, `,"s%d":{"agent":"x"}`, i)
	}
	if _, _, err := n.Submit(t.Context(), fmt.Appendf(nil, `{"type":"t","key":"k","steps":{%s}}`, b.String()[1:]), "application/json"); err != nil {
		t.Fatal(err)
	}
	if runs, err := n.Claim(t.Context(), protocol.Claim{Agent: "x", Holder: "h", Max: holders}); err != nil || len(runs) != holders {
		t.Fatal(len(runs), err)
	}
	v, err := n.Job(t.Context(), "k", 0)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(1100 * time.Millisecond) // answers to submissions know limits as they were up to a second ago
	submitted, _, err := n.Submit(t.Context(), fmt.Appendf(nil, `{"type":"t","steps":{%s}}`, b.String()[1:]), "application/json")
	if err != nil {
		t.Fatal(err)
	}
	for answer, v := range map[string]*perdure.JobView{"the job": v, "a submission": submitted} {
		whole, err := json.Marshal(v)
		if err != nil || len(whole) > perdure.MaxShownTexts+steps*1<<10 {
			t.Errorf("%s has %d bytes, %v", answer, len(whole), err)
		}
		for _, i := range []int{holders, steps - 1} {
			why := v.Steps[i].Why
			if why == nil || why.Kind != perdure.WhyLimit || why.Used != holders || (len(why.Holders) == holders) != (i == holders) {
				t.Errorf("%s, step %d: %+v", answer, i, why)
			}
		}
	}
}

// The view shows the inputs of runs: none before the first run; stored or rendered, edited, in both directions.
func TestViewShowsInputsOfSteps(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		n := start(t, store, node.Config{})
		submit(t, n, `
type: t
key: k
input: {n: 7}
steps:
  a: {agent: x, with: {n: "${input.n}"}, undo: {with: {id: "${output.id}", key: "${doKey}"}}}
  b: {agent: x, after: [a], with: "${steps.a.output.id}", undo: {}}
  c: {agent: x, after: [b]}
`)
		want := func(when string, inputs map[string]string) {
			t.Helper()
			v, err := n.Job(t.Context(), "k", 0)
			if err != nil {
				t.Fatal(err)
			}
			for name, in := range inputs {
				if got := string(v.Steps.Get(name).Input); got != in {
					t.Errorf("%s: step %s shows %s, want %s", when, name, got, in)
				}
				if got := string(stepOf(t, n, "k", name).Input); got != in {
					t.Errorf("%s: step %s alone shows %s, want %s", when, name, got, in)
				}
			}
			if string(v.Definition) == "" || string(v.Input) != `{"n":7}` {
				t.Errorf("%s: definition %s, input %s", when, v.Definition, v.Input)
			}
		}
		run := func(outcome perdure.Outcome, output string) *perdure.Run {
			t.Helper()
			runs, err := n.Claim(t.Context(), protocol.Claim{Agent: "x", Holder: "h", Max: 1, Wait: 10e9})
			if err != nil || len(runs) != 1 {
				t.Fatal(runs, err)
			}
			want("in flight", map[string]string{runs[0].Step: string(runs[0].Input)})
			rep := protocol.Report{Job: runs[0].Job, Step: runs[0].Step, Run: runs[0].Number, Outcome: outcome, Output: json.RawMessage(output)}
			if res, _, err := n.Report(t.Context(), "h", []protocol.Report{rep}, nil); err != nil || !res[0].Accepted {
				t.Fatal(res, err)
			}
			return &runs[0]
		}
		act := func(a perdure.Act) {
			t.Helper()
			a.Author = "op"
			if _, err := n.Act(t.Context(), "k", a); err != nil {
				t.Fatal(err)
			}
		}
		want("before the first dispatch", map[string]string{"a": "", "b": "", "c": ""})
		run(perdure.OutcomeDone, `{"id":"a-1"}`)
		want("a is done", map[string]string{"a": `{"n":7}`, "b": ""})
		run(perdure.OutcomeRejected, "")
		want("b is parked", map[string]string{"a": `{"n":7}`, "b": `"a-1"`})
		act(perdure.Act{Verb: perdure.VerbResume, Step: "b", Input: json.RawMessage(`"edited"`)})
		want("b is edited", map[string]string{"b": `"edited"`})
		run(perdure.OutcomeDone, `null`)
		run(perdure.OutcomeDone, `null`)
		want("all are done", map[string]string{"a": `{"n":7}`, "b": `"edited"`, "c": "null"})
		act(perdure.Act{Verb: perdure.VerbUndo})
		run(perdure.OutcomeDone, "")
		undo := run(perdure.OutcomeDone, "")
		want("undone", map[string]string{"a": string(undo.Input), "b": `"edited"`, "c": "null"})
		if !strings.Contains(string(undo.Input), `"id":"a-1"`) {
			t.Errorf("the undo of a was handed %s", undo.Input)
		}
		act(perdure.Act{Verb: perdure.VerbRedo})
		run(perdure.OutcomeDone, `{"id":"a-2"}`)
		want("a is done anew", map[string]string{"a": `{"n":7}`, "b": `"edited"`})
	})
}

// onlyRun claims the one run that agent x can get, and reports it.
func onlyRun(t *testing.T, n *node.Node, outcome perdure.Outcome, output string) *perdure.Run {
	t.Helper()
	runs, err := n.Claim(t.Context(), protocol.Claim{Agent: "x", Holder: "h", Max: 1, Wait: 10 * time.Second})
	if err != nil || len(runs) != 1 {
		t.Fatal(runs, err)
	}
	rep := protocol.Report{Job: runs[0].Job, Step: runs[0].Step, Run: runs[0].Number, Outcome: outcome, Output: json.RawMessage(output)}
	if res, _, err := n.Report(t.Context(), "h", []protocol.Report{rep}, nil); err != nil || !res[0].Accepted {
		t.Fatal(res, err)
	}
	return &runs[0]
}

func operateOn(t *testing.T, n *node.Node, a perdure.Act) {
	t.Helper()
	a.Author = "op"
	if _, err := n.Act(t.Context(), "k", a); err != nil {
		t.Fatal(err)
	}
}

// F149: a step that is skipped loses its output. The input of its earlier undo read that output, and is not rendered
// with null instead.
func TestSkippedStepDoesNotShowTheInputOfItsUndo(t *testing.T) {
	n := start(t, memory.New(), node.Config{})
	submit(t, n, `
type: t
key: k
steps:
  a: {agent: x}
  b: {agent: x, after: [a], undo: {with: {id: "${output?.id}"}}}
`)
	onlyRun(t, n, perdure.OutcomeDone, "")
	onlyRun(t, n, perdure.OutcomeDone, `{"id":7}`)
	operateOn(t, n, perdure.Act{Verb: perdure.VerbUndo})
	handed := string(onlyRun(t, n, perdure.OutcomeDone, "").Input)
	if got := string(rest(t, n, "k").Steps.Get("b").Input); got != handed || handed != `{"id":7}` {
		t.Fatalf("it shows %s, and was handed %s", got, handed)
	}
	operateOn(t, n, perdure.Act{Verb: perdure.VerbRedo})
	operateOn(t, n, perdure.Act{Verb: perdure.VerbSkip, Step: "b"})
	operateOn(t, n, perdure.Act{Verb: perdure.VerbUndo})
	if got := string(rest(t, n, "k").Steps.Get("b").Input); got != "" && got != handed {
		t.Errorf("in the job it shows %s, and was handed %s", got, handed)
	}
	if got := string(stepOf(t, n, "k", "b").Input); got != "" && got != handed {
		t.Errorf("alone it shows %s, and was handed %s", got, handed)
	}
}

// The input of an undo may be rendered from outputs of other steps by `with` of the step itself: if the step never ran,
// that input was not stored. One step alone shows the same as the job. F157: these outputs ask for room, too.
func TestStepAloneShowsTheInputOfItsUndo(t *testing.T) {
	n := start(t, memory.New(), node.Config{})
	submit(t, n, `
type: t
key: k
steps:
  a: {agent: x}
  b: {agent: x, after: [a], with: "${steps.a.output}", undo: {}}
`)
	onlyRun(t, n, perdure.OutcomeDone, `"a-1"`)
	operateOn(t, n, perdure.Act{Verb: perdure.VerbSettle, Step: "b", As: new(perdure.Done)})
	operateOn(t, n, perdure.Act{Verb: perdure.VerbUndo})
	time.Sleep(2 * time.Millisecond) // an output with the same timestamp may be a later one
	handed := string(onlyRun(t, n, perdure.OutcomeRejected, "").Input)
	if got := string(rest(t, n, "k").Steps.Get("b").Input); got != handed || handed != `"a-1"` {
		t.Fatalf("in the job it shows %s, and was handed %s", got, handed)
	}
	admitted := 0
	ctx := admission.With(t.Context(), admission.Gate{Admit: func(_ context.Context, bytes int) error { admitted = bytes; return nil }})
	if d, err := n.Step(ctx, "k", "b"); err != nil || string(d.Input) != handed {
		t.Errorf("alone it shows %s, and was handed %s; %v", d.Input, handed, err)
	}
	if least := 3 * perdure.MaxPayloadBytes; admitted < least {
		t.Errorf("it asked for %d bytes, and may read %d", admitted, least)
	}
}

// F157: an answer that may be large asks for room before it is read.
func TestLargeAnswersAskForRoom(t *testing.T) {
	const size = 500_000
	n := start(t, memory.New(), node.Config{})
	if _, err := n.PutLimit(t.Context(), "agent:a", perdure.LimitSettings{Max: new(1)}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := n.Submit(t.Context(), fmt.Appendf(nil, `{"type":"t","key":"k","input":%s,"steps":{"s":{"agent":"a","with":"${input}"}}}`, text(size)), "application/json"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		least int
		read  func(context.Context) error
	}{
		"the job":        {1 << 10, func(ctx context.Context) error { _, err := n.Job(ctx, "k", 0); return err }},
		"its definition": {size, func(ctx context.Context) error { _, err := n.Definition(ctx, "k"); return err }},
		"a step":         {size, func(ctx context.Context) error { _, err := n.Step(ctx, "k", "s"); return err }},
		"a list":         {1 << 10, func(ctx context.Context) error { _, err := n.ListJobs(ctx, perdure.JobQuery{}); return err }},
		"a history":      {1 << 10, func(ctx context.Context) error { _, err := n.History(ctx, perdure.HistoryQuery{Job: "k"}); return err }},
		"limits":         {perdure.MaxHoldersShown * 100, func(ctx context.Context) error { _, err := n.ListLimits(ctx); return err }},
		"alerts":         {1 << 10, func(ctx context.Context) error { _, err := n.ListAlerts(ctx, perdure.AlertQuery{}); return err }},
	} {
		admitted, refused := 0, errors.New("no room")
		ctx := admission.With(t.Context(), admission.Gate{Admit: func(_ context.Context, bytes int) error { admitted = bytes; return refused }})
		if err := c.read(ctx); !errors.Is(err, refused) || admitted < c.least {
			t.Errorf("%s: %v, having asked for %d bytes", name, err, admitted)
		}
	}
}

// F157: a refusal for want of room says that nothing has changed. So a submission whose job is stored already, and an act
// that was carried out, are answered with the job without its steps.
func TestStoredChangesAreNotRefusedForWantOfRoom(t *testing.T) {
	n := start(t, memory.New(), node.Config{})
	input := text(perdure.MaxInlineInput + 1) // it is not in the job's row
	definition := fmt.Appendf(nil, `{"type":"t","key":"k","input":%s,"steps":{"a":{"agent":"nobody","undo":{}}}}`, input)
	job, _, err := n.Submit(t.Context(), definition, "application/json")
	if err != nil {
		t.Fatal(err)
	}
	full := admission.With(t.Context(), admission.Gate{Admit: func(context.Context, int) error {
		return perdure.Refuse(perdure.CodeTooManyRequests, "no room")
	}})
	v, created, err := n.Submit(full, definition, "application/json")
	if err != nil || created || v.ID != job.ID || v.Input != nil || v.InputBytes != len(input) || v.Steps != nil {
		t.Errorf("a job that was submitted before: %+v, created %v, %v", v, created, err)
	}
	v, err = n.Act(full, "k", perdure.Act{Verb: perdure.VerbUndo, Author: "op"})
	if err != nil || v.ID != job.ID || v.Desired != perdure.Undone || v.InputBytes != len(input) || v.Steps != nil {
		t.Errorf("an act: %+v, %v", v, err)
	}
}

// F157: an event with many steps asks for room as the whole job does, before it is made; one with few steps does not.
func TestEventOfManyStepsAsksForRoom(t *testing.T) {
	n := start(t, memory.New(), node.Config{})
	const steps = 300
	var b strings.Builder
	for i := range steps {
		fmt.Fprintf(&b, `,"s%d":{"agent":"x","undo":{}}`, i)
	}
	if _, _, err := n.Submit(t.Context(), fmt.Appendf(nil, `{"type":"t","key":"k","steps":{%s}}`, b.String()[1:]), "application/json"); err != nil {
		t.Fatal(err)
	}
	admitted := 0
	ctx := admission.With(t.Context(), admission.Gate{Admit: func(_ context.Context, bytes int) error { admitted = bytes; return nil }})
	claim := func() {
		if runs, err := n.Claim(t.Context(), protocol.Claim{Agent: "x", Holder: "h", Max: 1}); err != nil || len(runs) != 1 {
			t.Error(runs, err)
		}
	}
	enough := errors.New("enough")
	event := 0
	err := n.Follow(ctx, "k", func(v *perdure.JobView) error {
		defer func() { admitted = 0 }()
		switch event++; {
		case event == 1:
			claim()
		case event == 2:
			if len(v.Steps) != 1 || admitted > admission.Free {
				t.Errorf("news of %d steps asked for %d bytes", len(v.Steps), admitted)
			}
			if _, err := n.Act(t.Context(), "k", perdure.Act{Verb: perdure.VerbUndo, Author: "op"}); err != nil {
				t.Error(err)
			}
		default:
			if least := 1 << 10 * steps; len(v.Steps) < steps-1 || admitted < least {
				t.Errorf("news of %d steps asked for %d bytes, want at least %d", len(v.Steps), admitted, least)
			}
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Error(err)
	}
}
