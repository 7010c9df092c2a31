package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/rest/resttest"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
)

func TestSubmitDependsOnContentType(t *testing.T) {
	for _, test := range []struct {
		contentType, mediaType string
		created                bool
		status                 int
	}{
		{"application/json", mediaJSON, true, 201},
		{"Application/JSON; charset=UTF-8", mediaJSON, true, 201},
		{"application/yaml", mediaYAML, false, 200},
		{"text/yaml", mediaYAML, true, 201},
		{"application/x-yaml", mediaYAML, true, 201},
	} {
		svc := resttest.Full()
		svc.OnSubmit = func(_ context.Context, body []byte, mediaType, _ string) (*perdure.JobView, bool, error) {
			if string(body) != " type: a\r\n" || mediaType != test.mediaType {
				t.Errorf("%q as %s", body, mediaType)
			}
			return resttest.Job(), test.created, nil
		}
		w := exchange(handler(svc), "POST /v1/jobs", " type: a\r\n", "Content-Type: "+test.contentType)
		wantLocation := ""
		if test.created {
			wantLocation = "/v1/jobs/" + resttest.ID.String()
		}
		if w.Code != test.status || w.Header().Get("Location") != wantLocation {
			t.Errorf("%d, Location %q", w.Code, w.Header().Get("Location"))
		}
	}
}

// Outputs keep their digits and characters. Times are UTC. Steps keep their order.
func TestJobKeepsDigitsCharactersAndOrder(t *testing.T) {
	w := exchange(full(), "GET /v1/jobs/order-1042", "")
	body := w.Body.String()
	for _, want := range []string{
		`"input":{"amount":12345678901234567890.10,"text":"<b>&"}`, `"output":{"html":"<b>&</b>","n":1.50}`,
		`"submittedAt":"2026-01-02T15:04:05.123456Z"`, `"lockedUntil":"2026-01-02T15:04:05.123456Z"`,
		`"until":"2026-01-02T15:04:05.123456Z"`, `"raisedAt":"2026-01-02T15:04:05.123456Z"`, `"retryAfter":"30s"`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(body, "+02:00") || strings.Index(body, `"reserve":{`) > strings.Index(body, `"charge":{`) {
		t.Errorf("zone or order: %s", body)
	}
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" {
		t.Error(w.Code, w.Header())
	}
}

func TestEmptyListsAreLists(t *testing.T) {
	svc := resttest.Full()
	svc.OnListJobs = func(context.Context, perdure.JobQuery) (*perdure.Page[perdure.JobView], error) {
		return new(perdure.Page[perdure.JobView]), nil
	}
	svc.OnListAlerts = func(context.Context, perdure.AlertQuery) (*perdure.Page[perdure.AlertView], error) {
		return new(perdure.Page[perdure.AlertView]), nil
	}
	svc.OnRuns = func(context.Context, operate.RunsQuery) (*perdure.Page[operate.RunRecord], error) {
		return &perdure.Page[operate.RunRecord]{}, nil
	}
	svc.OnHistory = func(context.Context, perdure.HistoryQuery) (*perdure.Page[perdure.EntryView], error) {
		return new(perdure.Page[perdure.EntryView]), nil
	}
	svc.OnListLimits = func(context.Context) ([]perdure.LimitView, error) { return nil, nil }
	svc.OnGetLimit = func(context.Context, string) (*perdure.LimitView, error) {
		return &perdure.LimitView{Name: "job:a", LimitSettings: perdure.LimitSettings{Max: new(0)}}, nil
	}
	svc.OnListNodes = func(context.Context) ([]perdure.NodeView, error) { return nil, nil }
	svc.OnClaim = func(context.Context, protocol.Claim) ([]perdure.Run, error) { return nil, nil }
	for call, want := range map[string]string{
		"GET /v1/jobs": `{"items":[]}`, "GET /v1/alerts": `{"items":[]}`, "GET /v1/jobs/j/history": `{"items":[]}`, "GET /v1/jobs/j/runs": `{"items":[]}`,
		"GET /v1/limits": `{"items":[]}`, "GET /v1/nodes": `{"items":[]}`,
		"GET /v1/limits/job:a": `{"name":"job:a","max":0,"used":0,"holders":[]}`,
	} {
		if got := strings.TrimSpace(exchange(handler(svc), call, "").Body.String()); got != want {
			t.Errorf("%s: %s", call, got)
		}
	}
	for call, want := range map[string]string{
		goodClaim + ` {"holder":"h"}`: `{"runs":[]}`, goodReport + ` {"holder":"h","reports":[]}`: `{"results":[]}`, goodHeartbeat + ` {"holder":"h","runs":[]}`: `{"runs":[]}`,
	} {
		at := strings.Index(call, " {")
		if got := strings.TrimSpace(exchange(handler(svc), call[:at], call[at+1:]).Body.String()); got != want {
			t.Errorf("%s: %s", call, got)
		}
	}
}

func TestListQueryIsRead(t *testing.T) {
	svc := resttest.Full()
	var got perdure.JobQuery
	svc.OnListJobs = func(_ context.Context, q perdure.JobQuery) (*perdure.Page[perdure.JobView], error) {
		got = q
		return &perdure.Page[perdure.JobView]{NextCursor: "n"}, nil
	}
	phase, current, desired := perdure.Parked, perdure.Unsure, perdure.Undone
	for query, want := range map[string]perdure.JobQuery{
		"": {},
		"?q=%D9%85%DB%8C%E2%80%8C%D8%AE%D9%88%D8%A7%D9%87%D9%85&label=who=%F0%9F%91%A9%E2%80%8D%F0%9F%91%A7%0A": {
			Search: "می\u200cخواهم", Labels: map[string]string{"who": "👩\u200d👧\n"}},
		"?phase=parked&phase=running&phase=parked&agent=bank&step=charge&reason=noAgent&error=declined&alert=waiting&q=order-&order=oldest&count=true&with=summary&since=2026-01-02T15:04:05Z&until=2026-01-03T15:04:05%2B01:00": {
			Phases: []perdure.Phase{phase, perdure.Running}, Agent: "bank", Step: "charge", Reason: perdure.WhyNoAgent, Error: "declined", Alert: perdure.AlertWaiting, Search: "order-",
			OldestFirst: true, WithCount: true, WithSummary: true, Since: time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC), Until: time.Date(2026, 1, 3, 14, 4, 5, 0, time.UTC)},
		"?phase=parked&current=unsure&desired=undone&type=a%20b&key=k%C3%A9y&label=a=b=c&label=d=&limit=500&cursor=xyz": {
			Phases: []perdure.Phase{phase}, Current: &current, Desired: &desired, Type: "a b", Key: "kéy",
			Labels: map[string]string{"a": "b=c", "d": ""}, Limit: 500, Cursor: "xyz"},
	} {
		w := exchange(handler(svc), "GET /v1/jobs"+query, "")
		got.Until = got.Until.UTC()
		if !reflect.DeepEqual(got, want) || strings.TrimSpace(w.Body.String()) != `{"items":[],"nextCursor":"n"}` {
			t.Errorf("%s: %+v\n%s", query, got, w.Body)
		}
	}
}

// A job is named in a URL by its id, its key or @latest, whatever characters a key has.
func TestJobIsNamedByIDKeyOrLatest(t *testing.T) {
	for escaped, want := range map[string]string{
		someJob: someJob, "job_0190": "job_0190", "@latest": "@latest", "order-1042": "order-1042", "a%20b": "a b", "%C3%A9": "é",
		"a%3Fb%23c%25d": "a?b#c%d", "%2E": ".", "%2e%2e": "..", "a;b": "a;b", "a:b@c": "a:b@c", "undo": "undo", "a+b": "a+b",
	} {
		svc, got := resttest.Full(), ""
		svc.OnJob = func(_ context.Context, ref string, _ time.Duration) (*perdure.JobView, error) {
			got = ref
			return resttest.Job(), nil
		}
		if w := exchange(handler(svc), "GET /v1/jobs/"+escaped, ""); w.Code != 200 || got != want {
			t.Errorf("%s: %d %q", escaped, w.Code, got)
		}
	}
}

func TestWaitIsRead(t *testing.T) {
	for query, want := range map[string]time.Duration{"": 0, "?wait=0s": 0, "?wait=0": 0, "?wait=30s": 30 * time.Second, "?wait=5m": 5 * time.Minute} {
		svc := resttest.Full()
		svc.OnJob = func(_ context.Context, _ string, wait time.Duration) (*perdure.JobView, error) {
			if wait != want {
				t.Errorf("%s: %s", query, wait)
			}
			return resttest.Job(), nil
		}
		if w := exchange(handler(svc), "GET /v1/jobs/j"+query, ""); w.Code != 200 {
			t.Errorf("%s: %d", query, w.Code)
		}
	}
}

func TestActsAreReadAndPassedOn(t *testing.T) {
	done := perdure.Done
	for _, test := range []struct {
		call, body string
		want       perdure.Act
	}{
		{"undo", "", perdure.Act{Verb: "undo"}},
		{"redo", "{}", perdure.Act{Verb: "redo"}},
		{"resume", `{"reason":null}`, perdure.Act{Verb: "resume"}},
		{"giveUp", `{"reason":"lost\nfor good"}`, perdure.Act{Verb: "giveUp", Reason: "lost\nfor good"}},
		{"steps/charge/resume", `{"input":{"a":1.0},"newKey":true}`, perdure.Act{Verb: "resume", Step: "charge", Input: []byte(`{"a":1.0}`), NewKey: true}},
		{"steps/charge/settle", `{"as":"done","output":null,"reason":"r"}`, perdure.Act{Verb: "settle", Step: "charge", As: &done, Output: []byte("null"), Reason: "r"}},
		{"steps/charge/skip", " ", perdure.Act{Verb: "skip", Step: "charge"}},
		{"steps/charge/stop", `{"reason":"r"}`, perdure.Act{Verb: "stop", Step: "charge", Reason: "r"}},
		{"steps/charge/edit", `{"input": [1, 2]}`, perdure.Act{Verb: "edit", Step: "charge", Input: []byte("[1, 2]")}},
	} {
		for _, author := range []string{"", "Zoë"} {
			svc := resttest.Full()
			var got perdure.Act
			svc.OnAct = func(_ context.Context, ref string, act perdure.Act) (*perdure.JobView, error) {
				got = act
				return resttest.Job(), nil
			}
			w := exchange(handler(svc), "POST /v1/jobs/j/"+test.call, test.body, "Perdure-Author: "+author)
			want := test.want
			if want.Author = author; author == "" {
				want.Author = "rest"
			}
			if w.Code != 200 || !reflect.DeepEqual(got, want) {
				t.Errorf("%s %s: %d %+v", test.call, test.body, w.Code, got)
			}
		}
	}
}

func TestOperationsAreAnswered(t *testing.T) {
	for call, want := range map[string]string{
		`PUT /v1/limits/agent%3Apayments {"max":0}`:   `200 {"name":"agent:payments","max":0,"used":1,"holders":[{"job":"` + someJob + `","step":"charge","run":3}]}`,
		`GET /v1/limits/job:order`:                    `200 {"name":"job:order","max":3,"used":1,"holders":[{"job":"` + someJob + `","step":"charge","run":3}]}`,
		`DELETE /v1/limits/job:order`:                 `204 `,
		`POST /v1/alerts/7/close {"reason":"mended"}`: `"id":7,`,
		`POST /v1/alerts/8/close`:                     `"closedBy":"rest"`,
		`GET /v1/alerts?closed&job=@latest&limit=1`:   `"nextCursor":"next"`,
		`GET /healthz?probe=1`:                        `200 {"status":"ok"}`,
		`GET /readyz`:                                 `200 {"status":"ok"}`,
		`GET /v1/schema/job.json`:                     `200 {}`,
	} {
		line, body, _ := strings.Cut(call, " {")
		if body != "" {
			body = "{" + body
		}
		w := exchange(full(), line, body)
		got := strings.TrimSuffix(w.Result().Status[:4]+w.Body.String(), "\n")
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s", call, got)
		}
	}
	if w := exchange(full(), "POST /v1/alerts/7/close", `{"reason":"mended"}`); !strings.Contains(w.Body.String(), `"closedBy":"rest: mended"`) {
		t.Error(w.Body)
	}
}

func TestReadyGivesTheReason(t *testing.T) {
	ended, stop := context.WithCancel(t.Context())
	stop()
	for name, test := range map[string]struct {
		cfg  Config
		want string
	}{
		"no":       {Config{Ready: func(context.Context) error { return io.EOF }}, "unavailable"},
		"schema":   {Config{Ready: func(context.Context) error { return perdure.Refuse(perdure.CodeSchema, "older") }}, "schema"},
		"hangs":    {Config{Ready: func(context.Context) error { time.Sleep(readyTimeout + 1); return nil }}, "unavailable"},
		"shutdown": {Config{Shutdown: ended}, "unavailable"},
	} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			test.cfg.Log = quiet
			w := exchange(New(test.cfg), "GET /readyz", "")
			if p := problemIn(t, w); w.Code != 503 || string(p.Code) != test.want || time.Since(begin) > readyTimeout {
				t.Errorf("%s: %d %s", name, w.Code, p.Code)
			}
			time.Sleep(time.Nanosecond) // for the service that ignores its context
		})
	}
}

// A filter of a bulk act has the texts that a definition may have. A body without fields is as none for stop and resume. A
// page of the same origin may follow lists.
func TestCallsThatAreAlmostRefused(t *testing.T) {
	svc := resttest.Full()
	var got operate.BulkRequest
	svc.OnStartBulk = func(_ context.Context, r operate.BulkRequest) (*operate.BulkView, error) {
		got = r
		return resttest.Bulk(), nil
	}
	w := exchange(handler(svc), goodBulk, inFilter(`"q":"می\u200cخواهم","label":{"who":"👩\u200d👧\n","none":""}`))
	if want := map[string]string{"who": "👩\u200d👧\n", "none": ""}; w.Code != 202 || got.Filter.Q != "می\u200cخواهم" || !reflect.DeepEqual(got.Filter.Label, want) {
		t.Errorf("%d %s %+v", w.Code, w.Body, got.Filter)
	}
	for _, call := range []string{"POST /v1/bulk/bulk_1/stop", "POST /v1/bulk/bulk_1/resume"} {
		for _, body := range []string{"", " ", "{}"} {
			if w := exchange(full(), call, body); w.Code != 200 {
				t.Errorf("%s %q: %d %s", call, body, w.Code, w.Body)
			}
		}
	}
	for _, site := range []string{"same-origin", "none"} {
		if w := exchange(full(), "GET /v1/jobs", "", "Accept: text/event-stream", "Sec-Fetch-Site: "+site); w.Code != 200 {
			t.Errorf("%s: %d %s", site, w.Code, w.Body)
		}
	}
	if w := exchange(full(), "GET /v1/jobs", "", "Sec-Fetch-Site: cross-site"); w.Code != 200 { // the browser hides the answer
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// F012: a body above the bound is answered 413, however it is sent and however long it is.
func TestTooLargeBodyIs413(t *testing.T) {
	server := httptest.NewServer(handler(&resttest.Service{}))
	defer server.Close()
	big := bytes.Repeat([]byte("a"), perdure.MaxDefinitionBytes+1)
	for name, body := range map[string]io.Reader{"length": bytes.NewReader(big), "chunks": io.MultiReader(bytes.NewReader(big))} {
		resp, err := http.Post(server.URL+"/v1/jobs", "application/json", body)
		if err != nil {
			t.Fatal(name, err)
		}
		var p Problem
		if err := json.NewDecoder(resp.Body).Decode(&p); err != nil || resp.StatusCode != 413 || p.Code != perdure.CodeTooLarge {
			t.Error(name, resp.Status, err)
		}
		resp.Body.Close()
	}
	http.DefaultClient.CloseIdleConnections()
}
