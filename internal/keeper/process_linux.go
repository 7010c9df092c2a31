package keeper

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Boot returns the id of the present boot.
var Boot = sync.OnceValues(func() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
})

// self returns this process.
func self() (Process, error) {
	boot, err := Boot()
	if err != nil {
		return Process{}, err
	}
	st, ok := statOf(os.Getpid())
	if !ok {
		return Process{}, errors.New("/proc has no entry for this process")
	}
	return Process{PID: os.Getpid(), Start: st.start, Boot: boot}, nil
}

// Alive reports whether the process still runs, in this boot.
func (p *Process) Alive() bool {
	boot, err := Boot()
	st, ok := statOf(p.PID)
	return err == nil && ok && !st.dead && p.Is(boot, st.start)
}

// stat is what /proc says of a process.
type stat struct {
	parent int
	start  uint64
	dead   bool // it waits for its parent to reap it
}

func statOf(pid int) (stat, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, false
	}
	// The name, in parentheses, may contain anything.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 20 {
		return stat{}, false
	}
	parent, err1 := strconv.Atoi(fields[1])
	start, err2 := strconv.ParseUint(fields[19], 10, 64)
	return stat{parent: parent, start: start, dead: fields[0] == "Z" || fields[0] == "X"}, err1 == nil && err2 == nil
}

// processes returns all living processes.
func processes() map[int]stat {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = d.Close() }()
	names, _ := d.Readdirnames(-1)
	all := make(map[int]stat, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if st, ok := statOf(pid); ok {
				all[pid] = st
			}
		}
	}
	return all
}

// descendants returns the living processes below one.
func descendants(of int) map[int]stat {
	all := processes()
	below := map[int]stat{}
	var isBelow func(pid, depth int) bool
	isBelow = func(pid, depth int) bool {
		st, ok := all[pid]
		switch {
		case !ok || pid <= 1 || depth > len(all):
			return false
		case st.parent == of:
			return true
		}
		return isBelow(st.parent, depth+1)
	}
	for pid, st := range all {
		if !st.dead && isBelow(pid, 0) {
			below[pid] = st
		}
	}
	return below
}

// signalProcess signals a process if it is still the one that started at that time. A pidfd holds it meanwhile, so the
// number cannot become that of another process between the comparison and the signal.
func signalProcess(pid int, start uint64, sig syscall.Signal) error {
	fd, err := pidfdOpen(pid)
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Close(fd) }()
	if st, ok := statOf(pid); !ok || st.start != start {
		return syscall.ESRCH
	}
	return pidfdSignal(fd, sig)
}

// handleVariable is in the environment of each process of a run.
const handleVariable = "PERDURE_HANDLE"

// KillRun kills the processes of a run whose keeper is dead: those of its cgroup, and those that have its handle in their
// environment. A process that has left the group and has changed its environment is found only by the cgroup. It returns
// when none is left, or after a second.
func KillRun(r *Run) {
	mark := []byte(handleVariable + "=" + r.Handle)
	for end := time.Now().Add(time.Second); ; time.Sleep(10 * time.Millisecond) {
		left := r.Cgroup != "" && killCgroup(r.Cgroup)
		for pid, st := range processes() {
			if !st.dead && pid != os.Getpid() && hasVariable(pid, mark) {
				left = true
				_ = signalProcess(pid, st.start, syscall.SIGKILL)
			}
		}
		if !left || time.Now().After(end) {
			break
		}
	}
	removeCgroup(r.Cgroup)
}

func hasVariable(pid int, mark []byte) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	for kv := range bytes.SplitSeq(b, []byte{0}) {
		if bytes.Equal(kv, mark) {
			return true
		}
	}
	return false
}
