package agenthost

import (
	"context"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/env"
)

// instant is a moment on two clocks. The monotonic one cannot be set, and stands still while the
// machine is suspended; the wall clock goes on then. What comes due does so on whichever clock is
// first (F039).
type instant struct {
	mono time.Time // as Env.Now gives it
	wall time.Time // without a monotonic reading
}

func (h *Host) now() instant {
	return instant{mono: h.env.Now(), wall: h.env.Wall().Round(0)}
}

func (i instant) add(d time.Duration) instant {
	return instant{mono: i.mono.Add(d), wall: i.wall.Add(d)}
}

// reached says whether i is now or over, on either clock.
func (i instant) reached(now instant) bool {
	return !now.mono.Before(i.mono) || !now.wall.Before(i.wall)
}

// later and earlier compare clock by clock.
func later(a, b instant) instant {
	if b.mono.After(a.mono) {
		a.mono = b.mono
	}
	if b.wall.After(a.wall) {
		a.wall = b.wall
	}
	return a
}

func earlier(a, b instant) instant {
	if b.mono.Before(a.mono) {
		a.mono = b.mono
	}
	if b.wall.Before(a.wall) {
		a.wall = b.wall
	}
	return a
}

// millis reads a count of milliseconds from outside: between 0 and MaxDuration.
func millis(ms int64) time.Duration {
	return time.Duration(min(max(ms, 0), perdure.MaxDuration.Milliseconds())) * time.Millisecond
}

// backoff grows from base to most by doubling, and is drawn between half of that and all of it, so
// that hosts which failed together do not come back together.
type backoff struct {
	env        env.Env
	base, most time.Duration
	next       time.Duration
}

func (b *backoff) reset() { b.next = 0 }

// pause sleeps; false if ctx ended meanwhile.
func (b *backoff) pause(ctx context.Context) bool {
	b.next = min(max(2*b.next, b.base), b.most)
	return env.Sleep(b.env, ctx, b.next/2+time.Duration(b.env.Float64()*float64(b.next/2)))
}
