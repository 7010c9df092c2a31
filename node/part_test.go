package node_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/operate"
)

// The view of a job can have all steps, the open ones, or none. Its other fields are the same.
func TestPartsOfAJob(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		stock := perdure.NewAgent("stock")
		stock.HandleAny(func(_ context.Context, run *perdure.Run) (json.RawMessage, error) { return json.Marshal(run.Step) })
		n := start(t, store, node.Config{Agents: []*perdure.Agent{stock}})
		const definition = `{"type":"t","key":"k","input":{"a":1},"steps":{"one":{"agent":"stock"},
			"two":{"agent":"approval","after":["one"],"with":{"message":"${steps.one.output}"}},"three":{"agent":"stock","after":["two"]}}}`
		if _, _, err := n.Submit(t.Context(), []byte(definition), "application/json"); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Job(t.Context(), "k", time.Minute); err != nil {
			t.Fatal(err)
		}
		all, err := n.Job(t.Context(), "k", 0)
		if err != nil || len(all.Steps) != 3 {
			t.Fatalf("%+v, %v", all, err)
		}
		for _, wait := range []time.Duration{0, time.Second} {
			for part, want := range map[operate.Steps][]string{operate.AllSteps: {"one", "two", "three"}, operate.OpenSteps: {"two", "three"}, operate.NoSteps: nil} {
				v, err := n.JobPart(t.Context(), "k", wait, part)
				if err != nil {
					t.Fatal(err)
				}
				if len(v.Steps) != len(want) {
					t.Fatalf("%s: %d steps", part, len(v.Steps))
				}
				for i, name := range want {
					got, _ := json.Marshal(v.Steps[i])
					whole, _ := json.Marshal(all.Steps.Get(name))
					if v.Steps[i].Name != name || string(got) != string(whole) {
						t.Errorf("%s: step %d is %s, want %s", part, i, got, whole)
					}
				}
				v.Steps = all.Steps
				got, _ := json.Marshal(v)
				if whole, _ := json.Marshal(all); string(got) != string(whole) {
					t.Errorf("%s: %s, want %s", part, got, whole)
				}
			}
		}
		if _, err := n.JobPart(t.Context(), "k", 0, "some"); perdure.CodeOf(err) != perdure.CodeInvalid {
			t.Error(err)
		}
	})
}
