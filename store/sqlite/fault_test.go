package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	driver "zombiezen.com/go/sqlite"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/racedetector"
)

var ctx = context.Background()

// big returns a submission that needs more pages than a full disk has.
func big(n byte) *kernel.Changes {
	id := perdure.JobID{15: n}
	return &kernel.Changes{NewJobs: []kernel.NewJob{{
		Job:   &kernel.Job{ID: id, Type: "t", Phase: perdure.Waiting, Shape: kernel.ShapeID{n}},
		Shape: []byte(strings.Repeat("x", 1<<20)),
		Steps: []*kernel.Step{{StepRef: kernel.StepRef{Job: id}, Name: "s"}},
	}}}
}

func save(s *Store, c *kernel.Changes) error {
	return s.Update(ctx, func(tx kernel.Tx) error { return tx.Save(c) })
}

// If the disk is full, new jobs are refused and nothing else changes. When there is space again, the store accepts jobs
// without being reopened (F010).
func TestFullDiskRefusesNewJobs(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "perdure.db"))
	if err := save(s, big(1)); err != nil {
		t.Fatal(err)
	}
	limit := func(pages string) {
		if err := s.write.once(`PRAGMA max_page_count = ` + pages); err != nil {
			t.Fatal(err)
		}
	}
	limit("10") // as many pages as are in use
	for range 2 {
		err := save(s, big(2))
		if perdure.CodeOf(err) != perdure.CodeUnavailable || !strings.Contains(err.Error(), "no space") {
			t.Fatalf("got %v", err)
		}
	}
	if j, _, err := s.Job(ctx, perdure.JobID{15: 1}, 0); err != nil || j == nil {
		t.Errorf("reading job 1: %v, %v", j, err)
	}
	if j, _, err := s.Job(ctx, perdure.JobID{15: 2}, 0); err != nil || j != nil {
		t.Errorf("the refused job is stored: %v, %v", j, err)
	}
	if faults, err := s.Check(ctx); len(faults) > 0 || err != nil {
		t.Errorf("Check: %v, %v", faults, err)
	}
	limit("1000000")
	if err := save(s, big(2)); err != nil {
		t.Fatal(err)
	}
}

// A file that is no database, or a damaged one, is refused with an error that says what to do (F111).
func TestDamagedFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole.db")
	s, err := Open(whole)
	if err != nil {
		t.Fatal(err)
	}
	for n := range byte(20) {
		if err := save(s, big(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	body, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	overwritten := append([]byte{}, body...)
	copy(overwritten[4096*3:], strings.Repeat("\xff", 4096*8))
	for name, content := range map[string][]byte{
		"text":        []byte(strings.Repeat("this is no database\n", 1000)),
		"cut off":     body[:len(body)/2],
		"overwritten": overwritten,
	} {
		path := filepath.Join(dir, name+".db")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(path)
		if perdure.CodeOf(err) != perdure.CodeUnavailable || !strings.Contains(err.Error(), "restore a backup") || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v", name, err)
		}
		if after, _ := os.ReadFile(path); string(after) != string(content) {
			t.Errorf("%s: the damaged file was changed", name)
		}
	}
}

func TestUnusablePathIsRefused(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{filepath.Join(dir, "none", "perdure.db"), dir} {
		if _, err := Open(path); perdure.CodeOf(err) != perdure.CodeUnavailable {
			t.Errorf("%s: got %v", path, err)
		}
	}
}

// After a failed sync nothing is written any more, because a second sync that succeeds proves nothing (F110).
func TestNoWritesAfterAFailedSync(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "perdure.db"))
	if err := save(s, big(1)); err != nil {
		t.Fatal(err)
	}
	s.broken.Store(&perdure.Error{Code: perdure.CodeUnavailable, Message: "the disk failed to sync"})
	if err := save(s, big(2)); perdure.CodeOf(err) != perdure.CodeUnavailable {
		t.Errorf("got %v", err)
	}
	if j, _, err := s.Job(ctx, perdure.JobID{15: 1}, 0); err != nil || j == nil {
		t.Errorf("reading job 1: %v, %v", j, err)
	}
}

// A commit that failed is distinguished from an indeterminate one, which may be on the disk or not (F006, F110).
func TestFailedCommitsAreNotIndeterminate(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "perdure.db"))
	for code, want := range map[driver.ResultCode]string{
		driver.ResultIOErrWrite: "cannot be read or written", driver.ResultFull: "no space is left",
		driver.ResultBusy: "locked by another program", driver.ResultReadOnly: "cannot be read or written",
		driver.ResultCorrupt: "restore a backup",
	} {
		err := s.commitFailed(fmt.Errorf("sqlite: step: %w", code.ToError()))
		if perdure.CodeOf(err) != perdure.CodeUnavailable || errors.Is(err, kernel.ErrUnknown) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v", code, err)
		}
	}
	if err := save(s, big(1)); err != nil {
		t.Fatal(err)
	}
	for _, code := range []driver.ResultCode{driver.ResultIOErrFsync, driver.ResultIOErrDirFsync} {
		if err := s.commitFailed(fmt.Errorf("sqlite: step: %w", code.ToError())); !errors.Is(err, kernel.ErrUnknown) {
			t.Errorf("%v: got %v", code, err)
		}
		if err := save(s, big(2)); !errors.Is(err, kernel.ErrBroken) {
			t.Errorf("after %v: got %v", code, err)
		}
	}
}

func rollCall(s *Store) error {
	_, err := s.ReportNode(ctx, kernel.NodeReport{Node: kernel.Node{ID: "n"}})
	return err
}

func TestClosedStoreRefusesCalls(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "perdure.db"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, _, read := s.Job(ctx, perdure.JobID{}, 0)
	_, check := s.Check(ctx)
	for _, err := range []error{save(s, big(1)), read, check, rollCall(s)} {
		if perdure.CodeOf(err) != perdure.CodeUnavailable {
			t.Errorf("got %v", err)
		}
	}
}

// A call that is in progress when the store is closed succeeds or fails with CodeUnavailable.
func TestCallsDuringCloseFailCleanly(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "perdure.db"))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for n := range byte(200) {
				_, _, read := s.ListJobs(ctx, kernel.JobFilter{})
				_, _, job := s.Job(ctx, perdure.JobID{15: n}, 0)
				write := s.Update(ctx, func(tx kernel.Tx) error {
					return tx.PutLimit(kernel.Limit{Name: "agent:a", Max: int(n), PerKey: kernel.Unbounded})
				})
				for _, err := range []error{read, job, write} {
					if err != nil && perdure.CodeOf(err) != perdure.CodeUnavailable {
						t.Errorf("got %v", err)
					}
				}
			}
		})
	}
	time.Sleep(20 * time.Millisecond)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

// Update returns when its context ends, although another transaction still runs.
func TestUpdateStopsWaitingWhenItsContextEnds(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "perdure.db"))
	started, done := make(chan struct{}), make(chan struct{})
	go func() {
		_ = s.Update(ctx, func(kernel.Tx) error { close(started); <-done; return nil })
	}()
	<-started
	defer close(done)
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if err := s.Update(short, func(kernel.Tx) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// The write-ahead log is truncated, also after a large transaction (F109).
func TestWALIsBounded(t *testing.T) {
	racedetector.Skip(t)
	path := filepath.Join(t.TempDir(), "perdure.db")
	s := open(t, path)
	for n := range byte(100) {
		if err := save(s, big(n)); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > walLimit+checkpointPages*4096 {
		t.Errorf("the log has %d MiB", info.Size()>>20)
	}
}

// TryWrite reports without a submission whether the store accepts writes (F010).
func TestTryWriteReportsWhetherWritesSucceed(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "perdure.db"))
	if err := s.TryWrite(ctx); err != nil {
		t.Fatal(err)
	}
	set := func(on string) {
		if err := s.write.once(`PRAGMA query_only = ` + on); err != nil {
			t.Fatal(err)
		}
	}
	set("1")
	if err := s.TryWrite(ctx); perdure.CodeOf(err) != perdure.CodeUnavailable {
		t.Errorf("on a read-only connection: %v", err)
	}
	set("0")
	if err := s.TryWrite(ctx); err != nil {
		t.Error(err)
	}
	if free, known := freeSpace(t.TempDir()); known && free <= 0 {
		t.Errorf("freeSpace returns %d bytes", free)
	}
}
