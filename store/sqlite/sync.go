package sqlite

import (
	"cmp"
	"fmt"
	"sync"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// A commit is in the log when SQLite answers, and on the disk once the log was synced. The store syncs the log itself,
// after it has let the next transaction begin: to sync takes as long as to make a transaction. Nothing that depends on
// a commit leaves the store before that: Update and every read wait until the commits that they may have seen are
// synced. What comes later in the log cannot survive a power cut without what comes before: SQLite's checksums run
// through the whole log.
//
// So the connections that write have synchronous=NORMAL: with that, SQLite syncs the log before it copies it into the
// file, and when it begins the log anew, but not for each commit.

// durability counts commits, and knows which of them are on the disk.
type durability struct {
	sync   func() error      // syncs the log
	failed func(error) error // told when that fails, once: what then comes of those that wait

	committing sync.Mutex // had from before a commit can be seen until it is counted

	mu        sync.Mutex
	over      sync.Cond // a sync is
	underWay  bool
	committed int64 // the number of the latest commit
	synced    int64 // all up to this one are on the disk
	broken    error // after a sync that failed, nobody knows what is, and a second one that succeeds proves nothing (F110)
}

// newDurability takes what is in the log to be one commit that is not on the disk yet: a process that was killed may have left it so.
func newDurability(sync func() error, failed func(error) error) *durability {
	d := &durability{sync: sync, failed: failed, committed: 1}
	d.over.L = &d.mu
	return d
}

// commit runs a COMMIT, and returns the number of the latest commit: this one, or an earlier one if nothing was written.
// Only who holds the write lock may call it.
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

// latest is the number of the latest commit that can be seen.
func (d *durability) latest() int64 {
	d.committing.Lock()
	defer d.committing.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.committed
}

// await waits until a commit, and all before it, are on the disk. Who finds no sync under way makes one for all that
// are committed by then.
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

// settle waits until all that can be seen is on the disk.
func (d *durability) settle() error { return d.await(d.latest()) }

// syncAll is called under mu, which it lets go while the disk works.
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

// fail is for a sync by SQLite that failed.
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
		Hint:    "look at the disk, then start anew"})
	return s.whyBroken()
}

func (s *Store) whyBroken() error { return fmt.Errorf("%w: %w", kernel.ErrBroken, s.broken.Load()) }
