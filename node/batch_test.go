package node_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/node"
)

const anyOrder = `{"type":"order","key":"order-${input.n}","steps":{"charge":{"agent":"a","with":{"amount":"${input.n}"},"undo":{}}}}`

func texts(list ...string) []json.RawMessage {
	out := make([]json.RawMessage, len(list))
	for i, s := range list {
		out[i] = json.RawMessage(s)
	}
	return out
}

// outcomes returns one word for each answer.
func outcomes(results []perdure.Submitted) string {
	words := make([]string, len(results))
	for i, d := range results {
		switch {
		case d.Err != nil && d != (perdure.Submitted{Err: d.Err}):
			words[i] = fmt.Sprintf("refused, and yet %+v", d)
		case d.Err != nil:
			words[i] = string(perdure.CodeOf(d.Err))
		case d.Created:
			words[i] = "created"
		default:
			words[i] = "known"
		}
	}
	return fmt.Sprint(words)
}

// Many jobs are submitted in one call, and each has its own answer, in order.
func TestSubmitAllAnswersJobsInOrder(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		var l ledger
		n := start(t, store, node.Config{Agents: []*perdure.Agent{l.agent("a", nil)}})
		results, err := n.SubmitAll(t.Context(), json.RawMessage(anyOrder), texts(
			`{"input":{"n":1}}`, `{"input":{}}`, `{"input":{"n":2}}`, `{"input":{"n":1}}`, `{"key":"order-2","input":{"n":3}}`,
			`{"inptu":{}}`, `[]`, `{"key":"own","input":{"n":4},"priority":9}`))
		if want := "[created invalid created known conflict invalid invalid created]"; err != nil || outcomes(results) != want {
			t.Fatalf("%v, %s, want %s", err, outcomes(results), want)
		}
		if results[0].Key != "order-1" || results[7].Key != "own" || results[3].ID != results[0].ID || results[2].ID == results[0].ID {
			t.Errorf("%+v", results)
		}
		again, err := n.SubmitAll(t.Context(), nil, texts(`{"type":"x"}`,
			`{"type":"order","key":"order-2","input":{"n":2},"steps":{"charge":{"agent":"a","with":{"amount":"${input.n}"},"undo":{}}}}`))
		if err != nil || outcomes(again) != "[invalid known]" || again[1].ID != results[2].ID {
			t.Errorf("%v, %s", err, outcomes(again))
		}
		for _, key := range []string{"order-1", "order-2", "own"} {
			if v := rest(t, n, key); v.Current != perdure.Done {
				t.Errorf("%+v", v)
			}
		}
		consistent(t, n)
	})
}

// If the backlog has room for a part of the jobs, that part is accepted. If no job is accepted, and each may be accepted
// later, the whole call is refused.
func TestSubmitAllAcceptsJobsUpToTheBacklog(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		n := start(t, store, node.Config{MaxBacklog: 2})
		jobs := texts(`{"input":{"n":1}}`, `{"input":{"n":2}}`, `{}`, `{"input":{"n":3}}`)
		results, err := n.SubmitAll(t.Context(), json.RawMessage(anyOrder), jobs)
		if want := "[created created invalid backlogFull]"; err != nil || outcomes(results) != want {
			t.Fatalf("%v, %s, want %s", err, outcomes(results), want)
		}
		if results, err = n.SubmitAll(t.Context(), json.RawMessage(anyOrder), jobs[2:]); err != nil || outcomes(results) != "[invalid backlogFull]" {
			t.Errorf("%v, %s", err, outcomes(results))
		}
		if results, err = n.SubmitAll(t.Context(), json.RawMessage(anyOrder), jobs[3:]); perdure.CodeOf(err) != perdure.CodeBacklogFull || results != nil {
			t.Errorf("%v, %s", err, outcomes(results))
		}
		if err := n.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err = n.SubmitAll(t.Context(), json.RawMessage(anyOrder), jobs); perdure.CodeOf(err) != perdure.CodeUnavailable {
			t.Error(err)
		}
	})
}
