package rest

import (
	"context"
	"sync"
	"time"
)

// flow bounds the bytes of bodies that the node holds in one direction: of requests from their first byte until they
// are answered, or of answers until the caller has read their last byte. When the bytes are used up, transfers that
// have made no progress for stallTime are cut, so that a few callers that do not read, or do not send, cannot block all
// others.
type flow struct {
	max int64

	mu      sync.Mutex
	used    int64
	wanted  int64 // by transfers that wait for room
	all     map[*transfer]struct{}
	freed   chan struct{} // closed when bytes are released; nil: no call waits for room
	checked time.Time     // when stalled transfers were last searched for
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
	stop func() // ends the read or write in progress; called with flow.mu held

	bytes int64
	moves bool      // it is the caller's turn to send or to read: the call neither waits for room nor is being processed
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
	var timeout <-chan time.Time
	for {
		room := t.take(n)
		if room == nil {
			return true
		}
		if timeout == nil {
			t.flow.wants(n)
			defer t.flow.wants(-n)
			timer := time.NewTimer(roomWait)
			defer timer.Stop()
			timeout = timer.C
		}
		ticker := time.NewTimer(stallCheck)
		select {
		case <-room:
		case <-ticker.C:
		case <-timeout:
			ticker.Stop()
			return false
		case <-ctx.Done():
			ticker.Stop()
			return false
		}
		ticker.Stop()
	}
}

// take takes n bytes and returns nil. If there is no room, it cuts stalled transfers, and returns a channel that is
// closed when bytes are released.
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

// wants adds to the bytes for which transfers wait.
func (f *flow) wants(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wanted += n
}

// room is how many bytes are left, beside those for which transfers wait.
func (f *flow) room() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return int(max(f.max-f.used-f.wanted, 0))
}

// cutStalled ends the transfers that hold bytes and make no progress. Called with mu held.
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

// progress records that bytes were transferred. Unless the transfer was cut, it calls next, which sets the deadline for
// the following bytes.
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

// arrived marks a body as read completely. Its call still holds the bytes while it is processed.
func (t *transfer) arrived() {
	t.flow.mu.Lock()
	defer t.flow.mu.Unlock()
	t.moves = false
}

// adjust sets the bytes of the transfer to the actual size of its body. It does not wait for room: the body is in
// memory already, and transfers that waited for each other would all be refused.
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

// end releases all bytes. It may be called repeatedly, and on nil.
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
