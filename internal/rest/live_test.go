package rest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/rest/resttest"
	"github.com/perdure/perdure/operate"
)

// stream asks for a stream of events.
func streamOf(h http.Handler, method, target string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://localhost"+target, nil)
	r.Header.Set("Accept", "text/event-stream")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestListsAreStreamed(t *testing.T) {
	for target, want := range map[string]string{"/v1/jobs?type=order": "page changed gone newer problem newer", "/v1/alerts?closed=true": "page changed gone newer"} {
		w := streamOf(full(), "GET", target)
		body := w.Body.String()
		if got := strings.Join(eventNames(body), " "); got != want {
			t.Errorf("%s: %s in\n%s", target, got, body)
		}
		if w.Code != 200 || w.Header().Get("Content-Type") != "text/event-stream" || !w.Flushed || strings.Contains(body, "+02:00") {
			t.Error(w.Code, w.Header(), body)
		}
		if w := streamOf(full(), "HEAD", target); w.Code != 200 || w.Body.Len() != 0 {
			t.Error(w.Code, w.Body)
		}
		if w := streamOf(full(), "GET", target+"&limit=0"); w.Code != 400 {
			t.Errorf("a limit of 0: %d", w.Code)
		}
	}
	body := streamOf(full(), "GET", "/v1/jobs").Body.String()
	for _, data := range []string{`data: {"ids":["` + someJob, `data: {"n":100,"capped":true}`, `"code":"unavailable"`} {
		if !strings.Contains(body, data) {
			t.Errorf("no %s in\n%s", data, body)
		}
	}
	// Without the header the same path answers with a page.
	if w := exchange(full(), "GET /v1/jobs?type=order", ""); !strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") {
		t.Error(w.Header())
	}
}

// A list that cannot begin is a problem with its status. One that ends later sends an event.
func TestListThatCannotBeStreamed(t *testing.T) {
	svc := resttest.Full()
	began := false
	svc.OnFollowJobs = func(_ context.Context, _ perdure.JobQuery, see func(*operate.JobsChange) error) error {
		if began {
			_ = see(resttest.JobsChanges()[0])
		}
		return perdure.Refuse(perdure.CodeInvalid, "no")
	}
	if w := streamOf(handler(svc), "GET", "/v1/jobs"); w.Code != 400 || problemIn(t, w).Code != perdure.CodeInvalid {
		t.Error(w.Code)
	}
	began = true
	if w := streamOf(handler(svc), "GET", "/v1/jobs"); w.Code != 200 || strings.Join(eventNames(w.Body.String()), " ") != "page problem" {
		t.Error(w.Code, w.Body)
	}
}

// While nothing happens, comments show that the stream is alive. A shutdown ends it, and later ones are empty (F117).
func TestQuietListHasCommentsUntilTheShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shutdown, stop := context.WithCancel(t.Context())
		svc := resttest.Full()
		svc.OnFollowJobs = func(ctx context.Context, _ perdure.JobQuery, see func(*operate.JobsChange) error) error {
			_ = see(resttest.JobsChanges()[0])
			<-ctx.Done()
			return ctx.Err()
		}
		h := New(Config{Service: svc, Log: quiet, Shutdown: shutdown})
		time.AfterFunc(50*time.Second, stop)
		w := &page{ResponseRecorder: httptest.NewRecorder()}
		r := httptest.NewRequest("GET", "http://localhost/v1/jobs", nil)
		r.Header.Set("Accept", "text/event-stream")
		h.ServeHTTP(w, r)
		if got := strings.Join(eventNames(w.Body.String()), " "); got != "page # # #" {
			t.Error(got)
		}
		if w := streamOf(h, "GET", "/v1/jobs"); w.Code != 200 || w.Body.Len() != 0 {
			t.Error(w.Code, w.Body)
		}
	})
}

// A node serves maxListStreams streams of lists; the next one is refused, until one has ended.
func TestStreamsOfListsAreBounded(t *testing.T) {
	svc := resttest.Full()
	var open atomic.Int32
	svc.OnFollowJobs = func(ctx context.Context, _ perdure.JobQuery, see func(*operate.JobsChange) error) error {
		_ = see(&operate.JobsChange{Page: &perdure.Page[perdure.JobView]{}})
		open.Add(1)
		<-ctx.Done()
		return ctx.Err()
	}
	h := New(Config{Service: svc, Log: quiet, Connections: 2 * maxListStreams})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	ended := make(chan struct{}, maxListStreams)
	for range maxListStreams {
		go func() {
			r := httptest.NewRequestWithContext(ctx, "GET", "http://localhost/v1/jobs", nil)
			r.Header.Set("Accept", "text/event-stream")
			h.ServeHTTP(&page{ResponseRecorder: httptest.NewRecorder()}, r)
			ended <- struct{}{}
		}()
	}
	for deadline := time.Now().Add(time.Minute); open.Load() < maxListStreams; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d streams are open", open.Load())
		}
	}
	w := streamOf(h, "GET", "/v1/alerts")
	if p := problemIn(t, w); w.Code != 429 || p.Code != perdure.CodeTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Errorf("stream %d: %d %s", maxListStreams+1, w.Code, w.Body)
	}
	if w := exchange(h, "GET /v1/jobs", ""); w.Code != 200 {
		t.Errorf("a page beside the streams: %d", w.Code)
	}
	leave()
	<-ended
	if w := streamOf(h, "GET", "/v1/alerts"); w.Code != 200 {
		t.Errorf("after a stream has ended: %d", w.Code)
	}
}

// A client that does not read its stream is disconnected, and holds little memory until then.
func TestClientThatDoesNotReadItsListIsDisconnected(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for writeTimeout")
	}
	big := resttest.Job()
	big.Labels = map[string]string{"l": strings.Repeat("x", 100<<10)}
	ended, sent := make(chan error, 1), new(atomic.Int64)
	svc := resttest.Full()
	svc.OnFollowJobs = func(ctx context.Context, _ perdure.JobQuery, see func(*operate.JobsChange) error) error {
		for {
			if err := see(&operate.JobsChange{Changed: []perdure.JobView{*big}}); err != nil {
				ended <- err
				return err
			}
			sent.Add(1)
		}
	}
	server := httptest.NewServer(New(Config{Service: svc, Log: quiet}))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
	var before, after runtime.MemStats
	time.Sleep(time.Second)
	runtime.GC()
	runtime.ReadMemStats(&before)
	select {
	case <-ended:
	case <-time.After(2 * writeTimeout):
		t.Fatalf("after %d events the stream goes on", sent.Load())
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 4<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
}
