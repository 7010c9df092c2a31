package access

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/env"
)

const (
	// A read of credentials that are not cached is followed by a pause of loadPause times its duration, so that such reads
	// take a twentieth of the time of one connection; but of at most maxPause, because a caller with a valid token waits
	// for it, too, while many unknown tokens arrive.
	loadPause = 20
	maxPause  = 10 * time.Millisecond
	// maxLoaded bounds the credentials of one read.
	maxLoaded = 1000
	// waitTime bounds how long a caller waits for a read.
	waitTime = 10 * time.Second
)

// loader reads credentials that are not cached. Callers with wrong tokens must not slow the store down for others, so that
// the number of reads does not grow with that of the tokens: one read is in progress at a time, a pause follows it, and the
// next one is for all callers that wait by then.
type loader struct {
	env  env.Env
	read func(ctx context.Context, ids []string) (map[string]*identified, error)

	mu      sync.Mutex
	waiting []*load   // reads that have not begun; only the last one has room for further ids
	running bool      // a goroutine makes the reads
	resume  time.Time // when the pause after the last read is over; only run uses it
}

// load is a read of some credentials.
type load struct {
	ids  map[string]bool
	done chan struct{}

	at    time.Time // when it began
	found map[string]*identified
	err   error
}

// load reads a credential, and returns the time at which the read began; nil: there is no such credential.
func (l *loader) load(ctx context.Context, id string) (c *identified, at time.Time, err error) {
	read := l.join(id)
	switch l.env.Wait(ctx, waitTime, read.done) {
	case env.Late:
		return nil, at, context.DeadlineExceeded
	case env.Gone:
		return nil, at, ctx.Err()
	}
	return read.found[id], read.at, read.err
}

// join adds a credential to the last read that has not begun.
func (l *loader) join(id string) *load {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.waiting)
	if n == 0 || len(l.waiting[n-1].ids) >= maxLoaded {
		l.waiting = append(l.waiting, &load{ids: map[string]bool{}, done: make(chan struct{})})
		n++
	}
	last := l.waiting[n-1]
	last.ids[id] = true
	if !l.running {
		l.running = true
		l.env.Go(l.run)
	}
	return last
}

// run makes reads until no caller waits.
func (l *loader) run() {
	for {
		if pause := l.resume.Sub(l.env.Now()); pause > 0 {
			env.Sleep(l.env, context.Background(), pause)
		}
		next := l.next()
		if next == nil {
			return
		}
		next.at = l.env.Now()
		next.found, next.err = l.read(context.Background(), slices.Sorted(maps.Keys(next.ids)))
		close(next.done)
		now := l.env.Now()
		l.resume = now.Add(min(loadPause*now.Sub(next.at), maxPause))
	}
}

// next removes the first read from those that wait; nil if there is none, and run ends.
func (l *loader) next() *load {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		l.running = false
		return nil
	}
	first := l.waiting[0]
	l.waiting = l.waiting[1:]
	return first
}
