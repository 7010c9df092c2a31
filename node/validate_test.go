package node_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/node"
	consoles "github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/store/memory"
)

const warned = `
type: order
key: order-1
completeWithin: 1m
onFailure: undo
steps:
  notify: {agent: a, limits: [{name: ads-api}]}
  charge: {agent: payments, after: [notify], undo: {}, completeWithin: 2m, limits: [{name: few, amount: 2}]}
`

// validated validates a definition once the node is listed as alive.
func validated(t *testing.T, n *node.Node, text string) *consoles.Validation {
	t.Helper()
	for range 200 {
		nodes, err := n.ListNodes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(nodes) > 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	v, err := n.Validate(t.Context(), []byte(text), "application/yaml")
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// A validation has the plan with its warnings, the drawing and the job with the same key, and stores nothing.
func TestValidate(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		var l ledger
		n := start(t, store, node.Config{Agents: []*perdure.Agent{l.agent("a", nil)}})
		if _, err := n.PutLimit(t.Context(), "few", perdure.LimitSettings{Max: new(1)}); err != nil {
			t.Fatal(err)
		}
		v := validated(t, n, warned)
		kinds := []string{}
		for _, w := range v.Plan.Warnings {
			kinds = append(kinds, w.Kind+" "+w.Step)
			if w.Text == "" {
				t.Errorf("%+v has no text", w)
			}
		}
		if diff := cmp.Diff([]string{"noAgent charge", "deadline ", "limitNotSet notify", "limitTooSmall charge", "noUndo notify"}, kinds); diff != "" {
			t.Error(diff, v.Plan.Warnings)
		}
		limits := []consoles.PlanLimit{{Name: "ads-api", Steps: 1, Amount: 1}, {Name: "few", Steps: 1, Amount: 2, Max: new(1)}}
		if diff := cmp.Diff(limits, v.Plan.Limits); diff != "" {
			t.Error(diff)
		}
		if want := (consoles.LongestPath{Steps: 2, Time: perdure.Duration(7 * time.Minute)}); v.Plan.Steps != 2 || v.Plan.LongestPath != want || v.Existing != nil {
			t.Errorf("%+v", v)
		}
		if jobs, _, err := store.ListJobs(t.Context(), kernel.JobFilter{Limit: 1}); err != nil || len(jobs) > 0 {
			t.Error("a validation made a job", jobs, err)
		}
		if _, err := n.ShapeGraph(t.Context(), v.Graph.Hash+"x"); perdure.CodeOf(err) != perdure.CodeNotFound {
			t.Error(err)
		}
		job := submit(t, n, warned)
		if g, err := n.Graph(t.Context(), "order-1"); err != nil || cmp.Diff(g, v.Graph) != "" {
			t.Error("the drawing of the job is not that of the validation", err)
		}
		if e := validated(t, n, warned).Existing; e == nil || *e != (consoles.ExistingJob{Job: job.ID, Same: true}) {
			t.Errorf("%+v", e)
		}
		if e := validated(t, n, strings.Replace(warned, "completeWithin: 1m", "completeWithin: 2m", 1)).Existing; e == nil || *e != (consoles.ExistingJob{Job: job.ID}) {
			t.Errorf("%+v", e)
		}
		if e := validated(t, n, strings.Replace(warned, "key: order-1", "key: order", 1)).Existing; e != nil { // the start of a key names nothing
			t.Errorf("%+v", e)
		}
		id := strings.TrimPrefix(job.ID.String(), "job_")
		if e := validated(t, n, strings.Replace(warned, "key: order-1", "key: \""+id[:20]+"\"", 1)).Existing; e != nil { // neither does the start of an id
			t.Errorf("%+v", e)
		}
	})
}

// What a submission refuses as invalid, a validation refuses with the same error.
func TestValidateRefusesWhatASubmissionRefuses(t *testing.T) {
	n := start(t, memory.New(), node.Config{})
	for _, test := range []struct{ text, mediaType string }{
		{"type: t\nsteps:\n  a: {agent: x, aftr: [b]}\n", "application/yaml"},
		{"type: t\nsteps:\n  a: {agent: x, after: [b]}\n", "application/yaml"},
		{`{"type":"t"}`, "application/json"},
		{`{"type":"t",`, "application/json"},
		{`[]`, "application/json"},
		{"type: t\nsteps:\n  a: {agent: x}\n---\ntype: t\nsteps:\n  a: {agent: x}\n", "application/yaml"},
	} {
		_, err := n.Validate(t.Context(), []byte(test.text), test.mediaType)
		_, _, want := n.Submit(t.Context(), []byte(test.text), test.mediaType)
		if err == nil || cmp.Diff(want, err) != "" {
			t.Errorf("%q: %v, want %v", test.text, err, want)
		}
	}
}

// A node that has not started, as that of a command with --store, is no reason for a warning about agents.
func TestValidateWithoutANode(t *testing.T) {
	n := node.New(memory.New(), node.Config{})
	t.Cleanup(func() { n.Stop(t.Context()) })
	v, err := n.Validate(t.Context(), []byte("type: t\nsteps:\n  a: {agent: x}\n"), "application/yaml")
	if err != nil || len(v.Plan.Warnings) > 0 {
		t.Error(v, err)
	}
}
