//go:build unix

package descriptors

import "syscall"

// systemLimit returns the soft limit, which the Go runtime has raised to the hard limit.
func systemLimit() (uint64, bool) {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return 0, false
	}
	return uint64(r.Cur), true //nolint:unconvert // on FreeBSD it is an int64
}
