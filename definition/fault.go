package definition

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

const maxDepth = perdure.MaxDepth

// maxFaults is how many faults one answer carries: enough to mend a file in one go, few enough to read.
const maxFaults = 20

// maxFaultText bounds a message and a hint, which may quote the definition.
const maxFaultText = 1 << 10

// fault is one thing that is wrong, at a byte offset of the text that is being read.
type fault struct {
	code    perdure.Code
	at      int32
	pointer *pointer
	message string
	hint    string
}

func malformed(at int, format string, args ...any) *fault {
	return &fault{code: perdure.CodeMalformed, at: int32(at), message: fmt.Sprintf(format, args...)}
}

func invalid(at int, format string, args ...any) *fault {
	return &fault{code: perdure.CodeInvalid, at: int32(at), message: fmt.Sprintf(format, args...)}
}

func tooLarge(at int, err error) *fault {
	return &fault{code: perdure.CodeTooLarge, at: int32(at), message: err.Error()}
}

func (f *fault) hinted(format string, args ...any) *fault {
	f.hint = fmt.Sprintf(format, args...)
	return f
}

func duplicateKey(keys []key, i int) *fault {
	return invalid(int(keys[i].at), "%s is there twice", quote(keys[i].name)).hinted("keep one of the two")
}

// faults collects what is wrong with a text.
type faults struct {
	text text
	list []*fault
}

// full says that there is no point in looking for more.
func (fs *faults) full() bool { return len(fs.list) >= maxFaults }

func (fs *faults) put(f *fault) *fault {
	if !fs.full() {
		fs.list = append(fs.list, f)
	}
	return f
}

// add records an invalid value at p.
func (fs *faults) add(p *pointer, at int32, format string, args ...any) *fault {
	return fs.put(&fault{code: perdure.CodeInvalid, at: at, pointer: p, message: fmt.Sprintf(format, args...)})
}

// large records a value over one of the bounds at p.
func (fs *faults) large(p *pointer, at int32, format string, args ...any) *fault {
	return fs.put(&fault{code: perdure.CodeTooLarge, at: at, pointer: p, message: fmt.Sprintf(format, args...)})
}

// err is the refusal that the faults amount to, in the order of the text; nil if there are none. Its
// code is that of the first fault.
func (fs *faults) err() error {
	if len(fs.list) == 0 {
		return nil
	}
	slices.SortStableFunc(fs.list, func(a, b *fault) int { return cmp.Compare(a.at, b.at) })
	e := &perdure.Error{Code: fs.list[0].code}
	for _, f := range fs.list {
		fe := perdure.FieldError{Pointer: f.pointer.String(), Message: plain.Shorten(f.message, maxFaultText), Hint: plain.Shorten(f.hint, maxFaultText)}
		fe.Line, fe.Column = fs.text.locate(f.at)
		e.Fields = append(e.Fields, fe)
	}
	first := e.Fields[0]
	e.Message = fmt.Sprintf("line %d, column %d: %s", first.Line, first.Column, first.Message)
	e.Hint = first.Hint
	if n := len(e.Fields) - 1; n > 0 {
		e.Message += fmt.Sprintf(" (and %d more)", n)
	}
	return e
}

// FormatError writes a refusal for a person at a terminal: for each fault a line FILE:LINE:COL: message,
// then the line of src it points into with a caret, and the hint, both indented. src may be nil.
// Errors that are no refusal, or carry no places, come out as FILE: message.
func FormatError(file string, src []byte, err error) string {
	var b strings.Builder
	var e *perdure.Error
	if !errors.As(err, &e) || len(e.Fields) == 0 {
		fmt.Fprintf(&b, "%s: %v\n", file, err)
		return b.String()
	}
	for _, f := range e.Fields {
		if f.Line == 0 {
			fmt.Fprintf(&b, "%s: %s\n", file, f.Message)
		} else {
			fmt.Fprintf(&b, "%s:%d:%d: %s\n", file, f.Line, f.Column, f.Message)
			excerpt(&b, src, f.Line, f.Column)
		}
		if f.Hint != "" {
			fmt.Fprintf(&b, "    %s\n", f.Hint)
		}
	}
	return b.String()
}

// excerpt writes the line and a caret under the column, cut to what fits a terminal.
func excerpt(b *strings.Builder, src []byte, line, column int) {
	const width = 100
	rest := strings.ToValidUTF8(string(bytes.TrimPrefix(src, byteOrderMark)), "\uFFFD")
	for range line - 1 {
		_, after, ok := strings.Cut(rest, "\n")
		if !ok {
			return
		}
		rest = after
	}
	rest, _, _ = strings.Cut(rest, "\n")
	runes := []rune(strings.TrimRight(rest, "\r"))
	if len(runes) == 0 || column > len(runes)+1 {
		return
	}
	from := max(0, column-1-width*2/3)
	shown := runes[from:min(len(runes), from+width)]
	for i, c := range shown {
		if c < ' ' || c == 0x7f {
			shown[i] = ' '
		}
	}
	fmt.Fprintf(b, "    %s\n    %s^\n", string(shown), strings.Repeat(" ", column-1-from))
}

// quote shows a user's word in a message, shortened.
func quote(s string) string {
	const most = 60
	if utf8.RuneCountInString(s) > most {
		s = string([]rune(s)[:most-1]) + "…"
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == '`' || r == 0x7f }) || s == "" {
		return fmt.Sprintf("%q", s)
	}
	return "`" + s + "`"
}

// describe says what a text goes on with.
func describe(rest []byte) string {
	if len(rest) == 0 {
		return "the end of the text"
	}
	if rest[0] == '\n' || rest[0] == '\r' {
		return "the end of the line"
	}
	r, _ := utf8.DecodeRune(rest)
	word := string(rest[:min(len(rest), 80)])
	if i := strings.IndexAny(word, " \t\r\n,:{}[]\""); i > 0 {
		word = word[:i]
	} else if i == 0 {
		word = string(r)
	}
	return quote(strings.ToValidUTF8(word, ""))
}

// nearest is the candidate that word was probably meant to be, or "".
func nearest(word string, candidates []string) string {
	best, most := "", max(1, min(3, len(word)/3))+1
	for _, c := range candidates {
		if strings.EqualFold(c, word) {
			return c
		}
		if d := distance(strings.ToLower(word), strings.ToLower(c), most); d < most {
			best, most = c, d
		}
	}
	return best
}

// suggest is a hint that names the nearest candidate, or all of them where they are few.
func suggest(word string, candidates []string) string {
	if near := nearest(word, candidates); near != "" {
		return "did you mean " + quote(near) + "?"
	}
	if len(candidates) == 0 || len(candidates) > 16 {
		return ""
	}
	return "there are " + strings.Join(candidates, ", ")
}

// distance counts the insertions, deletions, replacements and swaps of neighbours between a and b,
// or is limit if there are that many.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit || len(a) > 256 {
		return limit
	}
	prev2, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], prev2[j-2]+1)
			}
		}
		prev2, prev, row = prev, row, prev2
	}
	return min(prev[len(b)], limit)
}

// withoutLines is err for a text that its caller has not seen as it was read.
func withoutLines(err error) error {
	if refusal := (*perdure.Error)(nil); errors.As(err, &refusal) {
		return refusal.WithoutLines()
	}
	return err
}
