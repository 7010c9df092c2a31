package scheduler_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/store/memory"
)

// If steps of an agent are ready and no process claims them, the agent is reported as a bottleneck, also by a node at
// which it has never claimed. A process that claims at another node counts.
func TestAgentsWithoutProcessesAreBottlenecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		d := open(t, store, scheduler.Config{})
		expect := func(want string) {
			t.Helper()
			if got := fmt.Sprint(d.Bottlenecks(t.Context())); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		expect("[]")
		for _, agent := range []string{"a", "b", "c"} {
			d.submit("type: t\nsteps:\n  s: {agent: " + agent + "}\n")
		}
		expect("[]") // as long as the latest reading is new
		time.Sleep(10 * time.Second)
		expect("[{a agents [] 0 0s} {b agents [] 0 0s} {c agents [] 0 0s}]")
		time.Sleep(15 * time.Second)
		expect("[{a agents [] 0 15s} {b agents [] 0 15s} {c agents [] 0 15s}]")

		now, err := store.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		elsewhere := kernel.NodeReport{Node: kernel.Node{ID: "other"}, TTL: time.Second, Seen: []kernel.LastClaim{{Agent: "b", Holder: "h", At: now}}}
		if _, err := store.ReportNode(t.Context(), elsewhere); err != nil {
			t.Fatal(err)
		}
		d.claim(protocol.Claim{Agent: "a", Holder: "h"})
		time.Sleep(10 * time.Second)
		expect("[{c agents [] 0 25s}]")
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		waiting.Go(func() { _, _ = d.Claim(ctx, protocol.Claim{Agent: "c", Holder: "h", Max: 1, Wait: time.Minute}) })
		synctest.Wait()
		time.Sleep(30 * time.Second)
		expect("[{b agents [] 0 0s}]") // its process has not claimed for long
		cancel()
		waiting.Wait()
	})
}
