package rest

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/rest/resttest"
)

// A job that is read again with the ETag of the answer before is not sent again until it has changed.
func TestJobIsSentOnlyIfItHasChanged(t *testing.T) {
	svc := resttest.Full()
	job := resttest.Job()
	svc.OnJob = func(context.Context, string, time.Duration) (*perdure.JobView, error) { return job, nil }
	h := handler(svc)
	get := func(tag, encoding string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", "http://localhost/v1/jobs/j", nil)
		r.Header.Set("If-None-Match", tag)
		r.Header.Set("Accept-Encoding", encoding)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	first := get("", "")
	tag := first.Header().Get("ETag")
	if first.Code != 200 || !strings.HasPrefix(tag, `W/"`) || first.Body.Len() == 0 {
		t.Fatal(first.Code, tag)
	}
	for _, encoding := range []string{"", "gzip"} {
		if w := get(`"other", `+tag, encoding); w.Code != 304 || w.Body.Len() != 0 || w.Header().Get("ETag") != tag || w.Header().Get("Content-Length") != "" {
			t.Errorf("encoding %q: %d with %d bytes, %v", encoding, w.Code, w.Body.Len(), w.Header())
		}
	}
	changed := *job
	changed.Unsettled++
	job = &changed
	if w := get(tag, "gzip"); w.Code != 200 || w.Header().Get("ETag") == tag {
		t.Error(w.Code, w.Header())
	}
	if w := exchange(h, "GET /v1/jobs", ""); w.Header().Get("ETag") != "" {
		t.Error("a list has an ETag")
	}
}

func TestPartOfTheStepsIsAWord(t *testing.T) {
	if w := exchange(full(), "GET /v1/jobs/j?steps=some", ""); w.Code != 400 || !strings.Contains(w.Body.String(), "none, open, all") {
		t.Error(w.Code, w.Body)
	}
	if w := exchange(full(), "GET /v1/jobs/j?steps=none", ""); w.Code != 200 {
		t.Error(w.Code, w.Body)
	}
}
