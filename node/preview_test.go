package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/node"
	consoles "github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/store/memory"
)

// rowsOf returns everything that the store has of a job, and what all jobs share.
func rowsOf(t *testing.T, store kernel.Store, id perdure.JobID) string {
	t.Helper()
	ctx := t.Context()
	var text strings.Builder
	add := func(v any, err error) {
		t.Helper()
		b, jerr := json.Marshal(v)
		if err != nil || jerr != nil {
			t.Fatal(err, jerr)
		}
		fmt.Fprintf(&text, "%s\n", b)
	}
	job, _, err := store.Job(ctx, id, 0)
	add(job, err)
	steps, err := store.StepsOf(ctx, id, time.Time{})
	add(steps, err)
	payloads, err := store.Payloads(ctx, id, perdure.MaxShownValue, perdure.MaxShownValues)
	add(payloads, err)
	alerts, err := store.Alerts(ctx, kernel.AlertFilter{Job: id, Closed: true, Limit: 100})
	add(alerts, err)
	history, err := store.History(ctx, id, 0, 100)
	add(history, err)
	jobs, _, err := store.ListJobs(ctx, kernel.JobFilter{Limit: 100})
	add(jobs, err)
	agents, err := store.ReadyAgents(ctx, 100)
	add(agents, err)
	backlog, err := store.Backlog(ctx, 100)
	add(backlog, err)
	return text.String()
}

func claimed(t *testing.T, n *node.Node, agent, holder string) *perdure.Run {
	t.Helper()
	runs, err := n.Claim(t.Context(), protocol.Claim{Agent: agent, Holder: holder, Max: 1, Wait: 10 * time.Second})
	if err != nil || len(runs) != 1 {
		t.Fatal(runs, err)
	}
	return &runs[0]
}

func reported(t *testing.T, n *node.Node, run *perdure.Run, outcome perdure.Outcome) {
	t.Helper()
	rep := protocol.Report{Job: run.Job, Step: run.Step, Run: run.Number, Outcome: outcome}
	if res, _, err := n.Report(t.Context(), "h", []protocol.Report{rep}, nil); err != nil || !res[0].Accepted {
		t.Fatal(res, err)
	}
}

// halfDone submits a job of which reserve and notify are done, charge is parked, pack is running if that is wanted, and
// nap sleeps. Only this job has ready steps for the agents while it is made.
func halfDone(t *testing.T, n *node.Node, key string, running bool) *perdure.JobView {
	t.Helper()
	job := submit(t, n, fmt.Sprintf(`
type: order
key: %[1]s
completeWithin: 1h
input: {sku: tea}
steps:
  reserve: {agent: %[1]s-a, undo: {}}
  notify: {agent: %[1]s-a, after: [reserve]}
  charge: {agent: %[1]s-a, after: [notify], undo: {}}
  pack: {agent: %[1]s-b, after: [reserve], undo: {}, with: {of: "${steps.reserve.output}"}}
  nap: {agent: sleep, after: [reserve], with: {for: 1h}}
  mail: {agent: %[1]s-a, after: [charge, pack]}
`, key))
	reported(t, n, claimed(t, n, key+"-a", "h"), perdure.OutcomeDone)
	reported(t, n, claimed(t, n, key+"-a", "h"), perdure.OutcomeDone)
	reported(t, n, claimed(t, n, key+"-a", "h"), perdure.OutcomeRejected)
	if running {
		claimed(t, n, key+"-b", "h")
	}
	return job
}

// comparableView leaves out of a view what a preview has not, and what depends on the time.
func comparableView(v *perdure.JobView) *perdure.JobView {
	out := *v
	out.UpdatedAt, out.SettledAt, out.CompleteBy = time.Time{}, time.Time{}, time.Time{}
	out.Input, out.InputBytes, out.Definition, out.DefinitionBytes, out.Alerts = nil, 0, nil, 0, nil
	out.Steps = append(perdure.StepViews{}, v.Steps...)
	for i := range out.Steps {
		s := &out.Steps[i]
		s.Input, s.InputBytes, s.Output, s.OutputBytes = nil, 0, nil, 0
		s.ReadyAt, s.StartedAt, s.EndedAt, s.AvailableAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
		if s.Why != nil {
			s.Why = &perdure.Reason{Kind: s.Why.Kind, Steps: s.Why.Steps}
		}
	}
	return &out
}

// A preview stores nothing, and the act does what its preview has shown, or is refused with the same error.
func TestPreviewOfAnActStoresNothing(t *testing.T) {
	done, undone := perdure.Done, perdure.Undone
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		n := start(t, store, node.Config{})
		for i, test := range []struct {
			running bool
			before  perdure.Verb // an act before
			act     perdure.Act
			want    consoles.Effects
			code    perdure.Code
		}{
			{running: true, act: perdure.Act{Verb: perdure.VerbUndo}, want: consoles.Effects{Dispatch: []string{"charge"}, Settle: []string{"nap", "mail"},
				WaitFor: []consoles.StepWait{{Step: "pack"}}, WithoutUndo: []string{"notify"}}},
			{act: perdure.Act{Verb: perdure.VerbUndo}, want: consoles.Effects{Dispatch: []string{"charge"}, Settle: []string{"pack", "nap", "mail"}, WithoutUndo: []string{"notify"}}},
			{before: perdure.VerbUndo, act: perdure.Act{Verb: perdure.VerbUndo}}, // nothing to do
			{before: perdure.VerbUndo, act: perdure.Act{Verb: perdure.VerbRedo}, want: consoles.Effects{Dispatch: []string{"charge", "pack"}, Settle: []string{"reserve", "notify"}, // the undo has not come to them
				WaitFor: []consoles.StepWait{{Step: "nap"}}}},
			{act: perdure.Act{Verb: perdure.VerbResume}, want: consoles.Effects{Dispatch: []string{"charge"}}},
			{act: perdure.Act{Verb: perdure.VerbResume, Step: "charge", Input: json.RawMessage(`{"amount":1}`), NewKey: true}, want: consoles.Effects{Dispatch: []string{"charge"}}},
			{running: true, act: perdure.Act{Verb: perdure.VerbSettle, Step: "charge", As: &done, Output: json.RawMessage(`7`)}, want: consoles.Effects{Settle: []string{"charge"}}},
			{act: perdure.Act{Verb: perdure.VerbSettle, Step: "charge", As: &undone}, want: consoles.Effects{Dispatch: []string{"charge"}}},
			{act: perdure.Act{Verb: perdure.VerbSkip, Step: "nap"}, want: consoles.Effects{Settle: []string{"nap"}}},
			{act: perdure.Act{Verb: perdure.VerbEdit, Step: "charge", Input: json.RawMessage(`{"amount":1}`)}, want: consoles.Effects{Park: []string{"charge"}}},
			{act: perdure.Act{Verb: perdure.VerbGiveUp}, want: consoles.Effects{Settle: []string{"charge", "pack", "nap", "mail"}}},
			{running: true, act: perdure.Act{Verb: perdure.VerbGiveUp}, code: perdure.CodeConflict},
			{running: true, act: perdure.Act{Verb: perdure.VerbSettle, Step: "pack", As: &done}, code: perdure.CodeConflict},
			{act: perdure.Act{Verb: perdure.VerbSkip, Step: "reserve"}, code: perdure.CodeConflict},
			{before: perdure.VerbGiveUp, act: perdure.Act{Verb: perdure.VerbResume}, code: perdure.CodeConflict},
			{act: perdure.Act{Verb: perdure.VerbSkip, Step: "nope"}, code: perdure.CodeNotFound},
			{act: perdure.Act{Verb: perdure.VerbSettle, Step: "nap", As: &undone}, code: perdure.CodeConflict},
			{act: perdure.Act{Verb: perdure.VerbSkip}, code: perdure.CodeInvalid},
			{act: perdure.Act{Verb: perdure.VerbEdit, Step: "nap", Input: json.RawMessage(`1`)}, code: perdure.CodeConflict},
			{act: perdure.Act{Verb: perdure.VerbUndo, Reason: strings.Repeat("x", perdure.MaxReasonBytes+1)}, code: perdure.CodeTooLarge},
		} {
			name, key := fmt.Sprintf("%d: %s %s", i, test.act.Verb, test.act.Step), fmt.Sprintf("k%d", i)
			job := halfDone(t, n, key, test.running)
			if test.before != "" {
				if _, err := n.Act(t.Context(), key, perdure.Act{Verb: test.before, Author: "op"}); err != nil {
					t.Fatal(name, err)
				}
			}
			before := rowsOf(t, store, job.ID)
			test.act.Author = "op"
			p, refused := n.Preview(t.Context(), key, test.act)
			if diff := cmp.Diff(before, rowsOf(t, store, job.ID)); diff != "" {
				t.Errorf("%s: the preview changed the store: %s", name, diff)
			}
			v, err := n.Act(t.Context(), key, test.act)
			if perdure.CodeOf(refused) != test.code || fmt.Sprint(refused) != fmt.Sprint(err) {
				t.Errorf("%s: the preview is refused with %v, the act with %v; want %q", name, refused, err, test.code)
			}
			if refused != nil || err != nil {
				continue
			}
			if diff := cmp.Diff(comparableView(v), comparableView(p.Job)); diff != "" {
				t.Errorf("%s: the act (-) is not as previewed (+): %s", name, diff)
			}
			for i := range p.Effects.WaitFor {
				if at := p.Effects.WaitFor[i].Until; at.IsZero() {
					t.Errorf("%s: no time in %+v", name, p.Effects.WaitFor[i])
				}
				p.Effects.WaitFor[i].Until = time.Time{}
			}
			got, want := p.Effects, test.want
			for _, list := range []*[]string{&want.Dispatch, &want.Settle, &want.Park, &want.WithoutUndo} {
				if *list == nil {
					*list = []string{}
				}
			}
			if want.WaitFor == nil {
				want.WaitFor = []consoles.StepWait{}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: effects: %s", name, diff)
			}
		}
		consistent(t, n)
	})
}

func TestPreviewOfAJobThatDoesNotExist(t *testing.T) {
	n := start(t, memory.New(), node.Config{})
	for _, ref := range []string{"nope", "job_0190a6b7c8d97e0f8123456789abcdef", "@latest"} {
		if _, err := n.Preview(t.Context(), ref, perdure.Act{Verb: perdure.VerbUndo, Author: "op"}); perdure.CodeOf(err) != perdure.CodeNotFound {
			t.Errorf("%s: %v", ref, err)
		}
	}
}

// A preview dispatches nothing and notifies no caller: neither a claim that waits for the step, nor a follower of the job.
func TestPreviewWakesNothing(t *testing.T) {
	n := start(t, memory.New(), node.Config{})
	halfDone(t, n, "k", false)
	runs := make(chan int, 1)
	go func() {
		got, err := n.Claim(context.WithoutCancel(t.Context()), protocol.Claim{Agent: "k-a", Holder: "h", Max: 1, Wait: time.Second})
		if err != nil {
			t.Error(err)
		}
		runs <- len(got)
	}()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	views := make(chan *perdure.JobView, 100)
	go func() {
		_ = n.Follow(ctx, "k", func(v *perdure.JobView) error { views <- v; return nil })
	}()
	<-views
	for range 5 {
		p, err := n.Preview(t.Context(), "k", perdure.Act{Verb: perdure.VerbResume, Author: "op"})
		if err != nil || len(p.Effects.Dispatch) != 1 {
			t.Fatal(p, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if got := <-runs; got != 0 {
		t.Errorf("the claim was granted %d runs", got)
	}
	select {
	case v := <-views:
		t.Errorf("the follower was notified of %+v", v)
	default:
	}
}

// The runs of a node that has died are taken back before an act, but not by a preview, which shows the job as if they
// were.
func TestPreviewTakesBackNoRuns(t *testing.T) {
	store := memory.New()
	n := node.New(store, node.Config{}) // it is not started: an act takes back the runs first
	t.Cleanup(func() { n.Stop(context.Background()) })
	job := halfDone(t, n, "k", false)
	claimed(t, n, "k-b", "@dead")
	before := rowsOf(t, store, job.ID)
	for _, act := range []perdure.Act{
		{Verb: perdure.VerbSkip, Step: "nap", Author: "op"},
		{Verb: perdure.VerbSettle, Step: "pack", As: new(perdure.Done), Author: "op"}, // refused while the run is valid
	} {
		p, err := n.Preview(t.Context(), "k", act)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, rowsOf(t, store, job.ID)); diff != "" {
			t.Errorf("the preview changed the store: %s", diff)
		}
		// That a run is taken back is no effect of the act.
		if got := p.Effects.Settle; len(got) != 1 || got[0] != act.Step || len(p.Effects.WaitFor)+len(p.Effects.Dispatch) != 0 {
			t.Errorf("effects of %s %s: %+v", act.Verb, act.Step, p.Effects)
		}
		if act.Step == "nap" {
			continue
		}
		v, err := n.Act(t.Context(), "k", act)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(comparableView(v), comparableView(p.Job)); diff != "" {
			t.Errorf("the act (-) is not as previewed (+): %s", diff)
		}
	}
}

// The lists of effects are bounded, and say how much they leave out. The job has all of its steps.
func TestEffectsAreBounded(t *testing.T) {
	n := start(t, memory.New(), node.Config{})
	steps := ""
	const many = consoles.MaxEffects + 3
	for i := range many {
		steps += fmt.Sprintf("  s%d: {agent: x}\n", i)
	}
	submit(t, n, "type: t\nkey: k\nsteps:\n"+steps)
	p, err := n.Preview(t.Context(), "k", perdure.Act{Verb: perdure.VerbUndo, Author: "op"})
	if err != nil {
		t.Fatal(err)
	}
	left := p.Effects.LeftOut
	if len(p.Effects.Settle) != consoles.MaxEffects || left == nil || *left != (consoles.EffectCounts{Settle: 3}) || len(p.Job.Steps) != many {
		t.Errorf("%d settled, %+v left out, %d steps", len(p.Effects.Settle), left, len(p.Job.Steps))
	}
}

func TestPreviewAfterTheEndOfTheNodeIsRefused(t *testing.T) {
	n := start(t, memory.New(), node.Config{})
	submit(t, n, "type: t\nkey: k\nsteps:\n  a: {agent: x}\n")
	n.Stop(t.Context())
	if _, err := n.Preview(t.Context(), "k", perdure.Act{Verb: perdure.VerbUndo, Author: "op"}); perdure.CodeOf(err) != perdure.CodeUnavailable {
		t.Error(err)
	}
	if _, err := n.Validate(t.Context(), []byte("type: t\nsteps:\n  a: {agent: x}\n"), "application/yaml"); perdure.CodeOf(err) != perdure.CodeUnavailable {
		t.Error(err)
	}
}
