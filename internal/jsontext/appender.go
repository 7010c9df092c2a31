package jsontext

import (
	"encoding"
	"strconv"
	"time"
	"unicode/utf8"
)

// Appender writes JSON behind the bytes that it was made with. It puts the commas between members and items. The caller
// answers for the order of calls: a member is Name and one value, and each Begin has its End.
type Appender struct {
	buf        []byte
	start      int
	escapeHTML bool
}

// NewAppender returns an Appender to b.
func NewAppender(b []byte) Appender { return Appender{buf: b, start: len(b)} }

// EscapeHTML makes the Appender write <, > and & as escapes, as encoding/json does by default.
func (a *Appender) EscapeHTML() { a.escapeHTML = true }

// Bytes are the bytes that the Appender was made with, and what it has written behind them.
func (a *Appender) Bytes() []byte { return a.buf }

// Truncate removes all but the first n of Bytes.
func (a *Appender) Truncate(n int) { a.buf = a.buf[:n] }

// comma puts a comma before a member or item that is not the first one. Nothing precedes a first one but an opening
// bracket or the colon of its name.
func (a *Appender) comma() {
	if n := len(a.buf); n > a.start {
		switch a.buf[n-1] {
		case '{', '[', ':':
		default:
			a.buf = append(a.buf, ',')
		}
	}
}

// BeginObject opens an object.
func (a *Appender) BeginObject() {
	a.comma()
	a.buf = append(a.buf, '{')
}

// EndObject closes it.
func (a *Appender) EndObject() { a.buf = append(a.buf, '}') }

// BeginList opens a list.
func (a *Appender) BeginList() {
	a.comma()
	a.buf = append(a.buf, '[')
}

// EndList closes it.
func (a *Appender) EndList() { a.buf = append(a.buf, ']') }

// The values follow: items of a list, the value after Name or TextName, or the one value of a text.

// Text writes a string.
func (a *Appender) Text(s string) {
	a.comma()
	a.buf = AppendString(a.buf, s, a.escapeHTML)
}

// Int writes an integer.
func (a *Appender) Int(n int64) {
	a.comma()
	a.buf = strconv.AppendInt(a.buf, n, 10)
}

// Bool writes true or false.
func (a *Appender) Bool(v bool) {
	a.comma()
	a.buf = strconv.AppendBool(a.buf, v)
}

// Time writes an instant, as encoding/json does.
func (a *Appender) Time(t time.Time) {
	a.comma()
	a.buf = appendTime(a.buf, t)
}

// Raw writes a value that is JSON already, and null if it is empty.
func (a *Appender) Raw(value []byte) {
	a.comma()
	a.buf = appendRaw(a.buf, value)
}

func appendTime(b []byte, t time.Time) []byte {
	return append(t.AppendFormat(append(b, '"'), time.RFC3339Nano), '"')
}

func appendRaw(b, value []byte) []byte {
	if len(value) == 0 {
		return append(b, "null"...)
	}
	return append(b, value...)
}

// The members follow. Their names are those that the program's text has, of letters: nothing in them is escaped. TextName
// is for any other name.

// Name writes the name of a member, whose value follows.
func (a *Appender) Name(name string) { a.buf = a.appendName(name) }

// TextName is Name for any text.
func (a *Appender) TextName(name string) {
	a.comma()
	a.buf = append(AppendString(a.buf, name, a.escapeHTML), ':')
}

// TextField writes a member that is a string.
func (a *Appender) TextField(name, s string) {
	a.buf = AppendString(a.appendName(name), s, a.escapeHTML)
}

// PlainField writes a member that is a string, of a value whose text has nothing to escape, such as an id.
func (a *Appender) PlainField(name string, v encoding.TextAppender) (err error) {
	if a.buf, err = v.AppendText(append(a.appendName(name), '"')); err == nil {
		a.buf = append(a.buf, '"')
	}
	return err
}

// OptionalText writes a member that is a string, and nothing if the string is empty.
func (a *Appender) OptionalText(name, s string) {
	if s != "" {
		a.TextField(name, s)
	}
}

// IntField writes a member that is an integer.
func (a *Appender) IntField(name string, n int64) {
	a.buf = strconv.AppendInt(a.appendName(name), n, 10)
}

// BoolField writes a member that is true or false.
func (a *Appender) BoolField(name string, v bool) {
	a.buf = strconv.AppendBool(a.appendName(name), v)
}

// TimeField writes a member that is an instant.
func (a *Appender) TimeField(name string, t time.Time) {
	a.buf = appendTime(a.appendName(name), t)
}

// RawField writes a member that is JSON already, and null if it is empty.
func (a *Appender) RawField(name string, value []byte) {
	a.buf = appendRaw(a.appendName(name), value)
}

func (a *Appender) appendName(name string) []byte {
	b := a.buf
	if b[len(b)-1] == '{' { // a member is never the first of a text
		b = append(b, '"')
	} else {
		b = append(b, ',', '"')
	}
	return append(append(b, name...), '"', ':')
}

// plainText and plainHTML are the bytes that stand for themselves in a string, without and with escapes of HTML. Bytes
// beyond ASCII are not in them.
var plainText, plainHTML = func() (text, html [256]bool) {
	for c := range utf8.RuneSelf {
		text[c] = inString[c]
		html[c] = inString[c] && c != '<' && c != '>' && c != '&'
	}
	return text, html
}()

// AppendString appends s to b as a JSON string, byte for byte as encoding/json writes it.
func AppendString(b []byte, s string, escapeHTML bool) []byte {
	return append(AppendEscaped(append(b, '"'), s, escapeHTML), '"')
}

// AppendEscaped appends the inside of that string, without the quotation marks.
func AppendEscaped(b []byte, s string, escapeHTML bool) []byte {
	plain := &plainText
	if escapeHTML {
		plain = &plainHTML
	}
	for i := range len(s) {
		if !plain[s[i]] {
			return appendEscaped(append(b, s[:i]...), s[i:], plain)
		}
	}
	return append(b, s...)
}

func appendEscaped(b []byte, s string, plain *[256]bool) []byte {
	const digits = "0123456789abcdef"
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if plain[c] {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			char, size := utf8.DecodeRuneInString(s[i:])
			switch {
			case char == utf8.RuneError && size == 1:
				b = append(append(b, s[start:i]...), `\ufffd`...)
				start = i + size
			case char == '\u2028' || char == '\u2029': // they end a line in JavaScript
				b = append(append(append(b, s[start:i]...), `\u202`...), digits[char&0xf])
				start = i + size
			}
			i += size
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
			b = append(b, '\\', 'u', '0', '0', digits[c>>4], digits[c&0xf])
		}
		i++
		start = i
	}
	return append(b, s[start:]...)
}
