package agenthost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errLost = errors.New("connection reset")

// exchange is a scheduler that the test controls. It answers claims by the hook claim, or from the runs that were
// offered. The hooks are set before a host uses it.
type exchange struct {
	mu      sync.Mutex
	offers  []perdure.Run
	arrived chan struct{} // closed and replaced at each offer

	claims   []protocol.Claim
	followed []protocol.Claim // claims that came with reports
	reports  []protocol.Report
	calls    []int // reports per call
	beats    []protocol.Heartbeat
	complete []protocol.CompleteHeartbeat
	hangs    int // the number of heartbeats that get no answer

	refuseComplete error // answers complete heartbeats

	claim       func(ctx context.Context, n int, req protocol.Claim) ([]perdure.Run, error)
	report      func(n int, reports []protocol.Report) ([]protocol.ReportResult, error)
	onHeartbeat func(beats []protocol.Heartbeat) ([]protocol.HeartbeatResult, error)
}

func newExchange() *exchange { return &exchange{arrived: make(chan struct{})} }

// dispatched returns a run with so much time until its lock expires, and until its deadline.
func dispatched(number int64, lock, total time.Duration) perdure.Run {
	now := time.Now()
	return perdure.Run{
		Job: perdure.JobID{15: byte(number)}, Step: "charge", Action: "charge", Number: number, Key: fmt.Sprint("key", number),
		Input: json.RawMessage(`{}`), LockedUntil: now.Add(lock), CompleteBy: now.Add(total), RemainingMs: lock.Milliseconds(),
	}
}

// offer makes a run claimable.
func (x *exchange) offer(number int64, lock, total time.Duration) {
	x.offerAll(dispatched(number, lock, total))
}

func (x *exchange) offerAll(runs ...perdure.Run) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.offers = append(x.offers, runs...)
	close(x.arrived)
	x.arrived = make(chan struct{})
}

func (x *exchange) Claim(ctx context.Context, req protocol.Claim) ([]perdure.Run, error) {
	x.mu.Lock()
	x.claims = append(x.claims, req)
	n := len(x.claims)
	x.mu.Unlock()
	if x.claim != nil {
		return x.claim(ctx, n, req)
	}
	return x.wait(ctx, req)
}

// wait is a long poll.
func (x *exchange) wait(ctx context.Context, req protocol.Claim) ([]perdure.Run, error) {
	began, timeout := time.Now(), time.After(req.Wait)
	for {
		x.mu.Lock()
		if n := min(len(x.offers), req.Max); n > 0 {
			runs := slices.Clone(x.offers[:n])
			x.offers = x.offers[n:]
			x.mu.Unlock()
			for i := range runs {
				runs[i].WaitedMs = time.Since(began).Milliseconds()
			}
			return runs, nil
		}
		arrived := x.arrived
		x.mu.Unlock()
		select {
		case <-arrived:
		case <-timeout:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (x *exchange) Report(_ context.Context, _ string, reports []protocol.Report, next *protocol.Claim) ([]protocol.ReportResult, []perdure.Run, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.calls = append(x.calls, len(reports))
	var runs []perdure.Run
	if next != nil {
		x.followed = append(x.followed, *next)
		n := min(len(x.offers), next.Max)
		runs, x.offers = slices.Clone(x.offers[:n]), x.offers[n:]
	}
	if x.report != nil {
		if results, err := x.report(len(x.calls), reports); results != nil || err != nil {
			return results, runs, err
		}
	}
	x.reports = append(x.reports, reports...)
	results := make([]protocol.ReportResult, len(reports))
	for i := range results {
		results[i].Accepted = true
	}
	return results, runs, nil
}

func (x *exchange) Heartbeat(ctx context.Context, _ string, heartbeats []protocol.Heartbeat) ([]protocol.HeartbeatResult, error) {
	x.mu.Lock()
	x.beats = append(x.beats, heartbeats...)
	x.hangs--
	hangs := x.hangs >= 0
	x.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if x.onHeartbeat == nil {
		return nil, errLost
	}
	return x.onHeartbeat(heartbeats)
}

// extend returns a hook that extends each lock by d.
func extend(d time.Duration) func([]protocol.Heartbeat) ([]protocol.HeartbeatResult, error) {
	return func(heartbeats []protocol.Heartbeat) ([]protocol.HeartbeatResult, error) {
		var results []protocol.HeartbeatResult
		for _, b := range heartbeats {
			results = append(results, protocol.HeartbeatResult{Job: b.Job, Step: b.Step, Run: b.Run,
				LockedUntil: time.Now().Add(d), RemainingMs: d.Milliseconds()})
		}
		return results, nil
	}
}

// counts returns the number of calls of each kind; heartbeats are counted one by one.
func (x *exchange) counts() (claims, reports, heartbeats int) {
	synctest.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.claims), len(x.calls), len(x.beats)
}

// reported returns the reports so far, as "run outcome".
func (x *exchange) reported() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	var s []string
	for _, r := range x.reports {
		line := fmt.Sprint(r.Run, " ", r.Outcome)
		if r.Error != nil && r.Error.Code != "" {
			line += " " + r.Error.Code
		}
		if r.Effect != "" {
			line += " effect " + r.Effect
		}
		s = append(s, line)
	}
	return s
}

// expect compares all reports so far, sorted, after all goroutines are blocked.
func (x *exchange) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	got := x.reported()
	slices.Sort(got) // calls overtake each other
	if !slices.Equal(got, want) {
		t.Errorf("reports %q, want %q", got, want)
	}
}

// carry runs a host with one agent until the test ends.
func carry(t *testing.T, x *exchange, cfg Config, slots int, handler perdure.Handler) *Host {
	a := perdure.NewAgent("payments")
	a.Slots = slots
	a.HandleAny(handler)
	cfg.Exchange, cfg.Holder, cfg.Agents = x, "host-1", []*perdure.Agent{a}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	h := New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return h
}

// virtual runs a test in virtual time.
func virtual(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// done is a handler that returns at once.
func done(context.Context, *perdure.Run) (json.RawMessage, error) {
	return json.RawMessage(`{"ok":true}`), nil
}

// lasting returns a handler that takes d and heeds its context.
func lasting(d time.Duration) perdure.Handler {
	return func(ctx context.Context, _ *perdure.Run) (json.RawMessage, error) {
		select {
		case <-time.After(d):
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// deaf returns a handler that takes d and ignores its context.
func deaf(d time.Duration) perdure.Handler {
	return func(context.Context, *perdure.Run) (json.RawMessage, error) {
		time.Sleep(d)
		return nil, nil
	}
}
