package sqlite

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// slowDisk is a disk whose syncs end when the test says so, as it says.
type slowDisk struct {
	begun chan struct{}
	end   chan error
}

func openSlow(t *testing.T) (*Store, *slowDisk) {
	s := open(t, filepath.Join(t.TempDir(), "perdure.db"))
	d := &slowDisk{begun: make(chan struct{}), end: make(chan error)}
	sync, over := s.durable.sync, make(chan struct{})
	s.durable.sync = func() error {
		select {
		case d.begun <- struct{}{}:
		case <-over:
			return sync()
		}
		select {
		case err := <-d.end:
			return cmp.Or(err, sync())
		case <-over:
			return sync()
		}
	}
	t.Cleanup(func() { close(over) })
	return s, d
}

func (d *slowDisk) ends(t *testing.T, err error) {
	t.Helper()
	select {
	case d.end <- err:
	case <-time.After(10 * time.Second):
		t.Fatal("no sync is under way")
	}
}

// soon is what comes from c, within ten seconds.
func soon[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(10 * time.Second):
		t.Fatal("nothing happens")
	}
	return v
}

func later[T any](f func() T) <-chan T {
	c := make(chan T, 1)
	go func() { c <- f() }()
	return c
}

func notYet[T any](t *testing.T, what string, c <-chan T) {
	t.Helper()
	select {
	case v := <-c:
		t.Fatalf("%s before it was synced: %v", what, v)
	case <-time.After(50 * time.Millisecond):
	}
}

// While a commit is synced the next transaction is made, and none is answered before its own sync. One sync serves all
// that had committed when it began, and no more. A read waits for what it may have seen (F108, I1).
func TestTransactionsRunDuringASync(t *testing.T) {
	s, d := openSlow(t)
	first := later(func() error { return save(s, big(1)) })
	soon(t, d.begun)
	seen := make(chan bool, 2)
	next := func(n byte) <-chan error {
		return later(func() error {
			return s.Update(context.Background(), func(tx kernel.Tx) error {
				jobs, err := tx.LockJobs([]perdure.JobID{{15: 1}})
				if err != nil {
					return err
				}
				seen <- len(jobs) == 1
				return tx.Save(big(n))
			})
		})
	}
	second, third := next(2), next(3)
	for range 2 {
		if !soon(t, seen) {
			t.Error("the transaction after it does not see it")
		}
	}
	read := later(func() error {
		j, _, err := s.Job(context.Background(), perdure.JobID{15: 1}, 0)
		if err == nil && j == nil {
			err = errors.New("nothing is there")
		}
		return err
	})
	for s.durable.latest() < 4 { // what was there is the first
		time.Sleep(time.Millisecond)
	}
	notYet(t, "answered", first)
	notYet(t, "answered", second)
	notYet(t, "read", read)
	d.ends(t, nil)
	if err := soon(t, first); err != nil {
		t.Error(err)
	}
	soon(t, d.begun)
	notYet(t, "answered", second)
	notYet(t, "answered", third)
	d.ends(t, nil)
	for _, c := range []<-chan error{second, third, read} { // no third sync
		if err := soon(t, c); err != nil {
			t.Error(err)
		}
	}
	// What writes nothing, and what is read when all is synced, need no sync.
	if err := s.Update(context.Background(), func(tx kernel.Tx) error { _, err := tx.LockJobs(nil); return err }); err != nil {
		t.Error(err)
	}
	if _, _, err := s.Job(context.Background(), perdure.JobID{15: 1}, 0); err != nil {
		t.Error(err)
	}
}

// After a failed sync, the outcome of every commit that it was for is indeterminate, no reader sees what may be lost,
// and no second sync is tried (F110).
func TestFailedSyncMakesCommitsIndeterminate(t *testing.T) {
	s, d := openSlow(t)
	before := later(func() error { return save(s, big(1)) })
	soon(t, d.begun)
	d.ends(t, nil)
	if err := soon(t, before); err != nil {
		t.Fatal(err)
	}
	first := later(func() error { return save(s, big(2)) })
	soon(t, d.begun)
	second := later(func() error { return save(s, big(3)) })
	for s.durable.latest() < 4 {
		time.Sleep(time.Millisecond)
	}
	d.ends(t, errors.New("input/output error"))
	for _, c := range []<-chan error{first, second} {
		if err := soon(t, c); !errors.Is(err, kernel.ErrUnknown) || perdure.CodeOf(err) != perdure.CodeUnavailable {
			t.Errorf("got %v", err)
		}
	}
	if err := save(s, big(4)); !errors.Is(err, kernel.ErrBroken) {
		t.Errorf("got %v", err)
	}
	if _, _, err := s.Job(context.Background(), perdure.JobID{15: 2}, 0); perdure.CodeOf(err) != perdure.CodeUnavailable {
		t.Errorf("a read: got %v", err)
	}
}

// A store is closed once what was committed is synced.
func TestCloseWaitsForTheSync(t *testing.T) {
	s, d := openSlow(t)
	saved := later(func() error { return save(s, big(1)) })
	soon(t, d.begun)
	closed := later(s.Close)
	notYet(t, "closed", closed)
	d.ends(t, nil)
	if err := errors.Join(soon(t, saved), soon(t, closed)); err != nil {
		t.Error(err)
	}
}

// A refusal, and the answer about the leader of a role, wait for the sync of the commits that they were decided by. The
// first answer of a process waits, too, for what an earlier process may have left in the log (F108).
func TestAnswersWaitForTheSync(t *testing.T) {
	for what, ask := range map[string]func(*Store) error{
		"a refusal": func(s *Store) error {
			return s.Update(context.Background(), func(kernel.Tx) error { return perdure.Refuse(perdure.CodeNotFound, "there is none") })
		},
		"a roll call": attend,
		"a read": func(s *Store) error {
			_, _, err := s.Job(context.Background(), perdure.JobID{}, 0)
			return err
		},
		"a transaction that only reads": func(s *Store) error {
			return s.Update(context.Background(), func(tx kernel.Tx) error { _, err := tx.LockJobs(nil); return err })
		},
	} {
		t.Run(what, func(t *testing.T) {
			s, d := openSlow(t)
			answer := later(func() error { return ask(s) })
			soon(t, d.begun)
			notYet(t, what, answer)
			d.ends(t, nil)
			if err := soon(t, answer); err != nil && perdure.CodeOf(err) != perdure.CodeNotFound {
				t.Error(err)
			}
		})
	}
}
