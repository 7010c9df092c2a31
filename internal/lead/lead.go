// Package lead runs a command while this process leads a role: perdure lead.
//
// It asks for the role until it leads it, starts the command, and extends its time every third of it. The command gets
// TERM when the time is nearly over and was not extended, and KILL at its end. Time counts from when a call was sent, on a
// clock that also runs while the machine sleeps. If this process is killed, the system kills the command (Linux).
//
// What cannot be guaranteed: while this process is stopped (SIGSTOP, a frozen virtual machine), nothing ends the command. It
// is killed when this process goes on. So the command must send its epoch with what it writes, and the receiver must refuse
// an epoch below one that it has seen.
package lead

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

// Config says which role is led, and what for.
type Config struct {
	Roles      operate.Roles
	Role       string
	Holder     string
	TTL        time.Duration // operate.MinRoleTTL to operate.MaxRoleTTL
	StopWithin time.Duration // between TERM and KILL; at most half of TTL
	Command    *exec.Cmd     // not started; it gets a process group of its own
	// Log receives what happens: a message, and pairs of names and values.
	Log func(message string, pairs ...any)
	// Clock returns the time since an arbitrary instant; nil: the system's, which also runs while the machine sleeps.
	Clock func() time.Duration
}

// Environment variables of the command.
const (
	EnvRole  = "PERDURE_ROLE"
	EnvEpoch = "PERDURE_EPOCH"
)

// tick bounds every wait, because timers may stand still while the machine sleeps.
const tick = 250 * time.Millisecond

// lastCall is how long a release waits for an extension in flight.
const lastCall = 5 * time.Second

type leader struct {
	Config
	epoch int64
	until time.Duration // the end of the time, on Clock
}

// Run returns the exit code of the command, or 128 and the number of the signal that has ended it. It returns an error if
// it could not lead: the server has refused the call, or ctx has ended before. When ctx ends, the command gets TERM.
func Run(ctx context.Context, c Config) (code int, err error) {
	if c.Clock == nil {
		c.Clock = clock
	}
	l := &leader{Config: c}
	for { // a pause may use up the time before the command has started
		if err := l.wait(ctx); err != nil {
			return 0, err
		}
		if c.Clock() < l.until-c.StopWithin {
			break
		}
	}
	defer l.release(ctx)
	return l.lead(ctx)
}

// wait returns when this process leads.
func (l *leader) wait(ctx context.Context) error {
	logged := ""
	for {
		hold, until, err := l.hold(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && isFinal(err):
			return err
		case err != nil && logged != err.Error():
			logged = err.Error()
			l.Log("role not reached", "role", l.Role, "error", logged)
		case err == nil && hold.Leads:
			l.epoch, l.until = hold.Epoch, until
			l.Log("leads", "role", l.Role, "epoch", l.epoch)
			return nil
		case err == nil && logged != hold.Leader:
			logged = hold.Leader
			l.Log("another holder leads", "role", l.Role, "epoch", hold.Epoch, "leader", hold.Leader)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(min(l.TTL/3, time.Second)):
		}
	}
}

// isFinal reports whether a repeated call would fail, too.
func isFinal(err error) bool {
	switch perdure.CodeOf(err) {
	case perdure.CodeForbidden, perdure.CodeInvalid, perdure.CodeNotFound, perdure.CodeUnauthenticated, perdure.CodeMisdirected, perdure.CodeConflict, perdure.CodeMalformed:
		return true
	}
	return false
}

// hold asks for the role, and returns the end of the time that was asked for.
func (l *leader) hold(ctx context.Context) (*operate.RoleHold, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, l.TTL/3)
	defer cancel()
	until := l.Clock() + l.TTL
	hold, err := l.Roles.HoldRole(ctx, operate.RoleRequest{Name: l.Role, Holder: l.Holder, TTL: perdure.Duration(l.TTL)})
	return hold, until, err
}

// release gives the role up, so that another holder need not wait for the end of the time. The command has ended.
func (l *leader) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if _, err := l.Roles.ReleaseRole(ctx, l.Role, l.Holder); err != nil {
		l.Log("role not released", "role", l.Role, "error", err.Error())
	}
}

// answer is the outcome of an extension.
type answer struct {
	hold  *operate.RoleHold
	until time.Duration
	err   error
}

// lead runs the command, and returns when it has ended.
func (l *leader) lead(ctx context.Context) (int, error) {
	l.Command.Env = append(l.Command.Environ(), EnvRole+"="+l.Role, EnvEpoch+"="+strconv.FormatInt(l.epoch, 10))
	p, err := start(l.Command)
	if err != nil {
		return 0, err
	}
	ended := ctx.Done()
	calls, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	answers := make(chan answer, 1)
	var (
		calling  bool
		next     = l.until - l.TTL*2/3 // of the next extension
		term     = l.until - l.StopWithin
		killing  time.Duration // 0: TERM was not sent
		sendTerm = func(why string) {
			if killing == 0 {
				killing = l.Clock() + l.StopWithin
				l.Log("command gets TERM", "role", l.Role, "epoch", l.epoch, "reason", why)
				p.signal(syscall.SIGTERM)
			}
		}
		sendKill = func(why string) {
			l.Log("command gets KILL", "role", l.Role, "epoch", l.epoch, "reason", why)
			p.signal(syscall.SIGKILL)
			<-p.done
		}
	)
	for {
		now := l.Clock()
		switch {
		case now >= l.until:
			sendKill("time is over")
		case killing > 0 && now >= killing:
			sendKill("did not end after TERM")
		case now >= term:
			sendTerm("time is not extended")
		}
		// When the time is over, the role may be free: a call would make this holder its leader again.
		if !calling && now >= next && now < l.until {
			calling = true
			go func() {
				hold, until, err := l.hold(calls)
				answers <- answer{hold, until, err}
			}()
		}
		select {
		case <-p.done:
			if calling { // the release must not overtake it, or the role would be extended after that
				select {
				case <-answers:
				case <-time.After(lastCall):
				}
			}
			return p.code(), nil
		case a := <-answers:
			calling = false
			switch {
			case a.err != nil:
				next = l.Clock() + l.TTL/10
				l.Log("role not extended", "role", l.Role, "error", a.err.Error())
			case !a.hold.Leads, a.hold.Epoch != l.epoch: // its time was over, by the store's clock
				sendKill("lost the role")
			default:
				l.until = a.until
				next, term = l.until-l.TTL*2/3, l.until-l.StopWithin
			}
		case <-ended:
			ended = nil
			sendTerm("interrupted")
		case <-time.After(tick):
		}
	}
}

// process is the running command.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended

	mu   sync.Mutex
	over bool // its number may belong to another process from here on
}

// signal sends a signal to the command's process group.
func (p *process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		signalGroup(p.cmd, s)
	}
}

func (p *process) code() int {
	state := p.cmd.ProcessState
	if n, signalled := signalOf(state); signalled {
		return 128 + n
	}
	return state.ExitCode()
}

// wait reaps the command, after it has killed what is left of its group.
func (p *process) wait() {
	defer close(p.done)
	peeked := peek(p.cmd.Process.Pid)
	p.mu.Lock()
	if peeked { // it is not reaped yet, so no other process can have its number
		signalGroup(p.cmd, syscall.SIGKILL)
	}
	p.over = true
	p.mu.Unlock()
	_ = p.cmd.Wait() // the result is in ProcessState
}

// IsNotFound reports whether the command does not exist.
func IsNotFound(err error) bool {
	return errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist)
}
