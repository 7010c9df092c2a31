package shell

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agents/internal/with"
	"github.com/perdure/perdure/internal/descriptors"
	"github.com/perdure/perdure/internal/secret"
)

// waitDelay is how long the pipes of a program that has ended are read: a process that has left the group may hold them
// open.
const waitDelay = time.Second

// process is one running program.
type process struct {
	cmd     *exec.Cmd
	stdout  head
	stderr  tail
	secrets *secret.Redactor
	done    chan struct{} // closed when the program has ended, its group is killed, and its output is read

	release func() // of its file descriptors

	mu   sync.Mutex
	over bool // its number may belong to another process from here on: it must not be signalled
}

func newProcess(in *Input, secrets *secret.Redactor, env []string) *process {
	args := make([]string, len(in.Command))
	for i, arg := range in.Command {
		args[i] = string(arg)
	}
	p := &process{cmd: exec.Command(args[0], args[1:]...), secrets: secrets, done: make(chan struct{})}
	p.stderr.secrets = secrets
	p.stdout = head{max: MaxStdout, flood: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env = in.Dir, env
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	if text, ok := in.stdin(); ok {
		p.cmd.Stdin = strings.NewReader(text)
	}
	p.cmd.WaitDelay = waitDelay
	group(p.cmd)
	return p
}

// descriptorsEach is how many descriptors a running program takes of this process: three pipes and the process handle.
// Descriptors that only its start needs come from the reserve, because one program starts at a time.
const descriptorsEach = 4

// start returns when the program runs and the reaper knows its group.
func (p *process) start() (err error) {
	if p.release, err = descriptors.Take(descriptorsEach); err != nil {
		return err
	}
	groups.prepare()
	if err := startTied(p.cmd); err != nil {
		p.release()
		return err
	}
	groups.add(p.cmd.Process.Pid)
	go func() {
		defer close(p.done)
		defer p.release()
		peeked := peek(p.cmd.Process.Pid)
		p.mu.Lock()
		if peeked {
			// The program is not reaped yet, so no other process can have its number, which is also that of its group.
			signalGroup(p.cmd, killSignal)
		}
		p.over = true
		p.mu.Unlock()
		_ = p.cmd.Wait() // the result is in ProcessState
		groups.remove(p.cmd.Process.Pid)
	}()
	return nil
}

var errFlood = perdure.Failed(fmt.Errorf("more than %d bytes on stdout", MaxStdout), "outputTooLarge")

// wait returns when the program has ended: nil if it has ended by itself, else why it was ended.
func (p *process) wait(ctx context.Context, t times, grace time.Duration) error {
	timeout := time.NewTimer(time.Until(t.term))
	defer timeout.Stop()
	var cut error
	select {
	case <-p.done:
	case <-p.stdout.flood:
		cut, grace = errFlood, 0
	case <-timeout.C:
		cut, grace = perdure.Failed(errors.New("not done in time, killed"), "timeout"), time.Until(t.kill)
	case <-ctx.Done():
		cut = fmt.Errorf("killed: %w", context.Cause(ctx))
		if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			grace = 0 // the run is over: the program must not act any more
		}
	}
	if cut == nil || !p.end(grace, t.kill) {
		<-p.done
		select {
		case <-p.stdout.flood: // it had ended before the overflow was noticed
			return errFlood
		default:
			return nil
		}
	}
	<-p.done
	return cut
}

// end sends TERM to the group, and KILL after the grace. It returns false if the program has ended by itself.
func (p *process) end(grace time.Duration, latest time.Time) bool {
	if grace = min(grace, time.Until(latest)); grace <= 0 {
		return p.signal(killSignal)
	}
	if !p.signal(termSignal) {
		return false
	}
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-p.done:
	case <-t.C:
		p.signal(killSignal)
	}
	return true
}

// signal sends a signal to the whole group; false if the program has ended.
func (p *process) signal(s sysSignal) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return false
	}
	signalGroup(p.cmd, s)
	return true
}

// head keeps the beginning of the output, up to a bound.
type head struct {
	buf   bytes.Buffer
	max   int
	flood chan struct{} // closed when the bound is exceeded
}

func (h *head) Write(b []byte) (int, error) {
	if h.buf.Len()+len(b) > h.max {
		close(h.flood) // once: exec stops writing at the first error
		return 0, errFlood
	}
	return h.buf.Write(b)
}

// tail keeps the last MaxStderr bytes of the output.
type tail struct {
	buf     []byte
	cut     bool // the output was longer
	secrets *secret.Redactor
}

func (t *tail) Write(b []byte) (int, error) {
	t.cut = t.cut || len(b) > MaxStderr
	t.buf = append(t.buf, b[max(0, len(b)-MaxStderr):]...)
	if len(t.buf) > 2*MaxStderr {
		t.cut = true
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-MaxStderr:]...)
	}
	return len(b), nil
}

// messageBytes leaves space in an error's message for its other parts.
const messageBytes = perdure.MaxReasonBytes - 1<<10

// after appends the end of stderr to an error.
func (t *tail) after(err error) error {
	text := t.secrets.Part(string(t.buf), t.cut, false) // before it is cut: a part of a secret would not be recognized
	stderr := with.Plain(text[max(0, len(text)-messageBytes):])
	if stderr = strings.TrimSpace(stderr); stderr == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, stderr)
}
