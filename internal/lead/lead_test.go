//go:build linux

package lead

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

const ttl = 3 * time.Second

// server grants the role to any holder, unless hold says otherwise.
type server struct {
	mu       sync.Mutex
	calls    int
	released int
	inFlight int // calls of HoldRole that have not returned
	overtook int // calls of ReleaseRole that came during one
	hold     func(ctx context.Context, call int) (*operate.RoleHold, error)
}

func (s *server) HoldRole(ctx context.Context, r operate.RoleRequest) (*operate.RoleHold, error) {
	s.mu.Lock()
	s.calls++
	s.inFlight++
	call := s.calls
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.inFlight--
	}()
	if s.hold != nil {
		return s.hold(ctx, call)
	}
	return &operate.RoleHold{Leads: true, Epoch: 7, Leader: r.Holder}, nil
}

func (s *server) ReleaseRole(context.Context, string, string) (*operate.RoleHold, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released++
	if s.inFlight > 0 {
		s.overtook++
	}
	return &operate.RoleHold{Epoch: 7}, nil
}

func (s *server) ListRoles(context.Context) ([]operate.RoleState, error) { return nil, nil }

// run leads with a shell script as the command, and returns its exit code, what it has printed, and what was logged.
func run(t *testing.T, ctx context.Context, s *server, script string, clock func() time.Duration) (code int, out, log string, err error) {
	t.Helper()
	var printed bytes.Buffer
	var said strings.Builder
	cmd := exec.Command("sh", "-c", script)
	cmd.Stdout = &printed
	code, err = Run(ctx, Config{Roles: s, Role: "nightly", Holder: "web1", TTL: ttl, StopWithin: ttl / 3, Command: cmd, Clock: clock,
		Log: func(message string, pairs ...any) {
			said.WriteString(message)
			for _, p := range pairs {
				if text, ok := p.(string); ok {
					said.WriteString(" " + text)
				}
			}
			said.WriteString("\n")
		}})
	return code, printed.String(), said.String(), err
}

func TestTheCommandHasTheEpochAndGivesTheExitCode(t *testing.T) {
	s := &server{}
	code, out, _, err := run(t, t.Context(), s, `echo $PERDURE_ROLE $PERDURE_EPOCH; exit 17`, nil)
	if err != nil || code != 17 || out != "nightly 7\n" {
		t.Errorf("exit %d, %q: %v", code, out, err)
	}
	if s.released != 1 {
		t.Errorf("released %d times", s.released)
	}
}

// A candidate starts nothing while another one leads, or while the node cannot be reached or its answers are lost (F181).
func TestACandidateWaits(t *testing.T) {
	s := &server{}
	s.hold = func(_ context.Context, call int) (*operate.RoleHold, error) {
		switch call {
		case 1:
			return nil, perdure.Refuse(perdure.CodeUnavailable, "no answer")
		case 2:
			return &operate.RoleHold{Epoch: 6, Leader: "other"}, nil
		}
		return &operate.RoleHold{Leads: true, Epoch: 7, Leader: "web1"}, nil
	}
	code, out, log, err := run(t, t.Context(), s, `echo $PERDURE_EPOCH`, nil)
	if err != nil || code != 0 || out != "7\n" || !strings.Contains(log, "role not reached") || !strings.Contains(log, "another holder leads") {
		t.Errorf("exit %d, %q: %v, %s", code, out, err, log)
	}
}

// A refusal that would be the same each time ends the candidate. An interrupted candidate runs nothing.
func TestACandidateEnds(t *testing.T) {
	s := &server{hold: func(context.Context, int) (*operate.RoleHold, error) {
		return nil, perdure.Refuse(perdure.CodeForbidden, "no")
	}}
	if _, out, _, err := run(t, t.Context(), s, `echo started`, nil); perdure.CodeOf(err) != perdure.CodeForbidden || out != "" {
		t.Errorf("refused: %v, %q", err, out)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	s.hold = func(context.Context, int) (*operate.RoleHold, error) {
		cancel(stopped)
		return &operate.RoleHold{Epoch: 6, Leader: "other"}, nil
	}
	if _, out, _, err := run(t, ctx, s, `echo started`, nil); !errors.Is(err, stopped) || out != "" {
		t.Errorf("interrupted: %v, %q", err, out)
	}
}

// If no extension arrives, the command gets TERM before its time is over, and KILL at the end: it is dead when the next one
// may lead (F181).
func TestTheCommandIsDeadByTheEndOfItsTime(t *testing.T) {
	s := &server{}
	var until atomic.Int64
	s.hold = func(ctx context.Context, call int) (*operate.RoleHold, error) {
		if call == 1 {
			until.Store(int64(clock() + ttl))
			return &operate.RoleHold{Leads: true, Epoch: 7}, nil
		}
		<-ctx.Done() // the answer is lost
		return nil, ctx.Err()
	}
	code, out, log, err := run(t, t.Context(), s, `trap "echo term" TERM; while :; do sleep 0.1; done`, nil)
	late := clock() - time.Duration(until.Load())
	if err != nil || code != 137 || !strings.HasPrefix(out, "term\n") || !strings.Contains(log, "command gets TERM") {
		t.Errorf("exit %d, %q: %v\n%s", code, out, err, log)
	}
	if late > 30*time.Second { // the test's machine may be slow, but the command must not go on
		t.Errorf("dead %s after its time", late)
	}
}

// A leader that stood still until its time was over kills its command when it goes on, without TERM; so does one that hears
// that another leads, or that it leads in another epoch (F182).
func TestTheCommandIsKilledIfTheRoleIsLost(t *testing.T) {
	for name, lost := range map[string]*operate.RoleHold{
		"another leads": {Epoch: 8, Leader: "other"}, "another epoch": {Leads: true, Epoch: 9, Leader: "web1"}, "paused": nil,
	} {
		t.Run(name, func(t *testing.T) {
			var paused atomic.Bool
			s := &server{hold: func(_ context.Context, call int) (*operate.RoleHold, error) {
				if call == 1 {
					return &operate.RoleHold{Leads: true, Epoch: 7}, nil
				}
				if lost == nil {
					paused.Store(true)
					return nil, perdure.Refuse(perdure.CodeUnavailable, "no answer")
				}
				return lost, nil
			}}
			code, out, log, err := run(t, t.Context(), s, `trap "echo term" TERM; while :; do sleep 0.1; done`, func() time.Duration {
				if paused.Load() {
					return clock() + time.Hour
				}
				return clock()
			})
			if err != nil || code != 137 || out != "" || !strings.Contains(log, "command gets KILL") {
				t.Errorf("exit %d, %q: %v\n%s", code, out, err, log)
			}
		})
	}
}

// F182: a leader that stood still until its time was over asks for no extension: the role may be free, and the call would
// make it the leader again, although it is about to end.
func TestNoExtensionAfterTheTimeIsOver(t *testing.T) {
	begun := filepath.Join(t.TempDir(), "begun")
	s := &server{}
	code, _, log, err := run(t, t.Context(), s, `touch `+begun+`; sleep 100`, func() time.Duration {
		if _, err := os.Stat(begun); err == nil {
			return clock() + time.Hour
		}
		return clock()
	})
	if err != nil || code != 137 || s.calls != 1 || s.released != 1 {
		t.Errorf("exit %d, %v; %d extensions, %d releases\n%s", code, err, s.calls-1, s.released, log)
	}
}

// F211: the command ends while an extension is in flight. The role is released after its answer. Otherwise the role would be
// extended after its release, and no process would lead until the end of that time.
func TestReleaseDoesNotOvertakeAnExtension(t *testing.T) {
	over := filepath.Join(t.TempDir(), "over")
	s := &server{hold: func(_ context.Context, call int) (*operate.RoleHold, error) {
		if call == 2 {
			if err := os.WriteFile(over, nil, 0o600); err != nil {
				t.Error(err)
			}
			time.Sleep(700 * time.Millisecond) // the server does not know that the caller cancels its call
		}
		return &operate.RoleHold{Leads: true, Epoch: 7}, nil
	}}
	code, _, log, err := run(t, t.Context(), s, `while [ ! -e `+over+` ]; do sleep 0.02; done`, nil)
	if err != nil || code != 0 || s.released != 1 || s.overtook > 0 || s.calls != 2 {
		t.Errorf("exit %d, %v; %d extensions, %d releases, %d of them early\n%s", code, err, s.calls-1, s.released, s.overtook, log)
	}
}

// What the command has left in its process group dies with it.
func TestTheGroupEndsWithTheCommand(t *testing.T) {
	s := &server{}
	code, out, _, err := run(t, t.Context(), s, `sleep 1000 & echo $!`, nil)
	if err != nil || code != 0 {
		t.Fatalf("exit %d: %v", code, err)
	}
	waitUntilDead(t, strings.TrimSpace(out))
}

// The command dies with this process, however that ends (F180).
func TestTheCommandDiesWithThisProcess(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "LEAD_TEST=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	waitUntilDead(t, strings.TrimSpace(pid))
}

func TestMain(m *testing.M) {
	if os.Getenv("LEAD_TEST") == "" {
		os.Exit(m.Run())
	}
	cmd := exec.Command("sh", "-c", "echo $$; exec sleep 1000")
	cmd.Stdout = os.Stdout
	_, _ = Run(context.Background(), Config{Roles: &server{}, Role: "nightly", Holder: "web1", TTL: time.Hour, StopWithin: time.Minute, Command: cmd, Log: func(string, ...any) {}})
}

func waitUntilDead(t *testing.T, pid string) {
	t.Helper()
	for range 200 { // the system may take a moment to reap it
		state, err := exec.Command("ps", "-o", "stat=", "-p", pid).Output()
		if err != nil || strings.HasPrefix(string(state), "Z") {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("process %s still runs", pid)
}
