package node_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/node"
)

// F306: jobs are made from the version that is current, or that the submission names, and keep it whatever is promoted or
// deleted later.
func TestStoredDefinitionsMakeJobs(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		n := start(t, store, node.Config{})
		put := func(agent string, version int, created bool) {
			t.Helper()
			body := fmt.Sprintf("type: order\nkey: order-${input.id}\ninputSchema: {required: [id]}\nsteps: {a: {agent: %s, with: {amount: \"${input.amount}\"}}}\n", agent)
			v, did, err := n.PutDefinition(t.Context(), "order", []byte(body), "application/yaml", "ann")
			if err != nil || v.Version != version || did != created {
				t.Fatalf("put: %+v, created %v, %v; want version %d", v, did, err, version)
			}
		}
		submit := func(body, from, agent string) {
			t.Helper()
			job, created, err := n.Submit(t.Context(), []byte(body), "application/json")
			if err != nil || !created || job.MadeFrom != from || job.Steps[0].Agent != agent {
				t.Fatalf("%s: %+v, created %v, %v; want %s", body, job, created, err, from)
			}
		}
		put("one", 1, true)
		put("two", 2, true)
		put("one", 1, false)
		submit(`{"definition":"order","input":{"id":1,"amount":5}}`, "order@1", "one")
		submit(`{"definition":"order@2","input":{"id":2,"amount":5},"labels":{"a":"b"},"priority":3}`, "order@2", "two")
		if _, err := n.PromoteDefinition(t.Context(), "order", 2, "ann"); err != nil {
			t.Fatal(err)
		}
		submit(`{"definition":"order","input":{"id":3,"amount":5}}`, "order@2", "two")

		results, err := n.SubmitAll(t.Context(), json.RawMessage(`"order"`), []json.RawMessage{[]byte(`{"input":{"id":4,"amount":1}}`), []byte(`{"input":{"amount":1}}`), []byte(`{"key":"own","input":{"id":6,"amount":1}}`)})
		if err != nil || results[0].Err != nil || results[2].Err != nil || results[0].Key != "order-4" || results[2].Key != "own" {
			t.Fatalf("a batch: %+v, %v", results, err)
		}
		if perdure.CodeOf(results[1].Err) != perdure.CodeInvalid {
			t.Errorf("an input without id: %v", results[1].Err)
		}
		if v, err := n.Job(t.Context(), "order-4", 0); err != nil || v.MadeFrom != "order@2" {
			t.Errorf("a job of the batch: %+v, %v", v, err)
		}

		if err := n.DeleteDefinition(t.Context(), "order@2", "ann"); perdure.CodeOf(err) != perdure.CodeConflict {
			t.Errorf("the current version is deleted: %v", err)
		}
		if err := n.DeleteDefinition(t.Context(), "order@1", "ann"); err != nil {
			t.Fatal(err)
		}
		put("one", 3, true) // no number is used twice
		if v, err := n.Job(t.Context(), "order-1", 0); err != nil || v.MadeFrom != "order@1" || v.Steps[0].Agent != "one" {
			t.Errorf("a job of a deleted version: %+v, %v", v, err)
		}
		for body, want := range map[string]perdure.Code{
			`{"definition":"order@1","input":{"id":7,"amount":1}}`:          perdure.CodeNotFound,
			`{"definition":"none","input":{}}`:                              perdure.CodeNotFound,
			`{"definition":"order@0","input":{}}`:                           perdure.CodeInvalid,
			`{"definition":"a b","input":{}}`:                               perdure.CodeInvalid,
			`{"definition":{"type":"t","steps":{}},"input":{}}`:             perdure.CodeInvalid,
			`{"definition":"order","input":{"id":8,"amount":1},"steps":{}}`: perdure.CodeInvalid,
			`{"definition":"order","input":{"id":9}}`:                       perdure.CodeInvalid,
		} {
			if _, _, err := n.Submit(t.Context(), []byte(body), "application/json"); perdure.CodeOf(err) != want {
				t.Errorf("%s: %v, want %s", body, err, want)
			}
		}
		if err := n.DeleteDefinition(t.Context(), "order", "ann"); err != nil {
			t.Fatal(err)
		}
		page, err := n.ListDefinitions(t.Context(), 10, "")
		if err != nil || len(page.Items) != 0 {
			t.Errorf("after the last was deleted: %+v, %v", page, err)
		}
	})
}

// A definition that is wrong whatever its input is, or too large, is not stored.
func TestBadStoredDefinitionsAreRefused(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		n := start(t, store, node.Config{})
		large := `{"type":"t","labels":{},"input":"` + strings.Repeat("x", perdure.MaxStoredBytes) + `","steps":{"a":{"agent":"x"}}}`
		for body, want := range map[string]perdure.Code{
			`{"type":"t"}`: perdure.CodeInvalid,
			`{"type":"t","steps":{"a":{"agent":"x","with":"${steps.b.output}"}}}`: perdure.CodeInvalid,
			`{"type":"t","steps":{"a":{"agent":"x","with":"${input."}}}`:          perdure.CodeInvalid,
			`{"type":`: perdure.CodeMalformed,
			large:      perdure.CodeTooLarge,
		} {
			if v, _, err := n.PutDefinition(t.Context(), "t", []byte(body), "application/json", "ann"); perdure.CodeOf(err) != want {
				t.Errorf("%.80s: %+v, %v, want %s", body, v, err, want)
			}
		}
		if _, _, err := n.PutDefinition(t.Context(), "a@1", []byte(`{"type":"t","steps":{"a":{"agent":"x"}}}`), "application/json", "ann"); perdure.CodeOf(err) != perdure.CodeInvalid {
			t.Errorf("a name with a version: %v", err)
		}
	})
}
