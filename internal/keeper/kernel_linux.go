package keeper

import (
	"os"
	"syscall"
	"unsafe"
)

// The system calls that package syscall does not have. Those of golang.org/x/sys/unix are not used: see init.

const (
	clockBoottime   = 7   // CLOCK_BOOTTIME
	setSubreaper    = 36  // PR_SET_CHILD_SUBREAPER
	sysPidfdSend    = 424 // pidfd_send_signal, on all architectures
	sysPidfdOpen    = 434 // pidfd_open
	timerfdAbsolute = 1   // TFD_TIMER_ABSTIME
)

// itimerspec is struct itimerspec.
type itimerspec struct{ interval, value syscall.Timespec }

// Now returns CLOCK_BOOTTIME in nanoseconds.
func Now() int64 {
	var t syscall.Timespec
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&t)), 0) // it fails for no clock that the kernel has
	return t.Nano()
}

// becomeSubreaper makes this process the parent of descendants whose parents have died.
func becomeSubreaper() error {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, setSubreaper, 1, 0, 0, 0, 0)
	return failed("prctl", errno)
}

// pidfdOpen returns a descriptor that holds a process.
func pidfdOpen(pid int) (fd int, err error) {
	got, _, errno := syscall.RawSyscall(sysPidfdOpen, uintptr(pid), 0, 0)
	return int(got), failed("pidfd_open", errno)
}

func pidfdSignal(fd int, sig syscall.Signal) error {
	_, _, errno := syscall.RawSyscall6(sysPidfdSend, uintptr(fd), uintptr(sig), 0, 0, 0, 0)
	return failed("pidfd_send_signal", errno)
}

// newTimer returns a timer on CLOCK_BOOTTIME.
func newTimer() (*os.File, error) {
	fd, _, errno := syscall.RawSyscall(syscall.SYS_TIMERFD_CREATE, clockBoottime, syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err := failed("timerfd_create", errno); err != nil {
		return nil, err
	}
	return os.NewFile(fd, "alarm"), nil
}

// setTimer sets the time at which a timer can be read, in nanoseconds; it is not 0.
func setTimer(fd uintptr, at int64) {
	t := itimerspec{value: syscall.NsecToTimespec(at)}
	_, _, _ = syscall.RawSyscall6(syscall.SYS_TIMERFD_SETTIME, fd, timerfdAbsolute, uintptr(unsafe.Pointer(&t)), 0, 0, 0)
}

func failed(call string, errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return os.NewSyscallError(call, errno)
}

// signalNames are the names of the signals without SIG. Real-time signals have none.
var signalNames = [...]string{1: "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
	"STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS"}
