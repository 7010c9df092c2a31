package postgres

import (
	"syscall"
	"time"
)

// tcpUserTimeout is TCP_USER_TIMEOUT, which package syscall does not name on all architectures.
const tcpUserTimeout = 0x12

// bound is best effort: a kernel that does not support it has a longer limit of its own.
func bound(fd uintptr, silence time.Duration) {
	_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(max(silence.Milliseconds(), 1)))
}
