package postgres

import (
	"sync"

	"github.com/perdure/perdure/store/internal/rows"
)

// textKey is all that the text of a statement depends on.
type textKey struct {
	op, table, more string
	columns         rows.Set // those written, of table step
	of              shape    // of an update
	vary            rows.Set // which columns are arrays
}

// texts remembers what was put together: a transaction of one job would else spend most of its time on that.
var texts = struct {
	sync.RWMutex
	known map[textKey]string
}{known: map[textKey]string{}}

// maxTexts bounds what is remembered: more than a connection has prepared.
const maxTexts = 4 * maxPrepared

func textOf(k textKey, build func() string) string {
	texts.RLock()
	sql := texts.known[k]
	texts.RUnlock()
	if sql != "" {
		return sql
	}
	sql = build()
	texts.Lock()
	defer texts.Unlock()
	if len(texts.known) >= maxTexts {
		clear(texts.known)
	}
	texts.known[k] = sql
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
