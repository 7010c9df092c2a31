package text

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var refresh = flag.Bool("refresh", false, "write testdata/yaml-test-suite/outcomes.txt again")

// suiteCase is a case of github.com/yaml/yaml-test-suite (commit ccfa74e5, MIT licence), one a line of cases.jsonl.
type suiteCase struct {
	ID, Name, YAML string
	Invalid        bool
	JSON           []json.RawMessage // of the documents; nil if they have no equivalent in JSON
}

// TestYAMLSuite reads the official test suite of YAML. No case may have another value than the suite gives. outcomes.txt
// lists the cases that are refused because they are outside of the supported subset, and those that are accepted
// although the suite refuses them. A case that changes its list fails the test.
func TestYAMLSuite(t *testing.T) {
	const dir = "testdata/yaml-test-suite/"
	cases, err := os.ReadFile(dir + "cases.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	outcomes := map[string][]string{}
	for line := range bytes.Lines(cases) {
		var c suiteCase
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		docs, f := ReadYAML([]byte(c.YAML))
		title := c.ID + " " + c.Name
		switch {
		case f != nil && c.Invalid:
			outcomes["invalid, refused"] = append(outcomes["invalid, refused"], title)
		case c.Invalid:
			outcomes["invalid, accepted"] = append(outcomes["invalid, accepted"], title)
		case f != nil:
			line, column := NewSource([]byte(c.YAML)).Locate(f.at)
			outcomes["valid, refused"] = append(outcomes["valid, refused"], fmt.Sprintf("%s: %d:%d: %s", title, line, column, f.Message))
		case c.JSON == nil:
			outcomes["valid, without JSON"] = append(outcomes["valid, without JSON"], title)
		default:
			if got, want := valuesOfNodes(docs), c.values(t); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %q is read as %v, want %v", title, c.YAML, got, want)
			}
			outcomes["valid, right"] = append(outcomes["valid, right"], title)
		}
	}
	var b strings.Builder
	for _, outcome := range []string{"valid, right", "valid, without JSON", "valid, refused", "invalid, refused", "invalid, accepted"} {
		list := outcomes[outcome]
		slices.Sort(list)
		fmt.Fprintf(&b, "%s: %d\n", outcome, len(list))
		if outcome != "valid, right" && outcome != "invalid, refused" {
			fmt.Fprintf(&b, "    %s\n", strings.Join(list, "\n    "))
		}
	}
	if *refresh {
		if err := os.WriteFile(dir+"outcomes.txt", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(dir + "outcomes.txt")
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("other outcomes than in outcomes.txt; go test -run YAMLSuite -refresh ./definition/internal/text writes:\n%s", b.String())
	}
}

// values returns the values of the documents, without empty ones: a definition is never empty, and ReadYAML omits them.
func (c *suiteCase) values(t *testing.T) (values []any) {
	for _, raw := range c.JSON {
		v, _, err := DecodeJSON(raw, len(raw)+1)
		if err != nil {
			t.Fatal(c.ID, err)
		}
		if v != nil {
			values = append(values, v)
		}
	}
	return values
}

func valuesOfNodes(docs []Node) (values []any) {
	for i := range docs {
		b := AppendNode(nil, &docs[i])
		if v, _, _ := DecodeJSON(b, len(b)+1); v != nil {
			values = append(values, v)
		}
	}
	return values
}
