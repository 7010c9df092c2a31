package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/rest"
	"github.com/perdure/perdure/internal/rest/resttest"
)

// A stream that breaks is opened again; the last event ends it.
func TestFollowAgain(t *testing.T) {
	var streams atomic.Int32
	c := connect(t, listen(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, ":\r\n\nid: 7\nevent: job\ndata: {\"phase\":\"running\",\"type\":\ndata: \"a\"}\r\n\r\nevent: unheard-of\ndata: x\n\nevent: job\ndata: {\"cut")
		if streams.Add(1) == 2 {
			fmt.Fprint(w, "\":1}\n\nevent: rest\ndata: {}\n\nevent: job\ndata: {}\n\n")
		}
	})))
	var seen []string
	err := c.Follow(t.Context(), "j", func(j *perdure.JobView) error { seen = append(seen, j.Type); return nil })
	if got := strings.Join(seen, ","); err != nil || got != "a,a," || streams.Load() != 2 {
		t.Errorf("%v after %q in %d streams", err, got, streams.Load())
	}
}

// A server that only ever ends its streams is not asked for ever.
func TestFollowOfNothing(t *testing.T) {
	shutdown, stop := context.WithCancel(t.Context())
	stop()
	c := connect(t, serve(t, rest.Config{Service: resttest.Full(), Shutdown: shutdown}), client.Patience(200*time.Millisecond))
	code(t, c.Follow(t.Context(), "j", nil), perdure.CodeUnavailable)
}

func TestFollowEnds(t *testing.T) {
	svc := resttest.Full()
	svc.OnFollow = func(_ context.Context, _ string, see func(*perdure.JobView) error) error {
		_ = see(resttest.Job())
		return perdure.Refuse(perdure.CodeConflict, "cannot go on")
	}
	c := far(t, svc)
	code(t, c.Follow(t.Context(), "j", func(*perdure.JobView) error { return nil }), perdure.CodeConflict)
	enough := errors.New("enough")
	if err := c.Follow(t.Context(), "j", func(*perdure.JobView) error { return enough }); !errors.Is(err, enough) {
		t.Error(err)
	}
}

// FuzzFollow: whatever a stream holds, following it ends.
func FuzzFollow(f *testing.F) {
	f.Add("event: job\ndata: {}\n\nevent: rest\ndata: {}\n\n")
	f.Add(":\n\nevent:job\r\ndata\n\n\nevent: problem\ndata: {\"code\":\"conflict\"}\n\n")
	f.Add("data: 1\n\nevent: job\ndata: {\"steps\":[]}\n\n")
	f.Fuzz(func(t *testing.T, stream string) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := connect(t, "http://h", client.HTTPClient(&http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			body := io.MultiReader(strings.NewReader(stream), atEnd(cancel))
			return &http.Response{StatusCode: 200, Body: io.NopCloser(body), Request: r}, nil
		})}))
		_ = c.Follow(ctx, "j", func(*perdure.JobView) error { return nil })
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// atEnd is an empty reader that says when it is reached.
type atEnd func()

func (f atEnd) Read([]byte) (int, error) { f(); return 0, io.EOF }
