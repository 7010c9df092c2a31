package valueschema

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

func compile(t *testing.T, text string) *Schema {
	t.Helper()
	s, err := Compile([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s
}

// Each keyword of draft 2020-12 accepts and refuses what it must.
func TestKeywords(t *testing.T) {
	for _, c := range []struct {
		schema    string
		good, bad string // values, separated by spaces
	}{
		{`true`, `1 null {}`, ``},
		{`false`, ``, `1 null {}`},
		{`{"type":"integer"}`, `1 -2 1.0 1e2`, `1.5 "1" null true [1]`},
		{`{"type":["string","null"]}`, `"a" null`, `1 false {}`},
		{`{"enum":[1,"a",null,{"b":[2.0]}]}`, `1 1.0 "a" null {"b":[2]}`, `2 "b" {"b":[3]} {"b":["2"]} "1"`},
		{`{"const":{"a":1}}`, `{"a":1} {"a":1.0}`, `{"a":2} {"a":1,"b":1} 1`},
		{`{"minimum":1,"exclusiveMaximum":3}`, `1 2.9 "a"`, `0 3 4`},
		{`{"multipleOf":0.1}`, `0.3 1 "a"`, `0.35`},
		{`{"minLength":2,"maxLength":3}`, `"éé" "abc" 1`, `"a" "abcd"`},
		{`{"pattern":"^a+$"}`, `"aa" 1`, `"ab" ""`},
		{`{"prefixItems":[{"type":"integer"}],"items":{"type":"string"}}`, `[] [1] [1,"a","b"]`, `["a"] [1,2]`},
		{`{"contains":{"const":1},"minContains":2,"maxContains":3}`, `[1,1] [1,2,1,1]`, `[1] [] [1,1,1,1]`},
		{`{"minItems":1,"maxItems":2,"uniqueItems":true}`, `[1] [1,"1"]`, `[] [1,1.0] [1,2,3]`},
		{`{"required":["a"],"properties":{"a":{"type":"integer"}},"additionalProperties":false}`, `{"a":1}`, `{} {"a":"x"} {"a":1,"b":2}`},
		{`{"patternProperties":{"^x-":{"type":"string"}},"additionalProperties":{"type":"integer"}}`, `{"x-a":"b","c":1}`, `{"x-a":1} {"c":"d"}`},
		{`{"propertyNames":{"maxLength":2},"minProperties":1,"maxProperties":2}`, `{"ab":1}`, `{} {"abc":1} {"a":1,"b":1,"c":1}`},
		{`{"dependentRequired":{"a":["b"]},"dependentSchemas":{"c":{"required":["d"]}}}`, `{} {"a":1,"b":1} {"c":1,"d":1}`, `{"a":1} {"c":1}`},
		{`{"allOf":[{"minimum":1},{"maximum":2}]}`, `1 2`, `0 3`},
		{`{"anyOf":[{"type":"string"},{"minimum":2}]}`, `"a" 2`, `1`},
		{`{"oneOf":[{"multipleOf":2},{"multipleOf":3}]}`, `2 3`, `6 1`},
		{`{"not":{"type":"null"}}`, `1 "a"`, `null`},
		{`{"if":{"type":"integer"},"then":{"minimum":5},"else":{"type":"string"}}`, `5 "a"`, `4 1.5 null`},
		{`{"$ref":"#/$defs/n","$defs":{"n":{"type":"integer"}}}`, `1`, `"a"`},
		{`{"$defs":{"n":{"$anchor":"here","type":"integer"}},"items":{"$ref":"#here"}}`, `[1]`, `["a"]`},
		{`{"$id":"https://x.example/tree","properties":{"left":{"$ref":"#"},"right":{"$ref":"tree"}},"additionalProperties":false}`, `{"left":{"right":{}}}`, `{"left":{"middle":{}}}`},
		{`{"properties":{"a":true},"allOf":[{"properties":{"b":true}}],"unevaluatedProperties":false}`, `{"a":1,"b":2}`, `{"c":1}`},
		{`{"prefixItems":[true],"unevaluatedItems":false}`, `[1] []`, `[1,2]`},
		{`{"format":"date"}`, `"2026-02-28" 1`, `"2026-02-30" "x"`},
		{`{"format":"date-time"}`, `"2026-02-28T10:00:00Z"`, `"2026-02-28"`},
		{`{"format":"uuid"}`, `"2eb8aa08-aa98-11ea-b4aa-73b441d16380"`, `"2eb8aa08"`},
		{`{"format":"email"}`, `"a@b.example"`, `"a"`},
		{`{"properties":{"enum":{"type":"integer"},"$ref":{"type":"string"},"$dynamicRef":{"type":"string"}}}`, `{"enum":1,"$ref":"a"}`, `{"enum":"a"} {"$ref":1} {"$dynamicRef":1}`},
		{`{"title":"t","description":"d","default":{"$dynamicRef":"x"},"examples":[{"$schema":"y"}],"x-own":1}`, `1 {}`, ``},
	} {
		s := compile(t, c.schema)
		for _, v := range strings.Fields(c.good) {
			if found := s.Check(json.RawMessage(v)); len(found) > 0 {
				t.Errorf("%s refuses %s: %+v", c.schema, v, found)
			}
		}
		for _, v := range strings.Fields(c.bad) {
			if found := s.Check(json.RawMessage(v)); len(found) == 0 {
				t.Errorf("%s accepts %s", c.schema, v)
			}
		}
	}
}

// Faults have the place and the reason, each in one line, and there are few of them.
func TestFaultsHavePlaces(t *testing.T) {
	s := compile(t, `{"properties":{"a/b":{"items":{"type":"integer"}},"s":{"enum":["x","y"]}},"required":["z"]}`)
	found := s.Check(json.RawMessage(`{"a/b":[1,"x",2,null],"s":"q"}`))
	got := map[string]string{}
	for _, f := range found {
		got[f.Pointer] = f.Message
	}
	for pointer, want := range map[string]string{"/a~1b/1": "integer", "/a~1b/3": "integer", "/s": `must be one of "x","y"`, "": "z"} {
		if !strings.Contains(got[pointer], want) {
			t.Errorf("at %q: %q, want %q", pointer, got[pointer], want)
		}
	}
	many := compile(t, `{"items":{"type":"integer"}}`).Check(json.RawMessage(`["` + strings.Repeat(`a","`, 100) + `b"]`))
	if len(many) != maxFaults {
		t.Errorf("%d faults", len(many))
	}
	if found := s.Check(nil); len(found) != 0 { // no value is null
		t.Errorf("null: %+v", found)
	}
}

func TestBadSchemasAreRefused(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type":"int"}`:                                         "/type",
		`{"minimum":"1"}`:                                        "/minimum",
		`{"properties":{"a":{"required":"b"}}}`:                  "/properties/a/required",
		`{"$ref":"#/$defs/none"}`:                                "none",
		`{"$ref":"https://x.example/a.json"}`:                    "another document",
		`{"$ref":"other.json"}`:                                  "another document",
		`{"items":{"$ref":"file:///etc/passwd"}}`:                "another document",
		`{"$dynamicRef":"#a"}`:                                   "$dynamicRef is not supported",
		`{"$schema":"http://json-schema.org/draft-07/schema#"}`:  "draft 2020-12",
		`{"properties":{"a":{"$schema":"https://x.example/s"}}}`: "draft 2020-12",
		`{"pattern":"(?=a)"}`:                                    "pattern",
		`{"pattern":"(a"}`:                                       "pattern",
		`{"pattern":"(?:abcdefghi){1000}"}`:                      "at most 10000",
		`{"maximum":1e401}`:                                      "exponent",
	} {
		_, err := Compile([]byte(schema))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", schema, err, want)
		}
	}
	var all []string
	for i := range 11 {
		all = append(all, fmt.Sprintf(`"p%d":{"pattern":"(?:abcdefgh){999}%d"}`, i, i%10))
	}
	if _, err := Compile([]byte(`{"properties":{` + strings.Join(all, ",") + `}}`)); err == nil || !strings.Contains(err.Error(), "all patterns") {
		t.Errorf("many patterns: %v", err)
	}
	if _, err := Compile([]byte(`{"pattern":"(?:abcdefgh){1000}"}`)); err != nil {
		t.Errorf("a pattern within the bound: %v", err)
	}
}

// F305: a check of any schema and value ends soon, whatever doubles in it.
func TestWorkIsBounded(t *testing.T) {
	doubling := func(apply string) string {
		var defs []string
		for i := range 60 {
			defs = append(defs, fmt.Sprintf(`"d%d":`+apply, i, i+1, i+1))
		}
		return `{"$ref":"#/$defs/d0","$defs":{` + strings.Join(defs, ",") + `,"d60":{"type":"integer"}}}`
	}
	deep := strings.Repeat(`{"a":`, 60) + `"x"` + strings.Repeat(`}`, 60)
	for name, c := range map[string]struct{ schema, value string }{
		"all of":          {doubling(`{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`), `1`},
		"any of, failing": {doubling(`{"anyOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`), `"x"`},
		"not":             {doubling(`{"not":{"anyOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}}`), `"x"`},
		"one of":          {doubling(`{"oneOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`), `1`},
		"each member":     {`{"$defs":{"n":{"properties":{"a":{"allOf":[{"$ref":"#/$defs/n"},{"$ref":"#/$defs/n"}]}}}},"$ref":"#/$defs/n"}`, deep},
		"a wide enum":     {`{"items":{"enum":[` + strings.TrimSuffix(strings.Repeat(`123456789.5,`, 10_000), ",") + `]}}`, `[` + strings.TrimSuffix(strings.Repeat("1,", 100_000), ",") + `]`},
		"large exponents": {`{"items":{"minimum":1}}`, `[` + strings.TrimSuffix(strings.Repeat("1e999999,", 1000), ",") + `]`},
		"any of many":     {`{"items":{"anyOf":[` + strings.TrimSuffix(strings.Repeat(`{"type":"string"},`, 5000), ",") + `]}}`, `[` + strings.TrimSuffix(strings.Repeat("1,", 100_000), ",") + `]`},
	} {
		s := compile(t, c.schema)
		began := time.Now()
		found := s.Check(json.RawMessage(c.value))
		if took := time.Since(began); len(found) == 0 || took > 20*time.Second {
			t.Errorf("%s: %d faults after %s", name, len(found), took)
		}
	}
	// A reference that leads to itself never ends, and is refused by the check.
	if found := compile(t, `{"$ref":"#"}`).Check(json.RawMessage(`1`)); len(found) == 0 {
		t.Error("a reference to itself accepts a value")
	}
	// A large value with a plain schema fits.
	s := compile(t, `{"items":{"type":"object","required":["n"],"properties":{"n":{"type":"integer","minimum":0}}}}`)
	if found := s.Check(json.RawMessage(`[` + strings.TrimSuffix(strings.Repeat(`{"n":12},`, 100_000), ",") + `]`)); len(found) > 0 {
		t.Errorf("a value of 900 kB: %+v", found)
	}
}

// Any number of goroutines may use a schema.
func TestConcurrentChecks(t *testing.T) {
	s := compile(t, `{"type":"integer","maximum":5}`)
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			for range 100 {
				if found := s.Check(json.RawMessage(fmt.Sprint(i))); (len(found) == 0) != (i <= 5) {
					t.Errorf("%d: %+v", i, found)
				}
			}
		})
	}
	all.Wait()
}
