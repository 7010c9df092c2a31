package scheduler

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"perdure"
	"perdure/store/memory"
)

type static string

func (s static) Render(*perdure.Scope) (json.RawMessage, error) { return json.RawMessage(s), nil }
func (static) Refs() []int                                      { return nil }

func chain(names ...string) *perdure.Plan {
	d := &perdure.Definition{Type: "t"}
	p := &perdure.Plan{Definition: d, Index: map[string]int{}}
	for _, n := range names {
		d.Steps = append(d.Steps, perdure.StepDefinition{Name: n, Agent: "a", Undo: &perdure.UndoDefinition{}})
	}
	for i, n := range names {
		ps := perdure.PlanStep{StepDefinition: &d.Steps[i], Do: static(`{}`)}
		if i > 0 {
			ps.After = []int{i - 1}
		}
		if i < len(names)-1 {
			ps.Before = []int{i + 1}
		}
		p.Steps = append(p.Steps, ps)
		p.Index[n] = i
	}
	p.Canonical, _ = json.Marshal(d)
	return p
}

func TestSmoke(t *testing.T) {
	store := memory.New()
	s := New(Config{Store: store})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { s.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	id, created, err := s.Submit(ctx, chain("a", "b", "c"))
	if err != nil || !created {
		t.Fatal(err)
	}
	work := func(dir perdure.Direction, want ...string) {
		for _, name := range want {
			runs, err := s.Claim(ctx, perdure.ClaimRequest{Agent: "a", Holder: "h", Max: 5, Wait: time.Second})
			if err != nil || len(runs) != 1 || runs[0].Step != name || runs[0].Direction != dir {
				t.Fatalf("%s: %v %+v", name, err, runs)
			}
			res, err := s.Report(ctx, "h", []perdure.Report{{Job: id, Step: name, Run: runs[0].Run, Outcome: perdure.OutcomeDone}})
			if err != nil || !res[0].Accepted {
				t.Fatal(err, res)
			}
		}
	}
	work(perdure.Do, "a", "b", "c")
	j, _ := store.Job(ctx, id)
	if j.Phase != perdure.Settled || j.Current != perdure.Done {
		t.Fatalf("%+v", j)
	}
	if err := s.Act(ctx, id, perdure.Act{Verb: perdure.VerbUndo, Author: "me"}); err != nil {
		t.Fatal(err)
	}
	work(perdure.Undo, "c", "b", "a")
	j, _ = store.Job(ctx, id)
	if j.Phase != perdure.Settled || j.Current != perdure.Undone {
		t.Fatalf("%+v", j)
	}
}
