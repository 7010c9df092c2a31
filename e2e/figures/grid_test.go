package figures

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/console"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/rest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/postgres"
)

// grid is a store with one node, its API and its console, all in this process.
type grid struct {
	t    *testing.T
	kind string // SQLite, PostgreSQL
	url  string // of the store
	node *node.Node
	base string // address of the API

	finished atomic.Int64 // jobs of which the last run was carried out
	ticks    atomic.Int64 // runs of agent ticker
	streams  atomic.Int64 // event streams that are open
}

func newGrid(t *testing.T, url string) *grid {
	g := &grid{t: t, kind: "SQLite", url: url}
	if !strings.HasPrefix(url, "sqlite:") {
		g.kind = "PostgreSQL"
		if _, _, err := postgres.Migrate(t.Context(), url); err != nil {
			t.Fatal(err)
		}
	}
	s, err := store.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g.node = node.New(s, node.Config{Agents: g.agents(), Version: "v0.0.0-figures", HostName: "figures-1", Listen: listener.Addr().String()})
	if err := g.node.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	serving, stopServing := context.WithCancel(context.Background())
	mux := http.NewServeMux()
	api := rest.Handler(g.node, rest.Until(serving))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") == "text/event-stream" {
			g.streams.Add(1)
			defer g.streams.Add(-1)
		}
		api.ServeHTTP(w, r)
	})
	mux.Handle("/ui/", console.Handler("/ui/"))
	mux.HandleFunc("/load/", g.control)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }()
	g.base = "http://" + listener.Addr().String()
	t.Cleanup(func() {
		stopServing()
		_ = server.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := g.node.Stop(ctx); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// orders is what the input of a step makes its run do.
type orders struct {
	Reject string `json:"reject,omitempty"` // end with this error code, for good
	Fail   string `json:"fail,omitempty"`   // fail with this error code
	Once   bool   `json:"once,omitempty"`   // fail only in the first run
	NoUndo bool   `json:"noUndo,omitempty"` // the undo fails
	Last   bool   `json:"last,omitempty"`   // the job ends with this step
	First  bool   `json:"first,omitempty"`  // the undo of the job ends with this step
	Wait   int    `json:"wait,omitempty"`   // milliseconds
}

// agents are those that carry out the jobs of the store. Agent mail, which many jobs need, has no process.
func (g *grid) agents() []*perdure.Agent {
	agent := perdure.NewAgent("service")
	agent.Slots = 8000
	agent.HandleAny(func(ctx context.Context, run *perdure.Run) (json.RawMessage, error) {
		var in orders
		if len(run.Input) > 0 {
			if err := json.Unmarshal(run.Input, &in); err != nil {
				return nil, perdure.Rejected(err, "input")
			}
		}
		if run.Direction == perdure.Undo {
			if in.NoUndo {
				return nil, perdure.Failed(errors.New("the service does not take it back"), "undo_refused")
			}
			if in.First {
				g.finished.Add(1)
			}
			return nil, nil
		}
		switch {
		case in.Reject != "":
			return nil, perdure.Rejected(errors.New("the service has refused the request with code "+in.Reject), in.Reject)
		case in.Fail != "" && (!in.Once || run.Number == 1):
			return nil, perdure.Failed(errors.New("the service does not respond: "+in.Fail), in.Fail)
		}
		if in.Last {
			g.finished.Add(1)
		}
		return nil, nil
	})
	carrier := perdure.NewAgent("carrier")
	carrier.Slots = 1000
	carrier.HandleAny(func(ctx context.Context, _ *perdure.Run) (json.RawMessage, error) {
		select { // until the end of the test
		case <-ctx.Done():
		case <-g.t.Context().Done():
		}
		return nil, perdure.Returned(errors.New("the test is over"))
	})
	// One run after the other, each of ten milliseconds: a hundred changes a second.
	ticker := perdure.NewAgent("ticker")
	ticker.Slots = 1
	var next time.Time
	ticker.HandleAny(func(ctx context.Context, _ *perdure.Run) (json.RawMessage, error) {
		if now := time.Now(); next.Before(now.Add(-time.Second)) {
			next = now
		}
		next = next.Add(10 * time.Millisecond)
		time.Sleep(time.Until(next))
		g.ticks.Add(1)
		return nil, nil
	})
	return []*perdure.Agent{agent, carrier, ticker}
}

func (g *grid) empty() bool {
	page, err := g.node.ListJobs(g.t.Context(), perdure.JobQuery{Limit: 1})
	if err != nil {
		g.t.Fatal(err)
	}
	return len(page.Items) == 0
}

// maxChecked bounds the jobs that are checked one by one, as `perdure check` does.
const maxChecked = 100_000

func (g *grid) check() {
	if err := g.node.Check(g.t.Context(), func(f kernel.Finding) { g.t.Errorf("check: %v", f) }); err != nil {
		g.t.Fatal(err)
	}
}

// get calls the API, and returns the status, the body and the time until the body was read.
func (g *grid) get(path string) (status int, body []byte, took time.Duration) {
	begin := time.Now()
	resp, err := http.Get(g.base + path)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return resp.StatusCode, body, time.Since(begin)
}

// submit submits jobs of one definition. It panics if a job is refused, because it is called in many goroutines, of which
// none can end the test.
func (g *grid) submit(base string, elements []json.RawMessage) []perdure.JobID {
	results, err := g.node.SubmitAll(g.t.Context(), json.RawMessage(base), elements)
	if err != nil {
		panic(err)
	}
	ids := make([]perdure.JobID, len(results))
	for i, r := range results {
		if r.Err != nil {
			panic(fmt.Sprintf("%v in %s with %s", r.Err, base, elements[i]))
		}
		ids[i] = r.ID
	}
	return ids
}

// eventually waits until a condition holds.
func (g *grid) eventually(what string, holds func() bool) {
	g.t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			g.t.Fatalf("not within five minutes: %s", what)
		}
	}
}

// loadBase is a job of the load: one step, carried out at once.
const loadBase = `{"type": "load", "steps": {"charge": {"agent": "service", "with": {"last": true}}}}`

// load submits jobs at a rate until stop is called, ten times a second, and returns how many were submitted.
func (g *grid) load(rate int) (stop func() (submitted int)) {
	ctx, cancel := context.WithCancel(g.t.Context())
	done := make(chan int)
	go func() {
		n := 0
		begin := time.Now()
		for ctx.Err() == nil {
			for due := int(time.Since(begin).Seconds() * float64(rate)); n < due && ctx.Err() == nil; {
				some := min(due-n, rate/10+1, perdure.MaxBatch)
				elements := make([]json.RawMessage, some)
				for i := range elements {
					elements[i] = json.RawMessage(`{}`)
				}
				if _, err := g.node.SubmitAll(ctx, json.RawMessage(loadBase), elements); err != nil {
					break
				}
				n += some
			}
			time.Sleep(50 * time.Millisecond)
		}
		done <- n
	}()
	return func() int { cancel(); return <-done }
}

// control is for the program that drives the browser: POST /load/start?rate=1000, POST /load/stop, /load/ticks and /load/streams.
func (g *grid) control(w http.ResponseWriter, r *http.Request) {
	var rate int
	switch {
	case strings.HasSuffix(r.URL.Path, "/start"):
		if _, err := fmt.Sscan(r.URL.Query().Get("rate"), &rate); err != nil || rate <= 0 {
			http.Error(w, "rate must be a positive number", http.StatusBadRequest)
			return
		}
		if stop := running.Swap(&loading{g.load(rate)}); stop != nil {
			stop.stop()
		}
	case strings.HasSuffix(r.URL.Path, "/stop"):
		if stop := running.Swap(nil); stop != nil {
			fmt.Fprint(w, stop.stop())
			return
		}
		fmt.Fprint(w, 0)
	case strings.HasSuffix(r.URL.Path, "/ticks"):
		fmt.Fprintf(w, `{"ticks": %d}`, g.ticks.Load())
	case strings.HasSuffix(r.URL.Path, "/streams"):
		fmt.Fprintf(w, `{"streams": %d}`, g.streams.Load())
	default:
		http.NotFound(w, r)
	}
}

type loading struct{ stop func() int }

var running atomic.Pointer[loading]
