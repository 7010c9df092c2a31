package watch

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
)

// sharedStore is a store whose wake-ups the test sends.
type sharedStore struct {
	kernel.SharedStore
	wakeups chan struct{}
	calls   atomic.Int64
}

func (s *sharedStore) Wakeups(context.Context) <-chan struct{} { return s.wakeups }
func (s *sharedStore) Listening() bool                         { s.calls.Add(1); return false }
func (s *sharedStore) Accepting() error                        { return nil }
func (s *sharedStore) Refused() error                          { return nil }

// A program may close its store before it stops the node. The listener then ends instead of polling a closed store.
func TestListenerEndsWhenTheStoreIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &sharedStore{wakeups: make(chan struct{}, 1)}
		var woken atomic.Int64
		var ended atomic.Bool
		l := &Listener{Store: store, Wake: func(context.Context) { woken.Add(1) }, Log: slog.New(slog.DiscardHandler), Env: env.Real{}}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			l.Run(ctx)
			ended.Store(true)
		}()
		defer synctest.Wait()
		defer cancel()
		synctest.Wait()
		store.wakeups <- struct{}{}
		synctest.Wait()
		if n := woken.Load(); n != 1 {
			t.Errorf("woken %d times by one wake-up", n)
		}
		time.Sleep(4 * pollEvery)
		if synctest.Wait(); woken.Load() < 3 || ended.Load() {
			t.Errorf("woken %d times while no wake-ups arrive, ended %v", woken.Load(), ended.Load())
		}
		close(store.wakeups)
		synctest.Wait()
		before, calls := woken.Load(), store.calls.Load()
		if time.Sleep(time.Minute); !ended.Load() || woken.Load() != before || store.calls.Load() != calls {
			t.Errorf("after the store was closed: ended %v, woken %d times, %d calls of the store", ended.Load(), woken.Load()-before, store.calls.Load()-calls)
		}
	})
}
