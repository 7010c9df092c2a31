package definition

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/perdure/perdure/definition/internal/text"
)

// The schema accepts what Parse accepts, and finds the faults that a schema can express.
func TestSchemaAgreesWithParse(t *testing.T) {
	var schema map[string]any
	if err := json.Unmarshal(Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	s := validator{schema}
	for _, src := range append(good(), order) {
		docs, f := text.ReadYAML([]byte(src))
		if f != nil {
			t.Fatal(f.Message)
		}
		if bad := s.check(schema, valueOf(&docs[0])); bad != "" {
			t.Errorf("refuses: %s\n%s", bad, src)
		}
	}
	found := 0
	for _, c := range badYAML {
		docs, f := text.ReadYAML([]byte(strings.Replace(c.text, "§", "", 1)))
		if f == nil && len(docs) > 0 && s.check(schema, valueOf(&docs[len(docs)-1])) != "" {
			found++
		}
	}
	if found < 60 {
		t.Errorf("finds only %d of the bad examples", found)
	}
}

// good returns definitions that are accepted.
func good() []string {
	var all []string
	for _, group := range same {
		all = append(all, group...)
	}
	return append(all,
		"type: t\nsteps: {a: {agent: sleep, with: {for: '${input.a}'}}}\ninput: {a: 5m}\n",
		"type: t\ninputSchema: {type: object, required: [n], properties: {n: {$ref: '#/$defs/n'}}, $defs: {n: {type: integer, minimum: 1}}}\ninput: {n: 7}\noutput: '${input.n}'\noutputSchema: true\nsteps: {a: {agent: x, inputSchema: {properties: {n: {type: integer}}}, with: {n: '${input.n}'}, outputSchema: {$schema: 'https://json-schema.org/draft/2020-12/schema', type: [string, 'null'], format: date}}}\n",
		"type: t\noutput: {a: '${steps.a.output.x}', b: '${steps.b.output} ${job.id}', c: [1.0, null]}\nsteps: {a: {agent: x}, b: {agent: y}}\n",
		"type: t\noutput: null\nsteps: {a: {agent: x}}\n",
		"type: t\nstartAt: '2199-12-31T23:59:59.999999Z'\nstartWithin: 3650d\nsteps: {a: {agent: x}}\n",
		"type: t\nstartAt: 1970-01-01T00:00:00Z\nonFailure: park\nstartWithin: 10m\nsteps: {a: {agent: x}}\n",
		"type: t\nsteps: {a: {agent: sleep, with: {until: 2031-01-01T08:00:00+02:00}}}\n",
		"type: t\nsteps: {a: {agent: approval, with: {group: manager, message: Well?}, completeWithin: 24h, onFailure: undo}}\n",
		"type: t\nsteps: {a: {agent: http, with: {url: 'http://x/${job.id}', query: {a: [1, b], c: null}, headers: {X-A: '${job.key}', Accept: a/b}, body: text, expect: {done: [404, 2xx, '410'], rejected: [4xx]}, followRedirects: 3}}}\n",
		"type: t\nsteps: {a: {agent: shell, with: {command: [sh, -c, 'echo $1', 5, '${job.id}'], dir: /tmp, env: {A: 1}, stdin: {a: 1}, rejectedCodes: [2, 64]}, undo: {with: {command: [undo, '${doKey}']}}}}\n",
		"type: t\nsteps: {a: {agent: http, with: {url: http://x}, undo: {agent: other}}}\n",
		"type: t\nsteps: {a: {agent: http, with: {url: 'https://x/${secret.PATH_1}', query: {k: '${secret.A}'}, headers: {Authorization: 'Bearer ${secret.A}'}, body: {p: '${ secret.B }'}}, undo: {with: {url: 'https://x', headers: {K: ['${secret.A}']}}}}}\n",
		"type: t\nsteps: {a: {agent: exec, with: {command: [render, 5, '${job.id}'], env: {A: 1}, exit: {rejected: [2, 64], returned: [75, '${1 + 2}']}}, undo: {with: {command: [undo, '${doKey}']}}}}\n",
		"type: t\nsteps: {a: {agent: exec, with: {command: [x], exit: '${steps.b.output}'}, after: [b]}, b: {agent: x}}\n",
		"type: t\ninput: {s: {$artifact: 'sha256:"+strings.Repeat("0", 64)+"', size: 3, type: image/png}}\nsteps: {a: {agent: exec, with: {command: [x], files: {a/b: '${input.s}'}, collect: {frames: 'out/*.png', one: '${job.id}.txt'}}}}\n",
		"type: t\nsteps: {a: {agent: shell, with: {command: [x], env: {A: '${secret.A}', B: 'a ${secret.B}${secret.C}'}}}}\n",
		"type: t\nsteps: {a: {agent: other, with: '${secret.A}', undo: {}}}\n",
		"type: t\nsteps: {a: {agent: other, undo: {agent: http, with: {url: http://x, method: DELETE}}}}\n",
		"type: t\nstates: {undone: free, done: booked}\nonFailure: [{alert: ops}, {wait: 15m, times: 4}, {restart: 2}, undo]\nsteps: {a: {agent: x}}\n",
		"type: t\nnotify: [{webhook: 'https://x.example/h?a=b', on: [received, running, done], secret: HOOK}, {receiver: slack}]\nsteps: {a: {agent: x}}\n",
		"type: t\nsteps: {a: {agent: x, requires: {cpu: 2.5, memory: 4GiB, gpu: 1, labels: {zone: a, driver: '*'}, grid: local}, prefers: {labels: {cache: warm}}, place: spread}}\n",
		"type: t\nsteps: {a: {agent: x, heartbeat: 10m, progressWithin: 1h, stopWithin: 5m, completeWithin: 10m}, b: {agent: shell, with: {command: [a]}, stopWithin: 1s}}\n",
		"type: t\nsteps: {a: {agent: x, requires: {memory: 4096, labels: {}}, place: pack}, b: {agent: exec, with: {command: [a]}, prefers: {labels: {cache: '*'}}}}\n",
		"type: t\nsteps: {a: {agent: http, with: '${input.call}'}}\ninput: {call: {url: http://x}}\n",
	)
}

func TestGoodDefinitionsAreAccepted(t *testing.T) {
	for _, src := range append(good(), order, many(20)) {
		check(t, parseOne(t, src, YAML, Options{}))
	}
}

// The schema uses only keywords that the validator below knows.
func TestSchemaHasOnlyKnownKeywords(t *testing.T) {
	known := strings.Fields("$schema $defs $ref title description default examples type properties additionalProperties required anyOf allOf if then not const enum pattern minimum maximum minLength maxLength minItems maxItems minProperties maxProperties uniqueItems items propertyNames")
	var walk func(v any, names bool)
	walk = func(v any, names bool) {
		m, ok := v.(map[string]any)
		if !ok {
			return
		}
		for k, w := range m {
			if !names && !slices.Contains(known, k) {
				t.Errorf("keyword %s", k)
			}
			switch list, _ := w.([]any); {
			case k == "default" || k == "examples" || k == "enum" || k == "const":
			case list != nil:
				for _, x := range list {
					walk(x, false)
				}
			default:
				walk(w, !names && (k == "properties" || k == "$defs"))
			}
		}
	}
	var schema any
	if err := json.Unmarshal(Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	walk(schema, false)
}

// validator implements the part of JSON Schema that the schema uses.
type validator struct{ root map[string]any }

// check returns what is wrong with v, or "" if nothing is.
func (c validator) check(schema, v any) string {
	if yes, ok := schema.(bool); ok {
		if yes {
			return ""
		}
		return "not allowed"
	}
	s := schema.(map[string]any)
	for _, f := range []func(map[string]any, any) string{c.logic, c.scalar, c.list, c.object} {
		if bad := f(s, v); bad != "" {
			return bad
		}
	}
	return ""
}

func (c validator) logic(s map[string]any, v any) string {
	if ref, ok := s["$ref"].(string); ok {
		def := c.root["$defs"].(map[string]any)[strings.TrimPrefix(ref, "#/$defs/")]
		if bad := c.check(def, v); bad != "" {
			return bad
		}
	}
	if any, ok := s["anyOf"].([]any); ok && !slices.ContainsFunc(any, func(x interface{}) bool { return c.check(x, v) == "" }) {
		return fmt.Sprintf("%v is none of %v", v, any)
	}
	if all, ok := s["allOf"].([]any); ok {
		for _, x := range all {
			if bad := c.check(x, v); bad != "" {
				return bad
			}
		}
	}
	if cond, ok := s["if"]; ok && c.check(cond, v) == "" {
		if bad := c.check(s["then"], v); bad != "" {
			return bad
		}
	}
	if not, ok := s["not"]; ok && c.check(not, v) == "" {
		return fmt.Sprintf("%v is what it must not be", v)
	}
	if x, ok := s["const"]; ok && !reflect.DeepEqual(x, v) {
		return fmt.Sprintf("%v is not %v", v, x)
	}
	if x, ok := s["enum"].([]any); ok && !slices.Contains(x, v) {
		return fmt.Sprintf("%v is not in %v", v, x)
	}
	return ""
}

func (c validator) scalar(s map[string]any, v any) string {
	if want := s["type"]; want != nil {
		names, ok := want.([]any)
		if !ok {
			names = []any{want}
		}
		if !slices.ContainsFunc(names, func(n any) bool { return isType(n.(string), v) }) {
			return fmt.Sprintf("%v is no %v", v, want)
		}
	}
	text, isText := v.(string)
	n := float64(utf8.RuneCountInString(text))
	i, isInt := v.(int)
	switch {
	case isText && s["pattern"] != nil && !regexp.MustCompile(s["pattern"].(string)).MatchString(text):
		return fmt.Sprintf("%q does not match %v", text, s["pattern"])
	case isText && s["maxLength"] != nil && n > s["maxLength"].(float64), isText && s["minLength"] != nil && n < s["minLength"].(float64):
		return fmt.Sprintf("%q has a wrong length", text)
	case isInt && s["minimum"] != nil && float64(i) < s["minimum"].(float64), isInt && s["maximum"] != nil && float64(i) > s["maximum"].(float64):
		return fmt.Sprintf("%d exceeds the bounds", i)
	}
	return ""
}

func isType(name string, v any) bool {
	switch v.(type) {
	case nil:
		return name == "null"
	case bool:
		return name == "boolean"
	case int, text.Digits:
		return name == "integer" || name == "number"
	case float64:
		return name == "number"
	case string:
		return name == "string"
	case []any:
		return name == "array"
	}
	return name == "object"
}

func (c validator) list(s map[string]any, v any) string {
	list, ok := v.([]any)
	if !ok {
		return ""
	}
	n := float64(len(list))
	if s["minItems"] != nil && n < s["minItems"].(float64) || s["maxItems"] != nil && n > s["maxItems"].(float64) {
		return "a list of a wrong length"
	}
	for i, x := range list {
		if s["uniqueItems"] == true && slices.ContainsFunc(list[:i], func(y any) bool { return reflect.DeepEqual(x, y) }) {
			return "an entry twice"
		}
		if items := s["items"]; items != nil {
			if bad := c.check(items, x); bad != "" {
				return bad
			}
		}
	}
	return ""
}

func (c validator) object(s map[string]any, v any) string {
	m, ok := v.(map[string]any)
	if !ok {
		return ""
	}
	n := float64(len(m))
	if s["minProperties"] != nil && n < s["minProperties"].(float64) || s["maxProperties"] != nil && n > s["maxProperties"].(float64) {
		return "an object of a wrong size"
	}
	required, _ := s["required"].([]any)
	for _, name := range required {
		if _, ok := m[name.(string)]; !ok {
			return fmt.Sprintf("%v is missing", name)
		}
	}
	properties, _ := s["properties"].(map[string]any)
	for name, x := range m {
		rule, ok := properties[name]
		if !ok {
			rule = s["additionalProperties"]
		}
		if names := s["propertyNames"]; names != nil {
			if bad := c.check(names, name); bad != "" {
				return bad
			}
		}
		if rule == nil {
			continue
		}
		if bad := c.check(rule, x); bad != "" {
			return name + ": " + bad
		}
	}
	return ""
}

// valueOf returns the node as expressions see it.
func valueOf(n *text.Node) any {
	switch n.Kind {
	case text.Bool:
		return n.Text == "true"
	case text.String:
		return n.Text
	case text.Number:
		return text.ParseNumber(n.Text)
	case text.List:
		list := make([]any, len(n.Kids))
		for i := range n.Kids {
			list[i] = valueOf(&n.Kids[i])
		}
		return list
	case text.Object:
		m := make(map[string]any, len(n.Kids))
		for i := range n.Kids {
			m[n.Keys[i].Name] = valueOf(&n.Kids[i])
		}
		return m
	}
	return nil
}
