package definition

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/perdure/perdure"
)

// digits is a number that neither int64 nor float64 can hold. An expression may pass it on, digit by
// digit, and cannot calculate with it.
type digits struct{ text string }

// fromJSON turns a JSON text into what expressions calculate with: nil, bool, int, float64, digits,
// string, []any, map[string]any. It reads at most that many values, and returns how many it has read.
func fromJSON(raw []byte, most int) (v any, values int, err error) {
	p := plainReader{jsonReader: jsonReader{src: raw, text: string(raw), lenient: true}, left: most}
	p.space()
	v, f := p.plain(0)
	switch values = most - p.left; {
	case p.left < 0:
		return nil, most, errWork
	case f != nil:
		return nil, values, fmt.Errorf("not readable as JSON: %s", f.message)
	}
	if p.space(); p.pos < len(raw) {
		return nil, values, fmt.Errorf("not readable as JSON: unexpected %s at its end", p.found())
	}
	return v, values, nil
}

// plainReader reads values without the places and the digits that a definition needs.
type plainReader struct {
	jsonReader
	left int // values that it may still read; below 0 after it has met more
}

func (r *plainReader) plain(depth int) (any, *fault) {
	if r.left--; r.left < 0 {
		return nil, r.fault("%s", errWork)
	}
	switch c := r.peek(); {
	case (c == '{' || c == '[') && depth >= maxDepth:
		return nil, tooLarge(r.pos, errDepth)
	case c == '{':
		return r.members(depth)
	case c == '[':
		return r.items(depth)
	case c == '"':
		return plainly(r.string())
	case c == '-' || '0' <= c && c <= '9':
		s, f := r.number()
		return number(s), f
	case r.word("true"):
		return true, nil
	case r.word("false"):
		return false, nil
	case r.word("null"):
		return nil, nil
	}
	return nil, r.fault("expected a value, found %s", r.found())
}

func plainly(s string, f *fault) (any, *fault) { return s, f }

// members reads the members of an object. If a name occurs twice, the last value counts.
func (r *plainReader) members(depth int) (any, *fault) {
	m := map[string]any{}
	f := r.each('}', func() *fault {
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
		m[name], f = r.plain(depth + 1)
		return f
	})
	return m, f
}

func (r *plainReader) items(depth int) (any, *fault) {
	list := []any{}
	f := r.each(']', func() *fault {
		v, f := r.plain(depth + 1)
		list = append(list, v)
		return f
	})
	return list, f
}

// each reads the elements of a collection, up to its closing bracket.
func (r *plainReader) each(end byte, one func() *fault) *fault {
	r.pos++
	if r.space(); r.peek() == end {
		r.pos++
		return nil
	}
	for {
		if f := one(); f != nil {
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

// number reads JSON digits without losing any that count: whole numbers beyond int64 stay digits.
func number(s string) any {
	if i, err := strconv.Atoi(s); err == nil && s != "-0" {
		return i
	}
	if !slices.ContainsFunc([]byte(s), func(c byte) bool { return c == '.' || c|0x20 == 'e' }) {
		return digits{s}
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(f, 0) {
		return digits{s}
	}
	return f
}

// appendValue appends v, the result of an expression, as compact JSON with sorted names. It fails on
// what JSON cannot carry and on what would grow beyond a payload.
func appendValue(b []byte, v any) ([]byte, error) {
	if len(b) > 2*perdure.MaxPayloadBytes {
		return b, fmt.Errorf("the result is larger than %d bytes", perdure.MaxPayloadBytes)
	}
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case int:
		return strconv.AppendInt(b, int64(v), 10), nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return b, fmt.Errorf("the result is no number (a division by zero?)")
		}
		text, err := json.Marshal(v)
		return append(b, text...), err
	case digits:
		return append(b, v.text...), nil
	case string:
		return appendString(b, v), nil
	case []any:
		return appendList(b, len(v), func(i int) any { return v[i] })
	case map[string]any:
		return appendMap(b, v)
	}
	return appendOther(b, v)
}

func appendList(b []byte, n int, at func(int) any) (_ []byte, err error) {
	b = append(b, '[')
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendValue(b, at(i)); err != nil {
			return b, err
		}
	}
	return append(b, ']'), nil
}

func appendMap(b []byte, m map[string]any) (_ []byte, err error) {
	b = append(b, '{')
	for i, name := range sortedKeys(m) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, name), ':')
		if b, err = appendValue(b, m[name]); err != nil {
			return b, err
		}
	}
	return append(b, '}'), nil
}

// appendOther takes the typed slices and maps that some functions of expr return.
func appendOther(b []byte, v any) ([]byte, error) {
	r := reflect.ValueOf(v)
	switch r.Kind() {
	case reflect.Slice:
		return appendList(b, r.Len(), func(i int) any { return r.Index(i).Interface() })
	case reflect.Map:
		m := make(map[string]any, r.Len())
		for it := r.MapRange(); it.Next(); {
			name := it.Key().Interface()
			if s, ok := name.(string); ok {
				m[s] = it.Value().Interface()
				continue
			}
			text, err := appendValue(nil, name)
			if err != nil {
				return b, err
			}
			m[string(text)] = it.Value().Interface()
		}
		return appendMap(b, m)
	case reflect.Int64, reflect.Int32, reflect.Int16, reflect.Int8:
		return strconv.AppendInt(b, r.Int(), 10), nil
	case reflect.Uint, reflect.Uint64, reflect.Uint32, reflect.Uint16, reflect.Uint8:
		return strconv.AppendUint(b, r.Uint(), 10), nil
	case reflect.Float32:
		return appendValue(b, r.Float())
	}
	return b, fmt.Errorf("the result is no value that JSON can carry")
}

func sortedKeys(m map[string]any) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// appendString appends s as a JSON string, with the escapes of encoding/json, whose bytes a
// fingerprint is made of.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	b = appendEscaped(b, s)
	return append(b, '"')
}

// appendEscaped appends the inside of a JSON string.
func appendEscaped(b []byte, s string) []byte {
	const hexDigits = "0123456789abcdef"
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 || r == '\u2028' || r == '\u2029' {
				b = append(b, s[start:i]...)
				if size == 1 {
					b = append(b, `\ufffd`...)
				} else {
					b = append(b, `\u202`...)
					b = append(b, hexDigits[r&0xf])
				}
				start = i + size
			}
			i += size
			continue
		}
		if c >= 0x20 && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&' {
			i++
			continue
		}
		b = append(b, s[start:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		case '\b':
			b = append(b, '\\', 'b')
		case '\f':
			b = append(b, '\\', 'f')
		default:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
		}
		i++
		start = i
	}
	return append(b, s[start:]...)
}

// appendNode appends a node as canonical JSON: compact, names sorted, digits as they came.
func appendNode(b []byte, n *node) []byte {
	switch n.kind {
	case kindNull:
		return append(b, "null"...)
	case kindString:
		return appendString(b, n.text)
	case kindBool, kindNumber:
		return append(b, n.text...)
	case kindList:
		b = append(b, '[')
		for i := range n.kids {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendNode(b, &n.kids[i])
		}
		return append(b, ']')
	}
	b = append(b, '{')
	for i, k := range n.order() {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, n.keys[k].name), ':')
		b = appendNode(b, &n.kids[k])
	}
	return append(b, '}')
}

// asWritten is the order of members that are sorted already.
var asWritten = [16]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

// order is the members' indexes, sorted by name; nobody writes to it.
func (n *node) order() []int {
	if len(n.keys) <= len(asWritten) && slices.IsSortedFunc(n.keys, func(a, b key) int { return strings.Compare(a.name, b.name) }) {
		return asWritten[:len(n.keys)]
	}
	order := make([]int, len(n.keys))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(n.keys[a].name, n.keys[b].name) })
	return order
}

// spaced says whether valid JSON has white space outside of its strings.
func spaced(raw []byte) bool {
	text := false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '"':
			text = !text
		case c == '\\' && text:
			i++
		case !text && (c == ' ' || c == '\t' || c == '\r' || c == '\n'):
			return true
		}
	}
	return false
}

// compacted is raw without white space; most of what is stored has none.
func compacted(raw json.RawMessage) json.RawMessage {
	if !spaced(raw) {
		return raw
	}
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}
