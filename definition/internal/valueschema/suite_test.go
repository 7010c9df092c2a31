package valueschema

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// refusals are the reasons for which a schema of the suite is refused: what a bounded check cannot have, and nothing else.
// part is in the message, and tests is how many tests of the suite such schemas have.
var refusals = []refusal{
	{"leads to another document", "references to other documents are refused: nothing is loaded", 44},
	{"is not supported: use $ref", "$dynamicRef is refused: its target depends on the way to it", 31},
}

type refusal struct {
	part, why string
	tests     int
}

// suiteTests is how many tests run.
const suiteTests = 1024

// TestSuite runs the official test suite of JSON Schema, draft 2020-12, with the checks of inputs and outputs. A schema is
// either refused for one of the reasons above, or all of its tests have the result that the suite gives.
func TestSuite(t *testing.T) {
	files, err := filepath.Glob("testdata/JSON-Schema-Test-Suite/draft2020-12/*.json")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	ran, refused := 0, make([]int, len(refusals))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var groups []struct {
			Description string
			Schema      json.RawMessage
			Tests       []struct {
				Description string
				Data        json.RawMessage
				Valid       bool
			}
		}
		if err := json.Unmarshal(text, &groups); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		for _, g := range groups {
			s, err := Compile(g.Schema)
			if err != nil {
				i := slices.IndexFunc(refusals, func(r refusal) bool { return strings.Contains(err.Error(), r.part) })
				if i < 0 {
					t.Errorf("%s, %s: %v", name, g.Description, err)
					continue
				}
				refused[i] += len(g.Tests)
				continue
			}
			for _, c := range g.Tests {
				ran++
				if found := s.Check(c.Data); (len(found) == 0) != c.Valid {
					t.Errorf("%s, %s: %s: valid is %t, found %v", name, g.Description, c.Description, c.Valid, found)
				}
			}
		}
	}
	for i, r := range refusals {
		t.Logf("%d tests are skipped: %s", refused[i], r.why)
		if refused[i] != r.tests {
			t.Errorf("%d tests are skipped because %s, want %d", refused[i], r.why, r.tests)
		}
	}
	if ran != suiteTests {
		t.Errorf("%d tests ran, want %d", ran, suiteTests)
	}
}
