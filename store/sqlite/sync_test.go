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

// slowDisk is a disk whose syncs end when the test lets them end, with the error of the test.
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
		t.Fatal("no sync is in progress")
	}
}

// soon returns the next value of c, and fails the test after ten seconds.
func soon[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(10 * time.Second):
		t.Fatal("nothing was received in ten seconds")
	}
	return v
}

func async[T any](f func() T) <-chan T {
	c := make(chan T, 1)
	go func() { c <- f() }()
	return c
}

func notYet[T any](t *testing.T, what string, c <-chan T) {
	t.Helper()
	select {
	case v := <-c:
		t.Fatalf("%s before the sync: %v", what, v)
	case <-time.After(50 * time.Millisecond):
	}
}

// While a commit is synced, the next transaction runs. Each is acknowledged after its own sync, which serves all commits
// that were made before it began, and no later ones. A read waits for the sync of the commits that it may have seen
// (F108, I1).
func TestTransactionsRunDuringASync(t *testing.T) {
	s, d := openSlow(t)
	first := async(func() error { return save(s, big(1)) })
	soon(t, d.begun)
	seen := make(chan bool, 2)
	next := func(n byte) <-chan error {
		return async(func() error {
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
			t.Error("the next transaction does not see the commit")
		}
	}
	read := async(func() error {
		j, _, err := s.Job(context.Background(), perdure.JobID{15: 1}, 0)
		if err == nil && j == nil {
			err = errors.New("the job is not stored")
		}
		return err
	})
	for s.durable.latest() < 4 { // commit 1 was there when the store was opened
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
	for _, c := range []<-chan error{second, third, read} { // without a third sync
		if err := soon(t, c); err != nil {
			t.Error(err)
		}
	}
	// A transaction that writes nothing, and a read when everything is synced, need no sync.
	if err := s.Update(context.Background(), func(tx kernel.Tx) error { _, err := tx.LockJobs(nil); return err }); err != nil {
		t.Error(err)
	}
	if _, _, err := s.Job(context.Background(), perdure.JobID{15: 1}, 0); err != nil {
		t.Error(err)
	}
}

// After a failed sync, each commit that it was to serve is indeterminate, no read returns what may be lost, and no
// second sync is tried (F110).
func TestFailedSyncMakesCommitsIndeterminate(t *testing.T) {
	s, d := openSlow(t)
	before := async(func() error { return save(s, big(1)) })
	soon(t, d.begun)
	d.ends(t, nil)
	if err := soon(t, before); err != nil {
		t.Fatal(err)
	}
	first := async(func() error { return save(s, big(2)) })
	soon(t, d.begun)
	second := async(func() error { return save(s, big(3)) })
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
		t.Errorf("reading a job that may be lost: %v", err)
	}
}

// Close waits for the sync of what was committed.
func TestCloseWaitsForTheSync(t *testing.T) {
	s, d := openSlow(t)
	saved := async(func() error { return save(s, big(1)) })
	soon(t, d.begun)
	closed := async(s.Close)
	notYet(t, "closed", closed)
	d.ends(t, nil)
	if err := errors.Join(soon(t, saved), soon(t, closed)); err != nil {
		t.Error(err)
	}
}

// A refusal, a read, and the answer about the leader of a role wait for the sync of the commits that they depend on. The
// first answer of a process also waits for commits that an earlier process may have left in the log (F108).
func TestAnswersWaitForTheSync(t *testing.T) {
	for what, ask := range map[string]func(*Store) error{
		"a refusal": func(s *Store) error {
			return s.Update(context.Background(), func(kernel.Tx) error { return perdure.Refuse(perdure.CodeNotFound, "there is none") })
		},
		"a roll call": rollCall,
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
			answer := async(func() error { return ask(s) })
			soon(t, d.begun)
			notYet(t, what, answer)
			d.ends(t, nil)
			if err := soon(t, answer); err != nil && perdure.CodeOf(err) != perdure.CodeNotFound {
				t.Error(err)
			}
		})
	}
}
