package scheduler_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/store/memory"
)

func (d *harness) send(s operate.Signal) *operate.SignalResult {
	d.t.Helper()
	if s.Name == "" {
		s.Name = "go"
	}
	r, err := d.SendSignal(d.t.Context(), s, perdure.JobID{})
	if err != nil {
		d.t.Fatal(err)
	}
	return r
}

func waitsFor(keys ...string) string {
	var b strings.Builder
	b.WriteString("type: t\nsteps:\n")
	for i, key := range keys {
		fmt.Fprintf(&b, "  s%d: {agent: signal, with: {name: go, key: %q}}\n", i, key)
	}
	return b.String()
}

// F141, F290, F294: senders and steps that wait for two topics each, in different orders, from two nodes. Each signal is received
// once, by a step of its key, and each step receives one.
func TestSignalsAndStepsMeet(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		const pairs = 30
		nodes := []*harness{open(t, store, scheduler.Config{Writers: 2}), open(t, store, scheduler.Config{Writers: 2})}
		var all sync.WaitGroup
		var matched atomic.Int64
		for i := range pairs {
			keys := []string{fmt.Sprint("k", i%3), fmt.Sprint("k", (i+1)%3)}
			all.Go(func() { nodes[i%2].submit(waitsFor(keys...)) })
			for n, key := range keys {
				all.Go(func() {
					r := nodes[n].send(operate.Signal{Key: key, ID: fmt.Sprint(i, ".", n), Data: json.RawMessage(fmt.Sprint(i))})
					matched.Add(int64(len(r.Matched)))
				})
			}
		}
		all.Wait()
		jobs, _, err := store.ListJobs(t.Context(), kernel.JobFilter{Limit: 2 * pairs})
		if err != nil || len(jobs) != pairs {
			t.Fatalf("%d jobs, %v", len(jobs), err)
		}
		seen := map[string]bool{}
		for _, j := range jobs {
			if j.Phase != perdure.Settled || j.Current != perdure.Done {
				t.Errorf("job %s is %s, %s", j.ID, j.Current, j.Phase)
			}
			for i := range 2 {
				p, err := store.Payload(t.Context(), kernel.StepRef{Job: j.ID, Index: i})
				var out struct{ ID string }
				if err != nil || p == nil || json.Unmarshal(p.Output, &out) != nil || out.ID == "" {
					t.Fatalf("step %d of %s: %v, %v", i, j.ID, p, err)
				}
				if seen[out.ID] {
					t.Errorf("signal %s was received twice", out.ID)
				}
				seen[out.ID] = true
			}
		}
		if len(seen) != 2*pairs {
			t.Errorf("%d signals were received, want %d", len(seen), 2*pairs)
		}
		t.Logf("%d of %d signals met a step that waited", matched.Load(), 2*pairs)
	})
}

// F290: steps of one job that begin to wait for the same topic in one transaction receive different signals.
func TestKeptSignalsForStepsOfOneJob(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		for _, id := range []string{"e1", "e2"} {
			d.send(operate.Signal{Key: "k", ID: id})
		}
		job := d.submit(waitsFor("k", "k", "k"))
		if j := d.job(job); j.Unsettled != 1 {
			t.Fatalf("%+v", j)
		}
		if r := d.send(operate.Signal{Key: "k", ID: "e3"}); len(r.Matched) != 1 || r.Matched[0] != job.String()+"/s2" {
			t.Errorf("%+v", r)
		}
		if j := d.job(job); j.Current != perdure.Done {
			t.Errorf("%+v", j)
		}
	})
}

// F141, F291: the same id has one effect while it is remembered, and the answer says what that was.
func TestSignalAgain(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		first := d.send(operate.Signal{Key: "k", ID: "e1"})
		if first.ID != "e1" || len(first.Matched) != 0 || first.Repeated {
			t.Errorf("%+v", first)
		}
		if again := d.send(operate.Signal{Key: "k", ID: "e1"}); len(again.Matched) != 0 || !again.Repeated {
			t.Errorf("%+v", again)
		}
		job := d.submit(waitsFor("k"))
		if j := d.job(job); j.Phase != perdure.Settled {
			t.Fatalf("%+v", j)
		}
		if again := d.send(operate.Signal{Key: "k", ID: "e1"}); len(again.Matched) != 1 || again.Matched[0] != job.String()+"/s0" || !again.Repeated {
			t.Errorf("%+v", again)
		}
		d.submit(waitsFor("k"))
		d.submit(waitsFor("k"))
		if again := d.send(operate.Signal{Key: "k", ID: "e1"}); !again.Repeated {
			t.Errorf("%+v", again)
		}
		if both := d.send(operate.Signal{Key: "k", To: operate.ToAll}); len(both.Matched) != 2 || both.Repeated || !strings.HasPrefix(both.ID, "sig_") {
			t.Errorf("%+v", both)
		}
		short := operate.Signal{Key: "x", ID: "e2", Keep: perdure.Duration(time.Second)}
		d.send(short)
		if _, ok := store.(*memory.Store); !ok {
			time.Sleep(1100 * time.Millisecond)
			if again := d.send(short); again.Repeated { // it was forgotten
				t.Errorf("%+v", again)
			}
		}
	})
}

// A signal to one job is received by its steps only, and one that is kept for it waits for them.
func TestSignalToOneJob(t *testing.T) {
	d := open(t, memory.New(), scheduler.Config{})
	first, second := d.submit(waitsFor("k")), d.submit(waitsFor("k"))
	to := func(job perdure.JobID) *operate.SignalResult {
		t.Helper()
		r, err := d.SendSignal(t.Context(), operate.Signal{Name: "go", Key: "k"}, job)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := to(second); len(r.Matched) != 1 || r.Matched[0] != second.String()+"/s0" {
		t.Errorf("%+v", r)
	}
	if r := to(second); len(r.Matched) != 0 {
		t.Errorf("%+v", r)
	}
	if j := d.job(first); j.Phase != perdure.Waiting {
		t.Errorf("%+v", j)
	}
	if err := d.Act(t.Context(), second, perdure.Act{Verb: perdure.VerbUndo, Author: "a"}); err != nil {
		t.Fatal(err)
	}
	if err := d.Act(t.Context(), second, perdure.Act{Verb: perdure.VerbRedo, Author: "a"}); err != nil {
		t.Fatal(err)
	}
	if j := d.job(second); j.Current != perdure.Done {
		t.Errorf("the signal that is kept for it was not received: %+v", j)
	}
	if _, err := d.SendSignal(t.Context(), operate.Signal{Name: "go", Key: "k"}, perdure.JobID{15: 9}); perdure.CodeOf(err) != perdure.CodeNotFound {
		t.Errorf("to no job: %v", err)
	}
}

// F293: a step that is undone at the same time has received the signal, or the signal is kept.
func TestSignalWhileTheJobIsUndone(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{Writers: 2})
		for i := range 20 {
			key := fmt.Sprint("k", i)
			job := d.submit(waitsFor(key))
			var both sync.WaitGroup
			var r *operate.SignalResult
			both.Go(func() { r = d.send(operate.Signal{Key: key}) })
			both.Go(func() {
				if err := d.Act(t.Context(), job, perdure.Act{Verb: perdure.VerbUndo, Author: "a"}); err != nil {
					t.Error(err)
				}
			})
			both.Wait()
			next := d.submit(waitsFor(key))
			if took := d.job(next).Current == perdure.Done; took == (len(r.Matched) == 1) {
				t.Errorf("received by %v, and kept: %v", r.Matched, took)
			}
		}
	})
}

// F295: signals above the bound are refused; a step that waits receives them in any case; and those that are over are deleted.
func TestBoundsOfSignals(t *testing.T) {
	store := memory.New()
	d := open(t, store, scheduler.Config{})
	d.SetSignalRoom(3, 5)
	send := func(key string) error {
		_, err := d.SendSignal(t.Context(), operate.Signal{Name: "go", Key: key, Keep: perdure.Duration(time.Second)}, perdure.JobID{})
		return err
	}
	for i := range 3 {
		if err := send(fmt.Sprint("k", i)); err != nil {
			t.Fatal(err)
		}
	}
	var e *perdure.Error
	if err := send("k3"); !errors.As(err, &e) || e.Code != perdure.CodeTooManyRequests || !strings.Contains(e.Error(), "3 signals are kept") || e.Hint == "" {
		t.Fatal(err)
	}
	d.submit(waitsFor("w"))
	if err := send("w"); err != nil {
		t.Errorf("for a step that waits: %v", err)
	}
	d.submit(waitsFor("w"))
	if err := send("w"); err != nil {
		t.Errorf("for a step that waits: %v", err)
	}
	d.submit(waitsFor("w"))
	if err := send("w"); perdure.CodeOf(err) != perdure.CodeTooManyRequests || !strings.Contains(err.Error(), "5 signals are stored") {
		t.Errorf("too many are remembered: %v", err)
	}
	time.Sleep(1100 * time.Millisecond)
	if err := d.SweepSignals(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := store.Update(t.Context(), func(tx kernel.Tx) error {
		kept, all, err := tx.CountSignals(9, 9)
		if kept+all != 0 {
			t.Errorf("%d kept and %d stored after the sweep", kept, all)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := send("k3"); err != nil {
		t.Error(err)
	}
}

// F297, F298: approvals and a rejection at the same time: the first that decides wins, and each approver counts once.
func TestApprovalsAtTheSameTime(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{Writers: 2})
		for range 10 {
			job := d.submit("type: t\nonFailure: undo\nsteps:\n  p: {agent: approval, with: {quorum: 2}}\n")
			var all sync.WaitGroup
			for _, a := range []perdure.Act{{Verb: perdure.VerbApprove, Author: "anna"}, {Verb: perdure.VerbApprove, Author: "anna"}, {Verb: perdure.VerbApprove, Author: "ben"}, {Verb: perdure.VerbReject, Author: "cleo"}} {
				all.Go(func() {
					a.Step = "p"
					if err := d.Act(t.Context(), job, a); err != nil && perdure.CodeOf(err) != perdure.CodeConflict {
						t.Error(err)
					}
				})
			}
			all.Wait()
			j := d.job(job)
			history, err := store.History(t.Context(), job, 0, 20)
			if err != nil {
				t.Fatal(err)
			}
			approved := map[string]int{}
			rejected := 0
			for _, h := range history {
				switch h.Event {
				case "approve":
					approved[h.Author]++
				case "reject":
					rejected++
				}
			}
			if done := approved["anna"] == 1 && approved["ben"] == 1 && rejected == 0; j.Phase != perdure.Settled || approved["anna"] > 1 || done != (j.Current == perdure.Done) || rejected > 1 || !done && rejected == 0 {
				t.Errorf("%s %s, desired %s: %v", j.Current, j.Phase, j.Desired, history)
			}
		}
	})
}
