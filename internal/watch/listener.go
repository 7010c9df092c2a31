package watch

import (
	"context"
	"log/slog"
	"time"

	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
)

const (
	// hintPoll is how often the listener searches for the work of other nodes while no hints reach this node: a
	// connection pooler may drop them. While hints do, the supervisor finds what a lost hint was about.
	hintPoll = 250 * time.Millisecond
	// hintsLostAfter is how long hints may be missing before that is logged: the connection for them is made anew first.
	hintsLostAfter = 5 * time.Second
)

// Listener wakes the claims that wait at this node when another node may have made steps ready. It also logs why the
// store accepts no commits, or was refused.
type Listener struct {
	Store kernel.SharedStore
	Hint  func(context.Context) // wakes the waiting claims
	Log   *slog.Logger
	Env   env.Env

	hints      state // of the hints
	commits    state // of the store's acceptance of commits
	missing    time.Time
	refusedWhy string
}

// state is the trouble that was logged last; an empty string if there is none.
type state struct{ why string }

// changed returns whether the state is another one than before.
func (s *state) changed(why string) bool {
	if why == s.why {
		return false
	}
	s.why = why
	return true
}

// Run listens until ctx ends.
func (l *Listener) Run(ctx context.Context) {
	hints := l.Store.Hints(ctx)
	for ctx.Err() == nil {
		l.log()
		poll := hintPoll/2 + time.Duration(l.Env.Float64()*float64(hintPoll))
		if l.Env.Wait(ctx, poll, hints) == env.Late && l.Store.Heard() {
			continue
		}
		if ctx.Err() == nil {
			l.Hint(ctx)
		}
	}
}

func (l *Listener) log() {
	now := l.Env.Now()
	switch heard := l.Store.Heard(); {
	case heard:
		l.missing = time.Time{}
		if l.hints.changed("") {
			l.Log.Info("LISTEN/NOTIFY reaches this node again")
		}
	case l.missing.IsZero():
		l.missing = now
	case now.Sub(l.missing) > hintsLostAfter && l.hints.changed("missing"):
		l.Log.Warn("LISTEN/NOTIFY does not reach this node (transaction-mode pooler?); falling back to polling", "every", hintPoll.String())
	}
	switch err := l.Store.Accepting(); {
	case err == nil:
		if l.commits.changed("") {
			l.Log.Info("store accepts commits again")
		}
	case l.commits.changed(err.Error()):
		l.Log.Error("store accepts no commits; submissions, reports and acts are refused with status 503", "reason", err)
	}
	if err := l.Store.Refused(); err != nil && err.Error() != l.refusedWhy {
		l.refusedWhy = err.Error()
		l.Log.Error("refused a server that claims to be the store", "reason", err)
	}
}
