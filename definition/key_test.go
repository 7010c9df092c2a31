package definition

import (
	"testing"

	"github.com/perdure/perdure"
)

// The default key applies to a definition without a key, also if the definition is cached.
func TestDefaultKeyAppliesToADefinitionWithoutKey(t *testing.T) {
	const steps = `"type":"t","steps":{"a":{"agent":"x"}}`
	var c Compiler
	for range 2 {
		for text, want := range map[string]string{
			`{` + steps + `}`:                                         "outside",
			`{"key":"inside",` + steps + `}`:                          "inside",
			`{"key":"k-${input.n}","input":{"n":7},` + steps + `}`:    "k-7",
			`{"priority":"${input.n}","input":{"n":7},` + steps + `}`: "outside",
		} {
			plans, err := c.Parse([]byte(text), JSON, Options{DefaultKey: "outside"})
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if got := plans[0].Definition.Key; got != want {
				t.Errorf("%s: key %q, want %q", text, got, want)
			}
			inside, err := c.Parse([]byte(`{"key":"`+want+`",`+steps+`}`), JSON, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if text == `{`+steps+`}` && inside[0].Hash != plans[0].Hash {
				t.Error("a key from outside makes another definition than the same key inside")
			}
		}
	}
	if _, err := c.Parse([]byte(`{`+steps+`}`), JSON, Options{DefaultKey: "a/b"}); perdure.CodeOf(err) != perdure.CodeInvalid {
		t.Errorf("a/b: %v", err)
	}
}
