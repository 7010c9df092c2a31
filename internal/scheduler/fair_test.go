package scheduler_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
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

func labelled(customer string) string {
	return fmt.Sprintf("type: t\nlabels: {customer: %q}\nsteps:\n  s: {agent: a}\n", customer)
}

func (d *harness) fair(by string, weights map[string]int) {
	d.t.Helper()
	set := perdure.AgentSettings{Ageing: perdure.Duration(perdure.DefaultAgeing), FairBy: by, Weights: weights}
	if err := d.PutAgent(d.t.Context(), "a", set); err != nil {
		d.t.Fatal(err)
	}
}

// byCustomer claims runs one by one, ends each, and returns the customers of their jobs in order.
func (d *harness) byCustomer(of map[perdure.JobID]string, n int) string {
	d.t.Helper()
	var got []string
	for range n {
		runs := d.claim(protocol.Claim{Agent: "a", Holder: "h", Max: 1})
		for _, r := range runs {
			got = append(got, of[r.Job])
			d.report("h", r, perdure.OutcomeDone)
		}
	}
	return strings.Join(got, "")
}

// One customer floods the agent; the others wait for their share at most (F331).
func TestFloodOfOneCustomerDoesNotDelayOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, memory.New(), scheduler.Config{})
		d.fair("job.labels.customer", map[string]int{"c": 2})
		of := map[perdure.JobID]string{}
		for range 100 {
			of[d.submit(labelled("a"))] = "a"
		}
		if got := d.byCustomer(of, 10); got != "aaaaaaaaaa" {
			t.Error(got)
		}
		for range 6 {
			of[d.submit(labelled("b"))] = "b"
			of[d.submit(labelled("c"))] = "c"
			of[d.submit(one)] = "-"
		}
		got := d.byCustomer(of, 20)
		for customer, want := range map[string]int{"a": 4, "b": 4, "-": 4, "c": 6} {
			if n := strings.Count(got, customer); n < want-1 || n > want+1 {
				t.Errorf("%s: %d of %s, want about %d", got, n, customer, want)
			}
		}
		if late := d.byCustomer(of, 40); strings.Count(late, "a") < 30 {
			t.Error("what is left over goes to a:", late)
		}
	})
}

// A step that a transaction makes ready itself does not pass those of a share that has been served less.
func TestOwnStepsDoNotPassOtherShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, memory.New(), scheduler.Config{})
		d.fair("job.labels.customer", nil)
		of := map[perdure.JobID]string{}
		for range 2 {
			of[d.submit("type: t\npriority: 9\nlabels: {customer: a}\nflow: chain\nsteps:\n  s: {agent: a}\n  r: {agent: a}\n  q: {agent: a}\n  p: {agent: a}\n")] = "a"
		}
		for range 4 {
			of[d.submit(labelled("b"))] = "b"
		}
		runs, got := d.claim(protocol.Claim{Agent: "a", Holder: "h", Max: 1}), ""
		for n := 0; len(runs) == 1; n++ {
			got += of[runs[0].Job]
			runs = d.reportAndClaim(runs[0], protocol.Claim{Agent: "a", Holder: "h", Max: 1, RequestID: fmt.Sprint(n)})
		}
		if first := got[:min(8, len(got))]; len(got) != 12 || strings.Count(first, "b") != 4 {
			t.Error(got)
		}
	})
}

// Changing, removing and setting fairBy again while steps wait hides none of them, and what is left of it disappears (F332).
func TestFairnessChangesWhileStepsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, memory.New(), scheduler.Config{})
		of := map[perdure.JobID]string{}
		submit := func(customer string, n int) {
			for range n {
				of[d.submit(labelled(customer))] = customer
			}
		}
		submit("o", 10) // before there are shares
		d.fair("job.labels.customer", nil)
		submit("a", 10)
		submit("b", 2)
		if got := d.byCustomer(of, 6); strings.Count(got, "b") != 2 || strings.Count(got, "o") != 2 {
			t.Error("three shares:", got)
		}
		d.fair("job.type", nil)
		submit("c", 4)
		d.fair("", nil)
		if all, err := d.agents(); err != nil || all["a"].FairBy != kernel.FairOff {
			t.Error(all, err)
		}
		submit("n", 3)
		if err := d.SweepShares(t.Context()); err != nil {
			t.Fatal(err)
		}
		if all, err := d.agents(); err != nil || all["a"].FairBy != kernel.FairOff {
			t.Error("shares are left, but not the setting", all, err)
		}
		got := d.byCustomer(of, 30)
		for customer, want := range map[string]int{"o": 8, "a": 8, "c": 4, "n": 3} {
			if n := strings.Count(got, customer); n != want {
				t.Errorf("%s: %d of %s, want %d", got, n, customer, want)
			}
		}
		if err := d.SweepShares(t.Context()); err != nil {
			t.Fatal(err)
		}
		if all, err := d.agents(); err != nil || len(all) != 0 {
			t.Error("the setting is still there", all, err)
		}
		if err := d.DeleteAgent(t.Context(), "a"); perdure.CodeOf(err) != perdure.CodeNotFound {
			t.Error(err)
		}
	})
}

func (d *harness) agents() (all map[string]perdure.AgentSettings, err error) {
	return d.store.ListAgents(d.t.Context())
}

// Bad settings are refused whole.
func TestBadFairnessIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, memory.New(), scheduler.Config{})
		many := map[string]int{}
		for n := range perdure.MaxFairWeights + 1 {
			many[fmt.Sprint(n)] = 1
		}
		for name, c := range map[string]struct {
			by      string
			weights map[string]int
			want    string
		}{
			"another root":   {by: "input.customer", want: "cannot be read here"},
			"a like name":    {by: "input.key", want: "cannot be read here"},
			"the id":         {by: "job.id", want: "cannot be read here"},
			"an output":      {by: "steps.s.output", want: "cannot be read here"},
			"braces":         {by: "${job.type}", want: "without braces"},
			"syntax":         {by: "job.labels.", want: "fairBy"},
			"long":           {by: strings.Repeat("a", perdure.MaxFairByBytes+1), want: "257 bytes; at most 256"},
			"weights alone":  {weights: map[string]int{"a": 1}, want: "without fairBy"},
			"weight 0":       {by: "job.type", weights: map[string]int{"a": 0}, want: "weights.a is 0; use 1 to 1000"},
			"weight 1001":    {by: "job.type", weights: map[string]int{"a": 1001}, want: "use 1 to 1000"},
			"too many":       {by: "job.type", weights: many, want: "1001 values; at most 1000"},
			"an empty value": {by: "job.type", weights: map[string]int{"": 1}, want: "is empty"},
		} {
			set := perdure.AgentSettings{Ageing: perdure.Duration(time.Minute), FairBy: c.by, Weights: c.weights}
			err := d.PutAgent(t.Context(), "a", set)
			if perdure.CodeOf(err) != perdure.CodeInvalid || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if all, err := d.agents(); err != nil || len(all) != 0 {
			t.Error(all, err)
		}
		many = map[string]int{}
		for n := range perdure.MaxFairWeights {
			many[fmt.Sprint(n)] = perdure.MaxFairWeight
		}
		if err := d.PutAgent(t.Context(), "a", perdure.AgentSettings{Ageing: perdure.Duration(time.Minute), FairBy: `job.labels.customer ?? job.type`, Weights: many}); err != nil {
			t.Error(errors.Unwrap(err), err)
		}
	})
}

// Several writers dispatch from one share at the same time: each run counts once (F333).
func TestConcurrentDispatchesOfAShareAllCount(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{Writers: 3})
		d.fair("job.labels.customer", nil)
		const jobs, each = 40, 9
		for range jobs {
			d.submit(labelled("a"))
		}
		var all sync.WaitGroup
		var got atomic.Int64
		for n := range 4 {
			all.Go(func() {
				for i := range each {
					got.Add(int64(len(d.claim(protocol.Claim{Agent: "a", Holder: fmt.Sprint("h", n), Max: 1, Wait: time.Minute, RequestID: fmt.Sprint(i)}))))
				}
			})
		}
		all.Wait()
		shares, _, err := store.Shares(t.Context(), "a", 10, true)
		if err != nil || len(shares) != 1 || shares[0].Served != got.Load()*kernel.FairUnit || got.Load() != 4*each || shares[0].Ready != jobs-4*each {
			t.Error(shares, got.Load(), err)
		}
	})
}
