package definition

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

func childrenOf(t *testing.T, step string) (*kernel.Plan, error) {
	t.Helper()
	plans, err := Parse([]byte("type: album\ninput: {images: [a], n: 5}\nsteps:\n  list: {agent: a}\n  s:\n    after: [list]\n"+step), YAML, Options{})
	if err != nil {
		return nil, err
	}
	return plans[0], nil
}

// The short form is a job of one step. Its expressions are evaluated when the child is made, but for those of its undo that
// refer to the run.
func TestShortFormIsAJobOfOneStep(t *testing.T) {
	p, err := childrenOf(t, `
    forEach: {in: "${input.images}"}
    as: image
    agent: shell
    with: {command: ["./stamp.sh", "${image.name}-${index}", "$${literal} ${steps.list.output.dir}"], env: {TOKEN: "${secret.TOKEN}"}}
    undo: {with: {command: ["./unstamp.sh", "${image.name}", "${output.id}", "of ${image.name}: ${doKey}"]}}
    limits: [{name: disk, key: "${image.disk}"}]
    retry: {attempts: 2}
`)
	if err != nil {
		t.Fatal(err)
	}
	s := p.Steps[1]
	const input = `{"index":"${index}","item":"${image}","values":["${image.name}","${index}","${steps.list.output.dir}","${image.disk}"]}`
	if got := string(s.Job.Input); got != input {
		t.Errorf("input %s", got)
	}
	want := `{"onFailure":"undo","output":"${steps.s.output}","steps":{"s":{"agent":"shell","limits":[{"key":"${input.values[3]}","name":"disk"}],"retry":{"attempts":2},"undo":{"with":{"command":["./unstamp.sh","${input.values[0]}","${output.id}","of ${input.values[0]}: ${doKey}"]}},"with":{"command":["./stamp.sh","${input.values[0]}-${input.values[1]}","$${literal} ${input.values[2]}"],"env":{"TOKEN":"${secret.TOKEN}"}}}},"type":"album.s"}`
	if got := string(s.Job.Definition); got != want {
		t.Errorf("definition\n%s\nwant\n%s", got, want)
	}
	if s.Form != kernel.ByChildren || s.Agent != "" || s.With != nil || s.Undo != nil {
		t.Errorf("%+v", s.StepDefinition)
	}
	out, err := s.Child.Render(&kernel.Scope{Job: &kernel.Job{}, Item: json.RawMessage(`{"name":"x","disk":"d"}`), Index: 7, Outputs: map[string]json.RawMessage{"list": json.RawMessage(`{"dir":"/out"}`)}})
	if err != nil || string(out) != `{"index":7,"item":{"name":"x","disk":"d"},"values":["x",7,"/out","d"]}` {
		t.Errorf("%s %v", out, err)
	}
	again, err := new(Compiler).Compile(p.Text)
	if err != nil || again.ID != p.ID || again.Steps[1].Form != kernel.ByChildren || again.Steps[1].Items == nil {
		t.Errorf("the stored text: %v", err)
	}
	if body, err := json.Marshal(again.Common); err != nil || string(body) != string(p.Text) {
		t.Errorf("canonical text\n%s\n%s", body, p.Text)
	}
}

// Definitions of children that mean the same are the same.
func TestDefaultsOfChildrenAreLeftOut(t *testing.T) {
	a, err := childrenOf(t, "    forEach: {range: [0, 5]}\n    as: item\n    maxParallel: 100\n    tolerate: {failed: 0}\n    collect: none\n    job: {definition: resize@3}\n")
	if err != nil {
		t.Fatal(err)
	}
	b, err := childrenOf(t, "    forEach: {range: [0, 5]}\n    job: {definition: resize@3}\n")
	if err != nil || a.ID != b.ID {
		t.Errorf("%v\n%s\n%s", err, a.Text, b.Text)
	}
	for text, want := range map[string]int{"1%": 100, "0.001%": 0, "99.9%": 9_990, "12": 12, "100%": 10_000} {
		p, err := childrenOf(t, "    forEach: {range: [0, 5]}\n    tolerate: {failed: "+text+"}\n    job: {definition: resize@3}\n")
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Steps[1].Tolerate.Of(10_000); got != want {
			t.Errorf("%s of 10,000: %d", text, got)
		}
		if !strings.Contains(string(p.Text), `"tolerate":{"failed":`) {
			t.Error(string(p.Text))
		}
	}
}

func TestBadChildrenAreRefused(t *testing.T) {
	const job = "\n    job: {definition: resize@3}\n"
	for step, want := range map[string]string{
		"    forEach: {range: [0, 5]}\n":                                                                "neither job nor agent",
		"    forEach: {in: 5}" + job:                                                                    "expected a list, or an expression with a list, found 5",
		"    forEach: {range: [5, 0]}" + job:                                                            "the range ends before it begins",
		"    forEach: {range: [0, 1000001]}" + job:                                                      "1000001 items; at most 1000000",
		"    forEach: {range: [0, 1.5]}" + job:                                                          "expected a whole number",
		"    forEach: {artifact: x}" + job:                                                              "expected an artifact of JSON lines, or an expression with one, found `x`",
		"    forEach: {range: [0, 5], in: []}" + job:                                                    "expected an object with in, range or artifact",
		"    forEach: {range: [0, 5]}\n    maxParallel: 0" + job:                                        "maxParallel is between 1 and 10000, not 0",
		"    forEach: {range: [0, 5]}\n    maxParallel: 10001" + job:                                    "maxParallel is between 1 and 10000, not 10001",
		"    forEach: {range: [0, 5]}\n    as: input" + job:                                             "`input` has another meaning in expressions",
		"    forEach: {range: [0, 5]}\n    as: len" + job:                                               "`len` has another meaning in expressions",
		"    forEach: {range: [0, 5]}\n    as: 5x" + job:                                                "`5x` is no name of an item",
		"    forEach: {range: [0, 5]}\n    tolerate: {failed: 101%}" + job:                              "a number, or a share from 0% to 100%",
		"    forEach: {range: [0, 5]}\n    tolerate: {}" + job:                                          "expected an object with failed",
		"    forEach: {range: [0, 5]}\n    collect: file" + job:                                         "expected list or artifact or none, found `file`",
		"    forEach: {range: [0, 5]}\n    undoOrder: forward" + job:                                    "expected reverse, found `forward`",
		"    forEach: {range: [0, 5]}\n    agent: a" + job:                                              "`agent` beside job",
		"    maxParallel: 5" + job:                                                                      "`maxParallel` without forEach",
		"    agent: a\n    maxParallel: 5\n":                                                            "`maxParallel` without forEach or job",
		"    job: {}\n":                                                                                 "`definition` is missing",
		"    job: {definition: resize@0}\n":                                                             "invalid version",
		"    job: {definition: {type: t}}\n":                                                            "`steps` is missing",
		"    job: {definition: {type: t, key: k, steps: {a: {agent: a}}}}\n":                            "`key` in the definition of a child",
		"    job: {definition: {type: t, input: 5, steps: {a: {agent: a}}}}\n":                          "an input in the definition of a child",
		"    job: {definition: resize, key: \"\"}\n":                                                    "the key is empty",
		"    job: {definition: resize, key: 5}\n":                                                       "expected text, found 5",
		"    forEach: {range: [0, 5]}\n    job: {definition: resize, key: k}\n":                         "the same key for all children",
		"    forEach: {range: [0, 5]}\n    job: {definition: resize, key: \"${itm}\"}\n":                "unknown name `itm`",
		"    job: {definition: resize, wait: no}\n":                                                     "expected true or false",
		"    job: {definition: resize, undoChild: true}\n":                                              "undoChild without `wait: false`",
		"    parkedIs: failed\n    job: {definition: resize, wait: false}\n":                            "`parkedIs` beside `wait: false`",
		"    forEach: {range: [0, 5]}\n    maxParallel: 5\n    job: {definition: r, wait: false}\n":     "`maxParallel` beside `wait: false`",
		"    forEach: {range: [0, 5]}\n    undoOrder: reverse\n    job: {definition: r, wait: false}\n": "`undoOrder` beside `wait: false`",
		"    forEach: {range: [0, 100001]}\n    job: {definition: r, wait: false}\n":                    "100001 items; at most 100000 with wait: false (1000000 without)",
		"    forEach: {range: [0, 100001]}\n    collect: list" + job:                                    "100001 items; at most 100000 with collect: list (1000000 without)",
		"    job: {definition: resize, input: \"${item}\"}\n":                                           "unknown name `item`",
		"    forEach: {in: \"${item}\"}" + job:                                                          "unknown name `item`",
		"    forEach: {range: [0, 5]}\n    agent: a\n    with: \"${itm}\"\n":                            "unknown name `itm`",
		"    forEach: {range: [0, 5]}\n    agent: shell\n    with: {comand: [x]}\n":                     "comand",
		"    forEach: {range: [0, 5]}\n    agent: a\n    undo: {with: \"${output.a + item}\"}\n":        "refers to output, key or doKey, and to other values",
		"    forEach: {range: [0, 5]}\n    agent: a\n    when: item > 1\n":                              "unknown name `item`",
	} {
		_, err := childrenOf(t, step)
		if err == nil || !strings.Contains(FormatError("job", nil, err), want) {
			t.Errorf("%s\n%v\nwant %s", step, err, want)
		}
		if code := perdure.CodeOf(err); err != nil && code != perdure.CodeInvalid && code != perdure.CodeTooLarge {
			t.Errorf("%s: code %s", step, code)
		}
	}
	for _, ok := range []string{"    forEach: {range: [0, 1000000]}\n    maxParallel: 10000" + job, "    forEach: {range: [-5, -5]}" + job, "    forEach: {range: [0, \"${input.n}\"]}" + job,
		"    forEach: {range: [0, 100000]}\n    undoOrder: reverse\n    job: {definition: r, wait: false, undoChild: true, key: \"k-${index}\"}\n", "    job: {definition: r, key: k, wait: true}\n",
		"    forEach: {artifact: \"${steps.list.output.file}\"}" + job} {
		if _, err := childrenOf(t, ok); err != nil {
			t.Errorf("%s: %v", ok, err)
		}
	}
}
