package agenthost

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// If steps are ready at once, the next run arrives with the answer to the report of the previous one. Otherwise a claim
// waits for it as usual.
func TestAClaimGoesWithReports(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		for n := range int64(3) {
			x.offer(n+1, time.Minute, time.Minute)
		}
		carry(t, x, Config{}, 1, lasting(time.Millisecond))
		time.Sleep(time.Second)
		x.expect(t, "1 done", "2 done", "3 done")
		if n, _, _ := x.counts(); n != 2 || len(x.followed) != 3 {
			t.Errorf("%d claims, %d with reports", n, len(x.followed))
		}
		if c := x.followed[0]; c.Agent != "payments" || c.Holder != "host-1" || c.Max != 1 || c.Heartbeat != 10*time.Second ||
			c.Wait != 0 || !c.First || c.RequestID == "" || c.RequestID == x.followed[1].RequestID {
			t.Errorf("claim %+v", c)
		}
		x.offer(4, time.Minute, time.Minute) // a claim waited for it
		time.Sleep(time.Second)
		x.expect(t, "1 done", "2 done", "3 done", "4 done")
		if n, _, _ := x.counts(); n != 3 || len(x.followed) != 3 {
			t.Errorf("%d claims, %d with reports", n, len(x.followed))
		}
	})
}

// After one empty claim, claims still go with reports: those were last steps, and the next reports are of other steps.
func TestClaimsGoWithReportsAfterAnEmptyClaim(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		carry(t, x, Config{}, 1, lasting(time.Millisecond))
		for n, c := range []struct {
			after time.Duration
			with  int // claims that went with reports so far
		}{{0, 1}, {flowEndsAfter / 2, 2}, {flowEndsAfter, 2}, {flowEndsAfter, 2}} {
			time.Sleep(c.after)
			x.offer(int64(n+1), time.Minute, time.Minute)
			time.Sleep(2 * time.Millisecond)
			x.mu.Lock()
			with := len(x.followed)
			x.mu.Unlock()
			if with != c.with {
				t.Errorf("%d runs: %d claims came with reports, want %d", n+1, with, c.with)
			}
		}
	})
}

// A claim with reports asks for no more runs than there is room for.
func TestClaimsWithReportsKeepToTheSlots(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		for n := range int64(100) {
			x.offer(n+1, time.Minute, time.Minute)
		}
		h := carry(t, x, Config{}, 4, lasting(time.Second))
		for range 30 {
			time.Sleep(time.Second)
			synctest.Wait()
			if s := h.Stats()[0]; s.Busy > 4 {
				t.Fatalf("%+v", s)
			}
		}
		if n := len(x.reported()); n != 100 {
			t.Errorf("%d reports", n)
		}
		if n := len(x.followed); n < 20 {
			t.Errorf("%d claims came with reports", n)
		}
	})
}

// lostOnce makes the answer to the first call with a claim get lost. When the claim is repeated, it gets the same runs.
func (x *exchange) lostOnce(beforehand func()) {
	var given []perdure.Run
	x.report = func(n int, _ []protocol.Report) ([]protocol.ReportResult, error) {
		if n > 1 {
			return nil, nil
		}
		given = []perdure.Run{dispatched(2, time.Minute, time.Minute)}
		beforehand()
		return nil, errLost
	}
	x.claim = func(ctx context.Context, _ int, req protocol.Claim) ([]perdure.Run, error) {
		x.mu.Lock()
		again := len(x.followed) > 0 && x.followed[0].RequestID == req.RequestID
		x.mu.Unlock()
		if again && !req.First {
			return given, nil
		}
		return x.wait(ctx, req)
	}
}

// F019, F063: a lost answer contained results of reports, and runs. The reports are sent again, and the claim is
// repeated under its requestId.
func TestLostAnswerToReportsAndAClaimIsRepeated(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		x.lostOnce(func() {})
		x.offer(1, time.Minute, time.Minute)
		carry(t, x, Config{}, 1, done)
		time.Sleep(time.Second)
		x.expect(t, "1 done", "2 done")
		if c := x.claims[1]; c.RequestID != x.followed[0].RequestID || c.First {
			t.Errorf("claim %+v after %+v", c, x.followed[0])
		}
	})
}

// F276: the claim of a registered host is repeated when the reports were answered: what it offers is in use for the scheduler until
// it has them.
func TestLostClaimOfAHostIsRepeatedAfterItsReports(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		first := dispatched(1, time.Minute, time.Minute)
		first.Requires = &perdure.Requires{Amounts: perdure.Amounts{"slots": 1}}
		failures, answered := 0, false // under x.mu
		x.report = func(int, []protocol.Report) ([]protocol.ReportResult, error) {
			if failures++; failures < 4 {
				return nil, errLost
			}
			answered = true
			return nil, nil
		}
		claim := x.claim
		x.claim = func(ctx context.Context, n int, req protocol.Claim) ([]perdure.Run, error) {
			x.mu.Lock()
			repeated := len(x.followed) > 0 && x.followed[0].RequestID == req.RequestID
			if repeated && !answered {
				t.Errorf("the claim %+v is repeated after %d failed calls", req, failures)
			}
			x.mu.Unlock()
			if n == 1 {
				return []perdure.Run{first}, nil
			}
			if claim != nil {
				return claim(ctx, n, req)
			}
			return x.wait(ctx, req)
		}
		carry(t, x, Config{HostName: "h1", Capacity: perdure.Amounts{"slots": 1}, ExactSlots: true}, 4, lasting(time.Second))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		x.mu.Lock()
		defer x.mu.Unlock()
		if len(x.followed) == 0 || !slices.ContainsFunc(x.claims, func(c protocol.Claim) bool { return c.RequestID == x.followed[0].RequestID }) {
			t.Errorf("the claim with the reports is not repeated: %+v", x.claims)
		}
	})
}

// The same while the host drains: the runs of the claim are returned.
func TestDrainReturnsRunsOfALostAnswer(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		host := make(chan *Host, 1)
		x.lostOnce(func() { (<-host).stop() })
		x.offer(1, time.Minute, time.Minute)
		host <- carry(t, x, Config{}, 1, lasting(time.Second))
		time.Sleep(10 * time.Second)
		x.expect(t, "1 done", "2 returned")
		if c := x.claims[len(x.claims)-1]; c.RequestID != x.followed[0].RequestID || c.Max != 1 || c.First {
			t.Errorf("claim %+v", c)
		}
	})
}

// A server that does not support claims with reports refuses the call. Reports then go without claims for a while, and
// nothing is lost.
func TestServerWithoutClaimsInReportsIsServed(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		refused := 0 // under x.mu
		x.report = func(int, []protocol.Report) ([]protocol.ReportResult, error) {
			if len(x.followed) > refused {
				refused++
				return nil, perdure.Refuse(perdure.CodeInvalid, "/claim is not a known field")
			}
			return nil, nil
		}
		carry(t, x, Config{}, 1, lasting(time.Second))
		for n := range int64(65) {
			x.offer(2*n+1, time.Hour, time.Hour)
			x.offer(2*n+2, time.Hour, time.Hour)
		}
		requested := func() int {
			x.mu.Lock()
			defer x.mu.Unlock()
			return refused
		}
		time.Sleep(30 * time.Second)
		if n := requested(); n != 1 {
			t.Errorf("asked %d times", n)
		}
		time.Sleep(2 * time.Minute)
		if n := requested(); n < 2 || len(x.reported()) != 130-n {
			t.Errorf("asked %d times, %d reports", n, len(x.reported()))
		}
	})
}

// hung is an exchange that never answers the first reports with a claim.
type hung struct {
	*exchange
	name chan string // the requestId of the claim
}

func (x *hung) Report(ctx context.Context, holder string, reports []protocol.Report, next *protocol.Claim) ([]protocol.ReportResult, []perdure.Run, error) {
	if next != nil {
		select {
		case x.name <- next.RequestID:
			<-ctx.Done()
			return nil, nil, ctx.Err()
		default:
		}
	}
	return x.exchange.Report(ctx, holder, reports, next)
}

// L6: the runs of the reports expire during a drain. The runs of the claim are returned nevertheless.
func TestADrainWaitsForTheClaimWithReports(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := &hung{newExchange(), make(chan string, 1)}
		var name string
		x.claim = func(ctx context.Context, _ int, req protocol.Claim) ([]perdure.Run, error) {
			switch {
			case ctx.Err() != nil:
				return nil, ctx.Err()
			case req.First:
				return x.wait(ctx, req)
			}
			name = req.RequestID
			return []perdure.Run{dispatched(2, time.Minute, time.Minute)}, nil
		}
		x.offer(1, 3*time.Second, 3*time.Second)
		a := perdure.NewAgent("payments")
		a.Slots = 1
		a.HandleAny(done)
		h := New(Config{Exchange: x, Holder: "host-1", Agents: []*perdure.Agent{a}})
		ended := make(chan error, 1)
		go func() { ended <- h.Run(t.Context()) }()
		time.Sleep(time.Second)
		if duration, err := drain(h); err != nil {
			t.Error(err, duration)
		}
		<-ended
		x.expect(t, "2 returned")
		if told := <-x.name; told != name {
			t.Errorf("%q was asked for, and %q had been", name, told)
		}
	})
}

// slowly is an exchange that answers late, and never answers heartbeats.
type slowly struct{ *exchange }

func (x slowly) Report(ctx context.Context, holder string, reports []protocol.Report, next *protocol.Claim) ([]protocol.ReportResult, []perdure.Run, error) {
	time.Sleep(1500 * time.Millisecond)
	return x.exchange.Report(ctx, holder, reports, next)
}

func (x slowly) Heartbeat(ctx context.Context, _ string, _ []protocol.Heartbeat) ([]protocol.HeartbeatResult, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// Reports that were answered are complete, even while a heartbeat is in progress to learn the terms of the runs in the
// same answer (F022).
func TestAnsweredReportsAreComplete(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := slowly{newExchange()}
		x.offer(1, 10*time.Second, time.Minute)
		x.offer(2, 10*time.Second, time.Minute)
		a := perdure.NewAgent("payments")
		a.Slots = 1
		a.HandleAny(done)
		h := New(Config{Exchange: x, Holder: "host-1", Agents: []*perdure.Agent{a}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- h.Run(ctx) }()
		time.Sleep(3 * time.Second)
		if s := h.Stats()[0]; s.Unreported > 0 || len(x.reported()) != 1 {
			t.Errorf("%+v, %v", s, x.reported())
		}
		cancel()
		<-ended
	})
}
