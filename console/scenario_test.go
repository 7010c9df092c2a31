package console_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/perdure/perdure/console"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/racedetector"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/rest"
	"github.com/perdure/perdure/store"
)

// The scenarios in e2e/scenario.test.mjs run on both stores. On PostgreSQL, the acts of operators in e2e/use.test.mjs do
// so, too: TestConsoleInABrowser has them on SQLite.
func TestScenariosInABrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("drives a browser")
	}
	racedetector.Skip(t) // the browser takes the time
	nodeJS, chromium := tools(t), lookChromium(t)
	if !console.Built() {
		missing(t, "PERDURE_TEST_REQUIRE_CHROMIUM", "the console is not built: run `make console`")
	}
	drive := func(t *testing.T, url string, args ...string) {
		g := startGrid(t, url)
		control := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			g.stop()
			g.start()
		}))
		t.Cleanup(control.Close)
		env := []string{"CONSOLE_URL=" + g.console(), "EMPTY_CONSOLE_URL=" + g.console(), "RESTART_URL=" + control.URL, "CHROMIUM=" + chromium}
		browse(t, nodeJS, env, append([]string{"--test-concurrency=1"}, args...)...)
	}
	t.Run("sqlite", func(t *testing.T) {
		drive(t, "sqlite:"+filepath.Join(t.TempDir(), "scenario.db"), "e2e/scenario.test.mjs")
	})
	t.Run("postgres", func(t *testing.T) {
		url := pgtest.Start(t)
		drive(t, url, "e2e/scenario.test.mjs")
		drive(t, url, "--test-name-pattern=an operator|rules refuse|is followed while it moves", "e2e/use.test.mjs")
	})
}

// scenarioGrid is a node with its API and its console that can be stopped and started again at the same address.
type scenarioGrid struct {
	t       *testing.T
	store   string
	address string
	stop    func()
}

func startGrid(t *testing.T, store string) *scenarioGrid {
	g := &scenarioGrid{t: t, store: store, address: "127.0.0.1:0"}
	g.start()
	t.Cleanup(func() { g.stop() })
	return g
}

func (g *scenarioGrid) console() string { return "http://" + g.address + "/perdure/ui/" }

func (g *scenarioGrid) start() {
	s, err := store.Open(context.Background(), g.store, store.Migrated)
	if err != nil {
		g.t.Error(err)
		return
	}
	var listener net.Listener
	for range 100 { // the port may still be closing
		if listener, err = net.Listen("tcp", g.address); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		g.t.Error(err)
		return
	}
	g.address = listener.Addr().String()
	n := node.New(s, node.Config{Agents: agents(), Version: "v0.0.0-test", HostName: "test-1", Listen: g.address})
	if err := n.Start(context.Background()); err != nil {
		g.t.Error(err)
	}
	serving, stopServing := context.WithCancel(context.Background())
	mux := http.NewServeMux()
	mux.Handle("/perdure/", http.StripPrefix("/perdure", rest.Handler(n, rest.Until(serving))))
	mux.Handle("/perdure/ui/", console.Handler("/perdure/ui/"))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }()
	g.stop = func() {
		stopServing()
		_ = server.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := n.Stop(ctx); err != nil {
			g.t.Error(err)
		}
		if err := s.Close(); err != nil {
			g.t.Error(err)
		}
	}
}
