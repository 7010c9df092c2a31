package rest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/rest/resttest"
	"github.com/perdure/perdure/protocol"
)

func TestClaimIsReadAndAnswered(t *testing.T) {
	for body, want := range map[string]protocol.Claim{
		`{"holder":"h"}`: {Agent: "pay ments", Holder: "h", Max: 1},
		`{"holder":"h","max":null,"wait":null,"heartbeat":null,"requestId":null}`:                             {Agent: "pay ments", Holder: "h", Max: 1},
		` {"requestId":"r", "heartbeat":"15s", "wait":"1m", "max":1000, "secrets":true, "holder":"h\u00e9"} `: {Agent: "pay ments", Holder: "hé", Max: 1000, Wait: time.Minute, Heartbeat: 15 * time.Second, RequestID: "r", Secrets: true},
		`{"holder":"h","wait":"0s"}`: {Agent: "pay ments", Holder: "h", Max: 1},
		`{"holder":"host/h1/i","host":"h1","free":{"cpu":2.5,"memory":"4GiB","slots":3}}`: {Agent: "pay ments", Holder: "host/h1/i", Max: 1, Host: "h1", Free: perdure.Amounts{"cpu": 2500, "memory": 4 << 30, "slots": 3}},
	} {
		svc := resttest.Full()
		svc.OnClaim = func(_ context.Context, req protocol.Claim) ([]perdure.Run, error) {
			if !reflect.DeepEqual(req, want) {
				t.Errorf("%s: %+v", body, req)
			}
			return []perdure.Run{resttest.Run()}, nil
		}
		w := exchange(handler(svc), "POST /v1/agents/pay%20ments/claim", body)
		wantAnswer := `{"runs":[{"job":"` + someJob + `","step":"charge","action":"charge","run":3,"direction":"undo","input":{"amount":1.0,"note":"n"},"secrets":["/note"],"output":null,"doKey":"k/1","key":"k/2",` +
			`"lockedUntil":"2026-01-02T15:04:05.123456Z","completeBy":"2026-01-02T15:04:05.123456Z","remainingMs":30000,"waitedMs":5,"priority":9,"requires":{"cpu":0.5,"memory":"3GiB","labels":{"gpu":"*"},"grid":"local"},"stopWithin":"30s","labels":{"team":"a \"b\"","zone":"ü"},"traceparent":"00-1-2-01"}]}`
		if got := strings.TrimSpace(w.Body.String()); w.Code != 200 || got != wantAnswer {
			t.Errorf("%d %s", w.Code, got)
		}
	}
}

// F047: an invalid report is refused alone, at its place in the answer.
func TestReportsAreReadOneByOne(t *testing.T) {
	svc := resttest.Full()
	var got []protocol.Report
	svc.OnReport = func(_ context.Context, holder string, reports []protocol.Report, next *protocol.Claim) ([]protocol.ReportResult, []perdure.Run, error) {
		got = reports
		results := make([]protocol.ReportResult, len(reports))
		for i, r := range reports {
			results[i] = protocol.ReportResult{Accepted: true, Message: fmt.Sprintf("run %d", r.Run)}
		}
		return results, nil, nil
	}
	const good = `"job":"` + someJob + `","step":"charge"`
	reports := []struct{ text, refused string }{
		{`{` + good + `,"run":1,"outcome":"done","output":{"n":1.50, "s":"<"}}`, ""},
		{`17`, "must be an object"},
		{`{` + good + `,"run":2,"outcome":"won"}`, "reports.2.outcome: must be done, failed, rejected or returned"},
		{`{` + good + `,"run":2,"outcome":"expired"}`, "outcome is done, failed, rejected or returned"},
		{`{` + good + `,"run":2}`, "reports.4.outcome: is required"},
		{`{"job":"order-1042","step":"charge","run":2,"outcome":"done"}`, "reports.5.job: is not a job id"},
		{`{` + good + `,"run":"2","outcome":"done"}`, "reports.6.run: must be an integer"},
		{`{` + good + `,"run":2,"outcome":"done","output":"` + strings.Repeat("x", perdure.MaxPayloadBytes) + `"}`, "is over"},
		{`{` + good + `,"run":2,"outcome":"done","output":` + strings.Repeat("[", 65) + strings.Repeat("]", 65) + `}`, "nested deeper"},
		{`{` + good + `,"run":2,"outcome":"failed","error":{"message":"` + "\xff" + `"}}`, "is not UTF-8"},
		{`{` + good + `,"run":2,"outcome":"failed","error":"boom"}`, "reports.10.error: must be an object"},
		{`{` + good + `,"run":2,"outcome":"failed","error":{"detail":1}}`, "reports.11.error.detail: is not a known field"},
		{`{` + good + `,"run":2,"outcome":"done","effect":"none"}`, "does not go with"},
		{`{` + good + `,"run":2,"outcome":"failed","effect":"some"}`, "effect is"},
		{`{` + good + `,"run":2,"outcome":"done","outcome":"failed"}`, "is a duplicate field"},
		{`{` + good + `,"run":3,"outcome":"failed","output":null,"error":{"code":"503","message":"a\u0000b` + strings.Repeat("é", perdure.MaxReasonBytes) + `","retryAfter":"30s"},"effect":"none"}`, ""},
		{`{` + good + `,"run":4,"outcome":"returned","error":null,"effect":null}`, ""},
		{`{` + good + `,"run":5,"outcome":"rejected","error":{"message":"","retryAfter":"0s","code":null}}`, ""},
	}
	texts := make([]string, len(reports))
	for i := range reports {
		texts[i] = reports[i].text
	}
	w := exchange(handler(svc), goodReport, `{"reports":[`+strings.Join(texts, " ,\n")+`],"holder":"h"}`)
	var answer reportsAnswer
	decode(t, w, &answer)
	if w.Code != 200 || len(answer.Results) != len(reports) {
		t.Fatalf("%d, %d results", w.Code, len(answer.Results))
	}
	for i, r := range answer.Results {
		want := reports[i].refused
		if r.Accepted != (want == "") || want != "" && (r.Reason != protocol.RefusedInvalid || !strings.Contains(r.Message, want)) {
			t.Errorf("report %d: %+v, want %q", i, r, want)
		}
	}
	if m := answer.Results[15].Message; m != "run 3" {
		t.Errorf("answers are out of order: %s", m)
	}
	if string(got[0].Output) != `{"n":1.50, "s":"<"}` {
		t.Errorf("output changed: %s", got[0].Output)
	}
	e := got[1].Error
	if !strings.HasPrefix(e.Message, "a\uFFFDbé") || len(e.Message) > perdure.MaxReasonBytes || e.Code != "503" || time.Duration(e.RetryAfter) != 30*time.Second {
		t.Errorf("%+v", e)
	}
	if want := (protocol.Report{Job: resttest.ID, Step: "charge", Run: 4, Outcome: perdure.OutcomeReturned}); !reflect.DeepEqual(got[2], want) {
		t.Errorf("%+v", got[2])
	}
}

// Reports may carry a claim. It is read as strictly as the call for claims. If it is invalid, no report reaches the
// service.
func TestReportsMayCarryAClaim(t *testing.T) {
	const good = `{"job":"` + someJob + `","step":"charge","run":1,"outcome":"done"}`
	next := func(max int, heartbeat time.Duration) *protocol.Claim {
		return &protocol.Claim{Agent: "pay ments", Holder: "h", Max: max, Heartbeat: heartbeat, RequestID: "r"}
	}
	for _, test := range []struct {
		body    string
		want    *protocol.Claim
		refused string
	}{
		{`{"holder":"h","reports":[` + good + `]}`, nil, ""},
		{`{"holder":"h","reports":[` + good + `],"claim":null}`, nil, ""},
		{`{"claim":{"agent":"pay ments","requestId":"r"},"holder":"h","reports":[` + good + `]}`, next(1, 0), ""},
		{`{"holder":"h","reports":[],"claim":{"agent":"pay ments","max":1000,"heartbeat":"15s","requestId":"r"}}`, next(1000, 15*time.Second), ""},
		{`{"holder":"h","reports":[17],"claim":{"agent":"pay ments","requestId":"r"}}`, next(1, 0), ""},
		{`{"holder":"h","reports":[` + good + `],"claim":{"agent":"a"}}`, nil, "/claim/requestId"},
		{`{"holder":"h","reports":[` + good + `],"claim":{"requestId":"r"}}`, nil, "/claim/agent"},
		{`{"holder":"h","reports":[` + good + `],"claim":{"agent":"a","requestId":"r","wait":"1s"}}`, nil, "/claim/wait"},
		{`{"holder":"h","reports":[` + good + `],"claim":{"agent":"a","requestId":"r","max":1001}}`, nil, "/claim/max"},
		{`{"holder":"h","reports":[` + good + `],"claim":["a"]}`, nil, "/claim"},
		{`{"holder":"h","claim":{"agent":"a","requestId":"r"}}`, nil, "/reports"},
		{`{"holder":"h","reports":[` + good + `],"claims":{"agent":"a","requestId":"r"}}`, nil, "/claims"},
	} {
		svc, called := resttest.Full(), false
		svc.OnReport = func(_ context.Context, _ string, reports []protocol.Report, next *protocol.Claim) (_ []protocol.ReportResult, runs []perdure.Run, _ error) {
			if called = true; !reflect.DeepEqual(next, test.want) {
				t.Errorf("%s: %+v", test.body, next)
			}
			if next != nil {
				runs = []perdure.Run{resttest.Run()}
			}
			return make([]protocol.ReportResult, len(reports)), runs, nil
		}
		w := exchange(handler(svc), goodReport, test.body)
		switch got := w.Body.String(); {
		case test.refused != "":
			if w.Code != 422 || called || !strings.Contains(got, `"`+test.refused+`"`) {
				t.Errorf("%s: %d %s", test.body, w.Code, got)
			}
		case w.Code != 200 || !called || strings.Contains(got, `"runs":[{"job"`) != (test.want != nil):
			t.Errorf("%s: %d %s", test.body, w.Code, got)
		}
	}
}

func TestHeartbeatsAreAnsweredInOrder(t *testing.T) {
	svc := resttest.Full()
	var got []protocol.Heartbeat
	svc.OnHeartbeat = func(_ context.Context, holder string, heartbeats []protocol.Heartbeat) ([]protocol.HeartbeatResult, error) {
		got = heartbeats
		return []protocol.HeartbeatResult{
			{Job: resttest.ID, Step: "a", Run: 1, LockedUntil: resttest.At, RemainingMs: 9},
			{Job: resttest.ID, Step: "b", Run: 2, Stop: true, Reason: "late"},
			{Job: resttest.ID, Step: "c", Run: 3, LockedUntil: resttest.At},
		}, nil
	}
	w := exchange(handler(svc), goodHeartbeat, `{"holder":"h","runs":[
		{"job":"`+someJob+`","step":"a","run":1,"progress":{"done":1}},
		{"job":"nonsense","step":"x","run":9},
		{"job":"`+someJob+`","step":"b","run":2},
		{"job":"`+someJob+`","step":"c","run":3,"progress":"`+strings.Repeat("p", perdure.MaxProgressBytes)+`"}]}`)
	want := `{"runs":[{"job":"` + someJob + `","step":"a","run":1,"lockedUntil":"2026-01-02T15:04:05.123456Z","remainingMs":9,"stop":false},` +
		`{"job":"nonsense","step":"x","run":9,"remainingMs":0,"stop":true,"reason":"invalid"},` +
		`{"job":"` + someJob + `","step":"b","run":2,"remainingMs":0,"stop":true,"reason":"late"},` +
		`{"job":"` + someJob + `","step":"c","run":3,"lockedUntil":"2026-01-02T15:04:05.123456Z","remainingMs":0,"stop":false,"reason":"progress is over 4096 bytes and was not kept"}]}`
	if body := strings.TrimSpace(w.Body.String()); body != want {
		t.Errorf("got\n%s\nwant\n%s", body, want)
	}
	if len(got) != 3 || string(got[0].Progress) != `{"done":1}` || got[2].Progress != nil {
		t.Errorf("%+v", got)
	}
}

// F020: runs that were granted while their client went away are returned at once. With a requestId they are kept for the
// client (F019).
func TestRunsOfAClientThatLeftAreReturned(t *testing.T) {
	for _, requestID := range []string{"", "r1"} {
		var returned []protocol.Report
		finished := make(chan struct{})
		arrived := make(chan struct{})
		svc := resttest.Full()
		svc.OnClaim = func(ctx context.Context, _ protocol.Claim) ([]perdure.Run, error) {
			close(arrived)
			<-ctx.Done()
			return []perdure.Run{resttest.Run()}, nil
		}
		svc.OnReport = func(ctx context.Context, holder string, reports []protocol.Report, next *protocol.Claim) ([]protocol.ReportResult, []perdure.Run, error) {
			returned = reports
			return nil, nil, ctx.Err()
		}
		h := handler(svc)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, r)
			close(finished)
		}))
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-arrived; cancel() }()
		req, _ := http.NewRequestWithContext(ctx, "POST", server.URL+"/v1/agents/a/claim", strings.NewReader(`{"holder":"h","wait":"60s","requestId":`+quote(requestID)+`}`))
		req.Header.Set("Content-Type", "application/json")
		if _, err := http.DefaultClient.Do(req); err == nil {
			t.Error("answered")
		}
		<-finished
		server.Close()
		if want := requestID == ""; (len(returned) == 1) != want || want && returned[0].Outcome != perdure.OutcomeReturned {
			t.Errorf("requestId %q: %+v", requestID, returned)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func quote(s string) string {
	if s == "" {
		return "null"
	}
	return `"` + s + `"`
}
