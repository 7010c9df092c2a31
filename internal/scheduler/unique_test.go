package scheduler_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/store/memory"
)

func uniqueJob(n int, typ, unique string) string {
	return fmt.Sprintf("type: %s\nunique: {key: 'k-${input.c}', %s}\ninput: {c: 7, n: %d}\nsteps:\n  s: {agent: a, undo: {}}\n", typ, unique, n)
}

// F302: of many submissions at once with the same unique key, one makes a job, and the others are answered with it. Other
// types have keys of their own.
func TestUniqueSubmissionsAreOneJob(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		nodes := []*harness{open(t, store, scheduler.Config{}), open(t, store, scheduler.Config{})}
		var all sync.WaitGroup
		answers := make([]scheduler.Submitted, 40)
		for i := range answers {
			all.Go(func() {
				answers[i], _ = nodes[i%2].Submit(context.Background(), plan(t, uniqueJob(i, "t", "within: 1h")))
			})
		}
		all.Wait()
		made := 0
		for _, a := range answers {
			if a.ID != answers[0].ID || a.ID.IsZero() {
				t.Fatalf("several jobs: %+v", answers)
			}
			if a.Created {
				made++
			}
		}
		if made != 1 {
			t.Errorf("%d submissions say that they made the job", made)
		}
		set, err := nodes[0].SubmitAll(t.Context(), []*kernel.Plan{plan(t, uniqueJob(1, "u", "within: 1h")), plan(t, uniqueJob(2, "u", "while: unsettled")), plan(t, uniqueJob(3, "v", "within: 1h"))})
		if err != nil || !set[0].Created || set[1].Created || set[1].ID != set[0].ID || !set[2].Created {
			t.Errorf("a set of submissions: %+v, %v", set, err)
		}
	})
}

// A key is held for its time by the store's clock, whatever becomes of the job, and is free at its very end.
func TestUniqueWithinATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, memory.New(), scheduler.Config{})
		again := func() (perdure.JobID, bool) {
			t.Helper()
			did, err := d.Submit(t.Context(), plan(t, uniqueJob(int(time.Now().Unix()), "t", "within: 10m")))
			if err != nil {
				t.Fatal(err)
			}
			return did.ID, did.Created
		}
		first, _ := again()
		run := d.claim(protocol.Claim{Agent: "a", Holder: "h"})[0]
		d.report("h", run, perdure.OutcomeDone)
		time.Sleep(10*time.Minute - time.Millisecond)
		if id, created := again(); created || id != first {
			t.Errorf("before the end of the time: %s, created %v", id, created)
		}
		time.Sleep(time.Millisecond)
		second, created := again()
		if !created || second == first {
			t.Errorf("at the end of the time: %s, created %v", second, created)
		}
		if err := d.SweepUnique(t.Context()); err != nil {
			t.Fatal(err)
		}
		if id, created := again(); created || id != second {
			t.Errorf("after the sweep: %s, created %v", id, created)
		}
	})
}

// A key is held while its job is unsettled: parked included, not after it was undone, given up or done, and not again after
// a redo.
func TestUniqueWhileUnsettled(t *testing.T) {
	d := open(t, memory.New(), scheduler.Config{})
	n := 0
	again := func(first perdure.JobID) perdure.JobID {
		t.Helper()
		n++
		did, err := d.Submit(t.Context(), plan(t, uniqueJob(n, "t", "while: unsettled")))
		if err != nil || did.Created != first.IsZero() || !first.IsZero() && did.ID != first {
			t.Fatalf("submission %d: %+v, %v; want the job %s", n, did, err, first)
		}
		return did.ID
	}
	act := func(id perdure.JobID, verb perdure.Verb) {
		t.Helper()
		if err := d.Act(t.Context(), id, perdure.Act{Verb: verb, Author: "ann"}); err != nil {
			t.Fatal(err)
		}
	}
	none := perdure.JobID{}

	first := again(none)
	run := d.claim(protocol.Claim{Agent: "a", Holder: "h"})[0]
	again(first)
	d.report("h", run, perdure.OutcomeRejected) // parks the job
	again(first)
	act(first, perdure.VerbGiveUp)
	second := again(none)
	act(second, perdure.VerbUndo)
	third := again(none)
	act(second, perdure.VerbRedo) // it does not get the key back
	again(third)
	act(second, perdure.VerbUndo) // nor does it release that of the other job
	again(third)
	run = d.claim(protocol.Claim{Agent: "a", Holder: "h"})[0]
	d.report("h", run, perdure.OutcomeDone)
	again(none)
}

// A unique job that settles in the transaction that creates it holds nothing.
func TestUniqueJobThatSettlesAtOnceHoldsNothing(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		body := "type: t\nunique: {key: k, while: unsettled}\nsteps:\n  s: {agent: a, when: 'false'}\n"
		set, err := d.SubmitAll(t.Context(), []*kernel.Plan{plan(t, body), plan(t, body), plan(t, body)})
		if err != nil || !set[0].Created || !set[1].Created || !set[2].Created {
			t.Errorf("got %+v, %v", set, err)
		}
	})
}
