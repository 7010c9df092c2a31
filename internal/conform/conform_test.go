package conform

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	agenthttp "github.com/perdure/perdure/agents/http"
	"github.com/perdure/perdure/client"
)

// shop is the service behind an agent. It knows its keys, unless it is forgetful.
type shop struct {
	forgetful bool // each do is a new effect
	noTombs   bool // an undo before its do is forgotten

	mu     sync.Mutex
	made   map[string]int
	undone map[string]bool
	n      int
}

func (s *shop) do(key string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.undone[key] && !s.noTombs {
		return 0, errors.New("it was undone")
	}
	if id, ok := s.made[key]; ok && !s.forgetful {
		return id, nil
	}
	s.n++
	if s.made == nil {
		s.made = map[string]int{}
	}
	s.made[key] = s.n
	return s.n, nil
}

func (s *shop) undo(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.undone == nil {
		s.undone = map[string]bool{}
	}
	s.undone[key] = true
}

func (s *shop) agent(takes time.Duration) *perdure.Agent {
	a := perdure.NewAgent("till")
	perdure.Handle(a, "charge", perdure.Op[any, int]{
		Do: func(ctx context.Context, _ any) (int, error) {
			select {
			case <-time.After(takes):
			case <-ctx.Done():
				return 0, ctx.Err()
			}
			return s.do(perdure.RunOf(ctx).Key)
		},
		Undo: func(ctx context.Context, _ any, _ int) error { s.undo(perdure.RunOf(ctx).DoKey); return nil },
	})
	return a
}

// program is a Process that runs in this one.
type program struct {
	run    func(ctx context.Context) // until TERM, which ends ctx
	mu     sync.Mutex
	cancel context.CancelFunc
	ended  chan struct{}
}

func (p *program) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel, p.ended = cancel, make(chan struct{})
	go func(ended chan struct{}) { defer close(ended); p.run(ctx) }(p.ended)
	return nil
}
func (p *program) Ended() <-chan struct{} { p.mu.Lock(); defer p.mu.Unlock(); return p.ended }
func (p *program) Terminate()             { p.mu.Lock(); defer p.mu.Unlock(); p.cancel() }
func (p *program) Kill()                  { p.Terminate() }

// test runs points against the program that run makes for the address of the stand.
func test(t *testing.T, cfg Config, points []Point, run func(ctx context.Context, url string)) map[Point]Result {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Agent, cfg.Action, cfg.Only = "till", "charge", points
	if cfg.Time == 0 {
		cfg.Time = 2 * time.Second
	}
	cfg.Process = &program{run: func(ctx context.Context) { run(ctx, "http://"+l.Addr().String()) }}
	s, err := NewStand(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.slack = 4 * time.Second
	s.Serve(l)
	defer s.Close()
	got := map[Point]Result{}
	if err := s.Run(t.Context(), func(r Result) {
		t.Logf("%s %s: %s", r.Verdict, r.Point, r.Why)
		got[r.Point] = r
	}); err != nil {
		t.Fatal(err)
	}
	return got
}

func serve(a *perdure.Agent) func(context.Context, string) {
	return func(ctx context.Context, url string) {
		c, err := client.New(url)
		if err == nil {
			err = c.Serve(ctx, client.ServeConfig{Heartbeat: time.Second, Grace: 5 * time.Second}, a)
		}
		_ = err // the end of ctx
	}
}

// An agent of the package for Go, with a service that knows its keys, passes every point.
func TestGoodAgentPasses(t *testing.T) {
	t.Parallel()
	got := test(t, Config{}, nil, serve((&shop{}).agent(1500*time.Millisecond)))
	for _, p := range Points {
		if got[p].Verdict != Passed {
			t.Errorf("%s: %+v", p, got[p])
		}
	}
}

// loop is an agent without a library, one run at a time. Its faults are those that agents really have.
type loop struct {
	shop        shop
	takes       time.Duration
	giveUpLate  bool // it ends when a report is refused
	neverRepeat bool // it ignores that a report was not answered
	pastLock    bool // it reports whatever the time
	dieAtOnce   bool // it ends at once at TERM
}

func (l *loop) run(ctx context.Context, url string) {
	life := context.WithoutCancel(ctx)
	if l.dieAtOnce {
		life = ctx
	}
	for ctx.Err() == nil {
		var work struct{ Runs []perdure.Run }
		if post(ctx, url+"/v1/agents/till/claim", map[string]any{"holder": "loop", "wait": "2s"}, &work) != nil {
			continue
		}
		for _, r := range work.Runs {
			if !l.carryOut(life, url, &r, time.Now()) {
				return
			}
		}
	}
}

func (l *loop) carryOut(ctx context.Context, url string, r *perdure.Run, since time.Time) bool {
	until := since.Add(time.Duration(r.RemainingMs) * time.Millisecond)
	select {
	case <-time.After(l.takes):
	case <-ctx.Done():
		return false
	}
	report := map[string]any{"job": r.Job, "step": r.Step, "run": r.Number, "outcome": "done"}
	if r.Direction == perdure.Undo {
		l.shop.undo(r.DoKey)
	} else if id, err := l.shop.do(r.Key); err == nil {
		report["output"] = id
	} else {
		report["outcome"], report["error"] = "rejected", map[string]any{"message": err.Error()}
	}
	for time.Now().Before(until) || l.pastLock {
		var answer struct {
			Results []struct{ Accepted bool }
		}
		err := post(ctx, url+"/v1/reports", map[string]any{"holder": "loop", "reports": []any{report}}, &answer)
		switch {
		case err == nil && !answer.Results[0].Accepted && l.giveUpLate:
			return false
		case err == nil || l.neverRepeat:
			return true
		case ctx.Err() != nil:
			return false
		}
	}
	return true
}

func post(ctx context.Context, url string, body, answer any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(b))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		time.Sleep(20 * time.Millisecond)
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		return fmt.Errorf("%d: %s %w", res.StatusCode, text, err)
	}
	return json.Unmarshal(text, answer)
}

// F341: each point finds the agent that breaks it, and says what it has seen. The same agent without the fault passes.
func TestBadAgentsFail(t *testing.T) {
	for _, c := range []struct {
		point Point
		bad   *loop
		why   string
	}{
		{Duplicate, &loop{shop: shop{forgetful: true}}, "of the same key"},
		{LateReport, &loop{giveUpLate: true}, "), and no later run was reported as done"},
		{LostAnswer, &loop{neverRepeat: true}, "was not repeated"},
		{UndoBeforeDo, &loop{shop: shop{noTombs: true}}, "tombstone"},
		{Silence, &loop{takes: 1700 * time.Millisecond, pastLock: true}, "after its lock had ended"},
		{Drain, &loop{takes: 1500 * time.Millisecond, dieAtOnce: true}, "run 1 was not reported"},
	} {
		t.Run(string(c.point), func(t *testing.T) {
			t.Parallel()
			cfg := Config{}
			if c.bad.takes == 0 {
				cfg.Time = MinTime
			}
			got := test(t, cfg, []Point{c.point}, c.bad.run)[c.point]
			if got.Verdict != Failed || !strings.Contains(got.Why, c.why) {
				t.Errorf("the bad agent: %+v", got)
			}
			good := loop{takes: c.bad.takes}
			if got := test(t, cfg, []Point{c.point}, good.run)[c.point]; got.Verdict != Passed {
				t.Errorf("the good agent: %+v", got)
			}
		})
	}
}

// What cannot be tested is skipped, with the reason.
func TestSkips(t *testing.T) {
	t.Parallel()
	got := test(t, Config{NoUndo: true}, []Point{UndoBeforeDo, Silence}, (&loop{}).run)
	if r := got[UndoBeforeDo]; r.Verdict != Skipped || !strings.Contains(r.Why, "--no-undo") {
		t.Errorf("%+v", r)
	}
	if r := got[Silence]; r.Verdict != Skipped || !strings.Contains(r.Why, "--long-input") {
		t.Errorf("%+v", r)
	}
}

// site is an HTTP service in front of a shop.
func site(t *testing.T, s *shop) (do, undo Request) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/undo" {
			s.undo(r.Header.Get("Perdure-Do-Key"))
			return
		}
		id, err := s.do(r.Header.Get("Idempotency-Key"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		fmt.Fprintf(w, `{"id": %d}`, id)
	}))
	t.Cleanup(srv.Close)
	return Request{URL: srv.URL + "/charge", Method: "POST"}, Request{URL: srv.URL + "/undo", Method: "POST"}
}

func TestURLs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		shop   *shop
		failed []Point
	}{
		{"good", &shop{}, nil},
		{"forgetful", &shop{forgetful: true}, []Point{Duplicate, LostAnswer}},
		{"without tombstones", &shop{noTombs: true}, []Point{UndoBeforeDo}},
	} {
		t.Run(c.name, func(t *testing.T) {
			do, undo := site(t, c.shop)
			var bad, all []Point
			if err := TestURL(t.Context(), URLConfig{Agent: agenthttp.New(agenthttp.Config{}), Do: do, Undo: &undo}, func(r Result) {
				t.Logf("%s %s: %s", r.Verdict, r.Point, r.Why)
				all = append(all, r.Point)
				if r.Verdict == Failed {
					bad = append(bad, r.Point)
				}
			}); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(all, Points) || !slices.Equal(bad, c.failed) {
				t.Errorf("%v of %v failed", bad, all)
			}
		})
	}
}

func TestBounds(t *testing.T) {
	for _, c := range []Config{{Time: time.Millisecond}, {Time: MaxTime + 1}, {Grace: -1}, {Grace: MaxGrace + 1}} {
		if err := c.Check(); perdure.CodeOf(err) != perdure.CodeInvalid {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for _, c := range []Config{{}, {Time: MinTime}, {Time: MaxTime, Grace: MaxGrace}} {
		if err := c.Check(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
