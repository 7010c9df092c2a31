package scheduler_test

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/store/memory"
)

var manyChildren = flag.Int("children", 11_000, "how many children the parent of TestParentOfManyChildren has, at most 100000")

// gauged is a store that records the largest parts of transactions.
type gauged struct {
	kernel.Store
	mu                           sync.Mutex
	locked, stored, read, counts int // jobs that were locked, jobs that were stored, outputs that were read, and news that was counted
	newsOwners                   int // transactions that have counted news
}

type gaugedTx struct {
	kernel.Tx
	locked, stored, read, counts int
}

func (s *gauged) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	tx := &gaugedTx{}
	err := s.Store.Update(ctx, func(inner kernel.Tx) error {
		*tx = gaugedTx{Tx: inner}
		return fn(tx)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.locked, s.stored, s.read, s.counts = max(s.locked, tx.locked), max(s.stored, tx.stored), max(s.read, tx.read), max(s.counts, tx.counts)
	if tx.counts > 0 {
		s.newsOwners++
	}
	return err
}

func (tx *gaugedTx) TryLockJobs(ids []perdure.JobID) ([]*kernel.Job, error) {
	jobs, err := tx.Tx.TryLockJobs(ids)
	tx.locked += len(jobs)
	return jobs, err
}

func (tx *gaugedTx) Payloads(refs []kernel.StepRef, max int) ([]kernel.Payload, error) {
	tx.read += len(refs)
	return tx.Tx.Payloads(refs, max)
}

func (tx *gaugedTx) Save(c *kernel.Changes) error {
	tx.stored += len(c.NewJobs)
	tx.counts += len(c.TakenNews)
	return tx.Tx.Save(c)
}

// A parent of many children submits, turns and collects them in sets: no transaction has more of them than a set, and what a
// node holds in memory does not follow from their number. The children are skipped, so that they need no agent; with -children
// 100000 the test has the size of the bound.
func TestParentOfManyChildren(t *testing.T) {
	n := *manyChildren
	store := &gauged{Store: memory.New()}
	f := &family{harness: open(t, store, scheduler.Config{}), outcome: func(perdure.Run) protocol.Report { return protocol.Report{Outcome: perdure.OutcomeDone} }}
	id := f.submit(fmt.Sprintf(`
type: album
input: {n: %d, never: false}
steps:
  resize:
    forEach: {range: [0, "${input.n}"]}
    maxParallel: 2000
    collect: list
    job:
      input: {never: "${input.never}"}
      definition: {type: one, steps: {s: {agent: a, when: "input.never"}}}
`, n))
	f.until(id, perdure.Settled)
	want := fmt.Sprintf(`{"total":%d,"done":%d,"failed":0,"items":[null%s]}`, n, n, strings.Repeat(",null", n-1))
	if got := f.output(id, 0); got != want {
		t.Errorf("output of %d bytes: %.80s", len(got), got)
	}
	if store.stored > kernel.SpawnSet+1 || store.read > kernel.CollectSet+1 || store.counts > kernel.MaxChildNews {
		t.Errorf("a transaction stores %d jobs, reads %d outputs, and counts %d changes", store.stored, store.read, store.counts)
	}
	if most := n/500 + 1; store.newsOwners > most {
		t.Errorf("%d changes were counted in %d transactions; at most %d", n, store.newsOwners, most)
	}
	t.Logf("%d children: at most %d stored, %d outputs read and %d changes counted at once, in %d transactions", n, store.stored, store.read, store.counts, store.newsOwners)
	store.locked, store.counts, store.newsOwners = 0, 0, 0
	f.act(id, perdure.Act{Verb: perdure.VerbUndo})
	if j := f.until(id, perdure.Settled); j.Current != perdure.Undone {
		t.Fatal("not undone")
	}
	if store.locked > 2*kernel.SpawnSet || store.counts > kernel.MaxChildNews {
		t.Errorf("a transaction locks %d jobs, and counts %d changes", store.locked, store.counts)
	}
	if _, c := f.step(id, "resize"); c.Undone != n || c.Done+c.Active+c.Parked+c.Unsure != 0 {
		t.Errorf("%+v", c)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	t.Logf("undo: at most %d locked and %d counted at once; heap %d MiB, with the store", store.locked, store.counts, m.HeapAlloc>>20)
}
