package definition

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition/internal/cases"
	"github.com/perdure/perdure/definition/internal/expr"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/racedetector"
)

// conditions returns a definition of n steps, each with a condition of its own.
func conditions(n int, condition func(int) string) []byte {
	var b strings.Builder
	b.WriteString(`{"type":"t","input":{"a":1},"steps":{`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"s%d":{"agent":"a","when":"%s"}`, i, condition(i))
	}
	b.WriteString("}}")
	return []byte(b.String())
}

func parsed(t *testing.T, c *Compiler, body []byte) *kernel.Plan {
	t.Helper()
	plans, err := c.Parse(body, JSON, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return plans[0]
}

// F158: an expression keeps a few KB: its text, and a share of the bounded memory for programs.
func TestExpressionsKeepFewKilobytes(t *testing.T) {
	racedetector.Skip(t)
	for name, of := range map[string]struct {
		n         int
		condition func(int) string
	}{
		"of a thousand nodes": {3000, cases.Dense}, // 3 MB
		"usual":               {10_000, func(n int) string { return fmt.Sprintf("input.a > %d && input.a != 'x'", n) }},
		"paths":               {10_000, func(n int) string { return fmt.Sprintf("input.b%d", n) }},
	} {
		t.Run(name, func(t *testing.T) {
			body := conditions(of.n, of.condition)
			if name == "paths" {
				body = []byte(strings.ReplaceAll(string(body), "input.", "steps.s0.output."))
				body = []byte(strings.Replace(string(body), `"when":"steps.s0.output.b0"`, `"when":"true"`, 1))
				body = []byte(strings.ReplaceAll(string(body), `"agent":"a","when":"steps`, `"agent":"a","after":["s0"],"when":"steps`))
			}
			type all struct {
				c *Compiler
				p *kernel.Plan
			}
			value, bytes := cases.Kept(func() all {
				c := &Compiler{}
				return all{c, parsed(t, c, body)}
			})
			if most := expr.MaxProgramBytes + 4<<10*of.n; bytes > most {
				t.Errorf("%d expressions keep %d bytes, want at most %d", of.n, bytes, most)
			}
			if got := value.c.programs.Bytes(); got > expr.MaxProgramBytes {
				t.Errorf("%d bytes of programs, want at most %d", got, expr.MaxProgramBytes)
			}
			runtime.KeepAlive(value)
		})
	}
}

// F158: a program that was dropped is compiled again, and gives the same result as before.
func TestDroppedProgramsAreCompiledAgain(t *testing.T) {
	racedetector.Skip(t)
	c := &Compiler{}
	src := `{"type":"t","input":{"n":1},"steps":{"s":{"agent":"a"},"t":{"agent":"a","after":["s"],"when":"steps.s.output.n > 1","with":"${ steps.s.output.n + input.n }"}}}`
	p := parsed(t, c, []byte(src))
	step := &p.Steps[1]
	check := func(n, when, with string) {
		t.Helper()
		scope := scopeOf(p, map[string]string{"s": `{"n":` + n + `}`})
		yes, errWhen := step.Test.Eval(scope)
		raw, errWith := step.Do.Render(scope)
		if got := outcome(yes, errWhen); got != when {
			t.Errorf("when: %s, want %s", got, when)
		}
		if got := outcome(string(raw), errWith); got != with {
			t.Errorf("with: %s, want %s", got, with)
		}
	}
	for range 2 {
		check("2", "true", "3")
		check(`"x"`, "when: `steps.s.output.n > 1`: invalid operation: string > int", "/steps/t/with: `steps.s.output.n + input.n`: invalid operation: string + int")
		for n := 0; n < 1000; n++ { // at the bound, and far above it
			if _, bad, _ := c.programs.Compile(cases.Dense(n), false, "", nil); bad != nil {
				t.Fatal(bad.Message)
			}
			if got := c.programs.Bytes(); got > expr.MaxProgramBytes {
				t.Fatalf("%d bytes of programs, want at most %d", got, expr.MaxProgramBytes)
			}
		}
		if c.programs.Has("steps.s.output.n > 1", true) {
			t.Fatal("the program was not dropped")
		}
	}
}

func outcome(value any, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(value)
}

// The sizes that bound the memory of shapes are those that the garbage collector counts, within a factor of 1.5 (F158).
func TestShapeSizesAreTrue(t *testing.T) {
	racedetector.Skip(t)
	for name, body := range map[string]string{
		"chain of 10,000":  jsonOf(t, many(10_000)),
		"conditions":       string(conditions(2000, func(n int) string { return fmt.Sprintf("input.a > %d", n) })),
		"large inputs":     `{"type":"t","steps":{"a":{"agent":"a","with":"` + strings.Repeat("x", 900<<10) + `"},"b":{"agent":"a","undo":{"with":"` + strings.Repeat("y", 900<<10) + `"}}}}`,
		"many expressions": list(20_000, func(n int) string { return fmt.Sprintf("${job.id.a%d}", n) }),
		"few expressions":  list(3, func(n int) string { return fmt.Sprintf("${job.id.a%d}", n) }),
	} {
		t.Run("shape of "+name, func(t *testing.T) {
			text := parsed(t, &Compiler{}, []byte(body)).Text
			var c Compiler
			shape, bytes := cases.Kept(func() *kernel.Shape {
				s, err := c.Compile(text)
				if err != nil {
					t.Fatal(err)
				}
				c = Compiler{}
				return s
			})
			runtime.KeepAlive(text)
			cases.Near(t, shape.Size, bytes)
		})
	}
}

// list returns a definition of one step, whose input is a list of n strings.
func list(n int, of func(int) string) string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = of(i)
	}
	all, _ := json.Marshal(texts)
	return `{"type":"t","labels":{},"steps":{"a":{"agent":"a","with":` + string(all) + `}}}`
}

// F156, F158: compiling is charged to the budget of a call. A definition that takes too much is refused, and compiling
// ends with the caller's context.
func TestCompilingIsBounded(t *testing.T) {
	racedetector.Skip(t)
	body := conditions(callWork/(expr.CompileWork*len(cases.Dense(0)))+100, cases.Dense)
	if _, err := Parse(body, JSON, Options{}); perdure.CodeOf(err) != perdure.CodeTooLarge {
		t.Errorf("%d bytes of expressions: %v", len(body), err)
	}
	errGone := errors.New("the caller is gone")
	checks := 0
	stop := func() error {
		if checks++; checks > 3 {
			return errGone
		}
		return nil
	}
	if _, err := Parse(conditions(1000, cases.Dense), JSON, Options{Stop: stop}); !errors.Is(err, errGone) || checks != 4 {
		t.Errorf("asked %d times: %v", checks, err)
	}
}

// jsonOf converts a definition from YAML to JSON.
func jsonOf(t *testing.T, yaml string) string {
	t.Helper()
	plans, err := Parse([]byte(yaml), YAML, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return string(Canonical(plans[0]))
}

// F158: the number of expressions of a definition is bounded. A stored definition above the bound is still read.
func TestNumberOfExpressionsIsBounded(t *testing.T) {
	racedetector.Skip(t)
	body := func(n int) []byte {
		return []byte(`{"type":"t","steps":{"a":{"agent":"a","with":[` + strings.TrimSuffix(strings.Repeat(`"${job.id}",`, n), ",") + `]}}}`)
	}
	at := parsed(t, &Compiler{}, body(perdure.MaxExpressions))
	_, err := Parse(body(perdure.MaxExpressions+1), JSON, Options{})
	if perdure.CodeOf(err) != perdure.CodeTooLarge || !strings.Contains(err.Error(), "more than 200000 expressions in one definition") {
		t.Errorf("one more: %v", err)
	}
	stored := strings.Replace(string(at.Text), `["${job.id}"`, `["${job.id}","${job.id}"`, 1)
	if _, err := new(Compiler).Compile([]byte(stored)); err != nil || !json.Valid([]byte(stored)) {
		t.Errorf("stored: %v", err)
	}
}
