package sdk

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/rest"
	"github.com/perdure/perdure/internal/rest/resttest"
	"github.com/perdure/perdure/protocol"
)

// The types of the package for TypeScript are generated: types.ts from the OpenAPI document, with every schema that it has,
// and definition.ts from the JSON Schema of definitions. So the compiler refuses code of the package that uses a field or
// a word that the server does not have.

// tsSchema is the part of JSON Schema that both documents use.
type tsSchema struct {
	Ref         string `json:"$ref"`
	Type        any
	Description string
	Const       any
	Enum        []string
	Properties  map[string]*tsSchema
	Required    []string
	Items       *tsSchema
	AnyOf       []*tsSchema
	Additional  json.RawMessage      `json:"additionalProperties"`
	Defs        map[string]*tsSchema `json:"$defs"`
}

// tsNames are the names that types have in TypeScript, if another one is better there: the package has classes Agent and
// Run, and a type of a request's body is what the caller passes.
var tsNames = map[string]string{
	"Agent": "AgentInfo", "Run": "RawRun", "AgentBody": "AgentSettings", "LimitBody": "LimitSettings", "KeyLimitBody": "KeyLimit",
	"BatchValues": "JobValues", "InputBody": "EditOptions", "SettleBody": "SettleOptions", "ScheduleBody": "ScheduleSettings", "BackfillBody": "BackfillOptions", "Definition": "StoredDefinition",
	// of definitions
	"with.exec": "ExecInput", "with.http": "HttpInput", "with.shell": "ShellInput", "with.sleep": "SleepInput", "with.approval": "ApprovalInput", "with.signal": "SignalInput", "values": "HttpValues", "statuses": "HttpStatuses",
	"limit": "LimitDefinition", "retry": "RetryDefinition", "rung": "Rung", "ladder": "Ladder", "states": "StateNames", "step": "StepDefinition", "undo": "UndoDefinition", "unique": "UniqueDefinition", "tolerate": "Tolerance", "childJob": "ChildJob",
}

// tsWords are the names of sets of words. A set without a name is written out.
var tsWords = map[string]string{
	"undone done unsure":                            "State",
	"settled waiting ready running parked":          "Phase",
	"do undo":                                       "Direction",
	"done failed rejected returned expired":         "Outcome",
	"late stale conflict unknown invalid forbidden": "RefusalReason",
	"alive dead":                                    "NodeState",
	"afterSteps noAgent agentBusy limit backoff notYet held approval running expired parked deadline": "ReasonKind",
}

// tsOmitted are schemas of the OpenAPI document that the package has no use for, and why.
var tsOmitted = map[string]string{
	"KeyLimitBody": "it is the same as KeyLimit",
	"Problem":      "the client throws a PerdureError",
	"HealthAnswer": "the client answers with the version, or throws",
}

func TestTypeScriptTypes(t *testing.T) {
	for file, text := range map[string]string{
		"typescript/src/types.ts":      tsTypes(t),
		"typescript/src/definition.ts": tsDefinition(t),
	} {
		if *refresh {
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if old, err := os.ReadFile(file); err != nil || string(old) != text {
			t.Errorf("%s does not fit the server (go test ./sdk -run TypeScriptTypes -refresh, and read the difference)", file)
		}
	}
}

// openAPI is the document that a whole node serves.
func tsAPI(t *testing.T) (doc struct {
	Paths      map[string]map[string]*tsOperation
	Components struct{ Schemas map[string]*tsSchema }
}) {
	t.Helper()
	w := httptest.NewRecorder()
	wholeAPI(resttest.Full()).ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/openapi.json", nil))
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// wholeAPI serves all calls that a node serves.
func wholeAPI(service protocol.Server) http.Handler {
	return rest.New(rest.Config{Service: service, JobSchema: definition.Schema(), Metrics: http.NotFoundHandler()})
}

const tsHeader = `// %s
//
// Generated; do not edit. After a change of the server: go test ./sdk -run TypeScriptTypes -refresh
`

func tsTypes(t *testing.T) string {
	all := tsAPI(t).Components.Schemas
	for name := range tsOmitted {
		if all[name] == nil {
			t.Errorf("tsOmitted has %s, which is not in the OpenAPI document", name)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, tsHeader, "What a server receives and answers, as in its OpenAPI document. Times are text as in RFC 3339, in UTC.")
	b.WriteString("\nimport type { JobDefinition } from \"./definition.ts\";\n\n")
	byName := func(names map[string]string) func(a, b string) int {
		return func(a, b string) int { return strings.Compare(cmp.Or(names[a], a), cmp.Or(names[b], b)) }
	}
	for _, words := range slices.SortedFunc(maps.Keys(tsWords), byName(tsWords)) {
		fmt.Fprintf(&b, "export type %s = %s;\n", tsWords[words], strings.Join(quoted(strings.Fields(words)), " | "))
	}
	for _, name := range slices.SortedFunc(maps.Keys(all), byName(tsNames)) {
		if tsOmitted[name] == "" {
			b.WriteString(tsInterface(name, all[name]))
		}
	}
	// A definition, or its text or name.
	return strings.ReplaceAll(b.String(), "definition: Record<string, unknown> | string;", "definition: JobDefinition | string;")
}

func tsDefinition(t *testing.T) string {
	root := new(tsSchema)
	if err := json.Unmarshal(definition.Schema(), root); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, tsHeader, "The definition of a job, as in its JSON Schema (perdure schema).")
	b.WriteString("\nimport type { StateNames } from \"./types.ts\";\n")
	b.WriteString(tsInterface("JobDefinition", root))
	for _, name := range slices.Sorted(maps.Keys(root.Defs)) {
		switch def := root.Defs[name]; {
		case name == "states": // it is in types.ts
		case len(def.Properties) > 0:
			b.WriteString(tsInterface(name, def))
		case len(def.AnyOf) > 0:
			fmt.Fprintf(&b, "\n%sexport type %s = %s;\n", tsComment("", def.Description), tsName(name), tsType(def))
		case def.Type == "object":
			fmt.Fprintf(&b, "\n%sexport type %s = %s;\n", tsComment("", def.Description), tsName(name), tsType(def))
		default:
			if tsType(def) != "string" {
				t.Errorf("$defs/%s is no longer text: let the generator write a type for it", name)
			}
		}
	}
	return b.String()
}

func tsInterface(name string, s *tsSchema) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%sexport interface %s {\n", tsComment("", s.Description), tsName(name))
	fields := slices.Collect(maps.Keys(s.Properties))
	required := func(name string) bool { return slices.Contains(s.Required, name) }
	slices.SortFunc(fields, func(a, b string) int {
		switch {
		case required(a) && !required(b):
			return -1
		case required(b) && !required(a):
			return 1
		}
		return strings.Compare(a, b)
	})
	for _, field := range fields {
		p := s.Properties[field]
		optional := "?"
		if required(field) {
			optional = ""
		}
		key := field
		if !tsIdentifier.MatchString(key) {
			key = `"` + key + `"`
		}
		fmt.Fprintf(&b, "%s  %s%s: %s;\n", tsComment("  ", p.Description), key, optional, tsType(p))
	}
	if others := new(tsSchema); json.Unmarshal(s.Additional, others) == nil && others.Type != "" { // fields with names of the user's choice
		b.WriteString("  [name: string]: unknown;\n")
	}
	b.WriteString("}\n")
	return b.String()
}

var tsIdentifier = regexp.MustCompile(`^[A-Za-z_]\w*$`)

func tsComment(indent, text string) string {
	if text == "" {
		return ""
	}
	return indent + "/** " + strings.ReplaceAll(text, "*/", "* /") + " */\n"
}

func tsName(name string) string { return cmp.Or(tsNames[name], name) }

func tsType(s *tsSchema) string {
	if s.Properties["steps"] != nil && s.Properties["type"] != nil && s.Ref == "" {
		return "JobDefinition"
	}
	switch {
	case s.Ref != "":
		switch name := path.Base(s.Ref); name {
		case "name", "duration", "expression", "hostWord":
			return "string"
		default:
			return tsName(name)
		}
	case s.Const != nil:
		return fmt.Sprintf("%q", s.Const)
	case len(s.Enum) > 0:
		if name := tsWords[strings.Join(s.Enum, " ")]; name != "" {
			return name
		}
		return strings.Join(quoted(s.Enum), " | ")
	case len(s.AnyOf) > 0:
		var types []string
		for _, one := range s.AnyOf {
			types = append(types, tsType(one))
		}
		return strings.Join(slices.Compact(types), " | ")
	case len(s.Properties) > 0:
		var fields []string
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			optional := "?"
			if slices.Contains(s.Required, name) {
				optional = ""
			}
			fields = append(fields, name+optional+": "+tsType(s.Properties[name]))
		}
		return "{ " + strings.Join(fields, "; ") + " }"
	}
	switch s.Type {
	case "array":
		if s.Items == nil {
			return "unknown[]"
		}
		if element := tsType(s.Items); strings.Contains(element, "|") {
			return "(" + element + ")[]"
		} else {
			return element + "[]"
		}
	case "object":
		values := new(tsSchema)
		if json.Unmarshal(s.Additional, values) == nil && tsType(values) != "unknown" {
			return "Record<string, " + tsType(values) + ">"
		}
		return "Record<string, unknown>"
	case "string":
		return "string"
	case "integer", "number":
		return "number"
	case "boolean":
		return "boolean"
	}
	return "unknown"
}

// The codes of refusals that the package names are those of docs/errors.md.
func TestTypeScriptErrorCodes(t *testing.T) {
	page, err := os.ReadFile("../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	table, _, _ := strings.Cut(string(page), "## Codes of failed runs")
	source, err := os.ReadFile("typescript/src/errors.ts")
	if err != nil {
		t.Fatal(err)
	}
	_, union, _ := strings.Cut(string(source), "export type ErrorCode =")
	union, _, _ = strings.Cut(union, ";")
	documented := captured(regexp.MustCompile("(?m)^\\| `(\\w+)` \\|"), table)
	named := captured(regexp.MustCompile(`"(\w+)"`), union)
	if len(documented) < 10 || !slices.Equal(documented, named) {
		t.Errorf("docs/errors.md has %q\nErrorCode has %q", documented, named)
	}
}

func captured(pattern *regexp.Regexp, text string) (all []string) {
	for _, m := range pattern.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	slices.Sort(all)
	return all
}
