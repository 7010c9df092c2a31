package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/dispatch"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/store/memory"
)

func ended(holder string, o perdure.Outcome, took time.Duration, n int, s *Scheduler) {
	for range n {
		s.health.note(&kernel.RunEnd{Agent: "a", Holder: holder, Outcome: o, Duration: took})
	}
}

func newOf() *Scheduler { return New(Config{Store: memory.New(), Compiler: &definition.Compiler{}}) }

// F265: a holder that fails, and one that is slow, get a tenth of what they ask for, or one run in a minute, until ten minutes have
// passed or their runs are done again.
func TestSickHolderGetsFewRunsUntilItRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOf()
		most := func(holder string, max, want int) {
			t.Helper()
			if got, _, _ := s.health.mostRuns("a", holder, max); got != want {
				t.Errorf("%s asks for %d and gets %d, want %d", holder, max, got, want)
			}
		}
		for _, holder := range []string{"one", "two", "three", "slow"} {
			ended(holder, perdure.OutcomeDone, time.Second, 20, s)
		}
		ended("fails", perdure.OutcomeFailed, time.Second, 12, s)
		ended("slow", perdure.OutcomeDone, time.Minute, 80, s)
		ended("drained", perdure.OutcomeReturned, time.Hour, 50, s)
		time.Sleep(2 * normFor)
		for _, holder := range []string{"one", "drained", "unknown"} {
			most(holder, 50, 50)
		}
		most("slow", 50, 5)
		most("fails", 50, 5)
		most("fails", 50, 0) // another claim is in progress (F265)
		most("fails", 9, 0)
		s.health.slowedEnded("a", "fails", 5)
		most("fails", 50, 0) // its runs have ended at once, and it claims again
		if _, wait, _ := s.health.mostRuns("a", "fails", 50); wait <= 0 || wait > time.Second {
			t.Errorf("it may have runs after %s", wait)
		}
		if _, wait, _ := s.health.mostRuns("a", "fails", 9); wait <= time.Second || wait > kernel.LowPause {
			t.Errorf("it may have a run after %s", wait)
		}
		time.Sleep(time.Second) // as long as a run takes at the others
		most("fails", 50, 5)
		s.health.slowedEnded("a", "fails", 0) // there was no work
		most("fails", 50, 5)
		s.health.slowedEnded("a", "fails", 5)
		time.Sleep(kernel.LowPause)
		most("fails", 9, 1)
		most("fails", 9, 0)
		s.health.slowedEnded("a", "fails", 0)
		most("fails", 9, 1)
		s.health.slowedEnded("a", "fails", 1)
		shown := s.Health("a")
		if len(shown) != 5 || shown[0].Holder != "fails" || shown[0].Weight != kernel.LowWeight || shown[0].Runs != 12 || shown[1].Holder != "slow" || shown[1].Runs != kernel.HealthRuns || shown[2].Weight != 1 || time.Duration(shown[2].MeanDuration) != time.Second {
			t.Errorf("shown: %+v", shown)
		}
		ended("fails", perdure.OutcomeDone, time.Second, 60, s)
		time.Sleep(2 * normFor)
		most("fails", 50, 50)
		time.Sleep(kernel.HealthTime)
		most("slow", 50, 50)
		if shown := s.Health("a"); shown != nil {
			t.Errorf("after ten minutes: %+v", shown)
		}
	})
}

// If all holders fail, all keep their weight.
func TestAllHoldersFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOf()
		for i := range 5 {
			ended(fmt.Sprint("h", i), perdure.OutcomeFailed, time.Duration(i+1)*time.Second, 50, s)
		}
		time.Sleep(2 * normFor)
		for i := range 5 {
			if got, _, _ := s.health.mostRuns("a", fmt.Sprint("h", i), 7); got != 7 {
				t.Errorf("holder %d gets %d", i, got)
			}
		}
	})
}

// The number of holders that are remembered is bounded. Those whose runs do not count any more make room.
func TestHealthIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOf()
		for i := range maxHealthHolders + 500 {
			ended(fmt.Sprint("h", i), perdure.OutcomeDone, time.Second, 1, s)
		}
		if s.health.size != maxHealthHolders || len(s.health.agents["a"].holders) != maxHealthHolders || len(s.Health("a")) != perdure.MaxHealth {
			t.Errorf("%d holders are remembered, %d shown", s.health.size, len(s.Health("a")))
		}
		time.Sleep(kernel.HealthTime + time.Second)
		ended("new", perdure.OutcomeDone, time.Second, 1, s)
		if s.health.size != 1 {
			t.Errorf("%d holders are remembered after their time", s.health.size)
		}
	})
}

// slowStore is a store whose transactions wait before their COMMIT, while wait is not nil.
type slowStore struct {
	kernel.Store
	wait chan struct{}
}

func (s *slowStore) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	return s.Store.Update(ctx, func(tx kernel.Tx) error {
		if s.wait != nil {
			<-s.wait
		}
		return fn(tx)
	})
}

// withSickHolder calls fn with a scheduler that runs, and for which the holder "fails" is slowed.
func withSickHolder(t *testing.T, fn func(t *testing.T, s *Scheduler, store *slowStore)) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowStore{Store: memory.New()}
		s := New(Config{Store: store, Compiler: &definition.Compiler{}})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.Run(ctx) })
		defer running.Wait()
		defer stop()
		plans, err := definition.Parse([]byte("type: t\nsteps:\n  s: {agent: a}\n"), definition.YAML, definition.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if _, err := s.Submit(t.Context(), plans[0]); err != nil {
				t.Fatal(err)
			}
		}
		for _, holder := range []string{"one", "two", "three"} {
			ended(holder, perdure.OutcomeDone, time.Minute, 20, s)
		}
		ended("fails", perdure.OutcomeFailed, time.Minute, 20, s)
		time.Sleep(2 * normFor)
		fn(t, s, store)
	})
}

// F209: the caller of a slowed claim gives up while a transaction has the claim. No other claim of the holder gets runs until
// that transaction has ended, and the runs that it grants count.
func TestRunsOfASlowedClaimCountIfItsCallerGivesUp(t *testing.T) {
	c := protocol.Claim{Agent: "a", Holder: "fails", Max: 50, RequestID: "r", First: true, Wait: time.Minute}
	for name, call := range map[string]func(ctx context.Context, s *Scheduler) error{
		"claim": func(ctx context.Context, s *Scheduler) error { _, err := s.Claim(ctx, c); return err },
		"report": func(ctx context.Context, s *Scheduler) error {
			_, _, err := s.Report(ctx, "fails", nil, &c)
			return err
		},
	} {
		for _, lasts := range []time.Duration{time.Second, 2 * leaveTime} {
			t.Run(fmt.Sprint(name, " ", lasts), func(t *testing.T) {
				withSickHolder(t, func(t *testing.T, s *Scheduler, store *slowStore) {
					store.wait = make(chan struct{})
					ctx, giveUp := context.WithCancel(t.Context())
					returned := make(chan error, 1)
					go func() { returned <- call(ctx, s) }()
					synctest.Wait()
					giveUp()
					time.Sleep(lasts)
					if most, wait, _ := s.health.mostRuns("a", "fails", 50); most != 0 || wait != allowEvery {
						t.Errorf("beside a claim in progress: %d runs, or after %s", most, wait)
					}
					close(store.wait)
					if err := <-returned; !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					synctest.Wait()
					if most, wait, _ := s.health.mostRuns("a", "fails", 50); most != 0 || wait < 50*time.Second {
						t.Errorf("after the claim: %d runs, or after %s", most, wait)
					}
				})
			})
		}
	}
}

// F209: a claim with reports that waits for its turn takes no runs away from other claims of a slowed holder.
func TestSlowedClaimThatWaitsForItsTurnBlocksNoOther(t *testing.T) {
	withSickHolder(t, func(t *testing.T, s *Scheduler, _ *slowStore) {
		name := dispatch.ClaimName{Agent: "a", Holder: "fails", Request: "r"}
		s.turns.Take(t.Context(), name, time.Second)
		returned := make(chan error, 1)
		go func() {
			_, _, err := s.Report(t.Context(), "fails", nil, &protocol.Claim{Agent: "a", Holder: "fails", Max: 50, RequestID: "r"})
			returned <- err
		}()
		synctest.Wait()
		if most, wait, _ := s.health.mostRuns("a", "fails", 50); most != 5 {
			t.Errorf("%d runs, or after %s", most, wait)
		}
		if err := <-returned; !errors.Is(err, errInProgress) {
			t.Error(err)
		}
	})
}
