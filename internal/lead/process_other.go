//go:build !linux

package lead

import (
	"os"
	"os/exec"
	"syscall"
	"time"
)

// clock may stand still while the machine sleeps.
func clock() time.Duration { return time.Since(began) }

var began = time.Now()

// start starts the command. It goes on if this process is killed.
func start(cmd *exec.Cmd) (*process, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go p.wait()
	return p, nil
}

func peek(int) bool { return false }

func signalGroup(cmd *exec.Cmd, s syscall.Signal) {
	if s == syscall.SIGKILL || cmd.Process.Signal(s) != nil {
		_ = cmd.Process.Kill()
	}
}

func signalOf(*os.ProcessState) (int, bool) { return 0, false }
