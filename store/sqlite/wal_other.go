//go:build !linux

package sqlite

// sync waits until what is in the log is on the disk.
func (w *walFile) sync() error { return w.file.Sync() }
