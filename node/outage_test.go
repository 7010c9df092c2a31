package node_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/node"
)

// F097, L4, I1: the database is killed under load and starts again. The nodes need no restart, and work again within
// 10s. Everything that was acknowledged is stored, and ends.
func TestNodesWorkAgainAfterADatabaseRestart(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 15s")
	}
	server := pgtest.NewServer(t, true)
	var l ledger
	var nodes []*node.Node
	for range 2 {
		nodes = append(nodes, start(t, everystore.Postgres(t, server.URL), node.Config{
			Agents: []*perdure.Agent{l.agent("a", func(*perdure.Run) error { time.Sleep(5 * time.Millisecond); return nil })}}))
	}
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var latest atomic.Int64 // the time of the latest answer to a submission
	acked := make([][]string, 8)
	for i := range acked {
		load.Go(func() {
			for k := 0; ctx.Err() == nil; k++ {
				key := fmt.Sprintf("k%d-%d", i, k)
				body := "type: t\nkey: " + key + "\nflow: chain\nsteps:\n  s: {agent: a, completeWithin: 5s, undo: {}, retry: {attempts: 20, backoff: 50ms}}\n  r: {agent: a, completeWithin: 5s, retry: {attempts: 20, backoff: 50ms}}\n"
				callCtx, cancel := context.WithTimeout(ctx, 5*time.Second)
				if _, _, err := nodes[(i+k)%2].Submit(callCtx, []byte(body), "application/yaml"); err == nil {
					acked[i] = append(acked[i], key)
					latest.Store(time.Now().UnixNano())
				}
				cancel()
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	for _, kill := range []bool{true, false} {
		time.Sleep(time.Second)
		server.Stop(kill)
		time.Sleep(2 * time.Second)
		server.Start()
		back := time.Now()
		for time.Unix(0, latest.Load()).Before(back) && time.Since(back) < 10*time.Second {
			time.Sleep(10 * time.Millisecond)
		}
		duration := time.Since(back)
		t.Logf("killed %v: submissions are answered again after %v", kill, duration)
		if duration >= 10*time.Second {
			t.Errorf("L4: no submission was answered for %v", duration)
		}
		probe := submit(t, nodes[0], "type: t\nsteps:\n  s: {agent: a}\n")
		if v, err := nodes[1].Job(t.Context(), probe.ID.String(), 10*time.Second); err != nil || v.Phase != perdure.Settled {
			t.Errorf("L4: %+v, %v", v, err)
		}
		t.Logf("a job ends %v after it came back", time.Since(back))
	}
	stop()
	load.Wait()
	total := 0
	for _, keys := range acked {
		for _, key := range keys {
			total++
			if v := rest(t, nodes[total%2], key); v.Current != perdure.Done {
				t.Errorf("%s: %+v", key, v)
			}
		}
	}
	t.Logf("%d jobs", total)
	consistent(t, nodes[0])
}
