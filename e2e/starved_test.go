package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// F127: nobody reads what the node logs, and the pipe is full. It does its work, and ends when it is told to.
func TestLogThatNobodyReads(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	fd := int(w.Fd()) // once: it makes the file a blocking one
	if err := syscall.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = syscall.Write(fd, []byte(strings.Repeat("x", 1<<10)))
	}
	if err := syscall.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	addr := freeAddress(t)
	url, dir := "http://"+addr, t.TempDir()
	cmd := exec.Command(perdure, "serve", "--listen", addr, "--store", "sqlite:"+filepath.Join(dir, "perdure.db"), "--agents", "shell", "--log-level", "debug")
	cmd.Stderr = w
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	eventually(t, "the node is ready", func() bool { return ready(url) })
	job := filepath.Join(dir, "job.yaml")
	if err := os.WriteFile(job, []byte("type: t\nsteps:\n  a: {agent: shell, with: {command: [\"true\"]}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		must(t, "submit", job, "--wait", "--timeout", "1m", "--server", url)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("it ends with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("it does not end")
	}
}

// F128: more connections come than the node has file handles for. Who was there before is still answered, and
// so is everybody once they have gone.
func TestNoFileHandles(t *testing.T) {
	addr := freeAddress(t)
	url, dir := "http://"+addr, t.TempDir()
	cmd := exec.Command("sh", "-c", `ulimit -n 64; exec "$0" "$@"`, perdure, "serve", "--listen", addr,
		"--store", "sqlite:"+filepath.Join(dir, "perdure.db"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	eventually(t, "the node is ready", func() bool { return ready(url) })
	job := filepath.Join(dir, "job.yaml")
	if err := os.WriteFile(job, []byte("type: t\nsteps:\n  a: {agent: sleep, with: {for: 1ms}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var crowd []net.Conn
	for range 200 {
		c, err := net.DialTimeout("tcp", addr, 10*time.Second)
		if err != nil {
			break // the queue of the system is full, too
		}
		crowd = append(crowd, c)
	}
	if len(crowd) < 64 {
		t.Fatalf("%d connections", len(crowd))
	}
	eventually(t, "there is no room for one more", func() bool { return handles(t, cmd.Process.Pid) >= 60 && !ready(url) })
	for _, c := range crowd {
		c.Close()
	}
	eventually(t, "the node answers again", func() bool { return ready(url) })
	must(t, "submit", job, "--wait", "--timeout", "1m", "--server", url)
}

func handles(t *testing.T, pid int) int {
	t.Helper()
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}
