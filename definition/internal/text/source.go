package text

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"github.com/perdure/perdure"
)

// Source is the text that is being read. Places in it are byte offsets; line and column are only counted for faults.
type Source struct {
	src []byte
}

// NewSource makes the source of faults that have places in src.
func NewSource(src []byte) Source { return Source{src} }

// Beside is the place of a value that is not in the text, but was given with it.
const Beside = -1

// Locate returns line and column, both from 1; columns count characters. Both are 0 for a value that is not in the text.
func (t Source) Locate(at int32) (line, column int) {
	if at == Beside {
		return 0, 0
	}
	before := t.src[:min(int(at), len(t.src))]
	line = 1
	start := 0
	for i, c := range before {
		if c == '\n' || c == '\r' && (i+1 >= len(t.src) || t.src[i+1] != '\n') {
			line++
			start = i + 1
		}
	}
	return line, 1 + utf8.RuneCount(before[start:])
}

// Inside is the place of the ith byte of n's text if the text is written as it is: unquoted, or
// in quotes without escapes before it. Otherwise it is the place of n.
func (t Source) Inside(n *Node, i int) int32 {
	at := int(n.At)
	if at == Beside {
		return n.At
	}
	if at < len(t.src) && (t.src[at] == '"' || t.src[at] == '\'') {
		at++
	}
	i = min(i, len(n.Text))
	if at+i > len(t.src) || string(t.src[at:at+i]) != n.Text[:i] {
		return n.At
	}
	return int32(at + i)
}

// ByteOrderMark may begin a text in UTF-8 and has no column.
var ByteOrderMark = []byte("\uFEFF")

// Check refuses a text that is too large or not in UTF-8. The readers expect that it was called.
func Check(data []byte) *Fault {
	if len(data) > perdure.MaxDefinitionBytes {
		return TooLarge(perdure.MaxDefinitionBytes, fmt.Errorf("larger than %d MiB", perdure.MaxDefinitionBytes>>20))
	}
	return CheckEncoding(data)
}

// CheckEncoding refuses other encodings than UTF-8, NUL and control characters.
func CheckEncoding(data []byte) *Fault {
	if bytes.HasPrefix(data, []byte{0xff, 0xfe}) || bytes.HasPrefix(data, []byte{0xfe, 0xff}) {
		return Malformed(0, "this is UTF-16").WithHint("save it as UTF-8")
	}
	for i := 0; i < len(data); {
		c := data[i]
		if c < utf8.RuneSelf {
			if c < 0x20 && c != '\n' && c != '\t' && c != '\r' || c == 0x7f {
				what := fmt.Sprintf("control character U+%04X", c)
				if c == 0 {
					what = "a NUL byte"
				}
				return Malformed(i, "%s: this is not text", what)
			}
			i++
			continue
		}
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 {
			return Malformed(i, "byte 0x%02X is not valid UTF-8", c).WithHint("save it as UTF-8")
		}
		i += size
	}
	return nil
}
