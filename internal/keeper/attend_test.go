package keeper

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/runcontext"
)

// deafPlace has a keeper that answers until a time, and then hangs.
type deafPlace struct {
	began     time.Time
	until     int64         // the end of its lock
	deaf      time.Duration // when it begins to hang
	killed    bool
	destroyed time.Duration
}

func (p *deafPlace) Boot() string         { return "boot" }
func (p *deafPlace) Now() int64           { return int64(time.Since(p.began)) }
func (p *deafPlace) Exit() (*Exit, error) { return nil, fs.ErrNotExist }
func (p *deafPlace) Keeper() (*Keeper, error) {
	return &Keeper{Process: Process{PID: 1, Boot: "boot"}}, nil
}
func (p *deafPlace) Alive(*Keeper) bool       { return !p.killed }
func (p *deafPlace) Start() error             { return errors.New("it runs already") }
func (p *deafPlace) Refuse(Exit) error        { return fs.ErrExist }
func (p *deafPlace) KillRun()                 {}
func (p *deafPlace) Progress(context.Context) {}

func (p *deafPlace) Destroy() {
	if !p.killed {
		p.killed, p.destroyed = true, time.Since(p.began)
	}
}

func (p *deafPlace) Dial(patience func() time.Duration, _ func()) (Connection, error) {
	c := &deafConnection{p, patience}
	return c, c.call()
}

type deafConnection struct {
	*deafPlace
	patience func() time.Duration
}

func (c *deafConnection) call() error {
	if time.Since(c.began) < c.deaf {
		return nil
	}
	time.Sleep(c.patience())
	return os.ErrDeadlineExceeded
}

func (c *deafConnection) Ended() bool              { return c.killed }
func (c *deafConnection) Close()                   {}
func (c *deafConnection) Until() int64             { return c.until }
func (c *deafConnection) Extend(int64) error       { return c.call() }
func (c *deafConnection) Stop(time.Duration) error { return c.call() }

// F260: a keeper that begins to hang at any time before it has to answer for the last time is killed by the end of its lock,
// together with its command, however long the lock was when the connection began.
func TestKeeperThatHangsIsKilledByTheEndOfItsLock(t *testing.T) {
	for _, lock := range []time.Duration{1700 * time.Millisecond, 3 * time.Second, 30 * time.Second} {
		for deaf := time.Duration(0); deaf <= lock-leastPatience; deaf += 50 * time.Millisecond {
			synctest.Test(t, func(t *testing.T) {
				p := &deafPlace{began: time.Now(), until: int64(lock), deaf: deaf}
				a := NewAttendant()
				a.Env, a.Place, a.Run = env.Real{}, p, &Run{Boot: "boot", Until: p.until}
				a.Ending = func(error) runcontext.Ending { return runcontext.Leave }
				if _, err := a.Attend(t.Context()); !errors.Is(err, ErrLost) {
					t.Fatalf("Attend: %v", err)
				}
				if p.destroyed > lock {
					t.Fatalf("the keeper's lock of %s ends, it hangs after %s, and is killed after %s", lock, deaf, p.destroyed)
				}
			})
		}
	}
}
