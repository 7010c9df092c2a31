package postgres

import "sync"

// texts remembers the texts of statements: a transaction of one job would else spend most of its time on putting them together. A key
// is all that a text depends on.
type texts[K comparable] struct {
	mu    sync.RWMutex
	known map[K]string
}

// maxTexts bounds what is remembered: more than a connection has prepared.
const maxTexts = 4 * maxPrepared

func (t *texts[K]) of(k K, build func() string) string {
	t.mu.RLock()
	sql := t.known[k]
	t.mu.RUnlock()
	if sql != "" {
		return sql
	}
	sql = build()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil || len(t.known) >= maxTexts {
		t.known = map[K]string{}
	}
	t.known[k] = sql
	return sql
}

// buffers are where cells are gathered, from one statement to the next.
var buffers sync.Pool

// maxBuffer bounds one that is kept.
const maxBuffer = 1 << 20

// takeBuffer may give nil.
func takeBuffer() []byte {
	if b, ok := buffers.Get().(*[]byte); ok {
		return (*b)[:0]
	}
	return nil
}

// giveBuffer is for a buffer that nobody uses any more.
func giveBuffer(b []byte) {
	if cap(b) > 0 && cap(b) <= maxBuffer {
		buffers.Put(&b)
	}
}
