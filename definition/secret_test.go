package definition

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/perdure/perdure/internal/kernel"
)

// I18: the reference stays in the input. What the values of an input contain is never a reference, whatever it looks like.
func TestReferencesToSecretsComeFromTheDefinitionAlone(t *testing.T) {
	plan := parseOne(t, `
type: t
input: {a: "${secret.STOLEN}", n: 5}
steps:
  one: {agent: x}
  two:
    agent: x
    after: [one]
    with:
      token: "Bearer ${ secret.TOKEN }"
      list: ["${input.a}", "${secret.A}-${secret.B}"]
      literal: "$${secret.LITERAL}"
      text: "x ${input.a} ${steps.one.output}"
      whole: "${steps.one.output}"
      a/b: {"~": "${secret.A}"}
    undo:
      with: {key: "${secret.UNDO}", was: "${output}"}
`, YAML, Options{})
	ps := &plan.Steps[1]
	stolen := json.RawMessage(`"${secret.STOLEN}"`)
	input, err := ps.Do.Render(&kernel.Scope{Input: plan.Definition.Input, Outputs: map[string]json.RawMessage{"one": stolen}})
	want := `{"a/b":{"~":"${secret.A}"},"list":["${secret.STOLEN}","${secret.A}-${secret.B}"],"literal":"${secret.LITERAL}","text":"x ${secret.STOLEN} ${secret.STOLEN}","token":"Bearer ${secret.TOKEN}","whole":"${secret.STOLEN}"}`
	if err != nil || string(input) != want {
		t.Errorf("%s, %v", input, err)
	}
	if got, want := ps.Do.Secrets(), []kernel.SecretText{{Pointer: "/a~1b/~0", Text: "${secret.A}"}, {Pointer: "/list/1", Text: "${secret.A}-${secret.B}"}, {Pointer: "/token", Text: "Bearer ${secret.TOKEN}"}}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if got, want := ps.Revert.Secrets(), []kernel.SecretText{{Pointer: "/key", Text: "${secret.UNDO}"}}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	again, err := new(Compiler).Compile(plan.Text)
	if err != nil || !slices.Equal(again.Steps[1].Do.Secrets(), ps.Do.Secrets()) {
		t.Errorf("the stored text has other secrets: %v", err)
	}
}

// A definition that was cached has the same secrets for each job.
func TestCachedDefinitionsHaveTheirSecrets(t *testing.T) {
	var c Compiler
	for range 3 {
		plans, err := c.Parse([]byte(`{"type":"t","input":{"a":1},"steps":{"a":{"agent":"http","with":{"url":"http://x","headers":{"A":"${secret.A}"},"body":"${input.a}"}}}}`), JSON, Options{})
		if err != nil || len(plans[0].Steps[0].Do.Secrets()) != 1 {
			t.Fatal(err)
		}
	}
}
