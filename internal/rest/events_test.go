package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/rest/resttest"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
)

func decode(t *testing.T, w *httptest.ResponseRecorder, to any) {
	t.Helper()
	if err := json.Unmarshal(w.Body.Bytes(), to); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
}

// eventNames returns the names of a stream's events, "#" for a comment.
func eventNames(stream string) (names []string) {
	for line := range strings.Lines(stream) {
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			names = append(names, strings.TrimSpace(name))
		} else if strings.HasPrefix(line, ":") {
			names = append(names, "#")
		}
	}
	return names
}

func TestEventsAreStreamed(t *testing.T) {
	w := exchange(full(), "GET /v1/jobs/j/events", "")
	body := w.Body.String()
	if got := strings.Join(eventNames(body), " "); got != "job job rest" {
		t.Errorf("%s in\n%s", got, body)
	}
	if h := w.Header(); w.Code != 200 || h.Get("Content-Type") != "text/event-stream" || h.Get("X-Accel-Buffering") != "no" || !w.Flushed {
		t.Error(w.Code, h)
	}
	if !strings.HasSuffix(body, "\n\n") || strings.Contains(body, "+02:00") {
		t.Error(body)
	}
}

// A stream may end just after a comment was written. The race detector checks the data that both share.
func TestStreamMayEndAfterAComment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := resttest.Full()
		svc.OnFollow = func(_ context.Context, _ string, see func(*perdure.JobView) error) error {
			err := see(&perdure.JobView{ID: perdure.JobID{1}, Phase: perdure.Settled})
			time.Sleep(commentEvery + time.Second)
			return err
		}
		w := exchange(handler(svc), "GET /v1/jobs/j/events", "")
		if got := strings.Join(eventNames(w.Body.String()), " "); got != "job # rest" {
			t.Error(got)
		}
	})
}

// revocable is a registry whose token is revoked after the first check.
type revocable struct {
	resttest.Registry
	checks *int
}

func (revocable) Identify(context.Context, string, kernel.CredentialKind, string) (*operate.Identity, error) {
	return &operate.Identity{Name: "anna", Rights: operate.Rights{Role: operate.Admin}, Credential: "c"}, nil
}

func (r revocable) StillValid(context.Context, *operate.Identity) bool {
	*r.checks++
	return *r.checks < 2
}

// A call that waits ends with 401 when its token is revoked: a stream with an event, if it has begun. It is no error of the
// node.
func TestWaitingCallsOfARevokedTokenAreUnauthenticated(t *testing.T) {
	waits := func(ctx context.Context) error { <-ctx.Done(); return fmt.Errorf("read: %w", ctx.Err()) }
	for _, c := range []struct {
		target, accept string
		status         int
		events         string
	}{
		{"/v1/jobs/j/events", "", 200, "job problem"},
		{"/v1/jobs/none/events", "", 401, ""},
		{"/v1/jobs", mediaEvents, 200, "page problem"},
		{"/v1/jobs?type=interrupted", mediaEvents, 200, "page problem"},
		{"/v1/jobs/j?wait=1m", "", 401, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			svc := resttest.Full()
			svc.OnFollow = func(ctx context.Context, ref string, see func(*perdure.JobView) error) error {
				if ref == "j" {
					_ = see(&perdure.JobView{ID: perdure.JobID{1}, Phase: perdure.Running})
				}
				return waits(ctx)
			}
			svc.OnFollowJobs = func(ctx context.Context, q perdure.JobQuery, see func(*operate.JobsChange) error) error {
				_ = see(resttest.JobsChanges()[0])
				err := waits(ctx)
				if q.Type != "" {
					return see(&operate.JobsChange{Problem: perdure.Refuse(perdure.CodeUnavailable, "canceled")})
				}
				return err
			}
			svc.OnJob = func(ctx context.Context, _ string, _ time.Duration) (*perdure.JobView, error) { return nil, waits(ctx) }
			var log bytes.Buffer
			h := New(Config{Service: svc, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})), Access: revocable{checks: new(int)}})
			w := exchange(h, "GET "+c.target, "", "Authorization: Bearer x", "Accept: "+c.accept)
			body := w.Body.String()
			if got := strings.Join(eventNames(body), " "); w.Code != c.status || got != c.events || !strings.Contains(body, `"code":"unauthenticated"`) || strings.Contains(body, "unavailable") {
				t.Errorf("%s: %d, %s in\n%s", c.target, w.Code, got, body)
			}
			if log.Len() > 0 {
				t.Errorf("%s: %s", c.target, log.String())
			}
		})
	}
}

func TestEventsOfAnUnknownJobAreRefused(t *testing.T) {
	svc := resttest.Full()
	svc.OnFollow = func(context.Context, string, func(*perdure.JobView) error) error {
		return perdure.Refuse(perdure.CodeNotFound, "no such job")
	}
	if w := exchange(handler(svc), "GET /v1/jobs/j/events", ""); w.Code != 404 || problemIn(t, w).Code != perdure.CodeNotFound {
		t.Error(w.Code)
	}
}

func TestEventsEndWithAProblem(t *testing.T) {
	svc := resttest.Full()
	svc.OnFollow = func(_ context.Context, _ string, see func(*perdure.JobView) error) error {
		_ = see(resttest.Job())
		return io.ErrUnexpectedEOF
	}
	body := exchange(handler(svc), "GET /v1/jobs/j/events", "").Body.String()
	if got := strings.Join(eventNames(body), " "); got != "job problem" || !strings.Contains(body, `"code":"unavailable"`) {
		t.Error(body)
	}
}

// page is a ResponseRecorder that may be read while it is written.
type page struct {
	mu sync.Mutex
	*httptest.ResponseRecorder
}

func (p *page) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ResponseRecorder.Write(b)
}

// While nothing happens, comments show that the stream is alive. A shutdown ends it (F117).
func TestEventsOfAQuietJobHaveComments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shutdown, stop := context.WithCancel(t.Context())
		svc := resttest.Full()
		svc.OnFollow = func(ctx context.Context, _ string, see func(*perdure.JobView) error) error {
			_ = see(resttest.Job())
			<-ctx.Done()
			return ctx.Err()
		}
		h := New(Config{Service: svc, Log: quiet, Shutdown: shutdown})
		time.AfterFunc(50*time.Second, stop)
		w := &page{ResponseRecorder: httptest.NewRecorder()}
		h.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/v1/jobs/j/events", nil))
		if got := strings.Join(eventNames(w.Body.String()), " "); got != "job # # #" {
			t.Error(got)
		}
	})
}

// F117: waiting calls are answered when the node shuts down, with success.
func TestShutdownEndsLongPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shutdown, stop := context.WithCancel(t.Context())
		svc := resttest.Full()
		svc.OnJob = func(ctx context.Context, _ string, wait time.Duration) (*perdure.JobView, error) {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(wait):
				return resttest.Job(), nil
			}
		}
		svc.OnClaim = func(ctx context.Context, req protocol.Claim) ([]perdure.Run, error) {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(req.Wait):
				return nil, nil
			}
		}
		var log bytes.Buffer
		h := New(Config{Service: svc, Log: slog.New(slog.NewTextHandler(&log, nil)), Shutdown: shutdown})
		begin := time.Now()
		time.AfterFunc(10*time.Second, stop)
		var all sync.WaitGroup
		all.Go(func() {
			if w := exchange(h, goodClaim, `{"holder":"h","wait":"60s"}`); w.Code != 200 || strings.TrimSpace(w.Body.String()) != `{"runs":[]}` {
				t.Error(w.Code, w.Body)
			}
		})
		all.Go(func() { // the claim may have been granted runs before, so the answer cannot be "no work" (F019)
			if w := exchange(h, goodClaim, `{"holder":"h","wait":"60s","requestId":"r"}`); w.Code != 503 || !strings.Contains(w.Body.String(), "the node is draining") {
				t.Error(w.Code, w.Body)
			}
		})
		all.Go(func() {
			if w := exchange(h, "GET /v1/jobs/j?wait=5m", ""); w.Code != 200 || !strings.Contains(w.Body.String(), someJob) {
				t.Error(w.Code, w.Body)
			}
		})
		all.Wait()
		if got := log.String(); strings.Contains(got, "ERROR") || !strings.Contains(got, "level=INFO msg=\"request refused: the node is draining\"") {
			t.Errorf("a drain is logged as %q", got)
		}
		if duration := time.Since(begin); duration != 10*time.Second {
			t.Errorf("took %s", duration)
		}
		// Later calls do not wait.
		if w := exchange(h, goodClaim, `{"holder":"h","wait":"60s"}`); w.Code != 200 || time.Since(begin) != 10*time.Second {
			t.Error(w.Code, time.Since(begin))
		}
		if w := exchange(h, "GET /v1/jobs/j/events", ""); w.Code != 200 || w.Body.Len() != 0 {
			t.Error(w.Code, w.Body)
		}
	})
}
