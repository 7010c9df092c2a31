package agenthost

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// distant is an exchange whose answers take a while, and which may be unreachable.
type distant struct {
	*exchange
	trip time.Duration
	away atomic.Bool

	begun atomic.Int64 // runs that were started
}

func (x *distant) Claim(ctx context.Context, req protocol.Claim) ([]perdure.Run, error) {
	if x.away.Load() {
		return nil, errLost
	}
	runs, err := x.exchange.Claim(ctx, req)
	time.Sleep(x.trip)
	return runs, err
}

func (x *distant) Report(ctx context.Context, holder string, reports []protocol.Report, next *protocol.Claim) ([]protocol.ReportResult, []perdure.Run, error) {
	if x.away.Load() {
		return nil, nil, errLost
	}
	results, runs, err := x.exchange.Report(ctx, holder, reports, next)
	time.Sleep(x.trip)
	return results, runs, err
}

// busy starts a host with one agent whose handlers take a while, and a distant exchange with many runs. most is the
// largest number of handlers that ran at the same time.
func busy(t *testing.T, slots int, takes *atomic.Int64) (h *Host, x *distant, most *atomic.Int64) {
	most = &atomic.Int64{}
	var now atomic.Int64
	a := perdure.NewAgent("payments")
	a.Slots = slots
	a.HandleAny(func(ctx context.Context, _ *perdure.Run) (json.RawMessage, error) {
		defer now.Add(-1)
		x.begun.Add(1)
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		return lasting(time.Duration(takes.Load()))(ctx, nil)
	})
	x = &distant{exchange: newExchange(), trip: 4 * time.Millisecond}
	x.onHeartbeat = extend(time.Minute)
	for n := range int64(4000) {
		x.offer(n+1, time.Minute, time.Hour)
	}
	h = New(Config{Exchange: x, Holder: "host-1", Agents: []*perdure.Agent{a}, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return h, x, most
}

func (x *exchange) outcomes() map[perdure.Outcome]int {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := map[perdure.Outcome]int{}
	for _, r := range x.reports {
		n[r.Outcome]++
	}
	return n
}

// An agent with few slots and quick handlers claims ahead, and so keeps its slots busy. It never runs more handlers than it has slots.
// If handlers take long, nothing is claimed ahead.
func TestRunsAreClaimedAhead(t *testing.T) {
	for _, c := range []struct {
		takes time.Duration
		least float64 // the least part of its slots that is busy
		line  int     // the most runs that wait for a slot
	}{{time.Millisecond, 0.9, 8 * 4}, {100 * time.Microsecond, 0.1, 8 * 4}, {10 * time.Millisecond, 0.9, 4}, {time.Second, 0.95, 0}} {
		virtual(t, func(t *testing.T) {
			const slots = 4
			var takes atomic.Int64
			takes.Store(int64(c.takes))
			h, x, most := busy(t, slots, &takes)
			time.Sleep(min(40*c.takes, 5*time.Second) + 200*time.Millisecond)
			before, line := x.outcomes()[perdure.OutcomeDone], 0
			const checks = 100
			for range checks {
				time.Sleep(max(c.takes, time.Millisecond))
				line = max(line, h.Stats()[0].Waiting)
			}
			done := x.outcomes()[perdure.OutcomeDone] - before
			used := float64(done) * float64(c.takes) / (slots * checks * float64(max(c.takes, time.Millisecond)))
			if most.Load() != slots || used < c.least || line > c.line || x.outcomes()[perdure.OutcomeReturned] > 0 {
				t.Errorf("handlers of %v: %d at once, slots are used to %.2f, up to %d runs wait, %v", c.takes, most.Load(), used, line, x.outcomes())
			}
		})
	}
}

// F162: runs that were claimed ahead are returned soon if handlers take longer than expected, and nothing is claimed
// ahead for a while.
func TestRunsThatWaitForASlotAreReturned(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const slots = 4
		var takes atomic.Int64
		takes.Store(int64(time.Millisecond))
		h, x, _ := busy(t, slots, &takes)
		time.Sleep(200 * time.Millisecond)
		takes.Store(int64(time.Minute))
		time.Sleep(2*aheadWait + 20*time.Millisecond)
		if s := h.Stats()[0]; s.Busy != slots || s.Waiting != 0 || s.Unreported != 0 {
			t.Errorf("%+v", s)
		}
		if n := x.outcomes()[perdure.OutcomeReturned]; n == 0 || n > maxAhead*slots {
			t.Errorf("%d runs are given back", n)
		}
		returned := x.outcomes()[perdure.OutcomeReturned]
		time.Sleep(30 * time.Second)
		if n := x.outcomes()[perdure.OutcomeReturned]; n != returned {
			t.Errorf("%d more are given back", n-returned)
		}
	})
}

// F162: while the exchange does not respond, no run that waits for a slot is started: its end could not be reported, and
// it would be carried out again. Such runs are returned when the exchange responds again.
func TestRunsThatWaitForASlotAreNotStartedWhileTheExchangeIsUnanswered(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const slots = 4
		var takes atomic.Int64
		takes.Store(int64(time.Millisecond))
		h, x, _ := busy(t, slots, &takes)
		time.Sleep(200 * time.Millisecond)
		takes.Store(int64(aheadWait / 2))
		time.Sleep(aheadWait / 4)
		if s := h.Stats()[0]; s.Busy != slots || s.Waiting == 0 {
			t.Fatalf("%+v", s)
		}
		x.away.Store(true)
		h.recordAnswer(false)
		before := x.begun.Load()
		time.Sleep(5 * time.Second)
		if n := x.begun.Load() - before; n > 0 {
			t.Errorf("%d runs are begun while the exchange is away", n)
		}
		x.away.Store(false)
		time.Sleep(5 * time.Second)
		if n := x.outcomes()[perdure.OutcomeReturned]; n == 0 || n > maxAhead*slots {
			t.Errorf("%d runs are returned", n)
		}
		if x.begun.Load() == before {
			t.Error("nothing is begun any more")
		}
	})
}

// Runs that wait for a slot are returned when the host drains, and when a heartbeat's answer asks them to stop. Those
// whose lock expires are not reported. None of them is started.
func TestRunsThatWaitForASlotAreReturnedOrDropped(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, h *Host, x *distant){
		"drain": func(t *testing.T, h *Host, x *distant) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			go func() { defer cancel(); _ = h.Drain(ctx) }() // Drain waits for the handlers, but the line is empty at once
		},
		"stop": func(t *testing.T, h *Host, x *distant) {
			h.mu.Lock()
			for _, l := range slices.Clone(h.agents[0].line) {
				h.applyHeartbeatResult(l, &protocol.HeartbeatResult{Stop: true, RemainingMs: 60_000}, h.now())
			}
			h.unlock()
			synctest.Wait()
		},
		"time": func(t *testing.T, h *Host, x *distant) {
			h.mu.Lock()
			for _, l := range slices.Clone(h.agents[0].line) {
				h.lose(l, errLockExpired)
			}
			h.unlock()
			synctest.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				const slots = 4
				var takes atomic.Int64
				takes.Store(int64(time.Millisecond))
				h, x, _ := busy(t, slots, &takes)
				time.Sleep(200 * time.Millisecond)
				takes.Store(int64(time.Hour))
				time.Sleep(20 * time.Millisecond)
				h.mu.Lock()
				waiting := slices.Clone(h.agents[0].line)
				h.mu.Unlock()
				line := len(waiting)
				end(t, h, x)
				want := line
				if name == "time" {
					want = 0
				}
				time.Sleep(10 * time.Millisecond)
				h.mu.Lock()
				left := 0
				for _, l := range waiting {
					if l.inLine || l.running {
						left++
					}
				}
				h.mu.Unlock()
				returned := x.outcomes()[perdure.OutcomeReturned]
				if line == 0 || left != 0 || returned != want {
					t.Errorf("%d waited, %d wait still, %d are given back, want %d", line, left, returned, want)
				}
			})
		})
	}
}
