// Package sqlite keeps everything in one SQLite file: the store of a single process, without a server
// and without cgo.
//
// One connection writes, in transactions that are immediate and one at a time; some others read
// beside it (WAL). A commit is on the disk when it is answered: that bounds the store to some thousands of
// syncs a second, so that callers put many events into one. While one is synced, the next is made (sync.go).
// A second process is refused by a lock beside the file.
//
// The tables and the views to read them with are in migrations/. All have names that begin with perdure_; in a file
// that has nothing else the views have plain names as well.
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/redact"
	"github.com/perdure/perdure/store/internal/bundle"
)

// Store is an open file.
type Store struct {
	path  string
	lock  *fileLock
	clock clock

	turn   chan struct{} // whoever has put something in may write
	closed atomic.Bool
	broken atomic.Pointer[perdure.Error] // the disk failed to sync: nothing is written any more

	write   *conn
	hints   *conn // writes which nodes and agents there are; its commits are not synced
	read    *pool // cannot write
	wal     walFile
	durable *durability

	leastBundle int // how many jobs make a bundle, at least; 0: none are made

	cache // touched by whoever writes
}

var _ kernel.Store = (*Store)(nil)

// Option sets what Open leaves to the caller.
type Option func(*Store)

// WithClock replaces the wall clock, for tests and simulations.
func WithClock(wall func() time.Time) Option {
	return func(s *Store) { s.clock.wall = wall }
}

// WithBundles says how many jobs that are submitted together, and wait, are stored as one row, at least. 0: none are. Without this
// option it is 8.
func WithBundles(least int) Option {
	return func(s *Store) { s.leastBundle = least }
}

const (
	readers = 4
	// A busy database can only be a program that does not know of our lock, or a backup.
	busyTimeout = 5 * time.Second
	// The write-ahead log is copied into the file every so many pages of 4 KiB (16 MiB), and cut back
	// to twice that after a burst.
	checkpointPages = 4096
	walLimit        = 32 << 20
	// tries is how often fn is run in all where Save finds rows that have changed.
	tries = 8
)

// ParseURL is the path that a URL such as sqlite:perdure.db or sqlite:///var/lib/perdure.db names. A
// plain path is taken as it is.
func ParseURL(text string) (path string, err error) {
	path, ok := strings.CutPrefix(text, "sqlite:")
	if rest, slashes := strings.CutPrefix(path, "//"); ok && slashes {
		if path = rest; !strings.HasPrefix(path, "/") {
			return "", perdure.Refuse(perdure.CodeInvalid, "%q names a host; write sqlite:FILE or sqlite:///PATH", redact.URL(text))
		}
	}
	switch {
	case path == "":
		return "", perdure.Refuse(perdure.CodeInvalid, "%q names no file; write sqlite:FILE", redact.URL(text))
	case strings.Contains(path, ":memory:"):
		return "", perdure.Refuse(perdure.CodeInvalid, "%q is not kept: a durable store needs a file", redact.URL(text))
	case ok && strings.ContainsAny(path, "?#"):
		return "", perdure.Refuse(perdure.CodeInvalid, "%q has parameters, of which there are none", redact.URL(text))
	}
	return path, nil
}

// Open opens the file that a path or URL names, makes it if it is not there, and brings its schema
// up to date. The file may be one that has tables of your own: each of ours begins with perdure_. It refuses a
// file that another process has open (CodeInUse), one whose schema is newer than this program, or that has a
// perdure_… which is not ours (CodeSchema), and one that is damaged. A call that fails leaves no new files behind.
func Open(path string, opts ...Option) (*Store, error) {
	path, err := ParseURL(path)
	if err != nil {
		return nil, err
	}
	path, created, err := resolve(path)
	if err != nil {
		return nil, err
	}
	s := &Store{path: path, turn: make(chan struct{}, 1), clock: clock{wall: time.Now}, leastBundle: bundle.MinJobs}
	for _, opt := range opts {
		opt(s)
	}
	if s.lock, err = lockFile(path + ".lock"); err != nil {
		if created && perdure.CodeOf(err) != perdure.CodeInUse { // otherwise another process has the lock and uses the file
			removeEmpty(path)
		}
		return nil, err
	}
	if err := s.open(); err != nil {
		_ = s.disconnect()
		if created {
			removeEmpty(path)
		}
		_ = s.lock.abandon()
		return nil, s.wrap(err)
	}
	return s, nil
}

// removeEmpty removes a file that Open has just created and that nothing was written to.
func removeEmpty(path string) {
	if info, err := os.Stat(path); err == nil && info.Size() == 0 {
		_ = os.Remove(path)
	}
}

// resolving is had by who may make a file.
var resolving sync.Mutex

// resolve says where the path leads in the end, so that two names of one file have one lock. The file is made here
// if it is not there: nobody else is to read what jobs carry. One that is there must not be opened: with the first
// descriptor of it that is closed, POSIX takes away all locks that this process has on the file, those of another
// Store or of the caller's own connection as well.
func resolve(path string) (_ string, created bool, err error) {
	resolving.Lock()
	defer resolving.Unlock()
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		var f *os.File
		if f, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600); err == nil {
			created, err = true, f.Close()
		}
	case err == nil && info.IsDir():
		err = fmt.Errorf("%s is a directory", path)
	}
	if err != nil {
		return "", false, perdure.Refuse(perdure.CodeUnavailable, "the store cannot be opened: %v", err)
	}
	if path, err = filepath.EvalSymlinks(path); err == nil {
		path, err = filepath.Abs(path)
	}
	return path, created, err
}

func (s *Store) open() (err error) {
	for _, made := range []string{"-wal", "-shm", "-journal"} { // SQLite would follow a link
		if err := refuseLink(s.path + made); err != nil {
			return err
		}
	}
	if s.write, err = connect(s.path); err != nil {
		return err
	}
	if err := s.refuseForeign(s.write); err != nil {
		return err // before a pragma has changed the file
	}
	if err := s.write.set(pragmas(notEachCommit)...); err != nil {
		return err
	}
	if err := s.probe(); err != nil {
		return err
	}
	if err := migrate(s.write, s.clock.now()); err != nil {
		return err
	}
	if s.hints, err = s.connect(notEachCommit); err != nil {
		return err
	}
	if s.read, err = openPool(readers, func() (*conn, error) { return s.connect("query_only = 1") }); err != nil {
		return err
	}
	if s.wal, err = openWAL(s.path); err != nil {
		return err
	}
	s.durable = newDurability(s.wal.sync, s.syncFailed)
	return s.loadClock()
}

func (s *Store) connect(pragma string) (*conn, error) {
	c, err := connect(s.path)
	if err != nil {
		return nil, err
	}
	if err := c.set(pragmas(pragma)...); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// notEachCommit is for connections that write: commits are synced by the store itself (sync.go), or need not be.
const notEachCommit = "synchronous = NORMAL"

// pragmas are what each connection is set to, and one of its own.
func pragmas(own string) []string {
	return []string{
		"journal_mode = WAL",
		fmt.Sprintf("wal_autocheckpoint = %d", checkpointPages),
		fmt.Sprintf("journal_size_limit = %d", walLimit),
		"temp_store = MEMORY",
		"cache_size = -16000",
		own,
	}
}

// checkUpTo is the size of a file that is read through at opening: some tenths of a second. Damage to
// a larger one is found by Check, or where it is met.
const checkUpTo = 32 << 20

// probe refuses what is not a whole database in WAL mode (F111).
func (s *Store) probe() error {
	mode, err := one(s.write, (*row).text, `PRAGMA journal_mode`)
	if err != nil {
		return err
	}
	if mode != "wal" {
		return perdure.Refuse(perdure.CodeUnavailable, "%s is on a file system without shared memory: journal mode %s instead of wal", s.path, mode)
	}
	if info, err := os.Stat(s.path); err != nil || info.Size() > checkUpTo {
		return err
	}
	faults, err := all(s.write, (*row).text, `PRAGMA quick_check(3)`)
	if err == nil && (len(faults) != 1 || faults[0] != "ok") {
		err = s.damaged(strings.Join(faults, "; "))
	}
	return err
}

// Close waits for the transaction that is open, and lets the file go.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	_ = s.durable.settle() // who still waits for it has its answer, or syncs no more
	return errors.Join(s.disconnect(), s.lock.release())
}

// disconnect closes what open has opened.
func (s *Store) disconnect() error {
	var errs []error
	if s.read != nil && s.broken.Load() == nil {
		errs = append(errs, s.saveClock(s.write))
	}
	if s.read != nil {
		errs = append(errs, s.read.close())
	}
	errs = append(errs, s.wal.close())
	crashpoint.Here(crashpoint.SQLiteClose)
	for _, c := range []*conn{s.hints, s.write} { // the last one to go checkpoints
		if c != nil {
			errs = append(errs, c.close())
		}
	}
	return errors.Join(errs...)
}

var errClosed = &perdure.Error{Code: perdure.CodeUnavailable, Message: "the store is closed"}

// usable says whether the store may be used at all.
func (s *Store) usable(ctx context.Context) error {
	if s.closed.Load() {
		return errClosed
	}
	return ctx.Err()
}

// enter waits until nobody else writes.
func (s *Store) enter(ctx context.Context) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	err := s.usable(ctx)
	if err == nil && s.broken.Load() != nil {
		err = s.whyBroken()
	}
	if err != nil {
		s.leave()
	}
	return err
}

func (s *Store) leave() { <-s.turn }

// begin opens a transaction. Deferred ones would meet SQLITE_BUSY at their first write (F107).
func begin(c *conn) error { return c.exec(`BEGIN IMMEDIATE`) }

// rollback takes everything back. Where SQLite has done so itself, after a failed write, it only says
// that there is nothing to take back.
func rollback(c *conn) { _ = c.exec(`ROLLBACK`) }
