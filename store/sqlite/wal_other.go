//go:build !linux

package sqlite

// sync waits until the content of the log is on the disk.
func (w *walFile) sync() error { return w.file.Sync() }
