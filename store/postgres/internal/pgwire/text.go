package pgwire

import "sync"

// Texts is a cache of statement texts. Without it, a transaction of one job would spend most of its time on composing texts. A key is
// everything that a text depends on.
type Texts[K comparable] struct {
	mu    sync.RWMutex
	known map[K]string
}

// maxTexts bounds the cache. It is larger than the number of statements that a connection prepares.
const maxTexts = 4 * maxPrepared

// Of returns the text of a key. build composes it.
func (t *Texts[K]) Of(k K, build func() string) string {
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

// buffers are the buffers of parameters, for use by later statements.
var buffers sync.Pool

// maxBuffer bounds a buffer that is kept.
const maxBuffer = 1 << 20

// takeBuffer returns an empty buffer, or nil.
func takeBuffer() []byte {
	if b, ok := buffers.Get().(*[]byte); ok {
		return (*b)[:0]
	}
	return nil
}

// giveBuffer keeps a buffer that is not used any more.
func giveBuffer(b []byte) {
	if cap(b) > 0 && cap(b) <= maxBuffer {
		buffers.Put(&b)
	}
}
