package text

import (
	"bytes"
	"encoding/json"
	"strings"
)

// NameIs reports whether a name in quotes, as Walk gives it, is name.
func NameIs(quoted []byte, name string) bool {
	if len(quoted) == len(name)+2 && string(quoted[1:len(quoted)-1]) == name {
		return true
	}
	return bytes.IndexByte(quoted, '\\') >= 0 && Unquote(quoted) == name
}

// Unquote returns the text of a JSON string.
func Unquote(quoted []byte) string {
	if len(quoted) >= 2 && bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	var s string
	_ = json.Unmarshal(quoted, &s) // anything but a string matches nothing
	return s
}

// Walk calls f with each member (name in quotes) or entry (name nil) of a JSON object or list. It
// expects valid JSON, and stops at what is not.
func Walk(raw []byte, f func(name, value []byte)) {
	object := raw[0] == '{'
	for i := 1; i < len(raw); {
		if i = space(raw, i); i >= len(raw) || raw[i] == '}' || raw[i] == ']' {
			return
		}
		if raw[i] == ',' {
			i++
			continue
		}
		var name []byte
		if object {
			end := skipValue(raw, i)
			name = raw[i:end]
			if i = space(raw, end); i >= len(raw) || raw[i] != ':' {
				return
			}
			i = space(raw, i+1)
		}
		end := skipValue(raw, i)
		if end == i {
			return
		}
		f(name, raw[i:end])
		i = end
	}
}

func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// TrimSpace removes the white space of JSON from both ends.
func TrimSpace(b json.RawMessage) json.RawMessage {
	b = b[space(b, 0):]
	for len(b) > 0 && space(b[len(b)-1:], 0) == 1 {
		b = b[:len(b)-1]
	}
	return b
}

// skipValue returns the end of the value that begins at i.
func skipValue(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch c := b[i]; {
		case c == '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			i++
		case c == '{' || c == '[':
			depth++
			i++
		case c == '}' || c == ']':
			if depth == 0 {
				return i
			}
			depth--
			i++
		case depth == 0 && (c == ',' || c == ':' || space(b[i:i+1], 0) == 1):
			return i
		default:
			i++
			if depth > 0 {
				continue
			}
			for i < len(b) && strings.IndexByte(",:]} \t\r\n", b[i]) < 0 {
				i++
			}
		}
		if depth == 0 {
			return min(i, len(b))
		}
	}
	return min(i, len(b))
}
