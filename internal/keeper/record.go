package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"time"
)

// The files of a run's directory.
const (
	runFile    = "run.json"
	keeperFile = "keeper.json"
	exitFile   = "exit.json"
	logFile    = "keeper.log" // what the keeper itself writes to stderr: nothing, unless it fails

	// WorkDir is the directory in which the command runs.
	WorkDir = "work"
)

// Run is what a keeper runs: run.json.
type Run struct {
	Handle     string          `json:"handle"`  // JOB/STEP/RUN
	Command    []string        `json:"command"` // the program and its arguments
	Env        []string        `json:"env"`     // the whole environment, without PERDURE_HANDLE
	Boot       string          `json:"boot"`    // the boot to which Until belongs
	Until      int64           `json:"until"`   // the end of the lock, in nanoseconds of CLOCK_BOOTTIME
	StopWithin time.Duration   `json:"stopWithin"`
	Cgroup     string          `json:"cgroup,omitempty"` // the directory of the run's cgroup; "": there is none
	User       *User           `json:"user,omitempty"`   // of the command; nil: that of the keeper
	Owner      json.RawMessage `json:"owner,omitempty"`  // what the host agent needs to know of the run

	Deadline int64         `json:"deadline,omitempty"` // after which Until is never extended, as Until; 0: not known
	Within   time.Duration `json:"within,omitempty"`   // how long before Deadline the run began
}

// User is the user of a command. The keeper is root then, so that the command can neither end it nor change its records.
type User struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups"`
}

// Process identifies a process beyond its number, which another process may have later.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // in clock ticks after the boot, from /proc
	Boot  string `json:"boot"`
}

// Is reports whether the process is the one that has its number now, in this boot, since that start.
func (p *Process) Is(boot string, start uint64) bool { return boot == p.Boot && start == p.Start }

// Keeper says which process a keeper is: keeper.json.
type Keeper struct {
	Process
	Socket string `json:"socket"` // its name in the run's directory
}

// Exit is how a run has ended: exit.json.
type Exit struct {
	Exit    int       `json:"exit"`             // the exit code; -1 if a signal has ended the command, 0 if it was not started
	Signal  string    `json:"signal,omitempty"` // its name without SIG, or the number of a signal that has no name
	Cause   Cause     `json:"cause,omitempty"`
	Message string    `json:"message,omitempty"` // of NotStarted
	Code    string    `json:"code,omitempty"`    // of NotStarted: what the host agent reports; "": it follows from Errno
	Errno   int       `json:"errno,omitempty"`   // of NotStarted
	OOM     bool      `json:"oom,omitempty"`     // the kernel has killed a process of the run for want of memory
	Until   int64     `json:"until,omitempty"`   // the end of the lock, as the keeper knew it last; 0: not known
	Written *Written  `json:"written,omitempty"` // nil: not known
	At      time.Time `json:"at"`
}

// Written says how many bytes a command has written to each stream. Less may be stored: see Stream.
type Written struct {
	Stdout int64 `json:"stdout"`
	Stderr int64 `json:"stderr"`
}

// Of returns the number of bytes of a stream.
func (w *Written) Of(name string) int64 {
	if name == Stdout {
		return w.Stdout
	}
	return w.Stderr
}

// Cause is why a keeper has ended a command. The zero value: the command has ended by itself.
type Cause string

const (
	NotStarted Cause = "notStarted" // the command could not be started
	TimedOut   Cause = "timeout"    // the lock was about to end
	Stopped    Cause = "stopped"    // the host agent asked for it
)

// maxRecordBytes bounds a file of a run's directory.
const maxRecordBytes = 8 << 20

// WriteRun writes run.json, and returns when it is on disk.
func WriteRun(dir string, r *Run) error { return WriteFile(dir, runFile, r) }

// ReadRun reads run.json. The error is fs.ErrNotExist if there is none.
func ReadRun(dir string) (*Run, error) { return readRecord[Run](dir, runFile) }

// ReadKeeper reads keeper.json. The error is fs.ErrNotExist if no keeper has started.
func ReadKeeper(dir string) (*Keeper, error) { return readRecord[Keeper](dir, keeperFile) }

// ReadExit reads exit.json. The error is fs.ErrNotExist if the command has not ended, or its end was not recorded.
func ReadExit(dir string) (*Exit, error) { return readRecord[Exit](dir, exitFile) }

func readRecord[T any](dir, name string) (*T, error) {
	path := path.Join(dir, name)
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if info.Size() > maxRecordBytes {
		return nil, fmt.Errorf("%s: %d bytes, more than %d", path, info.Size(), maxRecordBytes)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	v := new(T)
	if err := json.Unmarshal(b, v); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}

// WriteFile writes v as JSON to a file of a directory, and returns when it is on disk. A reader finds the earlier file or
// this one, and nothing between.
func WriteFile(dir, name string, v any) error {
	aside := path.Join(dir, fmt.Sprintf("%s.%d", name, os.Getpid()))
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(aside, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err == nil {
		err = writeAndSync(f, b)
	}
	if err == nil {
		err = os.Rename(aside, path.Join(dir, name))
	}
	if err != nil {
		_ = os.Remove(aside)
		return err
	}
	return syncDir(dir)
}

// createKeeper writes keeper.json, unless it is there: then the error is fs.ErrExist. A power cut may lose it, or its content,
// because it is not synced: no process of the run survives that, and run.json says that the machine was restarted.
func createKeeper(dir string, k *Keeper) error {
	aside := path.Join(dir, fmt.Sprintf("%s.%d", keeperFile, os.Getpid()))
	b, err := json.Marshal(k)
	if err == nil {
		err = os.WriteFile(aside, b, 0o600)
	}
	if err == nil {
		err = os.Link(aside, path.Join(dir, keeperFile))
	}
	_ = os.Remove(aside)
	return err
}

func writeAndSync(f *os.File, b []byte) error {
	_, err := f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// syncDir makes the names of a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return d.Sync()
}

// Refuse records that the command of a run is not started: no keeper starts it from here on. The error is fs.ErrExist if a
// keeper has the run.
func Refuse(dir string, e Exit) error {
	if err := createKeeper(dir, &Keeper{}); err != nil {
		return err
	}
	e.Cause, e.At = NotStarted, time.Now()
	return WriteFile(dir, exitFile, &e)
}

// missing reports whether an error says that a file is not there.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
