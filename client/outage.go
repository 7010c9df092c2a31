package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/perdure/perdure"
)

// A call that reads is tried several times while the server cannot be reached. A call that changes something is left to
// the caller to repeat. Waiting for a job, and following it, continue for longer.
const (
	attempts      = 3
	firstPause    = 100 * time.Millisecond
	longestPause  = 2 * time.Second
	maxRetryAfter = time.Minute
	longestOutage = time.Minute // the default of Patience and BusyPatience
)

func pause(try int) time.Duration {
	d := min(firstPause<<min(2*(try-1), 8), longestPause)
	return d/2 + rand.N(d)
}

// spread is a random time to wait in addition to Retry-After: clients that were refused at the same time must not all
// return at the same time.
func spread(retryAfter time.Duration) time.Duration {
	if retryAfter <= 0 {
		return 0
	}
	return rand.N(retryAfter / 2)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// away is the error of a server that does not answer, or not at the moment. It stays in this package: callers get err.
type away struct {
	err        error
	retryAfter time.Duration // the least time until the call is repeated
	silent     bool          // the call has waited for its answer as long as it may
}

func (a *away) Error() string { return a.err.Error() }
func (a *away) Unwrap() error { return a.err }

// awayIn returns the *away in err, or nil.
func awayIn(err error) *away {
	var a *away
	errors.As(err, &a)
	return a
}

// passing returns err as *away if it is temporary: a server without its store, one in the middle of an upgrade, and one
// that has reached a bound, or whose backlog is full, are treated as if they were unreachable.
func passing(err error, retryAfter time.Duration) error {
	switch perdure.CodeOf(err) {
	case perdure.CodeUnavailable, perdure.CodeSchema, perdure.CodeInUse, perdure.CodeTooManyRequests, perdure.CodeBacklogFull:
		return &away{err: err, retryAfter: retryAfter}
	}
	return err
}

// outage is the time for which a call that waits has not reached the server. It begins with the first attempt without
// an answer.
type outage struct {
	began time.Time
	tries int // attempts since then
}

// pause returns how long to wait before the next attempt. When patience is over, it returns the last error.
func (o *outage) pause(gone *away, patience time.Duration) (time.Duration, error) {
	if o.tries++; o.tries == 1 {
		o.began = time.Now()
	}
	if time.Since(o.began) >= patience {
		return 0, gone.err
	}
	return gone.retryAfter + spread(gone.retryAfter) + pause(o.tries), nil
}
