package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/pgtest"
)

// F019, F155: agents repeat their claims at two nodes on PostgreSQL, while heartbeats, submissions and other claims lock
// the same rows. Each repeat returns the runs that the claim was granted, or 503; it never returns nothing or other runs.
func TestClaimsRepeatedUnderLoadReturnTheirRuns(t *testing.T) {
	store := pgtest.Start(t)
	must(t, "migrate", "--store", store)
	var nodes []string
	for range 2 {
		url, _ := serve(t, "--store", store, "--agents", "none")
		nodes = append(nodes, url)
	}
	type run struct {
		Job  string `json:"job"`
		Step string `json:"step"`
		Run  int64  `json:"run"`
	}
	call := func(ctx context.Context, node, path string, body object) (status int, answer struct{ Runs []run }) {
		text, err := json.Marshal(body)
		if err != nil {
			t.Error(err)
			return 0, answer
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, node+path, bytes.NewReader(text))
		if err != nil {
			t.Error(err)
			return 0, answer
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, answer
		}
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			err = json.NewDecoder(resp.Body).Decode(&answer)
		} else {
			_, err = io.Copy(io.Discard, resp.Body)
		}
		if err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		return resp.StatusCode, answer
	}
	const agents, perAgent, repeats = 10, 20, 25
	steps := object{}
	for i := range 50 { // the runs of several agents are steps of one job, and its row is their lock
		steps[fmt.Sprint("s", i)] = object{"agent": "a"}
	}
	for range agents * perAgent / 50 * 2 {
		post(t, nodes[0]+"/v1/jobs", object{"type": "wide", "steps": steps})
	}
	var refused, answered atomic.Int64
	var working sync.WaitGroup
	for i := range agents {
		working.Go(func() {
			claim := object{"holder": fmt.Sprint("h", i), "max": perAgent, "wait": "10s", "heartbeat": "1m", "requestId": fmt.Sprint("r", i)}
			status, first := call(t.Context(), nodes[i%2], "/v1/agents/a/claim", claim)
			if status != http.StatusOK || len(first.Runs) == 0 {
				t.Errorf("claim %d: %d, %d runs", i, status, len(first.Runs))
				return
			}
			ctx, stop := context.WithCancel(t.Context())
			var beside sync.WaitGroup
			defer beside.Wait()
			defer stop()
			beside.Go(func() {
				for n := i; ctx.Err() == nil; n++ {
					call(ctx, nodes[n%2], "/v1/heartbeats", object{"holder": claim["holder"], "runs": first.Runs})
				}
			})
			for k := range repeats {
				began := time.Now()
				status, again := call(t.Context(), nodes[(i+k)%2], "/v1/agents/a/claim", claim)
				duration := time.Since(began)
				switch {
				case status == http.StatusServiceUnavailable && duration < 4*time.Second:
					refused.Add(1)
				case status == http.StatusOK && len(again.Runs) == len(first.Runs) && !slices.ContainsFunc(again.Runs, func(r run) bool { return !slices.Contains(first.Runs, r) }):
					answered.Add(1)
				default:
					t.Errorf("claim %d, repeat %d: %d after %v, %d runs; was granted %d", i, k, status, duration, len(again.Runs), len(first.Runs))
				}
			}
		})
	}
	working.Wait()
	t.Logf("%d repeats were answered with the same runs, %d were refused", answered.Load(), refused.Load())
	if refused.Load() > answered.Load()/10 {
		t.Errorf("%d repeats were refused, %d answered, although no lock is held for long", refused.Load(), answered.Load())
	}
}
