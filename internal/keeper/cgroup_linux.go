package keeper

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
)

// Cgroups of version 2 are used where this process may create them below its own cgroup, as it may where systemd delegates
// one (Delegate=yes), and as root. All that is needed of them are a few files, so this is done without a library.

// OwnCgroup returns the directory of this process's cgroup.
func OwnCgroup() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	return cgroupDir(string(mounts), string(own))
}

// cgroupDir finds the directory of the cgroup that own (/proc/self/cgroup) names, in mounts (/proc/self/mountinfo).
func cgroupDir(mounts, own string) (string, error) {
	cgroup := ""
	for line := range strings.Lines(own) {
		if p, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			cgroup = p
		}
	}
	if cgroup == "" || strings.HasPrefix(cgroup, "/..") {
		return "", errors.New("this process is in no cgroup of version 2")
	}
	for line := range strings.Lines(mounts) {
		left, right, _ := strings.Cut(line, " - ")
		fields, kind := strings.Fields(left), strings.Fields(right)
		if len(fields) < 5 || len(kind) == 0 || kind[0] != "cgroup2" {
			continue
		}
		if below, ok := strings.CutPrefix(cgroup, strings.TrimSuffix(fields[3], "/")); ok { // fields[3] is the root of the mount
			return path.Join(fields[4], below), nil
		}
	}
	return "", errors.New("no cgroup of version 2 is mounted")
}

// NewCgroups creates a cgroup for the runs of a host below base, and returns its directory. Memory is counted where this
// process is alone in base, because the kernel allows controllers only below a cgroup without processes: this process
// moves to a cgroup of its own then.
func NewCgroups(base, name string) (string, error) {
	dir := path.Join(base, name)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	if _, err := os.Stat(path.Join(dir, "cgroup.kill")); err != nil {
		_ = os.Remove(dir)
		return "", fmt.Errorf("the kernel is too old: %w", err)
	}
	countMemory(base, name)
	return dir, nil
}

func countMemory(base, name string) {
	procs, err := os.ReadFile(path.Join(base, "cgroup.procs"))
	if err != nil || strings.TrimSpace(string(procs)) != strconv.Itoa(os.Getpid()) {
		return
	}
	own := path.Join(base, name+".agent")
	_ = os.Mkdir(own, 0o755)
	if writeCgroup(own, "cgroup.procs", strconv.Itoa(os.Getpid())) != nil {
		return
	}
	for _, dir := range []string{base, path.Join(base, name)} {
		if writeCgroup(dir, "cgroup.subtree_control", "+memory") != nil {
			return
		}
	}
}

func writeCgroup(dir, file, text string) error {
	return os.WriteFile(path.Join(dir, file), []byte(text), 0)
}

// killCgroup kills all processes of a cgroup, and reports whether there were any.
func killCgroup(dir string) bool {
	if !populated(dir) {
		return false
	}
	_ = writeCgroup(dir, "cgroup.kill", "1")
	return true
}

// populated reports whether a cgroup has processes.
func populated(dir string) bool {
	n, _ := counter(path.Join(dir, "cgroup.events"), "populated")
	return n > 0
}

// outOfMemory reports whether the kernel has killed a process of a cgroup because its memory was used up.
func outOfMemory(dir string) bool {
	n, _ := counter(path.Join(dir, "memory.events"), "oom_kill")
	return n > 0
}

// counter reads one line of a file such as memory.events.
func counter(path, name string) (int64, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		if word, value, ok := strings.Cut(lines.Text(), " "); ok && word == name {
			n, err := strconv.ParseInt(value, 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// removeCgroup removes a cgroup without processes, with those that the command has created in it.
func removeCgroup(dir string) {
	if dir == "" {
		return
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			removeCgroup(path.Join(dir, e.Name()))
		}
	}
	_ = os.Remove(dir)
}
