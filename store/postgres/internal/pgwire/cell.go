package pgwire

import (
	"encoding/binary"
	"math"
	"time"
)

// A value is sent as a cell: its length in four bytes, then its bytes in PostgreSQL's binary format. A null has the
// length -1. Parameters and elements of arrays are cells.

// Type is the SQL type of a value.
type Type struct {
	name       string
	oid, array uint32
}

// Named returns a column of this type.
func (t *Type) Named(name string) Field { return Field{name, t} }

// The types that the store uses.
var (
	Bool  = &Type{"boolean", 16, 1000}
	Bytea = &Type{"bytea", 17, 1001}
	Int8  = &Type{"bigint", 20, 1016}
	Int2  = &Type{"smallint", 21, 1005}
	Int4  = &Type{"int", 23, 1007}
	Text  = &Type{"text", 25, 1009}
	Time  = &Type{"timestamptz", 1184, 1185}
	UUID  = &Type{"uuid", 2950, 2951}
	TID   = &Type{"tid", 27, 1010}
	JSON  = &Type{"jsonb", 3802, 3807}
)

// The Append functions append the cell of one value.
func AppendNull(b []byte) []byte { return append(b, 0xff, 0xff, 0xff, 0xff) }

func AppendInt2(b []byte, v int) []byte { return append(b, 0, 0, 0, 2, byte(v>>8), byte(v)) }

func AppendInt4(b []byte, v int) []byte {
	return binary.BigEndian.AppendUint32(append(b, 0, 0, 0, 4), uint32(v))
}

func AppendInt8(b []byte, v int64) []byte {
	return binary.BigEndian.AppendUint64(append(b, 0, 0, 0, 8), uint64(v))
}

func AppendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 0, 0, 0, 1, 1)
	}
	return append(b, 0, 0, 0, 1, 0)
}

func AppendUUID(b []byte, v [16]byte) []byte { return append(append(b, 0, 0, 0, 16), v[:]...) }

// RowID is the position of a row version (ctid): page and item.
type RowID [6]byte

func cellTID(b []byte, v RowID) []byte { return append(append(b, 0, 0, 0, 6), v[:]...) }

func AppendText(b []byte, v string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
}

func AppendBytes(b, v []byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
}

// A jsonb travels as its text, after the number of the format.
func AppendJSON(b, v []byte) []byte {
	return append(append(binary.BigEndian.AppendUint32(b, uint32(len(v)+1)), 1), v...)
}

// microEpoch is PostgreSQL's epoch, the beginning of 2000, in microseconds since 1970.
const microEpoch = 946_684_800_000_000

func cellTime(b []byte, t time.Time) []byte { return AppendInt8(b, t.UnixMicro()-microEpoch) }

// These append a null for the zero value.

func AppendBoolOrNull(b []byte, v bool) []byte {
	if !v {
		return AppendNull(b)
	}
	return AppendBool(b, v)
}

func AppendTextOrNull(b []byte, v string) []byte {
	if v == "" {
		return AppendNull(b)
	}
	return AppendText(b, v)
}

func AppendBytesOrNull(b, v []byte) []byte {
	if v == nil {
		return AppendNull(b)
	}
	return AppendBytes(b, v)
}

func nullJSON(b, v []byte) []byte {
	if v == nil {
		return AppendNull(b)
	}
	return AppendJSON(b, v)
}

func AppendTimeOrNull(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return AppendNull(b)
	}
	return cellTime(b, t)
}

// Cells are consecutive cells.
type Cells []byte

func (c *Cells) Null()              { *c = AppendNull(*c) }
func (c *Cells) UUID(v [16]byte)    { *c = AppendUUID(*c, v) }
func (c *Cells) RowID(v RowID)      { *c = cellTID(*c, v) }
func (c *Cells) Int2(v int)         { *c = AppendInt2(*c, v) }
func (c *Cells) Int4(v int)         { *c = AppendInt4(*c, v) }
func (c *Cells) Int8(v int64)       { *c = AppendInt8(*c, v) }
func (c *Cells) Text(v string)      { *c = AppendText(*c, v) }
func (c *Cells) Bytes(v []byte)     { *c = AppendBytes(*c, v) }
func (c *Cells) NullBytes(v []byte) { *c = AppendBytesOrNull(*c, v) }
func (c *Cells) NullJSON(v []byte)  { *c = nullJSON(*c, v) }
func (c *Cells) Moment(v time.Time) { *c = cellTime(*c, v) } // never null
func (c *Cells) Time(v time.Time)   { *c = AppendTimeOrNull(*c, v) }

// arrayHeadSize is the maximum size of the head of an array's cell.
const arrayHeadSize = 24

// arrayHead begins the cell of an array of n elements. The cells of the elements follow, and take size bytes in all.
func arrayHead(b []byte, t *Type, n, size int) []byte {
	if n == 0 {
		b = binary.BigEndian.AppendUint32(b, 12)
		b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
		return binary.BigEndian.AppendUint32(b, t.oid)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(20+size))
	b = append(b, 0, 0, 0, 1, 0, 0, 0, 1) // one dimension, may contain nulls
	b = binary.BigEndian.AppendUint32(b, t.oid)
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	return append(b, 0, 0, 0, 1) // the lower bound is 1
}

// Reader reads the values of one row of an answer, one after the other. A null is read as the zero value.
type Reader struct {
	values [][]byte
	words  *words
	Sent   time.Time // when the request was sent
	Failed error     // why a value could not be read; set by the caller
}

// More reports whether the row has further values.
func (r *Reader) More() bool { return len(r.values) > 0 }

// Interned returns the text of a value. Equal short texts share their memory.
func (r *Reader) Interned(v []byte) string { return r.words.of(v) }

// Next returns the next value in binary format; nil for a null. It is valid until the next row is read.
func (r *Reader) Next() []byte {
	v := r.values[0]
	r.values = r.values[1:]
	return v
}

func (r *Reader) Int() int        { return int(ToInt(r.Next())) }
func (r *Reader) Bool() bool      { v := r.Next(); return len(v) == 1 && v[0] == 1 }
func (r *Reader) Int64() int64    { return ToInt(r.Next()) }
func (r *Reader) Text() string    { return string(r.Next()) }
func (r *Reader) Word() string    { return r.words.of(r.Next()) }
func (r *Reader) Time() time.Time { return ToTime(r.Next()) }

func (r *Reader) UUID() (id [16]byte) {
	copy(id[:], r.Next())
	return id
}

// Bytes returns a copy, because the buffer is reused for the next row.
func (r *Reader) Bytes() []byte {
	v := r.Next()
	if v == nil {
		return nil
	}
	return append(make([]byte, 0, len(v)), v...)
}

func (r *Reader) Texts() []string {
	return Elements(r.Next(), func(v []byte) string { return string(v) })
}

func (r *Reader) Ints() []int {
	return Elements(r.Next(), func(v []byte) int { return int(ToInt(v)) })
}

// Elements reads an array without nulls.
func Elements[T any](v []byte, read func([]byte) T) (list []T) {
	if len(v) < 20 {
		return nil
	}
	n := int(binary.BigEndian.Uint32(v[12:]))
	v = v[20:]
	for range n {
		size := int(binary.BigEndian.Uint32(v))
		list = append(list, read(v[4:4+size]))
		v = v[4+size:]
	}
	return list
}

// ToInt reads an integer of any size; 0 for a null.
func ToInt(v []byte) int64 {
	switch len(v) {
	case 2:
		return int64(int16(binary.BigEndian.Uint16(v)))
	case 4:
		return int64(int32(binary.BigEndian.Uint32(v)))
	case 8:
		return int64(binary.BigEndian.Uint64(v))
	}
	return 0
}

// ToTime reads a time; the zero time for a null.
func ToTime(v []byte) time.Time {
	if len(v) != 8 {
		return time.Time{}
	}
	micros := ToInt(v)
	if micros > math.MaxInt64-microEpoch { // infinity
		return time.UnixMicro(math.MaxInt64).UTC()
	}
	return time.UnixMicro(micros + microEpoch).UTC()
}

// words are short texts that are repeated often: types, agents, holders. Each is kept once.
type words struct{ known map[string]string }

const maxWords = 1000

func (w *words) of(v []byte) string {
	if len(v) == 0 {
		return ""
	}
	if s, ok := w.known[string(v)]; ok {
		return s
	}
	if w.known == nil || len(w.known) >= maxWords {
		w.known = map[string]string{}
	}
	s := string(v)
	w.known[s] = s
	return s
}
