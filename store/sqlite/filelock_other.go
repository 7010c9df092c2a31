//go:build !unix

package sqlite

import (
	"errors"
	"io/fs"
	"os"
)

// tryLock makes the file anew. On Windows one that is open cannot be removed: that is the lock.
func tryLock(path string) (*os.File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errLocked
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, errLocked
	}
	return f, err
}

// processAlive would have to ask the system; the lock alone is enough.
func processAlive(int) bool { return true }
