package agenthost

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// F042, F043: heartbeats extend a run's lock, but not beyond its deadline.
func TestHeartbeatsExtendTheLock(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		x.onHeartbeat = extend(10 * time.Second) // would extend beyond the deadline
		carry(t, x, Config{}, 4, func(ctx context.Context, run *perdure.Run) (json.RawMessage, error) {
			if run.Number == 1 {
				return lasting(25*time.Second)(ctx, run)
			}
			began := time.Now()
			<-ctx.Done()
			if d := time.Since(began); d != 40*time.Second {
				t.Errorf("ended after %s", d)
			}
			return nil, nil
		})
		x.offer(1, 10*time.Second, time.Minute)
		x.offer(2, 10*time.Second, 40*time.Second)
		time.Sleep(time.Minute)
		x.expect(t, "1 done")
		if _, _, n := x.counts(); n < 7+11 || n > 7+12 { // every 3⅓s for 25s and 40s
			t.Errorf("%d beats", n)
		}
	})
}

// A run that has just arrived sends no heartbeat, because most runs end soon. Nevertheless one heartbeat may be lost
// (F042).
func TestNewRunSendsNoHeartbeat(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		began := time.Now()
		var heartbeats []time.Duration
		x.hangs = 1
		granted := extend(10 * time.Second)
		x.onHeartbeat = func(b []protocol.Heartbeat) ([]protocol.HeartbeatResult, error) {
			heartbeats = append(heartbeats, time.Since(began).Round(time.Millisecond))
			return granted(b)
		}
		carry(t, x, Config{}, 4, lasting(15*time.Second))
		time.Sleep(10*time.Second/3 - 10*time.Second/freshPart + time.Millisecond)
		x.offer(1, 10*time.Second, time.Minute)
		time.Sleep(time.Minute)
		x.expect(t, "1 done")
		if len(heartbeats) < 2 || heartbeats[0] != 11667*time.Millisecond { // the previous one, at 6⅔ s, was not answered
			t.Errorf("beats at %v", heartbeats)
		}
	})
}

// A run that arrives with little of the promised interval left sends a heartbeat at once (F042).
func TestLateRunSendsHeartbeatAtOnce(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		x.onHeartbeat = extend(10 * time.Second)
		carry(t, x, Config{}, 4, lasting(15*time.Second))
		time.Sleep(10*time.Second/3 - time.Second/2)
		x.offer(1, 3500*time.Millisecond, time.Minute)
		time.Sleep(time.Minute)
		x.expect(t, "1 done")
	})
}

// F042: lost heartbeats do not extend a lock, and a late heartbeat does not revive a lost run.
func TestLostHeartbeatsExtendNoLock(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		x.onHeartbeat = func(b []protocol.Heartbeat) ([]protocol.HeartbeatResult, error) {
			time.Sleep(6 * time.Second)
			return extend(10 * time.Second)(b)
		}
		carry(t, x, Config{}, 1, func(ctx context.Context, run *perdure.Run) (json.RawMessage, error) {
			began := time.Now()
			<-ctx.Done()
			if d := time.Since(began); d != 5*time.Second {
				t.Errorf("ended after %s", d)
			}
			time.Sleep(30 * time.Second)
			return nil, nil
		})
		x.offer(1, 5*time.Second, time.Minute)
		time.Sleep(time.Minute)
		x.expect(t)
	})
}

// F060: the answer to a heartbeat asks a run to stop.
func TestAnswerToAHeartbeatStopsARun(t *testing.T) {
	stop := func(reason string) func([]protocol.Heartbeat) ([]protocol.HeartbeatResult, error) {
		return func(b []protocol.Heartbeat) ([]protocol.HeartbeatResult, error) {
			results, err := extend(10 * time.Second)(b)
			results[0].Stop, results[0].Reason = true, reason
			return results, err
		}
	}
	for reason, want := range map[string][]string{
		"the job desires undone": {"1 failed stopped"}, // the run still belongs to the host: its outcome lets the step change direction at once
		"stale":                  nil,
		"late":                   nil,
		"forbidden":              nil,
	} {
		t.Run(reason, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				x := newExchange()
				x.onHeartbeat = stop(reason)
				h := carry(t, x, Config{}, 1, lasting(30*time.Second))
				x.offer(1, 10*time.Second, time.Minute)
				time.Sleep(4 * time.Second)
				x.expect(t, want...)
				if s := h.Stats()[0]; s.Busy+s.Overdue+s.Unreported != 0 {
					t.Errorf("stats %+v", s)
				}
			})
		})
	}
}

// The heartbeats of more than a thousand runs go in calls of bounded size.
func TestHeartbeatsGoInBatches(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		var sizes []int
		x.onHeartbeat = func(b []protocol.Heartbeat) ([]protocol.HeartbeatResult, error) {
			x.mu.Lock()
			sizes = append(sizes, len(b))
			x.mu.Unlock()
			return extend(10 * time.Second)(b)
		}
		carry(t, x, Config{}, 1500, lasting(5*time.Second))
		for i := range 1500 {
			x.offer(int64(i+1), 10*time.Second, time.Minute)
		}
		time.Sleep(4 * time.Second)
		if synctest.Wait(); len(sizes) != 2 || slices.Max(sizes) != perdure.MaxBatch {
			t.Errorf("batches %v", sizes)
		}
	})
}

// Progress goes with the next heartbeat, and again if that was lost.
func TestProgressIsSentWithAHeartbeat(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		var got []string
		x.onHeartbeat = func(b []protocol.Heartbeat) ([]protocol.HeartbeatResult, error) {
			got = append(got, string(b[0].Progress))
			if len(got) == 1 {
				return nil, errLost
			}
			return extend(10 * time.Second)(b)
		}
		carry(t, x, Config{}, 1, func(ctx context.Context, _ *perdure.Run) (json.RawMessage, error) {
			if err := perdure.Progress(ctx, map[string]int{"percent": 40}); err != nil {
				t.Error(err)
			}
			time.Sleep(12 * time.Second)
			return nil, nil
		})
		x.offer(1, 10*time.Second, time.Minute)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if want := []string{`{"percent":40}`, `{"percent":40}`, ``}; !slices.Equal(got, want) {
			t.Errorf("progress %q", got)
		}
	})
}
