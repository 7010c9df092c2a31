package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"syscall"
)

// exitRecord is the place of an exit record on disk. It is reserved before the command starts, so that a full disk does
// not lose the outcome.
type exitRecord struct {
	dir  string
	file *os.File
}

const exitRecordBytes = 4 << 10

func reserveExit(dir string) (*exitRecord, error) {
	f, err := os.OpenFile(path.Join(dir, fmt.Sprintf("%s.%d", exitFile, os.Getpid())), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	if err = reserve(f); err != nil {
		_ = f.Close()
		_ = os.Remove(f.Name())
		return nil, err
	}
	return &exitRecord{dir, f}, nil
}

// reserve gives a file its place on disk. It need not survive a power cut: the command would not, either.
func reserve(f *os.File) error {
	err := error(syscall.EINTR)
	for errors.Is(err, syscall.EINTR) {
		err = syscall.Fallocate(int(f.Fd()), 0, 0, exitRecordBytes)
	}
	if !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	if _, err = f.Write(make([]byte, exitRecordBytes)); err == nil {
		err = f.Sync()
	}
	return err
}

func (r *exitRecord) release() {
	_ = r.file.Close()
	_ = os.Remove(r.file.Name())
}

// write writes the record into the reserved place, and gives it its name.
func (r *exitRecord) write(e *Exit) error {
	e.Message = e.Message[:min(len(e.Message), exitRecordBytes/8)] // JSON takes at most six bytes for one
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if _, err := r.file.WriteAt(b, 0); err != nil {
		return err
	}
	if err := r.file.Truncate(int64(len(b))); err != nil {
		return err
	}
	if err := errors.Join(r.file.Sync(), r.file.Close()); err != nil {
		return err
	}
	if err := os.Rename(r.file.Name(), path.Join(r.dir, exitFile)); err != nil {
		return err
	}
	return syncDir(r.dir)
}
