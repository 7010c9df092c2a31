package simulate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
)

const order = `
type: order
onFailure: undo
steps:
  reserve: {agent: stock, undo: {}}
  charge: {agent: payments, after: [reserve], undo: {}, retry: {attempts: 3, backoff: 10s}}
  ship: {agent: carrier, after: [charge], undo: {}}
`

const waits = `
type: order
onFailure: undo
steps:
  reserve: {agent: stock, undo: {}}
  paid: {agent: signal, after: [reserve], with: {name: paid, key: "o-1"}%s}
  ok: {agent: approval, after: [paid], with: {quorum: 3, group: managers, excludeSubmitter: true}}
  rest: {agent: sleep, after: [ok], with: {for: 10d}}
  ship: {agent: carrier, after: [rest], undo: {}}
`

var start = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func planOf(t *testing.T, text string) *definition.Plan {
	t.Helper()
	plans, err := definition.Parse([]byte(text), definition.YAML, definition.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return plans[0]
}

func play(t *testing.T, text string, o Options) *Result {
	t.Helper()
	o.Start = start
	res, err := Run(t.Context(), planOf(t, text), o)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func text(res *Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s after %s", res.Ending, res.Job.Current, res.Elapsed.Round(time.Second))
	for _, e := range res.Effects {
		fmt.Fprintf(&b, ", %s %d-%d", e.Step, e.Done, e.Undone)
		if e.Repeats > 0 {
			fmt.Fprintf(&b, "+%d", e.Repeats)
		}
	}
	return b.String()
}

// Each fault ends as the guides say, with the effects that follow.
func TestEndings(t *testing.T) {
	crashed := Behaviour{CrashAfter: 1}
	for _, c := range []struct {
		name, text string
		o          Options
		want       string
		runs       int
	}{
		{"all done", order, Options{}, "settled done after 3s, reserve 1-0, charge 1-0, ship 1-0", 3},
		{"fails always", order, Options{Steps: map[string]Behaviour{"charge": {Fail: Always}}}, "settled undone after 25s, reserve 1-1", 6},
		{"fails twice", order, Options{Steps: map[string]Behaviour{"charge": {Fail: 2}}}, "settled done after 24s, reserve 1-0, charge 1-0, ship 1-0", 5},
		{"dies before", order, Options{Steps: map[string]Behaviour{"charge": {CrashBefore: 1}}}, "settled done after 18s, reserve 1-0, charge 1-0, ship 1-0", 4},
		{"dies after", order, Options{Steps: map[string]Behaviour{"charge": crashed}}, "settled done after 18s, reserve 1-0, charge 1-0+1, ship 1-0", 4},
		{"dies after, always", order, Options{Steps: map[string]Behaviour{"charge": {CrashAfter: 9}}}, "settled undone after 52s, reserve 1-1, charge 1-1+2", 6},
		{"undo later", order, Options{UndoAt: time.Hour}, "settled undone after 1h0m3s, reserve 1-1, charge 1-1, ship 1-1", 6},
		{"undo after three weeks", order, Options{UndoAt: 21 * 24 * time.Hour}, "settled undone after 504h0m3s, reserve 1-1, charge 1-1, ship 1-1", 6},
		{"undo fails", order, Options{UndoAt: time.Hour, Steps: map[string]Behaviour{"charge": {FailUndo: Always}}}, "parked unsure after 1h0m23s, reserve 1-0, charge 1-0, ship 1-1", 7},
		{"undo while it runs", order, Options{UndoAt: 90 * time.Second, Steps: map[string]Behaviour{"ship": {Lasts: perdure.Duration(4 * time.Minute)}}}, "settled undone after 5m35s, reserve 1-1, charge 1-1", 6},
		{"longer than its deadline", order, Options{Steps: map[string]Behaviour{"charge": {Lasts: perdure.Duration(time.Hour)}}}, "parked unsure after 30m42s, reserve 1-0", 7},
		{"signal, approval, sleep", fmt.Sprintf(waits, ""), Options{}, "settled done after 240h0m4s, reserve 1-0, ship 1-0", 2},
		{"signal is late", fmt.Sprintf(waits, ", completeWithin: 1h"), Options{Steps: map[string]Behaviour{"paid": {Lasts: perdure.Duration(2 * time.Hour)}}}, "settled undone after 1h0m2s, reserve 1-1", 2},
		{"signal does not come", fmt.Sprintf(waits, ""), Options{Steps: map[string]Behaviour{"paid": {Fail: Always}}}, "waiting unsure after 1s, reserve 1-0", 1},
		{"rejected", fmt.Sprintf(waits, ""), Options{Steps: map[string]Behaviour{"ok": {Fail: Always}}}, "settled undone after 4s, reserve 1-1", 2},
		{"horizon", fmt.Sprintf(waits, ""), Options{Horizon: 24 * time.Hour}, "timeOver unsure after 24h0m0s, reserve 1-0", 1},
		{"host", "type: t\nsteps:\n  render: {agent: exec, with: {command: [render]}, requires: {cpus: 64, gpu: 2, labels: {zone: a, rack: \"*\"}, grid: farm}}\n", Options{}, "settled done after 1s, render 1-0", 1},
		{"deadline of the job", "type: t\ncompleteWithin: 1h\nonFailure: undo\nsteps:\n  a: {agent: a, undo: {}}\n  b: {agent: signal, after: [a], with: {name: n, key: k}}\n", Options{Steps: map[string]Behaviour{"b": {Fail: 1}}}, "settled undone after 1h0m1s, a 1-1", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := play(t, c.text, c.o)
			if got := text(res); got != c.want || len(res.Runs) != c.runs {
				t.Errorf("%s, %d runs", got, len(res.Runs))
			}
		})
	}
}

// The same seed is the same simulation, and another one has other backoffs.
func TestSeed(t *testing.T) {
	of := func(seed uint64) string {
		var b strings.Builder
		res := play(t, order, Options{Seed: seed, Steps: map[string]Behaviour{"charge": {Fail: 2}, "ship": {CrashBefore: 2}}, UndoAt: time.Hour, Changed: func(_ context.Context, at time.Duration, v *perdure.JobView, _ perdure.Jobs) {
			v.Definition = nil
			text, err := json.Marshal(v)
			if err != nil {
				t.Error(err)
			}
			fmt.Fprintf(&b, "%s %s\n", at, text)
		}})
		return b.String() + text(res)
	}
	if first, second := of(7), of(7); first != second {
		t.Error("two simulations with one seed differ")
	}
	if of(7) == of(8) {
		t.Error("two seeds have the same backoffs")
	}
}

// F340: what has no end, or is too large, is bounded.
func TestBounds(t *testing.T) {
	endless := "type: t\nsteps:\n  a: {agent: a, retry: {attempts: 1000000, backoff: 1s, maxBackoff: 1s}}\n"
	if res := play(t, endless, Options{Steps: map[string]Behaviour{"a": {Fail: Always}}}); res.Ending != RunsOver || len(res.Runs) < MaxRuns {
		t.Errorf("%s after %d runs", res.Ending, len(res.Runs))
	}
	var steps strings.Builder
	for i := range MaxSteps + 1 {
		fmt.Fprintf(&steps, "  s%d: {agent: a}\n", i)
	}
	many := planOf(t, "type: t\nsteps:\n"+steps.String())
	if _, err := Run(t.Context(), many, Options{Start: start}); perdure.CodeOf(err) != perdure.CodeTooLarge {
		t.Errorf("%d steps: %v", MaxSteps+1, err)
	}
	if res := play(t, "type: t\nsteps:\n"+strings.Replace(steps.String(), "  s0: {agent: a}\n", "", 1), Options{}); res.Ending != Settled {
		t.Errorf("%d steps: %s", MaxSteps, text(res))
	}
	one := planOf(t, order)
	for _, o := range []Options{{Horizon: MaxHorizon + 1}, {Horizon: -1}, {UndoAt: -1}, {UndoAt: time.Hour, Horizon: time.Hour}, {Steps: map[string]Behaviour{"shp": {}}}} {
		if _, err := Run(t.Context(), one, o); perdure.CodeOf(err) != perdure.CodeInvalid {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if err := CheckStep(one, "shp"); err == nil || !strings.Contains(err.Error(), "reserve, charge, ship") {
		t.Errorf("an unknown step: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, one, Options{Start: start}); !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled context: %v", err)
	}
}
