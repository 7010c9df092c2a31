package sqlite

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"perdure"
)

// row is one row of an answer, read column by column. It takes what the driver gives as it is, which
// is half the price of having database/sql convert it.
type row struct {
	values []any
	into   []any // points into values
	next   int
	err    error // the first value that could not be read
}

func (r *row) scan(rows *sql.Rows) error {
	if r.values == nil {
		columns, err := rows.Columns()
		if err != nil {
			return err
		}
		r.values, r.into = make([]any, len(columns)), make([]any, len(columns))
		for i := range r.values {
			r.into[i] = &r.values[i]
		}
	}
	r.next = 0
	return rows.Scan(r.into...)
}

func (r *row) take() any {
	r.next++
	return r.values[r.next-1]
}

func (r *row) num() int64 {
	n, _ := r.take().(int64)
	return n
}

func (r *row) int() int   { return int(r.num()) }
func (r *row) flag() bool { return r.num() != 0 }

func (r *row) text() string {
	s, _ := r.take().(string)
	return s
}

// bytes is a text as bytes; nil where there is none.
func (r *row) bytes() []byte {
	if s, ok := r.take().(string); ok {
		return []byte(s)
	}
	return nil
}

func (r *row) time() time.Time {
	if us, ok := r.take().(int64); ok {
		return time.UnixMicro(us).UTC()
	}
	return time.Time{}
}

func (r *row) id() (id perdure.JobID) {
	r.blob(id[:])
	return id
}

func (r *row) blob(into []byte) {
	b, _ := r.take().([]byte)
	if copy(into, b) != len(into) && r.err == nil {
		r.err = fmt.Errorf("%d bytes where %d were expected", len(b), len(into))
	}
}

// json reads what is there into v.
func (r *row) json(v any) {
	if s, ok := r.take().(string); ok {
		if err := json.Unmarshal([]byte(s), v); err != nil && r.err == nil {
			r.err = err
		}
	}
}

func (r *row) ref() perdure.StepRef { return perdure.StepRef{Job: r.id(), Index: r.int()} }

// What goes the other way. The driver wants one of its own types, or spends more on finding out.

func num[N ~int | ~int64 | ~uint8](n N) int64 { return int64(n) }

// micros is a time as it is kept; NULL for none.
func micros(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// textOrNull keeps "" as NULL, where a column is unique or tells "" from none.
func textOrNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// bytesOrNull keeps bytes as text, to be read by people.
func bytesOrNull(b []byte) any {
	if b == nil {
		return nil
	}
	return string(b)
}

// jsonOrNull is v as JSON; NULL if it is not there.
func jsonOrNull(v any, there bool) (any, error) {
	if !there {
		return nil, nil
	}
	b, err := json.Marshal(v)
	return string(b), err
}
