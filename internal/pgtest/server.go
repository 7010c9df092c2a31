package pgtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Server is the server of one test, which can stop, freeze and start it.
type Server struct {
	URL string // of an empty database
	s   *server
	t   testing.TB
}

// NewServer starts a server for this test alone. durable makes it sync to disk. settings ("name=value") override the
// common ones.
func NewServer(t testing.TB, durable bool, settings ...string) *Server {
	t.Helper()
	return startServer(t, durable, nil, settings...)
}

// NewServerWithClock starts a server whose clock can be set as an offset from the machine's clock. The offset takes
// effect within a few milliseconds. The test is skipped if libfaketime is not installed.
func NewServerWithClock(t testing.TB) (s *Server, set func(time.Duration)) {
	t.Helper()
	library, _ := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	if len(library) == 0 {
		t.Skip("pgtest: no libfaketime")
	}
	file, err := os.CreateTemp("", "perdure-clock-") // not below t.TempDir(), which another user cannot enter
	if err != nil {
		t.Fatal(err)
	}
	file.Close()
	t.Cleanup(func() { os.Remove(file.Name()) })
	set = func(by time.Duration) {
		t.Helper()
		if err := os.WriteFile(file.Name(), fmt.Appendf(nil, "%+f\n", by.Seconds()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set(0)
	if err := os.Chmod(file.Name(), 0o644); err != nil {
		t.Fatal(err)
	}
	return startServer(t, false, []string{"LD_PRELOAD=" + library[0], "FAKETIME_TIMESTAMP_FILE=" + file.Name(), "FAKETIME_NO_CACHE=1",
		"FAKETIME_DONT_FAKE_MONOTONIC=1", "DONT_FAKE_MONOTONIC=1"}), set
}

func startServer(t testing.TB, durable bool, env []string, settings ...string) *Server {
	t.Helper()
	s, err := newServer(durable, env, settings...)
	if err != nil {
		missing(t, err)
	}
	t.Cleanup(func() { s.clean(t) })
	return &Server{URL: s.url, s: s, t: t}
}

// Stop ends the server; with kill, without a shutdown.
func (s *Server) Stop(kill bool) {
	s.t.Helper()
	word := "fast"
	if kill {
		word = "kill"
	}
	if err := s.s.stop(word); err != nil {
		s.t.Fatalf("pgtest: %v", err)
	}
}

// Start starts a stopped server again, with the same data and port.
func (s *Server) Start() {
	s.t.Helper()
	if err := s.s.start(); err != nil {
		s.t.Fatalf("pgtest: %v", err)
	}
}

// Freeze stops all of the server's processes (SIGSTOP), and Thaw continues them.
func (s *Server) Freeze() { s.s.signal(syscall.SIGSTOP) }
func (s *Server) Thaw()   { s.s.signal(syscall.SIGCONT) }

// Copy starts a standby with what this server has now. It does not receive later commits.
func (s *Server) Copy() *Server { return s.copy("") }

// Standby starts a standby that follows this server, with a name for synchronous_standby_names. It reaches this server
// at addr.
func (s *Server) Standby(name, addr string) *Server {
	s.t.Helper()
	return s.copy(conninfo(name, addr))
}

func conninfo(name, addr string) string {
	host, port, _ := net.SplitHostPort(addr)
	return fmt.Sprintf("host=%s port=%s user=postgres application_name=%s", host, port, name)
}

// Follow makes a standby follow another server.
func (s *Server) Follow(name, addr string) {
	s.t.Helper()
	for _, sql := range []string{"alter system set primary_conninfo = '" + conninfo(name, addr) + "'", "select pg_reload_conf()"} {
		if err := admin(s.URL, sql); err != nil {
			s.t.Fatalf("pgtest: %v", err)
		}
	}
}

// Addr returns the address of the server.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.s.port)) }

// Remove stops the server, in any state, and removes its files.
func (s *Server) Remove() { s.s.remove() }

func (s *Server) copy(conninfo string) *Server {
	s.t.Helper()
	c, err := s.s.copy(conninfo)
	if err != nil {
		s.t.Fatalf("pgtest: %v", err)
	}
	s.t.Cleanup(func() { c.clean(s.t) })
	return &Server{URL: c.url, s: c, t: s.t}
}

// Promote makes a standby the primary of a timeline of its own.
func (s *Server) Promote() {
	s.t.Helper()
	if err := admin(s.URL, "select pg_promote()"); err != nil {
		s.t.Fatalf("pgtest: %v", err)
	}
}

// server is a postgres process under a shell that reads a pipe from this process. When the pipe breaks because the
// process has ended in any way, the shell kills the server and removes its files.
type server struct {
	bin, dir string
	port     int
	durable  bool
	settings []string // options of the command line, which copies have, too
	options  []string // further options of the command line
	env      []string // of its own
	url      string
	cred     *syscall.Credential // PostgreSQL refuses to run as root
	cmd      *exec.Cmd
	watch    io.WriteCloser
	removed  bool
}

// keeper is the program of that shell: $1 is the directory, the rest is the server's command line. If the process dies
// while the server is frozen, the kernel sends SIGHUP (an orphaned group with a stopped member).
const keeper = `
trap : HUP
dir=$1; shift
"$@" </dev/null & pid=$!
word=gone; read -r word
case "$word" in
fast) kill -INT $pid; wait $pid ;;
kill) kill -QUIT $pid; wait $pid ;;
*) kill -CONT 0; kill -QUIT $pid; wait $pid; rm -rf "$dir" ;;
esac
`

func newServer(durable bool, env []string, settings ...string) (*server, error) {
	s, err := newDirectory(durable)
	if err != nil {
		return nil, err
	}
	s.env = env
	initdb := s.command(filepath.Join(s.bin, "initdb"), "--no-sync", "--auth=trust", "--username=postgres",
		"--encoding=UTF8", "--locale=C", "--pgdata="+s.data())
	s.settings = asOptions(settings)
	if err := s.create(initdb, s.settings...); err != nil {
		return nil, err
	}
	return s, nil
}

func asOptions(settings []string) (options []string) {
	for _, set := range settings {
		options = append(options, "-c", set)
	}
	return options
}

func (s *server) copy(conninfo string) (*server, error) {
	c, err := newDirectory(s.durable)
	if err != nil {
		return nil, err
	}
	c.settings = s.settings
	from, options := conninfo, s.settings
	if conninfo == "" {
		from, options = s.url, slices.Concat(s.settings, []string{"-c", "primary_conninfo="})
	}
	backup := c.command(filepath.Join(c.bin, "pg_basebackup"), "--no-sync", "--checkpoint=fast", "--wal-method=stream",
		"--dbname="+from, "--pgdata="+c.data(), "--write-recovery-conf")
	if err := c.create(backup, options...); err != nil {
		return nil, err
	}
	return c, nil
}

func newDirectory(durable bool) (*server, error) {
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	s := &server{bin: bin, durable: durable}
	if s.cred, err = unprivileged(); err != nil {
		return nil, err
	}
	parent := ""
	if !durable {
		parent = RAMDisk()
	}
	if s.dir, err = os.MkdirTemp(parent, "perdure-pg-"); err != nil {
		return nil, err
	}
	if s.cred != nil {
		if err := os.Chown(s.dir, int(s.cred.Uid), int(s.cred.Gid)); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// leastRAMDisk is the free space from which on tests use a file system in memory.
const leastRAMDisk = 4 << 30

// RAMDisk returns a directory in memory for files that need not survive, if the machine has one with enough space; else "", the
// default for temporary files. There, a database is created several times as fast as on a disk.
func RAMDisk() string {
	const shared = "/dev/shm"
	var fs syscall.Statfs_t
	if syscall.Statfs(shared, &fs) != nil || fs.Bavail*uint64(fs.Bsize) < leastRAMDisk {
		return ""
	}
	return shared
}

// create makes the data directory by a program, and starts the server on a free port.
func (s *server) create(make *exec.Cmd, options ...string) (err error) {
	s.options = options
	defer func() {
		if err != nil {
			os.RemoveAll(s.dir)
		}
	}()
	if out, err := make.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", make.Path, err, out)
	}
	for range 3 { // another process may take the port first
		if s.port, err = freePort(); err != nil {
			return err
		}
		s.url = fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", s.port)
		if err = s.start(); err == nil {
			return nil
		}
	}
	return err
}

func (s *server) data() string { return filepath.Join(s.dir, "data") }
func (s *server) log() string  { return filepath.Join(s.dir, "log") }

func (s *server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = s.dir
	// The test may have changed PATH, and the keeper needs rm.
	cmd.Env = append(os.Environ(), "PATH=/usr/bin:/bin:"+os.Getenv("PATH"))
	cmd.Env = append(cmd.Env, s.env...)
	// A group of its own, so that the terminal's interrupt ends the tests first.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred, Setpgid: true}
	return cmd
}

func (s *server) start() error {
	args := []string{"-c", keeper, "keeper", s.dir, filepath.Join(s.bin, "postgres"), "-D", s.data(),
		"-p", strconv.Itoa(s.port), "-k", s.dir, "-c", "listen_addresses=127.0.0.1",
		"-c", "max_connections=200", "-c", "shared_buffers=64MB", "-c", "max_wal_size=256MB"}
	if !s.durable {
		args = append(args, "-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off")
	}
	args = append(args, s.options...)
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	s.cmd = s.command("/bin/sh", args...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if s.watch, err = s.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	if err := s.await(); err != nil {
		_ = s.stop("kill")
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("postgres does not start: %w\n%s", err, text)
	}
	return nil
}

// await waits until the server answers.
func (s *server) await() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		var conn *pgx.Conn
		if conn, err = pgx.Connect(ctx, s.url); err == nil {
			return conn.Close(ctx)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

func (s *server) stop(word string) error {
	s.signal(syscall.SIGCONT)
	if _, err := io.WriteString(s.watch, word+"\n"); err != nil {
		return err
	}
	s.watch.Close()
	var exit *exec.ExitError
	if err := s.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return err
	}
	return nil
}

// clean removes the server at the end of a test. If the test has failed, it logs the end of the server's log.
func (s *server) clean(t testing.TB) {
	if t.Failed() && !s.removed {
		text, _ := os.ReadFile(s.log())
		t.Logf("the log of PostgreSQL at port %d ends with:\n%s", s.port, text[max(0, len(text)-shownLog):])
	}
	s.remove()
}

// shownLog is how many bytes of a server's log a failed test shows.
const shownLog = 8 << 10

func (s *server) remove() {
	if s.removed {
		return
	}
	s.removed = true
	s.signal(syscall.SIGCONT)
	s.watch.Close()
	_ = s.cmd.Wait()
	os.RemoveAll(s.dir)
}

// signal sends a signal to the server and to each of its processes, because each leads a group of its own.
func (s *server) signal(sig syscall.Signal) {
	for _, pid := range children(s.cmd.Process.Pid) {
		_ = syscall.Kill(pid, sig)
		for _, backend := range children(pid) {
			_ = syscall.Kill(backend, sig)
		}
	}
}

// children returns the processes whose parent is pid (Linux).
func children(pid int) (pids []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		var child, parent int
		var state string
		// pid (name) state ppid …; the name may contain blanks.
		end := len(text) - 1
		for end > 0 && text[end] != ')' {
			end--
		}
		if n, _ := fmt.Sscan(string(text[end+1:]), &state, &parent); n == 2 && parent == pid {
			if child, err = strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

// programs returns the newest directory that contains initdb and postgres.
func programs() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real // a symbolic link's directory may not contain the others
		}
		if dir := filepath.Dir(path); executable(filepath.Join(dir, "postgres")) {
			return dir, nil
		}
	}
	best, version := "", 0
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	for _, dir := range dirs {
		v, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
		if v > version && executable(filepath.Join(dir, "initdb")) && executable(filepath.Join(dir, "postgres")) {
			best, version = dir, v
		}
	}
	if best == "" {
		return "", errors.New("no PostgreSQL on this machine")
	}
	return best, nil
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&0o111 != 0
}

// unprivileged returns another user than root, if the tests run as root.
func unprivileged() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is no user postgres or nobody")
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
