package rest

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/jsontext"
	"github.com/perdure/perdure/internal/plain"
)

// document is a body of JSON while it is read, and what is wrong with it. It is read once, from front to back:
//
//	root := doc.root()
//	for name, field := range root.fields() {
//		switch string(name) {
//		case "holder":
//			holder = field.holder()
//		default:
//			field.unknown("holder")
//		}
//	}
//	root.need("holder", holder != "")
//	err := doc.err()
//
// A fault does not end the reading, so that one answer has all faults of a body, each with its pointer, line and column.
// Only text that is not JSON does. Because that is known at the end alone, nothing may be done before err returns nil.
type document struct {
	text   []byte
	json   *jsontext.Reader
	isUTF8 bool // a body may not be: only what is not UTF-8 in it is refused
	path   []part
	faults []perdure.FieldError
}

// part is a part of the pointer to the value that is being read: the name of a member, or the index of an item.
type part struct {
	name  []byte // nil: an item
	index int
}

// maxFaults is how many faults of one body are reported.
const maxFaults = 16

func parse(text []byte) *document {
	return &document{text: text, json: jsontext.NewReader(text, jsontext.Options{Lenient: true}), isUTF8: utf8.Valid(text)}
}

// err is the refusal of a document that was read: of its text if it is not JSON, else of its faults; nil if it has none.
func (d *document) err() error {
	if e := d.json.End(); e != nil {
		return d.malformed(e)
	}
	return refusalOf(d.faults)
}

func (d *document) malformed(e *jsontext.Error) error {
	message := "not JSON: " + e.Message
	if e.TooDeep {
		message = e.Message
	}
	line, column := jsontext.LineColumn(d.text, e.Offset)
	return &perdure.Error{Code: perdure.CodeMalformed, Message: message, Fields: []perdure.FieldError{{Line: line, Column: column, Message: message}}}
}

func refusalOf(faults []perdure.FieldError) error {
	if len(faults) == 0 {
		return nil
	}
	f := faults[0]
	message := f.Message
	if f.Pointer != "" {
		message = strings.ReplaceAll(strings.TrimPrefix(f.Pointer, "/"), "/", ".") + ": " + message
	}
	return &perdure.Error{Code: perdure.CodeInvalid, Message: message, Hint: f.Hint, Fields: faults}
}

// root is the document's one value.
func (d *document) root() value { return value{doc: d, at: d.json.Offset()} }

// value is a value of a document: the one that is next, or one whose fields are being read.
type value struct {
	doc   *document
	depth int // how many parts of the document's path lead to it
	at    int // where it begins
}

// enter is the value that is next, below v.
func (v value) enter(p part) value {
	v.doc.path = append(v.doc.path[:v.depth], p)
	return value{doc: v.doc, depth: v.depth + 1, at: v.doc.json.Offset()}
}

// leave skips the value if nothing has read it.
func (v value) leave() {
	if v.doc.json.Offset() == v.at {
		v.doc.json.Skip()
	}
}

func (v value) kind() jsontext.Kind { return v.doc.json.Peek() }
func (v value) null() bool          { return v.kind() == jsontext.Null }

// pointer is the value's JSON pointer (RFC 6901).
func (v value) pointer() string {
	var b strings.Builder
	for _, p := range v.doc.path[:v.depth] {
		b.WriteByte('/')
		if p.name == nil {
			b.WriteString(strconv.Itoa(p.index))
		} else {
			b.WriteString(escapePointer(string(p.name)))
		}
	}
	return b.String()
}

func (v value) child(name string) string { return v.pointer() + "/" + escapePointer(name) }

func escapePointer(s string) string {
	if !strings.ContainsAny(s, "~/") {
		return s
	}
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(s)
}

func (v value) fault(format string, args ...any) { v.faultAt(v.pointer(), "", format, args...) }

func (v value) faultAt(pointer, hint, format string, args ...any) {
	if len(v.doc.faults) < maxFaults {
		line, column := jsontext.LineColumn(v.doc.text, v.at)
		v.doc.faults = append(v.doc.faults, perdure.FieldError{Pointer: pointer, Line: line, Column: column,
			Message: fmt.Sprintf(format, args...), Hint: hint})
	}
}

// ownFaults takes the faults of a value, which was read since the document had n faults, out of the document and returns
// them as an error: the value is refused, and the rest of the document is not.
func (v value) ownFaults(n int) error {
	d := v.doc
	own := slices.Clone(d.faults[n:])
	d.faults = d.faults[:n]
	if !d.isUTF8 && !utf8.Valid(d.text[v.at:d.json.Offset()]) && len(own) == 0 {
		v.fault("is not UTF-8")
		own, d.faults = slices.Clone(d.faults[n:]), d.faults[:n]
	}
	return refusalOf(own)
}

// need adds a fault if a field is missing and no other fault says so.
func (v value) need(name string, given bool) {
	if given {
		return
	}
	pointer := v.child(name)
	if !slices.ContainsFunc(v.doc.faults, func(f perdure.FieldError) bool { return f.Pointer == pointer }) {
		v.faultAt(pointer, "", "is required")
	}
}

// unknown refuses a field by its name.
func (v value) unknown(known ...string) {
	hint := "no field is known here"
	if len(known) > 0 {
		hint = "known here: " + strings.Join(known, ", ")
	}
	v.faultAt(v.pointer(), hint, "is not a known field")
}

// fields goes through an object. Of two fields with one name the second is a fault. The loop must not be left early.
func (v value) fields() iter.Seq2[[]byte, value] {
	return func(yield func([]byte, value) bool) {
		r := v.doc.json
		if v.kind() != jsontext.Object {
			v.fault("must be an object")
			r.Skip()
			return
		}
		for r.Object(); r.More(); {
			name, duplicate := r.Name()
			field := v.enter(part{name: name})
			if duplicate {
				v.faultAt(field.pointer(), "keep one of the two", "is a duplicate field")
			} else if !yield(name, field) {
				return
			}
			field.leave()
		}
	}
}

// items goes through a list. The loop must not be left early.
func (v value) items() iter.Seq2[int, value] {
	return func(yield func(int, value) bool) {
		r := v.doc.json
		if v.kind() != jsontext.List {
			v.fault("must be a list")
			r.Skip()
			return
		}
		n := 0
		for r.List(); r.More(); n++ {
			item := v.enter(part{index: n})
			if !yield(n, item) {
				return
			}
			item.leave()
		}
	}
}

// set goes through a list of at most perdure.MaxBatch items. null is a list without items.
func (v value) set(read func(value)) {
	if v.null() {
		return
	}
	for i, item := range v.items() {
		if i < perdure.MaxBatch {
			read(item)
		} else if i == perdure.MaxBatch {
			v.faultAt(v.pointer(), "send several", "has more than %d", perdure.MaxBatch)
		}
	}
}

// The readers of single values follow. For each of them null is as if the field were missing.

// is reports whether the value is of a kind, and adds a fault if it is of another one.
func (v value) is(kind jsontext.Kind, message string) bool {
	switch v.kind() {
	case kind:
		return true
	case jsontext.Null, jsontext.None: // None is no value, of which the reader makes an error
		return false
	}
	v.fault("%s", message)
	return false
}

func (v value) string() string {
	if !v.is(jsontext.String, "must be a string") {
		return ""
	}
	return v.doc.json.Text()
}

// name is a string that names something.
func (v value) name(most int) string { return v.checked(most, misnamed) }

// text is a string that is compared with texts of users.
func (v value) text(most int) string { return v.checked(most, unstored) }

// checked is a string that wrong finds no fault with.
func (v value) checked(most int, wrong func(s string, most int) string) string {
	if !v.is(jsontext.String, "must be a string") {
		return ""
	}
	s := v.doc.json.Text()
	if why := wrong(s, most); why != "" {
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
	message := func() string { return fmt.Sprintf("must be an integer from %d to %d", least, most) }
	if v.kind() != jsontext.Number {
		if !v.null() {
			v.fault("%s", message())
		}
		return 0
	}
	n, err := strconv.ParseInt(string(v.doc.json.Number()), 10, 64)
	if err != nil || n < least || n > most {
		v.fault("%s", message())
		return 0
	}
	return n
}

func (v value) boolean() bool {
	return v.is(jsontext.Bool, "must be true or false") && v.doc.json.Bool()
}

func (v value) duration(least, most time.Duration) time.Duration {
	const message = "must be a duration as a string, such as \"20s\""
	if !v.is(jsontext.String, message) {
		return 0
	}
	d, err := parseWait(v.doc.json.Text())
	switch {
	case err != nil:
		v.fault(message)
	case d < least || d > most:
		v.fault("must be from %s to %s", plain.Duration(least), plain.Duration(most))
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
func (v value) raw() json.RawMessage { return v.doc.json.Raw() }
