package text

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/jsontext"
)

// AppendString appends s as a JSON string, with the escapes of encoding/json. They must not change: fingerprints are
// hashes of these bytes.
func AppendString(b []byte, s string) []byte { return jsontext.AppendString(b, s, true) }

// AppendEscaped appends the inside of a JSON string.
func AppendEscaped(b []byte, s string) []byte { return jsontext.AppendEscaped(b, s, true) }

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

// AppendAsWritten appends a node as compact JSON, with the members of objects in the order that they have.
func AppendAsWritten(b []byte, n *Node) []byte {
	switch n.Kind {
	case List:
		b = append(b, '[')
		for i := range n.Kids {
			if i > 0 {
				b = append(b, ',')
			}
			b = AppendAsWritten(b, &n.Kids[i])
		}
		return append(b, ']')
	case Object:
		b = append(b, '{')
		for i := range n.Keys {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(AppendString(b, n.Keys[i].Name), ':')
			b = AppendAsWritten(b, &n.Kids[i])
		}
		return append(b, '}')
	}
	return AppendNode(b, n)
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
