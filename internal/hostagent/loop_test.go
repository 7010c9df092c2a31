package hostagent

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/agenthost"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
)

func aLoop(register func(ctx context.Context, full bool) (*operate.HostRegistered, error)) *Loop {
	host := agenthost.New(agenthost.Config{Exchange: struct{ protocol.Exchange }{}, Holder: "h", HostName: "h1", Agents: []*perdure.Agent{perdure.NewAgent("a")}})
	return NewLoop(LoopConfig{Env: env.Real{}, Host: host, Name: "h1",
		Register: func(ctx context.Context, full, _ bool) (*operate.HostRegistered, error) { return register(ctx, full) }})
}

// F261: an operator drains a host, and again with another deadline, also after the first one has passed. The last one counts.
// F027: it is counted from the registration, because the clock of the node is an hour ahead.
func TestLastDeadlineOfADrainCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := aLoop(nil)
		now := time.Now()
		l.renewedAt = now
		time.Sleep(time.Second) // the answer took so long
		plan := drainPlan{}
		drained := func(in time.Duration) drainPlan {
			l.registered = &operate.HostRegistered{State: operate.HostDraining}
			if in != 0 {
				l.registered.DrainBy, l.registered.DrainInMs = now.Add(time.Hour+in), max(in.Milliseconds(), 0)
			}
			plan = l.follow(plan)
			return plan
		}
		for _, in := range []time.Duration{10 * time.Minute, time.Minute, time.Hour, time.Hour, -time.Minute} {
			if got := drained(in); !got.stopAt.Equal(now.Add(max(in, 0))) {
				t.Errorf("drained in %s: stopped at %s", in, got.stopAt.Sub(now))
			}
		}
		plan.stopAt = now.Add(checkEvery) // the deadline has passed, and what has arrived late is stopped then
		if got := drained(-time.Minute); !got.stopAt.Equal(now.Add(checkEvery)) {
			t.Errorf("the same deadline: %s", got.stopAt.Sub(now))
		}
		if got := drained(time.Minute); !got.stopAt.Equal(now.Add(time.Minute)) {
			t.Errorf("a new deadline: %s", got.stopAt.Sub(now))
		}
		if got := drained(0); !got.stopAt.IsZero() {
			t.Errorf("without a deadline: %s", got.stopAt.Sub(now))
		}
		drained(time.Minute)
		l.registered = &operate.HostRegistered{State: operate.HostReady}
		if plan = l.follow(plan); !plan.stopAt.IsZero() {
			t.Error("not drained any more")
		}
		if got := drained(time.Minute); !got.stopAt.Equal(now.Add(time.Minute)) {
			t.Errorf("drained again: %s", got.stopAt.Sub(now))
		}
	})
}

// F262: registrations overlap, and the answers arrive in another order. The newest registration counts. If the overtaken one said
// something else about the space, the host registers again: the node may have stored the overtaken one last.
func TestOverlappingRegistrations(t *testing.T) {
	for name, c := range map[string]struct {
		full  bool // what the overtaken registration said
		err   error
		renew bool
	}{
		"it said the same": {false, nil, false},
		"it said full":     {true, nil, true},
		"it failed":        {true, errors.New("cut"), true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow, calls := make(chan struct{}), 0
				l := aLoop(func(context.Context, bool) (*operate.HostRegistered, error) {
					if calls++; calls == 1 {
						<-slow
						return &operate.HostRegistered{State: operate.HostReady}, c.err
					}
					return &operate.HostRegistered{State: operate.HostDraining}, nil
				})
				l.full = c.full
				go func() { _ = l.registerOnce(t.Context()) }()
				synctest.Wait()
				l.full = false
				if err := l.registerOnce(t.Context()); err != nil {
					t.Fatal(err)
				}
				close(slow)
				synctest.Wait()
				if l.registered.State != operate.HostDraining || l.reportedFull || l.takeRenewal() != c.renew {
					t.Errorf("%+v, full %v, said again %v", l.registered, l.reportedFull, !c.renew)
				}
			})
		})
	}
}

// F262, F266: the host was removed and registered again while registrations were in progress. The answer to the newer registration
// counts, and not the later one that an older registration was refused.
func TestLateRefusalOfAnOlderRegistration(t *testing.T) {
	for name, overtaken := range map[string]bool{"overtaken": true, "the newest": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow, calls := make(chan struct{}), 0
				l := aLoop(func(context.Context, bool) (*operate.HostRegistered, error) {
					if calls++; calls == 1 {
						<-slow
						return nil, perdure.Refuse(perdure.CodeNotFound, "removed")
					}
					return &operate.HostRegistered{State: operate.HostReady}, nil
				})
				go l.renew(t.Context())
				synctest.Wait()
				if overtaken {
					l.renew(t.Context())
				}
				close(slow)
				synctest.Wait()
				if removed := errors.Is(l.failed(), ErrRemoved); removed == overtaken {
					t.Errorf("%v", l.failed())
				}
			})
		})
	}
}

// F279: a run finds no space though the disk has some: it needs more than that, or there is a quota. The host claims nothing for
// a while.
func TestHostPausesAfterARunFoundNoSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, full := aLoop(nil), false
		l.Full = func(bool) bool { return full }
		check := func(after time.Duration, want bool) {
			t.Helper()
			time.Sleep(after)
			if l.checkSpace(); l.full != want {
				t.Errorf("full: %v", l.full)
			}
		}
		check(0, false)
		l.NoteFull()
		check(0, true)
		check(fullPause-time.Second, true)
		check(time.Second, false)
		l.NoteFull()
		check(fullPause/2, true)
		l.NoteFull()
		check(fullPause/2, true)
		full = true
		check(fullPause/2, true)
		full = false
		check(0, false)
	})
}
