//go:build !unix

package sqlite

import (
	"errors"
	"io/fs"
	"os"
)

// noFollow is not needed: creating symbolic links needs privileges on these systems.
const noFollow = 0

// tryLock creates the file. It replaces a file that is not open: on Windows an open file cannot be removed, and that is
// the lock.
func tryLock(path string) (*fileLock, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errLocked
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, errLocked
	}
	if err != nil {
		return nil, err
	}
	return &fileLock{file: f, created: true}, nil
}

// abandon releases a lock that turned out not to be needed, and removes its file. If another process has opened the
// file in between, it cannot be removed, and stays.
func (l *fileLock) abandon() error {
	err := l.release()
	_ = os.Remove(l.file.Name())
	return err
}

// processAlive is not needed here: the lock is sufficient.
func processAlive(int) bool { return true }
