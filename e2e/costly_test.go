package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/pgtest"
)

// F156: while a node has a job whose inputs take much processor time, and an agent claims a thousand runs at once,
// plain submissions are answered as fast as usual, and the job ends.
func TestCostlyJobDoesNotDelaySubmissions(t *testing.T) {
	stores := map[string]func(t *testing.T) []string{
		"sqlite": func(t *testing.T) []string {
			return []string{"--store", "sqlite:" + filepath.Join(t.TempDir(), "perdure.db")}
		},
		"postgres": func(t *testing.T) []string { return []string{"--store", pgtest.Start(t), "--migrate"} },
	}
	for name, args := range stores {
		t.Run(name, func(t *testing.T) {
			url, _ := serve(t, append(args(t), "--agents", "none")...)
			const costly = 40
			steps := object{"big": object{"agent": "big"}}
			for i := range costly {
				steps[fmt.Sprint("s", i)] = object{"agent": "costly", "after": []string{"big"}, "with": object{
					"a": fmt.Sprintf("${len(filter(steps.big.output, # > 0)) + %d}", i), "b": "${count(steps.big.output, # == 1)}",
					"c": "${sum(map(steps.big.output, # * 2))}", "d": "${len(map(steps.big.output, string(#)))}"}}
			}
			if status := send(t, url+"/v1/jobs", object{"type": "costly", "key": "costly", "steps": steps}, nil); status != http.StatusCreated {
				t.Fatal(status)
			}
			output := json.RawMessage("[" + strings.TrimSuffix(strings.Repeat("1,", 100_000), ",") + "]")
			if runs := claimAndReport(t, url, "big", 1, output); runs != 1 {
				t.Fatalf("%d runs", runs)
			}
			var agent sync.WaitGroup
			var done atomic.Int32
			agent.Go(func() {
				for end := time.Now().Add(3 * time.Minute); done.Load() < costly && time.Now().Before(end); {
					done.Add(int32(claimAndReport(t, url, "costly", 1000, nil)))
				}
			})
			var duration []time.Duration
			for i := 0; done.Load() < costly && i < 1000; i++ {
				began := time.Now()
				if status := send(t, url+"/v1/jobs", object{"type": "plain", "key": fmt.Sprint("plain", i), "steps": object{"a": object{"agent": "absent"}}}, nil); status != http.StatusCreated {
					t.Errorf("submission %d: %d", i, status)
				}
				duration = append(duration, time.Since(began))
				time.Sleep(5 * time.Millisecond)
			}
			agent.Wait()
			if done.Load() != costly {
				t.Errorf("%d of %d costly steps are done", done.Load(), costly)
			}
			slices.Sort(duration)
			p99 := duration[len(duration)*99/100]
			t.Logf("%d plain submissions: median %v, p99 %v, longest %v", len(duration), duration[len(duration)/2], p99, duration[len(duration)-1])
			if p99 > 500*time.Millisecond {
				t.Errorf("p99 of a plain submission is %v", p99)
			}
		})
	}
}

// claimAndReport claims once, reports all that it was granted as done, and returns how many these were.
func claimAndReport(t *testing.T, url, agent string, most int, output json.RawMessage) int {
	t.Helper()
	var claimed struct {
		Runs []struct {
			Job, Step string
			Run       int64
		}
	}
	if status := send(t, url+"/v1/agents/"+agent+"/claim", object{"holder": "h", "max": most, "wait": "5s"}, &claimed); status != http.StatusOK {
		t.Errorf("claim: %d", status)
		return 0
	}
	reports := []object{}
	for _, run := range claimed.Runs {
		reports = append(reports, object{"job": run.Job, "step": run.Step, "run": run.Run, "outcome": "done", "output": output})
	}
	if len(reports) == 0 {
		return 0
	}
	if status := send(t, url+"/v1/reports", object{"holder": "h", "reports": reports}, nil); status != http.StatusOK {
		t.Errorf("reports: %d", status)
	}
	return len(reports)
}
