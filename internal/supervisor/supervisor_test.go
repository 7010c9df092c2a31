package supervisor_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/supervisor"
)

// dueWork is a scheduler and a store with a number of due rows of each kind.
type dueWork struct {
	supervisor.Scheduler
	expired, due, overdue int
	since                 time.Duration // the time for which they have been due
	batches               []int         // the batch sizes of SweepExpired
}

func (*dueWork) SweepBuckets(context.Context) error { return nil }
func (*dueWork) SweepSignals(context.Context) error { return nil }
func (*dueWork) SweepUnique(context.Context) error  { return nil }
func (*dueWork) SweepShares(context.Context) error  { return nil }

func (p *dueWork) SweepLanes(context.Context) error { return nil }
func (p *dueWork) SweepHosts(context.Context) error { return nil }

func (p *dueWork) WaitingAgents() []string { return nil }
func (p *dueWork) Wake([]string)           {}

func take(n *int, most int) (int, error) {
	duration := min(*n, most)
	*n -= duration
	return duration, nil
}

func (p *dueWork) SweepExpired(_ context.Context, most int) (int, error) {
	p.batches = append(p.batches, most)
	return take(&p.expired, most)
}
func (p *dueWork) SweepDue(_ context.Context, most int) (int, error) { return take(&p.due, most) }
func (p *dueWork) SweepOverdue(_ context.Context, most int) (int, error) {
	return take(&p.overdue, most)
}

func (p *dueWork) Poll(context.Context, []string) (kernel.PollAnswer, error) {
	now := time.Now()
	return kernel.PollAnswer{Now: now, Next: now.Add(-p.since)}, nil
}

// F083: while more is due than one batch takes, the batches grow up to a bound. The metrics get how late the work was,
// and how much was processed.
func TestBatchesGrowWithTheBacklog(t *testing.T) {
	p := &dueWork{expired: 200, due: 3, since: time.Minute}
	var late time.Duration
	var swept supervisor.Swept
	s := supervisor.New(supervisor.Config{Scheduler: p, Store: p, Batch: 10, Scanned: func(d time.Duration) { late = d }, Swept: func(d supervisor.Swept) { swept = d }})
	if pause, err := s.Round(t.Context()); pause != 0 || err != nil {
		t.Errorf("looks away for %s, %v", pause, err)
	}
	if want := (supervisor.Swept{Expired: 200, Due: 3}); swept != want || late < time.Minute || late > time.Minute+time.Second {
		t.Errorf("told of %+v, late by %s", swept, late)
	}
	if got, want := fmt.Sprint(p.batches), "[10 20 40 40 40 40 40]"; got != want {
		t.Errorf("batches of %s, want %s", got, want)
	}
	p.since = -time.Hour
	if _, err := s.Round(t.Context()); err != nil || late != 0 {
		t.Errorf("nothing is due, and it is late by %s, %v", late, err)
	}
}

// A round on demand processes all that is due, in as many batches as that takes.
func TestSweepProcessesAllThatIsDue(t *testing.T) {
	p := &dueWork{expired: 25, due: 30, overdue: 7}
	swept, err := supervisor.New(supervisor.Config{Scheduler: p, Store: p, Batch: 10}).Sweep(t.Context())
	if want := (supervisor.Swept{Expired: 25, Due: 30, Overdue: 7}); swept != want || err != nil {
		t.Errorf("got %+v, %v; want %+v", swept, err, want)
	}
}

// A sweep that finds nothing may have corrected when runs expire, so the next round follows at once. If the same work is
// due again, the supervisor waits for a period, and reports that the work is late.
func TestRoundAfterASweepThatFoundNothing(t *testing.T) {
	p := &fixed{}
	late := -time.Second
	s := supervisor.New(supervisor.Config{Scheduler: p, Store: p, Period: time.Second, Scanned: func(d time.Duration) { late = d }})
	now := time.Now()
	round := func(what string, due, want, isLate time.Duration) {
		t.Helper()
		late = -time.Second
		if p.look = (kernel.PollAnswer{Now: now, Next: now.Add(-due)}); due < 0 {
			p.look.Next = time.Time{}
		}
		if pause, err := s.Round(t.Context()); err != nil || pause != want || late != isLate {
			t.Errorf("%s: the next round is after %v, want %v; late by %v, want %v; %v", what, pause, want, late, isLate, err)
		}
	}
	const unknown = -time.Second
	round("nothing was found", time.Minute, 0, unknown)
	round("nothing again", time.Minute, time.Second, time.Minute)
	round("and again", time.Minute, time.Second, time.Minute)
	round("it was corrected, and is due already", time.Millisecond, 0, unknown)
	round("nothing is due", -1, 2*time.Second, 0)
	round("nothing was found, later", 0, 0, unknown)
	p.due = 1
	round("something was found", 0, 0, 0)
	round("nothing after that", 0, time.Second, 0)
}

// fixed is a pile whose due scan returns what the test sets.
type fixed struct {
	dueWork
	look kernel.PollAnswer
}

func (f *fixed) Poll(context.Context, []string) (kernel.PollAnswer, error) { return f.look, nil }
