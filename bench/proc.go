package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// keeper is a shell that starts a program and ends it when the pipe from this process breaks, in whatever
// way this process has ended. $1 is the signal, $2 a directory to remove then, the rest the program.
const keeper = `
trap : HUP INT TERM
end=$1; dir=$2; shift 2
"$@" </dev/null & pid=$!
read -r word
kill -"$end" $pid 2>/dev/null
wait $pid
[ -z "$dir" ] || rm -rf "$dir"
`

// child is a program that does not outlive this process.
type child struct {
	cmd  *exec.Cmd
	pipe io.Closer
	log  string
}

type program struct {
	path   string
	args   []string
	env    []string
	dir    string // where it runs
	log    string // where its output goes
	end    string // the signal that ends it; "": KILL
	remove string // a directory that goes with it
	cred   *syscall.Credential
}

func start(p program) (*child, error) {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	end := p.end
	if end == "" {
		end = "KILL"
	}
	cmd := exec.Command("/bin/sh", append([]string{"-c", keeper, "keeper", end, p.remove, p.path}, p.args...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, log, log
	cmd.Env = append(os.Environ(), p.env...)
	// A group of its own, so that the terminal's interrupt comes to this process alone.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.cred, Setpgid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &child{cmd: cmd, pipe: pipe, log: p.log}, nil
}

// stop ends the program and waits until it is gone.
func (c *child) stop() {
	if c == nil {
		return
	}
	_ = c.pipe.Close()
	over := make(chan struct{})
	go func() { _ = c.cmd.Wait(); close(over) }()
	select {
	case <-over:
	case <-time.After(20 * time.Second):
		_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
	}
}

// tail is the end of what the program has written.
func (c *child) tail() string {
	b, _ := os.ReadFile(c.log)
	if len(b) > 600 {
		b = b[len(b)-600:]
	}
	return strings.TrimSpace(string(b))
}

// await asks until the answer is no error, within a bound.
func await(ctx context.Context, within time.Duration, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %v: %w", within, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func dialable(addr string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err
	}
}

// freePort is below the ports that the system assigns to clients, so no other process takes it in between. A program
// that keeps ports as 16 bits with a sign can use it.
func freePort() (int, error) {
	var err error
	for range 100 {
		var l net.Listener
		port := 20_000 + rand.N(12_000)
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			l.Close()
			return port, nil
		}
	}
	return 0, err
}

// unprivileged is another user than root where this is run by root: PostgreSQL refuses root.
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

// usage is what processes have used so far: processor time in seconds, resident memory in bytes.
type usage struct {
	cpu float64
	rss int64
}

// usageOf reads a process of Linux.
func usageOf(pid int) (u usage) {
	if f := statOf(pid); len(f) > 13 {
		ticks, _ := strconv.ParseFloat(f[11], 64)
		more, _ := strconv.ParseFloat(f[12], 64)
		u.cpu = (ticks + more) / 100 // USER_HZ
	}
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			u.rss = kib << 10
		}
	}
	return u
}

// treeCPU is the processor time of a process, of its children, and of those that have ended and were
// waited for.
func treeCPU(pid int) (cpu float64) {
	f := statOf(pid)
	if len(f) < 16 {
		return 0
	}
	for _, field := range f[11:15] { // utime stime cutime cstime
		ticks, _ := strconv.ParseFloat(field, 64)
		cpu += ticks / 100
	}
	for _, c := range childrenOf(pid) {
		cpu += treeCPU(c)
	}
	return cpu
}

// statOf are the fields of /proc/PID/stat from the state on: the name before may hold blanks.
func statOf(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	s := string(b)
	return strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
}

func childrenOf(pid int) (pids []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		b, _ := os.ReadFile(list)
		for f := range strings.FieldsSeq(string(b)) {
			if n, err := strconv.Atoi(f); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return pids
}
