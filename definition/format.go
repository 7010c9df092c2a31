package definition

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition/internal/text"
)

// FormatError formats an error of Parse for a terminal. Each fault is a line FILE:LINE:COL: message, followed by the line of
// src with a caret under the column, and by the hint, both indented. src may be nil. An error without places is formatted
// as FILE: message.
func FormatError(file string, src []byte, err error) string {
	var b strings.Builder
	var e *perdure.Error
	if !errors.As(err, &e) || len(e.Fields) == 0 {
		fmt.Fprintf(&b, "%s: %v\n", file, err)
		return b.String()
	}
	for _, f := range e.Fields {
		switch {
		case f.Line == 0 && f.Pointer != "": // of a value that was given beside the file
			fmt.Fprintf(&b, "%s: %s: %s\n", file, f.Pointer, f.Message)
		case f.Line == 0:
			fmt.Fprintf(&b, "%s: %s\n", file, f.Message)
		default:
			fmt.Fprintf(&b, "%s:%d:%d: %s\n", file, f.Line, f.Column, f.Message)
			excerpt(&b, src, f.Line, f.Column)
		}
		if f.Hint != "" {
			fmt.Fprintf(&b, "    %s\n", f.Hint)
		}
	}
	return b.String()
}

// Locate returns an error whose faults have pointers into the one document of src with the lines and columns of these places,
// and with the fields in their messages. It is for other files than definitions, which are read as JSON.
func Locate(src []byte, format Format, err error) error {
	var e *perdure.Error
	src = bytes.TrimPrefix(src, text.ByteOrderMark)
	docs, f := read(src, format)
	if !errors.As(err, &e) || f != nil || len(docs) != 1 {
		return err
	}
	located := *e
	located.Fields = slices.Clone(e.Fields)
	source := text.NewSource(src)
	for i := range located.Fields {
		f := &located.Fields[i]
		at, _ := placeBelow(&docs[0], nil, f.Pointer)
		f.Line, f.Column = source.Locate(at)
		if f.Pointer != "" {
			f.Message = strings.ReplaceAll(f.Pointer[1:], "/", ".") + ": " + f.Message
		}
	}
	slices.SortStableFunc(located.Fields, func(a, b perdure.FieldError) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return &located
}

// excerpt writes the line and a caret under the column, cut to the width of a terminal.
func excerpt(b *strings.Builder, src []byte, line, column int) {
	const width = 100
	rest := strings.ToValidUTF8(string(bytes.TrimPrefix(src, text.ByteOrderMark)), "\uFFFD")
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

// withoutLines removes the lines of an error whose caller has not seen the text that was read.
func withoutLines(err error) error {
	if refusal := (*perdure.Error)(nil); errors.As(err, &refusal) {
		return refusal.WithoutLines()
	}
	return err
}
