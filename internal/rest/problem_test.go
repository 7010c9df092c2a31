package rest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/rest/resttest"
)

// Every error of a service has its status. The text of an internal error is not shown.
func TestErrorsOfTheServiceHaveTheirStatus(t *testing.T) {
	fields := []perdure.FieldError{{Pointer: "/steps/a", Line: 3, Column: 5, Message: "is a cycle", Hint: "break it"}}
	for _, test := range []struct {
		err        error
		status     int
		code       string
		retryAfter string
	}{
		{&perdure.Error{Code: perdure.CodeInvalid, Fields: fields}, 422, "invalid", ""},
		{perdure.Refuse(perdure.CodeMalformed, "no"), 400, "malformed", ""},
		{perdure.Refuse(perdure.CodeTooLarge, "no"), 413, "tooLarge", ""},
		{perdure.Refuse(perdure.CodeNotFound, "no"), 404, "notFound", ""},
		{fmt.Errorf("wrapped: %w", perdure.Refuse(perdure.CodeConflict, "no")), 409, "conflict", ""},
		{perdure.Refuse(perdure.CodeBacklogFull, "no"), 429, "backlogFull", "5"},
		{perdure.Refuse(perdure.CodeForbidden, "no"), 403, "forbidden", ""},
		{perdure.Refuse(perdure.CodeUnavailable, "no"), 503, "unavailable", "1"},
		{perdure.Refuse(perdure.CodeSchema, "no"), 503, "schema", ""},
		{perdure.Refuse(perdure.CodeInUse, "no"), 503, "inUse", ""},
		{context.DeadlineExceeded, 503, "unavailable", "1"},
		{kernel.ErrUnknown, 503, "unavailable", "1"},
		{&net.OpError{Op: "dial", Err: errors.New("secret host")}, 503, "unavailable", "1"},
		{errors.New("password=secret"), 500, "internal", ""},
		{perdure.Refuse("newCode", "no"), 500, "newCode", ""},
	} {
		t.Run(test.err.Error(), func(t *testing.T) {
			svc := resttest.Full()
			svc.OnSubmit = func(context.Context, []byte, string, string) (*perdure.JobView, bool, error) {
				return nil, false, test.err
			}
			w := exchange(handler(svc), "POST /v1/jobs", "{}")
			body := w.Body.String()
			p := problemIn(t, w)
			if w.Code != test.status || string(p.Code) != test.code || w.Header().Get("Retry-After") != test.retryAfter {
				t.Errorf("%d %s, Retry-After %q", w.Code, p.Code, w.Header().Get("Retry-After"))
			}
			if strings.Contains(body, "secret") {
				t.Errorf("leaks: %s", body)
			}
			if test.code == "invalid" && (len(p.Errors) != 1 || p.Errors[0] != fields[0] || p.Detail != "is a cycle") {
				t.Errorf("fields lost: %s", body)
			}
		})
	}
}

// An invalid parameter of a request without a body is a bad request.
func TestInvalidWithoutBodyIsBadRequest(t *testing.T) {
	svc := resttest.Full()
	svc.OnListJobs = func(context.Context, perdure.JobQuery) (*perdure.Page[perdure.JobView], error) {
		return nil, perdure.Refuse(perdure.CodeInvalid, "that cursor is not ours")
	}
	if w := exchange(handler(svc), "GET /v1/jobs?cursor=x", ""); w.Code != http.StatusBadRequest {
		t.Error(w.Code)
	}
}

func TestPanicIsAnswered500(t *testing.T) {
	var log bytes.Buffer
	svc := resttest.Full()
	svc.OnJob = func(context.Context, string, time.Duration) (*perdure.JobView, error) { panic("secret") }
	h := New(Config{Service: svc, Log: slog.New(slog.NewTextHandler(&log, nil))})
	w := exchange(h, "GET /v1/jobs/j", "")
	if strings.Contains(w.Body.String(), "secret") {
		t.Error(w.Body)
	}
	if p := problemIn(t, w); w.Code != 500 || p.Code != codeInternal {
		t.Errorf("%d %s", w.Code, p.Code)
	}
	if !strings.Contains(log.String(), "secret") || !strings.Contains(log.String(), "problem_test.go") {
		t.Errorf("no panic with a stack in the log: %s", &log)
	}
}

// Clients poll /readyz of a node that drains or waits for its store. These answers are not logged as errors.
func TestNotReadyIsNotLoggedAsError(t *testing.T) {
	var log bytes.Buffer
	h := New(Config{Service: resttest.Full(), Log: slog.New(slog.NewTextHandler(&log, nil)),
		Ready: func(context.Context) error { return perdure.Refuse(perdure.CodeUnavailable, "draining") }})
	if w := exchange(h, "GET /readyz", ""); w.Code != http.StatusServiceUnavailable || log.Len() > 0 {
		t.Errorf("%d, and in the log: %s", w.Code, &log)
	}
}

func TestPanicInAStreamCutsTheConnection(t *testing.T) {
	svc := resttest.Full()
	svc.OnFollow = func(_ context.Context, _ string, see func(*perdure.JobView) error) error {
		_ = see(resttest.Job())
		panic("late")
	}
	defer func() {
		if err, _ := recover().(error); !errors.Is(err, http.ErrAbortHandler) {
			t.Error("the connection was not cut")
		}
	}()
	exchange(handler(svc), "GET /v1/jobs/j/events", "")
}
