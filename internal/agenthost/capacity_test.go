package agenthost

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// F207: what is free of a registered host is in the parts of several claims after runs have ended one after the other. A step that
// needs several parts finds them in one claim soon. A claim without an answer holds back no others.
func TestPartsOfTheCapacityComeTogether(t *testing.T) {
	for name, lost := range map[string]bool{"all claims end": false, "a claim has no answer": true} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				const wait = 5 * time.Second
				x := newExchange()
				x.claim = func(ctx context.Context, n int, req protocol.Claim) ([]perdure.Run, error) {
					switch {
					case n == 1:
						run := dispatched(1, time.Minute, time.Hour)
						run.Requires = &perdure.Requires{Amounts: perdure.Amounts{"cpu": 2000}}
						return []perdure.Run{run}, nil
					case lost && req.Free["gpu"] > 0:
						<-ctx.Done()
						return nil, ctx.Err()
					}
					return x.wait(ctx, req)
				}
				carry(t, x, Config{HostName: "h1", Capacity: perdure.Amounts{"cpu": 2000, "gpu": 1}, ClaimWait: wait, ExactSlots: true, Heartbeat: -1}, 10, lasting(time.Second))
				time.Sleep(2 * time.Second)
				synctest.Wait()
				x.mu.Lock()
				before := len(x.claims)
				x.mu.Unlock()
				time.Sleep(2*wait + 2*roundGrace) // shorter than the margin after which a claim is repeated
				synctest.Wait()
				x.mu.Lock()
				defer x.mu.Unlock()
				for _, c := range x.claims[before:] {
					if c.Free["cpu"] == 2000 && (c.Free["gpu"] == 1 || lost) { // without an answer, the gpu is still in that claim
						return
					}
				}
				t.Errorf("no claim offers both: %+v", x.claims)
			})
		})
	}
}

// F257: the scheduler answers claims with parts of the capacity before their time, because a step waits for what they offer together.
// The round ends, and the next claim offers everything soon.
func TestAnsweredPartsComeTogetherAtOnce(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const wait = 20 * time.Second
		x := newExchange()
		room := make(chan struct{})
		x.claim = func(ctx context.Context, n int, req protocol.Claim) ([]perdure.Run, error) {
			switch {
			case n == 1:
				run := dispatched(1, time.Minute, time.Hour)
				run.Requires = &perdure.Requires{Amounts: perdure.Amounts{"cpu": 2000}}
				return []perdure.Run{run}, nil
			case req.Free["cpu"] > 0 && req.Free["gpu"] > 0:
				return x.wait(ctx, req)
			case req.Free["cpu"] > 0: // the run has ended: now there is room
				close(room)
				return nil, nil
			}
			select {
			case <-room:
				return nil, nil
			case <-time.After(req.Wait):
				return nil, nil
			}
		}
		carry(t, x, Config{HostName: "h1", Capacity: perdure.Amounts{"cpu": 2000, "gpu": 1}, ClaimWait: wait, ExactSlots: true, Heartbeat: -1}, 10, lasting(2*time.Second))
		time.Sleep(2*time.Second + 500*time.Millisecond)
		synctest.Wait()
		x.mu.Lock()
		defer x.mu.Unlock()
		last := x.claims[len(x.claims)-1]
		if last.Free["cpu"] != 2000 || last.Free["gpu"] != 1 || last.Wait != wait {
			t.Errorf("no claim offers both: %+v", x.claims)
		}
	})
}
