//go:build unix

package shell

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// reaperMark is in the environment of a reaper, and of no other process.
const reaperMark = "PERDURE_REAPER"

// MaybeReaper must be the first call in main. If it returns true, this process was a reaper whose work is done: main
// must return.
//
// A process that is killed with KILL cannot end the programs that it has started. So each process that runs programs has
// a helper, the reaper: the same binary, started with the first program, in a session of its own. The process sends the
// numbers of its process groups through a pipe. When the pipe breaks because the process has died, the reaper kills the
// groups that are left, with all their descendants. If main does not call MaybeReaper, or if no reaper can be started,
// the programs themselves still die on Linux, but not the processes that they have started.
func MaybeReaper() bool {
	if os.Getenv(reaperMark) == "" {
		groups.allow()
		return false
	}
	reap(os.Stdin)
	return true
}

// reap reads GROUP and -GROUP until the pipe breaks, and then kills the groups that are left.
func reap(from io.Reader) {
	// Signals that are meant for the process which this one observes are ignored: its end is noticed.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	left := map[int]bool{}
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		n, err := strconv.Atoi(lines.Text())
		switch {
		case err != nil:
		case n > 1:
			left[n] = true
		case n < -1:
			delete(left, -n)
		}
	}
	for n := range left {
		_ = syscall.Kill(-n, syscall.SIGKILL)
	}
}

// groups are the process groups that this process has started and that are not over.
var groups watched

type watched struct {
	mu       sync.Mutex
	allowed  bool // main calls MaybeReaper, so that this binary may be started again
	live     map[int]bool
	reaper   *reaper
	notUntil time.Time // after a failure
	lost     time.Time // when a reaper died last
	deaths   int       // number of deaths shortly one after another
}

// reaper is the helper, as this process sees it.
type reaper struct {
	pipe    *os.File
	process *os.Process
}

const (
	reaperPatience = time.Second      // a reaper that does not read for this long is replaced
	reaperRetry    = 10 * time.Second // after it could not be started, or has died too often
	reaperDeaths   = 5                // shortly one after another
)

func (w *watched) allow() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.allowed = true
}

// prepare makes sure that a reaper runs before there is a group for it.
func (w *watched) prepare() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reaper == nil {
		w.renew()
	}
}

func (w *watched) add(group int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.live == nil {
		w.live = map[int]bool{}
	}
	w.live[group] = true
	if w.reaper != nil && w.reaper.send(group) != nil {
		w.renew()
	}
}

func (w *watched) remove(group int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.live, group)
	if w.reaper != nil && w.reaper.send(-group) != nil {
		w.renew()
	}
}

// renew starts a reaper in place of one that has died or does not read, and sends it all groups.
func (w *watched) renew() {
	w.reaper.dismiss()
	w.reaper = nil
	if !w.allowed || time.Now().Before(w.notUntil) {
		return
	}
	r, err := startReaper()
	if err == nil {
		go func() {
			_, _ = r.process.Wait()
			w.ended(r)
		}()
		for group := range w.live {
			if err = r.send(group); err != nil {
				break
			}
		}
	}
	if err != nil {
		r.dismiss()
		w.notUntil = time.Now().Add(reaperRetry)
		return
	}
	w.reaper = r
}

// ended replaces a reaper that has died: groups that were sent to it last are lost without an error. If reapers die
// repeatedly, it waits for a while.
func (w *watched) ended(r *reaper) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reaper != r {
		return // it was ended by dismiss
	}
	now := time.Now()
	if now.Sub(w.lost) > reaperRetry {
		w.deaths = 0
	}
	w.lost = now
	if w.deaths++; w.deaths > reaperDeaths {
		w.notUntil = now.Add(reaperRetry)
	}
	w.renew()
}

// send sends one line. A pipe accepts so few bytes completely or not at all.
func (r *reaper) send(n int) error {
	_ = r.pipe.SetWriteDeadline(time.Now().Add(reaperPatience))
	_, err := r.pipe.Write(append(strconv.AppendInt(nil, int64(n), 10), '\n'))
	return err
}

// dismiss ends a reaper before its pipe breaks: otherwise it would kill running groups.
func (r *reaper) dismiss() {
	if r == nil {
		return
	}
	_ = r.process.Kill()
	_ = r.pipe.Close()
}

func startReaper() (*reaper, error) {
	binary := "/proc/self/exe" // the running binary, even if its file was replaced
	if runtime.GOOS != "linux" {
		var err error
		if binary, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	in, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	cmd := &exec.Cmd{
		Path:        binary,
		Args:        []string{"perdure-reaper"},
		Env:         []string{reaperMark + "=1", "GOMAXPROCS=1"},
		Dir:         "/",
		Stdin:       in,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return &reaper{pipe: out, process: cmd.Process}, nil
}
