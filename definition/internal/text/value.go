package text

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Digits is a number that neither int64 nor float64 can hold. An expression may pass it on, with all its digits, and cannot
// calculate with it.
type Digits struct{ Text string }

// ErrTooManyValues is the error of DecodeJSON if the text has more values than it may read.
var ErrTooManyValues = errors.New("more values than may be read")

// DecodeJSON turns a JSON text into values of Go: nil, bool, int, float64, digits, string, []any, map[string]any. It
// reads at most that many values, and returns how many it has read. If there are more, the error is errTooManyValues.
func DecodeJSON(raw []byte, most int) (v any, values int, err error) {
	r := valueReader{JSONReader: JSONReader{src: raw, text: string(raw), lenient: true}, left: most}
	r.space()
	v, f := r.any(0)
	switch values = most - r.left; {
	case r.left < 0:
		return nil, most, ErrTooManyValues
	case f != nil:
		return nil, values, fmt.Errorf("not readable as JSON: %s", f.Message)
	}
	if r.space(); r.pos < len(raw) {
		return nil, values, fmt.Errorf("not readable as JSON: unexpected %s at its end", r.found())
	}
	return v, values, nil
}

// valueReader reads values without the places that a definition needs.
type valueReader struct {
	JSONReader
	left int // values that it may still read; below 0 after it has met more
}

func (r *valueReader) any(depth int) (any, *Fault) {
	if r.left--; r.left < 0 {
		return nil, r.fault("%s", ErrTooManyValues)
	}
	switch c := r.peek(); {
	case (c == '{' || c == '[') && depth >= maxDepth:
		return nil, TooLarge(r.pos, errDepth)
	case c == '{':
		return r.members(depth)
	case c == '[':
		return r.items(depth)
	case c == '"':
		s, f := r.string()
		return s, f
	case c == '-' || '0' <= c && c <= '9':
		s, f := r.number()
		return ParseNumber(s), f
	case r.word("true"):
		return true, nil
	case r.word("false"):
		return false, nil
	case r.word("null"):
		return nil, nil
	}
	return nil, r.fault("expected a value, found %s", r.found())
}

// members reads the members of an object. If a name occurs twice, the last value counts.
func (r *valueReader) members(depth int) (any, *Fault) {
	m := map[string]any{}
	f := r.each('}', func() *Fault {
		if r.peek() != '"' {
			return r.fault("expected a field name in double quotes, found %s", r.found())
		}
		name, f := r.string()
		if f != nil {
			return f
		}
		if r.space(); r.peek() != ':' {
			return r.fault("expected `:` after the field name, found %s", r.found())
		}
		r.pos++
		r.space()
		m[name], f = r.any(depth + 1)
		return f
	})
	return m, f
}

func (r *valueReader) items(depth int) (any, *Fault) {
	list := []any{}
	f := r.each(']', func() *Fault {
		v, f := r.any(depth + 1)
		list = append(list, v)
		return f
	})
	return list, f
}

// each reads the elements of a collection, up to its closing bracket.
func (r *valueReader) each(end byte, element func() *Fault) *Fault {
	r.pos++
	if r.space(); r.peek() == end {
		r.pos++
		return nil
	}
	for {
		if f := element(); f != nil {
			return f
		}
		switch r.space(); r.peek() {
		case ',':
			r.pos++
			r.space()
		case end:
			r.pos++
			return nil
		default:
			return r.fault("expected `,` or `%c`, found %s", end, r.found())
		}
	}
}

// ParseNumber converts a JSON number to int, float64 or Digits, so that no significant digit is lost.
func ParseNumber(s string) any {
	if i, err := strconv.Atoi(s); err == nil && s != "-0" {
		return i
	}
	if !slices.ContainsFunc([]byte(s), func(c byte) bool { return c == '.' || c|0x20 == 'e' }) {
		return Digits{s}
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(f, 0) {
		return Digits{s}
	}
	return f
}
