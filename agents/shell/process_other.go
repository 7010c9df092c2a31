//go:build !unix

package shell

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
)

// On this system there are no process groups: only the program itself is ended.

type sysSignal = os.Signal

var (
	termSignal os.Signal = os.Kill
	killSignal os.Signal = os.Kill
)

func group(*exec.Cmd) {}

func signalGroup(cmd *exec.Cmd, _ os.Signal) { _ = cmd.Process.Kill() }

func signalOf(*os.ProcessState) (string, bool) { return "", false }

func startCode(err error) string {
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return "notFound"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, exec.ErrDot):
		return "notExecutable"
	}
	return "start"
}

// MaybeReaper does nothing on this system.
func MaybeReaper() bool { return false }

var groups noGroups

type noGroups struct{}

func (noGroups) prepare()   {}
func (noGroups) add(int)    {}
func (noGroups) remove(int) {}
