package kernel_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/kernel"
)

func planOf(t *testing.T, steps, job string) *kernel.Plan {
	t.Helper()
	plans, err := definition.Parse([]byte("type: t\n"+job+"\nsteps:\n"+steps), definition.YAML, definition.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return plans[0]
}

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// facts: agent a has just claimed, and so has z; gone has not for an hour, and neither has busy, which has runs in
// flight.
func facts() *kernel.Facts {
	return &kernel.Facts{Now: now, Receivers: map[string]bool{"ops": true},
		Seen:     map[string]time.Time{"a": now, "z": now.Add(-perdure.NotSeenFor), "gone": now.Add(-time.Hour), "busy": now.Add(-time.Hour)},
		InFlight: map[string]int{"busy": 2},
		Limits: map[string]kernel.LimitFacts{
			"few":     {Limit: kernel.Limit{Max: 2, PerKey: kernel.Unbounded}},
			"stopped": {Limit: kernel.Limit{Max: 0, PerKey: kernel.Unbounded}},
			"keyed":   {Limit: kernel.Limit{Max: kernel.Unbounded, PerKey: 1}},
		}}
}

func TestWarnings(t *testing.T) {
	for name, test := range map[string]struct {
		job, steps string
		want       string // "KIND STEP TEXT"; TEXT is a part of the warning
	}{
		"no such receiver": {"notify: [{receiver: ops}, {receiver: opps}, {webhook: http://x.example/}]", "  x: {agent: a}", "noReceiver  there is no receiver opps: no notifications"},
		"nothing":          {"", "  x: {agent: a}\n  y: {agent: z, after: [x]}", ""},
		"rules need none":  {"", "  x: {agent: sleep, with: {for: 1s}}\n  y: {agent: approval}", ""},
		"unknown agent":    {"", "  x: {agent: a}\n  y: {agent: aa}\n  w: {agent: aa}", "noAgent y agent aa, which 2 steps need, has claimed no runs here; known agents: a, busy, gone, z (did you mean a?)"},
		"agent of an undo": {"", "  x: {agent: a, undo: {agent: refunds}}", "noAgent x agent refunds, which 1 step needs"},
		"agent that went":  {"", "  x: {agent: gone}", "noAgent x agent gone, which 1 step needs, has claimed no runs for 1h"},
		"busy agent":       {"", "  x: {agent: busy}", ""},
		"no undo before a step whose failure undoes": {"onFailure: undo", "  x: {agent: a}\n  y: {agent: a, after: [x], undo: {}}",
			"noUndo x a failure of step y, which comes later, undoes the job"},
		"no undo far before it": {"", "  x: {agent: a}\n  y: {agent: a, after: [x], undo: {}}\n  w: {agent: a, after: [y], onFailure: [{restart: 1}]}",
			"noUndo x a failure of step w"},
		"no undo before an approval": {"", "  x: {agent: a}\n  y: {agent: approval, after: [x]}", "noUndo x the rejection of step y"},
		"no undo beside it":          {"onFailure: undo", "  x: {agent: a}\n  y: {agent: a, undo: {}}", ""},
		"no undo after it":           {"onFailure: undo", "  y: {agent: a, undo: {}}\n  x: {agent: a, after: [y]}", ""},
		"an operator decides":        {"", "  x: {agent: a}\n  y: {agent: a, after: [x]}", ""},
		"the failure is skipped":     {"onFailure: undo", "  x: {agent: a}\n  y: {agent: a, after: [x], undo: {}, onFailure: skip}", ""},
		"deadline": {"completeWithin: 9m", "  x: {agent: a, undo: {}, completeWithin: 5m}\n  y: {agent: a, after: [x], undo: {}}",
			"deadline  completeWithin of the job is 9m, and the steps of its longest path may take 10m with one run each"},
		"deadline that suffices": {"completeWithin: 10m", "  x: {agent: a, completeWithin: 5m}\n  y: {agent: a, after: [x]}\n  w: {agent: a}", ""},
		"deadline and sleep":     {"completeWithin: 1h", "  x: {agent: sleep, with: {for: 2h}}", "deadline  2h"},
		"limit not set":          {"", "  x: {agent: a, limits: [{name: other}]}\n  y: {agent: a, limits: [{name: other}]}", "limitNotSet x limit other, which 2 steps need, is not set and bounds nothing"},
		"limit too small":        {"", "  x: {agent: a, limits: [{name: few, amount: 2}]}\n  y: {agent: a, limits: [{name: few, amount: 3}]}", "limitTooSmall y limit few is too small: 1 step needs more"},
		"sum of its keys":        {"", "  x: {agent: a, limits: [{name: few, key: k, amount: 1}, {name: few, key: l, amount: 2}]}", "limitTooSmall x"},
		"limit of a key":         {"", "  x: {agent: a, limits: [{name: keyed, key: k, amount: 2}]}", "limitTooSmall x"},
		"limit of no key":        {"", "  x: {agent: a, limits: [{name: keyed, amount: 2}]}", ""},
		"limit of 0":             {"", "  x: {agent: a, limits: [{name: stopped}]}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := kernel.Foresee(planOf(t, test.steps, test.job), facts(), true)
			got := make([]string, len(o.Warnings))
			for i, w := range o.Warnings {
				got[i] = fmt.Sprintf("%s %s %s", w.Kind, w.Step, w.Text)
			}
			kind, text, _ := strings.Cut(test.want, " ")
			step, part, _ := strings.Cut(text, " ")
			switch {
			case test.want == "" && len(got) == 0:
			case len(got) != 1 || test.want == "" || !strings.HasPrefix(got[0], kind+" "+step+" ") || !strings.Contains(got[0], part):
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestWithoutNodesNoAgentIsMissed(t *testing.T) {
	plan := planOf(t, "  x: {agent: absent}", "")
	if o := kernel.Foresee(plan, facts(), false); len(o.Warnings) != 0 {
		t.Errorf("%+v", o.Warnings)
	}
}

func TestLongestPath(t *testing.T) {
	for name, test := range map[string]struct {
		steps string
		count int
		time  time.Duration
	}{
		"one":                          {"  a: {agent: x, completeWithin: 10s}", 1, 10 * time.Second},
		"the default":                  {"  a: {agent: x}", 1, perdure.DefaultCompleteWithin},
		"the longest in steps or time": {"  a: {agent: x, completeWithin: 1s}\n  b: {agent: x, completeWithin: 1s, after: [a]}\n  c: {agent: x, completeWithin: 1s, after: [b]}\n  d: {agent: x, completeWithin: 1h}", 3, time.Hour},
		"a diamond in any order":       {"  d: {agent: x, completeWithin: 1s, after: [b, c]}\n  b: {agent: x, completeWithin: 5s, after: [a]}\n  c: {agent: x, completeWithin: 7s, after: [a]}\n  a: {agent: x, completeWithin: 2s}", 3, 10 * time.Second},
		"rules":                        {"  a: {agent: sleep, with: {for: 2d}}\n  b: {agent: approval, after: [a]}\n  c: {agent: approval, after: [b], completeWithin: 1h}", 3, 49 * time.Hour},
		"computed sleep":               {"  a: {agent: sleep, with: {for: \"${input.for}\"}}", 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			job := ""
			if strings.Contains(test.steps, "input.for") {
				job = "input: {for: 1s}"
			}
			o := kernel.Foresee(planOf(t, test.steps, job), facts(), false)
			if o.PathSteps != test.count || o.PathTime != test.time {
				t.Errorf("%d steps, %s; want %d, %s", o.PathSteps, o.PathTime, test.count, test.time)
			}
		})
	}
}

func TestWarningsAreBounded(t *testing.T) {
	var steps strings.Builder
	for i := range kernel.MaxWarnings + 7 {
		fmt.Fprintf(&steps, "  s%d: {agent: a, limits: [{name: l%d}, {name: l}]}\n", i, i)
	}
	o := kernel.Foresee(planOf(t, steps.String(), ""), facts(), true)
	if len(o.Warnings) != kernel.MaxWarnings || o.LeftOut != 8 || len(o.Limits) != kernel.MaxWarnings+8 {
		t.Errorf("%d warnings, %d left out, %d limits", len(o.Warnings), o.LeftOut, len(o.Limits))
	}
	if l := o.Limits[1]; l.Name != "l" || l.Steps != kernel.MaxWarnings+7 || l.Amount != 1 {
		t.Errorf("%+v", l)
	}
}
