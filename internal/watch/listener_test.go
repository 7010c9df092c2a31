package watch

import (
	"context"
	"log/slog"
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
	calls   int
}

func (s *sharedStore) Hints(context.Context) <-chan struct{} { return s.wakeups }
func (s *sharedStore) Heard() bool                           { s.calls++; return false }
func (s *sharedStore) Accepting() error                      { return nil }
func (s *sharedStore) Refused() error                        { return nil }

// A program may close its store before it stops the node. The listener then ends instead of polling a closed store.
func TestListenerEndsWhenTheStoreIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &sharedStore{wakeups: make(chan struct{}, 1)}
		woken := 0
		l := &Listener{Store: store, Wake: func(context.Context) { woken++ }, Log: slog.New(slog.DiscardHandler), Env: env.Real{}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := false
		go func() {
			l.Run(ctx)
			ended = true
		}()
		defer synctest.Wait()
		defer cancel()
		synctest.Wait()
		store.wakeups <- struct{}{}
		synctest.Wait()
		if woken != 1 {
			t.Errorf("woken %d times by one wake-up", woken)
		}
		time.Sleep(4 * pollEvery)
		if synctest.Wait(); woken < 3 || ended {
			t.Errorf("woken %d times while no wake-ups arrive, ended %v", woken, ended)
		}
		close(store.wakeups)
		synctest.Wait()
		before, calls := woken, store.calls
		if time.Sleep(time.Minute); !ended || woken != before || store.calls != calls {
			t.Errorf("after the store was closed: ended %v, woken %d times, %d calls of the store", ended, woken-before, store.calls-calls)
		}
	})
}
