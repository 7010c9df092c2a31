package keeper

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/racedetector"
)

func TestMain(m *testing.M) {
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0")
	flag.Parse()
	_ = flag.Set("test.parallel", "8") // they wait for other processes most of the time
	os.Exit(m.Run())
}

// aRun returns a run of a shell script whose lock ends after d, and its directory.
func aRun(t *testing.T, d time.Duration, script string) (*Run, string) {
	t.Helper()
	boot, err := Boot()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	return &Run{Handle: "job_1/" + filepath.Base(filepath.Dir(dir)) + "/7", Command: []string{"sh", "-c", script}, Boot: boot,
		Env: []string{"PATH=" + os.Getenv("PATH"), "DIR=" + dir}, Until: Now() + int64(d), StopWithin: 200 * time.Millisecond}, dir
}

func started(t *testing.T, r *Run, dir string) {
	t.Helper()
	if err := WriteRun(dir, r); err != nil {
		t.Fatal(err)
	}
	if err := Start(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if k, err := ReadKeeper(dir); err == nil {
			_ = signalProcess(k.PID, k.Start, syscall.SIGKILL)
		}
		KillRun(r)
	})
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s within the time limit", what)
		}
	}
}

// ended waits for the exit record.
func ended(t *testing.T, dir string) (e *Exit) {
	t.Helper()
	await(t, "the exit record", func() (ok bool) {
		var err error
		e, err = ReadExit(dir)
		return err == nil
	})
	return e
}

// stop stops a run. The keeper may have ended before it has answered.
func stop(t *testing.T, c *Client, within time.Duration) {
	t.Helper()
	if err := c.Stop(within); err != nil && !errors.Is(err, os.ErrClosed) {
		t.Fatal(err)
	}
}

// pidIn waits for a file with the number of a process.
func pidIn(t *testing.T, dir, name string) (pid int, start uint64) {
	t.Helper()
	await(t, name, func() bool {
		b, _ := os.ReadFile(filepath.Join(dir, name))
		if !bytes.HasSuffix(b, []byte("\n")) {
			return false
		}
		pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		return true
	})
	st, ok := statOf(pid)
	if !ok {
		t.Fatalf("process %d is not there", pid)
	}
	return pid, st.start
}

func dead(pid int, start uint64) bool {
	st, ok := statOf(pid)
	return !ok || st.dead || st.start != start
}

// F277: a real-time signal, which has no name, ends a command: the record has its number, and is none of a command that is done.
func TestExitIsRecorded(t *testing.T) {
	for script, want := range map[string]Exit{
		"exit 0":        {},
		"exit 3":        {Exit: 3},
		"kill -TERM $$": {Exit: -1, Signal: "TERM"},
		"kill -KILL $$": {Exit: -1, Signal: "KILL"},
		"kill -34 $$":   {Exit: -1, Signal: "34"},
		"kill -64 $$":   {Exit: -1, Signal: "64"},
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			r, dir := aRun(t, time.Minute, "echo out; echo err >&2; pwd >&2; "+script)
			started(t, r, dir)
			e := ended(t, dir)
			if w := e.Written; w == nil || w.Of(Stdout) != 4 || w.Of(Stderr) != int64(len("err\n"+filepath.Join(dir, WorkDir)+"\n")) {
				t.Errorf("written: %+v", w)
			}
			e.At, e.Until, e.Written = time.Time{}, 0, nil
			if *e != want {
				t.Errorf("%+v, want %+v", *e, want)
			}
			if out, err := text(t, dir, Stdout), text(t, dir, Stderr); out != "out\n" || err != "err\n"+filepath.Join(dir, WorkDir)+"\n" {
				t.Errorf("stdout %q, stderr %q", out, err)
			}
			await(t, "the end of the keeper", func() bool { k, err := ReadKeeper(dir); return err == nil && !k.Alive() })
			if left, _ := filepath.Glob(filepath.Join(dir, "s[0-9]*")); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

func TestCommandThatCannotStart(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for command, errno := range map[string]syscall.Errno{
		"no-such-program-here": syscall.ENOENT, "/no/such/program": syscall.ENOENT, "./missing": syscall.ENOENT, plain: syscall.EACCES,
	} {
		r, dir := aRun(t, time.Minute, "")
		r.Command = []string{command}
		started(t, r, dir)
		if e := ended(t, dir); e.Cause != NotStarted || syscall.Errno(e.Errno) != errno || e.Message == "" {
			t.Errorf("%s: %+v", command, e)
		}
	}
}

// The command gets the environment of its run, its handle, and nothing else (I18).
func TestEnvironmentIsThatOfTheRun(t *testing.T) {
	t.Setenv("PERDURE_TOKEN", "secret")
	r, dir := aRun(t, time.Minute, "")
	r.Command, r.Env = []string{"/usr/bin/env"}, []string{"A=1"}
	started(t, r, dir)
	if e := ended(t, dir); e.Exit != 0 {
		t.Fatalf("%+v", e)
	}
	if out := text(t, dir, Stdout); out != "A=1\nPERDURE_HANDLE="+r.Handle+"\n" {
		t.Errorf("%q", out)
	}
}

// F231: without its host agent, a keeper sends TERM before the lock ends, and KILL at its end.
func TestCommandEndsWithItsLock(t *testing.T) {
	for name, c := range map[string]struct {
		prelude string
		want    Exit
	}{
		"heeds TERM":   {"trap 'echo term; exit 9' TERM", Exit{Exit: 9, Cause: TimedOut}},
		"ignores TERM": {"trap '' TERM", Exit{Exit: -1, Signal: "KILL", Cause: TimedOut}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, dir := aRun(t, 1500*time.Millisecond, c.prelude+`; while :; do sleep 0.05; done`)
			r.StopWithin = time.Second
			started(t, r, dir)
			e := ended(t, dir)
			late := time.Duration(Now() - r.Until)
			e.At, e.Until, e.Written = time.Time{}, 0, nil
			if *e != c.want {
				t.Errorf("%+v, want %+v", *e, c.want)
			}
			if late > 5*time.Second || name == "ignores TERM" && late < 0 {
				t.Errorf("ended %s after the lock", late)
			}
		})
	}
}

func TestLockIsExtended(t *testing.T) {
	t.Parallel()
	r, dir := aRun(t, 4*time.Second, `while [ ! -e ../go ]; do sleep 0.05; done; echo whole`)
	started(t, r, dir)
	c, err := Dial(dir, r.Handle, patient, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Extend(Now() + int64(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := c.Extend(Now()); err != nil { // an earlier end is ignored
		t.Fatal(err)
	}
	if s, err := c.Status(); err != nil || s.Until < r.Until+int64(50*time.Second) || s.Handle != r.Handle {
		t.Errorf("%+v, %v", s, err)
	}
	time.Sleep(time.Duration(r.Until - Now()))
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	<-c.done
	if e := ended(t, dir); e.Exit != 0 || e.Cause != "" || text(t, dir, Stdout) != "whole\n" {
		t.Errorf("%+v", e)
	}
}

func TestRunIsStopped(t *testing.T) {
	for name, c := range map[string]struct {
		prelude string
		within  time.Duration
		want    Exit
	}{
		"heeds TERM":   {"trap 'exit 0' TERM", time.Minute, Exit{Cause: Stopped}},
		"ignores TERM": {"trap '' TERM", 100 * time.Millisecond, Exit{Exit: -1, Signal: "KILL", Cause: Stopped}},
		"at once":      {"trap 'sleep 60' TERM", 0, Exit{Exit: -1, Signal: "KILL", Cause: Stopped}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, dir := aRun(t, time.Minute, c.prelude+`; echo $$ > ../pid; while :; do sleep 0.05; done`)
			started(t, r, dir)
			pidIn(t, dir, "pid")
			client, err := Dial(dir, r.Handle, patient, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			stop(t, client, c.within)
			e := ended(t, dir)
			e.At, e.Until, e.Written = time.Time{}, 0, nil
			if *e != c.want {
				t.Errorf("%+v, want %+v", *e, c.want)
			}
		})
	}
}

func TestAnotherRunIsNotMistaken(t *testing.T) {
	r, dir := aRun(t, time.Minute, "sleep 60")
	started(t, r, dir)
	if _, err := Dial(dir, "job_1/other/7", patient, nil); err == nil || !strings.Contains(err.Error(), "the keeper runs") {
		t.Errorf("%v", err)
	}
}

// daemon leaves the session of the command, and writes its number to ../daemon.
const daemon = `setsid sh -c 'echo $$ > ../daemon; exec sleep 300' >/dev/null 2>&1 & while [ ! -s ../daemon ]; do sleep 0.01; done`

// F235: a daemon that leaves the group ends with its run, with a cgroup and without one.
func TestDaemonsEndWithTheRun(t *testing.T) {
	for name, cgroup := range map[string]bool{"without cgroup": false, "with cgroup": true} {
		t.Run(name, func(t *testing.T) {
			r, dir := aRun(t, time.Minute, daemon+`; while [ ! -e ../go ]; do sleep 0.01; done; exit 4`)
			if cgroup {
				r.Cgroup = aCgroup(t)
			}
			started(t, r, dir)
			pid, start := pidIn(t, dir, "daemon")
			if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if e := ended(t, dir); e.Exit != 4 {
				t.Errorf("%+v", e)
			}
			if !dead(pid, start) {
				t.Error("the daemon lives after the exit record")
			}
			if _, err := os.Stat(r.Cgroup); cgroup && !missing(err) {
				t.Errorf("the cgroup is left: %v", err)
			}
		})
	}
}

// F235: processes that start others endlessly are killed together.
func TestForkBombIsKilled(t *testing.T) {
	// Each process starts another one and ends; at most some hundred live at a time.
	r, dir := aRun(t, time.Minute, `cat > bomb <<'END'
i=0; while [ $i -lt 20 ]; do sh bomb & i=$((i+1)); sleep 0.02; done
END
echo $$ > ../pid; sh bomb & sh bomb & wait; sleep 60`)
	r.Cgroup = aCgroup(t)
	started(t, r, dir)
	pidIn(t, dir, "pid")
	time.Sleep(150 * time.Millisecond)
	c, err := Dial(dir, r.Handle, patient, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	stop(t, c, 0)
	ended(t, dir)
	if n := len(withHandle(r)); n > 0 {
		t.Errorf("%d processes are left", n)
	}
}

func withHandle(r *Run) (pids []int) {
	for pid, st := range processes() {
		if !st.dead && hasVariable(pid, []byte(handleVariable+"="+r.Handle)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// aCgroup returns a new cgroup. Where there is none, the test is skipped.
func aCgroup(t *testing.T) string {
	t.Helper()
	base, err := OwnCgroup()
	if err == nil {
		base, err = NewCgroups(base, fmt.Sprintf("perdure-test-%d", os.Getpid()))
	}
	if err == nil {
		var dir string
		if dir, err = os.MkdirTemp(base, "run"); err == nil {
			t.Cleanup(func() { killCgroup(dir); removeCgroup(dir); _ = os.Remove(base) })
			return dir
		}
	}
	t.Skipf("NOT TESTED: cgroups of version 2 cannot be created here: %v", err)
	return ""
}

// F232: the keeper is killed. Its command dies at once, and KillRun kills the other processes of the run, and no other.
func TestKilledKeeperLeavesNoProcess(t *testing.T) {
	for name, cgroup := range map[string]bool{"without cgroup": false, "with cgroup": true} {
		t.Run(name, func(t *testing.T) {
			other := exec.Command("sleep", "300")
			other.Env = []string{handleVariable + "=job_2/other/7"}
			if err := other.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
			otherStat, _ := statOf(other.Process.Pid)
			script := daemon + `; echo $$ > ../pid; sleep 300`
			if cgroup { // the daemon changes its environment, too: only the cgroup shows that it belongs to the run
				script = strings.Replace(script, "exec sleep", "exec env -i sleep", 1)
			}
			r, dir := aRun(t, time.Minute, script)
			if cgroup {
				r.Cgroup = aCgroup(t)
			}
			started(t, r, dir)
			pid, start := pidIn(t, dir, "pid")
			daemon, daemonStart := pidIn(t, dir, "daemon")
			k, err := ReadKeeper(dir)
			if err != nil {
				t.Fatal(err)
			}
			_ = syscall.Kill(k.PID, syscall.SIGKILL)
			await(t, "the end of the command", func() bool { return dead(pid, start) })
			await(t, "the end of the keeper", func() bool { return !k.Alive() })
			KillRun(r)
			if !dead(daemon, daemonStart) {
				t.Error("the daemon lives")
			}
			if dead(other.Process.Pid, otherStat.start) {
				t.Error("another process was killed")
			}
			if _, err := ReadExit(dir); !missing(err) {
				t.Errorf("an exit is recorded: %v", err)
			}
		})
	}
}

// F234: a number that another process has now, or that is of another boot, is not the process that it was.
func TestProcessIsMoreThanItsNumber(t *testing.T) {
	cmd := exec.Command("sleep", "300")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	st, _ := statOf(cmd.Process.Pid)
	boot, _ := Boot()
	p := Process{PID: cmd.Process.Pid, Start: st.start, Boot: boot}
	if !p.Alive() {
		t.Error("the process does not live")
	}
	if other := (Process{p.PID, p.Start + 1, boot}); other.Alive() {
		t.Error("a process with another start time is alive")
	}
	if other := (Process{p.PID, p.Start, "another boot"}); other.Alive() {
		t.Error("a process of another boot is alive")
	}
	if err := signalProcess(p.PID, p.Start+1, syscall.SIGKILL); err == nil {
		t.Error("another process was signalled")
	}
	if time.Sleep(20 * time.Millisecond); !p.Alive() {
		t.Error("the process was killed")
	}
	if err := signalProcess(p.PID, p.Start, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	if p.Alive() {
		t.Error("a dead process is alive")
	}
}

// F236: the run is started again, because the first start was not noticed. The command runs once.
func TestCommandRunsOnceThoughStartedTwice(t *testing.T) {
	r, dir := aRun(t, time.Minute, `echo started >> ../starts; sleep 0.5`)
	if err := WriteRun(dir, r); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 3)
	for range cap(failed) {
		go func() { failed <- Start(dir) }()
	}
	for range cap(failed) {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	ended(t, dir)
	if b, _ := os.ReadFile(filepath.Join(dir, "starts")); string(b) != "started\n" {
		t.Errorf("%q", b)
	}
}

func TestRunIsNotStartedAfterItsLock(t *testing.T) {
	for name, change := range map[string]func(*Run){
		"lock ended": func(r *Run) { r.Until = Now() - 1 }, "other boot": func(r *Run) { r.Boot = "another" },
	} {
		r, dir := aRun(t, time.Minute, "touch ../started")
		change(r)
		if err := WriteRun(dir, r); err != nil {
			t.Fatal(err)
		}
		if err := Start(dir); err == nil || !strings.Contains(err.Error(), "lock of the run has ended") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "started")); !missing(err) {
			t.Errorf("%s: started", name)
		}
		if _, err := ReadKeeper(dir); !missing(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The socket works in a directory whose path is longer than the address of a socket may be.
func TestLongDirectory(t *testing.T) {
	r, dir := aRun(t, time.Minute, "sleep 60")
	dir = filepath.Join(dir, strings.Repeat("long/", 40))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	started(t, r, dir)
	c, err := Dial(dir, r.Handle, patient, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	k, _ := ReadKeeper(dir)
	if info, err := os.Stat(filepath.Join(dir, k.Socket)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// F237: a command that writes without a pause is not held up, and its output stays bounded.
func TestLoudCommandIsBounded(t *testing.T) {
	const lines = 4_000_000
	r, dir := aRun(t, time.Minute, fmt.Sprintf(`seq %d; echo last`, lines))
	began := time.Now()
	started(t, r, dir)
	if e := ended(t, dir); e.Exit != 0 || e.Cause != "" {
		t.Fatalf("%+v", e)
	}
	s, err := ReadStream(dir, Stdout)
	if err != nil {
		t.Fatal(err)
	}
	kept := int64(0)
	for _, p := range s.Parts {
		kept += p.Size
	}
	out := text(t, dir, Stdout)
	if kept > MaxStreamBytes || s.Size < 7*lines || !strings.HasPrefix(out, "1\n2\n") || !strings.HasSuffix(out, "\nlast\n") || !strings.Contains(out, " bytes left out]") {
		t.Errorf("%d of %d bytes kept in %s", kept, s.Size, time.Since(began))
	}
}

// A keeper is small: there is one for each run.
func TestKeeperIsSmall(t *testing.T) {
	if racedetector.On {
		t.Skip("the race detector needs memory of its own")
	}
	r, dir := aRun(t, time.Minute, `seq 100000; echo $$ > ../pid; sleep 60`)
	started(t, r, dir)
	pidIn(t, dir, "pid")
	k, err := ReadKeeper(dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", k.PID))
	if err != nil {
		t.Skip(err)
	}
	private := 0
	for line := range strings.Lines(string(b)) {
		var n int
		if _, err := fmt.Sscanf(line, "Private_Clean: %d kB", &n); err == nil {
			private += n
		} else if _, err := fmt.Sscanf(line, "Private_Dirty: %d kB", &n); err == nil {
			private += n
		}
	}
	if private == 0 || private > 4<<10 {
		t.Errorf("%d KiB of private memory", private)
	}
	t.Logf("%d KiB of private memory", private)
}

// F238: the disk is full. No keeper starts without a place for the exit record; a command that runs goes on, and its end is
// recorded. F278: the record says how much it has written, of which the end is missing.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("NOT TESTED: no tmpfs can be mounted: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	r, _ := aRun(t, time.Minute, `touch ../started; head -c 1000000 /dev/zero; exit 5`)
	first, second := filepath.Join(dir, "1"), filepath.Join(dir, "2")
	for _, d := range []string{first, second} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	started(t, r, first)
	if e := ended(t, first); e.Exit != 5 || e.Written == nil || e.Written.Stdout != 1000000 {
		t.Errorf("%+v", e)
	}
	if s, err := ReadStream(first, Stdout); err != nil || s.Size == 0 || s.Size >= 1000000 {
		t.Errorf("%d bytes kept, %v", s.Size, err)
	}
	if err := WriteRun(second, r); err == nil { // the output of the first has filled the disk
		t.Error("run.json was written")
	}
	if err := Start(second); err == nil {
		t.Error("started")
	}
	if _, err := os.Stat(filepath.Join(second, "started")); !missing(err) {
		t.Error("the command was started")
	}
}

// F255: a command that takes more memory than its cgroup has is killed by the kernel, and the exit record says so.
func TestOutOfMemoryIsRecorded(t *testing.T) {
	r, dir := aRun(t, time.Minute, `exec tail -c 500000000 /dev/zero`)
	r.Cgroup = aCgroup(t)
	if _, err := os.Stat(filepath.Join(r.Cgroup, "memory.max")); err != nil {
		// The controller may be free here, and only not be handed down.
		for dir := filepath.Dir(r.Cgroup); dir != "/" && dir != "."; dir = filepath.Dir(dir) {
			_ = writeCgroup(dir, "cgroup.subtree_control", "+memory")
		}
	}
	if err := writeCgroup(r.Cgroup, "memory.max", "33554432"); err != nil {
		t.Skipf("NOT TESTED: the controller for memory of cgroups of version 2 is not available here: %v", err)
	}
	_ = writeCgroup(r.Cgroup, "memory.swap.max", "0") // missing without swap
	started(t, r, dir)
	if e := ended(t, dir); !e.OOM || e.Signal != "KILL" || e.Cause != "" {
		t.Errorf("%+v", e)
	}
}

func TestOutOfMemoryIsReadFromTheCgroup(t *testing.T) {
	dir := t.TempDir()
	write := func(s string) {
		if err := os.WriteFile(filepath.Join(dir, "memory.events"), []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if outOfMemory(dir) {
		t.Error("without a file")
	}
	if write("low 0\nhigh 0\noom 3\noom_kill 0\n"); outOfMemory(dir) {
		t.Error("nothing was killed")
	}
	if write("low 0\nhigh 0\noom 3\noom_kill 1\n"); !outOfMemory(dir) {
		t.Error("the kill is not seen")
	}
}

func TestCgroupDir(t *testing.T) {
	const pure = "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n"
	const hybrid = "30 23 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n31 23 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
	const nested = "30 23 0:26 /pod /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
	for _, c := range []struct{ mounts, own, want string }{
		{pure, "0::/system.slice/perdure.service\n", "/sys/fs/cgroup/system.slice/perdure.service"},
		{pure, "0::/\n", "/sys/fs/cgroup"},
		{hybrid, "4:memory:/a\n0::/b\n", "/sys/fs/cgroup/unified/b"},
		{nested, "0::/pod/x\n", "/sys/fs/cgroup/x"},
		{nested, "0::/../x\n", ""},
		{"", "0::/x\n", ""},
		{pure, "4:memory:/a\n", ""},
	} {
		if got, err := cgroupDir(c.mounts, c.own); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%q: %q, %v", c.own, got, err)
		}
	}
}

func patient() time.Duration { return callPatience }
