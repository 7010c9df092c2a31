package text

import (
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
)

// JSONReader reads one JSON text (RFC 8259) into a node. Digits are kept as written; duplicate names
// are refused.
type JSONReader struct {
	src   []byte
	text  string // src as one string, whose parts the values share; "": each value has memory of its own
	pos   int
	tally Tally
	// lenient accepts what agents may have sent: of a name that occurs twice the last value counts, and NUL is accepted.
	lenient bool
	keys    []Key  // stacks of the members and items of the collections that are open,
	kids    []Node // so that each collection is allocated once, at its size
}

// ReadJSON reads the one document of src, which is valid UTF-8.
func ReadJSON(src []byte) (Node, *Fault) {
	r := JSONReader{src: src}
	return r.Document()
}

// ReadLenientJSON reads the JSON that an expression gave. Of a name that occurs twice the last value counts, and NUL is
// accepted: agents may send both.
func ReadLenientJSON(src []byte) (Node, *Fault) {
	r := JSONReader{src: src, lenient: true}
	return r.value(0)
}

// Reset prepares the reader for another text. It keeps the memory of its stacks.
func (r *JSONReader) Reset(src []byte) {
	*r = JSONReader{src: src, keys: r.keys[:0], kids: r.kids[:0]}
}

// ReadTransientJSON is ReadJSON for a small value that is not kept: all its strings share one allocation.
func ReadTransientJSON(src []byte) (Node, *Fault) {
	s := stackPool.Get().(*stacks)
	r := JSONReader{src: src, text: string(src), keys: s.keys[:0], kids: s.kids[:0]}
	n, f := r.Document()
	*s = stacks{}
	stackPool.Put(s)
	return n, f
}

// stacks are the memory of a reader, which a pool keeps. They hold nothing of a text that was read.
type stacks struct {
	keys [16]Key
	kids [16]Node
}

var stackPool = sync.Pool{New: func() any { return new(stacks) }}

// between returns that part of the text.
func (r *JSONReader) between(from, to int) string {
	if r.text != "" {
		return r.text[from:to]
	}
	return string(r.src[from:to])
}

func (r *JSONReader) Document() (Node, *Fault) {
	r.space()
	n, f := r.value(0)
	if f != nil {
		return n, f
	}
	if r.space(); r.pos < len(r.src) {
		return n, r.fault("unexpected %s after the end of the definition", r.found()).
			WithHint("one JSON document is one definition; several go into one YAML file, separated by ---")
	}
	return n, nil
}

func (r *JSONReader) fault(format string, args ...any) *Fault {
	return Malformed(r.pos, format, args...)
}

// found describes what follows, for a message.
func (r *JSONReader) found() string { return describe(r.src[min(r.pos, len(r.src)):]) }

func (r *JSONReader) space() {
	for r.pos < len(r.src) {
		switch r.src[r.pos] {
		case ' ', '\t', '\n', '\r':
			r.pos++
		default:
			return
		}
	}
}

func (r *JSONReader) peek() byte {
	if r.pos < len(r.src) {
		return r.src[r.pos]
	}
	return 0
}

func (r *JSONReader) value(depth int) (n Node, f *Fault) {
	at := r.pos
	switch c := r.peek(); {
	case c == '{' || c == '[':
		if depth >= maxDepth {
			return n, TooLarge(at, errDepth)
		}
		if c == '{' {
			return r.object(depth)
		}
		return r.list(depth)
	case c == '"':
		s, f := r.string()
		if f != nil {
			return n, f
		}
		n = Scalar(String, at, s)
	case c == '-' || '0' <= c && c <= '9':
		s, f := r.number()
		if f != nil {
			return n, f
		}
		n = Scalar(Number, at, s)
	case r.word("true"), r.word("false"):
		n = Scalar(Bool, at, r.between(at, r.pos))
	case r.word("null"):
		n = Scalar(Null, at, "")
	default:
		return n, r.fault("expected a value, found %s", r.found())
	}
	return n, r.count(&n, depth)
}

// count adds a leaf, or the shell of a collection, to the tally.
func (r *JSONReader) count(n *Node, depth int) *Fault {
	if err := r.tally.Add(n, depth); err != nil {
		return TooLarge(int(n.At), err)
	}
	return nil
}

func (r *JSONReader) word(w string) bool {
	if string(r.src[r.pos:min(r.pos+len(w), len(r.src))]) != w {
		return false
	}
	r.pos += len(w)
	return true
}

func (r *JSONReader) object(depth int) (n Node, f *Fault) {
	n = Scalar(Object, r.pos, "")
	if f := r.count(&n, depth); f != nil {
		return n, f
	}
	keys, kids := len(r.keys), len(r.kids)
	r.pos++
	for first := true; ; first = false {
		r.space()
		if r.peek() == '}' && first {
			break
		}
		if r.peek() != '"' {
			return n, r.fault("expected a field name in double quotes, found %s", r.found())
		}
		at := r.pos
		name, f := r.string()
		if f != nil {
			return n, f
		}
		r.tally.bytes += len(name)
		if r.space(); r.peek() != ':' {
			return n, r.fault("expected `:` after the field name, found %s", r.found())
		}
		r.pos++
		r.space()
		kid, f := r.value(depth + 1)
		if f != nil {
			return n, f
		}
		r.keys, r.kids = append(r.keys, Key{name, int32(at)}), append(r.kids, kid)
		if r.space(); r.peek() == ',' {
			r.pos++
			continue
		}
		if r.peek() != '}' {
			return n, r.fault("expected `,` or `}`, found %s", r.found())
		}
		break
	}
	r.pos++
	n.Keys, n.Kids = append([]Key(nil), r.keys[keys:]...), append([]Node(nil), r.kids[kids:]...)
	r.keys, r.kids = r.keys[:keys], r.kids[:kids]
	if i := duplicate(n.Keys); i >= 0 && !r.lenient {
		return n, duplicateKey(n.Keys, i)
	}
	n.sumUp()
	return n, nil
}

func (r *JSONReader) list(depth int) (n Node, f *Fault) {
	n = Scalar(List, r.pos, "")
	if f := r.count(&n, depth); f != nil {
		return n, f
	}
	kids := len(r.kids)
	r.pos++
	for first := true; ; first = false {
		if r.space(); r.peek() == ']' && first {
			break
		}
		kid, f := r.value(depth + 1)
		if f != nil {
			return n, f
		}
		r.kids = append(r.kids, kid)
		if r.space(); r.peek() == ',' {
			r.pos++
			continue
		}
		if r.peek() != ']' {
			return n, r.fault("expected `,` or `]`, found %s", r.found())
		}
		break
	}
	r.pos++
	n.Kids = append([]Node(nil), r.kids[kids:]...)
	r.kids = r.kids[:kids]
	n.sumUp()
	return n, nil
}

// number reads -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?
func (r *JSONReader) number() (string, *Fault) {
	start := r.pos
	n := jsonNumber(r.src[r.pos:])
	if n == 0 {
		return "", r.fault("%s is not a number", describe(r.src[r.pos:]))
	}
	r.pos += n
	if c := r.peek(); c == '.' || '0' <= c && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' {
		r.pos = start
		return "", r.fault("not a number as JSON writes them: no leading zero, digits on both sides of a point")
	}
	return r.between(start, r.pos), nil
}

// jsonNumber is the length of the JSON number that b starts with, or 0.
func jsonNumber(b []byte) int {
	i := 0
	digits := func() bool {
		start := i
		for i < len(b) && '0' <= b[i] && b[i] <= '9' {
			i++
		}
		return i > start
	}
	if i < len(b) && b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if !digits() {
		return 0
	}
	end := i
	if i < len(b) && b[i] == '.' {
		if i++; !digits() {
			return end
		}
		end = i
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !digits() {
			return end
		}
		end = i
	}
	return end
}

// string reads a quoted string.
func (r *JSONReader) string() (string, *Fault) {
	start := r.pos + 1
	for i := start; i < len(r.src); i++ {
		switch c := r.src[i]; {
		case c == '"':
			r.pos = i + 1
			return r.between(start, i), nil
		case c == '\\':
			return r.escaped(start, i)
		case c < 0x20:
			r.pos = i
			return "", r.fault("control character in a string: write it as an escape, such as \\n")
		}
	}
	return "", r.fault("this string is never closed")
}

// escaped goes on with the string that began at start, from its first backslash at i.
func (r *JSONReader) escaped(start, i int) (string, *Fault) {
	out := append(make([]byte, 0, i-start+32), r.src[start:i]...)
	for i < len(r.src) {
		c := r.src[i]
		switch {
		case c == '"':
			r.pos = i + 1
			return string(out), nil
		case c < 0x20:
			r.pos = i
			return "", r.fault("control character in a string: write it as an escape, such as \\n")
		case c != '\\':
			out = append(out, c)
			i++
			continue
		}
		r.pos = i
		if i+1 >= len(r.src) {
			break
		}
		if k := strings.IndexByte(`"\/bfnrt`, r.src[i+1]); k >= 0 {
			out = append(out, "\"\\/\b\f\n\r\t"[k])
			i += 2
			continue
		}
		if r.src[i+1] != 'u' {
			return "", r.fault("unknown escape %s in a string", describe(r.src[i:min(i+2, len(r.src))]))
		}
		c1, ok := hex(r.src, i+2, 4)
		i += 6
		if utf16.IsSurrogate(c1) && ok {
			var c2 rune
			if c2, ok = 0, false; i+1 < len(r.src) && r.src[i] == '\\' && r.src[i+1] == 'u' {
				c2, ok = hex(r.src, i+2, 4)
			}
			c1 = utf16.DecodeRune(c1, c2)
			ok = ok && c1 != utf8.RuneError
			i += 6
		}
		if !ok || c1 == 0 && !r.lenient {
			return "", r.fault("%s", badEscape(c1, ok))
		}
		out = utf8.AppendRune(out, c1)
	}
	r.pos = start - 1
	return "", r.fault("this string is never closed")
}

func badEscape(c rune, ok bool) string {
	if ok && c == 0 {
		return "NUL in a string: no store and no process can carry it"
	}
	return "this escape is no character: \\u takes four hexadecimal digits, and a surrogate needs its other half"
}

// hex reads n hexadecimal digits at i.
func hex(b []byte, i, n int) (rune, bool) {
	if i+n > len(b) {
		return 0, false
	}
	var v rune
	for _, c := range b[i : i+n] {
		switch {
		case '0' <= c && c <= '9':
			v = v<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			v = v<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return v, true
}
