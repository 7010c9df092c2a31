package sdk

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/rest"
	"github.com/perdure/perdure/internal/rest/resttest"
)

var refresh = flag.Bool("refresh", false, "write the types of both packages anew")

// schema is as much of JSON Schema as the OpenAPI document uses.
type schema struct {
	Ref         string `json:"$ref"`
	Type        string
	Description string
	Enum        []string
	Properties  map[string]*schema
	Required    []string
	Items       *schema
	AnyOf       []*schema
	Additional  json.RawMessage `json:"additionalProperties"`
}

// values is the schema of a map's values; nil for what is no map.
func (s *schema) values() *schema {
	v := new(schema)
	if len(s.Properties) > 0 || json.Unmarshal(s.Additional, v) != nil {
		return nil
	}
	return v
}

// The types that the packages' own signatures name; what these refer to comes along.
var roots = []string{"Job", "Step", "StepDetail", "BatchResult", "Entry", "FieldError"}

// pythonRoots are what the package for Python names beyond these.
var pythonRoots = []string{"PageJob", "PageEntry", "Alert", "PageAlert", "Limit", "Agent", "Node", "HealthAnswer", "SignalResult",
	"Schedule", "PageSchedule", "ScheduleFired", "Backfill", "PageFiring", "Definition", "PageDefinition"}

// pythonNames are the names of types where another one is better: the package has a class Agent.
var pythonNames = map[string]string{"Agent": "AgentInfo", "HealthAnswer": "Health", "Definition": "StoredDefinition"}

const generated = "From the server's OpenAPI document; `go test ./sdk -run Types -refresh` writes it anew."

// The types of both packages are those of the OpenAPI document.
func TestTypes(t *testing.T) {
	w := httptest.NewRecorder()
	rest.New(rest.Config{Service: resttest.Full()}).ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/openapi.json", nil))
	var doc struct {
		Components struct{ Schemas map[string]*schema }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	names := reachable(doc.Components.Schemas, roots)
	for file, text := range map[string]string{
		"python/perdure/types.py": pythonTypes(doc.Components.Schemas, names),
	} {
		if *refresh {
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if old, err := os.ReadFile(file); err != nil || string(old) != text {
			t.Errorf("%s is not what the OpenAPI document says (go test ./sdk -run Types -refresh, and read the difference)", file)
		}
	}
}

// reachable are the names in order: what is referred to comes before what refers to it.
func reachable(all map[string]*schema, from []string) (names []string) {
	var visit func(name string)
	var follow func(s *schema)
	follow = func(s *schema) {
		switch {
		case s == nil:
			return
		case s.Ref != "":
			visit(path.Base(s.Ref))
		}
		follow(s.Items)
		follow(s.values())
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			follow(s.Properties[name])
		}
	}
	seen := map[string]bool{}
	visit = func(name string) {
		if !seen[name] {
			seen[name] = true
			follow(all[name])
			names = append(names, name)
		}
	}
	for _, name := range from {
		visit(name)
	}
	return names
}

// fields are a schema's properties by name, those that are always there first.
func (s *schema) fields() []string {
	names := slices.Collect(maps.Keys(s.Properties))
	slices.SortFunc(names, func(a, b string) int {
		if x, y := slices.Contains(s.Required, a), slices.Contains(s.Required, b); x != y {
			if x {
				return -1
			}
			return 1
		}
		return cmp.Compare(a, b)
	})
	return names
}

func quoted(list []string) []string {
	var q []string
	for _, s := range list {
		q = append(q, `"`+s+`"`)
	}
	return q
}

func pythonTypes(all map[string]*schema, names []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\"\"\"What a server answers.\n\n%s\nTimes are texts as RFC 3339 has them, in UTC.\n\"\"\"\n\n", generated)
	b.WriteString("from __future__ import annotations\n\nfrom typing import Any, Dict, List, Literal, TypedDict\n")
	for _, schema := range reachable(all, append(slices.Clone(names), pythonRoots...)) {
		s, name := all[schema], cmp.Or(pythonNames[schema], schema)
		base := "TypedDict"
		if len(s.Required) > 0 {
			base = "_" + name
			fmt.Fprintf(&b, "\n\nclass %s(%s):\n", base, cmp.Or(pythonKeywords(&b, s, name, true), "TypedDict"))
		}
		doc := docString(name, s.fields())
		for i, field := range s.fields() {
			if i == len(s.Required) {
				if of := pythonKeywords(&b, s, name, false); of != "" {
					base += ", " + of
				}
				fmt.Fprintf(&b, "\n\nclass %s(%s, total=False):\n%s", name, base, doc)
			}
			if !slices.Contains(keywords, field) {
				fmt.Fprintf(&b, "    %s: %s\n", field, pythonType(s.Properties[field]))
			}
		}
		if len(s.Required) == len(s.Properties) {
			fmt.Fprintf(&b, "\n\nclass %s(%s):\n    pass\n", name, base)
		}
	}
	return b.String()
}

// keywords are names of fields that a Python class cannot have.
var keywords = []string{"from", "as", "in", "is"}

// pythonKeywords writes a type with the fields of a schema that are keywords, those that are always there or the others, and
// returns its name; "" if there is none.
func pythonKeywords(b *strings.Builder, s *schema, name string, required bool) string {
	var fields []string
	for _, f := range s.fields() {
		if slices.Contains(keywords, f) && slices.Contains(s.Required, f) == required {
			fields = append(fields, fmt.Sprintf("%q: %s", f, pythonType(s.Properties[f])))
		}
	}
	if fields == nil {
		return ""
	}
	of, total := "_"+name+"Keywords", ""
	if !required {
		of, total = "_"+name+"OptionalKeywords", ", total=False"
	}
	fmt.Fprintf(b, "\n\n%s = TypedDict(%q, {%s}%s)\n", of, of, strings.Join(fields, ", "), total)
	return of
}

func pythonType(s *schema) string {
	switch {
	case s.Ref != "":
		return cmp.Or(pythonNames[path.Base(s.Ref)], path.Base(s.Ref))
	case len(s.Enum) > 0:
		return "Literal[" + strings.Join(quoted(s.Enum), ", ") + "]"
	case s.Type == "array":
		return "List[" + pythonType(s.Items) + "]"
	case s.Type == "object" && s.values() != nil:
		return "Dict[str, " + pythonType(s.values()) + "]"
	case s.Type != "":
		return map[string]string{"string": "str", "integer": "int", "number": "float", "boolean": "bool"}[s.Type]
	}
	return "Any"
}
