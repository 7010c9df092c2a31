package agenthost

import (
	"context"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/env"
)

// instant is a point in time on two clocks. The monotonic clock cannot be set, and stands still while the machine is
// suspended. The wall clock continues meanwhile. A time is reached when either clock reaches it (F039).
type instant struct {
	mono time.Time // as Env.Now returns it
	wall time.Time // without a monotonic reading
}

func (h *Host) now() instant {
	return instant{mono: h.env.Now(), wall: h.env.Wall().Round(0)}
}

func (i instant) add(d time.Duration) instant {
	return instant{mono: i.mono.Add(d), wall: i.wall.Add(d)}
}

// reached reports whether i is now or in the past, on either clock.
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

// millis converts a number of milliseconds from outside to a duration between 0 and MaxDuration.
func millis(ms int64) time.Duration {
	return time.Duration(min(max(ms, 0), perdure.MaxDuration.Milliseconds())) * time.Millisecond
}

// backoff is a pause that doubles from base to most. Each pause is random, between half of it and all of it, so that
// hosts that failed together do not retry together.
type backoff struct {
	env        env.Env
	base, most time.Duration
	next       time.Duration
}

func (b *backoff) reset() { b.next = 0 }

// pause sleeps. It returns false if ctx ends meanwhile.
func (b *backoff) pause(ctx context.Context) bool {
	b.next = min(max(2*b.next, b.base), b.most)
	return env.Sleep(b.env, ctx, b.next/2+time.Duration(b.env.Float64()*float64(b.next/2)))
}
