package node_test

import (
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/store/memory"
)

// An act that lacks what it needs is refused, and does no harm to the job, also while a run is in flight.
func TestIncompleteActLeavesTheJobAlone(t *testing.T) {
	n := start(t, memory.New(), node.Config{})
	submit(t, n, "type: t\nkey: k\nsteps:\n  a: {agent: x}\n")
	none := perdure.State(9)
	for _, act := range []perdure.Act{{}, {Verb: "undoo"}, {Verb: perdure.VerbSkip}, {Verb: perdure.VerbSettle, As: new(perdure.Done)},
		{Verb: perdure.VerbSettle, Step: "a", As: &none}, {Verb: perdure.VerbUndo, Step: "a"}} {
		act.Author = "op"
		if _, err := n.Act(t.Context(), "k", act); perdure.CodeOf(err) != perdure.CodeInvalid {
			t.Errorf("%+v: %v", act, err)
		}
	}
	onlyRun(t, n, perdure.OutcomeDone, "")
	if job := rest(t, n, "k"); job.Current != perdure.Done {
		t.Errorf("the job is %s", job.Current)
	}
}
