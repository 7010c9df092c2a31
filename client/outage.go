package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/perdure/perdure"
)

// Reading is tried again where the server is away for a moment; what changes something is the caller's
// to repeat. Who waits for a job has more patience.
const (
	attempts      = 3
	firstPause    = 100 * time.Millisecond
	longestPause  = 2 * time.Second
	maxRetryAfter = time.Minute
	longestOutage = time.Minute // that a wait or a stream bears
)

func pause(try int) time.Duration {
	d := min(firstPause<<min(2*(try-1), 8), longestPause)
	return d/2 + rand.N(d)
}

// spread is how much later than a server asks a call is repeated: clients that were refused together must not all come back together.
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

// away is the error of a server that does not answer, or not for the moment. It stays in this package: who
// called is told err.
type away struct {
	err        error
	retryAfter time.Duration // not to be asked again before that
}

func (a *away) Error() string { return a.err.Error() }
func (a *away) Unwrap() error { return a.err }

// awayIn is nil for every other error.
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
		return &away{err, retryAfter}
	}
	return err
}

func retryAfter(resp *http.Response) time.Duration {
	s, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 32)
	if err != nil {
		return 0 // a date, which no two clocks agree on; or nothing
	}
	return min(time.Duration(s)*time.Second, maxRetryAfter)
}

// outage is what one who waits for a job has met of it. It counts from the first question without an answer: before
// that, a server may have been quiet for long with good reason.
type outage struct {
	began time.Time
	tries int // since then
}

// pause is how long to wait before the server is asked again. Once patience is over, gone is what was last wrong.
func (o *outage) pause(gone *away, patience time.Duration) (time.Duration, error) {
	if o.tries++; o.tries == 1 {
		o.began = time.Now()
	}
	if time.Since(o.began) >= patience {
		return 0, gone.err
	}
	return gone.retryAfter + spread(gone.retryAfter) + pause(o.tries), nil
}
