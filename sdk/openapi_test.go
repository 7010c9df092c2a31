package sdk

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/rest"
	"github.com/perdure/perdure/internal/rest/resttest"
)

// A package for another language is held against the OpenAPI document, which the server makes of its own code. Both
// are turned into sets of features, which are names like these:
//
//	GET /v1/jobs                       an operation
//	GET /v1/jobs ?phase                a parameter of its query
//	PUT /v1/limits/{name} :Perdure-Author   a header
//	POST /v1/jobs application/yaml     a media type of its body
//	ClaimBody.holder                   a field of a schema, sent or read
//	SettleBody.as=done                 a value of an enumeration
//
// A feature that only one of the sets has fails the test. What a package lacks on purpose is listed with the reason.
//
// The document is what the server is tested against (internal/rest), and its fields are those of the types that the
// server writes and reads. So a change there that a package does not follow fails here.
//
// A package takes part by an entry in `held`, made in the init function of a file of its own (openapi_python_test.go).

// surface is what a package uses of the API, as its own program prints it: the calls that its client and its agents
// make, with every argument given at least once.
type surface struct {
	Calls []sentCall
	// Reads are the fields that the package's own code reads of answers, by schema.
	Reads map[string][]string
	// Enums are the values that its code distinguishes, by "Schema.field".
	Enums map[string][]string
}

type sentCall struct {
	Method, Path, Media string
	Query               map[string][]string
	Headers             []string
	Body                json.RawMessage
}

// heldPackage is a package that the test looks at.
type heldPackage struct {
	// surface prints a surface as JSON.
	surface func(t *testing.T) []byte
	// types are the schemas for which the package has generated types: these have every field and value.
	types func(all map[string]*schema) []string
	// lacks are features that the package does not have, with the reason. What is below a feature is lacking too.
	lacks map[string]string
}

var held = map[string]heldPackage{}

type apiContent map[string]struct{ Schema *schema }

type apiOperation struct {
	Parameters  []struct{ Name, In string }
	RequestBody struct{ Content apiContent }
	Responses   map[string]struct{ Content apiContent }
}

type apiDocument struct {
	Paths      map[string]map[string]*apiOperation
	Components struct{ Schemas map[string]*schema }
}

func openAPI(t *testing.T) *apiDocument {
	t.Helper()
	w := httptest.NewRecorder()
	cfg := rest.Config{Service: resttest.Full(), Metrics: http.NotFoundHandler(), JobSchema: definition.Schema()} // as `perdure serve` has it
	rest.New(cfg).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/openapi.json", nil))
	doc := new(apiDocument)
	if err := json.Unmarshal(w.Body.Bytes(), doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Paths) < 20 || len(doc.Components.Schemas) < 20 {
		t.Fatalf("%d paths and %d schemas", len(doc.Paths), len(doc.Components.Schemas))
	}
	return doc
}

// Every path, method, parameter, field and value that a package uses is one of the API, and the other way round.
func TestPackagesFitTheAPI(t *testing.T) {
	if testing.Short() {
		t.Skip("runs programs of the packages")
	}
	t.Parallel()
	if _, ok := held["python"]; !ok {
		t.Fatal("no package is held against the API")
	}
	doc := openAPI(t)
	for name, pkg := range held {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s surface
			if err := json.Unmarshal(pkg.surface(t), &s); err != nil {
				t.Fatal(err)
			}
			for _, problem := range doc.differences(&s, pkg.types(doc.Components.Schemas), pkg.lacks) {
				t.Error(problem)
			}
		})
	}
}

// differences are sentences about what only one side has.
func (d *apiDocument) differences(s *surface, types []string, lacks map[string]string) []string {
	all, wanted, used := newFeatures(d, nil), newFeatures(d, lacks), newFeatures(d, nil)
	for p, ops := range d.Paths {
		for method, op := range ops {
			all.operation(strings.ToUpper(method)+" "+p, op)
			wanted.operation(strings.ToUpper(method)+" "+p, op)
		}
	}
	for i := range s.Calls {
		used.call(&s.Calls[i])
	}
	for _, name := range types {
		used.read(name)
	}
	for name, fields := range s.Reads {
		for _, f := range fields {
			used.add(name + "." + f)
		}
	}
	for field, values := range s.Enums {
		for _, v := range values {
			used.add(field + "=" + v)
		}
	}
	problems := used.problems
	for f := range wanted.found {
		if !used.found[f] {
			problems = append(problems, "the API has, and the package lacks: "+f)
		}
	}
	for f := range used.found {
		if !all.found[f] {
			problems = append(problems, "the package uses, and the API lacks: "+f)
		}
	}
	for f := range lacks {
		if !all.found[f] {
			problems = append(problems, "listed as lacking, and the API has no such feature: "+f)
		}
		if used.found[f] {
			problems = append(problems, "listed as lacking, and the package uses it: "+f)
		}
	}
	slices.Sort(problems)
	return problems
}

// features collects what one side has.
type features struct {
	doc      *apiDocument
	without  map[string]string // what is not collected, nor what is below it
	found    map[string]bool
	problems []string
}

func newFeatures(doc *apiDocument, without map[string]string) *features {
	return &features{doc: doc, without: without, found: map[string]bool{}}
}

// add says whether the feature is collected for the first time.
func (f *features) add(feature string) bool {
	if _, ok := f.without[feature]; ok || f.found[feature] {
		return false
	}
	f.found[feature] = true
	return true
}

func (f *features) operation(name string, op *apiOperation) {
	if !f.add(name) {
		return
	}
	for _, p := range op.Parameters {
		switch p.In {
		case "query":
			f.add(name + " ?" + p.Name)
		case "header":
			f.add(name + " :" + p.Name)
		}
	}
	for media, content := range op.RequestBody.Content {
		f.add(name + " " + media)
		f.schema(name+" body", content.Schema)
	}
	for status, response := range op.Responses {
		for media, content := range response.Content {
			if code, err := strconv.Atoi(status); err != nil || code >= 300 && media != "application/problem+json" {
				continue
			}
			if content.Schema.Ref != "" || content.Schema.Type == "object" && len(content.Schema.Properties) == 0 {
				f.schema(name+" answer", content.Schema)
			}
		}
	}
}

// schema adds all fields and values that a schema has. where names it if it has no name.
func (f *features) schema(where string, s *schema) {
	switch {
	case s == nil:
	case s.Ref != "":
		name := path.Base(s.Ref)
		f.schema(name, f.doc.Components.Schemas[name])
	case len(s.AnyOf) > 0:
		for _, one := range s.AnyOf {
			f.schema(where, one)
		}
	case s.Type == "array":
		f.schema(where, s.Items)
	case len(s.Enum) > 0:
		for _, v := range s.Enum {
			f.add(where + "=" + v)
		}
	default:
		for field, p := range s.Properties {
			if f.add(where + "." + field) {
				f.schema(where+"."+field, p)
			}
		}
		if v := s.values(); v != nil {
			f.schema(where, v)
		}
	}
}

// read adds what a generated type has: all of its schema. What that refers to has a type of its own.
func (f *features) read(name string) {
	s := f.doc.Components.Schemas[name]
	if s == nil {
		f.problems = append(f.problems, "there is a type for a schema that the API lacks: "+name)
		return
	}
	for field, p := range s.Properties {
		f.add(name + "." + field)
		for p.Type == "array" {
			p = p.Items
		}
		for _, v := range p.Enum {
			f.add(name + "." + field + "=" + v)
		}
	}
}

// call adds what a call of the package uses.
func (f *features) call(c *sentCall) {
	template, op := f.doc.find(c.Method, c.Path)
	if op == nil {
		f.problems = append(f.problems, fmt.Sprintf("the package uses, and the API lacks: %s %s", c.Method, c.Path))
		return
	}
	name := c.Method + " " + template
	f.add(name)
	for q := range c.Query {
		f.add(name + " ?" + q)
	}
	for _, h := range c.Headers {
		f.add(name + " :" + h)
	}
	if len(c.Body) == 0 || c.Media == "" {
		return
	}
	f.add(name + " " + c.Media)
	content, ok := op.RequestBody.Content[c.Media]
	if !ok || c.Media != "application/json" {
		return
	}
	var body any
	if err := json.Unmarshal(c.Body, &body); err != nil {
		f.problems = append(f.problems, name+": the body is not JSON: "+err.Error())
		return
	}
	uses, problems := f.doc.fit(name+" body", content.Schema, body)
	for _, u := range uses {
		f.add(u)
	}
	f.problems = append(f.problems, problems...)
}

func (d *apiDocument) find(method, at string) (template string, op *apiOperation) {
	for template, ops := range d.Paths {
		want, got := strings.Split(template, "/"), strings.Split(at, "/")
		fits := len(want) == len(got)
		for i := range min(len(want), len(got)) {
			fits = fits && (want[i] == got[i] || strings.HasPrefix(want[i], "{") && got[i] != "")
		}
		if op := ops[strings.ToLower(method)]; fits && op != nil {
			return template, op
		}
	}
	return "", nil
}

// fit says which features of a schema a value uses, and why it does not fit.
func (d *apiDocument) fit(where string, s *schema, value any) (uses, problems []string) {
	switch {
	case s.Ref != "":
		name := path.Base(s.Ref)
		return d.fit(name, d.Components.Schemas[name], value)
	case len(s.AnyOf) > 0:
		for _, one := range s.AnyOf {
			if uses, problems = d.fit(where, one, value); len(problems) == 0 {
				break
			}
		}
		return uses, problems
	}
	if s.Type == "" {
		return nil, nil // anything
	}
	want := s.Type
	if got := typeOf(value); got != want && (want != "number" || got != "integer") {
		return nil, []string{fmt.Sprintf("%s: %s is sent, and the API has %s", where, got, want)}
	}
	switch v := value.(type) {
	case string:
		if len(s.Enum) > 0 {
			uses = append(uses, where+"="+v)
		}
	case []any:
		for _, item := range v {
			u, p := d.fit(where, s.Items, item)
			uses, problems = append(uses, u...), append(problems, p...)
		}
	case map[string]any:
		for _, r := range s.Required {
			if _, ok := v[r]; !ok {
				problems = append(problems, fmt.Sprintf("%s.%s is required, and not sent", where, r))
			}
		}
		for field, inner := range v {
			p := s.Properties[field]
			if p == nil {
				if len(s.Additional) == 0 || string(s.Additional) == "false" {
					problems = append(problems, fmt.Sprintf("the package uses, and the API lacks: %s.%s", where, field))
				}
				continue
			}
			u, more := d.fit(where+"."+field, p, inner)
			uses, problems = append(append(uses, where+"."+field), u...), append(problems, more...)
		}
	}
	return uses, problems
}

func typeOf(value any) string {
	switch v := value.(type) {
	case string:
		return "string"
	case bool:
		return "boolean"
	case float64:
		if v == float64(int64(v)) {
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	}
	return "null"
}

// What only one side has is noticed: each kind of feature, in both directions.
func TestDifferencesFromTheAPIAreNoticed(t *testing.T) {
	doc := &apiDocument{}
	if err := json.Unmarshal([]byte(`{"paths": {
		"/v1/things": {"get": {"parameters": [{"in": "query", "name": "color"}, {"in": "header", "name": "Who"}],
			"responses": {"200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}}}}}},
		"/v1/things/{id}": {"put": {"requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Body"}}}}}}
	}, "components": {"schemas": {
		"Thing": {"type": "object", "properties": {"id": {"type": "string"}, "parts": {"type": "array", "items": {"$ref": "#/components/schemas/Part"}}}},
		"Part": {"type": "object", "properties": {"kind": {"type": "string", "enum": ["a", "b"]}}},
		"Body": {"type": "object", "additionalProperties": false, "required": ["n"], "properties": {"n": {"type": "integer"}, "as": {"type": "string", "enum": ["x", "y"]}}}
	}}}`), doc); err != nil {
		t.Fatal(err)
	}
	get := sentCall{Method: "GET", Path: "/v1/things", Query: map[string][]string{"color": {"red"}}, Headers: []string{"Who"}}
	put := func(body string) sentCall {
		return sentCall{Method: "PUT", Path: "/v1/things/7", Media: "application/json", Body: json.RawMessage(body)}
	}
	good := surface{Calls: []sentCall{get, put(`{"n": 1, "as": "x"}`), put(`{"n": 1, "as": "y"}`)},
		Reads: map[string][]string{"Thing": {"id", "parts"}, "Part": {"kind"}}, Enums: map[string][]string{"Part.kind": {"a", "b"}}}
	for name, c := range map[string]struct {
		change func(s *surface)
		types  []string
		lacks  map[string]string
		want   string
	}{
		"nothing":                          {want: ""},
		"an operation is lacking":          {change: func(s *surface) { s.Calls = s.Calls[1:] }, want: "the API has, and the package lacks: GET /v1/things"},
		"an operation is unknown":          {change: func(s *surface) { s.Calls[0].Path = "/v1/thing" }, want: "the package uses, and the API lacks: GET /v1/thing"},
		"a method is unknown":              {change: func(s *surface) { s.Calls[0].Method = "POST" }, want: "the package uses, and the API lacks: POST /v1/things"},
		"a parameter is lacking":           {change: func(s *surface) { s.Calls[0].Query = nil }, want: "the API has, and the package lacks: GET /v1/things ?color"},
		"a parameter is unknown":           {change: func(s *surface) { s.Calls[0].Query = map[string][]string{"colour": nil} }, want: "the package uses, and the API lacks: GET /v1/things ?colour"},
		"a header is lacking":              {change: func(s *surface) { s.Calls[0].Headers = nil }, want: "the API has, and the package lacks: GET /v1/things :Who"},
		"a field is lacking":               {change: func(s *surface) { s.Calls = s.Calls[:1] }, want: "the API has, and the package lacks: PUT /v1/things/{id}"},
		"a field is unknown":               {change: func(s *surface) { s.Calls[1] = put(`{"n": 1, "as": "x", "m": 2}`) }, want: "the package uses, and the API lacks: Body.m"},
		"a field is missing":               {change: func(s *surface) { s.Calls[1] = put(`{"as": "x"}`) }, want: "Body.n is required, and not sent"},
		"a field has another type":         {change: func(s *surface) { s.Calls[1] = put(`{"n": "1", "as": "x"}`) }, want: "Body.n: string is sent, and the API has integer"},
		"a value is lacking":               {change: func(s *surface) { s.Calls = s.Calls[:2] }, want: "the API has, and the package lacks: Body.as=y"},
		"a value is unknown":               {change: func(s *surface) { s.Calls[1] = put(`{"n": 1, "as": "z"}`) }, want: "the package uses, and the API lacks: Body.as=z"},
		"a field is not read":              {change: func(s *surface) { s.Reads["Thing"] = []string{"parts"} }, want: "the API has, and the package lacks: Thing.id"},
		"a field that is read is unknown":  {change: func(s *surface) { s.Reads["Thing"] = []string{"id", "parts", "name"} }, want: "the package uses, and the API lacks: Thing.name"},
		"a value that is read is lacking":  {change: func(s *surface) { s.Enums = nil }, want: "the API has, and the package lacks: Part.kind=a"},
		"a generated type has all":         {change: func(s *surface) { s.Reads, s.Enums = nil, nil }, types: []string{"Thing", "Part"}, want: ""},
		"what lacks with a reason is fine": {change: func(s *surface) { s.Calls = s.Calls[1:] }, lacks: map[string]string{"GET /v1/things": "why"}, want: ""},
		"a reason is out of date":          {lacks: map[string]string{"GET /v1/things": "why"}, want: "listed as lacking, and the package uses it: GET /v1/things"},
		"a reason is for nothing":          {lacks: map[string]string{"GET /v1/nothing": "why"}, want: "listed as lacking, and the API has no such feature: GET /v1/nothing"},
	} {
		s := surface{Calls: slices.Clone(good.Calls), Reads: maps.Clone(good.Reads), Enums: good.Enums}
		if c.change != nil {
			c.change(&s)
		}
		if name == "what lacks with a reason is fine" {
			s.Reads, s.Enums = nil, nil // nothing else leads to them
		}
		got := strings.Join(doc.differences(&s, c.types, c.lacks), "\n")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
