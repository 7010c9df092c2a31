package agenthost

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// HeartbeatAll makes an exchange a protocol.Completer.
func (x *exchange) HeartbeatAll(ctx context.Context, c protocol.CompleteHeartbeat) (results []protocol.HeartbeatResult, asOf time.Time, err error) {
	x.mu.Lock()
	x.complete = append(x.complete, c)
	refuse := x.refuseComplete
	x.mu.Unlock()
	if refuse != nil {
		return nil, time.Time{}, refuse
	}
	if len(c.Runs) > 0 {
		results, err = x.Heartbeat(ctx, c.Holder, c.Runs)
	}
	return results, time.Now(), err
}

// completes returns the complete heartbeats so far.
func (x *exchange) completes() []protocol.CompleteHeartbeat {
	synctest.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.complete)
}

func (x *exchange) openClaims() (ids []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range x.claims {
		ids = append(ids, c.RequestID)
	}
	return ids
}

// F184, F185: a complete heartbeat lists all runs, and the claims in progress. The first one tells no time; the next one
// follows at once, with the time of the answer to the first.
func TestCompleteHeartbeatsListRunsAndClaims(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		x.onHeartbeat = extend(10 * time.Second)
		h := carry(t, x, Config{HostName: "h1", Capacity: perdure.Amounts{"slots": 4}, ExactSlots: true}, 4, lasting(time.Minute))
		synctest.Wait()
		x.offerAll(dispatched(1, 10*time.Second, time.Hour), dispatched(2, 10*time.Second, time.Hour))
		synctest.Wait()
		began := time.Now()
		h.CompleteHeartbeats()
		all := x.completes()
		if len(all) != 2 || !all[0].AsOf.IsZero() || !all[1].AsOf.Equal(began) {
			t.Fatalf("%+v", all)
		}
		claims := x.openClaims()
		for _, c := range all {
			if len(c.Runs) != 2 || c.Runs[0].Run != 1 || c.Runs[1].Run != 2 || c.Holder != "host-1" {
				t.Errorf("%+v", c.Runs)
			}
			if len(c.OpenClaims) == 0 || slices.Contains(c.OpenClaims, claims[0]) || !slices.Contains(c.OpenClaims, claims[len(claims)-1]) {
				t.Errorf("open %q of %q", c.OpenClaims, claims)
			}
		}
		time.Sleep(10*time.Second/3 + time.Millisecond)
		if n := len(x.completes()); n != 3 {
			t.Errorf("%d complete heartbeats", n)
		}
	})
}

// F185: a claim is open until its runs are known to the host: while its answer is lost, and while the terms of its runs are
// confirmed.
func TestClaimIsOpenUntilItsRunsAreKnown(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		var failing atomic.Bool
		failing.Store(true)
		x.claim = func(ctx context.Context, n int, req protocol.Claim) ([]perdure.Run, error) {
			if n > 1 && !failing.Load() {
				return x.wait(ctx, req)
			}
			if failing.Load() {
				return nil, errLost
			}
			return x.wait(ctx, req)
		}
		x.onHeartbeat = extend(10 * time.Second)
		h := carry(t, x, Config{}, 1, lasting(time.Hour))
		time.Sleep(7 * time.Second)
		id := x.openClaims()[0]
		h.CompleteHeartbeats()
		time.Sleep(20 * time.Second)
		for i, c := range x.completes() {
			if !slices.Equal(c.OpenClaims, []string{id}) {
				t.Fatalf("%d: open %q, not %q", i, c.OpenClaims, id)
			}
		}
		failing.Store(false)
		x.offer(1, 10*time.Second, time.Hour)
		time.Sleep(20 * time.Second)
		all := x.completes()
		if last := all[len(all)-1]; len(last.OpenClaims) != 0 || len(last.Runs) != 1 {
			t.Errorf("%+v", last)
		}
	})
}

// An idle host sends a complete heartbeat in each promised interval, and no other heartbeats.
func TestIdleHostSendsEmptyHeartbeats(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		h := carry(t, x, Config{Heartbeat: 9 * time.Second}, 4, done)
		h.CompleteHeartbeats()
		time.Sleep(60 * time.Second)
		if n := len(x.completes()); n < 7 || n > 9 {
			t.Errorf("%d complete heartbeats", n)
		}
		if _, _, n := x.counts(); n != 0 {
			t.Errorf("%d heartbeats of runs", n)
		}
	})
}

// F050, F185: while a handler ignores the end of its run, no heartbeat says that the run is gone: its step must not be
// dispatched again before the lock ends.
func TestNoCompleteHeartbeatBesideALostRun(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange() // heartbeats of runs fail
		h := carry(t, x, Config{}, 4, deaf(time.Minute))
		x.offer(1, 10*time.Second, time.Hour)
		time.Sleep(12 * time.Second)
		h.CompleteHeartbeats()
		time.Sleep(40 * time.Second)
		if all := x.completes(); len(all) != 0 {
			t.Errorf("%+v", all)
		}
		time.Sleep(20 * time.Second)
		if all := x.completes(); len(all) == 0 || len(all[0].Runs) != 0 {
			t.Errorf("after the handler has returned: %+v", all)
		}
	})
}

// F204: a server of an earlier version refuses complete heartbeats. Heartbeats of runs go on without a gap.
func TestRefusedCompleteHeartbeats(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		x.onHeartbeat = extend(10 * time.Second)
		x.refuseComplete = perdure.Refuse(perdure.CodeInvalid, "unknown field asOf")
		h := carry(t, x, Config{}, 4, lasting(time.Minute))
		x.offer(1, 10*time.Second, time.Hour)
		time.Sleep(2 * time.Second)
		h.CompleteHeartbeats()
		time.Sleep(time.Minute)
		x.expect(t, "1 done")
		if n := len(x.completes()); n != 1 {
			t.Errorf("%d complete heartbeats", n)
		}
	})
}
