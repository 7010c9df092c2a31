// Package figures measures the console and the reads beneath it on a large store: a million jobs, of which a twentieth
// is open and two thousand are parked. It fills a store through a node, calls the REST API, and drives Chromium.
//
//	make test-console                       # a million jobs, on SQLite and PostgreSQL; figures, each with its goal
//	make test-console JOBS=50000            # less
//
// The goals are judged from fullSize jobs on. With fewer, as in `make test`, the test checks that every call and page
// answers, that nothing is counted by reading a whole table, and that the filled store passes `perdure check`.
//
//	fill_test.go      the jobs of the store
//	grid_test.go      the store, its node, and the load on it
//	server_test.go    times of the API
//	consoles_test.go  the throughput of a node with open consoles
//	browser_test.go   what console/e2e/figures.mjs measures in Chromium
//	bulk_test.go      acts on many jobs (make test-bulk)
//	fair_test.go      one customer with very many jobs, and many shares (make test-fair)
//	tokens_test.go    wrong tokens, and the calls of others meanwhile (make test-access)
//	report_test.go    the tables
package figures

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/pgtest"
)

var (
	jobs        = flag.Int("jobs", 20_000, "jobs of the large store")
	rounds      = flag.Int("rounds", 0, "how often each call is made, and each page opened; 0: 5 from a million jobs on, otherwise 1")
	tab         = flag.Duration("tab", 0, "for how long a tab is open at 100 changes a second; 0: a minute from a million jobs on, otherwise 3s")
	out         = flag.String("out", "", "the directory for figures.json and figures.md; empty: none is written")
	only        = flag.String("only", "", "measure only this part: server, consoles or browser")
	callsOnly   = flag.String("calls", "", "measure only calls of the API whose group matches this regular expression")
	browserOnly = flag.String("browser", "", "measure only these parts in the browser: sizes, pages, graphs, reports, tab")
	at          = flag.String("at", "", "a store to measure instead of new ones, postgres://… or sqlite:FILE; it is filled if it is empty, and stays")
)

// fullSize is the number of jobs from which on the goals are judged.
const fullSize = 1_000_000

func full() bool { return *jobs >= fullSize }

func TestMain(m *testing.M) {
	flag.Parse()
	if *rounds == 0 {
		*rounds = 1
		if full() {
			*rounds = 5
		}
	}
	if *tab == 0 {
		*tab = 3 * time.Second
		if full() {
			*tab = time.Minute
		}
	}
	os.Exit(m.Run())
}

// TestConsoleFigures fills a store of each kind, and measures.
func TestConsoleFigures(t *testing.T) {
	if testing.Short() {
		t.Skip("fills two stores and drives a browser")
	}
	r := &report{jobs: *jobs}
	t.Cleanup(func() { r.write(t, *out) })
	if *at != "" {
		measure(t, r, *at)
		return
	}
	t.Run("sqlite", func(t *testing.T) { measure(t, r, "sqlite:"+filepath.Join(t.TempDir(), "large.db")) })
	t.Run("postgres", func(t *testing.T) { measure(t, r, startPostgres(t)) })
}

// startPostgres starts a server as operations.md recommends for production, apart from the size of its memory.
func startPostgres(t *testing.T) string {
	if !full() {
		return pgtest.Start(t)
	}
	return pgtest.NewServer(t, true, "shared_buffers=1GB", "max_wal_size=8GB", "min_wal_size=4GB").URL
}

func measure(t *testing.T, r *report, url string) {
	g := newGrid(t, url)
	r.store = g.kind
	if g.empty() {
		begin := time.Now()
		g.fill(*jobs)
		t.Logf("%s: %d jobs in %s", g.kind, *jobs, time.Since(begin).Round(time.Second))
		g.checkCounts(*jobs)
		if *jobs <= maxChecked {
			g.check()
		}
	}
	parts := []struct {
		name string
		run  func(*testing.T, *grid, *report)
	}{{"server", measureServer}, {"consoles", measureConsoles}, {"browser", measureBrowser}}
	for _, p := range parts {
		if *only == "" || *only == p.name {
			t.Run(p.name, func(t *testing.T) { p.run(t, g, r) })
		}
	}
}
