package sdk

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// A host whose token is not valid, or is for other agents, ends at its start with an error, and claims nothing. Without an
// answer it starts all the same, and goes on when claims are refused later: a token may be replaced.
func TestHostsAreRefusedAtTheirStart(t *testing.T) {
	if testing.Short() {
		t.Skip("runs processes")
	}
	t.Parallel()
	identity := func(role, agents string) string {
		return fmt.Sprintf(`{"name":"ci","role":%q,"agents":%s,"via":"token"}`, role, agents)
	}
	const denied = `{"type":"about:blank","title":"x","status":401,"code":"unauthenticated","detail":"the token is not valid"}`
	for _, language := range languages {
		for name, c := range map[string]struct {
			status int
			body   string
			starts bool
		}{
			"not valid":           {http.StatusUnauthorized, denied, false},
			"another role":        {http.StatusOK, identity("submitter", "[]"), false},
			"another agent":       {http.StatusOK, identity("agent", `["payments"]`), false},
			"its own":             {http.StatusOK, identity("agent", `["payments","conformance"]`), true},
			"an admin":            {http.StatusOK, identity("admin", "[]"), true},
			"no answer":           {http.StatusServiceUnavailable, `{"status":503,"code":"unavailable","detail":"x"}`, true},
			"of an older version": {http.StatusNotFound, "", true},
		} {
			t.Run(language.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				var claims atomic.Int64
				mux := http.NewServeMux()
				answer := func(status int, body string) http.HandlerFunc {
					return func(w http.ResponseWriter, _ *http.Request) {
						w.Header().Set("Content-Type", map[bool]string{true: "application/json", false: "application/problem+json"}[status == http.StatusOK])
						w.WriteHeader(status)
						_, _ = w.Write([]byte(body))
					}
				}
				mux.HandleFunc("GET /v1/me", answer(c.status, c.body))
				mux.HandleFunc("POST /v1/agents/{agent}/claim", func(w http.ResponseWriter, r *http.Request) {
					claims.Add(1)
					answer(http.StatusUnauthorized, denied)(w, r)
				})
				server := httptest.NewServer(mux)
				t.Cleanup(server.Close)
				p := language.conformance(t, server.URL)
				if !c.starts {
					if err := p.wait(); err == nil || claims.Load() > 0 {
						t.Errorf("%v after %d claims", err, claims.Load())
					}
					return
				}
				for began := time.Now(); claims.Load() < 3; time.Sleep(10 * time.Millisecond) {
					if time.Since(began) > patience {
						t.Fatalf("%d claims", claims.Load())
					}
				}
				p.stop()
				if err := p.wait(); err != nil {
					t.Errorf("at the end: %v", err)
				}
			})
		}
	}
}
