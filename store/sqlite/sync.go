package sqlite

import (
	"cmp"
	"fmt"
	"sync"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// When SQLite answers a COMMIT, the commit is in the write-ahead log. It is on the disk once the log is synced. The
// store syncs the log itself, after it has let the next transaction begin, because a sync takes as long as a
// transaction. Nothing that depends on a commit leaves the store before that: Update and every read wait until the
// commits that they may have seen are synced. A later part of the log cannot survive a power cut without the earlier
// parts, because SQLite's checksums cover the whole log.
//
// So the connections that write have synchronous=NORMAL: SQLite then syncs the log before it copies it into the file,
// and when it restarts the log, but not for each commit.

// durability counts commits, and which of them are on the disk.
type durability struct {
	sync   func() error      // syncs the log
	failed func(error) error // called once when a sync fails; returns the error for callers that wait

	committing sync.Mutex // held from before a commit can be seen until it is counted

	mu        sync.Mutex
	over      sync.Cond // signalled when a sync ends
	underWay  bool
	committed int64 // the number of the latest commit
	synced    int64 // the commits up to this one are on the disk
	broken    error // after a failed sync it is unknown what is on the disk, and a second sync that succeeds proves nothing (F110)
}

// newDurability counts what is in the log as one commit that is not on the disk yet, because a killed process may have
// left it so.
func newDurability(sync func() error, failed func(error) error) *durability {
	d := &durability{sync: sync, failed: failed, committed: 1}
	d.over.L = &d.mu
	return d
}

// commit runs a COMMIT, and returns the number of the latest commit: this one, or an earlier one if nothing was written.
// The caller must be the writer.
func (d *durability) commit(wrote bool, commit func() error) (number int64, err error) {
	d.committing.Lock()
	defer d.committing.Unlock()
	if err := commit(); err != nil {
		return 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if wrote {
		d.committed++
	}
	return d.committed, nil
}

// latest returns the number of the latest commit that can be seen.
func (d *durability) latest() int64 {
	d.committing.Lock()
	defer d.committing.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.committed
}

// await waits until a commit and all before it are on the disk. If no sync is in progress, it makes one for all commits
// so far.
func (d *durability) await(commit int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.synced < commit {
		switch {
		case d.broken != nil:
			return d.broken
		case d.underWay:
			d.over.Wait()
		default:
			d.syncAll()
		}
	}
	return nil
}

// settle waits until everything that can be seen is on the disk.
func (d *durability) settle() error { return d.await(d.latest()) }

// syncAll is called with mu locked, and unlocks it during the sync.
func (d *durability) syncAll() {
	upTo := d.committed
	d.underWay = true
	d.mu.Unlock()
	err := d.sync()
	if err != nil {
		err = d.failed(err)
	}
	d.mu.Lock()
	if d.underWay, d.broken = false, cmp.Or(d.broken, err); d.broken == nil {
		d.synced = upTo
	}
	d.over.Broadcast()
}

// fail is called after a sync by SQLite has failed.
func (d *durability) fail(err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broken = cmp.Or(d.broken, d.failed(err))
	return d.broken
}

// syncFailed ends the use of the store.
func (s *Store) syncFailed(err error) error {
	s.broken.Store(&perdure.Error{Code: perdure.CodeUnavailable,
		Message: fmt.Sprintf("the disk of %s failed to sync: %v", s.path, err),
		Hint:    "check the disk, then start the node again"})
	return s.whyBroken()
}

func (s *Store) whyBroken() error { return fmt.Errorf("%w: %w", kernel.ErrBroken, s.broken.Load()) }
