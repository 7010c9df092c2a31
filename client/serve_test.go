package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/rest"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/store/memory"
)

// grid is a node behind a server that can be taken away and come back at the same address.
type grid struct {
	*testing.T
	node   *node.Node
	beats  atomic.Int64 // heartbeats that have come
	addr   string
	server *http.Server
	served chan struct{}
}

func newGrid(t *testing.T, agents ...*perdure.Agent) *grid {
	t.Helper()
	n := node.New(memory.New(), node.Config{Agents: agents})
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	g := &grid{T: t, node: n, addr: "127.0.0.1:0"}
	g.up()
	t.Cleanup(func() {
		g.server.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		n.Stop(ctx)
	})
	return g
}

func (g *grid) up() {
	g.Helper()
	l, err := net.Listen("tcp", g.addr)
	if err != nil {
		g.Fatal(err)
	}
	g.addr = l.Addr().String()
	g.server = rest.Server("", rest.New(rest.Config{Service: counting{g.node, &g.beats}, Log: slog.New(slog.DiscardHandler)}), slog.New(slog.DiscardHandler))
	server, served := g.server, make(chan struct{})
	g.served = served
	go func() { defer close(served); _ = server.Serve(l) }()
}

// counting counts heartbeats.
type counting struct {
	protocol.Server
	beats *atomic.Int64
}

func (c counting) Heartbeat(ctx context.Context, holder string, beats []protocol.Heartbeat) ([]protocol.HeartbeatResult, error) {
	c.beats.Add(1)
	return c.Server.Heartbeat(ctx, holder, beats)
}

func (c counting) HeartbeatAll(ctx context.Context, all protocol.CompleteHeartbeat) ([]protocol.HeartbeatResult, time.Time, error) {
	c.beats.Add(1)
	return c.Server.HeartbeatAll(ctx, all)
}

// down breaks every connection in the middle of whatever it carries.
func (g *grid) down() {
	g.server.Close()
	<-g.served
}

// serve carries agents as a process far away would. The function drains it.
func (g *grid) serve(heartbeat time.Duration, agents ...*perdure.Agent) (c *client.Client, drain func() error) {
	g.Helper()
	c = connect(g.T, "http://"+g.addr)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- c.Serve(ctx, client.ServeConfig{Heartbeat: heartbeat, Grace: 10 * time.Second}, agents...)
	}()
	drain = sync.OnceValue(func() error { cancel(); return <-ended })
	g.Cleanup(func() { _ = drain() })
	return c, drain
}

// service remembers effects by key, as one should.
type service struct {
	mu   sync.Mutex
	done map[string]int // net effects by the do's key
	runs int
}

type note struct {
	Text string `json:"text"`
}

func (s *service) agent(name string) *perdure.Agent {
	a := perdure.NewAgent(name)
	perdure.Handle(a, "write", perdure.Op[note, note]{
		Do: func(ctx context.Context, in note) (note, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.runs++
			s.done[perdure.RunOf(ctx).Key] = 1
			return note{"wrote " + in.Text}, perdure.Progress(ctx, "written")
		},
		Undo: func(ctx context.Context, in note, out note) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if out.Text != "" && out.Text != "wrote "+in.Text {
				return perdure.Rejected(fmt.Errorf("undo of %q with %q", in.Text, out.Text))
			}
			s.done[perdure.RunOf(ctx).DoKey] = 0
			return nil
		},
	})
	return a
}

func (s *service) net() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.done {
		n += d
	}
	return n
}

func chain(key string) perdure.Definable {
	job := perdure.Define("t").Key(key).Chain()
	for _, name := range []string{"one", "two", "three"} {
		job.Step(name, "a").Action("write").With(note{name}).Undo().
			CompleteWithin(20 * time.Second).Retry(perdure.Retry{Attempts: 20, Backoff: perdure.Duration(10 * time.Millisecond)})
	}
	return job
}

// The same agent runs in a node's own process and far away, unchanged; and jobs are submitted, waited for,
// followed, listed and turned round in the same words.
func TestNearAndFar(t *testing.T) {
	try := func(t *testing.T, jobs perdure.Jobs, s *service) {
		ctx := within(t, time.Minute)
		if _, created, err := perdure.Submit(ctx, jobs, chain("k")); err != nil || !created {
			t.Fatal(created, err)
		}
		var last *perdure.JobView
		for view, err := range perdure.Watch(ctx, jobs, "k") {
			if err != nil {
				t.Fatal(err)
			}
			last = view
		}
		if out, err := perdure.OutputOf[note](last, "three"); err != nil || out.Text != "wrote three" || s.net() != 3 {
			t.Errorf("%+v, %v, %d effects", out, err, s.net())
		}
		if _, err := jobs.Act(ctx, "k", perdure.Act{Verb: perdure.VerbUndo, Author: "me"}); err != nil {
			t.Fatal(err)
		}
		if v, err := perdure.Wait(ctx, jobs, "k"); err != nil || v.Current != perdure.Undone || s.net() != 0 {
			t.Errorf("%+v, %v, %d effects", v, err, s.net())
		}
		n := 0
		for v, err := range perdure.All(ctx, jobs, perdure.JobQuery{Type: "t"}) {
			if n++; err != nil || v.Key != "k" {
				t.Errorf("%+v, %v", v, err)
			}
		}
		if n != 1 {
			t.Errorf("%d jobs", n)
		}
		if _, err := perdure.Wait(ctx, jobs, "nobody"); perdure.CodeOf(err) != perdure.CodeNotFound {
			t.Error(err)
		}
		if _, _, err := perdure.Submit(ctx, jobs, perdure.Define("t").Step("s", "a").After("x")); perdure.CodeOf(err) != perdure.CodeInvalid ||
			!strings.HasPrefix(err.Error(), "/steps/s/after/0: ") {
			t.Error(err)
		}
		// Where nobody runs an agent, those who do not wait any more are told.
		if _, _, err := perdure.Submit(ctx, jobs, perdure.Define("lonely").Key("lonely").Step("s", "nobody").Step("next", "a").After("s")); err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		const why = "job lonely is not at rest: step s: no agent nobody has claimed runs here; known agents: a"
		if _, err := perdure.Wait(short, jobs, "lonely"); !errors.Is(err, context.DeadlineExceeded) || !strings.HasSuffix(err.Error(), why) {
			t.Error(err)
		}
		watched, stop := context.WithCancel(ctx)
		defer stop()
		var ended error
		for _, err := range perdure.Watch(watched, jobs, "lonely") {
			stop()
			ended = err
		}
		if !errors.Is(ended, context.Canceled) || !strings.HasSuffix(ended.Error(), why) {
			t.Error(ended)
		}
	}
	t.Run("near", func(t *testing.T) {
		s := &service{done: map[string]int{}}
		try(t, newGrid(t, s.agent("a")).node, s)
	})
	t.Run("far", func(t *testing.T) {
		s := &service{done: map[string]int{}}
		c, drain := newGrid(t).serve(0, s.agent("a"))
		try(t, c, s)
		if err := drain(); err != nil {
			t.Error(err)
		}
	})
}

// F019, F055, F064, F120: the server goes away again and again, with claims, reports and heartbeats on their
// way. Agents come back by themselves, and every job ends, there and back.
func TestServerGoesAway(t *testing.T) {
	s := &service{done: map[string]int{}}
	g := newGrid(t)
	for range 2 {
		g.serve(2*time.Second, s.agent("a"))
	}
	const jobs = 30
	ctx := within(t, 3*time.Minute)
	for i := range jobs {
		if _, _, err := perdure.Submit(ctx, g.node, chain(fmt.Sprint("k", i))); err != nil {
			t.Fatal(err)
		}
		if i%10 == 5 {
			g.down()
			time.Sleep(30 * time.Millisecond)
			g.up()
		}
	}
	all := func(want perdure.State, effects int) {
		t.Helper()
		for i := range jobs {
			if v, err := perdure.Wait(ctx, g.node, fmt.Sprint("k", i)); err != nil || v.Current != want || v.Phase != perdure.Settled {
				t.Fatalf("%+v, %v", v, err)
			}
		}
		if n := s.net(); n != effects {
			t.Errorf("%d effects, want %d", n, effects)
		}
	}
	all(perdure.Done, 3*jobs)
	for i := range jobs {
		if _, err := g.node.Act(ctx, fmt.Sprint("k", i), perdure.Act{Verb: perdure.VerbUndo, Author: "me"}); err != nil {
			t.Fatal(err)
		}
		if i%10 == 5 {
			g.down()
			g.up()
		}
	}
	all(perdure.Undone, 0)
	t.Logf("%d do runs of %d steps", s.runs, 3*jobs)
}

// A run that is not wanted any more is told so with its next heartbeat, and its context ends.
func TestHeartbeatSaysStop(t *testing.T) {
	g := newGrid(t)
	began, stopped := make(chan struct{}), make(chan error, 1)
	a := perdure.NewAgent("a")
	perdure.Handle(a, "long", perdure.Op[any, any]{
		Do: func(ctx context.Context, _ any) (any, error) {
			close(began)
			<-ctx.Done()
			stopped <- ctx.Err()
			return nil, perdure.NoEffect(errors.New("stopped"))
		},
		Undo: func(context.Context, any, any) error { return nil },
	})
	c, _ := g.serve(6*time.Second, a)
	ctx := within(t, time.Minute)
	job, _, err := perdure.Submit(ctx, c, perdure.Define("t").Step("long", "a").Undo().CompleteWithin(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	<-began
	if _, err := c.Act(ctx, job.ID.String(), perdure.Act{Verb: perdure.VerbUndo, Author: "me"}); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-stopped:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
	case <-ctx.Done():
		t.Fatal("nobody has told it")
	}
	if v, err := perdure.Wait(ctx, c, job.ID.String()); err != nil || v.Current != perdure.Undone {
		t.Errorf("%+v, %v", v, err)
	}
}

// L6, F117: who is to go claims no more and finishes what runs, with heartbeats to the last.
func TestServeDrains(t *testing.T) {
	g := newGrid(t)
	began, end := make(chan struct{}, 1), make(chan struct{})
	slow := perdure.NewAgent("a")
	slow.Slots = 1
	perdure.Handle(slow, "work", perdure.Op[any, string]{Do: func(ctx context.Context, _ any) (string, error) {
		began <- struct{}{}
		select {
		case <-end:
			return "slow", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}})
	_, drain := g.serve(6*time.Second, slow)
	ctx := within(t, time.Minute)
	work := func(key string) {
		t.Helper()
		if _, _, err := perdure.Submit(ctx, g.node, perdure.Define("t").Key(key).Step("work", "a").CompleteWithin(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	work("first")
	<-began
	work("second")
	ended := make(chan error, 1)
	go func() { ended <- drain() }()
	quick := perdure.NewAgent("a")
	perdure.Handle(quick, "work", perdure.Op[any, string]{Do: func(context.Context, any) (string, error) { return "quick", nil }})
	g.serve(0, quick)
	if v, err := perdure.Wait(ctx, g.node, "second"); err != nil || v.Current != perdure.Done {
		t.Fatalf("%+v, %v", v, err)
	}
	for before := g.beats.Load(); g.beats.Load() < before+2; time.Sleep(10 * time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatal("no heartbeats come any more")
		}
	}
	close(end)
	for key, want := range map[string]string{"first": "slow", "second": "quick"} {
		v, err := perdure.Wait(ctx, g.node, key)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := perdure.OutputOf[string](v, "work"); err != nil || out != want || v.Steps.Get("work").Run != 1 {
			t.Errorf("%s: %q in run %d, %v", key, out, v.Steps.Get("work").Run, err)
		}
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A program that carries nothing by mistake is told, and does not idle for ever.
func TestServeWithoutAgents(t *testing.T) {
	c, err := client.New("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Serve(t.Context(), client.ServeConfig{}); perdure.CodeOf(err) != perdure.CodeInvalid {
		t.Error(err)
	}
}
