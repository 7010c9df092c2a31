package node_test

import (
	"context"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/store/memory"
)

// A node without work uses almost no processor time, and almost no calls of the database.
func TestIdleNodeUsesAlmostNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 7s for each store")
	}
	const watch = 5 * time.Second
	idle := func(t *testing.T, store kernel.Store, calls func() int64) {
		var l ledger
		n := start(t, store, node.Config{Agents: []*perdure.Agent{l.agent("a", nil), l.agent("b", nil)}})
		submit(t, n, "type: t\nsteps:\n  s: {agent: nobody}\n")
		time.Sleep(2 * time.Second)
		began, before, calledBefore := time.Now(), processor(t), calls()
		time.Sleep(watch)
		duration := time.Since(began)
		used, rate := processor(t)-before, float64(calls()-calledBefore)/duration.Seconds()
		t.Logf("%.2f%% of a core, %.1f calls in a second", 100*used.Seconds()/duration.Seconds(), rate)
		// The supervisor asks every 2s, the timetable and the election every 3s, alerts and statistics every 5s. Each
		// call takes two statements. At most a fifth of the time is the node's: the rest belongs to the race
		// detector and to other processes.
		if used > duration/20 || rate > 2.1 {
			t.Errorf("%v of processor time in %v, %.1f calls in a second", used, duration, rate)
		}
	}
	none := func() int64 { return 0 }
	t.Run("memory", func(t *testing.T) { idle(t, memory.New(), none) })
	t.Run("sqlite", func(t *testing.T) { idle(t, everystore.SQLite(t, t.TempDir()+"/f.db"), none) })
	t.Run("postgres", func(t *testing.T) {
		store := &counted{SharedStore: everystore.Postgres(t, pgtest.Start(t)).(kernel.SharedStore)}
		idle(t, store, store.calls.Load)
	})
}

func processor(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// counted counts the calls of which a node without work makes few.
type counted struct {
	kernel.SharedStore
	calls atomic.Int64
}

func (c *counted) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	c.calls.Add(1)
	return c.SharedStore.Update(ctx, fn)
}

func (c *counted) Poll(ctx context.Context, agents []string) (kernel.PollAnswer, error) {
	c.calls.Add(1)
	return c.SharedStore.Poll(ctx, agents)
}

func (c *counted) Now(ctx context.Context) (time.Time, error) {
	c.calls.Add(1)
	return c.SharedStore.Now(ctx)
}

func (c *counted) PendingReceivers(ctx context.Context, after string, max int) ([]string, error) {
	c.calls.Add(1)
	return c.SharedStore.PendingReceivers(ctx, after, max)
}

func (c *counted) ReportNode(ctx context.Context, p kernel.NodeReport) (kernel.NodeAnswer, error) {
	c.calls.Add(1)
	return c.SharedStore.ReportNode(ctx, p)
}
