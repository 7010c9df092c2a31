package text

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// AppendString appends s as a JSON string, with the escapes of encoding/json. They must not change: fingerprints are
// hashes of these bytes.
func AppendString(b []byte, s string) []byte {
	b = append(b, '"')
	b = AppendEscaped(b, s)
	return append(b, '"')
}

// AppendEscaped appends the inside of a JSON string.
func AppendEscaped(b []byte, s string) []byte {
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

// AppendNode appends a node as canonical JSON: compact, with names sorted, and numbers with the digits that they have.
func AppendNode(b []byte, n *Node) []byte {
	switch n.Kind {
	case Null:
		return append(b, "null"...)
	case String:
		return AppendString(b, n.Text)
	case Bool, Number:
		return append(b, n.Text...)
	case List:
		b = append(b, '[')
		for i := range n.Kids {
			if i > 0 {
				b = append(b, ',')
			}
			b = AppendNode(b, &n.Kids[i])
		}
		return append(b, ']')
	}
	b = append(b, '{')
	for i, k := range n.Order() {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(AppendString(b, n.Keys[k].Name), ':')
		b = AppendNode(b, &n.Kids[k])
	}
	return append(b, '}')
}

// asWritten is the order of members that are sorted already. It is shared and must not be modified.
var asWritten = [16]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

// Order returns the indexes of the members, sorted by name. The result must not be modified.
func (n *Node) Order() []int {
	if len(n.Keys) <= len(asWritten) && slices.IsSortedFunc(n.Keys, func(a, b Key) int { return strings.Compare(a.Name, b.Name) }) {
		return asWritten[:len(n.Keys)]
	}
	order := make([]int, len(n.Keys))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(n.Keys[a].Name, n.Keys[b].Name) })
	return order
}

// spaced reports whether valid JSON has white space outside of its strings.
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

// Compact returns valid JSON without white space. Most of what is stored has none, and is returned as it is.
func Compact(raw json.RawMessage) json.RawMessage {
	if !spaced(raw) {
		return raw
	}
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}
