// Package sqlite stores everything in one SQLite file, without a server and without cgo. One node at a time uses the
// file: a lock file beside it excludes a second one. Programs may submit jobs in transactions of their own (SubmitTx).
//
// One connection writes jobs, in immediate transactions, one at a time. A second one writes the rows of nodes and
// holders. Other connections read at the same time (WAL). A commit is on the disk when it is acknowledged. A disk allows
// some thousands of syncs a second, so callers put many events into one transaction. While one commit is synced, the
// next transaction runs (sync.go).
//
// The tables, and the views for reading them, are in migrations/. All names begin with perdure_. In a file that has no
// other tables the views have plain names as well.
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

	writer chan struct{} // holds a token of the goroutine that may write
	closed atomic.Bool
	broken atomic.Pointer[perdure.Error] // the disk failed to sync: nothing more is written

	write    *conn
	registry *conn // writes nodes and holders; its commits are not synced
	read     *pool // connections that cannot write
	wal      walFile
	durable  *durability

	leastBundle int // how many jobs make a bundle, at least; 0: no bundles are made

	cache // used by the goroutine that may write
}

var _ kernel.Store = (*Store)(nil)

// Option is an option of Open.
type Option func(*Store)

// WithClock replaces the wall clock, for tests and simulations.
func WithClock(wall func() time.Time) Option {
	return func(s *Store) { s.clock.wall = wall }
}

// WithBundles sets how many jobs that are submitted together and wait are stored as one row, at least. 0: none. The
// default is 8.
func WithBundles(least int) Option {
	return func(s *Store) { s.leastBundle = least }
}

const (
	readers = 4
	// The database is busy while another connection writes: a caller's transaction with SubmitTx, a tool, or a backup.
	busyTimeout = 5 * time.Second
	// The write-ahead log is copied into the file every so many pages of 4 KiB (16 MiB), and truncated to twice that
	// after a burst.
	checkpointPages = 4096
	walLimit        = 32 << 20
	// tries is how often fn is run if Save finds rows that have changed.
	tries = 8
)

// ParseURL returns the path of a URL such as sqlite:perdure.db or sqlite:///var/lib/perdure.db. It returns a plain path
// unchanged.
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

// Open opens the file that a path or URL names, creates it if it does not exist, and brings its schema up to date. The
// file may contain tables of your own: the store's names begin with perdure_. Open refuses a file that another process
// has open (CodeInUse), a file whose schema is newer than this program or that has other perdure_… tables (CodeSchema),
// and a damaged file. A call that fails leaves no new files behind.
func Open(path string, opts ...Option) (*Store, error) {
	path, err := ParseURL(path)
	if err != nil {
		return nil, err
	}
	path, created, err := resolve(path)
	if err != nil {
		return nil, err
	}
	s := &Store{path: path, writer: make(chan struct{}, 1), clock: clock{wall: time.Now}, leastBundle: bundle.MinJobs}
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

// removeEmpty removes a file that Open has just created and that is still empty.
func removeEmpty(path string) {
	if info, err := os.Stat(path); err == nil && info.Size() == 0 {
		_ = os.Remove(path)
	}
}

// resolving is held while a file may be created.
var resolving sync.Mutex

// resolve returns the target of the path, so that two names of one file have one lock. It creates the file if it does
// not exist, because no other user may read the inputs of jobs. A file that exists must not be opened here: when any
// descriptor of a file is closed, POSIX releases all locks that this process has on the file, including those of another
// Store or of the caller's own connection.
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
	if s.registry, err = s.connect(notEachCommit); err != nil {
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

// notEachCommit is for connections that write: their commits are synced by the store itself (sync.go), or need not be
// synced.
const notEachCommit = "synchronous = NORMAL"

// pragmas returns the settings of each connection, and one more.
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

// checkUpTo is the size of a file that is read completely when it is opened, which takes some tenths of a second. Damage
// of a larger file is found by Check, or when a damaged page is read.
const checkUpTo = 32 << 20

// probe refuses a file that is not a complete database in WAL mode (F111).
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

// Close waits for the transaction in progress, and releases the file.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.writer <- struct{}{}
	defer func() { <-s.writer }()
	_ = s.durable.settle() // calls that still wait for the sync get their answers
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
	for _, c := range []*conn{s.registry, s.write} { // the last connection makes a checkpoint when it is closed
		if c != nil {
			errs = append(errs, c.close())
		}
	}
	return errors.Join(errs...)
}

var errClosed = &perdure.Error{Code: perdure.CodeUnavailable, Message: "the store is closed"}

// usable reports whether the store may be used at all.
func (s *Store) usable(ctx context.Context) error {
	if s.closed.Load() {
		return errClosed
	}
	return ctx.Err()
}

// enter waits until no other goroutine writes.
func (s *Store) enter(ctx context.Context) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	select {
	case s.writer <- struct{}{}:
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

func (s *Store) leave() { <-s.writer }

// begin begins a transaction. A deferred transaction could fail with SQLITE_BUSY at its first write (F107).
func begin(c *conn) error { return c.exec(`BEGIN IMMEDIATE`) }

// rollback ends a transaction without changes. If SQLite has rolled it back already, after a failed write, ROLLBACK
// fails, which is ignored.
func rollback(c *conn) { _ = c.exec(`ROLLBACK`) }
