package agenthost

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// storm is a scheduler with its own rules (locks, expiry, requestIds) behind a network that loses and delays calls and
// answers. It fails the test if the host breaks a rule.
type storm struct {
	returned map[handle]bool // runs that were returned
	t        *testing.T
	mu       sync.Mutex
	rand     *rand.Rand
	calm     bool

	open     []int64                // steps to dispatch
	inFlight map[int64]*perdure.Run // by step: the valid run
	request  map[int64]string       // by step: the requestId of the claim that got it
	last     map[int64]int64        // by step: the latest run number
	done     map[int64]bool
	started  map[handle]bool
	expired  int
	followed int // runs that came with the answer to reports
}

const stormHeartbeat = 6 * time.Second

func newStorm(t *testing.T, seed uint64, steps int) *storm {
	s := &storm{t: t, rand: rand.New(rand.NewPCG(seed, 1)), inFlight: map[int64]*perdure.Run{}, request: map[int64]string{},
		last: map[int64]int64{}, done: map[int64]bool{}, started: map[handle]bool{}}
	for i := range steps {
		s.open = append(s.open, int64(i))
	}
	return s
}

// weather delays a call, and reports whether it is lost.
func (s *storm) weather(ctx context.Context) error {
	s.mu.Lock()
	lost, slow := !s.calm && s.rand.IntN(4) == 0, time.Duration(0)
	if !s.calm {
		slow = time.Duration(s.rand.IntN(300)) * time.Millisecond
		if s.rand.IntN(10) == 0 {
			slow = time.Duration(s.rand.IntN(8000)) * time.Millisecond
		}
	}
	s.mu.Unlock()
	select {
	case <-time.After(slow):
	case <-ctx.Done():
		return ctx.Err()
	}
	if lost {
		return errLost
	}
	return nil
}

// expire ends runs whose lock has expired. mu must be held.
func (s *storm) expire() {
	for step, run := range s.inFlight {
		if !time.Now().Before(run.LockedUntil) {
			delete(s.inFlight, step)
			s.open = append(s.open, step)
			s.expired++
		}
	}
}

func (s *storm) Claim(ctx context.Context, req protocol.Claim) ([]perdure.Run, error) {
	if err := s.weather(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	s.mu.Lock()
	runs := s.find(&req, began)
	for len(runs) == 0 && time.Since(began) < req.Wait && ctx.Err() == nil {
		s.mu.Unlock()
		time.Sleep(500 * time.Millisecond)
		s.mu.Lock()
		runs = s.find(&req, began)
	}
	s.mu.Unlock()
	if err := s.weather(ctx); err != nil {
		return nil, err
	}
	return runs, nil
}

// find returns the runs that a claim was given before, or gets now. mu must be held.
func (s *storm) find(req *protocol.Claim, began time.Time) (runs []perdure.Run) {
	s.expire()
	for step, run := range s.inFlight {
		if s.request[step] == req.RequestID {
			runs = append(runs, *run)
		}
	}
	for again := len(runs) > 0; !again && len(runs) < req.Max && len(s.open) > 0; s.open = s.open[1:] {
		runs = append(runs, s.dispatch(s.open[0], req.RequestID))
	}
	for i := range runs {
		runs[i].RemainingMs = time.Until(runs[i].LockedUntil).Milliseconds()
		runs[i].WaitedMs = time.Since(began).Milliseconds()
	}
	return runs
}

func (s *storm) dispatch(step int64, request string) perdure.Run {
	s.last[step]++
	run := &perdure.Run{Job: perdure.JobID{14: byte(step >> 8), 15: byte(step)}, Step: fmt.Sprint(step), Number: s.last[step],
		LockedUntil: time.Now().Add(stormHeartbeat), CompleteBy: time.Now().Add(20 * time.Second)}
	s.inFlight[step], s.request[step] = run, request
	return *run
}

// valid returns the run that a report or heartbeat names, if it is still in flight. mu must be held.
func (s *storm) valid(step string, number int64) *perdure.Run {
	var n int64
	_, _ = fmt.Sscan(step, &n)
	s.expire()
	if run := s.inFlight[n]; run != nil && run.Number == number {
		return run
	}
	return nil
}

func (s *storm) Report(ctx context.Context, _ string, reports []protocol.Report, next *protocol.Claim) ([]protocol.ReportResult, []perdure.Run, error) {
	began := time.Now()
	s.mu.Lock()
	for _, r := range reports {
		// When the host reports, the run belongs to it, or was reported before: the host believes locks to expire too
		// early only.
		if s.valid(r.Step, r.Run) == nil && !s.reported(r) {
			s.t.Errorf("step %s, run %d: %s is said too late", r.Step, r.Run, r.Outcome)
		}
	}
	s.mu.Unlock()
	if err := s.weather(ctx); err != nil {
		return nil, nil, err
	}
	results := make([]protocol.ReportResult, len(reports))
	s.mu.Lock()
	for i, r := range reports {
		run := s.valid(r.Step, r.Run)
		switch {
		case run != nil && r.Outcome == perdure.OutcomeDone:
			s.settle(run)
			results[i].Accepted = true
		case run != nil && r.Outcome == perdure.OutcomeReturned: // it was claimed ahead
			s.returnRun(run)
			results[i].Accepted = true
		case run != nil:
			s.t.Errorf("step %s, run %d: %s", r.Step, r.Run, r.Outcome)
		default:
			results[i].Accepted = s.reported(r)
			results[i].Reason = protocol.RefusedLate
		}
	}
	var runs []perdure.Run
	if next != nil {
		runs = s.find(next, began)
		s.followed += len(runs)
	}
	s.mu.Unlock()
	if err := s.weather(ctx); err != nil {
		return nil, nil, err
	}
	return results, runs, nil
}

func (s *storm) settle(run *perdure.Run) {
	var n int64
	_, _ = fmt.Sscan(run.Step, &n)
	delete(s.inFlight, n)
	if s.done[n] {
		s.t.Errorf("step %d is done twice", n)
	}
	s.done[n] = true
}

func (s *storm) returnRun(run *perdure.Run) {
	var n int64
	_, _ = fmt.Sscan(run.Step, &n)
	delete(s.inFlight, n)
	s.open = append(s.open, n)
	if s.returned == nil {
		s.returned = map[handle]bool{}
	}
	s.returned[handleOf(run)] = true
}

func (s *storm) reported(r protocol.Report) bool {
	var n int64
	_, _ = fmt.Sscan(r.Step, &n)
	return s.done[n] && s.last[n] == r.Run || r.Outcome == perdure.OutcomeReturned && s.returned[handle{r.Job, r.Step, r.Run}]
}

func (s *storm) Heartbeat(ctx context.Context, _ string, heartbeats []protocol.Heartbeat) ([]protocol.HeartbeatResult, error) {
	if err := s.weather(ctx); err != nil {
		return nil, err
	}
	results := make([]protocol.HeartbeatResult, len(heartbeats))
	s.mu.Lock()
	for i, b := range heartbeats {
		results[i] = protocol.HeartbeatResult{Job: b.Job, Step: b.Step, Run: b.Run}
		run := s.valid(b.Step, b.Run)
		if run == nil {
			results[i].Stop, results[i].Reason = true, "stale"
			continue
		}
		if until := time.Now().Add(stormHeartbeat); until.Before(run.CompleteBy) {
			run.LockedUntil = until
		} else {
			run.LockedUntil = run.CompleteBy
		}
		results[i].LockedUntil, results[i].RemainingMs = run.LockedUntil, time.Until(run.LockedUntil).Milliseconds()
	}
	s.mu.Unlock()
	if err := s.weather(ctx); err != nil {
		return nil, err
	}
	return results, nil
}

// begin checks that a run is started once, and while it belongs to the host (F021, F022, F023).
func (s *storm) begin(run *perdure.Run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started[handleOf(run)] {
		s.t.Errorf("step %s, run %d is started twice", run.Step, run.Number)
	}
	s.started[handleOf(run)] = true
	if s.valid(run.Step, run.Number) == nil {
		s.t.Errorf("step %s, run %d is started too late", run.Step, run.Number)
	}
}

// F019, F021, F022, F023, F038, F042, F055, F056: whatever is lost or late, no run is started twice or after its lock
// has expired, no run is reported after that, and every step is completed.
func TestRandomFaultsStartNoRunTwice(t *testing.T) {
	const steps = 60
	expired, followed := 0, 0
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s := newStorm(t, seed, steps)
				a := perdure.NewAgent("payments")
				a.Slots = 5
				a.HandleAny(func(ctx context.Context, run *perdure.Run) (json.RawMessage, error) {
					s.begin(run)
					s.mu.Lock()
					d := time.Duration(s.rand.IntN(12_000)) * time.Millisecond
					s.mu.Unlock()
					if d%5 == 0 {
						time.Sleep(d) // whatever the context says
						return nil, nil
					}
					return lasting(d)(ctx, run)
				})
				h := New(Config{Exchange: s, Holder: "host-1", Agents: []*perdure.Agent{a}, Heartbeat: stormHeartbeat})
				ended := make(chan error, 1)
				go func() { ended <- h.Run(t.Context()) }()
				time.Sleep(5 * time.Minute)
				s.mu.Lock()
				s.calm = true
				s.mu.Unlock()
				time.Sleep(10 * time.Minute)
				if d, err := drain(h); err != nil {
					t.Errorf("drain: %v after %s", err, d)
				}
				<-ended
				if len(s.done) != steps {
					t.Errorf("%d of %d steps are done", len(s.done), steps)
				}
				expired += s.expired
				followed += s.followed
			})
		})
	}
	if followed == 0 {
		t.Error("no run came with the answer to reports")
	}
	if expired == 0 {
		t.Error("the storm was too mild: nothing expired")
	}
	t.Logf("%d runs expired, %d came with the answer to reports", expired, followed)
}

// instantly is an exchange that answers at once, so that only the host's own cost remains.
type instantly struct {
	mu   sync.Mutex
	left int
	done chan struct{}
	told int
}

func (x *instantly) Claim(ctx context.Context, req protocol.Claim) ([]perdure.Run, error) {
	runs := x.give(req.Max)
	if len(runs) == 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return runs, nil
}

func (x *instantly) give(most int) []perdure.Run {
	x.mu.Lock()
	n := min(most, x.left)
	first := x.left
	x.left -= n
	x.mu.Unlock()
	runs := make([]perdure.Run, n)
	for i := range runs {
		runs[i] = perdure.Run{Step: "s", Number: int64(first - i), RemainingMs: 60_000}
	}
	return runs
}

func (x *instantly) Report(_ context.Context, _ string, r []protocol.Report, next *protocol.Claim) ([]protocol.ReportResult, []perdure.Run, error) {
	var runs []perdure.Run
	if next != nil {
		runs = x.give(next.Max)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.told -= len(r); x.told == 0 {
		close(x.done)
	}
	results := make([]protocol.ReportResult, len(r))
	for i := range results {
		results[i].Accepted = true
	}
	return results, runs, nil
}

func (x *instantly) Heartbeat(context.Context, string, []protocol.Heartbeat) ([]protocol.HeartbeatResult, error) {
	return nil, nil
}

func BenchmarkHost(b *testing.B) {
	x := &instantly{left: b.N, told: b.N, done: make(chan struct{})}
	a := perdure.NewAgent("payments")
	a.Slots = 64
	a.HandleAny(done)
	h := New(Config{Exchange: x, Holder: "host-1", Agents: []*perdure.Agent{a}})
	b.ReportAllocs()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	<-x.done
	cancel()
	<-ended
}
