package sqlite

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/perdure/perdure"
)

// fileLock excludes other processes. The lock belongs to the kernel and ends with the process, however that ends. The
// content of the file only names the holder of the lock to other processes.
type fileLock struct {
	file    *os.File
	created bool // the lock file did not exist before
}

// owner is the process that has the lock.
type owner struct {
	PID   int       `json:"pid"`
	Host  string    `json:"host"`
	Since time.Time `json:"since"`
}

var errLocked = errors.New("locked")

// lockPatience is how long a lock is retried whose owner is dead: the kernel may not have released it yet.
const lockPatience = 2 * time.Second

func lockFile(path string) (*fileLock, error) {
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		l, err := tryLock(path)
		if err == nil {
			if err := l.sign(); err != nil {
				return nil, errors.Join(perdure.Refuse(perdure.CodeUnavailable, "the store cannot be locked: %v", err), l.abandon())
			}
			return l, nil
		}
		if errors.As(err, new(*perdure.Error)) {
			return nil, err
		}
		if !errors.Is(err, errLocked) {
			return nil, perdure.Refuse(perdure.CodeUnavailable, "the store cannot be locked: %v", err)
		}
		by := readOwner(path)
		if by.alive() || time.Since(start) > lockPatience {
			return nil, by.inUse(path)
		}
	}
}

// refuseLink refuses a path that is a symbolic link.
func refuseLink(path string) error {
	if info, err := os.Lstat(path); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return nil
	}
	e := perdure.Refuse(perdure.CodeUnavailable, "the store cannot be opened: %s is a symbolic link", path)
	e.Hint = "remove the link: Perdure creates its own files beside the store's file, and does not follow links there"
	return e
}

// sign writes the owner into the lock file.
func (l *fileLock) sign() error {
	host, _ := os.Hostname()
	text, err := json.Marshal(owner{PID: os.Getpid(), Host: host, Since: time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return err
	}
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err = l.file.WriteAt(append(text, '\n'), 0)
	return err
}

func (l *fileLock) release() error {
	_ = l.file.Truncate(0)
	return l.file.Close()
}

// readOwner reads the owner from the lock file; the zero value if it is not written yet.
func readOwner(path string) (by owner) {
	text, err := os.ReadFile(path)
	if err == nil {
		_ = json.Unmarshal(text, &by)
	}
	return by
}

// alive reports whether the owner may still be running. An owner on another host, on a shared disk, is taken to be
// alive.
func (o owner) alive() bool {
	host, _ := os.Hostname()
	return o.PID != 0 && (o.Host != host || processAlive(o.PID))
}

const inUseHint = "stop that process; or use the REST API that it serves, with --server URL (a program that embeds a node serves it with rest.Handler); or use PostgreSQL"

func (o owner) inUse(path string) error {
	e := &perdure.Error{Code: perdure.CodeInUse, Hint: inUseHint}
	switch {
	case o.PID == 0:
		e.Message = fmt.Sprintf("the store is in use: %s is locked", path)
	case o.PID == os.Getpid():
		e.Message = fmt.Sprintf("the store is in use by this same process (pid %d) since %s", o.PID, o.Since.Format(time.RFC3339))
	default:
		e.Message = fmt.Sprintf("the store is in use by pid %d on %s since %s", o.PID, o.Host, o.Since.Format(time.RFC3339))
	}
	return e
}
