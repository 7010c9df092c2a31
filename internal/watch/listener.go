package watch

import (
	"context"
	"log/slog"
	"time"

	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
)

const (
	// pollEvery is the mean interval at which the listener wakes the waiting claims while no wake-ups reach this node, for
	// example because a connection pooler drops them. While wake-ups arrive it does not poll: the supervisor's due scan finds
	// the work of a wake-up that was lost.
	pollEvery = 250 * time.Millisecond
	// logLossAfter is the time for which wake-ups must be missing before that is logged. Meanwhile the store may replace its
	// connection.
	logLossAfter = 5 * time.Second
)

// Listener wakes the claims that wait at this node when another node may have made steps ready. It also logs when the
// store accepts no commits, and when it has refused a server.
type Listener struct {
	Store kernel.SharedStore
	Wake  func(context.Context) // wakes the waiting claims
	Log   *slog.Logger
	Env   env.Env

	wakeups      trouble // whether wake-ups reach this node
	commits      trouble // whether the store accepts commits
	missingSince time.Time
	refused      string // the reason that was logged last
}

// trouble is the trouble that was logged last, or empty.
type trouble string

// changed sets the trouble, and reports whether it differs from the previous one.
func (t *trouble) changed(now string) bool {
	if now == string(*t) {
		return false
	}
	*t = trouble(now)
	return true
}

// Run listens until ctx ends or the store is closed.
func (l *Listener) Run(ctx context.Context) {
	wakeups := l.Store.Wakeups(ctx)
	for ctx.Err() == nil {
		l.log()
		poll := pollEvery/2 + time.Duration(l.Env.Float64()*float64(pollEvery))
		waited := l.Env.Wait(ctx, poll, wakeups)
		if ctx.Err() != nil || waited == env.Got && closed(wakeups) {
			return
		}
		if waited == env.Late && l.Store.Listening() {
			continue
		}
		l.Wake(ctx)
	}
}

// closed reports whether a channel of wake-ups is closed. It may receive a wake-up: its caller has received one already,
// and acts once for both.
func closed(wakeups <-chan struct{}) bool {
	select {
	case _, open := <-wakeups:
		return !open
	default:
		return false
	}
}

func (l *Listener) log() {
	now := l.Env.Now()
	switch {
	case l.Store.Listening():
		l.missingSince = time.Time{}
		if l.wakeups.changed("") {
			l.Log.Info("LISTEN/NOTIFY reaches this node again")
		}
	case l.missingSince.IsZero():
		l.missingSince = now
	case now.Sub(l.missingSince) > logLossAfter && l.wakeups.changed("missing"):
		l.Log.Warn("LISTEN/NOTIFY does not reach this node (transaction-mode pooler?); falling back to polling", "every", pollEvery.String())
	}
	switch err := l.Store.Accepting(); {
	case err == nil:
		if l.commits.changed("") {
			l.Log.Info("store accepts commits again")
		}
	case l.commits.changed(err.Error()):
		l.Log.Error("store accepts no commits; submissions, reports and acts are refused with status 503", "reason", err)
	}
	if err := l.Store.Refused(); err != nil && err.Error() != l.refused {
		l.refused = err.Error()
		l.Log.Error("refused a server that claims to be the store", "reason", err)
	}
}
