package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure/e2e/rig"
	"github.com/perdure/perdure/internal/pgtest"
)

const nodes = 3

// grid has three nodes on one PostgreSQL, each with a connection of its own to it, and agents.
type grid struct {
	t      *testing.T
	pg     *pgtest.Server
	disk   string // of the database, small; "": the test may not make one
	clock  string // a file that sets the database's clock; "": there is no libfaketime
	urls   []string
	nodes  []*rig.Process
	agents []*rig.Process
	lines  []*rig.Proxy // from the nodes to the database
	ways   []*rig.Proxy // from the agents to the nodes
}

const diskSize = "450m"

func newGrid(t *testing.T) *grid {
	t.Helper()
	g := &grid{t: t}
	dir, err := os.MkdirTemp("", "perdure-grid-") // the database's user must get in
	g.must(err)
	g.must(os.Chmod(dir, 0o755))
	t.Cleanup(func() { os.RemoveAll(dir) })
	g.smallDisk(dir)
	g.fakeClock(dir)
	g.pg = pgtest.NewServer(t, true)
	g.clean()
	address := g.pg.URL[strings.Index(g.pg.URL, "@")+1 : strings.LastIndex(g.pg.URL, "/")]
	for i := range nodes {
		line := rig.NewProxy(t, address)
		g.lines = append(g.lines, line)
		addr := rig.FreeAddress(t)
		g.urls = append(g.urls, "http://"+addr)
		agents := "none"
		if i == 0 {
			agents = "http"
		}
		g.nodes = append(g.nodes, &rig.Process{Name: fmt.Sprint("node ", i+1), Args: []string{"serve", "--listen", addr, "--migrate",
			"--store", strings.Replace(g.pg.URL, address, line.Addr, 1), "--agents", agents, "--allow-private-targets",
			"--grace", "3s", "--log-level", "warn"}})
	}
	for i := range 2 {
		way := rig.NewProxy(t, strings.TrimPrefix(g.urls[i+1], "http://"))
		g.ways = append(g.ways, way)
		g.agents = append(g.agents, &rig.Process{Name: fmt.Sprint("agent ", i+1), Args: []string{"agent", "--server", "http://" + way.Addr,
			"--agents", "http", "--allow-private-targets", "--heartbeat", "1s", "--grace", "3s", "--log-level", "error"}})
	}
	t.Cleanup(func() {
		for _, m := range g.members() {
			m.Dismiss()
		}
	})
	for _, m := range g.nodes {
		g.must(m.Start())
	}
	for _, url := range g.urls {
		g.ready(url)
	}
	for _, m := range g.agents {
		g.must(m.Start())
	}
	return g
}

func (g *grid) members() []*rig.Process {
	return append(append([]*rig.Process{}, g.nodes...), g.agents...)
}

func (g *grid) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

func (g *grid) ready(url string) {
	g.t.Helper()
	rig.Ready(g.t, url)
}

// smallDisk puts the database on a disk that can be filled. This needs root.
func (g *grid) smallDisk(dir string) {
	at := filepath.Join(dir, "disk")
	if !rig.SmallDisk(g.t, at, diskSize) {
		return
	}
	g.disk = at
	g.t.Setenv("TMPDIR", at)
}

// fakeClock lets a file set the database's clock (libfaketime; PostgreSQL uses it, a Go program does not).
func (g *grid) fakeClock(dir string) {
	found, _ := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	if len(found) == 0 {
		return
	}
	g.clock = filepath.Join(dir, "clock")
	g.setClock("+0")
	for name, value := range map[string]string{"LD_PRELOAD": found[0], "FAKETIME_TIMESTAMP_FILE": g.clock,
		"FAKETIME_CACHE_DURATION": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"} {
		g.t.Setenv(name, value)
	}
}

func (g *grid) setClock(offset string) { g.must(os.WriteFile(g.clock, []byte(offset+"\n"), 0o644)) }

// clean removes the environment that only the database should have inherited.
func (g *grid) clean() {
	g.must(os.Unsetenv("LD_PRELOAD"))
}

// database calls do with the environment of the database.
func (g *grid) database(do func()) {
	if g.clock != "" {
		found, _ := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
		g.must(os.Setenv("LD_PRELOAD", found[0]))
		defer g.clean()
	}
	do()
}
