package rest

import (
	"context"
	"sync"
	"time"
)

// flow bounds the bytes that the node holds of bodies in one direction: of requests from their first byte until they
// are answered, or of answers until their last byte is taken. A caller that makes no progress gives way: when the bytes
// are used up, its transfer is cut after stallTime, so that a few that do not read, or do not send, keep nobody else out.
type flow struct {
	max int64

	mu      sync.Mutex
	used    int64
	all     map[*transfer]struct{}
	freed   chan struct{} // closed when bytes are given back; nil: no call waits for room
	checked time.Time     // when stalled transfers were looked for
}

const (
	maxRequestBytes = 64 << 20 // of requests in flight: four definitions of the largest kind, or two calls of reports
	maxAnswerBytes  = 64 << 20 // of answers in flight

	stallTime  = 2 * time.Second // without progress, while others wait for room
	stallCheck = stallTime / 4
	roomWait   = 3 * time.Second // for room, before a call is refused: a stalled transfer is cut within it
)

func newFlow(max int64) *flow { return &flow{max: max, all: map[*transfer]struct{}{}} }

// transfer is one body in a flow. Its methods are for the goroutine of its call.
type transfer struct {
	flow *flow
	stop func() // ends the reading or writing that is under way; called with flow.mu held

	bytes int64
	moves bool      // the caller is to send or to read: it neither waits for room nor is worked on
	moved time.Time // when it made progress last
	cut   bool
}

func (f *flow) begin(stop func()) *transfer {
	t := &transfer{flow: f, stop: stop}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all[t] = struct{}{}
	return t
}

// grow takes n more bytes. It waits a while for room, and returns false if there is none. A body that is larger than
// the whole flow passes alone.
func (t *transfer) grow(ctx context.Context, n int64) bool {
	var late <-chan time.Time
	for {
		room := t.take(n)
		if room == nil {
			return true
		}
		if late == nil {
			timer := time.NewTimer(roomWait)
			defer timer.Stop()
			late = timer.C
		}
		look := time.NewTimer(stallCheck)
		select {
		case <-room:
		case <-look.C:
		case <-late:
			look.Stop()
			return false
		case <-ctx.Done():
			look.Stop()
			return false
		}
		look.Stop()
	}
}

// take takes n bytes, and returns nil; or cuts what stalls, and returns what is closed when bytes are given back.
func (t *transfer) take(n int64) <-chan struct{} {
	f := t.flow
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.used+n <= f.max || f.used == t.bytes {
		f.used += n
		t.bytes += n
		return nil
	}
	t.moves = false
	f.cutStalled()
	if f.freed == nil {
		f.freed = make(chan struct{})
	}
	return f.freed
}

// cutStalled ends the transfers that hold bytes and do not move. Called with mu held.
func (f *flow) cutStalled() {
	now := time.Now()
	if now.Sub(f.checked) < stallCheck {
		return
	}
	f.checked = now
	for t := range f.all {
		if t.moves && !t.cut && now.Sub(t.moved) >= stallTime {
			t.cut = true
			t.stop()
		}
	}
}

// progress notes that bytes have moved, and calls next unless the transfer was cut: it sets the deadline for those that
// follow.
func (t *transfer) progress(next func()) {
	t.flow.mu.Lock()
	defer t.flow.mu.Unlock()
	t.moves, t.moved = true, time.Now()
	if !t.cut {
		next()
	}
}

func (t *transfer) wasCut() bool {
	if t == nil {
		return false
	}
	t.flow.mu.Lock()
	defer t.flow.mu.Unlock()
	return t.cut
}

// arrived ends the reading of a body that is still worked on.
func (t *transfer) arrived() {
	t.flow.mu.Lock()
	defer t.flow.mu.Unlock()
	t.moves = false
}

// adjust corrects what the transfer has taken to what its body turned out to be. It does not wait for more: the body is
// there, and transfers that waited for each other's last bytes would all be refused.
func (t *transfer) adjust(n int64) {
	f := t.flow
	f.mu.Lock()
	defer f.mu.Unlock()
	if n < t.bytes {
		t.give(t.bytes - n)
		return
	}
	f.used += n - t.bytes
	t.bytes = n
}

// end gives everything back. It may be called again, and of nil.
func (t *transfer) end() {
	if t == nil {
		return
	}
	f := t.flow
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, t)
	t.give(t.bytes)
}

// give returns n bytes. Called with flow.mu held.
func (t *transfer) give(n int64) {
	if n == 0 {
		return
	}
	t.bytes -= n
	t.flow.used -= n
	if t.flow.freed != nil {
		close(t.flow.freed)
		t.flow.freed = nil
	}
}
