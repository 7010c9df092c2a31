package election_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/election"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/memory"
)

const (
	role = "sweeper"
	ttl  = 10 * time.Second
)

// grid is a store, its clock, and nodes that can be disconnected from the store one by one.
type grid struct {
	t     *testing.T
	store *memory.Store
	mu    sync.Mutex
	jump  time.Duration // added to the store's clock
}

func newGrid(t *testing.T) *grid {
	g := &grid{t: t}
	g.store = memory.New(memory.WithClock(func() time.Time {
		g.mu.Lock()
		defer g.mu.Unlock()
		return time.Now().Add(g.jump)
	}))
	return g
}

func (g *grid) setJump(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.jump = d
}

// member is the elector of a node, and records what happens to it.
type member struct {
	g      *grid
	name   string
	e      *election.Elector
	stop   context.CancelFunc
	gone   chan struct{}
	mu     sync.Mutex
	cut    bool
	ctx    context.Context // of the current leadership, or of the last one
	terms  int
	serves int // services of this member that run
}

var errCut = errors.New("cut off")

func (m *member) isCut() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cut
}

func (m *member) setCut(cut bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cut = cut
}

func (m *member) ReportNode(ctx context.Context, p kernel.NodeReport) (kernel.NodeAnswer, error) {
	if m.isCut() {
		return kernel.NodeAnswer{}, errCut
	}
	return m.g.store.ReportNode(ctx, p)
}

func (m *member) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	if m.isCut() {
		return errCut
	}
	return m.g.store.Update(ctx, fn)
}

func (m *member) leads() (context.Context, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ctx, m.ctx != nil && m.ctx.Err() == nil
}

// write writes under a context: a limit named after the node.
func (m *member) write(ctx context.Context) error {
	leadership, ok := kernel.LeadershipOf(ctx)
	if !ok {
		m.g.t.Errorf("%s leads, but its context has no leadership", m.name)
	}
	return m.g.store.Update(context.WithoutCancel(ctx), func(tx kernel.Tx) error {
		r, err := tx.ShareRole(role)
		if err != nil {
			return err
		}
		now, err := tx.Now()
		if err != nil {
			return err
		}
		if err := r.Admit(leadership, now); err != nil {
			return err
		}
		return tx.PutLimit(kernel.Limit{Name: "agent:" + m.name, Max: int(leadership.Epoch), PerKey: kernel.Unbounded})
	})
}

func (g *grid) join(name string, edit ...func(*election.Config)) *member {
	m := &member{g: g, name: name, gone: make(chan struct{})}
	cfg := election.Config{Store: m, Node: name, TTL: ttl, Roles: map[string]election.Service{role: func(ctx context.Context) {
		m.mu.Lock()
		m.ctx = ctx
		m.terms++
		if m.serves++; m.serves > 1 {
			g.t.Errorf("%s serves twice at once", name)
		}
		m.mu.Unlock()
		<-ctx.Done()
		m.mu.Lock()
		m.serves--
		m.mu.Unlock()
	}}}
	for _, e := range edit {
		e(&cfg)
	}
	m.e = election.New(cfg)
	var ctx context.Context
	ctx, m.stop = context.WithCancel(context.Background())
	go func() {
		defer close(m.gone)
		m.e.Run(ctx)
	}()
	synctest.Wait()
	return m
}

// leave stops a member cleanly.
func (m *member) leave() {
	m.stop()
	<-m.gone
}

func (g *grid) role() kernel.Role {
	g.t.Helper()
	roles, err := g.store.Roles(context.Background())
	if err != nil || len(roles) != 1 {
		g.t.Fatalf("%v, %v", roles, err)
	}
	return roles[0]
}

func (g *grid) expect(leader, standby string, epoch int64) {
	g.t.Helper()
	if r := g.role(); r.Leader != leader || r.Standby != standby || r.Epoch != epoch {
		g.t.Errorf("got %+v, want leader %q, standby %q, epoch %d", r, leader, standby, epoch)
	}
}

// sleep lets virtual time pass, and checks that no member leads that does not lead by the store.
func (g *grid) sleep(d time.Duration, members ...*member) {
	g.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(min(100*time.Millisecond, time.Until(end)))
		synctest.Wait()
		g.oneLeader(members...)
	}
}

func (g *grid) oneLeader(members ...*member) {
	g.t.Helper()
	var leading []string
	for _, m := range members {
		if _, ok := m.leads(); ok {
			leading = append(leading, m.name)
		}
	}
	if len(leading) > 1 {
		g.t.Fatalf("at %v: %v lead", time.Now(), leading)
	}
}

// One node leads, one stands by, and a third does neither, while nothing happens.
func TestOneLeaderAndOneStandby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrid(t)
		a := g.join("a")
		g.expect("a", "", 1)
		b := g.join("b")
		g.expect("a", "b", 1)
		c := g.join("c")
		g.sleep(5*time.Minute, a, b, c)
		g.expect("a", "b", 1)
		ctx, ok := a.leads()
		if !ok || a.terms != 1 || b.terms+c.terms != 0 {
			t.Errorf("%v, terms %d, %d, %d", ok, a.terms, b.terms, c.terms)
		}
		if err := a.write(ctx); err != nil {
			t.Error(err)
		}
		// A node that leaves is replaced. Then the roles pass on, one by one.
		b.leave()
		g.expect("a", "", 1)
		g.sleep(ttl, a, c)
		g.expect("a", "c", 1)
		for _, m := range []*member{a, c} {
			m.leave()
		}
		g.expect("", "", 2)
	})
}

// A leader that stops cleanly hands the lease to the standby at once: there is no moment without a leader in the store,
// and a standby that receives the wake-up begins to lead at once.
func TestCleanStopHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrid(t)
		wakeups := make(chan struct{}, 1)
		a := g.join("a")
		b := g.join("b", func(c *election.Config) { c.Wakeups = wakeups })
		g.sleep(3*ttl, a, b)
		before := time.Now()
		ctx, _ := a.leads()
		a.leave()
		g.expect("b", "", 2)
		if ctx.Err() == nil {
			t.Error("what a led goes on")
		}
		if err := a.write(ctx); !errors.Is(err, kernel.ErrDeposed) {
			t.Errorf("a writes on: %v", err)
		}
		wakeups <- struct{}{}
		synctest.Wait()
		if ctx, ok := b.leads(); !ok || time.Since(before) > time.Millisecond {
			t.Errorf("b leads: %v, after %v", ok, time.Since(before))
		} else if err := b.write(ctx); err != nil {
			t.Error(err)
		}
		b.leave()
	})
}

// Without a wake-up (a pooler drops it) the standby finds out at its next roll call.
func TestCleanStopWithoutWakeUps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrid(t)
		a, b := g.join("a"), g.join("b")
		g.sleep(3*ttl, a, b)
		a.leave()
		g.sleep(ttl/2, b)
		if _, ok := b.leads(); !ok {
			t.Error("b does not lead")
		}
		b.leave()
	})
}

// F074, F120: a leader that is disconnected stops before its lease lapses in the store, and the standby takes over
// within the lease.
func TestDisconnectedLeaderStopsInTime(t *testing.T) {
	for seed := range 8 {
		synctest.Test(t, func(t *testing.T) {
			g := newGrid(t)
			a, b := g.join("a"), g.join("b")
			g.sleep(ttl+time.Duration(seed)*777*time.Millisecond, a, b)
			ctx, _ := a.leads()
			a.setCut(true)
			cut := time.Now()
			for ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			if until := g.role().LeaderUntil; !time.Now().Before(until) {
				t.Errorf("a led until %v, the store had it until %v", time.Now(), until)
			}
			for g.role().Leader != "b" {
				time.Sleep(time.Millisecond)
			}
			if duration := time.Since(cut); duration > ttl+100*time.Millisecond {
				t.Errorf("b took over after %v", duration)
			}
			g.expect("b", "", 2)
			if err := a.write(ctx); !errors.Is(err, kernel.ErrDeposed) {
				t.Errorf("a writes on: %v", err)
			}
			a.setCut(false) // it is connected again, and stands by
			g.sleep(ttl, a, b)
			g.expect("b", "a", 2)
			a.leave()
			b.leave()
		})
	}
}

// F038, F073, F082: a leader that was paused wakes up, believes that it still leads, and cannot write.
func TestPausedLeaderCannotWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrid(t)
		// The process of a is paused in the middle of its service: the service has a context that has not ended yet.
		a, b := g.join("a"), g.join("b")
		g.sleep(ttl, a, b)
		held, _ := a.leads()
		leadership, _ := kernel.LeadershipOf(held)
		a.setCut(true)
		g.sleep(2*ttl, a, b)
		awake := kernel.WithLeadership(context.Background(), leadership) // its timers have not fired yet
		if err := a.write(awake); !errors.Is(err, kernel.ErrDeposed) {
			t.Errorf("a wrote: %v", err)
		}
		limits, err := g.store.ListLimits(t.Context())
		if err != nil || len(limits) != 0 {
			t.Errorf("written: %v, %v", limits, err)
		}
		a.setCut(false)
		a.e.Deposed(leadership)
		g.sleep(time.Second, a, b)
		g.expect("b", "a", 2)
		a.leave()
		b.leave()
	})
}

// A refused write ends the leadership at once. One refusal does not end a later epoch.
func TestRefusedWriteEndsLeadership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrid(t)
		a := g.join("a")
		first, _ := a.leads()
		leadership, _ := kernel.LeadershipOf(first)
		// An operator has corrected the row by hand.
		if err := g.store.Update(t.Context(), func(tx kernel.Tx) error {
			roles, err := tx.LockRoles([]string{role})
			return errors.Join(err, tx.SaveRoles([]kernel.RoleChange{{Now: roles[0].Vacate(), Loaded: roles[0]}}))
		}); err != nil {
			t.Fatal(err)
		}
		if err := a.write(first); !errors.Is(err, kernel.ErrDeposed) {
			t.Errorf("got %v", err)
		}
		a.e.Deposed(leadership)
		if first.Err() == nil {
			t.Error("it goes on")
		}
		synctest.Wait()
		g.expect("a", "", 2)
		second, ok := a.leads()
		a.e.Deposed(leadership)
		if !ok || second.Err() != nil || a.terms != 2 {
			t.Errorf("the new epoch: %v, %v, %d terms", ok, second.Err(), a.terms)
		}
		a.leave()
	})
}

// F080, F081: the store's clock jumps. If it jumps forward, the lease has lapsed in the store at once, and writes of the
// leader are refused. If it jumps back, no lease lapses early.
func TestJumpsOfTheStoreClockKeepOneLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrid(t)
		a, b := g.join("a"), g.join("b")
		g.sleep(ttl, a, b)
		ctx, _ := a.leads()
		g.setJump(time.Hour)
		if err := a.write(ctx); !errors.Is(err, kernel.ErrDeposed) {
			t.Errorf("written in the new time: %v", err)
		}
		time.Sleep(2 * ttl)
		r := g.role()
		if r.Epoch != 2 || r.Leader == "" || r.Standby == "" || r.Leader == r.Standby {
			t.Errorf("after a jump ahead: %+v", r)
		}
		g.setJump(0)
		g.sleep(10*ttl, a, b)
		if now := g.role(); now.Epoch != 2 || now.Leader != r.Leader || now.Standby != r.Standby {
			t.Errorf("after a jump back: %+v, was %+v", now, r)
		}
		a.leave()
		b.leave()
	})
}

// All nodes die, one after the other or together: a new node takes the places once they have lapsed.
func TestDeadNodesAreReplacedAfterTheLapse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrid(t)
		a, b := g.join("a"), g.join("b")
		g.sleep(ttl, a, b)
		a.setCut(true)
		b.setCut(true)
		c := g.join("c")
		g.expect("a", "b", 1)
		died := time.Now()
		for g.role().Leader != "c" {
			time.Sleep(10 * time.Millisecond)
		}
		if duration := time.Since(died); duration > ttl+time.Second {
			t.Errorf("c leads after %v", duration)
		}
		for _, m := range []*member{a, b, c} {
			m.leave()
		}
	})
}

// If no other process can have the store open, a new node does not wait for the places of dead nodes to lapse.
func TestSingleNodeDoesNotWaitForDeadLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrid(t)
		a, b := g.join("a"), g.join("b")
		a.setCut(true)
		b.setCut(true)
		c := g.join("c", func(cfg *election.Config) { cfg.Alone = true })
		g.expect("c", "", 2)
		for _, m := range []*member{a, b, c} {
			m.leave()
		}
	})
}

// onHost sets the host of a member.
func onHost(host string) func(*election.Config) {
	return func(c *election.Config) { c.Host = host }
}

// Three nodes on two hosts: in whatever order they start, leader and standby end up on different hosts and stay there.
// The first node leads throughout.
func TestLeaderAndStandbyAreOnDifferentHosts(t *testing.T) {
	hostOf := map[string]string{"a": "x", "b": "x", "c": "y"}
	for _, order := range []string{"abc", "acb", "bac", "bca", "cab", "cba"} {
		t.Run(order, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGrid(t)
				var members []*member
				for _, name := range strings.Split(order, "") {
					members = append(members, g.join(name, onHost(hostOf[name])))
				}
				g.sleep(ttl/2+time.Second, members...)
				before := g.role()
				if before.Leader != order[:1] || before.Epoch != 1 || before.LeaderHost != hostOf[before.Leader] {
					t.Errorf("got %+v, want the first to lead in epoch 1", before)
				}
				if before.Standby == "" || before.StandbyHost != hostOf[before.Standby] || before.StandbyHost == before.LeaderHost {
					t.Errorf("got %+v, want a standby on the other host", before)
				}
				g.sleep(10*ttl, members...)
				g.expect(before.Leader, before.Standby, before.Epoch)
				for _, m := range members {
					m.leave()
				}
			})
		})
	}
}

// A standby on the leader's host is better than none. It gives way once a node runs on another host. Then it has no
// place until one is free again.
func TestStandbyGivesWayToAnotherHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrid(t)
		a, b := g.join("a", onHost("x")), g.join("b", onHost("x"))
		g.sleep(5*ttl, a, b)
		g.expect("a", "b", 1)
		c := g.join("c", onHost("y"))
		g.expect("a", "c", 1)
		d := g.join("d", onHost("z"))
		g.sleep(5*ttl, a, b, c, d)
		g.expect("a", "c", 1)
		c.leave() // the next roll call of b or d takes the free place; d keeps it, or takes it from b
		g.sleep(ttl, a, b, d)
		g.expect("a", "d", 1)
		d.leave()
		g.sleep(ttl, a, b)
		g.expect("a", "b", 1)
		a.leave()
		b.leave()
	})
}

// A single host has a leader and a standby, whether it has a name or not.
func TestOneHostKeepsItsStandby(t *testing.T) {
	for _, host := range []string{"", "x"} {
		synctest.Test(t, func(t *testing.T) {
			g := newGrid(t)
			a, b, c := g.join("a", onHost(host)), g.join("b", onHost(host)), g.join("c", onHost(host))
			g.sleep(10*ttl, a, b, c)
			g.expect("a", "b", 1)
			a.leave()
			g.sleep(ttl, b, c)
			g.expect("b", "c", 2)
			b.leave()
			c.leave()
		})
	}
}

// F163: the leader's host fails, with the leader and another node. The standby is on another host, and leads once the
// leader's lease has lapsed.
func TestStandbyLeadsAfterTheHostOfTheLeaderFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrid(t)
		a, b, c := g.join("a", onHost("x")), g.join("b", onHost("x")), g.join("c", onHost("y"))
		g.sleep(3*ttl, a, b, c)
		g.expect("a", "c", 1)
		a.setCut(true)
		b.setCut(true)
		failed := time.Now()
		for g.role().Leader != "c" {
			time.Sleep(time.Millisecond)
		}
		if duration := time.Since(failed); duration > ttl+100*time.Millisecond {
			t.Errorf("c leads after %v", duration)
		}
		g.expect("c", "", 2)
		for _, m := range []*member{a, b, c} {
			m.leave()
		}
	})
}

// The list of nodes shows the host that the roles have.
func TestRollCallNamesTheHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrid(t)
		a := g.join("a", onHost("x"))
		nodes, err := g.store.Nodes(t.Context())
		if r := g.role(); err != nil || len(nodes) != 1 || nodes[0].Host != "x" || r.LeaderHost != "x" {
			t.Errorf("%+v, %+v, %v", nodes, r, err)
		}
		a.leave()
	})
}

// Nodes start, stop, die, return and see the clock jump at random. Never do two of them lead by the store; each epoch
// has one leader; and soon after the last event there is a leader and a standby.
func TestRandomEventsKeepOneLeader(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomLife(t, seed) })
		})
	}
}

// Roles are spread: the first node leads both roles until a second one stands by, which then leads one of them (F183). The
// service of the role has returned before the other node leads.
func TestRolesAreSpreadOverTheNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGrid(t)
		serving := map[string]string{}
		two := func(name, host string) func(*election.Config) {
			return func(c *election.Config) {
				c.Host, c.Roles = host, map[string]election.Service{}
				for _, role := range []string{"x", "y"} {
					c.Roles[role] = func(ctx context.Context) {
						g.mu.Lock()
						if other := serving[role]; other != "" {
							t.Errorf("%s and %s serve role %s", other, name, role)
						}
						serving[role] = name
						g.mu.Unlock()
						<-ctx.Done()
						g.mu.Lock()
						serving[role] = ""
						g.mu.Unlock()
					}
				}
			}
		}
		roles := func() string {
			all, err := g.store.Roles(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var text []string
			for _, r := range all {
				text = append(text, fmt.Sprintf("%s: %s, %s", r.Name, r.Leader, r.Standby))
			}
			return strings.Join(text, "; ")
		}
		a := g.join("a", two("a", "h1"))
		time.Sleep(ttl)
		synctest.Wait()
		if got := roles(); got != "x: a, ; y: a, " {
			t.Errorf("one node: %s", got)
		}
		b := g.join("b", two("b", "h2"))
		time.Sleep(2 * ttl)
		synctest.Wait()
		if got := roles(); got != "x: b, a; y: a, b" {
			t.Errorf("two nodes: %s", got)
		}
		g.mu.Lock()
		if serving["x"] != "b" || serving["y"] != "a" {
			t.Errorf("serving: %v", serving)
		}
		g.mu.Unlock()
		epoch := func() (sum int64) {
			all, _ := g.store.Roles(t.Context())
			for _, r := range all {
				sum += r.Epoch
			}
			return sum
		}
		before := epoch()
		time.Sleep(10 * ttl)
		synctest.Wait()
		if got := epoch(); got != before { // they do not hand roles back and forth
			t.Errorf("epochs: %d, then %d", before, got)
		}
		b.leave()
		time.Sleep(ttl)
		synctest.Wait()
		if got := roles(); got != "x: a, ; y: a, " {
			t.Errorf("after one has left: %s", got)
		}
		a.leave()
	})
}
