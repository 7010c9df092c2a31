// Package failover lets the primary of a PostgreSQL cluster fail under load, and checks from outside that nothing
// acknowledged is lost, no run number is given twice and no limit is exceeded. Nodes are real processes and are not
// restarted.
//
//	make failover
//
// The cluster is three servers of internal/pgtest and a promotion script (cluster.promote), and not Patroni: Patroni
// promotes after its lease has expired (20 s at least), so fifty failovers would take most of an hour. It also restarts
// a frozen or full primary by itself, and these states are what the tests need. The nodes see the same as with Patroni:
// the standby that has most of the log becomes the primary, the other one follows it, and the former primary joins
// again.
package failover

import (
	"context"
	"flag"
	"fmt"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/e2e/rig"
	"github.com/perdure/perdure/internal/ledger"
)

var (
	times   = flag.Int("failovers", 2, "how often the primary fails")
	hands   = flag.Int("hands", 8, "how many submit at once: about 2 × hands / pause jobs a second")
	pause   = flag.Duration("pause", 100*time.Millisecond, "longest time between the starts of two jobs of one of them")
	permits = flag.Int("permits", rig.Limit, "limit of runs in flight")
)

func TestMain(m *testing.M) {
	flag.Parse()
	rig.Main(m)
}

// grid has nodes on a cluster, under load.
type grid struct {
	*cluster
	urls  []string
	nodes []*rig.Process
	book  *ledger.Ledger
	load  *rig.Load
	rate  rate

	stalls *rig.Stalls // times of the machine, which no bound includes
}

const nodes = 3

func newGrid(t *testing.T) *grid {
	t.Helper()
	g := &grid{cluster: newCluster(t), book: ledger.New(), stalls: rig.WatchStalls(t)}
	for i := range nodes {
		addr := rig.FreeAddress(t)
		g.urls = append(g.urls, "http://"+addr)
		g.nodes = append(g.nodes, &rig.Process{Name: fmt.Sprint("node ", i+1), Args: []string{"serve", "--listen", addr, "--migrate",
			"--store", g.url(), "--agents", "http", "--allow-private-targets", "--grace", "3s", "--log-level", "warn"}})
	}
	t.Cleanup(func() {
		for _, m := range g.nodes {
			m.Dismiss()
			if t.Failed() {
				t.Logf("--- %s\n%s", m.Name, m.Log.String())
			}
		}
	})
	for i, m := range g.nodes {
		g.must(m.Start())
		rig.Ready(t, g.urls[i])
	}
	service := httptest.NewServer(g.book)
	t.Cleanup(func() { service.CloseClientConnections(); service.Close() })
	var err error
	g.load, err = rig.NewLoad(g.urls, g.book, service.URL)
	g.must(err)
	g.load.Moods, g.load.Pause, g.load.Turn = []string{"", "", "", "", "", "", "", "", "dawdle", "fail"}, *pause, 300*time.Millisecond
	_, err = g.load.Clients[0].PutLimit(t.Context(), "agent:http", perdure.LimitSettings{Max: new(*permits)})
	g.must(err)
	return g
}

// withLoad runs do while the grid is under load, and audits the jobs afterwards.
func (g *grid) withLoad(do func()) {
	ctx, stop := context.WithCancel(g.t.Context())
	watching, unwatch := context.WithCancel(g.t.Context())
	var loading, watch sync.WaitGroup
	for i := range *hands {
		loading.Go(func() { g.load.Run(ctx, i, 1) })
	}
	scans := 0
	watch.Go(func() { scans = g.load.Watch(watching) })
	defer func() { // also if do has failed the test
		stop()
		loading.Wait()
		unwatch()
		watch.Wait()
	}()
	g.rate.begin(g.load)
	time.Sleep(time.Second)
	began := time.Now()
	do()
	duration := time.Since(began)
	g.rate.end(g.load)
	stop()
	loading.Wait()
	rest, cancel := context.WithTimeout(g.t.Context(), 3*time.Minute+time.Duration(g.load.Acknowledged())*20*time.Millisecond)
	defer cancel()
	done, undone := g.load.Audit(rest)
	unwatch()
	watch.Wait()
	for _, m := range g.nodes {
		m.End(syscall.SIGTERM)
		for _, bad := range m.Bad() {
			g.load.Fault("%s", bad)
		}
	}
	if out, err := exec.Command(rig.Program(), "check", "--store", g.url()).CombinedOutput(); err != nil {
		g.load.Fault("perdure check: %v\n%s", err, out)
	}
	g.t.Logf("%d jobs acknowledged in %v, %.0f a second while a primary served; %d done, %d undone; %d calls refused or unanswered; the limit was read %d times",
		g.load.Acknowledged(), duration.Round(time.Second), g.rate.perSecond(), done, undone, g.load.Refused.Load(), scans)
	for _, f := range g.load.Faults() {
		g.t.Error(f)
	}
}

// rate counts the jobs that are acknowledged while a primary serves.
type rate struct {
	jobs  int
	spent time.Duration
	since time.Time // of the present period
	first int       // acknowledged before it
}

func (r *rate) begin(l *rig.Load) { r.since, r.first = time.Now(), l.Acknowledged() }

func (r *rate) end(l *rig.Load) {
	r.jobs += l.Acknowledged() - r.first
	r.spent += time.Since(r.since)
}

func (r *rate) perSecond() float64 { return float64(r.jobs) / r.spent.Seconds() }

// failure is one way in which a primary fails. It lasts until the server is removed.
type failure struct {
	name    string
	inflict func(g *grid, i int)
	former  bool // the server keeps running, and comes back as a former primary
}

var failures = []failure{
	{"the network to the primary is cut", func(g *grid, i int) { g.ways[i].Stalled.Store(true) }, true},
	{"the primary is killed", func(g *grid, i int) { g.servers[i].Stop(true) }, false},
	{"the primary is frozen", func(g *grid, i int) { g.servers[i].Freeze() }, false},
	{"the primary's disk is full", func(g *grid, i int) {
		g.fill(i)
		time.Sleep(2 * time.Second)
		g.servers[i].Stop(true)
	}, false},
	{"the primary is killed before a COMMIT arrives", func(g *grid, i int) { g.killAt(i, rig.CommitSent) }, false},
	{"the primary is killed while commits wait for a standby", func(g *grid, i int) {
		for n, s := range g.servers {
			if n != i {
				s.Freeze()
			}
		}
		time.Sleep(time.Second)
		g.servers[i].Stop(true)
		for n, s := range g.servers {
			if n != i {
				s.Thaw()
			}
		}
	}, false},
	{"the primary is killed before the answer to a COMMIT arrives", func(g *grid, i int) { g.killAt(i, rig.Committed) }, false},
}

// killAt kills a primary at a point of a commit.
func (g *grid) killAt(i int, point rig.CommitPoint) {
	if !g.ways[i].StallAt(point, 10*time.Second) {
		g.load.Fault("no commit within 10 s (L4)")
	}
	g.servers[i].Stop(true)
}

const (
	detection = 3 * time.Second  // from the failure to the promotion
	recovery  = 15 * time.Second // from the promotion to the first commit
)

// I1, I2, I5, I6, I12, L4, F016, F099, F100, F150, F153: the primary fails in turn in each way, and a synchronous
// standby is promoted. Nothing acknowledged is lost, the first commit comes in time, the alert closes by itself, and a
// former primary that comes back is not written to.
func TestFailover(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	g := newGrid(t)
	g.withLoad(func() {
		for n := range *times {
			f := failures[n%len(failures)]
			if g.disks == "" && strings.Contains(f.name, "disk") {
				continue
			}
			if !g.failOver(n, &f) {
				return // the cluster is not whole any more
			}
		}
	})
}

// failOver makes the primary fail, and reports whether work went on in time.
func (g *grid) failOver(n int, f *failure) bool {
	former := g.primary
	g.rate.end(g.load)
	f.inflict(g, former)
	time.Sleep(detection)
	g.promote()
	promoted, stalled := time.Now(), g.stalls.Total()
	for g.load.Answered().Before(promoted) {
		if time.Since(promoted) > recovery+g.stalls.Total()-stalled {
			var standbys string
			g.query(g.servers[g.primary].URL, "select coalesce(string_agg(application_name || ' ' || state || ' ' || sync_state, ', '), 'none') from pg_stat_replication", &standbys)
			g.load.Fault("%d, %s: nothing is acknowledged %v after the promotion (L4); standbys: %s", n+1, f.name, recovery, standbys)
			return false
		}
		time.Sleep(10 * time.Millisecond)
	}
	g.t.Logf("%d, %s: acknowledged again %v after the promotion (the machine stood still for %v)", n+1, f.name,
		g.load.Answered().Sub(promoted).Round(10*time.Millisecond), (g.stalls.Total() - stalled).Round(10*time.Millisecond))
	if f.former {
		g.reconnectFormer(former)
	}
	g.rate.begin(g.load)
	g.settles(n + 1)
	g.rejoin(former)
	time.Sleep(time.Second)
	return true
}

// reconnectFormer makes the former primary reachable again, as a primary. New connections may reach it. Only nodes that
// have worked with the new primary recognize it, so it waits until all nodes are ready.
func (g *grid) reconnectFormer(former int) {
	for _, url := range g.urls {
		rig.Ready(g.t, url)
	}
	g.ways[former].Heal()
	var before, after int
	count := "select count(*) from perdure.step"
	g.query(g.servers[former].URL, count, &before)
	g.ways[g.primary].Cut()
	cut := time.Now()
	for g.load.Answered().Before(cut) && time.Since(cut) < recovery {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(time.Second)
	g.query(g.servers[former].URL, count, &after)
	if before != after {
		g.load.Fault("the former primary had %d steps, and has %d (F153)", before, after)
	}
	if former < g.primary { // it comes before the new primary in the URL
		refused := false
		for _, m := range g.nodes {
			refused = refused || strings.Contains(m.Log.String(), "former primary")
		}
		if !refused {
			g.load.Fault("no node has refused the former primary (F153)")
		}
	}
}

// settles waits until the nodes have found that nothing is lost: each failover has raised one alert, and all are
// closed.
func (g *grid) settles(failovers int) {
	raised, open := 0, 0
	var all []perdure.AlertView
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		page, err := g.load.Clients[0].ListAlerts(g.t.Context(), perdure.AlertQuery{Closed: true, Limit: 200})
		if err != nil {
			continue
		}
		all, raised, open = page.Items, 0, 0
		for _, a := range all {
			if a.Kind == perdure.AlertSetback {
				raised++
				if a.ClosedAt.IsZero() {
					open++
				}
			}
		}
		if raised == failovers && open == 0 {
			return
		}
	}
	g.load.Fault("%d alerts setback after %d failovers, %d of them open: %+v", raised, failovers, open, all)
}

// calm is how long requests are measured before the first restart.
const calm = 3 * time.Second

// F117, I1: nodes and standbys are restarted one after the other. No request takes a second longer because of that, as
// far as the machine is fast enough, and none is lost.
func TestRollingRestart(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	g := newGrid(t)
	g.withLoad(func() {
		g.load.Longest()
		time.Sleep(calm)
		undisturbed, stalled := g.load.Longest(), g.stalls.Total() // how slow the machine is by itself
		for i, m := range g.nodes {
			m.End(syscall.SIGTERM)
			g.must(m.Start())
			rig.Ready(t, g.urls[i])
		}
		for i, s := range g.servers {
			if i != g.primary {
				s.Stop(false)
				time.Sleep(time.Second)
				s.Start()
				g.replicates(i)
			}
		}
		longest, still := g.load.Longest(), g.stalls.Total()-stalled
		if longest > time.Second+5*undisturbed+still {
			g.load.Fault("a request took %v with all its repetitions, and at most %v before the restarts; the machine stood still for %v", longest, undisturbed, still)
		}
		t.Logf("the longest request took %v, and %v before the restarts; the machine stood still for %v",
			longest.Round(time.Millisecond), undisturbed.Round(time.Millisecond), still.Round(time.Millisecond))
	})
}

// replicates waits until a standby follows again.
func (g *grid) replicates(i int) {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		var streams bool
		g.query(g.servers[g.primary].URL, fmt.Sprintf("select exists (select from pg_stat_replication where application_name = 's%d' and state = 'streaming')", i), &streams)
		if streams {
			return
		}
	}
	g.t.Fatalf("standby %d does not follow", i)
}
