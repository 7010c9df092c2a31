package scheduler_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/store/memory"
)

// claimSoon claims, and must be granted something long before a periodic search would find it.
func (d *harness) claimSoon(what string, c protocol.Claim) []perdure.Run {
	d.t.Helper()
	began := time.Now()
	c.Agent, c.Holder, c.Wait = "a", "h", 30*time.Second
	runs, err := d.Claim(d.t.Context(), c)
	if duration := time.Since(began); err != nil || len(runs) == 0 || duration > 100*time.Millisecond {
		d.t.Errorf("%s: %d runs after %v (%v)", what, len(runs), duration, err)
	}
	return runs
}

// F068: a wake-up from another node arrives while the agent is busy and no claim waits.
func TestWakeUpWhileTheAgentIsBusyIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		other, own := open(t, store, scheduler.Config{}), open(t, store, scheduler.Config{})
		own.submit(one)
		run := own.claimSoon("first", protocol.Claim{Max: 2})[0]
		time.Sleep(time.Millisecond)
		other.submit(one)
		own.WakeReady(t.Context())
		time.Sleep(time.Millisecond)
		own.report("h", run, perdure.OutcomeDone)
		own.claimSoon("second", protocol.Claim{Max: 2})
	})
}

// F019, F068: a repeated claim that gets its earlier runs does not make the queue forget that steps wait for a limit.
func TestRepeatedClaimDoesNotHideAFullLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, memory.New(), scheduler.Config{})
		if err := d.PutLimit(t.Context(), "job:t", perdure.LimitSettings{Max: new(1)}); err != nil {
			t.Fatal(err)
		}
		d.submit(one)
		d.submit(one)
		time.Sleep(time.Second)
		run := d.claimSoon("first", protocol.Claim{Max: 2, RequestID: "r", First: true})[0]
		again := d.claimSoon("again", protocol.Claim{Max: 2, RequestID: "r"})
		if len(again) != 1 || again[0].Job != run.Job {
			t.Fatal(again)
		}
		d.report("h", run, perdure.OutcomeDone)
		d.claimSoon("second", protocol.Claim{Max: 2})
	})
}

// L5: the queue remembers for a second that a limit has no room. After that, steps that need this limit are found again,
// even if another node has released the permit.
func TestFullLimitIsSearchedAgainAfterASecond(t *testing.T) {
	for later, want := range map[time.Duration]string{time.Second: "u", time.Second + time.Millisecond: "t"} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.New()
			other, own := open(t, store, scheduler.Config{}), open(t, store, scheduler.Config{})
			if err := own.PutLimit(t.Context(), "job:t", perdure.LimitSettings{Max: new(1)}); err != nil {
				t.Fatal(err)
			}
			for _, typ := range []string{"t", "t", "u", "u"} {
				own.submit("type: " + typ + "\nsteps:\n  " + typ + ": {agent: a}\n")
				time.Sleep(time.Millisecond)
			}
			runs := own.claimSoon("first", protocol.Claim{Max: 2})
			if len(runs) != 2 || runs[0].Step != "t" || runs[1].Step != "u" {
				t.Fatalf("%+v", runs)
			}
			other.report("h", runs[0], perdure.OutcomeDone)
			time.Sleep(later)
			if run := own.claimSoon("second", protocol.Claim{Max: 1})[0]; run.Step != want {
				t.Errorf("after %v: %+v", later, run)
			}
		})
	}
}

// F068: of two writers, one searches the store for a claim, and leaves steps there or finds a limit full. The other one
// serves a later claim of the agent with steps that it makes ready itself, and ends after the first.
func TestClaimServedDuringAnotherSearchMissesNoStep(t *testing.T) {
	for name, limit := range map[string]int{"more is there": 0, "a limit is full": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &lateAnswers{Store: memory.New()}
				d := open(t, s, scheduler.Config{Writers: 3})
				if limit > 0 {
					if err := d.PutLimit(t.Context(), "job:t", perdure.LimitSettings{Max: new(limit)}); err != nil {
						t.Fatal(err)
					}
				}
				other := plan(t, "type: u\nsteps:\n  s: {agent: a}\n")
				for range 5 {
					d.submit(one)
				}
				time.Sleep(time.Second)
				s.late(10*time.Millisecond, 15*time.Millisecond) // the search, and the submission
				first := make(chan []perdure.Run, 1)
				go func() { first <- d.claimSoon("first", protocol.Claim{Max: 1 + limit}) }()
				time.Sleep(time.Millisecond)
				go d.claimSoon("second", protocol.Claim{Max: 3})
				time.Sleep(time.Millisecond)
				go func() {
					if _, err := d.SubmitAll(t.Context(), []*kernel.Plan{other}); err != nil {
						t.Error(err)
					}
				}()
				time.Sleep(40 * time.Millisecond)
				if runs := <-first; limit > 0 && len(runs) > 0 {
					d.report("h", runs[0], perdure.OutcomeDone)
				}
				d.claimSoon("third", protocol.Claim{Max: 2})
			})
		})
	}
}

// F020: a claim is granted runs, but the store's answer is late, and the caller goes away before it comes. The runs are
// returned, and another caller gets them.
func TestRunsOfAClaimantGoneBeforeTheAnswerAreReturned(t *testing.T) {
	for name, late := range map[string]time.Duration{"the answer comes soon": 100 * time.Millisecond, "the caller is not kept until it comes": 10 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &lateAnswers{Store: memory.New()}
				d := open(t, s, scheduler.Config{})
				id := d.submit(one)
				time.Sleep(time.Second)
				s.late(late)
				ctx, cancel := context.WithCancel(t.Context())
				stopped := make(chan error, 1)
				go func() {
					_, err := d.Claim(ctx, protocol.Claim{Agent: "a", Holder: "h", Max: 1, Wait: time.Minute})
					stopped <- err
				}()
				time.Sleep(time.Millisecond)
				if j := d.job(id); j.Running != 1 {
					t.Fatalf("the step is not dispatched yet: %+v", j)
				}
				cancel()
				if err := <-stopped; !errors.Is(err, context.Canceled) {
					t.Errorf("the caller got: %v", err)
				}
				time.Sleep(late)
				if runs := d.claim(protocol.Claim{Agent: "a", Holder: "another", Max: 1, Wait: time.Second}); len(runs) != 1 || runs[0].Number != 2 {
					t.Errorf("another caller got %+v", runs)
				}
			})
		})
	}
}

// lateAnswers is a store that delays the answers to some transactions.
type lateAnswers struct {
	kernel.Store
	mu     sync.Mutex
	delays []time.Duration // of the next transactions
}

func (s *lateAnswers) late(delays ...time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delays = delays
}

func (s *lateAnswers) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	s.mu.Lock()
	var late time.Duration
	if len(s.delays) > 0 {
		late, s.delays = s.delays[0], s.delays[1:]
	}
	s.mu.Unlock()
	err := s.Store.Update(ctx, fn)
	time.Sleep(late)
	return err
}
