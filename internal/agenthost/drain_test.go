package agenthost

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// drain drains with a grace period of 20s, and returns how long that took.
func drain(h *Host) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	began := time.Now()
	err := h.Drain(ctx)
	return time.Since(began), err
}

// F117, L6: an idle host drains at once, and its long poll ends.
func TestIdleHostDrainsAtOnce(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		h := carry(t, x, Config{}, 1, done)
		synctest.Wait()
		if d, err := drain(h); d > 0 || err != nil {
			t.Errorf("%s, %v", d, err)
		}
	})
}

func TestRunReturnsNilAfterADrain(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := New(Config{Exchange: newExchange(), Holder: "host-1", Agents: []*perdure.Agent{perdure.NewAgent("a")}})
		ended := make(chan error)
		go func() { ended <- h.Run(t.Context()) }()
		synctest.Wait()
		if _, err := drain(h); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestRunReturnsTheCauseOfACancelledContext(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		a := perdure.NewAgent("payments")
		a.HandleAny(lasting(time.Hour))
		h := New(Config{Exchange: x, Holder: "host-1", Agents: []*perdure.Agent{a}})
		ctx, cancel := context.WithCancelCause(context.Background())
		ended := make(chan error)
		go func() { ended <- h.Run(ctx) }()
		x.offer(1, time.Minute, time.Minute)
		synctest.Wait()
		cancel(errLost)
		if err := <-ended; !errors.Is(err, errLost) {
			t.Errorf("Run: %v", err)
		}
		x.expect(t) // as after a crash: nothing is reported
	})
}

// L6: runs that end within the grace period are reported as usual. The others are cut short, which does not count as a
// failure.
func TestDrainWaitsThenCutsRunsShort(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		x.onHeartbeat = extend(10 * time.Second)
		h := carry(t, x, Config{}, 3, func(ctx context.Context, run *perdure.Run) (json.RawMessage, error) {
			switch run.Number {
			case 1:
				return lasting(5*time.Second)(ctx, run)
			case 2:
				return lasting(time.Hour)(ctx, run)
			}
			_, err := lasting(time.Hour)(ctx, run)
			return nil, perdure.NoEffect(err)
		})
		for i := range 3 {
			x.offer(int64(i+1), 10*time.Second, 2*time.Hour)
			synctest.Wait()
		}
		d, err := drain(h)
		if d != 17*time.Second || err != nil {
			t.Errorf("%s, %v", d, err)
		}
		synctest.Wait()
		got := map[string]bool{}
		for _, s := range x.reported() {
			got[s] = true
		}
		if len(got) != 3 || !got["1 done"] || !got["2 returned effect unknown"] || !got["3 returned"] {
			t.Errorf("reports %q", x.reported())
		}
	})
}

// F050: a handler that ignores its context may still act. Its run is not reported, and the drain waits for it only
// within its bounds.
func TestDrainDoesNotWaitForAHandlerThatIgnoresItsContext(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		x.onHeartbeat = extend(10 * time.Second)
		h := carry(t, x, Config{}, 1, deaf(time.Hour))
		x.offer(1, 10*time.Second, 2*time.Hour)
		synctest.Wait()
		if d, err := drain(h); d != 19*time.Second || err == nil {
			t.Errorf("%s, %v", d, err)
		}
		x.expect(t)
		time.Sleep(2 * time.Hour)
		x.expect(t)
	})
}

// A host that is drained calls CutShort again and again. Each run is in the log once.
func TestCutShortIsLoggedOnce(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		x.onHeartbeat = extend(time.Hour)
		var log bytes.Buffer
		h := carry(t, x, Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, 2, deaf(time.Hour))
		for i := range 2 {
			x.offer(int64(i+1), time.Hour, 2*time.Hour)
			synctest.Wait()
			for range 3 {
				h.CutShort()
			}
			synctest.Wait()
			if n := strings.Count(log.String(), "run cut short by drain"); n != i+1 {
				t.Errorf("%d lines: %s", n, log.String())
			}
		}
		time.Sleep(time.Hour) // until the handlers have returned
	})
}

// F117: a run that arrives after the drain has begun is returned.
func TestDrainReturnsRunsThatArrive(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		x.claim = func(ctx context.Context, n int, req protocol.Claim) ([]perdure.Run, error) {
			if n == 1 {
				<-ctx.Done() // answers nevertheless
			}
			return x.wait(context.WithoutCancel(ctx), req)
		}
		h := carry(t, x, Config{}, 1, func(context.Context, *perdure.Run) (json.RawMessage, error) {
			t.Error("started")
			return nil, nil
		})
		synctest.Wait()
		x.offer(1, time.Minute, time.Minute)
		if _, err := drain(h); err != nil {
			t.Error(err)
		}
		x.expect(t, "1 returned")
	})
}

// F019, F020: the drain interrupts a claim that was committed. Its runs are retrieved under its requestId, and returned.
func TestDrainRetrievesALostClaim(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		var committed string
		run := dispatched(1, time.Minute, time.Minute)
		x.claim = func(ctx context.Context, n int, req protocol.Claim) ([]perdure.Run, error) {
			if n == 1 {
				<-ctx.Done()
				committed = req.RequestID
				return nil, ctx.Err()
			}
			if req.RequestID != committed || req.Wait != 0 {
				t.Errorf("claim %+v", req)
			}
			return []perdure.Run{run}, nil
		}
		h := carry(t, x, Config{}, 1, done)
		synctest.Wait()
		if _, err := drain(h); err != nil {
			t.Error(err)
		}
		x.expect(t, "1 returned")
	})
}

// All reports are answered before Drain returns, but Drain does not wait for ever.
func TestDrainWaitsForTheAnswersToReports(t *testing.T) {
	for name, c := range map[string]struct {
		outage, took time.Duration
		ok           bool
	}{
		"short outage": {outage: 6 * time.Second, ok: true},
		"long outage":  {outage: time.Hour, took: 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				x := newExchange()
				began := time.Now()
				x.report = func(int, []protocol.Report) ([]protocol.ReportResult, error) {
					if time.Since(began) < c.outage {
						return nil, errLost
					}
					return nil, nil
				}
				h := carry(t, x, Config{Heartbeat: -1}, 1, done)
				x.offer(1, time.Minute, time.Minute)
				synctest.Wait()
				d, err := drain(h)
				if (err == nil) != c.ok || c.took > 0 && d != c.took {
					t.Errorf("%s, %v", d, err)
				}
				if c.ok {
					x.expect(t, "1 done")
				}
			})
		})
	}
}

func TestDrainBeforeRunEndsRunAtOnce(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := New(Config{Exchange: newExchange(), Holder: "host-1"})
		if err := h.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		if err := h.Run(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
