package supervisor_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/supervisor"
)

// fakeScheduler is a scheduler and a store that only record the calls.
type fakeScheduler struct {
	mu     sync.Mutex
	scans  int
	in     time.Duration // the time until something is due
	sweeps []context.Context
	refuse bool
	closed bool // some lanes are closed
	lanes  []context.Context
}

func (d *fakeScheduler) Poll(context.Context, []string) (kernel.PollAnswer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.scans++
	now := time.Now()
	return kernel.PollAnswer{Now: now, Next: now.Add(d.in), LanesClosed: d.closed}, nil
}

func (d *fakeScheduler) SweepExpired(ctx context.Context, _ int) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sweeps = append(d.sweeps, ctx)
	if _, led := kernel.LeadershipOf(ctx); led && d.refuse {
		return 0, kernel.ErrDeposed
	}
	return 0, nil
}

func (d *fakeScheduler) SweepDue(context.Context, int) (int, error)     { return 0, nil }
func (d *fakeScheduler) SweepOverdue(context.Context, int) (int, error) { return 0, nil }

func (*fakeScheduler) SweepBuckets(context.Context) error { return nil }
func (*fakeScheduler) SweepSignals(context.Context) error { return nil }
func (*fakeScheduler) SweepUnique(context.Context) error  { return nil }
func (*fakeScheduler) SweepShares(context.Context) error  { return nil }

func (d *fakeScheduler) SweepLanes(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lanes = append(d.lanes, ctx)
	if d.refuse {
		return kernel.ErrDeposed
	}
	return nil
}

func (d *fakeScheduler) SweepHosts(context.Context) error { return nil }

func (d *fakeScheduler) WaitingAgents() []string { return nil }
func (d *fakeScheduler) Wake([]string)           {}

// run runs a supervisor while test runs.
func (d *fakeScheduler) run(t *testing.T, test func(t *testing.T, s *supervisor.Supervisor, deposed *[]kernel.Leadership)) {
	synctest.Test(t, func(t *testing.T) {
		var deposed []kernel.Leadership // protected by mu
		s := supervisor.New(supervisor.Config{Scheduler: d, Store: d, Period: time.Second, Log: slog.New(slog.DiscardHandler),
			Deposed: func(m kernel.Leadership) {
				d.mu.Lock()
				defer d.mu.Unlock()
				deposed = append(deposed, m)
			}})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.Run(ctx)
		synctest.Wait()
		test(t, s, &deposed)
	})
}

// scansWithin returns the number of due scans within t.
func (d *fakeScheduler) scansWithin(t time.Duration) int {
	before := d.scanned()
	time.Sleep(t)
	return d.scanned() - before
}

func (d *fakeScheduler) scanned() int {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.scans
}

// sweepsWithin returns the contexts of the sweeps within t.
func (d *fakeScheduler) sweepsWithin(t time.Duration) []context.Context {
	synctest.Wait()
	d.mu.Lock()
	d.sweeps = nil
	d.mu.Unlock()
	time.Sleep(t)
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sweeps
}

var leadership = kernel.Leadership{Role: kernel.RoleSupervisor, Node: "n", Epoch: 3}

// The leader scans once in each period, beginning when it becomes the leader. The others scan too, but less often.
func TestLeaderScansMoreOften(t *testing.T) {
	d := &fakeScheduler{in: time.Hour}
	d.run(t, func(t *testing.T, s *supervisor.Supervisor, _ *[]kernel.Leadership) {
		if n := d.scansWithin(20 * time.Second); n != 10 {
			t.Errorf("one of many has looked %d times in 20s", n)
		}
		time.Sleep(100 * time.Millisecond)
		ctx, end := context.WithCancel(kernel.WithLeadership(t.Context(), leadership))
		ended := make(chan struct{})
		before := d.scanned()
		go func() { s.Lead(ctx); close(ended) }()
		if n := d.scanned() - before; n != 1 {
			t.Errorf("a new leader has looked %d times at once", n)
		}
		if n := d.scansWithin(20 * time.Second); n != 20 {
			t.Errorf("the leader has looked %d times in 20s", n)
		}
		end()
		<-ended
		if n := d.scansWithin(20 * time.Second); n < 9 || n > 12 {
			t.Errorf("one of many again, it has looked %d times in 20s", n)
		}
		// A second leadership behaves like the first.
		ctx, end = context.WithCancel(kernel.WithLeadership(t.Context(), leadership))
		defer end()
		go s.Lead(ctx)
		if n := d.scansWithin(20 * time.Second); n < 20 {
			t.Errorf("the leader has looked %d times in 20s", n)
		}
	})
}

// I15: due work is processed with or without a leader. A leader's sweep carries its leadership. If the store refuses
// it, the elector is notified, and the supervisor goes on.
func TestSweepOfTheLeaderCarriesItsLeadership(t *testing.T) {
	d := &fakeScheduler{in: -time.Second}
	d.run(t, func(t *testing.T, s *supervisor.Supervisor, deposed *[]kernel.Leadership) {
		alone := d.sweepsWithin(10 * time.Second)
		for _, ctx := range alone {
			if _, led := kernel.LeadershipOf(ctx); led {
				t.Error("no leader")
			}
		}
		if len(alone) < 5 {
			t.Errorf("without a leader: %d sweeps in 10s", len(alone))
		}
		ctx, end := context.WithCancel(kernel.WithLeadership(t.Context(), leadership))
		go s.Lead(ctx)
		led := d.sweepsWithin(10 * time.Second)
		for _, ctx := range led {
			if m, ok := kernel.LeadershipOf(ctx); !ok || m != leadership {
				t.Errorf("a leader's sweep goes by %+v", m)
			}
		}
		if len(led) < 9 {
			t.Errorf("with a leader: %d sweeps in 10s", len(led))
		}
		d.mu.Lock()
		d.refuse = true
		if len(*deposed) != 0 {
			t.Errorf("no write was refused, but: %v", *deposed)
		}
		d.mu.Unlock()
		d.sweepsWithin(2 * time.Second)
		d.mu.Lock()
		if len(*deposed) == 0 || (*deposed)[0] != leadership {
			t.Errorf("Deposed was not called: %v", *deposed)
		}
		d.mu.Unlock()
		end()
		if again := d.sweepsWithin(10 * time.Second); len(again) < 4 {
			t.Errorf("without a leader again: %d sweeps in 10s", len(again))
		}
	})
}

// I15: the leader checks closed lanes once in a period, and its calls carry its leadership. No supervisor does so if no lane is closed,
// and no other node does.
func TestLeaderOpensClosedLanes(t *testing.T) {
	d := &fakeScheduler{in: time.Hour, closed: true}
	d.run(t, func(t *testing.T, s *supervisor.Supervisor, deposed *[]kernel.Leadership) {
		during := func(what string, want int) {
			t.Helper()
			synctest.Wait()
			d.mu.Lock()
			d.lanes = nil
			d.mu.Unlock()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			d.mu.Lock()
			defer d.mu.Unlock()
			if len(d.lanes) != want {
				t.Errorf("%s: %d sweeps in 10s, want %d", what, len(d.lanes), want)
			}
			for _, ctx := range d.lanes {
				if m, led := kernel.LeadershipOf(ctx); !led || m != leadership {
					t.Errorf("%s: a sweep under %+v", what, m)
				}
			}
		}
		during("does not lead", 0)
		ctx, end := context.WithCancel(kernel.WithLeadership(t.Context(), leadership))
		defer end()
		go s.Lead(ctx)
		during("leads", 10)
		d.mu.Lock()
		d.closed = false
		d.mu.Unlock()
		time.Sleep(2 * time.Second)
		during("leads, none is closed", 0)
		d.mu.Lock()
		d.closed, d.refuse = true, true
		d.mu.Unlock()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		d.mu.Lock()
		defer d.mu.Unlock()
		if len(*deposed) == 0 || (*deposed)[0] != leadership {
			t.Errorf("refused, but Deposed was called with %v", *deposed)
		}
	})
}
