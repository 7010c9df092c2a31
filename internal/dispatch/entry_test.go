package dispatch

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/env"
)

// If the queue is full, submissions wait until transactions have taken others. They enter in their order, and are
// refused after a while. Reports and heartbeats enter meanwhile. The number of waiting submissions is bounded.
func TestSubmissionsWaitForEntry(t *testing.T) {
	requests := func(n, first int, ofRun bool) []*Request {
		rs := make([]*Request, n)
		for i := range rs {
			rs[i] = &Request{Weight: first + i, OfRun: ofRun}
		}
		return rs
	}
	full := func(err error) bool { return perdure.CodeOf(err) == perdure.CodeBacklogFull }
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(env.Real{}, 1, false)
		put := func(rs []*Request) error { return q.Put(t.Context(), rs) }
		if err := put(requests(MaxQueued-5, 1, false)); err != nil {
			t.Fatal(err)
		}
		var late sync.WaitGroup
		late.Go(func() {
			began := time.Now()
			if err := put(requests(10, 0, false)); !full(err) || time.Since(began) != maxEntryWait {
				t.Errorf("%v after %v", err, time.Since(began))
			}
		})
		late.Wait()
		if err := put(requests(10, 0, true)); err != nil {
			t.Errorf("reports: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if err := q.Put(ctx, requests(10, 0, false)); !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
		})
		synctest.Wait()
		next := MaxQueued - 4
		for _, n := range []int{400, 400, 1} { // in their order, even if there is room for a small set
			rs := requests(n, next, false)
			next += len(rs)
			waiting.Go(func() {
				if err := put(rs); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		cancel()
		synctest.Wait()
		var refused sync.WaitGroup
		refused.Go(func() {
			began := time.Now()
			if err := put(requests(MaxQueued, 0, false)); !full(err) || time.Since(began) > 0 {
				t.Errorf("%v after %v: too many wait", err, time.Since(began))
			}
		})
		refused.Wait()
		q.mu.Lock()
		q.entrantRequests += MaxQueued
		q.mu.Unlock()
		if err := put(requests(10, 0, true)); err != nil {
			t.Errorf("reports, while as much waits as may: %v", err)
		}
		q.mu.Lock()
		q.entrantRequests -= MaxQueued
		q.mu.Unlock()
		for want := 1; want < next; {
			taken, _, turn, _ := q.Take()
			q.Saved(turn)
			for _, r := range taken {
				if r.OfRun {
					continue
				}
				if r.Weight != want {
					t.Fatalf("request %d came in place of %d", r.Weight, want)
				}
				want++
			}
			synctest.Wait()
			if n := len(q.otherRequests); n > MaxQueued {
				t.Fatalf("%d are queued", n)
			}
		}
		waiting.Wait()
		if len(q.entrants) > 0 || q.entrantRequests != 0 {
			t.Errorf("%d left behind", q.entrantRequests)
		}
	})
	synctest.Test(t, func(t *testing.T) { // the node stops
		q := NewQueue(env.Real{}, 1, false)
		if err := q.Put(t.Context(), requests(MaxQueued, 1, false)); err != nil {
			t.Fatal(err)
		}
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if err := q.Put(t.Context(), requests(1, 1, false)); !errors.Is(err, ErrDraining) {
				t.Errorf("%v", err)
			}
		})
		synctest.Wait()
		q.Close()
		if n := len(q.Drain()); n != MaxQueued {
			t.Errorf("%d are refused", n)
		}
		waiting.Wait()
	})
}
