package jsontext

import (
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Skip reads any value and returns nothing of it. Its grammar is checked, as by Raw. It does not recurse: the nesting of
// a text costs one bit a level.
func (r *Reader) Skip() {
	if r.err != nil {
		return
	}
	var inner nesting // of the value
	for {
		r.space()
		if r.pos == len(r.text) {
			r.fail("expected a value, found %s", r.found())
			return
		}
		switch kind := kinds[r.text[r.pos]]; kind {
		case Object, List:
			if r.tooDeep(inner.depth) {
				return
			}
			r.pos++
			if r.next() != kind.closing() {
				inner.push(kind == Object)
				if kind == Object && !r.skipName() {
					return
				}
				continue
			}
			r.pos++
		case String:
			if !r.skipString() {
				return
			}
		case Number:
			if r.Number(); r.err != nil {
				return
			}
		case Bool:
			if r.Bool(); r.err != nil {
				return
			}
		case Null:
			if !r.word("null") {
				return
			}
		default:
			r.fail("expected a value, found %s", r.found())
			return
		}
		if !r.afterValue(&inner) {
			return
		}
	}
}

// afterValue leaves the objects and lists that end here, up to a comma and a name. It returns false if nothing is open
// any more, or after an error.
func (r *Reader) afterValue(inner *nesting) bool {
	for inner.depth > 0 {
		kind := List
		if inner.object() {
			kind = Object
		}
		if r.next() == kind.closing() {
			r.pos++
			inner.pop()
			continue
		}
		return r.comma(kind) && (kind == List || r.skipName())
	}
	return false
}

func (r *Reader) skipName() bool {
	if r.next() != '"' {
		r.fail("expected a field name in double quotes, found %s", r.found())
		return false
	}
	if !r.skipString() {
		return false
	}
	if r.next() != ':' {
		r.fail("expected `:` after the field name, found %s", r.found())
		return false
	}
	r.pos++
	return true
}

func (r *Reader) skipString() bool {
	end, _ := r.stringEnd(r.pos)
	if end < 0 {
		return false
	}
	r.pos = end
	return true
}

// nesting remembers which of the open brackets are those of objects. The last bit of near is the innermost.
type nesting struct {
	depth int
	near  uint64
	far   []uint64 // those further out, by 64
}

func (n *nesting) push(object bool) {
	if n.depth > 0 && n.depth%64 == 0 {
		n.far, n.near = append(n.far, n.near), 0
	}
	n.near <<= 1
	if object {
		n.near |= 1
	}
	n.depth++
}

func (n *nesting) pop() {
	n.near >>= 1
	if n.depth--; n.depth > 0 && n.depth%64 == 0 {
		n.near, n.far = n.far[len(n.far)-1], n.far[:len(n.far)-1]
	}
}

func (n *nesting) object() bool { return n.near&1 == 1 }

// inString are the bytes that stand for themselves in a string.
var inString = func() (plain [256]bool) {
	for c := range plain {
		plain[c] = c >= ' ' && c != '"' && c != '\\'
	}
	return plain
}()

// stringEnd returns the end of the string that starts at a position, behind its second quote; -1 after an error.
func (r *Reader) stringEnd(start int) (end int, escaped bool) {
	text := r.text
	for i := start + 1; i < len(text); i++ {
		c := text[i]
		if inString[c] {
			continue
		}
		switch c {
		case '"':
			return i + 1, escaped
		case '\\':
			escaped = true
			n := escapeLength(text[i:])
			if n == 0 {
				r.pos = i
				r.fail("%s is no escape: after \\ comes one of \" \\ / b f n r t, or u and four hexadecimal digits", r.found())
				return -1, false
			}
			i += n - 1
		default:
			r.pos = i
			r.fail("control character in a string: write it as an escape, such as \\n")
			return -1, false
		}
	}
	r.pos = start
	r.fail("this string is never closed")
	return -1, false
}

const (
	escapes = `"\/bfnrt`
	meaning = "\"\\/\b\f\n\r\t"
)

// escapeLength is the length of the escape that b begins with; 0 if it is none.
func escapeLength(b []byte) int {
	switch {
	case len(b) < 2:
		return 0
	case strings.IndexByte(escapes, b[1]) >= 0:
		return 2
	case b[1] == 'u':
		if _, ok := hex(b[2:]); ok {
			return 6
		}
	}
	return 0
}

// hex reads four hexadecimal digits.
func hex(b []byte) (v rune, ok bool) {
	if len(b) < 4 {
		return 0, false
	}
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		v = v<<4 | rune(c)
	}
	return v, true
}

// unescape is the inside of a string, which stringEnd has checked and which begins at a position.
func (r *Reader) unescape(inner []byte, at int) []byte {
	out := make([]byte, 0, len(inner))
	for i := 0; i < len(inner); {
		c := inner[i]
		if c != '\\' {
			out = append(out, c)
			i++
			continue
		}
		if k := strings.IndexByte(escapes, inner[i+1]); k >= 0 {
			out = append(out, meaning[k])
			i += 2
			continue
		}
		char, _ := hex(inner[i+2:])
		length := 6
		if utf16.IsSurrogate(char) {
			half := char
			char = utf8.RuneError
			if rest := inner[i+6:]; len(rest) >= 6 && rest[1] == 'u' && rest[0] == '\\' {
				other, _ := hex(rest[2:])
				if char = utf16.DecodeRune(half, other); char != utf8.RuneError {
					length = 12
				}
			}
			if char == utf8.RuneError && !r.options.Lenient {
				r.pos = at + i
				r.fail("%s is half a character: a surrogate needs its other half", inner[i:i+6])
				return nil
			}
		}
		out = utf8.AppendRune(out, char)
		i += length
	}
	return out
}

// IsNumber reports whether text is a number of JSON and nothing else.
func IsNumber(text string) bool { return text != "" && numberEnd([]byte(text), 0) == len(text) }

// numberEnd is the end of the number that starts at a position: -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?
// It is -1 if there is no such number, or if it goes on with something that a number does not have.
func numberEnd(text []byte, i int) int {
	digits := func() bool {
		start := i
		for i < len(text) && '0' <= text[i] && text[i] <= '9' {
			i++
		}
		return i > start
	}
	if i < len(text) && text[i] == '-' {
		i++
	}
	if i < len(text) && text[i] == '0' {
		i++
	} else if !digits() {
		return -1
	}
	if i < len(text) && text[i] == '.' {
		if i++; !digits() {
			return -1
		}
	}
	if i < len(text) && text[i]|0x20 == 'e' {
		if i++; i < len(text) && (text[i] == '+' || text[i] == '-') {
			i++
		}
		if !digits() {
			return -1
		}
	}
	if i < len(text) {
		if c := text[i]; c == '.' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' {
			return -1
		}
	}
	return i
}
