package conform

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/rest"
	"github.com/perdure/perdure/store/memory"
)

// Stand is the server to which the agent is connected.
type Stand struct {
	*node.Node
	cfg    Config
	front  *http.Server
	err    error // why no point can be tested
	cancel context.CancelFunc
	slack  time.Duration // how long an agent may take to go on after a fault

	mu      sync.Mutex
	scene   *scene
	given   []perdure.Run // runs to be given with the next claim, whatever the node grants
	claimed time.Time     // when the agent claimed last
	seen    chan struct{} // closed and replaced when something was recorded
}

// scene is what happens during one point. The functions are called with Stand.mu held; nil: nothing is injected.
type scene struct {
	job     perdure.JobID
	deliver func(run *perdure.Run) bool // reports whether the run is given to the agent; it may change the run
	report  func(r *protocol.Report) way
	beat    func() error

	deliveries []perdure.Run
	reports    []reported
}

// way is what happens to a report.
type way int

const (
	forward way = iota
	swallow     // the agent gets the answer "accepted", and the node never gets the report
	hold        // the node gets it after the run has expired
	cut         // the node gets it, and the agent gets no answer
)

type reported struct {
	protocol.Report
	at     time.Time
	result protocol.ReportResult
}

var errSilent = perdure.Refuse(perdure.CodeUnavailable, "perdure agents test: no answer")

// slice is how long a claim waits at the node before it looks for runs that are given without it.
const slice = 50 * time.Millisecond

// NewStand returns a stand that has started. Stop ends it.
func NewStand(ctx context.Context, cfg Config) (*Stand, error) {
	s := &Stand{Node: node.New(memory.New(), node.Config{}), cfg: cfg.withDefaults(), slack: 20 * time.Second, seen: make(chan struct{})}
	return s, s.Node.Start(ctx)
}

// Serve answers the agent at a listener, until Stop.
func (s *Stand) Serve(l net.Listener) {
	var serving context.Context
	serving, s.cancel = context.WithCancel(context.Background())
	api := rest.Handler(s, rest.Until(serving), rest.Log(slog.New(slog.DiscardHandler)))
	s.front = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { cutting(api, w, r) }), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.front.Serve(l) }()
}

// Close ends the stand. Runs in flight are lost.
func (s *Stand) Close() {
	if s.front != nil {
		s.cancel()
		_ = s.front.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = s.Node.Stop(ctx) // what it has is not kept
}

type cutKey struct{}

// cutting breaks the connection after the call if the service asks for it: the call was carried out, and its answer is
// lost.
func cutting(api http.Handler, w http.ResponseWriter, r *http.Request) {
	if !strings.HasSuffix(r.URL.Path, "/v1/reports") {
		api.ServeHTTP(w, r)
		return
	}
	lose := new(atomic.Bool)
	answer := &buffered{header: http.Header{}}
	api.ServeHTTP(answer, r.WithContext(context.WithValue(r.Context(), cutKey{}, lose)))
	if lose.Load() {
		panic(http.ErrAbortHandler)
	}
	for name, values := range answer.header {
		w.Header()[name] = values
	}
	if answer.status != 0 {
		w.WriteHeader(answer.status)
	}
	_, _ = w.Write(answer.body.Bytes())
}

// buffered keeps an answer until it is known whether it is sent.
type buffered struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (b *buffered) Header() http.Header         { return b.header }
func (b *buffered) WriteHeader(status int)      { b.status = status }
func (b *buffered) Write(p []byte) (int, error) { return b.body.Write(p) }

// noted wakes what waits for a record. mu must be held.
func (s *Stand) noted() {
	close(s.seen)
	s.seen = make(chan struct{})
}

// give gives a run to the agent with its next claim.
func (s *Stand) give(run perdure.Run, lasts time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	run.LockedUntil = time.Now().Add(lasts)
	run.CompleteBy, run.RemainingMs, run.WaitedMs = run.LockedUntil, lasts.Milliseconds(), 0
	s.given = append(s.given, run)
}

// until waits until a condition holds. It returns false if it does not within d.
func (s *Stand) until(ctx context.Context, d time.Duration, holds func(*scene) bool) bool {
	late := time.NewTimer(d)
	defer late.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		s.mu.Lock()
		ok, seen := holds(s.scene), s.seen
		s.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-seen:
		case <-tick.C:
		case <-late.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// Claim implements protocol.Exchange.
func (s *Stand) Claim(ctx context.Context, c protocol.Claim) ([]perdure.Run, error) {
	if c.Agent != s.cfg.Agent {
		return s.Node.Claim(ctx, c)
	}
	end := time.Now().Add(c.Wait)
	c.RequestID, c.First = "", false // an answer is never lost here
	for {
		s.mu.Lock()
		s.claimed = time.Now()
		given := s.given
		s.given = nil
		if len(given) > 0 && s.scene != nil {
			s.scene.deliveries = append(s.scene.deliveries, given...)
		}
		s.noted()
		s.mu.Unlock()
		if len(given) > 0 {
			return given, nil
		}
		c.Wait = min(max(time.Until(end), 0), slice)
		runs, err := s.Node.Claim(ctx, c)
		if err != nil {
			return nil, err
		}
		if runs = s.delivered(runs); len(runs) > 0 || !time.Now().Before(end) {
			return runs, nil
		}
	}
}

// delivered returns the runs that the scene gives to the agent.
func (s *Stand) delivered(runs []perdure.Run) (given []perdure.Run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range runs {
		if sc := s.scene; sc == nil || r.Job != sc.job { // of a point that is over
			continue
		} else if sc.deliver == nil || sc.deliver(&r) {
			given = append(given, r)
			sc.deliveries = append(sc.deliveries, r)
		}
	}
	s.noted()
	return given
}

// Report implements protocol.Exchange. The claim of a report gets no runs: the agent claims again.
func (s *Stand) Report(ctx context.Context, holder string, reports []protocol.Report, _ *protocol.Claim) ([]protocol.ReportResult, []perdure.Run, error) {
	results := make([]protocol.ReportResult, len(reports))
	lose := false
	for i := range reports {
		r := reports[i]
		s.mu.Lock()
		sc, arrived, how := s.scene, time.Now(), forward
		if sc != nil && r.Job == sc.job && sc.report != nil {
			how = sc.report(&r)
		}
		s.mu.Unlock()
		if how == hold {
			s.expired(ctx, &r)
		}
		if results[i].Accepted = true; how != swallow {
			got, _, err := s.Node.Report(ctx, holder, []protocol.Report{r}, nil)
			if err != nil {
				return nil, nil, err
			}
			results[i] = got[0]
		}
		lose = lose || how == cut
		s.mu.Lock()
		if sc != nil && r.Job == sc.job {
			sc.reports = append(sc.reports, reported{r, arrived, results[i]})
		}
		s.noted()
		s.mu.Unlock()
	}
	if flag, ok := ctx.Value(cutKey{}).(*atomic.Bool); ok && lose {
		flag.Store(true)
	}
	return results, nil, nil
}

// expired waits until the run of a report has ended without it.
func (s *Stand) expired(ctx context.Context, r *protocol.Report) {
	for end := time.Now().Add(2*s.cfg.Time + 10*time.Second); time.Now().Before(end); time.Sleep(slice) {
		v, err := s.Node.Job(ctx, r.Job.String(), 0)
		if err != nil {
			return
		}
		if st := v.Steps.Get(r.Step); st.Run != r.Run || st.Phase != perdure.Running {
			return
		}
	}
}

// Heartbeat implements protocol.Exchange.
func (s *Stand) Heartbeat(ctx context.Context, holder string, beats []protocol.Heartbeat) ([]protocol.HeartbeatResult, error) {
	if err := s.beaten(); err != nil {
		return nil, err
	}
	return s.Node.Heartbeat(ctx, holder, beats)
}

// HeartbeatAll implements protocol.Completer. Runs are never taken to be lost by it: the stand itself withholds some.
func (s *Stand) HeartbeatAll(ctx context.Context, c protocol.CompleteHeartbeat) ([]protocol.HeartbeatResult, time.Time, error) {
	if err := s.beaten(); err != nil {
		return nil, time.Time{}, err
	}
	results, err := s.Node.Heartbeat(ctx, c.Holder, c.Runs)
	return results, time.Now(), err
}

func (s *Stand) beaten() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.scene != nil && s.scene.beat != nil {
		return s.scene.beat()
	}
	return nil
}
