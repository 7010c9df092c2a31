//go:build linux || darwin

package sqlite

import "syscall"

// freeSpace returns the free space for this user on the disk of a directory. It opens no file: see resolve.
func freeSpace(dir string) (bytes int64, known bool) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, false
	}
	return int64(st.Bavail) * int64(st.Bsize), true //nolint:unconvert // on macOS the size is a uint32
}
