package rest

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/perdure/perdure/internal/rest/resttest"
)

type openAPI struct {
	OpenAPI string `json:"openapi"`
	Paths   map[string]map[string]struct {
		OperationID string `json:"operationId"`
		Parameters  []struct{ Name, In string }
		Responses   map[string]any
	}
}

func documented(t *testing.T) (doc openAPI) {
	t.Helper()
	decode(t, exchange(full(), "GET /openapi.json", ""), &doc)
	return doc
}

// Every call is documented, and every documented call exists.
func TestOpenAPIAgainstRouter(t *testing.T) {
	doc := documented(t)
	if doc.OpenAPI != "3.1.0" {
		t.Error(doc.OpenAPI)
	}
	var fromDoc, fromTable []string
	fill := strings.NewReplacer("{id}", "1", "{name}", "job:a", "{agent}", "a")
	for path, item := range doc.Paths {
		for method, op := range item {
			method = strings.ToUpper(method)
			fromDoc = append(fromDoc, method+" "+path)
			if op.OperationID == "" || len(op.Responses) < 3 {
				t.Errorf("%s %s is poorly documented", method, path)
			}
			if strings.Count(path, "{") != len(slices.DeleteFunc(slices.Clone(op.Parameters), func(p struct{ Name, In string }) bool { return p.In != "path" })) {
				t.Errorf("%s: parameters %v", path, op.Parameters)
			}
			w := exchange(full(), method+" "+fill.Replace(path), "")
			if w.Code == 405 || w.Code == 404 && path != "/metrics" || w.Code >= 500 {
				t.Errorf("%s %s: %d", method, path, w.Code)
			}
			if _, said := op.Responses[w.Result().Status[:3]]; !said && path != "/metrics" {
				t.Errorf("%s %s answers %d, which is not documented", method, path, w.Code)
			}
		}
	}
	a := &api{Config: Config{JobSchema: []byte(`{}`), Metrics: full()}}
	for _, rt := range a.routes() {
		fromTable = append(fromTable, rt.method+" "+rt.path)
	}
	slices.Sort(fromDoc)
	slices.Sort(fromTable)
	if !reflect.DeepEqual(fromDoc, fromTable) {
		t.Errorf("document\n%v\ntable\n%v", fromDoc, fromTable)
	}
}

// Examples fit their schemas, and so do the answers of the server.
func TestExamplesFitSchemas(t *testing.T) {
	schemas := newSchemas()
	a := &api{}
	fits := func(where string, of reflect.Type, text string) {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatalf("%s: %v in %s", where, err, text)
		}
		schema, res := schemas.Schema(of, true, ""), new(huma.ValidateResult)
		noNulls(schemas)
		huma.Validate(schemas, schema, huma.NewPathBuffer(nil, 0), huma.ModeReadFromServer, v, res)
		for _, err := range res.Errors {
			t.Errorf("%s: %v", where, err)
		}
	}
	for _, rt := range a.routes() {
		where := rt.method + " " + rt.path
		if rt.body != nil {
			fits(where, rt.body.of, rt.body.example)
			path := strings.NewReplacer("{id}", "12", "{name}", "ads-api", "{agent}", "a", "{hash}", resttest.ArtifactHash).Replace(rt.path)
			h := full()
			if rt.id == "login" {
				h = New(Config{Service: resttest.Full(), Access: resttest.Registry{}, Tokens: TokensNever})
			}
			w := exchange(h, rt.method+" "+path, rt.body.example)
			if w.Code/100 != 2 {
				t.Errorf("%s refuses its own example: %s", where, w.Body)
				continue
			}
			fits(where+" answered", rt.results[0].of, w.Body.String())
		}
		for _, res := range rt.results {
			if res.example != "" {
				fits(where+" result", res.of, res.example)
			}
		}
		if rt.method == "GET" && rt.results[0].example != "" {
			w := exchange(full(), "GET "+strings.NewReplacer("{id}", "12", "{name}", "ads-api").Replace(rt.path), "")
			fits(where+" answered", rt.results[0].of, w.Body.String())
		}
	}
	fits("problem", reflect.TypeFor[Problem](), exchange(full(), "GET /nowhere", "").Body.String())
}

// The labels of the metrics are bounded: routes and classes, never paths.
func TestMetricLabelsAreBounded(t *testing.T) {
	registry := prometheus.NewRegistry()
	h := New(Config{Service: resttest.Full(), Log: quiet, Registry: registry})
	New(Config{Registry: registry, Log: quiet}) // a second one in the same process shares them
	for _, call := range []string{"GET /v1/jobs/a", "GET /v1/jobs/b", "GET /v1/jobs/%00", "GET /x", "GET /y", "FOO /v1/jobs", "GET //"} {
		exchange(h, call, "")
	}
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "perdure_http_request_duration_seconds" {
		t.Fatal(err, families)
	}
	got := map[string]uint64{}
	for _, m := range families[0].GetMetric() {
		got[m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue()] = m.GetHistogram().GetSampleCount()
	}
	want := map[string]uint64{"GET /v1/jobs/{id} 2xx": 2, "GET /v1/jobs/{id} 4xx": 1, "none 4xx": 3, "/v1/jobs 4xx": 1}
	if !reflect.DeepEqual(got, want) {
		t.Error(got)
	}
}
