package rest

import (
	order "container/list"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

const (
	// quietTime is how long a connection without a request is kept, however many others arrive: a caller that has just
	// connected, or has just been answered, is likely to send its next request.
	quietTime = time.Second
	// maxSurplus is how many connections are accepted above the bound. They are for probes; every other call on them is
	// answered 503, and the connection is closed.
	maxSurplus = 8
	// warnEvery is the least time between two equal warnings about connections.
	warnEvery = 10 * time.Second
)

// Bound makes srv accept at most max connections from l at once. When one more arrives, the connection that has been
// without a request for longest, and for at least quietTime, is closed. If there is none, a few more connections are
// accepted for probes (maxSurplus). These give way only to each other, and further ones are closed.
func Bound(l net.Listener, srv *http.Server, max int, log *slog.Logger) net.Listener {
	b := &conns{Listener: l, max: max, log: log, open: map[net.Conn]*conn{}, quiet: order.New()}
	srv.ConnState = b.changed
	srv.ConnContext = b.mark
	return b
}

// conns are the connections of a server.
type conns struct {
	net.Listener
	max int
	log *slog.Logger

	mu      sync.Mutex
	open    map[net.Conn]*conn
	surplus int         // how many of them are above the bound
	quiet   *order.List // of *conn: those without a request, the longest idle first

	refused, failed warning
}

type conn struct {
	net.Conn
	surplus bool
	since   time.Time      // when it became quiet
	element *order.Element // in quiet; nil: it has a request
}

// warning is a log line that is not repeated within warnEvery.
type warning struct {
	at     time.Time
	missed int // since then
}

// due reports whether the line is to be logged now, and how many were suppressed before it.
func (w *warning) due() (missed int, due bool) {
	if time.Since(w.at) < warnEvery {
		w.missed++
		return 0, false
	}
	missed, w.missed, w.at = w.missed, 0, time.Now()
	return missed, true
}

// Accept returns the next connection that may be served.
func (b *conns) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			b.accepted(err)
			return nil, err
		}
		if b.admit(c) {
			return c, nil
		}
		_ = c.Close()
	}
}

// admit reports whether a new connection is served.
func (b *conns) admit(c net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	fits := len(b.open)-b.surplus < b.max || b.evict(quietTime, false)
	if !fits {
		if missed, due := b.refused.due(); due {
			b.log.Warn("all connections are in use", "max", b.max, "unlogged", missed, "action", "raise --max-connections, and the limit of open files with it")
		}
		if b.surplus >= maxSurplus && !b.evict(quietTime, true) {
			return false
		}
		b.surplus++
	}
	k := &conn{Conn: c, surplus: !fits}
	b.open[c] = k
	b.markQuiet(k)
	return true
}

// accepted logs an error of Accept. If the system has no descriptor left, it closes a quiet connection.
func (b *conns) accepted(err error) {
	if !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	_ = b.evict(0, true) || b.evict(0, false)
	if missed, due := b.failed.due(); due {
		b.log.Warn("connections are not accepted", "error", err, "connections", len(b.open), "unlogged", missed, "action", "raise the limit of open files")
	}
}

// evict closes the connection that has been quiet for longest, if it has been quiet for at least that time: of those
// above the bound, or of the others. Called with mu held.
func (b *conns) evict(least time.Duration, surplus bool) bool {
	for e := b.quiet.Front(); e != nil; e = e.Next() {
		k := e.Value.(*conn)
		if time.Since(k.since) < least {
			return false
		}
		if k.surplus == surplus {
			b.drop(k)
			_ = k.Conn.Close()
			return true
		}
	}
	return false
}

// drop forgets a connection. Called with mu held.
func (b *conns) drop(k *conn) {
	delete(b.open, k.Conn)
	if k.surplus {
		b.surplus--
	}
	b.markActive(k)
}

// markQuiet records that a connection has no request, and markActive that it has one. Called with mu held.
func (b *conns) markQuiet(k *conn) {
	k.since, k.element = time.Now(), b.quiet.PushBack(k)
}

func (b *conns) markActive(k *conn) {
	if k.element != nil {
		b.quiet.Remove(k.element)
		k.element = nil
	}
}

// changed is the server's ConnState hook.
func (b *conns) changed(c net.Conn, state http.ConnState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.open[c]
	if k == nil {
		return // it was closed here
	}
	switch state {
	case http.StateActive:
		b.markActive(k)
	case http.StateIdle:
		b.markQuiet(k)
	case http.StateClosed, http.StateHijacked:
		b.drop(k)
	}
}

type surplusKey struct{}

// mark adds to the context whether the connection is above the bound, for the handler.
func (b *conns) mark(ctx context.Context, c net.Conn) context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	if k := b.open[c]; k != nil && k.surplus {
		return context.WithValue(ctx, surplusKey{}, true)
	}
	return ctx
}

func isSurplus(ctx context.Context) bool { return ctx.Value(surplusKey{}) != nil }
