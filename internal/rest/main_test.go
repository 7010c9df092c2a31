package rest

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/perdure/perdure/internal/rest/resttest"
	"github.com/perdure/perdure/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

// handler returns an API over svc.
func handler(svc protocol.Server) http.Handler {
	return New(Config{Service: svc, Log: quiet, JobSchema: []byte(`{}`), Metrics: http.NotFoundHandler()})
}

// exchange makes one request as a test writes it: "METHOD target", headers as "Name: value", and a body.
func exchange(h http.Handler, line, body string, headers ...string) *httptest.ResponseRecorder {
	method, target, _ := strings.Cut(line, " ")
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Host = "perdure:7420"
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		if name == "Host" {
			r.Host = value
			continue
		}
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// problemIn reads an answer as a problem, and checks what every problem has.
func problemIn(t *testing.T, w *httptest.ResponseRecorder) Problem {
	t.Helper()
	var p Problem
	body, _ := io.ReadAll(w.Body)
	if err := json.Unmarshal(body, &p); err != nil {
		t.Fatalf("not a problem: %v\n%s", err, body)
	}
	if got := w.Header().Get("Content-Type"); got != problemType {
		t.Errorf("Content-Type %q", got)
	}
	if p.Status != w.Code || p.Code == "" || p.Title == "" || p.Detail == "" || !strings.HasSuffix(p.Type, string(p.Code)) || p.Errors == nil {
		t.Errorf("incomplete problem: %s", body)
	}
	return p
}

// full answers every call with an answer in which every field is set.
var full = sync.OnceValue(func() http.Handler { return handler(resttest.Full()) })
