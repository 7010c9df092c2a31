package sqlite

import (
	"encoding/json"
	"fmt"
	"time"
	"unsafe"

	driver "zombiezen.com/go/sqlite"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// row is one row of an answer, read column by column. NULL reads as the zero value.
type row struct {
	s     *driver.Stmt
	words words
	next  int
	err   error // the first value that could not be read
}

func (r *row) take() int {
	r.next++
	return r.next - 1
}

func (r *row) num() int64 { return r.s.ColumnInt64(r.take()) }
func (r *row) int() int   { return int(r.num()) }
func (r *row) flag() bool { return r.num() != 0 }

// nullNum returns nil for NULL.
func (r *row) nullNum() *int64 {
	i := r.take()
	if r.s.ColumnIsNull(i) {
		return nil
	}
	n := r.s.ColumnInt64(i)
	return &n
}

func (r *row) text() string { return r.s.ColumnText(r.take()) }

// word reads a text of which there are few different ones. Equal texts share their memory.
func (r *row) word() string {
	var b [64]byte
	i := r.take()
	n := r.s.ColumnLen(i)
	switch {
	case n == 0:
		return ""
	case n > len(b):
		return r.s.ColumnText(i)
	}
	r.s.ColumnBytes(i, b[:n])
	return r.words.of(b[:n])
}

// bytes reads a text as bytes; nil for NULL.
func (r *row) bytes() []byte {
	i := r.take()
	b := make([]byte, r.s.ColumnLen(i))
	if r.s.ColumnBytes(i, b) == 0 && r.s.ColumnIsNull(i) {
		return nil
	}
	return b
}

func (r *row) time() time.Time {
	i := r.take()
	us := r.s.ColumnInt64(i)
	if us == 0 && r.s.ColumnIsNull(i) {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

func (r *row) id() (id perdure.JobID) {
	r.blob(id[:])
	return id
}

// blob reads a value of fixed length. NULL leaves the zero value.
func (r *row) blob(into []byte) {
	i := r.take()
	if n := r.s.ColumnBytes(i, into); (n != len(into) || r.s.ColumnLen(i) != n) && !r.s.ColumnIsNull(i) && r.err == nil {
		r.err = fmt.Errorf("%d bytes where %d were expected", r.s.ColumnLen(i), len(into))
	}
}

// json decodes a value into v. NULL leaves it unchanged.
func (r *row) json(v any) {
	if b := r.bytes(); b != nil {
		if err := json.Unmarshal(b, v); err != nil && r.err == nil {
			r.err = err
		}
	}
}

func (r *row) ref() kernel.StepRef { return kernel.StepRef{Job: r.id(), Index: r.int()} }

// words are texts that are repeated often. If there are too many, all are removed.
type words map[string]string

const maxWords = 4096

func (w words) of(b []byte) string {
	if s, ok := w[string(b)]; ok {
		return s
	}
	if len(w) >= maxWords {
		clear(w)
	}
	s := string(b)
	w[s] = s
	return s
}

func readPayload(r *row) kernel.Payload {
	return kernel.Payload{StepRef: r.ref(), Input: r.bytes(), Output: r.bytes()}
}

func readSizedPayload(r *row) kernel.SizedPayload {
	return kernel.SizedPayload{Payload: readPayload(r), InputBytes: r.int(), OutputBytes: r.int()}
}

const limitColumns = `name, coalesce(max, -1), coalesce(per_key, -1), coalesce(rates, '')`

func readLimit(r *row) kernel.Limit {
	return kernel.StoredLimit(r.text(), r.int(), r.int(), r.text())
}

const alertColumns = `id, job, type, job_key, step, kind, code, attempts, name, message, raised_at, closed_at, closed_by`

func readAlert(r *row) kernel.Alert {
	return kernel.Alert{
		ID: r.num(), Job: r.id(), Type: r.text(), JobKey: r.text(), Step: r.text(), Kind: perdure.AlertKind(r.text()), Code: r.text(), Attempts: r.int(), Name: r.text(), Message: r.text(),
		RaisedAt: r.time(), ClosedAt: r.time(), ClosedBy: r.text(),
	}
}

const entryColumns = `id, job, step, run, at, event, author, detail, turn, direction, ready_at, started_at`

func readEntry(r *row) kernel.Entry {
	return kernel.Entry{
		ID: r.num(), Job: r.id(), Step: r.text(), Run: r.num(), At: r.time(), Event: r.text(), Author: r.text(), Detail: r.text(),
		Turn: r.int(), Direction: perdure.Direction(r.num()), ReadyAt: r.time(), StartedAt: r.time(),
	}
}

// These functions bind values.

// bind binds the parameters of a statement.
func bind(s *driver.Stmt, args []any) {
	for i, v := range args {
		switch v := v.(type) {
		case nil:
			s.BindNull(i + 1)
		case int64:
			s.BindInt64(i+1, v)
		case int:
			s.BindInt64(i+1, int64(v))
		case bool:
			s.BindBool(i+1, v)
		case string:
			s.BindText(i+1, v)
		case []byte:
			s.BindBytes(i+1, v)
		default:
			panic(fmt.Sprintf("%T cannot be bound", v))
		}
	}
}

// micros returns a time as it is stored; NULL for the zero time.
func orNull(n int64) any {
	if n == 0 {
		return nil
	}
	return n
}

func micros(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// textOf returns bytes as text, without a copy: SQLite copies it when it is bound. Values are stored as text so that
// people can read them.
func textOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// textOrNull is the same, with NULL for nil.
func textOrNull(b []byte) any {
	if b == nil {
		return nil
	}
	return textOf(b)
}

// toMicros returns t as it is stored: to the microsecond, in UTC.
func toMicros(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return time.UnixMicro(t.UnixMicro()).UTC()
}
