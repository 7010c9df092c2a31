package shell

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// startTied starts a process that is killed when this one dies. Linux ties that to the thread which
// forked, not to the process: so one goroutine, locked to a thread that never ends, starts them all.
// (Go lets only one fork at a time go on anyway.)
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

// peek waits for a process to be over, and leaves it to be reaped.
func peek(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err == nil
		}
	}
}
