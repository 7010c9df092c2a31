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

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/operate"
)

// A stream of a list that breaks is opened again. Events that are not known are skipped, and a problem that does not pass
// ends the list.
func TestFollowListAgain(t *testing.T) {
	var streams atomic.Int32
	c := connect(t, listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") != "text/event-stream" || r.URL.String() != "/v1/jobs?limit=3" {
			t.Errorf("%s with %q", r.URL, r.Header)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, ":\n\nevent: page\ndata: {\"items\":[{\"key\":\"a\"}]}\n\nevent: unheard-of\ndata: x\n\nevent: problem\ndata: {\"code\":\"unavailable\",\"detail\":\"wait\"}\n\nevent: cha")
		if streams.Add(1) == 3 {
			fmt.Fprint(w, "nged\ndata: {\"items\":[]}\n\nevent: problem\ndata: {\"code\":\"forbidden\"}\n\n")
		}
	})))
	var seen []string
	err := c.FollowJobs(t.Context(), perdure.JobQuery{Limit: 3}, func(change *operate.JobsChange) error {
		switch {
		case change.Page != nil:
			seen = append(seen, change.Page.Items[0].Key)
		case change.Problem != nil:
			seen = append(seen, change.Problem.Message)
		}
		return nil
	})
	if code(t, err, perdure.CodeForbidden); strings.Join(seen, " ") != "a wait a wait a wait" || streams.Load() != 3 {
		t.Errorf("%q in %d streams", seen, streams.Load())
	}
}

// FuzzFollowList: whatever a stream holds, following it ends.
func FuzzFollowList(f *testing.F) {
	f.Add("event: page\ndata: {}\n\nevent: changed\ndata: {\"items\":[{}]}\n\nevent: gone\ndata: {\"ids\":[\"job_0\"]}\n\n")
	f.Add("event: newer\ndata: {\"n\":1}\n\nevent: problem\ndata: {\"code\":\"conflict\"}\n\nevent: page\ndata: null\n\n")
	f.Fuzz(func(t *testing.T, stream string) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := connect(t, "http://h", client.HTTPClient(&http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			body := io.MultiReader(strings.NewReader(stream), atEnd(cancel))
			return &http.Response{StatusCode: 200, Body: io.NopCloser(body), Request: r}, nil
		})}))
		if err := c.FollowJobs(ctx, perdure.JobQuery{}, func(*operate.JobsChange) error { return nil }); err == nil || errors.Is(err, io.EOF) {
			t.Error(err)
		}
	})
}
