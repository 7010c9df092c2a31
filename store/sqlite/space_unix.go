//go:build linux || darwin

package sqlite

import "syscall"

// freeSpace is what the disk of a directory has for this user. It opens nothing: see resolve.
func freeSpace(dir string) (bytes int64, known bool) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, false
	}
	return int64(st.Bavail) * int64(st.Bsize), true
}
