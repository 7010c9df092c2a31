// Package hostagent is the agent of a host: a process that claims runs of the agent exec, and has keepers run their
// commands. It may be killed and started again at any time: the commands go on, and the next process continues with them.
//
// What it needs for that is in its state directory:
//
//	lock       held while a process uses the directory
//	host.json  the name of the host and its incarnation, made once: the holder of its runs is host/NAME/INCARNATION
//	runs/      a directory for each run (internal/keeper)
//
// At its start it asks the server which of the runs that it finds still belong to the holder (agenthost.Host.Adopt). Those
// are carried on or reported; what is left of the others is killed. New runs are claimed only after that, because until
// then it is not known how many slots are free.
//
// While the file system of the state directory is full, nothing is claimed.
package hostagent

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/agenthost"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/operate"
)

// Loop is what a host agent does besides carrying out runs: it registers the host, continues with the runs of the earlier
// process, stops claiming while the disk is full, and follows drains. It is made by NewLoop.
type Loop struct {
	LoopConfig

	wake chan struct{} // receives when one of the following has changed

	mu           sync.Mutex
	attempts     int                     // registrations that were sent
	answered     int                     // the latest of them that was answered
	registered   *operate.HostRegistered // its answer
	renewedAt    time.Time               // when it was sent
	reportedFull bool                    // value of full in the latest registration that was answered
	adopting     bool                    // the runs of the earlier process are not confirmed yet
	full         bool
	fullUntil    time.Time // until then the disk counts as full, whatever is free
	renewNow     bool      // the node does not know of a change of full
	ended        bool      // Host.Run has returned
	err          error
}

// LoopConfig configures a Loop. All fields but Registered, Full and Log are required.
type LoopConfig struct {
	Env       env.Env
	Host      *agenthost.Host
	Agent     string // whose runs are adopted
	Runs      Runs
	Name      string // of the host
	State     string // the state directory
	Heartbeat time.Duration
	Keep      time.Duration // how long the directory of a reported run is kept

	Register   func(ctx context.Context, full, renews bool) (*operate.HostRegistered, error)
	Registered func()              // called after the first registration; nil: nothing is called
	Full       func(was bool) bool // reports whether the disk of the state directory is full; was: it counts as full until now. nil: never
	Log        *slog.Logger
}

// NewLoop returns a loop that has not started.
func NewLoop(c LoopConfig) *Loop {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Full == nil {
		c.Full = func(bool) bool { return false }
	}
	return &Loop{LoopConfig: c, wake: make(chan struct{}, 1)}
}

// Runs are the runs in the state directory.
type Runs interface {
	// Pending returns those of earlier processes that may have to be reported, and how many could not be read.
	Pending() (runs []perdure.Run, unread int, err error)
	Discard(*perdure.Run)     // ends what is left of a run that does not belong to this host any more
	Sweep(keep time.Duration) // removes what is left of runs that were reported longer ago
}

const (
	checkEvery = 2 * time.Second  // how often the free space is checked
	sweepEvery = 30 * time.Second // how often directories of reported runs are removed
	leaveTime  = 5 * time.Second  // how long reports are waited for at the end

	registerTime = 10 * time.Second // bounds a registration
	renewMost    = 10 * time.Second // longest time between two registrations. The answer has the drain, so a host knows of it within this time

	// fullPause is how long nothing is claimed after a run has found no space. The run may need more than what is free, or the
	// user of this process may have a quota, of which the file system does not say what is left.
	fullPause = time.Minute
)

var errLeft = errors.New("the host agent ends, and its commands go on")

// ErrRemoved is returned by Run when an operator has removed the host (perdure hosts rm), while this process was registered.
var ErrRemoved = errors.New("the host was removed")

// Run returns nil after ctx has ended, or why the host cannot work.
func (l *Loop) Run(ctx context.Context) error {
	pending, unread, err := l.Runs.Pending()
	if err != nil {
		return err
	}
	l.Host.Pause(true)
	l.checkSpace()
	if registered, err := l.register(ctx); err != nil || !registered {
		return err
	}
	if l.Registered != nil {
		l.Registered()
	}
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	ended := make(chan struct{})
	var hostErr error
	l.Env.Go(func() {
		hostErr = l.Host.Run(life)
		close(ended)
		l.change(func() { l.ended = true })
	})
	l.adopting = true
	l.Env.Go(func() {
		err := l.adopt(ctx, pending)
		l.change(func() {
			if l.adopting = false; err != nil && ctx.Err() == nil {
				l.err = err
			}
		})
		// A run whose directory is not readable may have a living command, which its keeper ends with the lock. It must not
		// expire before.
		if err == nil && unread == 0 {
			l.Host.CompleteHeartbeats()
		}
	})
	l.Runs.Sweep(l.Keep)
	l.watch(ctx, life)
	if l.hasEnded() {
		return hostErr
	}
	removed := errors.Is(l.failed(), ErrRemoved)
	if ctx.Err() == nil && !removed {
		return l.failed()
	}
	quiet, cancel := env.WithTimeout(l.Env, life, leaveTime)
	l.Host.Quiesce(quiet)
	cancel()
	end(errLeft)
	l.Env.Wait(context.Background(), env.Forever, ended)
	switch {
	case !errors.Is(hostErr, errLeft):
		return hostErr
	case removed:
		return ErrRemoved
	}
	return nil
}

// watch does what is due until ctx ends, the host has ended, or the runs of the earlier process cannot be adopted.
func (l *Loop) watch(ctx, life context.Context) {
	renewEvery := min(l.Heartbeat/3, renewMost)
	now := l.Env.Now()
	check, sweep, renew := now.Add(checkEvery), now.Add(sweepEvery), now.Add(renewEvery)
	var drain drainPlan
	for ctx.Err() == nil && !l.hasEnded() && l.failed() == nil {
		now := l.Env.Now()
		drain = l.follow(drain)
		if !drain.stopAt.IsZero() && !now.Before(drain.stopAt) {
			l.Host.CutShort()
			drain.stopAt = now.Add(checkEvery) // runs that arrived late
		}
		if !now.Before(check) {
			l.checkSpace()
			check = now.Add(checkEvery)
			continue
		}
		if !now.Before(sweep) {
			l.Runs.Sweep(l.Keep)
			sweep = now.Add(sweepEvery)
		}
		if l.takeRenewal() || !now.Before(renew) {
			l.Env.Go(func() { l.renew(life) })
			renew = now.Add(renewEvery)
		}
		next := earliest(check, sweep, renew)
		if !drain.stopAt.IsZero() {
			next = earliest(next, drain.stopAt)
		}
		l.Env.Wait(ctx, next.Sub(now), l.wake)
	}
}

func earliest(at ...time.Time) time.Time {
	first := at[0]
	for _, t := range at[1:] {
		if t.Before(first) {
			first = t
		}
	}
	return first
}

// takeRenewal reports whether to register now, because the node does not have the latest state.
func (l *Loop) takeRenewal() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.renewNow
	l.renewNow = false
	return now
}

// drainPlan says when the runs of a drained host are stopped.
type drainPlan struct {
	deadline time.Time // by the clock of the store
	stopAt   time.Time // when what runs is stopped next; zero: not at all
}

// follow pauses or resumes claims, and returns what a drain demands. plan is what the drain demanded before; an operator may have
// set another deadline since.
func (l *Loop) follow(plan drainPlan) drainPlan {
	l.mu.Lock()
	defer l.mu.Unlock()
	draining := l.registered.State != operate.HostReady
	l.Host.Pause(l.adopting || l.full || l.reportedFull || draining)
	switch by := l.registered.DrainBy; {
	case !draining || by.IsZero():
		return drainPlan{}
	case !by.Equal(plan.deadline):
		l.Log.Info("host draining", "deadline", by, "action", "runs that have not ended by the deadline are stopped")
		return drainPlan{by, l.renewedAt.Add(time.Duration(l.registered.DrainInMs) * time.Millisecond)}
	}
	return plan
}

// change changes the state, and wakes the loop.
func (l *Loop) change(f func()) {
	l.mu.Lock()
	f()
	l.mu.Unlock()
	l.wakeUp()
}

func (l *Loop) wakeUp() {
	select {
	case l.wake <- struct{}{}:
	default: // a wake-up is pending already
	}
}

func (l *Loop) hasEnded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

func (l *Loop) failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// NoteFull notes that a run found no space. Nothing is claimed for fullPause.
func (l *Loop) NoteFull() {
	l.mu.Lock()
	l.fullUntil = l.Env.Now().Add(fullPause)
	l.mu.Unlock()
	l.setFull(true)
}

func (l *Loop) checkSpace() {
	l.mu.Lock()
	was := l.full
	l.mu.Unlock()
	l.setFull(l.Full(was))
}

func (l *Loop) setFull(full bool) {
	l.mu.Lock()
	full = full || l.Env.Now().Before(l.fullUntil)
	same := l.full == full
	l.full, l.renewNow = full, l.renewNow || !same
	l.mu.Unlock()
	switch {
	case same:
		return
	case full:
		l.Log.Error("state directory full; nothing is claimed", "dir", l.State, "action", "free space on its file system")
	default:
		l.Log.Info("state directory has space again; claiming", "dir", l.State)
	}
	l.wakeUp()
}

// register registers the host, and repeats that until it is answered. It returns false if ctx ends first.
func (l *Loop) register(ctx context.Context) (bool, error) {
	for pause := time.Second; ; pause = min(2*pause, 15*time.Second) {
		err := l.registerOnce(ctx)
		switch code := perdure.CodeOf(err); {
		case err == nil:
			return true, nil
		case ctx.Err() != nil:
			return false, nil
		case code != "" && code != perdure.CodeUnavailable:
			return false, err
		}
		l.Log.Warn("host not registered; retrying", "err", err, "action", "check server and network")
		if !env.Sleep(l.Env, ctx, pause) {
			return false, nil
		}
	}
}

// registerOnce makes one attempt to register the host, and stores the answer. Several attempts may be in progress, so that one
// without an answer does not make the host silent. The answer to the newest one counts, in whatever order they arrive. An older
// answer that arrives later is ignored, also if it is an error.
func (l *Loop) registerOnce(ctx context.Context) error {
	sent := l.Env.Now()
	l.mu.Lock()
	full := l.full
	renews := l.registered != nil && sent.Sub(l.renewedAt) <= l.Heartbeat // else it may be silent, and registers as a new one
	l.attempts++
	attempt := l.attempts
	l.mu.Unlock()
	ctx, cancel := env.WithTimeout(l.Env, ctx, registerTime)
	defer cancel()
	r, err := l.Register(ctx, full, renews)
	switch {
	case l.overtaken(attempt):
		l.change(func() { // the node may have stored this registration after the newer one
			l.renewNow = l.renewNow || full != l.reportedFull
		})
		return nil
	case err == nil:
		l.change(func() {
			if l.registered != nil && r.State != l.registered.State {
				l.Log.Info("state of the host changed", "state", r.State)
			}
			l.answered, l.registered, l.renewedAt, l.reportedFull = attempt, r, sent, full
			l.renewNow = full != l.full // it has changed meanwhile
		})
	}
	return err
}

// overtaken reports whether a newer registration than this one was answered.
func (l *Loop) overtaken(attempt int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return attempt < l.answered
}

// renew registers the host again: it is the host's sign of life.
func (l *Loop) renew(ctx context.Context) {
	err := l.registerOnce(ctx)
	switch {
	case err == nil || ctx.Err() != nil:
	case perdure.CodeOf(err) == perdure.CodeNotFound:
		l.change(func() { l.err = ErrRemoved })
	default:
		l.Log.Warn("registration of the host not renewed", "err", err, "action", "check server and network")
	}
}

// adopt continues with the runs of the earlier process.
func (l *Loop) adopt(ctx context.Context, pending []perdure.Run) error {
	if len(pending) == 0 {
		return nil
	}
	l.Log.Info("continuing with runs of the earlier process", "runs", len(pending))
	crashpoint.Here(crashpoint.HostAdopt)
	over, err := l.Host.Adopt(ctx, l.Agent, pending)
	crashpoint.Here(crashpoint.HostAdopted)
	for i := range over {
		l.Log.Warn("run discarded: no longer valid", "job", over[i].Job.String(), "step", over[i].Step, "run", over[i].Number)
		l.Runs.Discard(&over[i])
	}
	if err == nil {
		l.Log.Info("runs of the earlier process continued", "runs", len(pending)-len(over), "discarded", len(over))
	}
	return err
}
