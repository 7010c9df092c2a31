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

// MaybeReaper must be the first thing that main does. If it returns true, this process was a reaper,
// whose work is done: main returns.
//
// A process that is killed with KILL cannot end what it has started. So each process that runs
// programs has a helper: the same binary once more, started with the first program, in a session of
// its own. It is told of each process group through a pipe; when the pipe breaks, because the process
// has died however it died, it kills those that are left, with all grandchildren. Where main does
// not call MaybeReaper, or no helper can be started, the programs themselves still die on Linux,
// but what they have started does not.
func MaybeReaper() bool {
	if os.Getenv(reaperMark) == "" {
		groups.allow()
		return false
	}
	reap(os.Stdin)
	return true
}

// reap reads GROUP and -GROUP until the other end is gone, then kills the groups that are left.
func reap(from io.Reader) {
	// Whoever wants to end this process means the one that it watches over, and its end is seen.
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
	lost     time.Time // when a reaper died the latest,
	deaths   int       // and how many have, one soon after the other
}

// reaper is the helper, as this process sees it.
type reaper struct {
	pipe    *os.File
	process *os.Process
}

const (
	reaperPatience = time.Second      // a reaper that does not read for so long is replaced
	reaperRetry    = 10 * time.Second // after it could not be started, or has died too often
	reaperDeaths   = 5                // one soon after the other
)

func (w *watched) allow() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.allowed = true
}

// prepare sees to it that there is a reaper before there is a group for it.
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
	if w.reaper != nil && w.reaper.tell(group) != nil {
		w.renew()
	}
}

func (w *watched) remove(group int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.live, group)
	if w.reaper != nil && w.reaper.tell(-group) != nil {
		w.renew()
	}
}

// renew starts a reaper in the place of one that is gone or does not read, and tells it all there is
// to know.
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
			if err = r.tell(group); err != nil {
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

// ended replaces a reaper that has died: what was told to it in its last moment is lost, and no error says so. One
// that dies again and again is left alone for a while.
func (w *watched) ended(r *reaper) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reaper != r {
		return // it was dismissed
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

// tell writes one line. A pipe takes so little whole or not at all.
func (r *reaper) tell(n int) error {
	_ = r.pipe.SetWriteDeadline(time.Now().Add(reaperPatience))
	_, err := r.pipe.Write(append(strconv.AppendInt(nil, int64(n), 10), '\n'))
	return err
}

// dismiss ends a reaper before its pipe breaks: or it would kill what is alive and well.
func (r *reaper) dismiss() {
	if r == nil {
		return
	}
	_ = r.process.Kill()
	_ = r.pipe.Close()
}

func startReaper() (*reaper, error) {
	binary := "/proc/self/exe" // the binary that runs, even if another has taken its place since
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
