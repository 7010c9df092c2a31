//go:build unix

package shell

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

type sysSignal = syscall.Signal

const (
	termSignal = syscall.SIGTERM
	killSignal = syscall.SIGKILL
)

// group gives a process a group of its own.
func group(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

func signalGroup(cmd *exec.Cmd, s syscall.Signal) { _ = syscall.Kill(-cmd.Process.Pid, s) }

// signalOf returns the signal that has ended a process: its name without SIG, or its number if it has no name.
func signalOf(state *os.ProcessState) (string, bool) {
	ws, ok := state.Sys().(syscall.WaitStatus)
	if !ok || !ws.Signaled() {
		return "", false
	}
	if name := unix.SignalName(ws.Signal()); name != "" {
		return strings.TrimPrefix(name, "SIG"), true
	}
	return strconv.Itoa(int(ws.Signal())), true
}

// startCode returns the code of an error of starting a program.
func startCode(err error) string {
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return "notFound"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENOEXEC), errors.Is(err, exec.ErrDot),
		errors.Is(err, syscall.EISDIR):
		return "notExecutable"
	case errors.Is(err, syscall.E2BIG), errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.EINVAL),
		errors.Is(err, syscall.ELOOP):
		return "input"
	}
	return "start"
}
