// Package grid runs commands on a grid of real processes: nodes on one PostgreSQL, and hosts with their keepers. It measures
// how much of the slots' time is lost, as the articles on Nebula do, and kills hosts and nodes meanwhile.
//
// Every command holds a lock of its step while it lives, and makes a file at its end that must not exist yet. So the
// directory shows from outside whether two runs of a step lived at once, and whether each command had its effect.
//
//	make grid                # the measures; 100 hosts, 10,000 commands of 20 s and 20,000 of 5 s
//	go test ./e2e/grid       # 20 hosts, 1,000 commands of 2 s with kills, and the measures in a small form
package grid

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/e2e/rig"
	"github.com/perdure/perdure/internal/pgtest"
)

var (
	hosts    = flag.Int("hosts", 20, "number of hosts")
	slots    = flag.Int("slots", 10, "commands that a host runs at a time")
	commands = flag.Int("commands", 1000, "number of commands")
	length   = flag.Duration("length", 2*time.Second, "how long a command takes")
	kills    = flag.Bool("kills", true, "kill hosts and nodes meanwhile")
	seed     = flag.Uint64("seed", 0, "repeats the order of kills, as far as processes can be repeated; 0: any")
)

func TestMain(m *testing.M) {
	if how := os.Getenv(writerVariable); how != "" {
		if err := write(how, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	rig.Main(m)
}

const (
	nodes = 2
	// The locks of a host end so long after a node heard of it last. A shorter time would end runs while a node that was
	// killed starts again on a busy machine, five times in a row for some of them.
	heartbeat = 15 * time.Second
)

// task is the program of every command: shared directory, number, seconds. It fails if another run of its step is alive.
const task = `exec 9>>"$1/locks/$2"
flock -n 9 || { echo "$2 $PERDURE_RUN" >> "$1/doubled"; exit 1; }
begin=$(date +%s%N)
sleep "$3"
(set -C; : > "$1/done/$2") 2>/dev/null
echo "$begin $(date +%s%N)" >> "$1/times/$2"
`

// grid is nodes and hosts.
type grid struct {
	*testing.T
	shared string
	urls   []string
	nodes  []*rig.Process
	hosts  []*rig.Process
	states []string // state directories of the hosts
	client *client.Client
}

func newGrid(t *testing.T, hosts, slots int) *grid {
	g := &grid{T: t}
	dir, err := os.MkdirTemp("", "perdure-grid-") // paths of sockets are short
	g.must(err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	g.shared = filepath.Join(dir, "shared")
	for _, sub := range []string{"locks", "done", "times"} {
		g.must(os.MkdirAll(filepath.Join(g.shared, sub), 0o755))
	}
	server := pgtest.NewServer(t, true)
	for i := range nodes {
		address := rig.FreeAddress(t)
		g.urls = append(g.urls, "http://"+address)
		g.nodes = append(g.nodes, &rig.Process{Name: fmt.Sprint("node ", i+1), Args: []string{"serve", "--listen", address, "--migrate",
			"--store", server.URL, "--agents", "none", "--grace", "3s", "--log-level", "warn"}})
	}
	for i := range hosts {
		state := filepath.Join(dir, "h"+strconv.Itoa(i))
		g.states = append(g.states, state)
		args := []string{"host", "--name", "h" + strconv.Itoa(i), "--slots", strconv.Itoa(slots), "--state", state,
			"--server", g.urls[i%nodes], "--heartbeat", heartbeat.String(), "--stop-within", "1s", "--keep", "0s"}
		if os.Getuid() == 0 {
			args = append(args, "--allow-root")
		}
		g.hosts = append(g.hosts, &rig.Process{Name: fmt.Sprint("host ", i), Args: args})
	}
	t.Cleanup(func() {
		for _, p := range append(slices.Clone(g.hosts), g.nodes...) {
			p.Dismiss()
		}
		for i := range g.hosts {
			g.killKeepers(i)
		}
		if t.Failed() {
			for _, p := range append(slices.Clone(g.nodes), g.hosts[:min(3, len(g.hosts))]...) {
				t.Logf("%s: %s", p.Name, p.Log.String())
			}
		}
	})
	for _, p := range g.nodes {
		g.must(p.Start())
	}
	for _, url := range g.urls {
		rig.Ready(t, url)
	}
	g.client, err = client.New(g.urls[0], client.Author("grid"))
	g.must(err)
	for _, p := range g.hosts {
		g.must(p.Start())
	}
	return g
}

func (g *grid) must(err error) {
	g.Helper()
	if err != nil {
		g.Fatal(err)
	}
}

// submit submits the commands as jobs of one step.
func (g *grid) submit(n int, length time.Duration) {
	base, err := json.Marshal(map[string]any{"type": "grid", "key": "c${input.n}", "steps": map[string]any{"run": map[string]any{"agent": "exec",
		"with": map[string]any{"command": []string{"sh", "-c", task, "task", g.shared, "${input.n}", strconv.FormatFloat(length.Seconds(), 'f', -1, 64)}}}}})
	g.must(err)
	all := make([]json.RawMessage, n)
	for i := range all {
		all[i] = fmt.Appendf(nil, `{"input":{"n":"%06d"}}`, i)
	}
	for batch := range slices.Chunk(all, perdure.MaxBatch) {
		answers, err := g.client.SubmitAll(g.Context(), base, batch)
		g.must(err)
		for _, a := range answers {
			if a.Err != nil {
				g.Fatal(a.Err)
			}
		}
	}
}

// count returns the number of files in a directory of the shared one.
func (g *grid) count(sub string) int {
	list, err := os.ReadDir(filepath.Join(g.shared, sub))
	g.must(err)
	return len(list)
}

// interval is the life of a command.
type interval struct{ begin, end int64 }

// times returns the life of each command that has come to its end.
func (g *grid) times() (all []interval) {
	list, err := os.ReadDir(filepath.Join(g.shared, "times"))
	g.must(err)
	for _, f := range list {
		text, err := os.ReadFile(filepath.Join(g.shared, "times", f.Name()))
		g.must(err)
		for line := range strings.Lines(string(text)) {
			var i interval
			if _, err := fmt.Sscan(line, &i.begin, &i.end); err == nil {
				all = append(all, i)
			}
		}
	}
	return all
}

// overhead returns the share of the slots' time in which they were idle while work was waiting: from the first instant at
// which all slots were busy until the last command began.
func overhead(all []interval, slots int) (share float64, first, last time.Time) {
	slices.SortFunc(all, func(a, b interval) int { return int(a.begin - b.begin) })
	if len(all) < slots {
		return 0, first, last
	}
	from, to := all[slots-1].begin, all[len(all)-1].begin
	var busy int64
	for _, i := range all {
		busy += max(0, min(i.end, to)-max(i.begin, from))
	}
	return 1 - float64(busy)/(float64(slots)*float64(to-from)), time.Unix(0, from), time.Unix(0, to)
}

// TestCommandsOnHosts runs commands on hosts, in the full size by `make grid`. Hosts and nodes are killed if asked for (F230, F233).
func TestCommandsOnHosts(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	g := newGrid(t, *hosts, *slots)
	begin := time.Now()
	g.submit(*commands, *length)
	ctx, stop := context.WithCancel(t.Context())
	killed := make(chan map[string]int, 1)
	if *kills {
		go func() { killed <- g.kill(ctx) }()
	} else {
		killed <- nil
	}
	limit := begin.Add(time.Minute + 10*time.Duration(1+*commands/(*hosts**slots))*(*length) + 20*heartbeat)
	for g.count("done") < *commands {
		if time.Now().After(limit) || g.bad() {
			t.Errorf("%d of %d commands had their effect within %v", g.count("done"), *commands, time.Since(begin))
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	stop()
	t.Logf("%d commands of %v on %d hosts of %d slots: %v; killed: %v", *commands, *length, *hosts, *slots, time.Since(begin).Round(10*time.Millisecond), <-killed)
	if text, err := os.ReadFile(filepath.Join(g.shared, "doubled")); err == nil {
		t.Errorf("two runs of a step were alive at once: %s", text)
	}
	g.settled()
	share, from, to := overhead(g.times(), *hosts**slots)
	what := ""
	if *kills {
		what = ", with kills"
	}
	g.figure(fmt.Sprintf("%d commands of %v on %d hosts of %d slots%s: slots idle while work was waiting", *commands, *length, *hosts, *slots, what), map[bool]string{true: "5 %"}[!*kills && *length >= 20*time.Second],
		"%.1f %% of %v", 100*share, to.Sub(from).Round(time.Second))
	if share < 0 {
		t.Error("more commands lived at once than there are slots")
	}
	g.bad()
}

// bad reports processes that have ended by themselves.
func (g *grid) bad() (any bool) {
	for _, p := range append(slices.Clone(g.nodes), g.hosts...) {
		for _, bad := range p.Bad() {
			any = true
			g.Error(bad)
		}
	}
	return any
}

// settled waits until all jobs are done.
func (g *grid) settled() {
	g.Helper()
	for limit := time.Now().Add(3 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		page, err := g.client.ListJobs(g.Context(), perdure.JobQuery{Type: "grid", Phases: []perdure.Phase{perdure.Waiting, perdure.Running, perdure.Parked}, Limit: 1})
		g.must(err)
		if len(page.Items) == 0 {
			break
		}
		if time.Now().After(limit) {
			job := page.Items[0]
			history, err := g.client.History(g.Context(), perdure.HistoryQuery{Job: job.ID.String(), Limit: perdure.MaxListLimit})
			g.must(err)
			text, _ := json.MarshalIndent(history.Items, "", "  ")
			g.Fatalf("job %s, key %s, has not settled: %s", job.ID, job.Key, text)
		}
	}
}

// kill kills hosts and nodes, one after the other, and counts what it did.
func (g *grid) kill(ctx context.Context) map[string]int {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	g.Logf("-seed %d", *seed)
	rng, did := rand.New(rand.NewPCG(*seed, 1)), map[string]int{}
	pause := func(d time.Duration) bool {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(d):
			return true
		}
	}
	for pause(time.Duration(500+rng.IntN(1000)) * time.Millisecond) {
		i := rng.IntN(len(g.hosts))
		switch what := []string{"host agent", "host", "node", "host agent by SIGTERM"}[rng.IntN(4)]; what {
		case "host agent": // its commands go on
			did[what]++
			g.restart(g.hosts[i], syscall.SIGKILL)
		case "host agent by SIGTERM":
			did[what]++
			g.restart(g.hosts[i], syscall.SIGTERM)
		case "host": // with all that runs there
			did[what]++
			g.hosts[i].End(syscall.SIGKILL)
			g.killKeepers(i)
			pause(time.Duration(rng.IntN(3)) * heartbeat / 2)
			g.must(g.hosts[i].Start())
		case "node":
			did[what]++
			n := rng.IntN(nodes)
			g.restart(g.nodes[n], syscall.SIGKILL)
			rig.Ready(g.T, g.urls[n])
		}
	}
	return did
}

func (g *grid) restart(p *rig.Process, sig syscall.Signal) {
	p.End(sig)
	g.must(p.Start())
}

// killKeepers kills the keepers of a host. Their commands die with them.
func (g *grid) killKeepers(host int) {
	for _, pid := range g.keepers(host) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// keepers returns the processes of the keepers of a host.
func (g *grid) keepers(host int) (pids []int) {
	out, _ := exec.Command("pgrep", "--full", "keeper.*"+g.states[host]+"/").Output()
	for pid := range strings.FieldsSeq(string(out)) {
		if n, err := strconv.Atoi(pid); err == nil {
			pids = append(pids, n)
		}
	}
	return pids
}
