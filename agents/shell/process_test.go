//go:build unix

package shell

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// awaitExit waits until a process has ended.
func awaitExit(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if dead(pid) {
			return
		}
	}
	t.Errorf("process %d lives on", pid)
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

// dead reports whether a process has ended; a zombie that has not been reaped counts as ended.
func dead(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(after, "Z") || strings.HasPrefix(after, "X")
}

// pidsIn waits until a file contains n process ids, one a line, and returns them.
func pidsIn(t *testing.T, path string, n int) (pids []int) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		b, _ := os.ReadFile(path)
		if fields := strings.Fields(string(b)); len(fields) >= n && strings.HasSuffix(string(b), "\n") {
			for _, f := range fields {
				pid, err := strconv.Atoi(f)
				if err != nil {
					t.Fatal(err)
				}
				pids = append(pids, pid)
			}
			return pids
		}
	}
	t.Fatalf("%s: no %d process numbers", path, n)
	return nil
}

// processTree starts three processes: the program, a child and a grandchild. They ignore SIGTERM if the prelude says so.
// Their process ids are in $PIDS.
const processTree = `
%s
(
  (echo $(cut -d' ' -f4 < /proc/self/stat) >> "$PIDS"; exec sleep 300) &
  echo $(cut -d' ' -f4 < /proc/self/stat) >> "$PIDS"
  sleep 300
) &
echo $$ >> "$PIDS"
sleep 300 &
wait; wait
`

func startsProcessTree(t *testing.T, prelude string) (input m, pids string) {
	pids = filepath.Join(t.TempDir(), "pids")
	input = sh(fmt.Sprintf(processTree, prelude))
	input["env"] = m{"PIDS": pids}
	return input, pids
}

// F051: at the end of its time the whole process group is killed, also if it ignores SIGTERM, and early enough to report
// it (F041).
func TestTimeoutKillsTheProcessGroup(t *testing.T) {
	for name, prelude := range map[string]string{"heeds TERM": "", "ignores TERM": "trap '' TERM"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ends := func(within time.Duration) (wrong string) {
				input, path := startsProcessTree(t, prelude)
				began := time.Now()
				_, err := execute(t, within, input)
				duration := time.Since(began)
				for _, pid := range pidsIn(t, path, 3) {
					awaitExit(t, pid)
				}
				if verdict(err) != "failed timeout" || duration >= within {
					return fmt.Sprintf("%s after %s: %v", verdict(err), duration, err)
				}
				return ""
			}
			wrong := ends(3 * time.Second)
			for within := 6 * time.Second; wrong != "" && within < 30*time.Second; within *= 2 { // on a machine that stalls this may be too late
				wrong = ends(within)
			}
			if wrong != "" {
				t.Error(wrong)
			}
		})
	}
}

// F051: a run that is cut short receives SIGTERM, and SIGKILL a little later. Exit 0 is no success then.
func TestRunThatIsCutShortGetsSIGTERMThenSIGKILL(t *testing.T) {
	for name, c := range map[string]struct {
		prelude string
		cause   error
	}{
		"heeds TERM":                   {"trap 'exit 0' TERM", errors.New("draining")},
		"ignores TERM":                 {"trap '' TERM", errors.New("draining")},
		"the time is up: KILL at once": {"trap 'sleep 5; touch $PIDS.term' TERM", context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			input, path := startsProcessTree(t, c.prelude)
			b, _ := json.Marshal(input)
			ctx, cancel := context.WithCancelCause(t.Context())
			ended := make(chan error, 1)
			go func() {
				_, err := New(Config{Grace: 200 * time.Millisecond}).Execute(ctx, aRun(string(b)))
				ended <- err
			}()
			pids := pidsIn(t, path, 3)
			cancel(c.cause)
			if err := <-ended; !errors.Is(err, c.cause) {
				t.Errorf("error %v", err)
			}
			for _, pid := range pids {
				awaitExit(t, pid)
			}
		})
	}
}

// F051: processes that a program leaves in its group are killed, and do not delay the run.
func TestProcessesLeftInTheGroupAreKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pids")
	input := sh(`sleep 300 & echo $! > "$PIDS"; echo '{"ok":true}'`)
	input["env"] = m{"PIDS": path}
	began := time.Now()
	out, err := execute(t, time.Minute, input)
	if err != nil || strings.TrimSpace(out) != `{"ok":true}` || time.Since(began) > 30*time.Second {
		t.Errorf("%s, %v after %s", out, err, time.Since(began))
	}
	awaitExit(t, pidsIn(t, path, 1)[0])
}

// F051: processes that have left the group go on. If they keep stdout open, they do not delay the run for long.
func TestDaemonsSurviveAndDelayNoRun(t *testing.T) {
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("no setsid here")
	}
	path := filepath.Join(t.TempDir(), "pids")
	input := sh(`setsid sh -c 'echo $$ > "$PIDS"; exec sleep 300' & while [ ! -s "$PIDS" ]; do sleep 0.01; done; echo started`)
	input["env"] = m{"PIDS": path}
	began := time.Now()
	out, err := execute(t, time.Minute, input)
	if err != nil || out != `{"stdout":"started\n"}` || time.Since(began) > 30*time.Second {
		t.Errorf("%s, %v after %s", out, err, time.Since(began))
	}
	pid := pidsIn(t, path, 1)[0]
	if dead(pid) {
		t.Error("the daemon was killed")
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

// F051: too much output on stdout ends the run. Too much on stderr is discarded.
func TestOutputIsBounded(t *testing.T) {
	_, err := execute(t, time.Minute, sh("yes"))
	if verdict(err) != "failed outputTooLarge" {
		t.Errorf("stdout: %s: %v", verdict(err), err)
	}
	_, err = execute(t, time.Minute, sh("head -c 20000000 /dev/zero >&2; echo end >&2; exit 1"))
	if verdict(err) != "failed exit_1" || !strings.HasSuffix(err.Error(), "end") {
		t.Errorf("stderr: %s", verdict(err))
	}
	// At the bound, and one byte above it.
	if out, err := execute(t, time.Minute, sh(fmt.Sprintf("head -c %d /dev/zero | tr '\\0' 1", MaxStdout))); err != nil || len(out) != MaxStdout {
		t.Errorf("at the bound: %d bytes, %v", len(out), err)
	}
	if _, err := execute(t, time.Minute, sh(fmt.Sprintf("head -c %d /dev/zero | tr '\\0' 1", MaxStdout+1))); verdict(err) != "failed outputTooLarge" {
		t.Errorf("over the bound: %s", verdict(err))
	}
}

// Many programs at once leave no descriptor, zombie or goroutine, and each run gets its own output.
func TestManyProgramsLeakNothing(t *testing.T) {
	a := New(Config{})
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for j := range 12 {
				want := fmt.Sprintf("%d", i*100+j)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				out, err := a.Execute(ctx, aRun(`{"command": ["echo", `+want+`]}`))
				cancel()
				if err != nil || strings.TrimSpace(string(out)) != want {
					t.Errorf("%s, %v", out, err)
				}
			}
		})
	}
	all.Wait()
	groups.mu.Lock()
	defer groups.mu.Unlock()
	if len(groups.live) != 0 {
		t.Errorf("groups %v are still watched", groups.live)
	}
}

// beNode makes this test binary a node: it executes the input that it is given, and never ends by itself.
func beNode() {
	a := New(Config{})
	go func() {
		_, err := a.Execute(context.Background(), &perdure.Run{Input: json.RawMessage(os.Getenv("PERDURE_TEST_NODE"))})
		fmt.Println("ended:", err)
	}()
	select {}
}

// F052, F116: the node is killed with SIGKILL. Its program is killed, and so are the program's children, whether or not
// they ignore SIGTERM.
func TestKillingTheNodeKillsItsPrograms(t *testing.T) {
	input, path := startsProcessTree(t, "trap '' TERM HUP INT")
	b, _ := json.Marshal(input)
	node := exec.Command(os.Args[0])
	node.Env = append(os.Environ(), "PERDURE_TEST_NODE="+string(b))
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Process.Kill() })
	pids := pidsIn(t, path, 3)
	for _, pid := range pids {
		if dead(pid) {
			t.Errorf("process %d is dead already", pid)
		}
	}
	helper := reaperOf(t, node.Process.Pid)
	_ = node.Process.Kill()
	_ = node.Wait()
	for _, pid := range append(pids, helper) {
		awaitExit(t, pid)
	}
}

// F052: the reaper is killed. The next start has a new reaper, which has the groups of the earlier one.
func TestKilledReaperIsReplaced(t *testing.T) {
	input, path := startsProcessTree(t, "")
	b, _ := json.Marshal(input)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = New(Config{}).Execute(ctx, aRun(string(b)))
	}()
	pids := pidsIn(t, path, 3)
	old := reaperOf(t, os.Getpid())
	_ = syscall.Kill(old, syscall.SIGKILL)
	awaitExit(t, old)
	if _, err := execute(t, time.Minute, sh("true")); err != nil {
		t.Fatal(err)
	}
	if now := reaperOf(t, os.Getpid()); now == old {
		t.Error("no other helper")
	}
	for _, pid := range pids {
		if dead(pid) {
			t.Errorf("process %d died with the helper", pid)
		}
	}
	cancel()
	<-ended
	for _, pid := range pids {
		awaitExit(t, pid)
	}
}

// reaperOf returns the process id of a process's reaper.
func reaperOf(t *testing.T, parent int) int {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=,args=").Output()
		if err != nil {
			t.Skip("no ps here")
		}
		for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
			var pid, ppid int
			var args string
			if _, err := fmt.Sscan(lines.Text(), &pid, &ppid, &args); err == nil && ppid == parent && args == "perdure-reaper" && !dead(pid) {
				return pid
			}
		}
	}
	t.Fatalf("process %d has no helper", parent)
	return 0
}

// BenchmarkStart measures one program, from its start to its end.
func BenchmarkStart(b *testing.B) {
	a := New(Config{})
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := a.Execute(context.Background(), aRun(`{"command": ["/bin/true"]}`)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
