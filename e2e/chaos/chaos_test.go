// Package chaos injects faults into a grid: three nodes on one PostgreSQL and agents, all of them real processes. They
// are killed, frozen, cut off and given wrong clocks and full disks, under a load of three-step jobs. The test judges
// from outside: by what was acknowledged, by the ledger of a service of the test, by the state of the jobs at the end,
// and by `perdure check`.
//
//	make chaos FOR=10m
package chaos

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/e2e/rig"
	"github.com/perdure/perdure/internal/ledger"
)

var (
	lasts = flag.Duration("for", 40*time.Second, "how long the grid is under fire")
	seed  = flag.Uint64("seed", 0, "repeats the order of faults, as far as processes can be repeated; 0: any")
)

func TestMain(m *testing.M) {
	flag.Parse()
	rig.Main(m)
}

// locks is longer than any run may take here: the runs of a process that was frozen for so long have expired.
const locks = 2500 * time.Millisecond

// fault is a fault of the grid that ends by itself.
type fault struct {
	name string // and its rows of the matrix
	does func(g *grid, rng *rand.Rand)
}

func (g *grid) node(rng *rand.Rand) int           { return rng.IntN(len(g.nodes)) }
func (g *grid) agent(rng *rand.Rand) *rig.Process { return g.agents[rng.IntN(len(g.agents))] }

func (g *grid) killed(m *rig.Process, sig syscall.Signal) {
	m.End(sig)
	g.must(m.Start())
}

// killedNode waits until the node runs again. A node that starts without its store ends with exit code 3, and is started
// again by the test.
func (g *grid) killedNode(i int, sig syscall.Signal) {
	g.killed(g.nodes[i], sig)
	g.ready(g.urls[i])
}

func frozen(m *rig.Process) {
	m.Signal(syscall.SIGSTOP)
	time.Sleep(locks)
	m.Signal(syscall.SIGCONT)
}

var faults = []fault{
	{"a node is killed (F116)", func(g *grid, rng *rand.Rand) { g.killedNode(g.node(rng), syscall.SIGKILL) }},
	{"a node receives SIGTERM (F117)", func(g *grid, rng *rand.Rand) { g.killedNode(g.node(rng), syscall.SIGTERM) }},
	{"a node is frozen past its locks (F026, F073, F082)", func(g *grid, rng *rand.Rand) { frozen(g.nodes[g.node(rng)]) }},
	{"an agent is killed (F035, F036)", func(g *grid, rng *rand.Rand) { g.killed(g.agent(rng), syscall.SIGKILL) }},
	{"an agent receives SIGTERM (L6)", func(g *grid, rng *rand.Rand) { g.killed(g.agent(rng), syscall.SIGTERM) }},
	{"an agent is frozen past its locks (F038)", func(g *grid, rng *rand.Rand) { frozen(g.agent(rng)) }},
	{"PostgreSQL is killed (F097)", func(g *grid, _ *rand.Rand) {
		g.database(func() { g.pg.Stop(true); time.Sleep(300 * time.Millisecond); g.pg.Start() })
	}},
	{"PostgreSQL is frozen (F099)", func(g *grid, _ *rand.Rand) { g.pg.Freeze(); time.Sleep(locks); g.pg.Thaw() }},
	{"a node's lines to PostgreSQL are cut (F063, F100)", func(g *grid, rng *rand.Rand) {
		for range 5 {
			g.lines[g.node(rng)].Cut()
			time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
		}
	}},
	{"a node is cut off from PostgreSQL (F074, F120)", func(g *grid, rng *rand.Rand) {
		line := g.lines[g.node(rng)]
		line.Down.Store(true)
		line.Cut()
		time.Sleep(locks)
		line.Heal()
	}},
	{"a node's lines to PostgreSQL are stalled (F100)", func(g *grid, rng *rand.Rand) {
		line := g.lines[g.node(rng)]
		line.Stalled.Store(true)
		time.Sleep(locks)
		line.Heal()
	}},
	{"a node's lines to PostgreSQL are slow (F009)", func(g *grid, rng *rand.Rand) {
		line := g.lines[g.node(rng)]
		line.Slow.Store(int64(100 * time.Millisecond))
		time.Sleep(locks)
		line.Heal()
	}},
	{"an agent's lines are cut (F019, F055)", func(g *grid, rng *rand.Rand) {
		for range 5 {
			g.ways[rng.IntN(len(g.ways))].Cut()
			time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
		}
	}},
	{"an agent is cut off (F040)", func(g *grid, rng *rand.Rand) {
		way := g.ways[rng.IntN(len(g.ways))]
		way.Stalled.Store(true)
		time.Sleep(locks)
		way.Heal()
	}},
	{"PostgreSQL's disk is full (F010)", func(g *grid, _ *rand.Rand) {
		if g.disk == "" {
			return
		}
		ballast := filepath.Join(g.disk, "ballast")
		if exec.Command("dd", "if=/dev/zero", "of="+ballast, "bs=1M").Run() == nil { // until there is no room
			g.t.Error("the disk is not full")
		}
		time.Sleep(time.Second)
		g.must(os.Remove(ballast))
		g.database(func() { g.pg.Stop(true); g.pg.Start() }) // it may have given up
	}},
	{"PostgreSQL's clock jumps forward (F080)", func(g *grid, _ *rand.Rand) { g.jump("+30") }},
	{"PostgreSQL's clock jumps back (F081)", func(g *grid, _ *rand.Rand) { g.jump("-30") }},
}

func (g *grid) jump(offset string) {
	if g.clock == "" {
		return
	}
	g.setClock(offset)
	time.Sleep(locks)
	var behind float64
	if conn, err := pgx.Connect(g.t.Context(), g.pg.URL); err == nil {
		g.must(conn.QueryRow(g.t.Context(), "select abs(extract(epoch from clock_timestamp() - $1::timestamptz))", time.Now()).Scan(&behind))
		conn.Close(g.t.Context())
	}
	if behind < 20 {
		g.t.Errorf("the clock has not jumped, it is off by %.1fs", behind)
	}
	g.setClock("+0")
}

// possible reports whether this machine has what a fault needs.
func (g *grid) possible(f *fault) bool {
	switch {
	case g.disk == "" && f.name == "PostgreSQL's disk is full (F010)":
		return false
	case g.clock == "" && (f.name == "PostgreSQL's clock jumps forward (F080)" || f.name == "PostgreSQL's clock jumps back (F081)"):
		return false
	}
	return true
}

// I1, I2, I5, I9 to I12, L1, L4: nothing acknowledged is lost; no effect is repeated under its key, happens in the wrong
// order, or belongs to a run that a later run has replaced; no limit is exceeded; and soon after the last fault all jobs
// are settled or parked. F009, F010, F019, F026, F035, F036, F038, F040, F055, F063, F073, F074, F080, F081, F082, F097,
// F099, F100, F116, F117, F120.
func TestChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a minute")
	}
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", *seed)
	g := newGrid(t)
	book := ledger.New()
	service := httptest.NewServer(book)
	defer service.Close()
	defer service.CloseClientConnections()
	l, err := rig.NewLoad(g.urls, book, service.URL)
	g.must(err)
	_, err = l.Clients[0].PutLimit(t.Context(), "agent:http", perdure.LimitSettings{Max: new(rig.Limit)})
	g.must(err)
	_, err = l.Clients[0].PutLimit(t.Context(), "job:order", perdure.LimitSettings{Max: new(rig.Orders)})
	g.must(err)

	ctx, stop := context.WithTimeout(t.Context(), *lasts)
	defer stop()
	var hands, watch sync.WaitGroup
	for i := range 4 {
		hands.Go(func() { l.Run(ctx, i, *seed) })
	}
	scans := 0
	watching, unwatch := context.WithCancel(t.Context())
	watch.Go(func() { scans = l.Watch(watching) })
	done := fire(ctx, g, rand.New(rand.NewPCG(*seed, 0)))
	hands.Wait()
	healedAt := time.Now()
	for _, url := range g.urls {
		g.ready(url)
	}
	back := time.Since(healedAt)
	rest, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	settled, undone := l.Audit(rest)
	duration := time.Since(healedAt)
	unwatch()
	watch.Wait()
	for _, m := range g.members() {
		m.End(syscall.SIGTERM)
		for _, bad := range m.Bad() {
			l.Fault("%s", bad)
		}
	}
	if out, err := exec.Command(rig.Program(), "check", "--store", g.pg.URL).CombinedOutput(); err != nil {
		l.Fault("perdure check: %v\n%s", err, out)
	}

	t.Log("what was done:")
	for i := range faults {
		how := fmt.Sprintf("%4d", done[i])
		if !g.possible(&faults[i]) {
			how = "   -" // not possible on this machine
		}
		t.Logf("  %s  %s", how, faults[i].name)
	}
	counts := book.Counts()
	t.Logf("what was found: %d jobs acknowledged, %d done, %d undone; %d calls refused or unanswered; %d effects asked for, %d of them again, %d by a run that was overtaken; "+
		"the limit was checked %d times; all nodes ready %s after the last fault, all jobs settled or parked after %s; %d faults",
		l.Acknowledged(), settled, undone, l.Refused.Load(), counts.Calls, counts.Repeats, counts.Fenced, scans,
		back.Round(100*time.Millisecond), duration.Round(100*time.Millisecond), len(l.Faults()))
	for _, f := range l.Faults() {
		t.Error(f)
	}
	if l.Acknowledged() == 0 {
		t.Error("nothing was done")
	}
	if t.Failed() {
		for _, m := range g.members() {
			t.Logf("--- %s\n%s", m.Name, m.Log.String())
		}
	}
}

// fire injects one fault after another, each kind once before any is repeated, and returns how often each occurred.
func fire(ctx context.Context, g *grid, rng *rand.Rand) []int {
	done := make([]int, len(faults))
	for ctx.Err() == nil {
		for _, i := range rng.Perm(len(faults)) {
			if ctx.Err() != nil {
				break
			}
			if !g.possible(&faults[i]) {
				continue
			}
			faults[i].does(g, rng)
			done[i]++
			for _, m := range g.members() {
				g.must(m.Revive())
			}
			time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
		}
	}
	return done
}
