package scheduler_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/protocol"
)

// register registers a host, with labels NAME=VALUE, and returns its holder.
func (d *harness) register(name string, capacity perdure.Amounts, labels ...string) string {
	d.t.Helper()
	h := kernel.Host{Name: name, Incarnation: "i", Capacity: capacity, Labels: map[string]string{}, Heartbeat: time.Minute}
	for _, l := range labels {
		k, v, _ := strings.Cut(l, "=")
		h.Labels[k] = v
	}
	row, _, _, err := d.RegisterHost(d.t.Context(), &h, false)
	if err != nil {
		d.t.Fatal(err)
	}
	return row.Holder()
}

func (d *harness) drain(name string, draining bool) {
	d.t.Helper()
	if _, err := d.ChangeHost(d.t.Context(), "drainHost", name, "anna", "", func(h *kernel.Host, _ time.Time) { h.Draining = draining }); err != nil {
		d.t.Fatal(err)
	}
}

func stepsOf(runs []perdure.Run) (steps []string) {
	for _, r := range runs {
		steps = append(steps, r.Step)
	}
	return steps
}

// F266: a host that was removed is not registered again by the process that has registered it before; a new process does so.
func TestRemovedHostStaysRemoved(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		d.register("h1", perdure.Amounts{"slots": 1})
		h := kernel.Host{Name: "h1", Incarnation: "i", Capacity: perdure.Amounts{"slots": 1}, Labels: map[string]string{}, Heartbeat: time.Minute}
		if _, _, created, err := d.RegisterHost(t.Context(), &h, true); err != nil || created {
			t.Fatal(created, err)
		}
		d.drain("h1", true)
		if err := d.DeleteHost(t.Context(), "h1", "anna"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, _, _, err := d.RegisterHost(t.Context(), &h, true); perdure.CodeOf(err) != perdure.CodeNotFound {
				t.Fatal(err)
			}
		}
		if row, _, created, err := d.RegisterHost(t.Context(), &h, false); err != nil || !created || row.Draining {
			t.Fatal(row, created, err)
		}
	})
}

const mixed = `type: t
steps:
  big: {agent: a, requires: {cpu: 8}}
  gpu: {agent: a, requires: {cpu: 1, labels: {gpu: "*"}}}
  one: {agent: a, requires: {cpu: 1.5}}
  two: {agent: a, requires: {cpu: 1.5}}
  slot: {agent: a, requires: {}}
  none: {agent: a}
`

// A claim of a host is granted the steps that fit into what is free, in order, however many others come before them. A
// repeated claim returns the same runs. A claim without a host is granted steps without a demand (F177).
func TestClaimOfAHostTakesWhatFits(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		holder := d.register("h1", perdure.Amounts{"cpu": 4000, "slots": 4})
		d.submit(mixed)
		c := protocol.Claim{Agent: "a", Holder: holder, Max: 9, RequestID: "1", Host: "h1", Free: perdure.Amounts{"cpu": 2000, "slots": 1}}
		runs := d.claim(c)
		if got := stepsOf(runs); !slices.Equal(got, []string{"one", "slot"}) {
			t.Fatal("granted", got)
		}
		if r := runs[0].Requires; r == nil || r.Amounts["cpu"] != 1500 {
			t.Errorf("the run takes %+v", r)
		}
		if again := d.claim(c); !slices.Equal(stepsOf(again), stepsOf(runs)) || again[0].Number != runs[0].Number {
			t.Errorf("repeated: %v", again)
		}
		c.RequestID, c.Free = "2", perdure.Amounts{"cpu": 500}
		if got := stepsOf(d.claim(c)); got != nil {
			t.Errorf("without room: %v", got)
		}
		if got := stepsOf(d.claim(protocol.Claim{Agent: "a", Holder: "x", Max: 9})); !slices.Equal(got, []string{"none"}) {
			t.Errorf("without a host: %v", got)
		}
		c.RequestID, c.Free = "3", perdure.Amounts{"cpu": 4000, "slots": 4}
		if got := stepsOf(d.claim(c)); !slices.Equal(got, []string{"two"}) {
			t.Errorf("the rest: %v", got)
		}
		gpu := d.register("h2", perdure.Amounts{"cpu": 16000}, "gpu=l4")
		if got := stepsOf(d.claim(protocol.Claim{Agent: "a", Holder: gpu, Max: 9, Host: "h2", Free: perdure.Amounts{"cpu": 16000}})); !slices.Equal(got, []string{"big", "gpu"}) {
			t.Errorf("a larger host: %v", got)
		}
	})
}

// A host that reports no capacity has an alert, once, which is closed when it has some again, or is removed (F253). It gets no
// run meanwhile, and its claims are no error.
func TestHostWithoutSpaceHasAnAlert(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		has, none := perdure.Amounts{"slots": 2}, perdure.Amounts{"slots": 0}
		alerts := func(want int) {
			t.Helper()
			open, err := store.Alerts(t.Context(), kernel.AlertFilter{Kind: perdure.AlertNoSpace})
			if err != nil || len(open) != want || want > 0 && open[0].Name != "h1" {
				t.Errorf("%d alerts expected: %+v, %v", want, open, err)
			}
		}
		holder := d.register("h1", has)
		d.register("h2", has)
		alerts(0)
		d.submit("type: t\nsteps:\n  a: {agent: a}\n")
		claim := protocol.Claim{Agent: "a", Holder: holder, Max: 9, Host: "h1", Free: has}
		for range 2 {
			d.register("h1", none)
			alerts(1)
			if runs := d.claim(claim); len(runs) > 0 {
				t.Errorf("%v", runs)
			}
		}
		d.register("h2", has)
		alerts(1)
		d.register("h1", has)
		alerts(0)
		runs := d.claim(claim)
		if len(runs) != 1 {
			t.Fatalf("%v", runs)
		}
		d.report(holder, runs[0], perdure.OutcomeDone)
		d.register("h1", none)
		alerts(1)
		d.drain("h1", true)
		if err := d.DeleteHost(t.Context(), "h1", "anna"); err != nil {
			t.Fatal(err)
		}
		alerts(0)
		all, err := store.Alerts(t.Context(), kernel.AlertFilter{Kind: perdure.AlertNoSpace, Closed: true})
		if err != nil || len(all) != 2 || all[0].ClosedBy == "" {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

// A step of a host's agent that has no demand takes a slot of the host.
func TestStepWithoutADemandTakesASlot(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		holder := d.register("h1", perdure.Amounts{"slots": 2})
		d.submit("type: t\nsteps:\n  a: {agent: a}\n  b: {agent: a}\n  c: {agent: a}\n")
		if got := stepsOf(d.claim(protocol.Claim{Agent: "a", Holder: holder, Max: 9, Host: "h1", Free: perdure.Amounts{"slots": 2}})); len(got) != 2 {
			t.Error(got)
		}
	})
}

// A waiting claim of a host is granted a step when one becomes ready that fits, and steps that do not fit do not reach it.
func TestWaitingClaimOfAHostIsServed(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		holder := d.register("h1", perdure.Amounts{"cpu": 1000})
		granted := make(chan []perdure.Run, 1)
		var running sync.WaitGroup
		running.Go(func() {
			runs, err := d.Claim(t.Context(), protocol.Claim{Agent: "a", Holder: holder, Max: 9, Wait: 20 * time.Second, Host: "h1", Free: perdure.Amounts{"cpu": 1000}})
			if err != nil {
				t.Error(err)
			}
			granted <- runs
		})
		d.awaitWaitingClaim("a")
		d.submit("type: t\nsteps:\n  big: {agent: a, requires: {cpu: 2}}\n")
		d.submit("type: t\nflow: chain\nsteps:\n  first: {agent: b}\n  fits: {agent: a, requires: {cpu: 1}}\n")
		run := d.claim(protocol.Claim{Agent: "b", Holder: "x"})[0]
		d.report("x", run, perdure.OutcomeDone)
		if got := stepsOf(<-granted); !slices.Equal(got, []string{"fits"}) {
			t.Error(got)
		}
		running.Wait()
	})
}

// Claims that do not fit their host are refused. A host that is drained gets nothing, until it is ready again (F176, I21).
func TestClaimsAreHeldAgainstTheirHost(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		holder := d.register("h1", perdure.Amounts{"cpu": 1000})
		d.submit("type: t\nsteps:\n  s: {agent: a, requires: {cpu: 1}}\n")
		good := protocol.Claim{Agent: "a", Holder: holder, Max: 1, Host: "h1", Free: perdure.Amounts{"cpu": 1000}}
		for code, change := range map[perdure.Code]func(c *protocol.Claim){
			perdure.CodeNotFound: func(c *protocol.Claim) { c.Host = "h2" },
			perdure.CodeConflict: func(c *protocol.Claim) { c.Holder = "host/h1/j" },
			perdure.CodeInvalid:  func(c *protocol.Claim) { c.Free = perdure.Amounts{"cpu": 1001} },
		} {
			c := good
			change(&c)
			if runs, err := d.Claim(t.Context(), c); perdure.CodeOf(err) != code || runs != nil {
				t.Errorf("%s: %v, %v", code, runs, err)
			}
		}
		d.drain("h1", true)
		if runs := d.claim(good); runs != nil {
			t.Errorf("drained: %v", runs)
		}
		if err := d.DeleteHost(t.Context(), "h1", "anna"); err != nil {
			t.Error(err)
		}
		if err := d.DeleteHost(t.Context(), "h1", "anna"); perdure.CodeOf(err) != perdure.CodeNotFound {
			t.Error(err)
		}
		d.register("h1", perdure.Amounts{"cpu": 1000})
		if runs := d.claim(good); len(runs) != 1 {
			t.Errorf("registered again: %v", runs)
		}
		if err := d.DeleteHost(t.Context(), "h1", "anna"); perdure.CodeOf(err) != perdure.CodeConflict {
			t.Error("a ready host is removed", err)
		}
		d.drain("h1", true)
		if err := d.DeleteHost(t.Context(), "h1", "anna"); perdure.CodeOf(err) != perdure.CodeConflict {
			t.Error("a host with runs is removed", err)
		}
		d.drain("h1", false)
	})
}

// Of the hosts whose claims wait, one that the step prefers goes first, then the one with the least left over, or with
// spread the one with the most.
func TestHostsAreRanked(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		for place, want := range map[string]string{"": "small", ", place: spread": "large", ", prefers: {labels: {cache: warm}}": "warm"} {
			d := open(t, store, scheduler.Config{})
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			granted := make(chan string, 3)
			for name, cpu := range map[string]int64{"small": 2000, "large": 16000, "warm": 4000} {
				holder := d.register(name, perdure.Amounts{"cpu": cpu}, map[string]string{"warm": "cache=warm"}[name])
				running.Go(func() {
					runs, _ := d.Claim(ctx, protocol.Claim{Agent: "a", Holder: holder, Max: 1, Wait: 30 * time.Second, Host: name, Free: perdure.Amounts{"cpu": cpu}})
					for range runs {
						granted <- name
					}
				})
			}
			for end := time.Now().Add(20 * time.Second); d.WaitingClaims() < 3 && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			d.submit(fmt.Sprintf("type: t\nsteps:\n  s: {agent: a, requires: {cpu: 1}%s}\n", place))
			if got := <-granted; got != want {
				t.Errorf("%q: %s", place, got)
			}
			cancel()
			running.Wait()
		}
	})
}
