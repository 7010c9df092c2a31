package agenthost

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/protocol"
)

// F038, F050: once a run's lock has expired, its context has ended, its slot is free, and the host reports nothing about
// it, whatever the handler does.
func TestNothingIsReportedAfterTheLock(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		h := carry(t, x, Config{Heartbeat: -1}, 1, func(ctx context.Context, run *perdure.Run) (json.RawMessage, error) {
			if run.Number > 1 {
				return nil, nil
			}
			began := time.Now()
			<-ctx.Done()
			if d := time.Since(began); d != 5*time.Second {
				t.Errorf("context ended after %s", d)
			}
			if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				t.Errorf("cause %v", context.Cause(ctx))
			}
			time.Sleep(time.Second)
			return nil, nil
		})
		x.offer(1, 5*time.Second, 5*time.Second)
		time.Sleep(5500 * time.Millisecond)
		if s := h.Stats()[0]; s.Busy != 0 || s.Overdue != 1 {
			t.Errorf("stats %+v", s)
		}
		x.offer(2, 5*time.Second, 5*time.Second)
		time.Sleep(time.Minute)
		x.expect(t, "2 done")
		if s := h.Stats()[0]; s.Busy != 0 || s.Overdue != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

// F050: handlers that ignore their contexts cannot accumulate without bound.
func TestOverdueHandlersAreBounded(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		var now, most atomic.Int32
		release := make(chan struct{})
		carry(t, x, Config{}, 2, func(context.Context, *perdure.Run) (json.RawMessage, error) {
			most.Store(max(most.Load(), now.Add(1)))
			<-release
			return nil, nil
		})
		defer close(release)
		for i := range 20 {
			x.offer(int64(i+1), time.Second, time.Second)
		}
		time.Sleep(30 * time.Minute)
		if most.Load() != 4 {
			t.Errorf("%d at once, want twice the slots", most.Load())
		}
	})
}

// F038: the process was stopped beyond the lock, and the handler returns before any timer fires.
func TestLockExpiresByTheClockNotTheTimer(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		h := carry(t, x, Config{}, 1, done)
		run := dispatched(1, time.Second, time.Second)
		l := &live{run: &run, agent: h.agents[0], ctx: t.Context(), cancel: func(error) {}, running: true,
			lock: h.now()}
		h.mu.Lock()
		h.agents[0].busy, h.agents[0].held, h.live[handleOf(&run)] = 1, 1, l
		h.mu.Unlock()
		h.finish(l, nil, nil, 0)
		x.expect(t)
		h.mu.Lock()
		defer h.mu.Unlock()
		if a := h.agents[0]; a.busy != 0 || a.held != 0 {
			t.Errorf("busy %d, held %d", a.busy, a.held)
		}
	})
}

// suspendable is an environment whose wall clock has advanced by some nanoseconds during a suspension.
type suspendable struct {
	env.Real
	by *atomic.Int64
}

func (s suspendable) Wall() time.Time { return time.Now().Add(time.Duration(s.by.Load())) }

// F039: the machine was suspended: the monotonic clock stood still, and the wall clock advanced.
func TestLockExpiresByTheWallClock(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		var suspended atomic.Int64
		cfg := Config{Heartbeat: -1, Env: suspendable{by: &suspended}}
		ended := make(chan time.Duration, 1)
		carry(t, x, cfg, 1, func(ctx context.Context, _ *perdure.Run) (json.RawMessage, error) {
			began := time.Now()
			<-ctx.Done()
			ended <- time.Since(began)
			return nil, nil
		})
		x.offer(1, time.Minute, time.Minute)
		synctest.Wait()
		suspended.Store(int64(time.Hour))
		if d := <-ended; d > time.Second {
			t.Errorf("noticed after %s", d)
		}
		x.expect(t)
	})
}

// F038, F039: the machine was suspended between two attempts to report. The second attempt is not made, although no
// timer has fired.
func TestReportIsNotRepeatedAfterTheLock(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		var suspended atomic.Int64
		x.report = func(int, []protocol.Report) ([]protocol.ReportResult, error) {
			suspended.Store(int64(time.Hour))
			return nil, errLost
		}
		carry(t, x, Config{Heartbeat: -1, Env: suspendable{by: &suspended}}, 1, lasting(1300*time.Millisecond))
		x.offer(1, time.Minute, time.Minute)
		time.Sleep(time.Minute)
		if _, n, _ := x.counts(); n != 1 {
			t.Errorf("said %d times", n)
		}
	})
}

// F049, F126: a panic is the failure of its own run only.
func TestPanicFailsOnlyItsRun(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		carry(t, x, Config{}, 3, func(_ context.Context, run *perdure.Run) (json.RawMessage, error) {
			switch run.Number {
			case 1:
				panic("no such customer")
			case 2:
				time.Sleep(time.Second)
				runtime.Goexit()
			}
			time.Sleep(2 * time.Second)
			return nil, nil
		})
		for i := range 3 {
			x.offer(int64(i+1), time.Minute, time.Minute)
		}
		time.Sleep(3 * time.Second)
		x.expect(t, "1 failed panic", "2 failed panic", "3 done")
		for _, r := range x.reports {
			if r.Run == 1 && !strings.Contains(r.Error.Message, "no such customer") {
				t.Errorf("message %q", r.Error.Message)
			}
		}
	})
}

// F047, F067: the value that a handler returns cannot break the call that reports it.
func TestUnusableOutputBreaksNoReport(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		outputs := []string{``, `null`, `{"n":12345678901234567890.10}`, `{`, `"` + strings.Repeat("x", perdure.MaxPayloadBytes) + `"`, strings.Repeat("[", 100) + strings.Repeat("]", 100), "\"\xff\""}
		carry(t, x, Config{}, 1, func(_ context.Context, run *perdure.Run) (json.RawMessage, error) {
			return json.RawMessage(outputs[run.Number-1]), nil
		})
		for i := range outputs {
			x.offer(int64(i+1), time.Minute, time.Minute)
		}
		x.expect(t, "1 done", "2 done", "3 done", "4 failed outputInvalid", "5 failed outputTooLarge", "6 failed outputInvalid", "7 done")
		for _, r := range x.reports {
			if r.Run == 3 && string(r.Output) != outputs[2] {
				t.Errorf("output %s", r.Output)
			}
		}
	})
}
