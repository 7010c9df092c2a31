package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/rest/resttest"
)

// The header is the key of a definition that has none. The stable key of a step is no valid key of a job, and is
// converted into one.
func TestIdempotencyKeyIsTheDefaultKey(t *testing.T) {
	id := strings.Repeat("0a", 16)
	longest := strings.Repeat("s", perdure.MaxNameLength)
	for header, want := range map[string]string{
		"":                                      "",
		"order-1042":                            "order-1042",
		"ä b":                                   "ä b",
		"step:" + id + ":charge:1":              "step:" + id + ":charge:1",
		"job_" + id + "/charge/1":               "step:" + id + ":charge:1",
		"job_" + id + "/charge.a-b_c/12":        "step:" + id + ":charge.a-b_c:12",
		"job_" + id + "/" + longest + "/999999": "step:" + id + ":" + longest + ":999999",
		"job_" + id + "/charge/01":              "refused",
		"job_" + id + "/charge/0":               "refused",
		"job_" + id + "/charge/1/2":             "refused",
		"job_" + id + "/a:b/1":                  "refused",
		"job_" + id + "//1":                     "refused",
		"job_" + id:                             "refused",
		"job_" + strings.ToUpper(id) + "/c/1":   "refused",
	} {
		got := "refused"
		h := New(Config{Service: &resttest.Service{OnSubmit: func(_ context.Context, _ []byte, _, key string) (*perdure.JobView, bool, error) {
			got = key
			return new(perdure.JobView), true, nil
		}}})
		r := httptest.NewRequest(http.MethodPost, "http://localhost/v1/jobs", strings.NewReader("{}"))
		r.Header.Set("Content-Type", "application/json")
		if header != "" {
			r.Header.Set("Idempotency-Key", header)
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
		if got != want {
			t.Errorf("%q: key %q, want %q", header, got, want)
		}
		if want != "refused" && want != "" && perdure.CheckKey(got) != nil {
			t.Errorf("%q: %s", got, perdure.CheckKey(got))
		}
	}
}

func TestTwoIdempotencyKeysAreRefused(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "http://localhost/v1/jobs", strings.NewReader("{}"))
	r.Header.Set("Content-Type", "application/json")
	r.Header["Idempotency-Key"] = []string{"a", "b"}
	w := httptest.NewRecorder()
	New(Config{Service: &resttest.Service{}}).ServeHTTP(w, r)
	if p := problemIn(t, w); w.Code != http.StatusBadRequest || p.Errors[0].Pointer != "/header/Idempotency-Key" {
		t.Errorf("%d %+v", w.Code, p)
	}
}

// A batch accepts the header if each of its jobs has a key: then repeating the call makes no second job.
func TestIdempotencyKeyOfABatchNeedsKeys(t *testing.T) {
	for _, body := range []string{`{"jobs":[{"key":"a"},{"key":"b"}]}`, `{"definition":{"key":"${input.id}"},"jobs":[{},{}]}`} {
		submitted := 0
		h := New(Config{Service: &resttest.Service{OnSubmitAll: func(_ context.Context, _ json.RawMessage, jobs []json.RawMessage) ([]perdure.Submitted, error) {
			submitted = len(jobs)
			return make([]perdure.Submitted, len(jobs)), nil
		}}})
		r := httptest.NewRequest(http.MethodPost, "http://localhost/v1/batches/submit", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", "job_"+strings.Repeat("0a", 16)+"/submit/1")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK || submitted != 2 {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
}
