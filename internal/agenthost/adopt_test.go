package agenthost

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/runcontext"
	"github.com/perdure/perdure/protocol"
)

// F230: runs of an earlier process are confirmed by a heartbeat, which is repeated until it is answered. Those that still
// belong to the holder are executed, even if no slot is free; the others are returned to the caller.
func TestRunsOfAnEarlierProcessAreAdopted(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		granted, lost := extend(30*time.Second), 2
		x.onHeartbeat = func(beats []protocol.Heartbeat) ([]protocol.HeartbeatResult, error) {
			if lost--; lost >= 0 {
				return nil, errLost
			}
			results, err := granted(beats)
			for i := range results {
				switch results[i].Run {
				case 2:
					results[i].Stop, results[i].Reason = true, string(protocol.RefusedLate)
				case 3:
					results[i].Stop, results[i].Reason = true, "undo"
				}
			}
			return results, err
		}
		h := carry(t, x, Config{ExactSlots: true}, 1, func(ctx context.Context, run *perdure.Run) (json.RawMessage, error) {
			if run.Number == 3 {
				<-ctx.Done()
				if EndingOf(context.Cause(ctx)) != runcontext.Stop {
					t.Errorf("%v", context.Cause(ctx))
				}
				return nil, errors.New("stopped")
			}
			return lasting(time.Second)(ctx, run)
		})
		var runs []perdure.Run
		for n := range int64(4) {
			runs = append(runs, dispatched(n+1, time.Millisecond, time.Hour)) // the lock that it knows has ended
		}
		over, err := h.Adopt(t.Context(), "payments", runs)
		if err != nil || len(over) != 1 || over[0].Number != 2 {
			t.Errorf("%v, %v", over, err)
		}
		if left := h.Left(&runs[0]); left <= 29*time.Second || left > 30*time.Second || h.Left(&runs[1]) != 0 {
			t.Errorf("%s", left)
		}
		if again, err := h.Adopt(t.Context(), "payments", runs[:1]); err != nil || len(again) != 0 {
			t.Errorf("%v, %v", again, err)
		}
		if _, err := h.Adopt(t.Context(), "other", runs); err == nil {
			t.Error("an unknown agent")
		}
		time.Sleep(5 * time.Second)
		x.expect(t, "1 done", "3 failed stopped", "4 done")
	})
}

// Nothing is claimed while the host is paused.
func TestPausedHostClaimsNothing(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		h := carry(t, x, Config{Heartbeat: -1}, 4, done)
		synctest.Wait()
		h.Pause(true)
		x.offer(1, time.Minute, time.Hour) // for the claim that waits already
		time.Sleep(time.Second)
		x.offer(2, time.Minute, time.Hour)
		time.Sleep(time.Minute)
		x.expect(t, "1 done")
		h.Pause(false)
		time.Sleep(time.Second)
		x.expect(t, "1 done", "2 done")
	})
}

// A host whose work goes on without it reports what has ended, and leaves the rest. Ended is called for the first only, and the
// handlers of the others leave.
func TestQuietEndLeavesRuns(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		x.onHeartbeat = extend(30 * time.Second)
		var mu sync.Mutex
		var ended []int64
		var extended []time.Duration
		left := make(chan runcontext.Ending, 1)
		a := perdure.NewAgent("payments")
		a.HandleAny(func(ctx context.Context, run *perdure.Run) (json.RawMessage, error) {
			if run.Number == 1 {
				return nil, nil
			}
			<-ctx.Done()
			left <- EndingOf(context.Cause(ctx))
			return nil, errors.New("left")
		})
		h := New(Config{Exchange: x, Holder: "host-1", Agents: []*perdure.Agent{a}, ExactSlots: true,
			Ended: func(run *perdure.Run) {
				mu.Lock()
				defer mu.Unlock()
				ended = append(ended, run.Number)
			},
			Extended: func(run *perdure.Run, left time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				extended = append(extended, left)
			}})
		life, end := context.WithCancelCause(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- h.Run(life) }()
		x.offer(1, time.Minute, time.Hour)
		x.offer(2, 10*time.Second, time.Hour)
		time.Sleep(5 * time.Second)
		h.Quiesce(t.Context())
		mine := errors.New("the process ends")
		end(mine)
		if err := <-ran; !errors.Is(err, mine) {
			t.Errorf("%v", err)
		}
		if e := <-left; e != runcontext.Leave {
			t.Errorf("ending %d", e)
		}
		synctest.Wait()
		x.expect(t, "1 done")
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(ended, []int64{1}) {
			t.Errorf("ended: %v", ended)
		}
		if len(extended) == 0 || slices.Max(extended) > 30*time.Second || slices.Min(extended) < 29*time.Second {
			t.Errorf("extended: %v", extended)
		}
	})
}

func TestEndingOf(t *testing.T) {
	for cause, want := range map[error]runcontext.Ending{errStopped: runcontext.Stop, errDraining: runcontext.Stop, errLockExpired: runcontext.Kill, errRunLost: runcontext.Kill, context.DeadlineExceeded: runcontext.Kill,
		errDrained: runcontext.Leave, errors.New("another"): runcontext.Leave, context.Canceled: runcontext.Leave} {
		if got := EndingOf(cause); got != want {
			t.Errorf("%v: %d", cause, got)
		}
	}
}
