package shell

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// startTied starts a process that is killed when this one dies. Linux ties that to the thread that forked, not to the
// process. So one goroutine, which is locked to a thread that never ends, starts all of them. (Go runs only one fork at
// a time anyway.)
func startTied(cmd *exec.Cmd) error {
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	s := starting{cmd, make(chan error, 1)}
	starter() <- s
	return <-s.err
}

type starting struct {
	cmd *exec.Cmd
	err chan error
}

var starter = sync.OnceValue(func() chan<- starting {
	queue := make(chan starting)
	go func() {
		runtime.LockOSThread()
		for s := range queue {
			s.err <- s.cmd.Start()
		}
	}()
	return queue
})

// peek waits for a process to end without reaping it.
func peek(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err == nil
		}
	}
}
