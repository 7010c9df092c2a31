//go:build unix

package sqlite

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// noFollow makes opening a symbolic link fail: another user who may write to the directory could have made it point to
// any file of this process's user.
const noFollow = syscall.O_NOFOLLOW

// tryLock takes the lock on the open file: the kernel frees it when the last descriptor of the file is closed.
//
// A lock file may be removed by its holder (see abandon). A process that has opened it before gets the lock on a file
// that no longer has a name, while the next process creates and locks a new one. So the lock counts only if path still
// names the locked file.
func tryLock(path string) (*fileLock, error) {
	for {
		l, err := openLock(path)
		if err != nil {
			return nil, err
		}
		held, err := l.acquire(path)
		if held {
			return l, nil
		}
		_ = l.file.Close()
		if err != nil {
			return nil, err
		}
	}
}

// acquire locks the open file. It returns false without an error if path no longer names that file.
func (l *fileLock) acquire(path string) (held bool, err error) {
	if err := flock(l.file); err != nil {
		return false, err
	}
	opened, err := l.file.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(opened, named), err
}

// openLock opens the lock file, and creates it if it does not exist.
func openLock(path string) (*fileLock, error) {
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err == nil {
			return &fileLock{file: f, created: true}, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		f, err = os.OpenFile(path, os.O_RDWR|noFollow, 0)
		if err == nil {
			return &fileLock{file: f}, nil
		}
		if !errors.Is(err, fs.ErrNotExist) { // else it was removed between the two calls
			return nil, cmp.Or(refuseLink(path), err)
		}
	}
}

func flock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EWOULDBLOCK):
			return errLocked
		}
		return err
	}
}

// abandon releases a lock that turned out not to be needed, and removes the lock file if this lock created it. The file
// is removed while it is locked, so that the lock file of another process is never removed.
func (l *fileLock) abandon() error {
	var err error
	if l.created {
		err = os.Remove(l.file.Name())
	}
	return errors.Join(err, l.release())
}

func processAlive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}
