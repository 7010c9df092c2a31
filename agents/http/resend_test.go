package http

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/perdure/perdure"
)

// A run sends at most one request, also if a reused connection breaks after the request was read. The scheduler decides
// whether the step is tried again (I14).
func TestRunSendsAtMostOneRequest(t *testing.T) {
	for _, method := range []string{"POST", "DELETE", "PUT"} {
		var requests atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if requests.Add(1) == 1 {
				return // the connection stays, to be used again
			}
			conn, _, _ := w.(http.Hijacker).Hijack()
			conn.Close()
		}))
		agent := New(Config{NoBreaker: true})
		call := func() error {
			in, _ := json.Marshal(map[string]any{"method": method, "url": server.URL, "body": map[string]int{"a": 1}})
			_, err := agent.Execute(context.Background(), &perdure.Run{Step: "s", Action: "s", Number: 1, Key: "k", Input: in})
			return err
		}
		if err := call(); err != nil {
			t.Fatal(err)
		}
		if err := call(); err == nil {
			t.Errorf("%s: a broken connection is no success", method)
		}
		if n := requests.Load(); n != 2 {
			t.Errorf("%s: %d requests for two runs", method, n)
		}
		server.Close()
	}
}
