package agenthost

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/protocol"
)

func TestARunIsExecutedAndReported(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		carry(t, x, Config{}, 2, func(ctx context.Context, run *perdure.Run) (json.RawMessage, error) {
			if got := perdure.RunOf(ctx); got == nil || got.Number != run.Number {
				t.Errorf("run in the context: %v", got)
			}
			if at, ok := ctx.Deadline(); !ok || time.Until(at) != time.Minute {
				t.Errorf("the context's deadline is in %s, want the deadline", time.Until(at))
			}
			return json.RawMessage(`{ "ok": true }`), nil
		})
		x.offer(1, 10*time.Second, time.Minute)
		x.expect(t, "1 done")
		if got := string(x.reports[0].Output); got != `{"ok":true}` {
			t.Errorf("output %s", got)
		}
		if c := x.claims[0]; c.Agent != "payments" || c.Holder != "host-1" || c.Max != 2 || c.Heartbeat != 10*time.Second || c.Wait != 20*time.Second || c.RequestID == "" {
			t.Errorf("claim %+v", c)
		}
	})
}

// F019: a claim was committed and its answer lost. The same requestId returns the same runs.
func TestALostClaimIsRepeatedUnderItsRequestID(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		given := map[string][]perdure.Run{}
		x.claim = func(ctx context.Context, n int, req protocol.Claim) ([]perdure.Run, error) {
			if runs, ok := given[req.RequestID]; ok {
				return runs, nil
			}
			runs, err := x.wait(ctx, req)
			if given[req.RequestID] = runs; n == 1 && err == nil {
				return nil, errLost
			}
			return runs, err
		}
		carry(t, x, Config{}, 1, done)
		x.offer(1, time.Minute, time.Minute)
		time.Sleep(time.Second)
		x.expect(t, "1 done")
		if x.claims[0].RequestID != x.claims[1].RequestID {
			t.Error("the lost claim was repeated under another requestId")
		}
		if x.claims[1].RequestID == x.claims[2].RequestID {
			t.Error("a new claim under an old requestId")
		}
	})
}

// F021: the answer to a claim contains a run twice, and a later answer contains it again.
func TestARunIsStartedOnce(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		one := dispatched(1, time.Minute, time.Minute)
		x.claim = func(ctx context.Context, n int, req protocol.Claim) ([]perdure.Run, error) {
			switch {
			case n <= 3:
				return []perdure.Run{one, one}, nil
			case n == 4: // after the run has ended
				time.Sleep(time.Second)
				return []perdure.Run{one, one}, nil
			}
			return x.wait(ctx, req)
		}
		var started atomic.Int32
		carry(t, x, Config{}, 4, func(context.Context, *perdure.Run) (json.RawMessage, error) {
			started.Add(1)
			return nil, nil
		})
		time.Sleep(10 * time.Second)
		x.expect(t, "1 done")
		if started.Load() != 1 {
			t.Errorf("started %d times", started.Load())
		}
	})
}

// F022: the answer to a claim is delayed until after the lock has expired.
func TestARunThatArrivesTooLateIsDiscarded(t *testing.T) {
	slow := func(x *exchange) func(context.Context, int, protocol.Claim) ([]perdure.Run, error) {
		return func(ctx context.Context, _ int, req protocol.Claim) ([]perdure.Run, error) {
			runs, err := x.wait(ctx, req)
			if len(runs) > 0 {
				time.Sleep(6 * time.Second)
			}
			return runs, err
		}
	}
	t.Run("no beat tells", func(t *testing.T) {
		virtual(t, func(t *testing.T) {
			x := newExchange()
			x.claim = slow(x)
			carry(t, x, Config{}, 1, done)
			x.offer(1, 5*time.Second, time.Minute)
			time.Sleep(time.Minute)
			x.expect(t)
		})
	})
	t.Run("a beat tells that it is late", func(t *testing.T) {
		virtual(t, func(t *testing.T) {
			x := newExchange()
			x.claim = slow(x)
			x.onHeartbeat = func(b []protocol.Heartbeat) ([]protocol.HeartbeatResult, error) {
				return []protocol.HeartbeatResult{{Job: b[0].Job, Step: b[0].Step, Run: b[0].Run, Stop: true, Reason: "late"}}, nil
			}
			carry(t, x, Config{}, 1, done)
			x.offer(1, 5*time.Second, time.Minute)
			time.Sleep(time.Minute)
			x.expect(t)
		})
	})
	t.Run("a beat tells that it is unwanted", func(t *testing.T) {
		virtual(t, func(t *testing.T) {
			x := newExchange()
			x.claim = slow(x)
			x.onHeartbeat = func(b []protocol.Heartbeat) ([]protocol.HeartbeatResult, error) {
				return []protocol.HeartbeatResult{{Job: b[0].Job, Step: b[0].Step, Run: b[0].Run,
					RemainingMs: 5000, Stop: true, Reason: "the job desires undone"}}, nil
			}
			carry(t, x, Config{}, 1, done)
			x.offer(1, 20*time.Second, time.Minute)
			time.Sleep(time.Minute)
			x.expect(t, "1 returned")
		})
	})
}

// The time that a claim waits for work is not counted as the run's.
func TestTimeOfALongPollIsNotTheRuns(t *testing.T) {
	t.Run("told how long it was", func(t *testing.T) {
		virtual(t, func(t *testing.T) {
			x := newExchange()
			carry(t, x, Config{}, 1, func(ctx context.Context, _ *perdure.Run) (json.RawMessage, error) {
				if at, _ := ctx.Deadline(); time.Until(at) != 30*time.Second {
					t.Errorf("ends in %s", time.Until(at))
				}
				return nil, nil
			})
			time.Sleep(15 * time.Second)
			x.offer(1, 10*time.Second, 30*time.Second)
			x.expect(t, "1 done")
			if _, _, n := x.counts(); n != 0 {
				t.Errorf("%d beats before the start", n)
			}
		})
	})
	t.Run("not told, so a beat tells", func(t *testing.T) {
		virtual(t, func(t *testing.T) {
			x := newExchange()
			x.onHeartbeat = extend(10 * time.Second)
			x.claim = func(ctx context.Context, _ int, req protocol.Claim) ([]perdure.Run, error) {
				runs, err := x.wait(ctx, req)
				for i := range runs {
					runs[i].WaitedMs = 0
				}
				return runs, err
			}
			carry(t, x, Config{}, 1, done)
			time.Sleep(15 * time.Second)
			x.offer(1, 10*time.Second, 30*time.Second)
			x.expect(t, "1 done")
			if _, _, n := x.counts(); n != 1 {
				t.Errorf("%d beats before the start", n)
			}
		})
	})
}

// F023: a run's time passes between its arrival and its start.
func TestRunWithoutTimeLeftIsNotStarted(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		h := carry(t, x, Config{}, 1, done)
		run := dispatched(1, time.Second, time.Second)
		l := &live{run: &run, agent: h.agents[0], lock: h.now(), running: true, cancel: func(error) {}}
		h.mu.Lock()
		h.agents[0].busy++
		h.agents[0].held++
		h.arrived = append(h.arrived, l)
		h.mu.Unlock()
		if h.nextToStart(false) != nil {
			t.Error("a run without time was started")
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if !l.lost || h.agents[0].busy != 0 || h.agents[0].held != 0 {
			t.Errorf("lost %v, busy %d, held %d", l.lost, h.agents[0].busy, h.agents[0].held)
		}
	})
}

// F127: a log that blocks at a line about one run does not delay another run of the same answer.
func TestBlockedLogDelaysNoOtherRun(t *testing.T) {
	virtual(t, func(t *testing.T) {
		ran := make(chan struct{}, 1)
		a := perdure.NewAgent("payments")
		a.HandleAny(func(context.Context, *perdure.Run) (json.RawMessage, error) {
			ran <- struct{}{}
			return nil, nil
		})
		log := &blocked{Handler: slog.DiscardHandler, until: make(chan struct{})}
		h := New(Config{Exchange: newExchange(), Holder: "h", Agents: []*perdure.Agent{a}, Log: slog.New(log)})
		h.mu.Lock()
		for i := range 2 {
			run := dispatched(int64(i+1), time.Second, time.Second)
			l := &live{run: &run, agent: h.agents[0], lock: h.now(), running: true}
			if i == 1 {
				l.lock = h.now().add(time.Hour)
			}
			l.ctx, l.cancel = context.WithCancelCause(t.Context())
			h.live[handleOf(l.run)] = l
			h.agents[0].busy++
			h.agents[0].held++
			h.arrived = append(h.arrived, l)
		}
		h.ensureWorker()
		h.mu.Unlock()
		if synctest.Wait(); len(ran) != 1 || log.lines.Load() != 1 {
			t.Errorf("%d ran beside %d lines that the log does not take", len(ran), log.lines.Load())
		}
		close(log.until)
	})
}

// blocked is a log that blocks at warnings until it is released.
type blocked struct {
	slog.Handler
	lines atomic.Int64
	until chan struct{}
}

func (b *blocked) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (b *blocked) Handle(context.Context, slog.Record) error {
	b.lines.Add(1)
	<-b.until
	return nil
}

// F028: no more runs are claimed than there are slots, and a slot that becomes free is used.
func TestClaimsKeepToTheSlots(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		var now, most atomic.Int32
		h := carry(t, x, Config{}, 3, func(context.Context, *perdure.Run) (json.RawMessage, error) {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Second)
			now.Add(-1)
			return nil, nil
		})
		for i := range 10 {
			x.offer(int64(i+1), time.Minute, time.Minute)
		}
		synctest.Wait()
		if s := h.Stats(); len(s) != 1 || s[0] != (AgentStats{Agent: "payments", Slots: 3, Busy: 3}) {
			t.Errorf("stats %+v", s)
		}
		time.Sleep(4 * time.Second)
		if synctest.Wait(); len(x.reported()) != 10 || most.Load() != 3 {
			t.Errorf("%d runs in four rounds, %d at once", len(x.reported()), most.Load())
		}
	})
}

// No run waits for another run's handler, even if both came in one answer, or if the handler ends its goroutine.
func TestHandlersRunConcurrently(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const runs = 100
		x := newExchange()
		var began sync.WaitGroup
		began.Add(runs)
		for i := range runs {
			x.offer(int64(i+1), time.Minute, time.Minute)
		}
		carry(t, x, Config{}, runs, func(_ context.Context, r *perdure.Run) (json.RawMessage, error) {
			began.Done()
			began.Wait()
			if r.Number%3 == 0 {
				runtime.Goexit()
			}
			return nil, nil
		})
		if synctest.Wait(); len(x.reported()) != runs {
			t.Errorf("%d of %d runs were reported", len(x.reported()), runs)
		}
	})
}

// counting counts the goroutines that are started.
type counting struct {
	env.Real
	n atomic.Int64
}

func (c *counting) Go(f func()) {
	c.n.Add(1)
	c.Real.Go(f)
}

// Handlers that return at once share goroutines.
func TestGoroutinesAreReused(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const runs = 1000
		x := newExchange()
		for i := range runs {
			x.offer(int64(i+1), time.Minute, time.Minute)
		}
		c := &counting{}
		carry(t, x, Config{Env: c}, runs, done)
		if synctest.Wait(); len(x.reported()) != runs || c.n.Load() > runs*9/10 {
			t.Errorf("%d goroutines for %d runs", c.n.Load(), len(x.reported()))
		}
	})
}

// An answer with more runs than were asked for: the surplus is returned.
func TestSurplusRunsAreReturned(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		var all []perdure.Run
		for i := range 3 {
			all = append(all, dispatched(int64(i+1), time.Minute, time.Minute))
		}
		x.claim = func(ctx context.Context, n int, req protocol.Claim) ([]perdure.Run, error) {
			if n == 1 {
				return all, nil
			}
			return x.wait(ctx, req)
		}
		carry(t, x, Config{}, 1, deaf(time.Second))
		synctest.Wait()
		got := x.reported()
		slices.Sort(got)
		if fmt.Sprint(got) != "[2 returned 3 returned]" {
			t.Errorf("reports %q", got)
		}
	})
}

// An exchange that fails, or returns nothing at once, is not called in a busy loop. When it works again, so does the
// host within ten seconds (L4).
func TestFailingExchangeCausesNoBusyLoop(t *testing.T) {
	for name, answer := range map[string]error{"fails": errLost, "does not wait": nil} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				x := newExchange()
				var well atomic.Bool
				x.claim = func(ctx context.Context, _ int, req protocol.Claim) ([]perdure.Run, error) {
					if !well.Load() {
						return nil, answer
					}
					return x.wait(ctx, req)
				}
				carry(t, x, Config{}, 1, done)
				time.Sleep(5 * time.Minute)
				if n, _, _ := x.counts(); n < 30 || n > 700 {
					t.Errorf("%d claims in five minutes", n)
				}
				well.Store(true)
				time.Sleep(10 * time.Second)
				x.offer(1, time.Minute, time.Minute)
				x.expect(t, "1 done")
			})
		})
	}
}

// An agent with more slots than one claim can fill has several claims in progress.
func TestManySlotsAreFilled(t *testing.T) {
	for _, slots := range []int{1, 4, 100, perdure.MaxBatch, 4 * perdure.MaxBatch, 10 * perdure.MaxBatch} {
		a := &hosted{Agent: &perdure.Agent{}, slots: slots, filledAtOnce: true, unsent: slots / 8}
		for asked := 0; asked < min(slots-a.unsent, claimsAtOnce*perdure.MaxBatch); {
			n := a.claimSize(time.Time{})
			if n <= 0 || n > perdure.MaxBatch {
				t.Fatalf("%d slots: a claim for %d beside those for %d", slots, n, asked)
			}
			asked += n
		}
	}
}
