package text

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/perdure/perdure/internal/jsontext"
)

// Digits is a number that neither int64 nor float64 can hold. An expression may pass it on, with all its digits, and cannot
// calculate with it.
type Digits struct{ Text string }

// ErrTooManyValues is the error of DecodeJSON if the text has more values than it may read.
var ErrTooManyValues = errors.New("more values than may be read")

// DecodeJSON turns a JSON text into values of Go: nil, bool, int, float64, digits, string, []any, map[string]any. It
// reads at most that many values, and returns how many it has read. If there are more, the error is ErrTooManyValues.
func DecodeJSON(raw []byte, most int) (v any, values int, err error) {
	r := valueReader{left: most}
	r.reset(raw, true)
	r.shared = string(raw)
	v = r.any()
	switch e := r.in.End(); {
	case r.left < 0:
		return nil, most, ErrTooManyValues
	case e != nil && e.TooDeep:
		return nil, most - r.left, fmt.Errorf("not readable as JSON: %w", errDepth)
	case e != nil:
		return nil, most - r.left, fmt.Errorf("not readable as JSON: %s", e.Message)
	}
	return v, most - r.left, nil
}

// valueReader reads values without the places that a definition needs. If a name occurs twice, the last value counts.
type valueReader struct {
	jsonTokens
	left int // values that it may still read; below 0 after it has met more
}

// any reads a value. After an error, and when it has met more values than it may read, it returns nil.
func (r *valueReader) any() any {
	if r.left--; r.left < 0 {
		r.in.Fail(r.in.Offset(), "%s", ErrTooManyValues)
		return nil
	}
	switch r.in.Peek() {
	case jsontext.Object:
		m := map[string]any{}
		for r.in.Object(); r.in.More(); {
			name, _, _ := r.name() // which refuses nothing in a lenient text
			m[name] = r.any()
		}
		return m
	case jsontext.List:
		list := []any{}
		for r.in.List(); r.in.More(); {
			list = append(list, r.any())
		}
		return list
	case jsontext.String:
		s, _ := r.string()
		return s
	case jsontext.Number:
		return ParseNumber(r.number())
	case jsontext.Bool:
		return r.in.Bool()
	}
	r.null()
	return nil
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
