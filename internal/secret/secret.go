// Package secret is what nodes and agent hosts share about secrets in jobs.
//
// A definition refers to a secret with ${secret.NAME} inside a `with`. The store, the API and every message keep this
// text as it is: the reference. The process that carries out a run replaces it by the value.
//
// Which texts of an input are references is never decided by what they contain, because an input also has values of the
// job's input and of other steps. A definition knows the strings in which it refers to secrets, and a run carries their
// JSON Pointers (Run.Secrets). Fill replaces the references of these strings, and of no others. This is sound because such
// a string of a definition has no other expression and no literal ${, and because values that are filled in never move the
// place of a string.
//
// A Redactor removes values from what a run reports.
//
// The package reads no file and no environment variable.
package secret

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/perdure/perdure/internal/jsontext"
)

// Variable is the prefix of the environment variable of a secret.
const Variable = "PERDURE_SECRET_"

const (
	opening = "${secret."
	closing = "}"
)

// MaxName is the most characters of a name.
const MaxName = 128

// IsName reports whether name is a valid name of a secret: capital letters, digits and _, beginning with a letter. On every
// system, such a name is also valid for a file, and at the end of the name of an environment variable.
func IsName(name string) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case 'A' <= c && c <= 'Z':
		case i > 0 && (c == '_' || '0' <= c && c <= '9'):
		default:
			return false
		}
	}
	return name != "" && len(name) <= MaxName
}

// Reference returns the text that refers to a secret.
func Reference(name string) string { return opening + name + closing }

// Value is a resolved secret.
type Value struct{ Name, Text string }

// expand replaces the references in a text. It does not read the values that it fills in.
func expand(text string, value func(name string) string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, opening)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		name, after, closed := strings.Cut(rest, closing)
		if !closed || !IsName(name) {
			b.WriteString(opening)
			text = rest
			continue
		}
		b.WriteString(value(name))
		text = after
	}
}

// place is a node of the tree of pointers.
type place struct {
	here     bool // a pointer ends here
	children map[string]*place
}

func placesOf(pointers []string) (*place, error) {
	root := &place{}
	for _, pointer := range pointers {
		if pointer != "" && pointer[0] != '/' {
			return nil, fmt.Errorf("%q is not a JSON Pointer", pointer)
		}
		p := root
		for _, part := range tokens(pointer) {
			child := p.children[part]
			if child == nil {
				child = &place{}
				if p.children == nil {
					p.children = map[string]*place{}
				}
				p.children[part] = child
			}
			p = child
		}
		p.here = true
	}
	return root, nil
}

var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// tokens returns the names and indexes of a JSON Pointer.
func tokens(pointer string) []string {
	if pointer == "" {
		return nil
	}
	list := strings.Split(pointer[1:], "/")
	for i := range list {
		list[i] = unescape.Replace(list[i])
	}
	return list
}

// lenient has the options for reading an input, which was checked when it was stored.
var lenient = jsontext.Options{Lenient: true, AnyNames: true}

// Fill resolves the references in the strings of input at the pointers. value returns a secret; its errors are joined,
// so that one error names all missing secrets. values has each secret that was filled in, once.
func Fill(input json.RawMessage, pointers []string, value func(name string) (string, error)) (filled json.RawMessage, values []Value, err error) {
	root, err := placesOf(pointers)
	if err != nil {
		return nil, nil, err
	}
	f := filler{resolve: value, out: jsontext.NewAppender(make([]byte, 0, len(input)+256))}
	r := jsontext.NewReader(input, lenient)
	f.value(r, root)
	if e := r.End(); e != nil {
		return nil, nil, fmt.Errorf("the input is not JSON: byte %d: %w", e.Offset, e)
	}
	switch {
	case len(f.errs) > 0:
		return nil, nil, joined(f.errs)
	case f.found < len(pointers):
		return nil, nil, fmt.Errorf("the input has no text at one of %s", strings.Join(pointers, ", "))
	}
	return f.out.Bytes(), f.values, nil
}

// filler copies an input, and resolves the references at some places of it.
type filler struct {
	resolve func(string) (string, error)
	out     jsontext.Appender
	values  []Value
	missing []string // names that could not be resolved
	errs    []error
	found   int
}

func (f *filler) value(r *jsontext.Reader, p *place) {
	switch kind := r.Peek(); {
	case p == nil:
		f.out.Raw(r.Raw())
	case p.here && kind == jsontext.String:
		f.found++
		f.out.Text(expand(r.Text(), f.get))
	case kind == jsontext.Object:
		f.out.BeginObject()
		for r.Object(); r.More(); {
			b, _ := r.Name()
			name := string(b)
			f.out.TextName(name)
			f.value(r, p.children[name])
		}
		f.out.EndObject()
	case kind == jsontext.List:
		f.out.BeginList()
		r.List()
		for i := 0; r.More(); i++ {
			f.value(r, p.children[strconv.Itoa(i)])
		}
		f.out.EndList()
	default:
		f.out.Raw(r.Raw())
	}
}

// get returns a secret, resolved once.
func (f *filler) get(name string) string {
	for _, v := range f.values {
		if v.Name == name {
			return v.Text
		}
	}
	if slices.Contains(f.missing, name) {
		return ""
	}
	text, err := f.resolve(name)
	if err != nil {
		f.missing, f.errs = append(f.missing, name), append(f.errs, err)
		return ""
	}
	f.values = append(f.values, Value{name, text})
	return text
}

// TextAt returns the string of input at a pointer; false if there is none.
func TextAt(input json.RawMessage, pointer string) (text string, ok bool) {
	raw := []byte(input)
	for _, part := range tokens(pointer) {
		r := jsontext.NewReader(raw, lenient)
		raw = nil
		switch r.Peek() {
		case jsontext.Object:
			for r.Object(); r.More(); {
				if name, _ := r.Name(); string(name) == part {
					raw = r.Raw()
				} else {
					r.Skip()
				}
			}
		case jsontext.List:
			r.List()
			for i := 0; r.More(); i++ {
				if strconv.Itoa(i) == part {
					raw = r.Raw()
				} else {
					r.Skip()
				}
			}
		}
		if raw == nil {
			return "", false
		}
	}
	r := jsontext.NewReader(raw, lenient)
	if r.Peek() != jsontext.String {
		return "", false
	}
	text = r.Text()
	return text, r.Err() == nil
}

// joined returns several errors as one, with all messages on one line. errors.Join would put each on a line of its own.
func joined(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	return &several{errs}
}

type several struct{ errs []error }

func (s *several) Error() string {
	texts := make([]string, len(s.errs))
	for i, err := range s.errs {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

func (s *several) Unwrap() []error { return s.errs }
