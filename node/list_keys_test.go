package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/node"
)

// A list says that a job waits for a key of a limit, and finds it by this reason.
func TestListsNameTheKeysThatJobsWaitFor(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		gate := make(chan struct{})
		t.Cleanup(func() { close(gate) })
		a := perdure.NewAgent("a")
		a.HandleAny(func(ctx context.Context, _ *perdure.Run) (json.RawMessage, error) {
			select {
			case <-gate:
			case <-ctx.Done():
			}
			return nil, ctx.Err()
		})
		n := node.New(store, node.Config{Agents: []*perdure.Agent{a}})
		if err := n.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_ = n.Stop(ctx)
		})
		if _, err := n.PutLimit(t.Context(), "tenant", perdure.LimitSettings{PerKey: &perdure.KeyLimit{Max: new(1)}}); err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			step := perdure.Define("t").Key(fmt.Sprint("k", i)).Step("s", "a").Limit("tenant", "acme", 1)
			if _, _, err := perdure.Submit(t.Context(), n, step); err != nil {
				t.Fatal(err)
			}
		}
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			page, err := n.ListJobs(t.Context(), perdure.JobQuery{Reason: perdure.WhyLimit, WithSummary: true})
			if err != nil {
				t.Fatal(err)
			}
			if len(page.Items) == 1 && page.Items[0].Key == "k1" && strings.Contains(page.Items[0].Summary.Why.Text, "limit tenant for key acme is full (1 of 1)") {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%d jobs wait for the limit: %+v", len(page.Items), page.Items)
			}
		}
	})
}
