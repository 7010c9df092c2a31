//go:build unix

package chaos

import (
	"os/exec"
	"syscall"
)

const canFreeze = true

// apart gives the program a group of its own, so that its child processes are killed with it, and the terminal's
// interrupt reaches this process first.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func kill(cmd *exec.Cmd)   { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
func ask(cmd *exec.Cmd)    { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
func freeze(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGSTOP) }
func thaw(cmd *exec.Cmd)   { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGCONT) }
