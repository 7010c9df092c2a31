package sdk

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/rest/resttest"
	"github.com/perdure/perdure/protocol"
)

// tsUnused is what the server has and the package for TypeScript does not use, and why.
var tsUnused = map[string]string{
	"GET /metrics":                                         "it is text for Prometheus",
	"GET /v1/jobs query count":                             "a listing has no place for it; call() sends it",
	"GET /v1/jobs query with":                              "it is for consoles; call() sends it",
	"GET /openapi.json":                                    "it is for generators of clients",
	"GET /v1/jobs/{id}/graph":                              "it is a drawing, for consoles",
	"GET /v1/shapes/{hash}/graph":                          "it is a drawing, for consoles",
	"GET /v1/stats":                                        "it is for consoles and the command line",
	"GET /v1/jobs/{id}/output":                             "views of jobs have it up to 64 KiB; call() gets a larger one",
	"GET /v1/limits/{name}/keys":                           "it is for operators and the command line",
	"GET /v1/limits/{name}/keys query key":                 "the same",
	"GET /v1/limits/{name}/keys query limit":               "the same",
	"GET /v1/alerts query code":                            "the filters are for consoles and the command line; call() sends them",
	"GET /v1/alerts query kind":                            "the filters are for consoles and the command line; call() sends them",
	"GET /v1/alerts query step":                            "the filters are for consoles and the command line; call() sends them",
	"GET /v1/alerts query type":                            "the filters are for consoles and the command line; call() sends them",
	"GET /v1/jobs/{id} query steps":                        "a part of a job, for consoles; call() gets it",
	"GET /v1/jobs/{id} header If-None-Match":               "for consoles, which keep the job that they show",
	"GET /v1/hosts":                                        "it is for hosts, consoles and the command line",
	"GET /v1/hosts/{name}":                                 "it is for hosts, consoles and the command line",
	"PUT /v1/hosts/{name}":                                 "it is for hosts, consoles and the command line",
	"POST /v1/hosts/{name}/drain":                          "it is for hosts, consoles and the command line",
	"POST /v1/hosts/{name}/ready":                          "it is for hosts, consoles and the command line",
	"DELETE /v1/hosts/{name}":                              "it is for hosts, consoles and the command line",
	"GET /v1/jobs/{id}/runs":                               "it is for consoles and the command line",
	"GET /v1/jobs/{id}/steps/{name}/logs":                  "it is text, for consoles and the command line",
	"PUT /v1/artifacts/{hash} header Content-Range":        "values are sent as a whole",
	"POST /v1/logs":                                        "the agent host stores no logs of its handlers",
	"POST /v1/bulk":                                        "it is for consoles and the command line",
	"GET /v1/bulk":                                         "it is for consoles and the command line",
	"GET /v1/bulk/{id}":                                    "it is for consoles and the command line",
	"GET /v1/bulk/{id}/refusals":                           "it is for consoles and the command line",
	"POST /v1/bulk/{id}/stop":                              "it is for consoles and the command line",
	"POST /v1/bulk/{id}/resume":                            "it is for consoles and the command line",
	"GET /v1/roles":                                        "it is for perdure lead and the command line",
	"POST /v1/roles/{name}/hold":                           "it is for perdure lead and the command line",
	"POST /v1/roles/{name}/release":                        "it is for perdure lead and the command line",
	"GET /v1/webhooks":                                     "it is for consoles and the command line",
	"POST /v1/webhooks":                                    "it is for consoles and the command line",
	"GET /v1/webhooks/{name}":                              "it is for consoles and the command line",
	"PUT /v1/webhooks/{name}":                              "it is for consoles and the command line",
	"DELETE /v1/webhooks/{name}":                           "it is for consoles and the command line",
	"POST /v1/webhooks/{name}/pause":                       "it is for consoles and the command line",
	"POST /v1/webhooks/{name}/resume":                      "it is for consoles and the command line",
	"POST /v1/webhooks/{name}/rotate":                      "it is for consoles and the command line",
	"POST /v1/webhooks/{name}/test":                        "it is for consoles and the command line",
	"POST /v1/webhooks/{name}/resend":                      "it is for consoles and the command line",
	"GET /v1/webhooks/{name}/deliveries":                   "it is for consoles and the command line",
	"GET /v1/events":                                       "it is a stream, for programs that forward it",
	"GET /v1/me":                                           "it is for consoles and the command line",
	"GET /v1/tokens":                                       "it is for consoles and the command line",
	"POST /v1/tokens":                                      "it is for consoles and the command line",
	"POST /v1/tokens/{id}/rotate":                          "it is for consoles and the command line",
	"DELETE /v1/tokens/{id}":                               "it is for consoles and the command line",
	"GET /v1/sessions":                                     "it is for consoles and the command line",
	"POST /v1/sessions":                                    "it is for consoles and the command line",
	"DELETE /v1/sessions/current":                          "it is for consoles and the command line",
	"DELETE /v1/sessions/{id}":                             "it is for consoles and the command line",
	"GET /v1/audit":                                        "it is for consoles and the command line",
	"POST /v1/validate":                                    "it is for consoles and the command line",
	"POST /v1/jobs/{id}/undo query dryRun":                 "it is for consoles and the command line; call() sends it",
	"POST /v1/jobs/{id}/redo query dryRun":                 "it is for consoles and the command line; call() sends it",
	"POST /v1/jobs/{id}/resume query dryRun":               "it is for consoles and the command line; call() sends it",
	"POST /v1/jobs/{id}/giveUp query dryRun":               "it is for consoles and the command line; call() sends it",
	"POST /v1/jobs/{id}/steps/{name}/resume query dryRun":  "it is for consoles and the command line; call() sends it",
	"POST /v1/jobs/{id}/steps/{name}/settle query dryRun":  "it is for consoles and the command line; call() sends it",
	"POST /v1/jobs/{id}/steps/{name}/skip query dryRun":    "it is for consoles and the command line; call() sends it",
	"POST /v1/jobs/{id}/steps/{name}/stop query dryRun":    "it is for consoles and the command line; call() sends it",
	"POST /v1/jobs/{id}/steps/{name}/edit query dryRun":    "it is for consoles and the command line; call() sends it",
	"POST /v1/jobs/{id}/steps/{name}/approve query dryRun": "it is for consoles and the command line; call() sends it",
	"POST /v1/jobs/{id}/steps/{name}/reject query dryRun":  "it is for consoles and the command line; call() sends it",
	"POST /v1/reports body ReportsBody.claim":              "an agent's reports and claims are calls of their own",
	"POST /v1/reports body NextBody.agent":                 "as ReportsBody.claim",
	"POST /v1/reports body NextBody.heartbeat":             "as ReportsBody.claim",
	"POST /v1/reports body NextBody.max":                   "as ReportsBody.claim",
	"POST /v1/reports body NextBody.requestId":             "as ReportsBody.claim",
	"POST /v1/reports body NextBody.secrets":               "as ReportsBody.claim",
	"POST /v1/reports body NextBody.host":                  "as ReportsBody.claim",
	"POST /v1/reports body NextBody.free":                  "as ReportsBody.claim",
	"POST /v1/agents/{agent}/claim body ClaimBody.host":    "the agent host of the package is no host of the grid",
	"POST /v1/agents/{agent}/claim body ClaimBody.free":    "as ClaimBody.host",
	"POST /v1/heartbeats body BeatsBody.complete":          "agents of the package list the runs that they can name, and end the others by their deadline",
	"POST /v1/heartbeats body BeatsBody.openClaims":        "as BeatsBody.complete",
	"POST /v1/heartbeats body BeatsBody.asOf":              "as BeatsBody.complete",
}

// tsOperation is what the OpenAPI document says of a call.
type tsOperation struct {
	Parameters  []struct{ In, Name string }
	RequestBody struct {
		Content map[string]struct{ Schema *tsSchema }
	}
}

// The package for TypeScript uses every call, parameter, media type and field of a request that the server has, and no others:
// the server refuses those. What it receives is typed as the OpenAPI document says (TestTypeScriptTypes).
func TestTypeScriptCalls(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a process for some seconds")
	}
	t.Parallel()
	run := node(t)
	doc := tsAPI(t)
	rec := &recorder{paths: doc.Paths, schemas: doc.Components.Schemas, used: map[string]bool{}}
	api := wholeAPI(fewPages())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec.record(t, r)
		api.ServeHTTP(w, r)
	}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	if out, err := exec.CommandContext(ctx, run, "typescript/build/tests/calls.js", server.URL).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	all := rec.all()
	for _, name := range all {
		switch {
		case !rec.used[name] && !tsOmits(name):
			t.Errorf("the server has %q, and the package for TypeScript does not use it. Add it to the client and to tests/calls.ts, or to tsUnused with a reason", name)
		case rec.used[name] && tsUnused[name] != "":
			t.Errorf("tsUnused has %q, which the package uses", name)
		}
	}
	for name := range tsUnused {
		if !slices.Contains(all, name) {
			t.Errorf("tsUnused has %q, which the server does not have", name)
		}
	}
	for name := range rec.used {
		if !slices.Contains(all, name) {
			t.Errorf("the package sends %q, which the OpenAPI document does not have", name)
		}
	}
}

// tsOmits reports whether a call, or the call that a part belongs to, is in tsUnused.
func tsOmits(name string) bool {
	fields := strings.Fields(name)
	return tsUnused[name] != "" || tsUnused[fields[0]+" "+fields[1]] != ""
}

// fewPages is a service whose lists have two pages, whose jobs come to rest, and whose agents get one run for each handler of
// tests/calls.ts.
func fewPages() *resttest.Service {
	svc := resttest.Full()
	svc.OnListJobs = twoPages(svc.OnListJobs, func(q perdure.JobQuery) string { return q.Cursor })
	svc.OnHistory = twoPages(svc.OnHistory, func(q perdure.HistoryQuery) string { return q.Cursor })
	svc.OnListAlerts = twoPages(svc.OnListAlerts, func(q perdure.AlertQuery) string { return q.Cursor })
	svc.OnJob = func(_ context.Context, _ string, wait time.Duration) (*perdure.JobView, error) {
		job := resttest.Job()
		if wait > 0 {
			job.Phase = perdure.Parked
		}
		return job, nil
	}
	var once sync.Once
	svc.OnClaim = func(ctx context.Context, claim protocol.Claim) (runs []perdure.Run, err error) {
		once.Do(func() {
			for i, action := range []string{"done", "later", "nothing", "beats"} {
				run := resttest.Run()
				run.Action, run.Number, run.Direction = action, int64(i+1), perdure.Do
				run.RemainingMs, run.CompleteBy = 30_000, run.LockedUntil
				runs = append(runs, run)
			}
		})
		if runs == nil {
			select {
			case <-ctx.Done():
			case <-time.After(claim.Wait):
			}
		}
		return runs, nil
	}
	return svc
}

func twoPages[Q, T any](list func(context.Context, Q) (*perdure.Page[T], error), cursor func(Q) string) func(context.Context, Q) (*perdure.Page[T], error) {
	return func(ctx context.Context, q Q) (*perdure.Page[T], error) {
		page, err := list(ctx, q)
		if cursor(q) != "" {
			page.NextCursor = ""
		}
		return page, err
	}
}

// recorder notes what of the OpenAPI document is used.
type recorder struct {
	paths   map[string]map[string]*tsOperation
	schemas map[string]*tsSchema

	mu   sync.Mutex
	used map[string]bool
}

// all are the names of whatever a request can have.
func (rec *recorder) all() (names []string) {
	for template, methods := range rec.paths {
		for method, op := range methods {
			name := strings.ToUpper(method) + " " + template
			names = append(names, name)
			for _, p := range op.Parameters {
				if p.In != "path" {
					names = append(names, name+" "+p.In+" "+p.Name)
				}
			}
			for mediaType, content := range op.RequestBody.Content {
				names = append(names, name+" as "+mediaType)
				if content.Schema.Ref != "" {
					names = append(names, rec.fieldsOf(name, path.Base(content.Schema.Ref))...)
				}
			}
		}
	}
	slices.Sort(names)
	return names
}

// fieldsOf are the fields of a schema, and of those that it refers to.
func (rec *recorder) fieldsOf(call, schema string) (names []string) {
	for field, s := range rec.schemas[schema].Properties {
		names = append(names, call+" body "+schema+"."+field)
		for _, inner := range referred(s) {
			names = append(names, rec.fieldsOf(call, inner)...)
		}
	}
	return names
}

// referred are the schemas that a field's values can have.
func referred(s *tsSchema) (names []string) {
	if s == nil {
		return nil
	}
	if s.Ref != "" {
		names = append(names, path.Base(s.Ref))
	}
	for _, one := range append(s.AnyOf, s.Items) {
		names = append(names, referred(one)...)
	}
	return names
}

func (rec *recorder) record(t *testing.T, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	rec.mu.Lock()
	defer rec.mu.Unlock()
	template, op := rec.operation(r)
	name := r.Method + " " + template
	rec.used[name] = true
	if op == nil {
		return
	}
	for query := range r.URL.Query() {
		rec.used[name+" query "+query] = true
	}
	for _, p := range op.Parameters {
		if p.In == "header" && r.Header.Get(p.Name) != "" {
			rec.used[name+" header "+p.Name] = true
		}
	}
	if len(body) > 0 {
		mediaType := r.Header.Get("Content-Type")
		rec.used[name+" as "+mediaType] = true
		if s := op.RequestBody.Content[mediaType].Schema; s != nil && s.Ref != "" {
			rec.fields(name, path.Base(s.Ref), body)
		}
	}
}

// operation finds the call that a request is. A template is preferred whose parts are written out.
func (rec *recorder) operation(r *http.Request) (template string, op *tsOperation) {
	parts := strings.Split(r.URL.EscapedPath(), "/")
	for _, candidate := range slices.Sorted(maps.Keys(rec.paths)) { // "{" comes after letters
		want := strings.Split(candidate, "/")
		fits := len(want) == len(parts)
		for i := 0; fits && i < len(want); i++ {
			fits = want[i] == parts[i] || strings.HasPrefix(want[i], "{")
		}
		if op := rec.paths[candidate][strings.ToLower(r.Method)]; fits && op != nil {
			return candidate, op
		}
	}
	return r.URL.EscapedPath(), nil
}

// fields notes the fields of a body that have a value.
func (rec *recorder) fields(call, schema string, body json.RawMessage) {
	var object map[string]json.RawMessage
	if json.Unmarshal(body, &object) != nil {
		return // no object: a definition's value
	}
	for field, value := range object {
		rec.used[call+" body "+schema+"."+field] = true
		s := rec.schemas[schema].Properties[field]
		for _, inner := range referred(s) {
			var items []json.RawMessage
			if json.Unmarshal(value, &items) != nil {
				items = []json.RawMessage{value}
			}
			for _, item := range items {
				if !isDefinition(item) {
					rec.fields(call, inner, item)
				}
			}
		}
	}
}

// isDefinition: a batch has definitions, or values of jobs.
func isDefinition(value json.RawMessage) bool {
	var object map[string]json.RawMessage
	return json.Unmarshal(value, &object) == nil && object["steps"] != nil
}
