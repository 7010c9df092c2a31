package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/rest"
	"github.com/perdure/perdure/internal/rest/resttest"
	"github.com/perdure/perdure/protocol"
)

func TestURLs(t *testing.T) {
	for _, url := range []string{"", "localhost:7420", "ftp://h", "http://", "http://h?a=b", "http://h#x", "://", "http://[::1"} {
		_, err := client.New(url)
		code(t, err, perdure.CodeInvalid)
	}
	// A server may be behind a path.
	at := serve(t, rest.Config{Service: resttest.Full()})
	proxy := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, at+strings.TrimPrefix(r.URL.Path, "/perdure"), http.StatusTemporaryRedirect)
	}))
	_, err := connect(t, proxy+"/perdure/").ListLimits(t.Context())
	code(t, err, perdure.CodeUnavailable)
	if !strings.Contains(fmt.Sprint(err), at) {
		t.Errorf("does not say where it points: %v", err)
	}
}

func TestNobodyThere(t *testing.T) {
	ofJob := func(job *perdure.JobView, err error) error {
		if job != nil {
			t.Errorf("a job beside %v", err)
		}
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	l.Close()
	c := connect(t, strings.Replace(url, "http://", "http://anna:secret@", 1), client.Patience(0))
	for name, call := range map[string]func() error{
		"read":   func() error { return ofJob(c.Job(t.Context(), "j", 0)) },
		"wait":   func() error { return ofJob(c.Job(t.Context(), "j", time.Minute)) },
		"write":  func() error { _, _, err := c.Submit(t.Context(), nil, "application/json"); return err },
		"follow": func() error { return c.Follow(t.Context(), "j", nil) },
		"claim": func() error {
			_, err := c.Claim(t.Context(), protocol.Claim{Agent: "a", Holder: "h"})
			return err
		},
	} {
		err := call()
		code(t, err, perdure.CodeUnavailable)
		if s := fmt.Sprint(err); !strings.Contains(s, l.Addr().String()) || !strings.Contains(s, "refused") || strings.Contains(s, "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What answers is not a Perdure server.
func TestStrangers(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"page":      func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>hello") },
		"not found": http.NotFound,
		"gateway":   func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "bad gateway", 502) },
		"redirect":  func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", 302) },
		"json": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(500)
			fmt.Fprint(w, `{"error":"x"}`)
		},
		"cut": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"id":`)
		},
		"abort": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			c := connect(t, listen(t, answer))
			_, _, err := c.Submit(t.Context(), []byte("{}"), "application/json")
			code(t, err, perdure.CodeUnavailable)
			if name != "page" && name != "cut" {
				code(t, c.DeleteLimit(t.Context(), "job:a"), perdure.CodeUnavailable)
			}
		})
	}
}

// Reading is tried again while the server is away for a moment; writing is not.
func TestRepeats(t *testing.T) {
	var calls atomic.Int32
	svc := resttest.Full()
	svc.OnJob = func(context.Context, string, time.Duration) (*perdure.JobView, error) {
		if calls.Add(1) < 3 {
			return nil, perdure.Refuse(perdure.CodeUnavailable, "away")
		}
		return resttest.Job(), nil
	}
	svc.OnAct = func(context.Context, string, perdure.Act) (*perdure.JobView, error) {
		calls.Add(1)
		return nil, perdure.Refuse(perdure.CodeUnavailable, "away")
	}
	c := far(t, svc)
	if _, err := c.Job(t.Context(), "j", 0); err != nil || calls.Load() != 3 {
		t.Error(err, calls.Load())
	}
	calls.Store(0)
	_, err := c.Act(t.Context(), "j", perdure.Act{Verb: perdure.VerbUndo})
	if code(t, err, perdure.CodeUnavailable); calls.Load() != 1 {
		t.Errorf("%d calls", calls.Load())
	}
}

// The caller's own end is its own error, and reaches the server.
func TestCallerLeaves(t *testing.T) {
	var came atomic.Int32
	left := make(chan struct{}, 100)
	svc := resttest.Full()
	svc.OnClaim = func(ctx context.Context, _ protocol.Claim) ([]perdure.Run, error) {
		came.Add(1)
		<-ctx.Done()
		left <- struct{}{}
		return nil, ctx.Err()
	}
	svc.OnJob = func(ctx context.Context, _ string, _ time.Duration) (*perdure.JobView, error) {
		came.Add(1)
		<-ctx.Done()
		left <- struct{}{}
		return nil, ctx.Err()
	}
	svc.OnFollow = func(ctx context.Context, _ string, see func(*perdure.JobView) error) error {
		came.Add(1)
		_ = see(resttest.Job())
		<-ctx.Done()
		left <- struct{}{}
		return ctx.Err()
	}
	c := far(t, svc)
	for _, call := range []func(context.Context) error{
		func(ctx context.Context) error {
			_, err := c.Claim(ctx, protocol.Claim{Agent: "a", Holder: "h", Wait: time.Minute})
			return err
		},
		func(ctx context.Context) error { _, err := c.Job(ctx, "j", time.Hour); return err },
		func(ctx context.Context) error {
			return c.Follow(ctx, "j", func(*perdure.JobView) error { return nil })
		},
	} {
		began := came.Load()
		for patience := 50 * time.Millisecond; came.Load() == began; patience *= 2 { // until it has come so far
			if err := call(within(t, patience)); !errors.Is(err, context.DeadlineExceeded) || perdure.CodeOf(err) != "" {
				t.Error(err)
			}
		}
		select {
		case <-left:
		case <-time.After(30 * time.Second):
			t.Fatal("the server did not see it")
		}
	}
}

// A wait is longer than what the server waits at once, and survives its shutdown.
func TestLongWait(t *testing.T) {
	var calls atomic.Int32
	svc := resttest.Full()
	svc.OnJob = func(_ context.Context, _ string, wait time.Duration) (*perdure.JobView, error) {
		job := resttest.Job()
		if wait <= 0 || wait > perdure.MaxJobWait {
			t.Errorf("asked to wait for %s", wait)
		}
		if calls.Add(1) == 3 {
			job.Phase = perdure.Parked
		}
		return job, nil
	}
	job, err := far(t, svc).Job(t.Context(), "j", time.Hour)
	if err != nil || job.Phase != perdure.Parked || calls.Load() != 3 {
		t.Error(err, job.Phase, calls.Load())
	}
}

// A claim without reports is made, too.
func TestAClaimWithNoReports(t *testing.T) {
	_, runs, err := far(t, resttest.Full()).Report(t.Context(), "h", nil, &protocol.Claim{Agent: "a", Max: 1, RequestID: "r"})
	if err != nil || len(runs) != 1 {
		t.Errorf("%+v, %v", runs, err)
	}
}

// What is too much for one call goes in several, and the answers keep their order.
func TestManyReports(t *testing.T) {
	var calls atomic.Int32
	svc := resttest.Full()
	svc.OnReport = func(_ context.Context, _ string, reports []protocol.Report, next *protocol.Claim) ([]protocol.ReportResult, []perdure.Run, error) {
		calls.Add(1)
		out := make([]protocol.ReportResult, len(reports))
		for i, r := range reports {
			out[i].Message = fmt.Sprint(r.Run)
		}
		return out, nil, nil
	}
	c := far(t, svc)
	big := json.RawMessage(`"` + strings.Repeat("x", perdure.MaxPayloadBytes-2) + `"`)
	for _, test := range []struct {
		n, calls int
		output   json.RawMessage
	}{{0, 0, nil}, {1000, 1, nil}, {2001, 3, nil}, {20, 2, big}} {
		calls.Store(0)
		reports := make([]protocol.Report, test.n)
		for i := range reports {
			reports[i] = protocol.Report{Job: resttest.ID, Step: "s", Run: int64(i + 1), Outcome: perdure.OutcomeDone, Output: test.output}
		}
		results, _, err := c.Report(t.Context(), "h", reports, nil)
		if err != nil || len(results) != test.n || int(calls.Load()) != test.calls {
			t.Fatalf("%d reports: %v, %d results, %d calls", test.n, err, len(results), calls.Load())
		}
		for i, r := range results {
			if r.Message != fmt.Sprint(i+1) {
				t.Fatalf("answer %d is of %s", i, r.Message)
			}
		}
	}
}
