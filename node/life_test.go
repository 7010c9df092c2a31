package node_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/store/memory"
)

// brittle is a store whose disk begins to fail at a sync.
type brittle struct {
	kernel.Store
	broken atomic.Bool
}

var errSync = perdure.Refuse(perdure.CodeUnavailable, "the disk failed to sync")

func (b *brittle) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	if b.broken.Load() {
		return fmt.Errorf("%w: %w", kernel.ErrBroken, errSync)
	}
	return b.Store.Update(ctx, fn)
}

const lone = "type: t\nsteps:\n  s: {agent: nobody}\n"

// followed waits until so many calls wait for jobs of this node.
func followed(t *testing.T, n *node.Node, by float64) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); gauge(t, n, "perdure_job_followers") < by; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not followed by %v", by)
		}
	}
}

// F110: after a failed sync the node ends by itself, and all waiting calls return an error.
func TestNodeEndsAfterAFailedSync(t *testing.T) {
	store := &brittle{Store: memory.New()}
	var l ledger
	n := start(t, store, node.Config{Agents: []*perdure.Agent{l.agent("a", nil)}})
	job := submit(t, n, lone)
	ended := make(chan error, 2)
	go func() {
		_, err := n.Job(context.Background(), job.ID.String(), time.Minute)
		ended <- err
	}()
	go func() {
		ended <- n.Follow(context.Background(), job.ID.String(), func(*perdure.JobView) error { return nil })
	}()
	followed(t, n, 2)
	store.broken.Store(true)
	if _, _, err := n.Submit(t.Context(), []byte(lone), "application/yaml"); perdure.CodeOf(err) != perdure.CodeUnavailable {
		t.Errorf("submit: %v", err)
	}
	select {
	case <-n.Failed():
	case <-time.After(5 * time.Second):
		t.Fatal("the node goes on")
	}
	for range 2 {
		select {
		case err := <-ended:
			if perdure.CodeOf(err) != perdure.CodeUnavailable {
				t.Errorf("a waiting call returned %v", err)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("a call still waits")
		}
	}
	if err := n.Ready(t.Context()); !errors.Is(err, kernel.ErrBroken) {
		t.Errorf("ready: %v", err)
	}
}

// F117: Stop ends waits with the current state of the job, and follows with an error. It is bounded if the store hangs.
func TestStopEndsWaits(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		n := start(t, store, node.Config{})
		job := submit(t, n, lone)
		var waiting sync.WaitGroup
		for range 100 {
			waiting.Go(func() {
				v, err := n.Job(context.Background(), job.ID.String(), time.Minute)
				if err != nil || v.Phase == perdure.Settled {
					t.Errorf("wait: %+v, %v", v, err)
				}
			})
			waiting.Go(func() {
				if err := n.Follow(context.Background(), job.ID.String(), func(*perdure.JobView) error { return nil }); perdure.CodeOf(err) != perdure.CodeUnavailable {
					t.Errorf("follow: %v", err)
				}
			})
		}
		followed(t, n, 200)
		for range 2 { // the second time as well
			if err := n.Stop(t.Context()); err != nil {
				t.Errorf("stop: %v", err)
			}
		}
		waiting.Wait()
		if err := n.Start(t.Context()); perdure.CodeOf(err) != perdure.CodeUnavailable {
			t.Errorf("start after the end: %v", err)
		}
		if _, _, err := n.Submit(t.Context(), []byte(lone), "application/yaml"); perdure.CodeOf(err) != perdure.CodeUnavailable {
			t.Errorf("submit after the end: %v", err)
		}
		if nodes, err := store.Nodes(t.Context()); len(nodes) != 0 || err != nil {
			t.Errorf("left behind: %v, %v", nodes, err)
		}
	})
}

// A node that was never started carries out acts, can be stopped, and is not ready.
func TestNodeThatWasNeverStartedCarriesOutActs(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		var l ledger
		n := node.New(store, node.Config{Agents: []*perdure.Agent{l.agent("a", nil)}})
		if err := n.Ready(t.Context()); perdure.CodeOf(err) != perdure.CodeUnavailable {
			t.Errorf("ready: %v", err)
		}
		job := submit(t, n, lone)
		if v, err := n.Act(t.Context(), job.ID.String(), perdure.Act{Verb: perdure.VerbUndo, Author: "me"}); err != nil || v.Phase != perdure.Settled {
			t.Errorf("act: %+v, %v", v, err)
		}
		if err := n.Stop(t.Context()); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
}

// hanging is a store that stops responding and ignores the contexts of its callers.
type hanging struct {
	kernel.Store
	hangs chan struct{}
	on    atomic.Bool
}

func (h *hanging) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	if h.on.Load() {
		<-h.hangs
	}
	return h.Store.Update(ctx, fn)
}

// F099, L6: Stop is bounded where the store hangs.
func TestStopIsBoundedWhileTheStoreHangs(t *testing.T) {
	store := &hanging{Store: memory.New(), hangs: make(chan struct{})}
	defer close(store.hangs)
	var l ledger
	n := node.New(store, node.Config{Agents: []*perdure.Agent{l.agent("a", nil)}})
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	store.on.Store(true)
	go n.Submit(context.Background(), []byte(lone), "application/yaml")
	time.Sleep(20 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	began := time.Now()
	if err := n.Stop(ctx); err == nil {
		t.Error("all is well?")
	}
	if duration := time.Since(began); duration > 5*time.Second {
		t.Errorf("took %v", duration)
	}
}

// L1: after a node was killed with runs in flight, the next node on the same file takes the runs back at once.
func TestNodeInheritsRunsOfAKilledNode(t *testing.T) {
	path := t.TempDir() + "/f.db"
	body := "type: t\nkey: k\nsteps:\n  s: {agent: a, completeWithin: 1h, retry: {backoff: 1ms}}\n"
	first := everystore.SQLite(t, path)
	var l ledger
	release := make(chan struct{})
	n := node.New(first, node.Config{Agents: []*perdure.Agent{l.agent("a", func(*perdure.Run) error { <-release; return nil })}})
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	submit(t, n, body)
	for len(l.read()) == 0 {
		time.Sleep(time.Millisecond)
	}
	first.Close() // as if the process had been killed
	second := everystore.SQLite(t, path)
	next := start(t, second, node.Config{Agents: []*perdure.Agent{l.agent("a", nil)}})
	if v := rest(t, next, "k"); v.Current != perdure.Done {
		t.Errorf("%+v", v)
	}
	history, err := next.History(t.Context(), perdure.HistoryQuery{Job: "k"})
	if err != nil || len(history.Items) != 1 || !strings.Contains(history.Items[0].Detail, "its holder died") {
		t.Errorf("it was waited for the lock's end: %+v, %v", history, err)
	}
	consistent(t, next)
	close(release)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_ = n.Stop(ctx)
}

// A call that waits at a node that stops returns an error, so that its caller does not repeat it for ever.
func TestWaitAtAStoppedNodeIsAnError(t *testing.T) {
	n := node.New(memory.New(), node.Config{})
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := perdure.Submit(t.Context(), n, perdure.Define("t").Key("k").Step("s", "nobody")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	waited := make(chan error, 1)
	go func() {
		_, err := perdure.Wait(ctx, n, "k")
		waited <- err
	}()
	time.Sleep(10 * time.Millisecond) // the call may begin before or after the stop, with the same result
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; perdure.CodeOf(err) != perdure.CodeUnavailable {
		t.Error(err)
	}
	if _, err := perdure.Wait(ctx, n, "k"); perdure.CodeOf(err) != perdure.CodeUnavailable {
		t.Error(err)
	}
	if v, err := n.Job(ctx, "k", 0); err != nil || v.Key != "k" { // a call that does not wait is answered
		t.Error(v, err)
	}
}
