package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/ledger"
	"github.com/perdure/perdure/operate"
)

// stage is the environment of a play: a store, a ledger, and processes of which one is killed.
type stage struct {
	ctx   context.Context
	end   context.CancelCauseFunc
	armed string // the binary
	store string
	dir   string
	kill  crash

	ledger *ledger.Ledger
	served *httptest.Server
	jobs   []expected
	bulks  []expectedBulk
	ends   []func()

	actors []*actor
}

// expected is how a job must end.
type expected struct {
	key   string
	done  bool
	steps []string
}

// expectedBulk is a bulk act that must be done, and the keys of the jobs on which it must have acted.
type expectedBulk struct {
	id string
	operate.BulkRequest
	jobs []string
}

func newStage(ctx context.Context, armed, store, dir string, k crash) *stage {
	s := &stage{armed: armed, store: store, dir: dir, kill: k, ledger: ledger.New()}
	s.ctx, s.end = context.WithCancelCause(ctx)
	s.served = httptest.NewServer(s.ledger)
	return s
}

func (s *stage) close() {
	s.end(nil)
	s.ledger.Open()
	for _, a := range s.actors {
		a.wg.Wait()
	}
	for _, end := range s.ends {
		end()
	}
	s.served.CloseClientConnections()
	s.served.Close()
}

// deaths returns how many processes were killed at the point, keepers of an armed host among them.
func (s *stage) deaths() int {
	b, _ := os.ReadFile(s.deathsFile())
	return bytes.Count(b, []byte("\n"))
}

func (s *stage) deathsFile() string { return filepath.Join(s.dir, "deaths") }

func (s *stage) logs() string {
	var b strings.Builder
	for _, a := range s.actors {
		fmt.Fprintf(&b, "--- %s\n%s\n", a.args[0], a.log.tail())
	}
	return b.String()
}

// actor is a process that is started again whenever it has died. The one to be killed is armed at its first start and at
// the start after its first death, so that it also dies while it recovers.
type actor struct {
	*stage
	args  []string
	armed bool
	log   record
	wg    sync.WaitGroup

	mu       sync.Mutex
	process  *os.Process
	starts   int
	leaving  bool // SIGTERM was sent
	stays    bool // the process that follows it is armed, too
	replaced chan struct{}
}

// begin starts an actor.
func (s *stage) begin(armed bool, args ...string) *actor {
	a := &actor{stage: s, args: args, armed: armed}
	s.actors = append(s.actors, a)
	a.wg.Go(func() {
		for s.ctx.Err() == nil {
			if err := a.live(); err != nil {
				s.end(fmt.Errorf("%s: %w", args[0], err))
			}
		}
	})
	return a
}

// live is one process, from its start to its end.
func (a *actor) live() error {
	cmd := exec.Command(a.binary(), a.args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stdout, cmd.Stderr = &a.log, &a.log
	cmd.Env = a.environment()
	if err := cmd.Start(); err != nil {
		return err
	}
	a.mu.Lock()
	a.starts++
	a.process = cmd.Process
	a.mu.Unlock()
	stop := context.AfterFunc(a.ctx, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait()
	stop()
	if a.ctx.Err() != nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	left := a.leaving
	if a.leaving {
		a.leaving, a.armed = false, a.armed && a.stays
		close(a.replaced)
	}
	switch status := cmd.ProcessState.Sys().(syscall.WaitStatus); {
	case status.Signaled() && status.Signal() == syscall.SIGKILL:
		return nil
	case left, // also if not all jobs were notified in time, which the exit code shows
		strings.Contains(a.log.tail(), "address is in use"),
		cmd.ProcessState.ExitCode() == storeAway && a.storeWasBusy():
		return nil
	}
	return fmt.Errorf("it ended by itself: %s", cmd.ProcessState)
}

// storeWasBusy reports whether the process ended because a slow machine kept its store: PostgreSQL did not answer, or
// this test's own transaction (post) held the SQLite file for more than five seconds, as it does under the race detector.
func (a *actor) storeWasBusy() bool {
	last := a.log.tail()
	return strings.Contains(last, "PostgreSQL is not reachable") || strings.Contains(last, "is locked by another program")
}

func (a *actor) binary() string {
	if a.armed && (a.kill.n == 0 || a.deaths() < 2) {
		return a.stage.armed
	}
	return perdure
}

func (a *actor) environment() []string {
	env := os.Environ()
	if a.binary() != perdure {
		env = append(env, crashpoint.EnvDeaths+"="+a.deathsFile())
	}
	switch {
	case a.binary() == perdure:
	case a.kill.n == 0:
		env = append(env, crashpoint.EnvLog+"="+filepath.Join(a.dir, "points"))
	case a.deaths() == 0:
		env = append(env, fmt.Sprintf("%s=%s", crashpoint.Env, a.kill))
	default:
		env = append(env, fmt.Sprintf("%s=%s", crashpoint.Env, a.kill.point))
	}
	return env
}

// replace sends SIGTERM, and returns when the process has gone. The next one is not armed.
func (a *actor) replace() error {
	a.mu.Lock()
	a.leaving, a.replaced = true, make(chan struct{})
	replaced := a.replaced
	a.mu.Unlock()
	var signalled *os.Process
	for {
		a.mu.Lock()
		if a.process != signalled && a.leaving { // the first start, or one shortly after a death
			signalled = a.process
			_ = signalled.Signal(syscall.SIGTERM)
		}
		a.mu.Unlock()
		select {
		case <-replaced:
			return nil
		case <-a.ctx.Done():
			return context.Cause(a.ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// record keeps the end of what is written to it.
type record struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

var _ io.Writer = (*record)(nil)

func (r *record) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.Write(b)
}

func (r *record) tail() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.buf.String()
	return s[max(0, len(s)-1500):]
}

// nextPort counts through ports below those that the kernel assigns: a node that comes back finds its own port free.
var nextPort atomic.Int32

func init() { nextPort.Store(20000 + int32(os.Getpid()%5000)) }

func freePort() (string, error) {
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", nextPort.Add(1))
		if l, err := net.Listen("tcp", addr); err == nil {
			return addr, l.Close()
		}
	}
	return "", errors.New("no free port")
}
