package postgres

import (
	"encoding/binary"
	"math"
	"time"
)

// A value travels as a cell: its length in four bytes, and its bytes in PostgreSQL's binary format; a null
// is a length of -1. Parameters and elements of arrays are cells.

// kind of a value, in SQL.
type sqlType struct {
	name       string
	oid, array uint32
}

var (
	tBool  = &sqlType{"boolean", 16, 1000}
	tBytea = &sqlType{"bytea", 17, 1001}
	tInt8  = &sqlType{"bigint", 20, 1016}
	tInt2  = &sqlType{"smallint", 21, 1005}
	tInt4  = &sqlType{"int", 23, 1007}
	tText  = &sqlType{"text", 25, 1009}
	tTime  = &sqlType{"timestamptz", 1184, 1185}
	tUUID  = &sqlType{"uuid", 2950, 2951}
	tTID   = &sqlType{"tid", 27, 1010}
	tJSON  = &sqlType{"jsonb", 3802, 3807}
)

func cellNull(b []byte) []byte { return append(b, 0xff, 0xff, 0xff, 0xff) }

func cellInt2(b []byte, v int) []byte { return append(b, 0, 0, 0, 2, byte(v>>8), byte(v)) }

func cellInt4(b []byte, v int) []byte {
	return binary.BigEndian.AppendUint32(append(b, 0, 0, 0, 4), uint32(v))
}

func cellInt8(b []byte, v int64) []byte {
	return binary.BigEndian.AppendUint64(append(b, 0, 0, 0, 8), uint64(v))
}

func cellBool(b []byte, v bool) []byte {
	if v {
		return append(b, 0, 0, 0, 1, 1)
	}
	return append(b, 0, 0, 0, 1, 0)
}

func cellUUID(b []byte, v [16]byte) []byte { return append(append(b, 0, 0, 0, 16), v[:]...) }

// tid is where a row's version is: page and place.
type tid [6]byte

func cellTID(b []byte, v tid) []byte { return append(append(b, 0, 0, 0, 6), v[:]...) }

func cellText(b []byte, v string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
}

func cellBytes(b, v []byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
}

// A jsonb travels as its text, after the number of the format.
func cellJSON(b, v []byte) []byte {
	return append(append(binary.BigEndian.AppendUint32(b, uint32(len(v)+1)), 1), v...)
}

// microEpoch is PostgreSQL's: the beginning of 2000, in microseconds from that of 1970.
const microEpoch = 946_684_800_000_000

func cellTime(b []byte, t time.Time) []byte { return cellInt8(b, t.UnixMicro()-microEpoch) }

// The same, with a null for the zero value.

func nullBool(b []byte, v bool) []byte {
	if !v {
		return cellNull(b)
	}
	return cellBool(b, v)
}

func nullText(b []byte, v string) []byte {
	if v == "" {
		return cellNull(b)
	}
	return cellText(b, v)
}

func nullBytes(b, v []byte) []byte {
	if v == nil {
		return cellNull(b)
	}
	return cellBytes(b, v)
}

func nullJSON(b, v []byte) []byte {
	if v == nil {
		return cellNull(b)
	}
	return cellJSON(b, v)
}

func nullTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return cellNull(b)
	}
	return cellTime(b, t)
}

// cells are some of them, one after the other.
type cells []byte

func (c *cells) uuid(v [16]byte)    { *c = cellUUID(*c, v) }
func (c *cells) tid(v tid)          { *c = cellTID(*c, v) }
func (c *cells) int4(v int)         { *c = cellInt4(*c, v) }
func (c *cells) int8(v int64)       { *c = cellInt8(*c, v) }
func (c *cells) text(v string)      { *c = cellText(*c, v) }
func (c *cells) bytes(v []byte)     { *c = cellBytes(*c, v) }
func (c *cells) nullBytes(v []byte) { *c = nullBytes(*c, v) }
func (c *cells) nullJSON(v []byte)  { *c = nullJSON(*c, v) }
func (c *cells) moment(v time.Time) { *c = cellTime(*c, v) } // never null
func (c *cells) time(v time.Time)   { *c = nullTime(*c, v) }

// arrayHeadSize is how long the beginning of an array's cell is, at most.
const arrayHeadSize = 24

// arrayHead begins the cell of an array of n elements, whose cells follow and take size bytes in all.
func arrayHead(b []byte, t *sqlType, n, size int) []byte {
	if n == 0 {
		b = binary.BigEndian.AppendUint32(b, 12)
		b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
		return binary.BigEndian.AppendUint32(b, t.oid)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(20+size))
	b = append(b, 0, 0, 0, 1, 0, 0, 0, 1) // one dimension, nulls are possible
	b = binary.BigEndian.AppendUint32(b, t.oid)
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	return append(b, 0, 0, 0, 1) // from 1
}

// reader takes a row's values apart, one after the other. A null is the zero value.
type reader struct {
	values [][]byte
	words  *words
	sent   time.Time // when the request was sent
	failed error     // what could not be read
}

// more reports whether the row has further values.
func (r *reader) more() bool { return len(r.values) > 0 }

// interned is a short text that comes again and again: it is kept once.
func (r *reader) interned(v []byte) string { return r.words.of(v) }

func (r *reader) next() []byte {
	v := r.values[0]
	r.values = r.values[1:]
	return v
}

func (r *reader) int() int        { return int(toInt(r.next())) }
func (r *reader) bool() bool      { v := r.next(); return len(v) == 1 && v[0] == 1 }
func (r *reader) int64() int64    { return toInt(r.next()) }
func (r *reader) text() string    { return string(r.next()) }
func (r *reader) word() string    { return r.words.of(r.next()) }
func (r *reader) time() time.Time { return toTime(r.next()) }

func (r *reader) uuid() (id [16]byte) {
	copy(id[:], r.next())
	return id
}

// bytes are a copy: what was read is overwritten with the next row.
func (r *reader) bytes() []byte {
	v := r.next()
	if v == nil {
		return nil
	}
	return append(make([]byte, 0, len(v)), v...)
}

func (r *reader) texts() []string {
	return elements(r.next(), func(v []byte) string { return string(v) })
}

func (r *reader) ints() []int {
	return elements(r.next(), func(v []byte) int { return int(toInt(v)) })
}

// elements reads an array without nulls.
func elements[T any](v []byte, read func([]byte) T) (list []T) {
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

func toInt(v []byte) int64 {
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

func toTime(v []byte) time.Time {
	if len(v) != 8 {
		return time.Time{}
	}
	micros := toInt(v)
	if micros > math.MaxInt64-microEpoch { // infinity
		return time.UnixMicro(math.MaxInt64).UTC()
	}
	return time.UnixMicro(micros + microEpoch).UTC()
}

// words are short texts that come again and again: types, agents, holders. Each is kept once.
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
