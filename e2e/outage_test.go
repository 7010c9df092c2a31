package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/pgtest"
)

// ask bounds the time within which a request must be answered, whatever the store does.
const ask = 15 * time.Second

func statusOf(t *testing.T, method, url, body string) (status int, retryAfter string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), ask)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Errorf("%s %s was not answered within %v: %v", method, url, ask, err)
		return 0, ""
	}
	defer resp.Body.Close()
	return resp.StatusCode, resp.Header.Get("Retry-After")
}

// F009, F097, F099, F120, L4: while the database is away, killed or frozen, every node answers in time with 503 and
// Retry-After. Within ten seconds of its return all nodes work again, without a restart.
func TestDatabaseOutageIsAnswered503(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	server := pgtest.NewServer(t, true)
	must(t, "migrate", "--store", server.URL)
	var urls []string
	for range 2 {
		url, _ := serve(t, "--store", server.URL, "--agents", "none")
		urls = append(urls, url)
	}
	job := func(key string) string {
		return fmt.Sprintf(`{"type": "t", "key": %q, "steps": {"s": {"agent": "absent"}}}`, key)
	}
	for _, c := range []struct {
		name       string
		away, back func()
	}{
		{"stopped", func() { server.Stop(false) }, server.Start},
		{"killed", func() { server.Stop(true) }, server.Start},
		{"frozen", server.Freeze, server.Thaw},
	} {
		if status, _ := statusOf(t, http.MethodPost, urls[0]+"/v1/jobs", job("before-"+c.name)); status != http.StatusCreated {
			t.Fatalf("%s, before: %d", c.name, status)
		}
		c.away()
		var asking sync.WaitGroup // all at once: each may take a while
		for i, url := range urls {
			for _, call := range []struct{ method, path, body string }{
				{http.MethodPost, "/v1/jobs", job(fmt.Sprint("away-", c.name, i))},
				{http.MethodGet, "/v1/jobs/before-" + c.name, ""},
				{http.MethodPost, "/v1/agents/absent/claim", `{"holder": "h", "wait": "1s"}`},
				{http.MethodPost, "/v1/reports", `{"holder": "h", "reports": [{"job": "job_01a2007c39d17492913ae5c8ff2ea5fd", "step": "s", "run": 1, "outcome": "done"}]}`},
				{http.MethodPost, "/v1/heartbeats", `{"holder": "h", "runs": [{"job": "job_01a2007c39d17492913ae5c8ff2ea5fd", "step": "s", "run": 1}]}`},
				{http.MethodGet, "/v1/nodes", ""},
				{http.MethodGet, "/readyz", ""},
			} {
				asking.Go(func() {
					began := time.Now()
					status, retry := statusOf(t, call.method, url+call.path, call.body)
					if status != http.StatusServiceUnavailable || retry == "" {
						t.Errorf("%s: %s %s: %d, Retry-After %q", c.name, call.method, call.path, status, retry)
					}
					t.Logf("%s: %s %s: %d after %v", c.name, call.method, call.path, status, time.Since(began).Round(time.Millisecond))
				})
			}
			if status, _ := statusOf(t, http.MethodGet, url+"/healthz", ""); status != http.StatusOK {
				t.Errorf("%s: the process does not say that it lives: %d", c.name, status)
			}
		}
		asking.Wait()
		c.back()
		back := time.Now()
		for i, url := range urls {
			for status := 0; status != http.StatusCreated; time.Sleep(20 * time.Millisecond) {
				if status, _ = statusOf(t, http.MethodPost, url+"/v1/jobs", job(fmt.Sprint("back-", c.name, i))); time.Since(back) > 10*time.Second {
					t.Fatalf("L4: %s: not back after %v: %d", c.name, time.Since(back), status)
				}
			}
			eventually(t, c.name+": ready again", func() bool { return ready(url) })
		}
		t.Logf("%s: all work %v after it came back", c.name, time.Since(back))
		if status, _ := statusOf(t, http.MethodGet, urls[1]+"/v1/jobs/before-"+c.name, ""); status != http.StatusOK {
			t.Errorf("%s: what was acknowledged before is gone: %d", c.name, status)
		}
	}
	must(t, "check", "--store", server.URL)
}
