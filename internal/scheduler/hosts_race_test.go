package scheduler_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/protocol"
)

// machine is the process of a host: it claims with what is free, and reports its runs a little later.
type machine struct {
	name     string
	holder   string
	capacity perdure.Amounts

	mu   sync.Mutex
	free perdure.Amounts
}

func (m *machine) take(r *perdure.Requires, sign int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, n := range r.Amounts {
		m.free[name] -= sign * n
	}
}

// work claims at one node after the other until all jobs are done. A claim that is granted runs is sent twice, as after a lost answer.
func (m *machine) work(t *testing.T, nodes []*harness, done *atomic.Int64, jobs int64) {
	var reports sync.WaitGroup
	defer reports.Wait()
	for n := 0; done.Load() < jobs && !t.Failed(); n++ {
		d := nodes[n%len(nodes)]
		m.mu.Lock()
		free := maps.Clone(m.free)
		m.mu.Unlock()
		c := protocol.Claim{Agent: "a", Holder: m.holder, Max: 5, Wait: 50 * time.Millisecond, RequestID: fmt.Sprint(n), Host: m.name, Free: free}
		first, err := d.Claim(t.Context(), c)
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
			return
		}
		if len(first) == 0 {
			continue
		}
		c.Wait = 20 * time.Second
		runs, err := d.Claim(t.Context(), c)
		if err != nil || len(runs) != len(first) {
			t.Errorf("%s: %d runs, and %d when the claim is repeated: %v", m.name, len(first), len(runs), err)
		}
		for _, run := range runs {
			m.take(run.Requires, 1)
			reports.Go(func() {
				time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond) // a run
				m.take(run.Requires, -1)
				res, _, err := d.Report(context.WithoutCancel(t.Context()), m.holder, doneReport(run), nil)
				if err != nil || !res[0].Accepted {
					t.Error(res, err)
				}
				done.Add(1)
			})
		}
	}
}

// inUse returns the demands of the runs in flight of a host, as the store has them.
func (m *machine) inUse(t *testing.T, d *harness) (n int, used perdure.Amounts) {
	t.Helper()
	runs, err := d.store.HostRuns(context.WithoutCancel(t.Context()), m.holder, perdure.MaxHostRuns)
	if err != nil {
		t.Fatal(err)
	}
	demands := make([]kernel.Demand, len(runs))
	for i := range runs {
		demands[i] = runs[i].Needs.Demand()
	}
	return len(runs), kernel.UsedBy(demands)
}

// grid lets hosts work off jobs while an operator drains them. At no time do the runs of a host require more than it has
// (I20). A host that is drained and empty stays so until it is ready again (I21).
func grid(t *testing.T, nodes []*harness) {
	const jobs = 60
	machines := make([]*machine, 3)
	for i := range machines {
		m := &machine{name: fmt.Sprint("h", i), capacity: perdure.Amounts{"cpu": int64(1000 + 1000*i), "slots": 3}}
		m.free = maps.Clone(m.capacity)
		m.holder = nodes[0].register(m.name, m.capacity, "size="+fmt.Sprint(i))
		machines[i] = m
	}
	requires := []string{"{cpu: 0.5}", "{cpu: 1}", "{cpu: 3}", "{slots: 2}", "{cpu: 1.5, labels: {size: '*'}}", "{labels: {size: '1'}}", "{}"}
	var done atomic.Int64
	var working sync.WaitGroup
	for _, m := range machines {
		working.Go(func() { m.work(t, nodes, &done, jobs) })
	}
	working.Go(func() {
		for i := range jobs {
			nodes[i%len(nodes)].submit(fmt.Sprintf("type: t%d\npriority: %d\nsteps:\n  s: {agent: a, requires: %s}\n", i%3, i%2, requires[i%len(requires)]))
		}
	})
	for i := 0; done.Load() < jobs && !t.Failed(); i++ {
		d, m := nodes[i%len(nodes)], machines[i%len(machines)]
		for _, m := range machines {
			_, used := m.inUse(t, d)
			for name, n := range used {
				if n > m.capacity[name] {
					t.Errorf("host %s has %d of %s, and its runs take %d", m.name, m.capacity[name], name, n)
				}
			}
		}
		d.drain(m.name, true)
		empty := false
		for range 4 {
			n, _ := m.inUse(t, d)
			if empty && n > 0 {
				t.Errorf("drained host %s has %d runs", m.name, n)
			}
			empty = n == 0
			time.Sleep(time.Millisecond)
		}
		d.drain(m.name, false)
		time.Sleep(5 * time.Millisecond)
	}
	working.Wait()
}

// One node does not overbook hosts (I20, I21).
func TestHostsAreNotOverbookedWhileTheyAreDrained(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) { grid(t, []*harness{open(t, store, scheduler.Config{})}) })
}

// The same with two nodes, of which one drains a host while the other dispatches runs to it (F175).
func TestHostsAreNotOverbookedByTwoNodes(t *testing.T) {
	url := pgtest.Start(t)
	grid(t, []*harness{open(t, everystore.Postgres(t, url), scheduler.Config{}), open(t, everystore.Postgres(t, url), scheduler.Config{})})
}

// drained is a store that calls a function after a transaction has read hosts, once.
type drained struct {
	kernel.Store
	then func()
}

func (s *drained) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	return s.Store.Update(ctx, func(tx kernel.Tx) error { return fn(&drainedTx{tx, s}) })
}

type drainedTx struct {
	kernel.Tx
	s *drained
}

func (tx *drainedTx) Hosts(names []string) ([]kernel.Host, error) {
	hosts, err := tx.Tx.Hosts(names)
	if then := tx.s.then; then != nil {
		tx.s.then = nil
		then()
	}
	return hosts, err
}

// Another node drains a host after a transaction has read it, and before that grants it runs. It gets none (F175).
func TestHostDrainedDuringItsClaimGetsNoRun(t *testing.T) {
	url := pgtest.Start(t)
	s := &drained{Store: everystore.Postgres(t, url)}
	d := open(t, s, scheduler.Config{Writers: 1})
	other := open(t, everystore.Postgres(t, url), scheduler.Config{Writers: 1})
	holder := d.register("h1", perdure.Amounts{"slots": 1})
	d.submit("type: t\nsteps:\n  s: {agent: a, requires: {}}\n")
	called := false
	s.then = func() { other.drain("h1", true); called = true }
	c := protocol.Claim{Agent: "a", Holder: holder, Max: 1, Host: "h1", Free: perdure.Amounts{"slots": 1}}
	if runs := d.claim(c); runs != nil || !called {
		t.Errorf("granted %v; drained: %v", runs, called)
	}
	other.drain("h1", false)
	if runs := d.claim(c); len(runs) != 1 {
		t.Errorf("ready again: %v", runs)
	}
}
