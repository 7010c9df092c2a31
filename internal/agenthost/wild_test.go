package agenthost

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// wild is an exchange that loses answers, refuses calls, answers too few reports, and dispatches too many runs, many of
// which expire.
type wild struct {
	mu      sync.Mutex
	rand    *rand.Rand
	calm    bool
	number  int64
	given   map[string][]perdure.Run // by requestId
	started map[string]int
}

func (w *wild) chance() (p float64, calm bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rand.Float64(), w.calm
}

func (w *wild) runs(req *protocol.Claim) []perdure.Run {
	w.mu.Lock()
	defer w.mu.Unlock()
	if got := w.given[req.RequestID]; got != nil && !req.First {
		return got
	}
	if w.calm {
		return nil
	}
	n := w.rand.Intn(req.Max + 1)
	if w.rand.Intn(20) == 0 {
		n = req.Max + 2
	}
	runs := make([]perdure.Run, n)
	for i := range runs {
		w.number++
		lock := time.Duration(w.rand.Intn(3000)) * time.Millisecond
		runs[i] = dispatched(w.number, lock, lock)
	}
	w.given[req.RequestID] = runs
	return runs
}

func (w *wild) Claim(ctx context.Context, req protocol.Claim) ([]perdure.Run, error) {
	runs := w.runs(&req)
	if p, calm := w.chance(); p < 0.1 && !calm {
		return nil, errLost
	}
	if len(runs) > 0 {
		return runs, nil
	}
	select {
	case <-time.After(req.Wait):
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (w *wild) Report(ctx context.Context, _ string, reports []protocol.Report, next *protocol.Claim) ([]protocol.ReportResult, []perdure.Run, error) {
	slow, _ := w.chance()
	select {
	case <-time.After(time.Duration(slow*slow*4000) * time.Millisecond):
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	var runs []perdure.Run
	if next != nil {
		runs = w.runs(next)
	}
	results := make([]protocol.ReportResult, len(reports))
	for i := range results {
		p, _ := w.chance()
		results[i].Accepted = p < 0.9
	}
	switch p, calm := w.chance(); {
	case calm:
	case p < 0.1:
		return nil, nil, errLost
	case p < 0.13:
		return nil, runs, perdure.Refuse(perdure.CodeInvalid, "no")
	case p < 0.16:
		return results[1:], runs, nil
	}
	return results, runs, nil
}

func (w *wild) Heartbeat(context.Context, string, []protocol.Heartbeat) ([]protocol.HeartbeatResult, error) {
	return nil, errLost
}

func (w *wild) handle(_ context.Context, run *perdure.Run) (json.RawMessage, error) {
	w.mu.Lock()
	w.started[fmt.Sprint(run.Job, run.Number)]++
	d := time.Duration(w.rand.Intn(1500)) * time.Millisecond
	w.mu.Unlock()
	time.Sleep(d)
	return nil, nil
}

// Whatever an exchange does, no run is started twice, no agent uses more slots than it has, and at the end no counter is
// left above zero (F021).
func TestCountersReturnToZero(t *testing.T) {
	for seed := range int64(40) {
		virtual(t, func(t *testing.T) {
			w := &wild{rand: rand.New(rand.NewSource(seed)), given: map[string][]perdure.Run{}, started: map[string]int{}}
			var agents []*perdure.Agent
			for i := range 1 + seed%4 {
				a := perdure.NewAgent(fmt.Sprint("a", i))
				a.Slots = []int{1, 2, 5, 40}[(seed+i)%4]
				a.HandleAny(w.handle)
				agents = append(agents, a)
			}
			h := New(Config{Exchange: w, Holder: "host-1", Agents: agents, Heartbeat: []time.Duration{-1, 0, time.Second}[seed/3%3],
				ClaimWait: []time.Duration{0, time.Nanosecond, time.Second}[seed%3]})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- h.Run(ctx) }()
			for range 300 {
				time.Sleep(100 * time.Millisecond)
				for _, s := range h.Stats() {
					if s.Busy > s.Slots {
						t.Fatalf("seed %d: %+v", seed, s)
					}
				}
			}
			w.mu.Lock()
			w.calm = true
			w.mu.Unlock()
			time.Sleep(2*time.Minute + 1234567*time.Nanosecond)
			h.mu.Lock()
			for _, a := range h.agents {
				if a.unsent != 0 || a.busy != 0 || a.held != 0 || a.claimed == 0 || a.claimed > a.slots {
					t.Errorf("seed %d, agent %s of %d slots: %d due, %d busy, %d held, %d asked", seed, a.Name, a.slots, a.unsent, a.busy, a.held, a.claimed)
				}
			}
			if len(h.outbox)+len(h.sharing)+len(h.live) > 0 || h.claimers > claimsAtOnce*len(h.agents) {
				t.Errorf("seed %d: %d reports, %d runs, %d claimers", seed, len(h.outbox), len(h.live), h.claimers)
			}
			h.unlock()
			if duration, err := drain(h); err != nil && seed%2 == 0 {
				t.Error(err, duration)
			}
			cancel()
			<-ended
			for run, n := range w.started {
				if n > 1 {
					t.Errorf("seed %d: run %s was started %d times", seed, run, n)
				}
			}
		})
	}
}
