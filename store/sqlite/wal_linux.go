package sqlite

import "syscall"

// sync waits until the content of the log is on the disk.
func (w *walFile) sync() error {
	for {
		if err := syscall.Fdatasync(int(w.file.Fd())); err != syscall.EINTR {
			return err
		}
	}
}
