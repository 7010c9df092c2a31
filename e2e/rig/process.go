// Package rig is shared by the tests that check grids of real processes from outside. It has processes, proxies between
// them, small disks, and a load of jobs whose acknowledgements are compared with the state at the end.
package rig

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// program is the perdure under test.
var program string

// Program returns its path.
func Program() string { return program }

// Main builds perdure and runs a package's tests.
func Main(m *testing.M) {
	remove := Build()
	code := m.Run()
	remove()
	os.Exit(code)
}

// Build builds perdure in a directory of its own.
func Build() (remove func()) {
	dir, err := os.MkdirTemp("", "perdure-rig-")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "perdure")
	build := exec.Command("go", "build", "-o", program, "github.com/perdure/perdure/cmd/perdure")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%s\n%v\n", out, err)
		os.Exit(1)
	}
	return func() { _ = os.RemoveAll(dir) }
}

// Process is a `perdure` of the grid.
type Process struct {
	Name string
	Args []string
	Log  Tail

	mu   sync.Mutex
	cmd  *exec.Cmd
	over chan struct{} // closed when the present process has ended
	bad  []string      // exits that the test has not caused
	dead bool          // the test has killed or stopped it
	last bool          // it is not started again
}

// Start starts it.
func (m *Process) Start() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	cmd := exec.Command(program, m.Args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stdout, cmd.Stderr = &m.Log, &m.Log
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	m.cmd, m.over, m.dead = cmd, exited, false
	go func() {
		err := cmd.Wait()
		m.mu.Lock()
		if !m.dead && !m.last {
			m.bad = append(m.bad, fmt.Sprintf("%s ended by itself: %v", m.Name, err))
		}
		m.mu.Unlock()
		close(exited)
	}()
	return nil
}

// End sends a signal and waits until the process has gone.
func (m *Process) End(sig syscall.Signal) {
	m.mu.Lock()
	m.dead = true
	exited := m.over
	_ = m.cmd.Process.Signal(sig)
	m.mu.Unlock()
	select {
	case <-exited:
	case <-time.After(30 * time.Second):
		m.mu.Lock()
		m.bad = append(m.bad, fmt.Sprintf("%s did not end within 30s of %v", m.Name, sig))
		_ = m.cmd.Process.Kill()
		m.mu.Unlock()
		<-exited
	}
}

// Revive starts it again if it has ended.
func (m *Process) Revive() error {
	m.mu.Lock()
	exited := m.over
	m.mu.Unlock()
	select {
	case <-exited:
		return m.Start()
	default:
		return nil
	}
}

// Signal sends a signal.
func (m *Process) Signal(sig syscall.Signal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_ = m.cmd.Process.Signal(sig)
}

// Tail keeps the end of a log.
type Tail struct {
	mu  sync.Mutex
	buf []byte
}

func (l *Tail) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, b...)
	if len(l.buf) > 64<<10 {
		l.buf = bytes.Clone(l.buf[len(l.buf)-32<<10:])
	}
	return len(b), nil
}

func (l *Tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.buf[max(0, len(l.buf)-6000):])
}

// Dismiss stops it, and it is not started again.
func (m *Process) Dismiss() {
	m.mu.Lock()
	m.last = true
	started := m.cmd != nil
	m.mu.Unlock()
	if started {
		m.Signal(syscall.SIGCONT)
		m.End(syscall.SIGKILL)
	}
}

// Bad returns the exits that the test has not caused.
func (m *Process) Bad() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.bad)
}

// patience is how long a node may take to start, on a machine that does other work.
const patience = 3 * time.Minute

// Ready waits until a node accepts work.
func Ready(t testing.TB, url string) {
	t.Helper()
	c := http.Client{Timeout: 5 * time.Second}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if resp, err := c.Get(url + "/readyz"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
	}
	t.Fatalf("%s is not ready within %v", url, patience)
}

// FreeAddress returns an address at which nothing listens.
func FreeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// SmallDisk mounts a disk of this size at a directory. This needs root; otherwise it returns false.
func SmallDisk(t testing.TB, at, size string) bool {
	if os.Mkdir(at, 0o755) != nil || exec.Command("mount", "-t", "tmpfs", "-o", "mode=1777,size="+size, "tmpfs", at).Run() != nil {
		return false
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", at).Run() })
	return true
}
