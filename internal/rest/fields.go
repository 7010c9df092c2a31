package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/perdure/perdure"
)

// encoding/json takes field names in any case, keeps the last of two of the same name, and doesn't say
// where it found what it refuses. So bodies are checked by it and then read field by field, from the
// text itself: every fault is found in one go and has its pointer, line and column.

// document is a body of valid JSON, and what is wrong with it.
type document struct {
	text   []byte
	faults []perdure.FieldError
}

const maxFaults = 16

// parse refuses what is not JSON.
func parse(text []byte) (*document, error) {
	if json.Valid(text) {
		return &document{text: text}, nil
	}
	message, at := "not JSON", 0
	var syntax *json.SyntaxError
	if errors.As(json.Unmarshal(text, new(json.RawMessage)), &syntax) {
		message, at = "not JSON: "+syntax.Error(), int(syntax.Offset)-1
	}
	line, column := lineColumn(text, at)
	return nil, &perdure.Error{Code: perdure.CodeMalformed, Message: message,
		Fields: []perdure.FieldError{{Line: line, Column: column, Message: message}}}
}

// lineColumn counts both from 1, columns in characters.
func lineColumn(text []byte, at int) (line, column int) {
	before := text[:max(0, min(at, len(text)))]
	start := bytes.LastIndexByte(before, '\n') + 1
	return bytes.Count(before, []byte{'\n'}) + 1, utf8.RuneCount(before[start:]) + 1
}

// err is the refusal of a document that has faults.
func (d *document) err() error {
	if len(d.faults) == 0 {
		return nil
	}
	f := d.faults[0]
	message := f.Message
	if f.Pointer != "" {
		message = f.Pointer + " " + message
	}
	return &perdure.Error{Code: perdure.CodeInvalid, Message: message, Hint: f.Hint, Fields: d.faults}
}

func (d *document) full() bool { return len(d.faults) >= maxFaults }

// root is the document's one value.
func (d *document) root() value {
	at := skipSpace(d.text, 0)
	return value{doc: d, at: at, text: d.text[at:skipValue(d.text, at)]}
}

// value is one value of a document: its text, and where that stands.
type value struct {
	doc     *document
	pointer string
	at      int
	text    []byte
}

func (v value) null() bool { return string(v.text) == "null" }

func (v value) fault(format string, args ...any) { v.faultAt(v.pointer, "", format, args...) }

func (v value) faultAt(pointer, hint, format string, args ...any) {
	line, column := lineColumn(v.doc.text, v.at)
	v.doc.faults = append(v.doc.faults, perdure.FieldError{Pointer: pointer, Line: line, Column: column,
		Message: fmt.Sprintf(format, args...), Hint: hint})
}

// alone is the value as a document of its own, whose faults are not the whole's.
func (v value) alone() value {
	v.doc = &document{text: v.doc.text}
	if !utf8.Valid(v.text) {
		v.fault("is not UTF-8")
	}
	return v
}

// need notes that a field of an object is missing.
func (v value) need(name string, there bool) {
	if !there && !slices.ContainsFunc(v.doc.faults, func(f perdure.FieldError) bool { return f.Pointer == v.child(name) }) {
		v.faultAt(v.child(name), "", "is required")
	}
}

// unknown refuses a field by its name.
func (v value) unknown(known ...string) {
	hint := "no field is known here"
	if len(known) > 0 {
		hint = "known here: " + strings.Join(known, ", ")
	}
	v.faultAt(v.pointer, hint, "is not a known field")
}

func (v value) child(name string) string { return v.pointer + "/" + escapePointer(name) }

func escapePointer(s string) string {
	if !strings.ContainsAny(s, "~/") {
		return s
	}
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(s)
}

// fields are an object's, each name once.
func (v value) fields() iter.Seq2[string, value] {
	return func(yield func(string, value) bool) {
		if v.text[0] != '{' {
			v.fault("must be an object")
			return
		}
		var seen []string
		for i := skipSpace(v.text, 1); v.text[i] != '}' && !v.doc.full(); {
			end := skipValue(v.text, i)
			name, _ := unquote(v.text[i:end])
			at := skipSpace(v.text, skipSpace(v.text, end)+1) // past the colon
			end = skipValue(v.text, at)
			f := value{v.doc, v.child(name), v.at + at, v.text[at:end]}
			if slices.Contains(seen, name) {
				f.fault("is there twice")
			} else if seen = append(seen, name); !yield(name, f) {
				return
			}
			i = skipComma(v.text, end)
		}
	}
}

// items are a list's.
func (v value) items() iter.Seq[value] {
	return func(yield func(value) bool) {
		if v.text[0] != '[' {
			v.fault("must be a list")
			return
		}
		n := 0
		for i := skipSpace(v.text, 1); v.text[i] != ']'; n++ {
			end := skipValue(v.text, i)
			if !yield(value{v.doc, v.pointer + "/" + strconv.Itoa(n), v.at + i, v.text[i:end]}) {
				return
			}
			i = skipComma(v.text, end)
		}
	}
}

// The readers of single values. null is as if the field were not there.

func (v value) string() string {
	if v.null() {
		return ""
	}
	s, ok := unquote(v.text)
	if !ok {
		v.fault("must be a string")
	}
	return s
}

// name is a string that names something.
func (v value) name(most int) string {
	s := v.string()
	if why := misnamed(s, most); why != "" && v.text[0] == '"' {
		v.fault("%s", why)
	}
	return s
}

// prose is text of at most max bytes that every store can keep.
func (v value) prose(max int) string {
	s := v.string()
	switch {
	case len(s) > max:
		v.fault("is over %d bytes", max)
	case strings.ContainsRune(s, 0) || !utf8.ValidString(s):
		v.fault("holds a NUL or is not UTF-8")
	}
	return s
}

func (v value) integer(least, most int64) int64 {
	if v.null() {
		return 0
	}
	n, err := strconv.ParseInt(string(v.text), 10, 64)
	if err != nil || n < least || n > most {
		v.fault("must be an integer from %d to %d", least, most)
		return 0
	}
	return n
}

func (v value) boolean() bool {
	if b := v.text[0]; b != 't' && b != 'f' && b != 'n' {
		v.fault("must be true or false")
	}
	return v.text[0] == 't'
}

func (v value) duration(least, most time.Duration) time.Duration {
	if v.null() {
		return 0
	}
	s, _ := unquote(v.text)
	d, err := parseWait(s)
	switch {
	case err != nil:
		v.fault("must be a duration as a string, such as \"20s\"")
	case d < least || d > most:
		v.fault("must be from %s to %s", perdure.Duration(least), perdure.Duration(most))
	}
	return d
}

// parseWait reads a duration that may be 0.
func parseWait(s string) (time.Duration, error) {
	if d, err := time.ParseDuration(s); err == nil && d == 0 {
		return 0, nil
	}
	return perdure.ParseDuration(s)
}

// raw is the value as it was sent, to be passed on.
func (v value) raw() json.RawMessage { return json.RawMessage(v.text) }

// unquote reads a JSON string.
func unquote(b []byte) (string, bool) {
	if b[0] != '"' {
		return "", false
	}
	if inner := b[1 : len(b)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), true
	}
	var s string
	err := json.Unmarshal(b, &s)
	return s, err == nil
}

// The steps over text that is known to be valid JSON: nothing can be missing in it.

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// skipComma goes from the end of one member to the start of the next, or to the closing bracket.
func skipComma(b []byte, i int) int {
	if i = skipSpace(b, i); b[i] == ',' {
		i = skipSpace(b, i+1)
	}
	return i
}

// skipValue goes from the start of a value to its end.
func skipValue(b []byte, i int) int {
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		for level := 0; ; i++ {
			switch b[i] {
			case '"':
				i = skipString(b, i) - 1
			case '{', '[':
				level++
			case '}', ']':
				if level--; level == 0 {
					return i + 1
				}
			}
		}
	}
	for i < len(b) && strings.IndexByte(",]} \n\r\t", b[i]) < 0 {
		i++
	}
	return i
}

func skipString(b []byte, i int) int {
	for i++; b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return i + 1
}
