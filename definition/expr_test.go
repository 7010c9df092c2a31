package definition

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure/definition/internal/cases"
	"github.com/perdure/perdure/definition/internal/expr"
	"github.com/perdure/perdure/definition/internal/text"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/racedetector"
)

func TestConditionsAreEvaluated(t *testing.T) {
	scope := &kernel.Scope{Job: &kernel.Job{Type: "trip"}, Input: json.RawMessage(`{"a":1,"s":"x","t":true,"l":[1,2],"items":[{"p":3},{"p":5}]}`),
		Outputs: map[string]json.RawMessage{"one": json.RawMessage(`{"id":"r-1"}`), "skipped": json.RawMessage("null")}}
	for src, want := range map[string]bool{
		"input.a > 0": true, "${input.a > 0}": true, " ${ input.t } ": true, "input.t": true, "not input.t": false,
		"steps.one.output?.id == 'r-1'": true, "steps.skipped.output == nil": true, "job.type == 'trip'": true,
		"input.l[0] in [1, 2] and input.s contains 'x'": true, "all(input.items, .p > 3)": false,
	} {
		d := decoder{programs: &expr.Programs{}, stored: true, index: map[string]int{"one": 0, "skipped": 1}}
		n := text.Scalar(text.String, 0, src)
		c := d.condition(&kernel.StepDefinition{}, &stepSource{when: &n}, &environment{d: &d})
		if err := d.Err(); err != nil {
			t.Errorf("%s: %v", src, err)
			continue
		}
		if got, err := c.Eval(scope); err != nil || got != want {
			t.Errorf("%s: %v %v", src, got, err)
		}
	}
}

// The steps whose outputs an expression reads are known without evaluating it.
func TestReferencedStepsAreKnownWithoutEvaluation(t *testing.T) {
	plans, err := Parse([]byte(`
type: t
flow: chain
steps:
  a: {agent: x}
  b: {agent: x}
  c: {agent: x, with: {v: "${input}", w: "${steps.b.output.x} ${[steps.a.output]}"}}
  d:
    agent: x
    when: steps.a.output?.x == 1 || len(steps["c"].output) > 0
    undo: {with: {o: "${output}", k: "${doKey}", b: "${steps.b.output}"}}
`), YAML, Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := plans[0].Steps
	if got := fmt.Sprint(s[2].Do.Refs(), s[3].Test.Refs(), s[3].Revert.Refs()); got != "[0 1] [0 2] [1]" && got != "[1 0] [0 2] [1]" {
		t.Error(got)
	}
	if s[0].Do != nil || s[0].Test != nil || s[0].Revert != nil {
		t.Error("a step without with, when and undo has templates")
	}
}

// A plan may be used by any number of goroutines.
func TestPlanIsSafeForConcurrentUse(t *testing.T) {
	c := &Compiler{}
	plans, err := c.Parse([]byte(small), JSON, Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := scopeOf(plans[0], map[string]string{"a": `{"id":1}`})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if _, err := c.Compile(plans[0].Text); err != nil {
					t.Error(err)
				}
				if out, err := plans[0].Steps[1].Do.Render(s); err != nil || string(out) != `{"id":1,"note":"for tea-12"}` {
					t.Error(string(out), err)
				}
				if ok, err := plans[0].Steps[2].Test.Eval(s); !ok || err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// An input of a megabyte that is referred to a thousand times is not read a thousand times.
func TestManyReferencesToALargeInputAreQuick(t *testing.T) {
	racedetector.Skip(t)
	input := `{"large":"` + strings.Repeat("x", 1<<19) + `","small":1}`
	with := strings.Repeat(`"${input.small}",`, 20_000) + `1`
	src := `{"type":"t","input":` + input + `,"steps":{"a":{"agent":"x","with":[` + with + `]}}}`
	began := time.Now()
	plans, err := Parse([]byte(src), JSON, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plans[0].Steps[0].Do.Render(scopeOf(plans[0], nil)); err != nil {
		t.Fatal(err)
	}
	cases.Quick(t, began, 5*time.Second)
}

// The work of all evaluations at submission is bounded in total.
func TestSubmissionEvaluationIsBounded(t *testing.T) {
	racedetector.Skip(t)
	var b strings.Builder
	b.WriteString("type: t\nsteps:\n")
	for i := range 2000 {
		fmt.Fprintf(&b, "  s%d: {agent: x, when: 'all(1..500, all(1..500, # + %d > 0))'}\n", i, i)
	}
	began := time.Now()
	_, err := Parse([]byte(b.String()), YAML, Options{})
	if err == nil || !strings.Contains(err.Error(), "too much work") {
		t.Error(err)
	}
	cases.Quick(t, began, 20*time.Second)
}
