package scheduler_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/store/memory"
)

// F002: if a submission is repeated while the backlog is full, the answer is its job, because a caller who has lost an
// answer must be able to learn that the job is stored. All others are refused.
func TestRepeatedSubmissionIsAnsweredWhileTheBacklogIsFull(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{MaxBacklog: 3})
		id := d.submit("key: k1\ntype: t\nsteps:\n  s: {agent: a}\n")
		d.submit(one)
		d.submit(one)
		for body, want := range map[string]perdure.Code{
			"key: k1\ntype: t\nsteps:\n  s: {agent: a}\n":     "",
			"key: k1\ntype: other\nsteps:\n  s: {agent: a}\n": perdure.CodeConflict,
			"key: k2\ntype: t\nsteps:\n  s: {agent: a}\n":     perdure.CodeBacklogFull,
			one: perdure.CodeBacklogFull,
		} {
			submitted, err := d.Submit(t.Context(), plan(t, body))
			if perdure.CodeOf(err) != want || err == nil && (submitted.ID != id || submitted.Created) {
				t.Errorf("%s: %+v, %v", body, submitted, err)
			}
		}
		d.claim(protocol.Claim{Agent: "a", Holder: "h"})
		if n, err := store.Backlog(t.Context(), 10); n != 3 || err != nil {
			t.Errorf("%d jobs, %v", n, err)
		}
	})
}

// uncounted is a store that does not return the number of unsettled jobs.
type uncounted struct {
	kernel.Store
}

func (uncounted) Backlog(ctx context.Context, _ int) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

// Submissions that wait for the first count of unsettled jobs wait no longer than others, and are then refused.
func TestSubmissionsDoNotWaitLongForTheFirstCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, uncounted{memory.New()}, scheduler.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		var counting sync.WaitGroup
		counting.Go(func() { _, _ = d.Submit(ctx, plan(t, one)) })
		synctest.Wait()
		began := time.Now()
		if _, err := d.Submit(t.Context(), plan(t, one)); perdure.CodeOf(err) != perdure.CodeBacklogFull || time.Since(began) != 5*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		cancel()
		counting.Wait()
	})
}
