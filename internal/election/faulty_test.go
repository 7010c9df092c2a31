package election_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/election"
	"github.com/perdure/perdure/internal/faultystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/memory"
)

// F115, F006: most calls of the store fail: before the commit, after it, or with an indeterminate result. Each epoch
// still has one leader, no node writes under another's epoch, and at the end there is a leader and a standby.
func TestOneLeaderOnAFaultyStore(t *testing.T) {
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			inner := memory.New()
			store := faultystore.New(inner, seed, 0.93, 40*time.Millisecond) // a slow call exceeds the timeout
			ctx, cancel := context.WithCancel(t.Context())
			led := make(chan kernel.Leadership, 1000)
			var ended []chan struct{}
			for _, name := range []string{"a", "b", "c"} {
				e := election.New(election.Config{Store: store, Node: name, TTL: ttl, Roles: map[string]election.Service{role: func(ctx context.Context) {
					m, _ := kernel.LeadershipOf(ctx)
					led <- m
					<-ctx.Done()
				}}})
				stopped := make(chan struct{})
				ended = append(ended, stopped)
				go func() { e.Run(ctx); close(stopped) }()
			}
			leaders := map[int64]string{}
			for range 400 {
				time.Sleep(ttl / 2)
				synctest.Wait()
				for len(led) > 0 {
					m := <-led
					if before := leaders[m.Epoch]; before != "" && before != m.Node {
						t.Fatalf("seed %d: epoch %d has two leaders: %s and %s", seed, m.Epoch, before, m.Node)
					}
					leaders[m.Epoch] = m.Node
				}
			}
			store.StopFaults()
			time.Sleep(3 * ttl)
			roles, err := inner.Roles(t.Context())
			now, nerr := inner.Now(t.Context())
			if err := errors.Join(err, nerr); err != nil || len(roles) != 1 || !roles[0].Led(now) || !roles[0].StoodBy(now) {
				t.Errorf("seed %d: %+v at %v, %v", seed, roles, now, err)
			}
			cancel()
			for _, stopped := range ended {
				<-stopped
			}
			if len(leaders) < 3 {
				t.Errorf("seed %d: %d epochs: no roll call ever failed", seed, len(leaders))
			}
		})
	}
}
