package scheduler_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/store/memory"
)

// patient is the patience of agent a in these tests.
const patient = time.Second

func (d *harness) setPatience() {
	d.t.Helper()
	if err := d.PutAgent(d.t.Context(), "a", perdure.AgentSettings{Ageing: perdure.Duration(perdure.DefaultAgeing), Patience: perdure.Duration(patient)}); err != nil {
		d.t.Fatal(err)
	}
}

// claimFree claims at host name with this many slots free.
func (d *harness) claimFree(name string, slots int64) []string {
	d.t.Helper()
	return stepsOf(d.claim(protocol.Claim{Agent: "a", Holder: "host/" + name + "/i", Max: 9, Host: name, Free: perdure.Amounts{"slots": slots}}))
}

// reserved returns the names of the hosts in whose rows there is a reservation, with the steps.
func (d *harness) reserved() (found []string) {
	d.t.Helper()
	hosts, err := d.store.ListHosts(d.t.Context(), "", 100)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, h := range hosts {
		if !h.Reservation.Since.IsZero() {
			found = append(found, h.Name+" "+h.Reservation.Step)
		}
	}
	return found
}

func jobOf(step, requires, within string) string {
	return fmt.Sprintf("type: t\nsteps:\n  %s: {agent: a, requires: %s, completeWithin: %s}\n", step, requires, within)
}

// crowded registers host h1 with 4 slots, of which one is taken for up to an hour, and submits a step that takes all of them.
// When it returns, the host is reserved for this step.
func crowded(d *harness) (held perdure.Run, large perdure.JobID) {
	d.t.Helper()
	d.setPatience()
	d.register("h1", perdure.Amounts{"slots": 4, "gpu": 2})
	d.submit(jobOf("first", "{slots: 1}", "1h"))
	held = d.claim(protocol.Claim{Agent: "a", Holder: "host/h1/i", Max: 1, Host: "h1", Free: perdure.Amounts{"slots": 4}})[0]
	large = d.submit(jobOf("large", "{slots: 4}", "1m"))
	if got := d.claimFree("h1", 3); got != nil {
		d.t.Fatal("granted", got)
	}
	time.Sleep(patient + 100*time.Millisecond)
	d.until("h1 large", func() bool { d.claimFree("h1", 3); return len(d.reserved()) > 0 })
	return held, large
}

func (d *harness) until(what string, ok func() bool) {
	d.t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			d.t.Fatal("not in time:", what)
		}
	}
}

// A reserved host gets the runs that do not delay the step: those that end before it has room, and those that leave room.
// The step is placed when it has room, and the reservation ends (G6, F178).
func TestReservedHostGetsOnlyRunsThatDoNotDelayTheStep(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		held, _ := crowded(d)
		if got := d.reserved(); !slices.Equal(got, []string{"h1 large"}) {
			t.Fatal("reserved:", got)
		}
		d.submit(jobOf("long", "{slots: 1}", "2h"))
		d.submit(jobOf("short", "{slots: 2}", "1m"))
		d.submit(jobOf("gpu", "{gpu: 1}", "2h"))
		c := protocol.Claim{Agent: "a", Holder: "host/h1/i", Max: 9, Host: "h1", Free: perdure.Amounts{"slots": 3, "gpu": 2}}
		runs := d.claim(c)
		if got := stepsOf(runs); !slices.Equal(got, []string{"short", "gpu"}) {
			t.Fatal("granted:", got)
		}
		for _, run := range append(runs[:1:1], held) {
			d.report("host/h1/i", run, perdure.OutcomeDone)
		}
		if got := d.claimFree("h1", 4); !slices.Equal(got, []string{"large"}) {
			t.Fatal("with room:", got)
		}
		if got := d.reserved(); got != nil {
			t.Error("reserved:", got)
		}
	})
}

// A reservation ends when its step is undone, when the step is dispatched at another host, and when its host is drained or
// silent, or has become too small. Then the host gets other runs, and the step can reserve another host (F179).
func TestReservationEnds(t *testing.T) {
	small := func(d *harness, heartbeat time.Duration, slots int64) {
		h := kernel.Host{Name: "h1", Incarnation: "i", Capacity: perdure.Amounts{"slots": slots}, Heartbeat: heartbeat}
		if _, _, _, err := d.RegisterHost(d.t.Context(), &h, false); err != nil {
			d.t.Fatal(err)
		}
	}
	for name, end := range map[string]func(d *harness, large perdure.JobID){
		"undone": func(d *harness, large perdure.JobID) {
			if err := d.Act(d.t.Context(), large, perdure.Act{Verb: perdure.VerbUndo, Author: "anna"}); err != nil {
				d.t.Fatal(err)
			}
		},
		"elsewhere": func(d *harness, _ perdure.JobID) {
			d.register("h2", perdure.Amounts{"slots": 4})
			if got := d.claimFree("h2", 4); !slices.Equal(got, []string{"large"}) {
				d.t.Fatal("another host:", got)
			}
		},
		"drained": func(d *harness, _ perdure.JobID) { d.drain("h1", true) },
		"silent": func(d *harness, _ perdure.JobID) {
			small(d, time.Second, 4)
			time.Sleep(1100 * time.Millisecond)
		},
		"too small": func(d *harness, _ perdure.JobID) { small(d, time.Minute, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			everystore.Run(t, func(t *testing.T, store kernel.Store) {
				d := open(t, store, scheduler.Config{})
				_, large := crowded(d)
				end(d, large)
				if name == "drained" || name == "silent" || name == "too small" { // the step reserves another host, and only that one
					d.register("h2", perdure.Amounts{"slots": 4})
					d.submit(jobOf("other", "{slots: 1}", "1h"))
					if got := d.claimFree("h2", 1); len(got) != 1 {
						t.Fatal("granted:", got)
					}
					d.until("h2 large", func() bool { d.claimFree("h2", 3); return slices.Equal(d.reserved(), []string{"h2 large"}) })
					d.drain("h1", false)
					small(d, time.Minute, 4)
				}
				d.submit(jobOf("long", "{slots: 1}", "2h"))
				if got := d.claimFree("h1", 3); !slices.Equal(got, []string{"long"}) {
					t.Error("granted:", got)
				}
			})
		})
	}
}

// A node is killed after it has reserved a host: the others keep to it (F165).
func TestReservationOutlivesItsNode(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		held, _ := crowded(d)
		d.submit(jobOf("long", "{slots: 1}", "2h"))
		other := open(t, store, scheduler.Config{})
		if got := other.claimFree("h1", 3); got != nil {
			t.Error("granted:", got)
		}
		other.report("host/h1/i", held, perdure.OutcomeDone)
		if got := other.claimFree("h1", 4); !slices.Equal(got, []string{"large"}) {
			t.Error("with room:", got)
		}
	})
}

// Two steps want the only host. One of them reserves it. The other waits for its turn, and gets it (F166).
func TestHostIsReservedForOneStep(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		held, _ := crowded(d)
		d.submit(jobOf("second", "{slots: 4}", "1m"))
		time.Sleep(patient + 200*time.Millisecond)
		if d.claimFree("h1", 3); !slices.Equal(d.reserved(), []string{"h1 large"}) {
			t.Fatal("reserved:", d.reserved())
		}
		d.report("host/h1/i", held, perdure.OutcomeDone)
		run := d.claim(protocol.Claim{Agent: "a", Holder: "host/h1/i", Max: 9, Host: "h1", Free: perdure.Amounts{"slots": 4}})
		if got := stepsOf(run); !slices.Equal(got, []string{"large"}) {
			t.Fatal("granted:", got)
		}
		d.report("host/h1/i", run[0], perdure.OutcomeDone)
		d.submit("priority: 9\n" + jobOf("urgent", "{slots: 1}", "1h")) // it goes first, and the step does not fit any more
		run = d.claim(protocol.Claim{Agent: "a", Holder: "host/h1/i", Max: 9, Host: "h1", Free: perdure.Amounts{"slots": 4}})
		if got := stepsOf(run); !slices.Equal(got, []string{"urgent"}) {
			t.Fatal("granted:", got)
		}
		d.until("h1 second", func() bool { d.claimFree("h1", 3); return slices.Equal(d.reserved(), []string{"h1 second"}) })
		d.report("host/h1/i", run[0], perdure.OutcomeDone)
		if got := d.claimFree("h1", 4); !slices.Equal(got, []string{"second"}) {
			t.Error("granted:", got)
		}
	})
}

// Two nodes serve claims of many hosts that could be reserved for one step, all at once. One host is reserved (F167).
func TestTwoNodesReserveOneHostForAStep(t *testing.T) {
	url := pgtest.Start(t)
	nodes := []*harness{open(t, everystore.Postgres(t, url), scheduler.Config{Writers: 2}), open(t, everystore.Postgres(t, url), scheduler.Config{Writers: 2})}
	d := nodes[0]
	d.setPatience()
	const hosts = 8
	for i := range hosts {
		name := fmt.Sprint("h", i)
		d.register(name, perdure.Amounts{"slots": 4})
		d.submit(jobOf("first", "{slots: 1}", "1h"))
		if got := d.claimFree(name, 1); len(got) != 1 {
			t.Fatal("granted", got)
		}
	}
	d.submit(jobOf("large", "{slots: 4}", "1m"))
	time.Sleep(patient + 100*time.Millisecond)
	for range 3 {
		var all sync.WaitGroup
		for i := range hosts {
			all.Go(func() { nodes[i%2].claimFree(fmt.Sprint("h", i), 3) })
		}
		all.Wait()
		time.Sleep(time.Second)
	}
	if got := d.reserved(); len(got) != 1 {
		t.Error("reserved:", got)
	}
}

// A step that takes all of a host is placed although the host never runs out of small steps (G6, F178).
func TestLargeStepIsPlacedAmongSmallOnes(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		d.setPatience()
		m := &machine{name: "h1", capacity: perdure.Amounts{"slots": 4}}
		m.free = maps.Clone(m.capacity)
		m.holder = d.register("h1", m.capacity)
		for range 8 {
			d.submit(jobOf("small", "{slots: 1}", "1m"))
		}
		large := d.submit("priority: 0\n" + jobOf("large", "{slots: 4}", "1m"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var placed atomic.Bool
		var runs, working sync.WaitGroup
		working.Go(func() {
			defer runs.Wait()
			for n := 0; ctx.Err() == nil && !placed.Load(); n++ {
				m.mu.Lock()
				free := maps.Clone(m.free)
				m.mu.Unlock()
				granted, err := d.Claim(ctx, protocol.Claim{Agent: "a", Holder: m.holder, Max: 4, Wait: 50 * time.Millisecond, Host: "h1", Free: free})
				if err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
				for i, run := range granted {
					m.take(run.Requires, 1)
					if run.Job == large {
						placed.Store(true)
					}
					runs.Go(func() {
						d.submit("priority: 1\n" + jobOf("small", "{slots: 1}", "1m")) // the stream of small steps does not end, and goes first
						time.Sleep(time.Duration(200+70*((n+i)%4)) * time.Millisecond)
						if res := d.report(m.holder, run, perdure.OutcomeDone); !res.Accepted {
							t.Error(res)
						}
						m.take(run.Requires, -1)
					})
				}
			}
		})
		working.Wait()
		if !placed.Load() {
			t.Error("the large step was not placed")
		}
		if got := d.reserved(); got != nil {
			t.Error("reserved:", got)
		}
	})
}

// F257: the claims of a host divide what is free of it, and small steps have ended one after the other. The step that has waited
// for longer than its patience reserves the host although each claim offers one slot only, and as soon as the host has room, the
// claims with a part of it are answered, so that the next one offers all.
func TestHostWithDividedClaimsIsReserved(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		d.setPatience()
		d.register("h1", perdure.Amounts{"slots": 2})
		d.submit(jobOf("first", "{slots: 1}", "1h"))
		d.submit(jobOf("second", "{slots: 1}", "1h"))
		runs := d.claim(protocol.Claim{Agent: "a", Holder: "host/h1/i", Max: 2, Host: "h1", Free: perdure.Amounts{"slots": 2}})
		if len(runs) != 2 {
			t.Fatal("granted", runs)
		}
		d.submit(jobOf("large", "{slots: 2}", "1m"))
		time.Sleep(patient + 100*time.Millisecond)
		var parts sync.WaitGroup
		part := func() {
			parts.Go(func() {
				began := time.Now()
				got, err := d.Claim(t.Context(), protocol.Claim{Agent: "a", Holder: "host/h1/i", Max: 1, Wait: 30 * time.Second, Host: "h1", Free: perdure.Amounts{"slots": 1}})
				if took := time.Since(began); err != nil || len(got) != 0 || took > 20*time.Second {
					t.Errorf("%v, %v after %s", stepsOf(got), err, took)
				}
			})
		}
		part()
		d.until("h1 large", func() bool { return slices.Equal(d.reserved(), []string{"h1 large"}) })
		d.submit(jobOf("later", "{slots: 1}", "2h")) // it would delay the large step
		for _, run := range runs {                   // one of the two is still counted by the host, whose claim offers one slot
			d.report("host/h1/i", run, perdure.OutcomeDone)
		}
		part()
		parts.Wait()
		if got := d.claimFree("h1", 2); !slices.Equal(got, []string{"large"}) {
			t.Error("with all that is free:", got)
		}
	})
}

// F258: all runs of a host end at once, again and again, and small steps come first in the order. The host is reserved by what it
// is granted, and its next claim gets the large step.
func TestHostWhoseRunsEndTogetherIsReserved(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		d.setPatience()
		d.register("h1", perdure.Amounts{"slots": 2})
		for range 6 {
			d.submit("priority: 1\n" + jobOf("small", "{slots: 1}", "1m"))
		}
		d.submit(jobOf("large", "{slots: 2}", "1m"))
		time.Sleep(patient + 100*time.Millisecond)
		for i, want := range [][]string{{"small", "small"}, {"large"}} {
			runs := d.claim(protocol.Claim{Agent: "a", Holder: "host/h1/i", Max: 2, Host: "h1", Free: perdure.Amounts{"slots": 2}})
			if got := stepsOf(runs); !slices.Equal(got, want) {
				t.Fatalf("claim %d: %v", i, got)
			}
			for _, run := range runs {
				d.report("host/h1/i", run, perdure.OutcomeDone)
			}
		}
	})
}

// F259: a step with the same demand as the one that has reserved the host, but of a higher priority and with a longer run, is
// refused. The search finds the step that has reserved the host all the same.
func TestReservedHostTakesItsStepAmongOthersLikeIt(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		held, _ := crowded(d)
		d.submit("priority: 9\n" + jobOf("other", "{slots: 4}", "2h"))
		d.report("host/h1/i", held, perdure.OutcomeDone)
		if got := d.claimFree("h1", 4); !slices.Equal(got, []string{"large"}) {
			t.Error("granted:", got)
		}
	})
}

// A host has as many runs as MaxHostRuns at most, whatever is free of it.
func TestRunsOfAHostAreBounded(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		d.register("h1", perdure.Amounts{"slots": 5000})
		var body strings.Builder
		body.WriteString("type: t\nsteps:\n")
		for i := range perdure.MaxHostRuns + 10 {
			fmt.Fprintf(&body, "  s%d: {agent: a, requires: {slots: 1}}\n", i)
		}
		d.submit(body.String())
		granted := 0
		for range 20 {
			runs := d.claim(protocol.Claim{Agent: "a", Holder: "host/h1/i", Max: perdure.MaxBatch, Host: "h1", Free: perdure.Amounts{"slots": int64(5000 - granted)}})
			granted += len(runs)
		}
		if granted != perdure.MaxHostRuns {
			t.Errorf("%d runs", granted)
		}
	})
}

// A host that was silent for a week is removed, with its alert, unless it has runs (F212).
func TestSilentHostsAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, memory.New(), scheduler.Config{})
		for _, name := range []string{"busy", "full", "gone"} {
			d.register(name, perdure.Amounts{"slots": 1})
		}
		alerts := func(want int) {
			t.Helper()
			if open, err := d.store.Alerts(t.Context(), kernel.AlertFilter{Kind: perdure.AlertNoSpace}); err != nil || len(open) != want {
				t.Errorf("%d alerts expected: %+v, %v", want, open, err)
			}
		}
		d.register("full", perdure.Amounts{"slots": 0})
		d.submit(jobOf("s", "{slots: 1}", "8760h"))
		if got := d.claimFree("busy", 1); len(got) != 1 {
			t.Fatal("granted", got)
		}
		sweep := func(want ...string) {
			t.Helper()
			if err := d.SweepHosts(t.Context()); err != nil {
				t.Fatal(err)
			}
			hosts, err := d.store.ListHosts(t.Context(), "", 9)
			var names []string
			for _, h := range hosts {
				names = append(names, h.Name)
			}
			if !slices.Equal(names, want) {
				t.Errorf("hosts: %v, %v", names, err)
			}
		}
		time.Sleep(perdure.ForgetHostAfter)
		sweep("busy", "full", "gone")
		alerts(1)
		time.Sleep(time.Second)
		sweep("busy")
		alerts(0)
		page, err := d.store.AuditLog(t.Context(), kernel.AuditFilter{Limit: 9})
		if err != nil || len(page) == 0 || page[0].Act != "deleteHost" || page[0].Target != "gone" {
			t.Errorf("audit: %+v, %v", page, err)
		}
	})
}
