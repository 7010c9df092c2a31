// Package exec is the agent that runs commands on hosts. A command has a parent of its own, the keeper (internal/keeper):
// it goes on while the host agent is restarted, and it ends when the lock of its run ends. The agent shell, whose programs
// end with it, is for the embedded case.
//
// How the command ends is how the run ends:
//
//	exit 0                    done; the output is {"exit":0,"host":"h1","stdout":…}
//	one of exit.rejected      rejected, "exit_64"
//	one of exit.returned      returned: the command says that it has changed nothing, and cannot run now
//	any other exit            failed, "exit_1", with the end of stderr
//	killed by a signal        failed, "signal_TERM"
//	killed for want of memory failed, "outOfMemory"
//	not done in time          failed, "timeout"; it gets TERM early enough to report this
//	asked to stop             failed, "stopped"
//	the keeper was killed     failed, "lost"; the other processes of the run are killed
//	the machine was booted    failed, "hostRestarted"
//	no such program           rejected without effect, "notFound"; "notExecutable" alike
//	input wrong               rejected without effect, "input"
//	no space on the disk      returned, "noSpace"
//	an artifact is gone       rejected without effect, "artifactMissing"; with other bytes, failed, "artifactMismatch"
//	no file to collect        failed, "fileMissing"
package exec

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure/agents/internal/with"
	"github.com/perdure/perdure/internal/plain"
)

// Name is the name of the agent.
const Name = "exec"

// MaxStopWithin is the longest time between TERM and KILL.
const MaxStopWithin = 5 * time.Minute

// Input is `with` of a step.
//
//	command: [render, --frame, 7]                # required: the program and its arguments; no shell reads them
//	env: {QUALITY: high}                         # added to the environment
//	exit: {rejected: [64], returned: [75]}       # exit codes with a meaning of their own
//	files: {scene.blend: {"$artifact": …}}       # artifacts that are there as files when the command starts
//	collect: {frames: "out/*.png"}               # files that are stored as artifacts when it has exited with 0
//
// Arguments and values of env that are no strings are passed as JSON text.
type Input struct {
	Command []with.Text          `json:"command"`
	Env     map[string]with.Text `json:"env"`
	Exit    exits                `json:"exit"`
	Files   map[string]artifact  `json:"files"`   // by their paths in the working directory
	Collect map[string]pattern   `json:"collect"` // by the names in the output
}

// Bounds of files and collect.
const (
	MaxFiles     = plain.MaxFiles // of each
	maxFilesName = plain.MaxFilesName
)

// artifact is a value {"$artifact": …}.
type artifact plain.Artifact

func (a *artifact) UnmarshalJSON(b []byte) error {
	read, err := plain.ReadArtifact(b)
	*a = artifact(read)
	return err
}

// pattern matches paths in the working directory, as path.Match does.
type pattern string

// checkFiles returns what is wrong with files and collect.
func (in *Input) checkFiles() error {
	for _, n := range []int{len(in.Files), len(in.Collect)} {
		if n > MaxFiles {
			return fmt.Errorf("files and collect have at most %d entries each", MaxFiles)
		}
	}
	size := int64(0)
	for name, a := range in.Files {
		if wrong := plain.CheckFilePath(name); wrong != "" {
			return fmt.Errorf("files: %q: %s", name, wrong)
		}
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, is := in.Files[dir]; is {
				return fmt.Errorf("files: %s cannot be both a file and a directory", dir)
			}
		}
		if size += a.Size; size > plain.MaxArtifactBytes {
			return fmt.Errorf("files: more than %d bytes together", int64(plain.MaxArtifactBytes))
		}
	}
	for name, p := range in.Collect {
		if name == "" || len(name) > maxFilesName {
			return fmt.Errorf("collect: a name has 1 to %d bytes", maxFilesName)
		}
		if wrong := plain.CheckFilePattern(string(p)); wrong != "" {
			return fmt.Errorf("collect: %s: %q: %s", name, string(p), wrong)
		}
	}
	return nil
}

type exits struct {
	Rejected []exitCode `json:"rejected"`
	Returned []exitCode `json:"returned"`
}

func (e *exits) UnmarshalJSON(b []byte) error {
	type plain exits
	if with.IsNull(b) {
		return nil
	}
	return with.Decode(b, (*plain)(e))
}

// exitCode is 1 to 255.
type exitCode int

func (c *exitCode) UnmarshalJSON(b []byte) error {
	n, err := strconv.Atoi(string(b))
	if err != nil || n < 1 || n > 255 {
		return fmt.Errorf("an exit code from 1 to 255, not %s", with.Brief(b))
	}
	*c = exitCode(n)
	return nil
}

// parse reads an input strictly.
func parse(b json.RawMessage) (*Input, error) {
	in := &Input{}
	if err := with.Decode(b, in); err != nil {
		return nil, err
	}
	if len(in.Command) == 0 || in.Command[0] == "" {
		return nil, errors.New("command is missing: a list of the program and its arguments")
	}
	for i, arg := range in.Command {
		if strings.Contains(string(arg), "\x00") {
			return nil, fmt.Errorf("command: argument %d has a NUL; remove it", i)
		}
	}
	for name, v := range in.Env {
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00"):
			return nil, fmt.Errorf("env: %q is not a name of a variable", name)
		case strings.Contains(string(v), "\x00"):
			return nil, fmt.Errorf("env: %s has a NUL; remove it", name)
		}
	}
	for _, code := range in.Exit.Returned {
		if slices.Contains(in.Exit.Rejected, code) {
			return nil, fmt.Errorf("exit: %d cannot be both rejected and returned; leave it in one list", code)
		}
	}
	if err := in.checkFiles(); err != nil {
		return nil, err
	}
	return in, nil
}
