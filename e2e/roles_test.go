package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/pgtest"
)

const (
	// roleTTL is so long that no node is late, even on a slow machine.
	roleTTL = 12 * time.Second
	slack   = 5 * time.Second // the machine may stall
)

// peer is a node of a grid, and its process.
type peer struct {
	url string
	cmd *exec.Cmd
	id  string
}

// peers are the nodes on one database.
type peers struct {
	t   *testing.T
	url string
	db  *pgx.Conn
	all []*peer
}

func startPeers(t *testing.T, url string, n int) *peers {
	t.Helper()
	must(t, "migrate", "--store", url)
	db, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close(t.Context()) })
	g := &peers{t: t, url: url, db: db}
	for range n {
		g.join()
	}
	return g
}

func (g *peers) join(flags ...string) *peer {
	g.t.Helper()
	p := &peer{}
	p.url, p.cmd = serve(g.t, append([]string{"--store", g.url, "--agents", "none", "--role-ttl", roleTTL.String()}, flags...)...)
	g.all = append(g.all, p)
	eventually(g.t, "the node is in the list", func() bool {
		return g.db.QueryRow(g.t.Context(), "select id from perdure.nodes where pid = $1", p.cmd.Process.Pid).Scan(&p.id) == nil
	})
	return p
}

type roleHolders struct {
	leader, standby string
	epoch           int64
}

func (g *peers) role() (r roleHolders) {
	g.t.Helper()
	err := g.db.QueryRow(g.t.Context(), `select coalesce(leader, ''), coalesce(standby, ''), epoch from perdure.roles where name = 'supervisor'`).
		Scan(&r.leader, &r.standby, &r.epoch)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		g.t.Fatal(err)
	}
	return r
}

// whole waits until there is a leader and a standby.
func (g *peers) whole() (r roleHolders, leader, standby *peer) {
	g.t.Helper()
	eventually(g.t, "there is a leader and a standby", func() bool {
		r = g.role()
		leader, standby = g.named(r.leader), g.named(r.standby)
		return leader != nil && standby != nil && metric(g.t, leader.url, `perdure_role_leader{role="supervisor"}`) == 1
	})
	return r, leader, standby
}

func (g *peers) named(id string) *peer {
	for _, p := range g.all {
		if p.id == id && p.cmd.ProcessState == nil {
			return p
		}
	}
	return nil
}

// follows waits until the standby leads, and returns how long that took.
func (g *peers) follows(before roleHolders) time.Duration {
	g.t.Helper()
	began := time.Now()
	for deadline := began.Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if r := g.role(); r.leader == before.standby {
			if r.epoch != before.epoch+1 {
				g.t.Errorf("epoch %d after %d", r.epoch, before.epoch)
			}
			return time.Since(began)
		}
	}
	g.t.Fatalf("no node has taken over: %+v, was %+v", g.role(), before)
	return 0
}

// metric returns a metric of a node; -1 if it has none.
func metric(t *testing.T, url, name string) float64 {
	t.Helper()
	resp, err := http.Get(url + "/metrics")
	if err != nil {
		return -1
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return -1
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			var n float64
			if _, err := fmt.Sscan(value, &n); err == nil {
				return n
			}
		}
	}
	return -1
}

func signal(t *testing.T, p *peer, sig syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// F074, F076: another node takes over a role at once if its leader stops cleanly, and within the time to live if its
// leader dies. The role gets a new standby soon.
func TestRoleIsTakenOver(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	g := startPeers(t, pgtest.Start(t), 3)
	before, leader, standby := g.whole()
	shown(t, g, leader, standby, before)

	signal(t, leader, syscall.SIGTERM)
	duration := g.follows(before)
	t.Logf("SIGTERM: the standby leads after %v", duration)
	if duration > roleTTL/2 { // it is renewed at the latest when half of it is over
		t.Errorf("the lease was not handed over: %v", duration)
	}
	began := time.Now()
	eventually(t, "it knows that it leads", func() bool {
		return metric(t, standby.url, `perdure_role_leader{role="supervisor"}`) == 1
	})
	if knew := time.Since(began); knew > roleTTL/4 {
		t.Errorf("it was not told: it knew after %v", knew)
	}
	leader.cmd.Wait()

	before, leader, _ = g.whole()
	kill(t, leader.cmd)
	duration = g.follows(before)
	t.Logf("SIGKILL: the standby leads after %v", duration)
	if duration > roleTTL+slack {
		t.Errorf("it took %v, longer than the role's time to live", duration)
	}
	g.join()
	g.whole()
	must(t, "check", "--store", g.url)
}

// F163: two nodes on one host have both places of the role until a node starts on another host. That node takes over when
// all nodes of the first host are killed.
func TestRoleIsTakenOverAfterItsHostFails(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	g := startPeers(t, pgtest.Start(t), 0)
	g.join("--host-name", "x")
	g.join("--host-name", "x")
	before, _, _ := g.whole()
	other := g.join("--host-name", "y")
	eventually(t, "leader and standby are on different hosts", func() bool {
		var leader, standby string
		err := g.db.QueryRow(t.Context(), "select coalesce(leader_host, ''), coalesce(standby_host, '') from perdure.roles where name = 'supervisor'").
			Scan(&leader, &standby)
		return err == nil && leader == "x" && standby == "y"
	})
	now := g.role()
	if now.leader != before.leader || now.standby != other.id || now.epoch != before.epoch {
		t.Errorf("got %+v of %+v, want %s to stand by", now, before, other.id)
	}
	for _, p := range g.all[:2] {
		kill(t, p.cmd)
	}
	if duration := g.follows(now); duration > roleTTL+slack {
		t.Errorf("it took %v, longer than the role's time to live", duration)
	}
}

// shown checks that the command line and REST name the leader and the standby.
func shown(t *testing.T, g *peers, leader, standby *peer, before roleHolders) {
	t.Helper()
	resp, err := http.Get(leader.url + "/v1/nodes")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	type place struct {
		Role  string
		Epoch int64
	}
	var list struct {
		Items []struct {
			ID              string
			Leads, StandsBy []place
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil || len(list.Items) != len(g.all) {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, n := range list.Items {
		if leads := slices.Contains(n.Leads, place{"supervisor", before.epoch}); leads != (n.ID == leader.id) {
			t.Errorf("leader %s, and %+v", leader.id, n)
		}
		if stands := slices.ContainsFunc(n.StandsBy, func(p place) bool { return p.Role == "supervisor" }); stands != (n.ID == standby.id) {
			t.Errorf("standby %s, and %+v", standby.id, n)
		}
	}
	if text := must(t, "nodes", "--server", standby.url); strings.Count(text, fmt.Sprintf("supervisor (%d)", before.epoch)) != 2 {
		t.Errorf("perdure nodes:\n%s", text)
	}
}

// F038, F073, F075, F082: a leader is stopped in the middle of a write under its role, beyond its time, and continues
// after another node has taken over. It writes nothing.
func TestStoppedLeaderWritesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	g := startPeers(t, pgtest.Start(t), 2)
	before, leader, standby := g.whole()
	// Runs without a report expire one after the other, so that the due scan always finds something.
	steps := map[string]any{}
	for i := range 100 {
		steps[fmt.Sprint("s", i)] = object{"agent": "absent", "completeWithin": fmt.Sprintf("%dms", 1000+100*i), "retry": object{"attempts": 1}}
	}
	post(t, leader.url+"/v1/jobs", object{"type": "t", "key": "k", "steps": steps})
	if out := post(t, leader.url+"/v1/agents/absent/claim", object{"holder": "h", "max": 100, "wait": "5s"}); len(out["runs"].([]any)) != 100 {
		t.Fatalf("%v", out)
	}

	lock, err := pgx.Connect(t.Context(), g.url)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close(t.Context())
	must := func(conn *pgx.Conn, sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	must(lock, "begin")
	must(lock, "select * from perdure.role for update")
	eventually(t, "the leader is in the middle of a sweep", func() bool {
		var n int
		err := g.db.QueryRow(t.Context(), `select count(*) from pg_stat_activity where datname = current_database()
			and wait_event_type = 'Lock' and query like '%from perdure.role%for share'`).Scan(&n)
		return err == nil && n > 0
	})
	signal(t, leader, syscall.SIGSTOP)
	stopped := time.Now()
	must(lock, "commit")
	duration := g.follows(before)
	t.Logf("stopped: the standby leads after %v", duration)
	// The leader's locks are kept until the server ends its session (DefaultLimits.Idle).
	if duration > roleTTL+6*time.Second+slack {
		t.Errorf("it took %v", duration)
	}
	if refused := metric(t, standby.url, `perdure_role_writes_refused_total{role="supervisor"}`); refused != 0 {
		t.Errorf("the new leader was refused %v times", refused)
	}
	signal(t, leader, syscall.SIGCONT)
	eventually(t, "the old leader is refused", func() bool {
		return metric(t, leader.url, `perdure_role_writes_refused_total{role="supervisor"}`) >= 1
	})
	t.Logf("refused after it was stopped for %v", time.Since(stopped))
	eventually(t, "it stands by", func() bool { return g.role() == roleHolders{standby.id, leader.id, before.epoch + 1} })
	if leads := metric(t, leader.url, `perdure_role_leader{role="supervisor"}`); leads != 0 {
		t.Errorf("it still takes itself for the leader: %v", leads)
	}
}
