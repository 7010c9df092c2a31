package chaos

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"perdure/internal/pgtest"
)

const nodes = 3

// member is a process of the grid, which is started again when it has died.
type member struct {
	name string
	args []string
	env  []string

	mu   sync.Mutex
	cmd  *exec.Cmd
	over chan struct{} // closed when the present process has ended
	log  tail
	bad  []string // ends that were nobody's doing
	dead bool     // it was killed or told to end
	last bool     // it is not started again
}

func (m *member) start() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	cmd := exec.Command(perdure, m.args...)
	cmd.Env = append(os.Environ(), m.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stdout, cmd.Stderr = &m.log, &m.log
	if err := cmd.Start(); err != nil {
		return err
	}
	over := make(chan struct{})
	m.cmd, m.over, m.dead = cmd, over, false
	go func() {
		err := cmd.Wait()
		m.mu.Lock()
		if !m.dead && !m.last {
			m.bad = append(m.bad, fmt.Sprintf("%s ended by itself: %v", m.name, err))
		}
		m.mu.Unlock()
		close(over)
	}()
	return nil
}

// end sends a signal and waits until the process has gone.
func (m *member) end(sig syscall.Signal) {
	m.mu.Lock()
	m.dead = true
	over := m.over
	_ = m.cmd.Process.Signal(sig)
	m.mu.Unlock()
	select {
	case <-over:
	case <-time.After(30 * time.Second):
		m.mu.Lock()
		m.bad = append(m.bad, fmt.Sprintf("%s did not end within 30s of %v", m.name, sig))
		_ = m.cmd.Process.Kill()
		m.mu.Unlock()
		<-over
	}
}

// revive starts it again where it has ended.
func (m *member) revive() error {
	select {
	case <-m.over:
		return m.start()
	default:
		return nil
	}
}

func (m *member) signal(sig syscall.Signal) { _ = m.cmd.Process.Signal(sig) }

// tail keeps the end of a log.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (l *tail) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, b...)
	if len(l.buf) > 64<<10 {
		l.buf = bytes.Clone(l.buf[len(l.buf)-32<<10:])
	}
	return len(b), nil
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.buf[max(0, len(l.buf)-6000):])
}

// grid is three nodes on one PostgreSQL, each with a line of its own to it, and agents.
type grid struct {
	t      *testing.T
	pg     *pgtest.Server
	disk   string // of the database, small; "": the test may not make one
	clock  string // a file that sets the database's clock; "": there is no libfaketime
	urls   []string
	nodes  []*member
	agents []*member
	lines  []*proxy // from the nodes to the database
	ways   []*proxy // from the agents to the nodes
}

const diskSize = "450m"

func newGrid(t *testing.T) *grid {
	t.Helper()
	g := &grid{t: t}
	dir, err := os.MkdirTemp("", "perdure-grid-") // the database's user must get in
	g.must(err)
	g.must(os.Chmod(dir, 0o755))
	t.Cleanup(func() { os.RemoveAll(dir) })
	g.smallDisk(dir)
	g.fakeClock(dir)
	g.pg = pgtest.NewServer(t, true)
	g.clean()
	address := g.pg.URL[strings.Index(g.pg.URL, "@")+1 : strings.LastIndex(g.pg.URL, "/")]
	for i := range nodes {
		line := newProxy(t, address)
		g.lines = append(g.lines, line)
		addr := freeAddress(t)
		g.urls = append(g.urls, "http://"+addr)
		agents := "none"
		if i == 0 {
			agents = "http"
		}
		g.nodes = append(g.nodes, &member{name: fmt.Sprint("node ", i+1), args: []string{"serve", "--listen", addr, "--migrate",
			"--store", strings.Replace(g.pg.URL, address, line.addr, 1), "--agents", agents, "--allow-private-targets",
			"--grace", "3s", "--log-level", "warn"}})
	}
	for i := range 2 {
		way := newProxy(t, strings.TrimPrefix(g.urls[i+1], "http://"))
		g.ways = append(g.ways, way)
		g.agents = append(g.agents, &member{name: fmt.Sprint("agent ", i+1), args: []string{"agent", "--server", "http://" + way.addr,
			"--agents", "http", "--allow-private-targets", "--heartbeat", "1s", "--grace", "3s", "--log-level", "error"}})
	}
	t.Cleanup(func() {
		for _, m := range g.members() {
			m.last = true
			if m.cmd != nil {
				_ = m.cmd.Process.Signal(syscall.SIGCONT)
				m.end(syscall.SIGKILL)
			}
		}
	})
	for _, m := range g.nodes {
		g.must(m.start())
	}
	for _, url := range g.urls {
		g.ready(url)
	}
	for _, m := range g.agents {
		g.must(m.start())
	}
	return g
}

func (g *grid) members() []*member { return append(append([]*member{}, g.nodes...), g.agents...) }

func (g *grid) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// ready waits until a node takes work.
func (g *grid) ready(url string) {
	g.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if resp, err := http.Get(url + "/readyz"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
	}
	g.t.Fatalf("%s is not ready within a minute", url)
}

// smallDisk makes the database live on a disk that can be filled. That takes root.
func (g *grid) smallDisk(dir string) {
	at := filepath.Join(dir, "disk")
	if os.Mkdir(at, 0o755) != nil || exec.Command("mount", "-t", "tmpfs", "-o", "mode=1777,size="+diskSize, "tmpfs", at).Run() != nil {
		return
	}
	g.disk = at
	g.t.Cleanup(func() { _ = exec.Command("umount", "-l", at).Run() })
	g.t.Setenv("TMPDIR", at)
}

// fakeClock lets a file set the database's clock (libfaketime; PostgreSQL heeds it, a Go program does not).
func (g *grid) fakeClock(dir string) {
	found, _ := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	if len(found) == 0 {
		return
	}
	g.clock = filepath.Join(dir, "clock")
	g.setClock("+0")
	for name, value := range map[string]string{"LD_PRELOAD": found[0], "FAKETIME_TIMESTAMP_FILE": g.clock,
		"FAKETIME_CACHE_DURATION": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"} {
		g.t.Setenv(name, value)
	}
}

func (g *grid) setClock(offset string) { g.must(os.WriteFile(g.clock, []byte(offset+"\n"), 0o644)) }

// clean takes away what only the database should have inherited.
func (g *grid) clean() {
	g.must(os.Unsetenv("LD_PRELOAD"))
}

// database does something for which its environment is needed.
func (g *grid) database(do func()) {
	if g.clock != "" {
		found, _ := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
		g.must(os.Setenv("LD_PRELOAD", found[0]))
		defer g.clean()
	}
	do()
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
