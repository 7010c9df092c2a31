package pgwire

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Statement is an SQL statement with its parameters, and what is done with its answer. Its methods add a parameter each, in the order
// of $1, $2, and so on, and return the statement.
type Statement struct {
	SQL  string
	oids []uint32
	buf  []byte // the parameters' cells

	row  func(*Reader) error // called for each row of the answer
	must bool                // the number of rows that were inserted, updated, deleted or selected must be rows
	rows int
	done []func(n int64) // called with that number
	Tag  string          // the command tag of the answer
}

// Params is the number of parameters so far.
func (s *Statement) Params() int { return len(s.oids) }

// Counted calls f with the number of rows that the statement has inserted, updated, deleted or selected.
func (s *Statement) Counted(f func(n int64)) *Statement {
	s.done = append(s.done, f)
	return s
}

// ErrRows is the error of a statement that has changed another number of rows than it must (Exact).
var ErrRows = errors.New("a statement has changed an unexpected number of rows")

// New makes a statement without parameters.
func New(sql string) *Statement { return &Statement{SQL: sql, buf: takeBuffer()} }

func (s *Statement) UUID(v [16]byte) *Statement {
	s.oids, s.buf = append(s.oids, UUID.oid), AppendUUID(s.buf, v)
	return s
}

func (s *Statement) Int(v int) *Statement {
	s.oids, s.buf = append(s.oids, Int4.oid), AppendInt4(s.buf, v)
	return s
}

func (s *Statement) Int64(v int64) *Statement {
	s.oids, s.buf = append(s.oids, Int8.oid), AppendInt8(s.buf, v)
	return s
}

func (s *Statement) Bool(v bool) *Statement {
	s.oids, s.buf = append(s.oids, Bool.oid), AppendBool(s.buf, v)
	return s
}

func (s *Statement) Text(v string) *Statement {
	s.oids, s.buf = append(s.oids, Text.oid), AppendText(s.buf, v)
	return s
}

func (s *Statement) Bytes(v []byte) *Statement {
	s.oids, s.buf = append(s.oids, Bytea.oid), AppendBytes(s.buf, v)
	return s
}

func (s *Statement) JSON(v []byte) *Statement {
	s.oids, s.buf = append(s.oids, JSON.oid), AppendJSON(s.buf, v)
	return s
}

// Time adds a time; a null for the zero time.
func (s *Statement) Time(t time.Time) *Statement {
	s.oids, s.buf = append(s.oids, Time.oid), AppendTimeOrNull(s.buf, t)
	return s
}

// Moment adds a time that is never null.
func (s *Statement) Moment(t time.Time) *Statement {
	s.oids, s.buf = append(s.oids, Time.oid), cellTime(s.buf, t)
	return s
}

// Array adds an array of n elements of a type, given as cells.
func (s *Statement) Array(t *Type, n int, cells []byte) *Statement {
	s.oids = append(s.oids, t.array)
	s.buf = slices.Grow(s.buf, arrayHeadSize+len(cells))
	s.buf = append(arrayHead(s.buf, t, n, len(cells)), cells...)
	return s
}

// UUIDArray adds an array of n ids.
func (s *Statement) UUIDArray(n int, at func(i int) [16]byte) *Statement {
	s.buf = slices.Grow(s.buf, arrayHeadSize+20*n)
	s.oids, s.buf = append(s.oids, UUID.array), arrayHead(s.buf, UUID, n, 20*n)
	for i := range n {
		s.buf = AppendUUID(s.buf, at(i))
	}
	return s
}

// Int4Array adds an array of n numbers.
func (s *Statement) Int4Array(n int, at func(i int) int) *Statement {
	s.buf = slices.Grow(s.buf, arrayHeadSize+8*n)
	s.oids, s.buf = append(s.oids, Int4.array), arrayHead(s.buf, Int4, n, 8*n)
	for i := range n {
		s.buf = AppendInt4(s.buf, at(i))
	}
	return s
}

// Texts adds an array of texts.
func (s *Statement) Texts(list []string) *Statement {
	var cells []byte
	for _, v := range list {
		cells = AppendText(cells, v)
	}
	return s.Array(Text, len(list), cells)
}

// Each calls row for each row of the answer. Its first error is that of the statement.
func (s *Statement) Each(row func(*Reader) error) *Statement {
	s.row = row
	return s
}

// Exact makes the statement fail with ErrRows if it changes another number of rows than n. The statements after it are executed all
// the same, unless Strictly is called.
func (s *Statement) Exact(n int) *Statement {
	s.must, s.rows = true, n
	return s
}

// Strictly makes the server itself fail a statement that is Exact, so that it does not execute the statements after it, such as
// COMMIT. The error is a division by zero (SQLSTATE 22012), which no other statement of the store can cause. The number of rows is 1
// then.
func (s *Statement) Strictly() {
	if !s.must {
		return
	}
	s.must = false
	s.SQL = fmt.Sprintf("with w as (%s returning 1) select 1 / (count(*) = $%d)::int from w", s.SQL, len(s.oids)+1)
	s.Int64(int64(s.rows))
}

// Then calls f when the statement was executed without an error.
func (s *Statement) Then(f func()) { s.Counted(func(int64) { f() }) }

// answered checks the number of rows, and calls the functions that wait for it.
func (s *Statement) answered(n int64) error {
	if s.must && n != int64(s.rows) {
		return ErrRows
	}
	for _, f := range s.done {
		f(n)
	}
	return nil
}

// Into appends the rows of a query to a slice.
func Into[T any](s *Statement, all *[]T, scan func(*Reader) T) *Statement {
	return s.Each(func(r *Reader) error {
		*all = append(*all, scan(r))
		return r.Failed
	})
}

// cells are the parameters' cells without their lengths.
func (s *Statement) cells(values [][]byte) [][]byte {
	for b := s.buf; len(b) > 0; {
		n := int(int32(uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])))
		b = b[4:]
		if n < 0 {
			values = append(values, nil)
			continue
		}
		values = append(values, b[:n:n])
		b = b[n:]
	}
	return values
}
