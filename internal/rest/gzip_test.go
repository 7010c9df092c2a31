package rest

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/rest/resttest"
)

// Answers of more than a kilobyte are compressed for callers that ask for it, and only those of reads.
func TestLargeAnswersAreCompressed(t *testing.T) {
	svc := resttest.Full()
	svc.OnJob = func(context.Context, string, time.Duration) (*perdure.JobView, error) {
		job := resttest.Job()
		job.Labels = map[string]string{"text": strings.Repeat("order ", 1000)}
		return job, nil
	}
	h := handler(svc)
	plain := exchange(h, "GET /v1/jobs/j", "").Body.String()
	for encoding, want := range map[string]bool{"gzip": true, "br, gzip;q=0.5": true, "*": true, "gzip;q=0": false, "gzip; q=0.0": false, "": false, "br": false} {
		r := httptest.NewRequest(http.MethodGet, "http://localhost/v1/jobs/j", nil)
		r.Header.Set("Accept-Encoding", encoding)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		body := w.Body.Bytes()
		if got := w.Header().Get("Content-Encoding") == "gzip"; got != want || w.Header().Get("Vary") != "Accept-Encoding" {
			t.Errorf("%q: compressed %v, Vary %q", encoding, got, w.Header().Get("Vary"))
		} else if got {
			z, err := gzip.NewReader(bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			if w.Header().Get("Content-Length") != strconv.Itoa(len(body)) || len(body) > len(plain)/5 {
				t.Errorf("%q: %d bytes, announced %s, of %d", encoding, len(body), w.Header().Get("Content-Length"), len(plain))
			}
			if body, err = io.ReadAll(z); err != nil {
				t.Fatal(err)
			}
		}
		if string(body) != plain {
			t.Errorf("%q: another body", encoding)
		}
	}
	small := httptest.NewRequest(http.MethodGet, "http://localhost/healthz", nil)
	small.Header.Set("Accept-Encoding", "gzip")
	act := httptest.NewRequest(http.MethodPost, "http://localhost/v1/jobs/j/undo", strings.NewReader("{}"))
	act.Header.Set("Accept-Encoding", "gzip")
	act.Header.Set("Content-Type", "application/json")
	for _, r := range []*http.Request{small, act} {
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != http.StatusOK || w.Header().Get("Content-Encoding") != "" {
			t.Errorf("%s %s: %d, encoding %q", r.Method, r.URL, w.Code, w.Header().Get("Content-Encoding"))
		}
	}
}
