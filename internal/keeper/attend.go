package keeper

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/runcontext"
)

// How a run ends that has no exit record.
var (
	ErrLeft       = errors.New("the command goes on without this process")
	ErrNotStarted = errors.New("the command was not started")
	ErrLost       = errors.New("the keeper of the command was killed, and the command with it")
	ErrRestarted  = errors.New("the machine was restarted before the end of the command was recorded")
)

// Place is the directory of a run, and the machine on which it is. Errors of Exit and Keeper are fs.ErrNotExist if there is
// no such file.
type Place interface {
	Boot() string // the id of the present boot
	Now() int64   // CLOCK_BOOTTIME
	Exit() (*Exit, error)
	Keeper() (*Keeper, error)
	Alive(*Keeper) bool

	// Start starts a keeper, and returns when a keeper has the run. Refuse prevents that one starts later: its error is
	// fs.ErrExist if a keeper has the run.
	Start() error
	Refuse(Exit) error
	// Dial connects to the keeper. patience is called before each call of the keeper, and says how long that may take. ended is
	// called when the connection has ended.
	Dial(patience func() time.Duration, ended func()) (Connection, error)
	// KillRun kills the processes of the run whose keeper is dead. Destroy kills the keeper first.
	KillRun()
	Destroy()
	// Progress is called every second while the command runs.
	Progress(context.Context)
}

// Connection is a connection to a keeper; see Client.
type Connection interface {
	Ended() bool
	Close()
	Until() int64 // the end of the lock by the latest answer of the keeper
	Extend(until int64) error
	Stop(within time.Duration) error
}

// Attendant waits for the end of one run, for a host agent. What it does follows from the directory alone, so that it does
// the same for a run that an earlier process has started.
type Attendant struct {
	Env    env.Env
	Place  Place
	Run    *Run
	Until  int64 // the end of the lock when Attend is called, if that is later than the one of Run
	Ending func(cause error) runcontext.Ending

	mu    sync.Mutex
	until int64         // the end of the lock by Extend; 0: not extended
	wake  chan struct{} // receives when until has changed, or a connection has ended

	// Only Attend uses the following.
	stopSent  bool      // the keeper has the request to stop, so the context's end is ignored from then on
	confirmed int64     // the end of the lock by the latest answer of the keeper
	killAt    time.Time // when a keeper that has to end the run counts as hanging; zero: it does not have to
}

// NewAttendant returns an attendant that knows no extension yet. Its other fields are to be set before Attend.
func NewAttendant() *Attendant { return &Attendant{wake: make(chan struct{}, 1)} }

// Extend notes a new end of the lock. It does not block.
func (a *Attendant) Extend(until int64) {
	a.mu.Lock()
	a.until = until
	a.mu.Unlock()
	a.wakeUp()
}

func (a *Attendant) wakeUp() {
	select {
	case a.wake <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// Extended returns the end of the lock by Extend; 0: not extended.
func (a *Attendant) Extended() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.until
}

// Wake receives when Extended may have changed.
func (a *Attendant) Wake() <-chan struct{} { return a.wake }

const (
	dialPause     = 20 * time.Millisecond // doubles up to dialMost
	dialMost      = time.Second
	killWithin    = 15 * time.Second // a keeper that does not end its run for so long after it should is killed
	progressEvery = time.Second
	pingBefore    = 6 * time.Second // a keeper must answer every second from this time before the end of its lock

	callPatience  = 5 * time.Second        // how long a keeper may take to answer, but not much longer than it may live
	leastPatience = 200 * time.Millisecond // the last time that a keeper must answer is so long before the end of its lock
	reportTime    = 2 * time.Second        // is left to report the run of a keeper that was killed
)

// hangsIn returns the time until a keeper that does not answer is killed. It has to end the command by the end of the lock that it
// knows. If the lock was extended meanwhile, the keeper may only be slow, for example because it syncs the record of the
// exit: it gets more time, but not more than the lock.
func (a *Attendant) hangsIn() time.Duration {
	left := time.Duration(min(a.confirmed+int64(killWithin), max(a.confirmed, a.Extended()-int64(reportTime))) - a.Place.Now())
	if !a.killAt.IsZero() {
		left = min(left, a.killAt.Sub(a.Env.Now()))
	}
	return left
}

// patience returns how long the keeper may take to answer.
func (a *Attendant) patience() time.Duration {
	return min(max(a.hangsIn(), leastPatience), callPatience)
}

// mustEnd notes that the keeper has to end the run. If it does not even answer, it is killed a short time after the run should
// have ended.
func (a *Attendant) mustEnd(within time.Duration) {
	if at := a.Env.Now().Add(within + callPatience); a.killAt.IsZero() || at.Before(a.killAt) {
		a.killAt = at
	}
}

// Finding is what the directory of a run says of it.
type Finding uint8

const (
	Fresh   Finding = iota // nothing was started
	Refused                // an earlier process recorded that it starts nothing, and died
	Running                // the keeper is alive
	Dead                   // the keeper was killed
)

// Find judges the directory of a run of the present boot that has no exit record. k is its keeper; nil: no keeper.json.
func Find(k *Keeper, alive func(*Keeper) bool) Finding {
	switch {
	case k == nil:
		return Fresh
	case k.Boot == "":
		return Refused
	case !alive(k):
		return Dead
	}
	return Running
}

// Attend waits for the end of the run, and starts it first if no process has done so. An error is one of those above, or
// that of Place.Start.
func (a *Attendant) Attend(ctx context.Context) (*Exit, error) {
	pause := dialPause
	a.confirmed = max(a.Run.Until, a.Until)
	for {
		if exit, err := a.Place.Exit(); !errors.Is(err, fs.ErrNotExist) {
			return exit, err
		}
		k, err := a.Place.Keeper()
		switch {
		case a.Run.Boot != a.Place.Boot() && (k == nil || k.Boot != ""): // keeper.json may be lost or damaged: it was not synced
			return nil, ErrRestarted
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
		switch Find(k, a.Place.Alive) {
		case Fresh:
			if err := a.start(ctx); err != nil {
				return nil, err
			}
			continue
		case Refused:
			return nil, ErrNotStarted
		case Dead:
			if exit, err := a.Place.Exit(); err == nil { // it was written meanwhile
				return exit, nil
			}
			a.Place.KillRun()
			return nil, ErrLost
		case Running:
		}
		conn, err := a.Place.Dial(a.patience, a.wakeUp)
		if err == nil {
			pause, a.confirmed = dialPause, conn.Until()
			err = a.follow(ctx, conn)
			conn.Close()
		}
		if err != nil && !errors.Is(err, ErrLeft) && !errors.Is(err, errDestroyed) {
			err = a.unreached(ctx)
		}
		switch {
		case errors.Is(err, ErrLeft):
			return nil, err
		case errors.Is(err, errDestroyed):
			pause = dialPause
		}
		if exit, err := a.Place.Exit(); err == nil { // the usual end: without a pause
			return exit, nil
		}
		a.Env.Wait(context.Background(), min(pause, max(a.hangsIn(), dialPause)), nil)
		pause = min(2*pause, dialMost)
	}
}

// Abandon ends what is left of a run that does not belong to this host any more.
func Abandon(p Place) {
	if k, err := p.Keeper(); err == nil && k.Boot != p.Boot() {
		return
	}
	if _, err := p.Exit(); err == nil {
		return // the keeper has ended the run
	}
	_ = p.Refuse(Exit{Message: "the run no longer belongs to this host"})
	p.Destroy()
}

// unreached handles the end of the context while the keeper cannot be reached. A stop is sent once the keeper can be reached. A
// keeper that hangs is killed.
func (a *Attendant) unreached(ctx context.Context) error {
	kill := false
	if !a.stopSent && ctx.Err() != nil {
		switch a.Ending(context.Cause(ctx)) {
		case runcontext.Leave:
			return ErrLeft
		case runcontext.Kill:
			kill = true
		case runcontext.Stop:
			a.mustEnd(a.Run.StopWithin)
		}
	}
	if !kill && a.hangsIn() > 0 {
		return nil
	}
	if _, err := a.Place.Exit(); err != nil { // it has not ended meanwhile
		a.Place.Destroy()
	}
	return errDestroyed
}

// errDestroyed: the keeper was killed.
var errDestroyed = errors.New("the keeper was killed")

// start starts the keeper of a run.
func (a *Attendant) start(ctx context.Context) error {
	switch {
	case ctx.Err() != nil && a.Ending(context.Cause(ctx)) == runcontext.Leave:
		return ErrLeft
	case ctx.Err() != nil:
		return ErrNotStarted
	}
	err := a.Place.Start()
	if err == nil {
		return nil
	}
	if refused := a.Place.Refuse(Exit{Message: err.Error()}); errors.Is(refused, fs.ErrExist) { // it has started after all
		return nil
	}
	return err
}

// follow waits until the keeper ends, passes extensions of the lock to it, and lets the progress be read. It returns nil
// when the connection has ended.
func (a *Attendant) follow(ctx context.Context, conn Connection) error {
	var sent, last int64 // the latest extension that was sent; the end of the lock before which the keeper has answered for the last time
	tick := a.Env.Now().Add(progressEvery)
	for {
		now := a.Env.Now()
		switch {
		case conn.Ended():
			return nil
		case !a.stopSent && ctx.Err() != nil:
			within := a.Run.StopWithin
			switch a.Ending(context.Cause(ctx)) {
			case runcontext.Leave:
				return ErrLeft
			case runcontext.Kill:
				within = 0
			case runcontext.Stop:
			}
			a.mustEnd(within)
			if err := conn.Stop(within); err != nil { // again, after another attempt to connect
				return err
			}
			a.stopSent, a.killAt = true, now.Add(within+killWithin)
			continue
		case !a.killAt.IsZero() && !now.Before(a.killAt): // the keeper answers, and hangs all the same
			a.Place.Destroy()
			return errDestroyed
		}
		if until := a.Extended(); until != sent {
			if err := conn.Extend(until); err != nil {
				return err
			}
			sent, a.confirmed = until, conn.Until()
			continue
		}
		left := time.Duration(a.confirmed - a.Place.Now())
		late, due := last != a.confirmed && left <= leastPatience, !now.Before(tick)
		if late || due && left <= pingBefore {
			if err := conn.Extend(a.confirmed); err != nil { // it changes nothing: the keeper has to answer
				return err
			}
		}
		switch {
		case late:
			last = a.confirmed
			continue
		case due:
			a.Place.Progress(ctx)
			tick = now.Add(progressEvery)
			continue
		}
		wait, waiting := tick.Sub(now), ctx
		if last != a.confirmed {
			wait = min(wait, left-leastPatience)
		}
		if a.stopSent {
			waiting = context.WithoutCancel(ctx)
		}
		if !a.killAt.IsZero() {
			wait = min(wait, a.killAt.Sub(now))
		}
		a.Env.Wait(waiting, wait, a.wake)
	}
}
