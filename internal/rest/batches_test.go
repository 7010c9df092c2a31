package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/rest/resttest"
)

// batchOf returns a service that answers a batch with these results, and records the calls.
func batchOf(results []perdure.Submitted, err error) (svc *resttest.Service, calls *[]string) {
	svc, calls = resttest.Full(), new([]string)
	svc.OnSubmitAll = func(_ context.Context, base json.RawMessage, jobs []json.RawMessage) ([]perdure.Submitted, error) {
		*calls = append(*calls, string(base))
		for _, job := range jobs {
			*calls = append(*calls, string(job))
		}
		return results, err
	}
	return svc, calls
}

// The jobs of a batch reach the service unchanged, and its results are returned in order.
func TestBatchIsAnsweredInOrder(t *testing.T) {
	results := []perdure.Submitted{resttest.Submitted(0), resttest.Submitted(1), resttest.Submitted(2)}
	const answer = `{"results":[{"id":"` + someJob + `","key":"order-1042","created":true},{"id":"` + someJob + `","created":false},` +
		`{"error":{"code":"invalid","detail":"/steps/a: is a <cycle>","hint":"break it",` +
		`"errors":[{"pointer":"/steps/a","message":"is a <cycle>","hint":"break it"},{"pointer":"","message":"no place"}]}}]}`
	for body, want := range map[string][]string{
		`{"jobs":[{"type":"a"},{"n":1.10, "s":"<\u00e9>" },[]]}`:             {"", `{"type":"a"}`, `{"n":1.10, "s":"<\u00e9>" }`, "[]"},
		` { "jobs" : [ {} , null , 7 ] , "definition" : { "type" : "a" } } `: {`{ "type" : "a" }`, "{}", "null", "7"},
		`{"definition":{},"jobs":["]","}\"",{"a":1,"a":2}]}`:                 {"{}", `"]"`, `"}\""`, `{"a":1,"a":2}`},
	} {
		svc, calls := batchOf(results, nil)
		w := exchange(handler(svc), goodBatch, body)
		if got := strings.TrimSpace(w.Body.String()); w.Code != 200 || got != answer {
			t.Errorf("%s: %d %s", body, w.Code, got)
		}
		if !reflect.DeepEqual(*calls, want) {
			t.Errorf("%s was heard as %q", body, *calls)
		}
	}
}

// A batch at its bounds is accepted: a thousand jobs, and a definition of the largest size when it is written out for
// each.
func TestBatchAtItsBoundsIsAccepted(t *testing.T) {
	jobs := `"jobs":[{}` + strings.Repeat(",{}", perdure.MaxBatch-1) + `]}`
	base := `{` + strings.Repeat(" ", perdure.MaxDefinitionBytes/perdure.MaxBatch-2) + `}`
	whole := `{"jobs":[{` + strings.Repeat(" ", perdure.MaxDefinitionBytes-len(`{"jobs":[{}]}`)) + `}]}`
	for body, n := range map[string]int{`{` + jobs: perdure.MaxBatch, `{"definition":` + base + `,` + jobs: perdure.MaxBatch, whole: 1} {
		svc, calls := batchOf(make([]perdure.Submitted, n), nil)
		if w := exchange(handler(svc), goodBatch, body); w.Code != 200 || len(*calls) != 1+n {
			t.Errorf("%.40s: %d %.200s, %d", body, w.Code, w.Body, len(*calls))
		}
	}
}

// An error of one job is its own result, also if a call would be answered with 429 or 503, and if the error is internal.
func TestRefusedJobsOfABatchAreAnsweredAlone(t *testing.T) {
	refusals := map[string]error{
		"conflict":    fmt.Errorf("wrapped: %w", perdure.Refuse(perdure.CodeConflict, "no")),
		"backlogFull": perdure.Refuse(perdure.CodeBacklogFull, "full"),
		"tooLarge":    perdure.Refuse(perdure.CodeTooLarge, "big"),
		"unavailable": kernel.ErrUnknown,
		"internal":    errors.New("password=secret"),
	}
	for code, err := range refusals {
		var log bytes.Buffer
		svc, _ := batchOf([]perdure.Submitted{{Err: err}, resttest.Submitted(0), {Err: err}}, nil)
		w := exchange(New(Config{Service: svc, Log: slog.New(slog.NewTextHandler(&log, nil))}), goodBatch, `{"jobs":[{},{},{}]}`)
		if w.Code != 200 || w.Header().Get("Retry-After") != "" || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%s: %d %v %s", code, w.Code, w.Header(), w.Body)
		}
		var out batchAnswer
		decode(t, w, &out)
		if len(out.Results) != 3 || out.Results[0].Error == nil || string(out.Results[0].Error.Code) != code || out.Results[0].Error.Errors == nil ||
			out.Results[1].Error != nil || out.Results[1].ID != resttest.ID || out.Results[2].Error == nil {
			t.Errorf("%s: %s", code, w.Body)
		}
		if logged := strings.Count(log.String(), "jobs of a batch failed"); (logged == 1) != (code == "internal" || code == "unavailable") || logged > 1 {
			t.Errorf("%s: in the log: %s", code, &log)
		}
	}
}

// A batch that is refused as a whole says when to repeat it.
func TestRefusedBatchHasRetryAfter(t *testing.T) {
	for code, want := range map[perdure.Code]string{perdure.CodeBacklogFull: "429 5", perdure.CodeUnavailable: "503 1"} {
		svc, _ := batchOf(nil, perdure.Refuse(code, "not now"))
		w := exchange(handler(svc), goodBatch, `{"jobs":[{}]}`)
		if got := fmt.Sprint(w.Code, " ", w.Header().Get("Retry-After")); got != want || problemIn(t, w).Code != code {
			t.Errorf("%s: %s", code, got)
		}
	}
}
