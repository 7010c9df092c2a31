// Package valueschema compiles JSON Schemas (draft 2020-12) that definitions have for inputs and outputs, and checks
// values with them.
//
// The library does the work; this package bounds it. Schemas and values come from users, and the check of a schema of a few
// lines may practically never end: references that double at each level, numbers with a million digits, patterns that repeat
// repetitions. So:
//
//   - references lead to places in the same document only, and not to $dynamicRef, whose targets depend on the way;
//   - each check counts the schemas that it applies, and ends after MaxWork of them;
//   - patterns are RE2, and their programs and the exponents of numbers are bounded.
//
// A compiled schema may be used by any number of goroutines; its checks are made one after the other.
package valueschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/plain"
)

const (
	// MaxWork bounds what one check does: each schema that is applied to a value, and what that compares.
	MaxWork = 1_000_000
	// MaxExponent bounds the exponents of numbers, in schemas and in values.
	MaxExponent = 400
	// MaxPattern bounds the size of the program of a pattern, and MaxPatterns that of all patterns of a schema.
	MaxPattern  = 10_000
	MaxPatterns = 100_000
	// maxFaults bounds the faults that a check returns, and maxText the text of one.
	maxFaults = 10
	maxText   = 300
)

// draft is the only value of $schema that is accepted.
const draft = "https://json-schema.org/draft/2020-12/schema"

// place is the address that a schema has while it is compiled. Nothing is read from it.
const place = "https://schema.invalid/perdure"

// Schema is a compiled schema. It implements kernel.ValueSchema.
type Schema struct {
	root *jsonschema.Schema

	lock sync.Mutex
	left int // work that the present check has left; guarded by lock
}

// Fault is what is wrong with a schema, and where in it, as a JSON Pointer.
type Fault struct{ Pointer, Message string }

func (f *Fault) Error() string { return strings.TrimPrefix(f.Pointer+": ", ": ") + f.Message }

// Compile compiles a schema. The error is a *Fault.
func Compile(text []byte) (*Schema, error) {
	doc, f := decode(text)
	if f != nil {
		return nil, f
	}
	if err := checkKeywords(doc, ""); err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	c.UseLoader(nowhere{})
	c.UseRegexpEngine((&patterns{}).compile)
	if err := c.AddResource(place, doc); err != nil {
		return nil, &Fault{Message: err.Error()}
	}
	root, err := c.Compile(place)
	if err != nil {
		return nil, faultOf(err, doc)
	}
	s := &Schema{root: root}
	s.count(root, map[*jsonschema.Schema]bool{})
	return s, nil
}

// nowhere refuses references to other documents.
type nowhere struct{}

func (nowhere) Load(string) (any, error) { return nil, errElsewhere }

var errElsewhere = errors.New("a reference to another document")

// checkKeywords refuses the keywords that a bounded check cannot have. Members of enum, const, default and examples are
// values, and members of properties have any names.
func checkKeywords(v any, pointer string) error {
	switch v := v.(type) {
	case []any:
		for i := range v {
			if err := checkKeywords(v[i], pointer+"/"+strconv.Itoa(i)); err != nil {
				return err
			}
		}
	case map[string]any:
		for name, member := range v {
			at := pointer + "/" + escape(name)
			switch name {
			case "enum", "const", "default", "examples":
				continue
			case "$dynamicRef", "$recursiveRef":
				if _, ok := member.(string); ok {
					return &Fault{at, name + " is not supported: use $ref"}
				}
			case "$schema":
				if text, ok := member.(string); ok && strings.TrimSuffix(text, "#") != draft {
					return &Fault{at, "schemas are those of draft 2020-12: " + draft}
				}
			case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas":
				if object, ok := member.(map[string]any); ok {
					for key, sub := range object {
						if err := checkKeywords(sub, at+"/"+escape(key)); err != nil {
							return err
						}
					}
					continue
				}
			}
			if err := checkKeywords(member, at); err != nil {
				return err
			}
		}
	}
	return nil
}

// placeOfRef returns the JSON Pointer of a $ref that leads to a URL, or empty.
func placeOfRef(v any, url, pointer string) string {
	switch v := v.(type) {
	case []any:
		for i := range v {
			if at := placeOfRef(v[i], url, pointer+"/"+strconv.Itoa(i)); at != "" {
				return at
			}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			at := pointer + "/" + escape(name)
			text, _ := v[name].(string)
			if document, _, _ := strings.Cut(text, "#"); name == "$ref" && document != "" && strings.HasSuffix(url, strings.TrimLeft(document, "./")) {
				return at
			}
			if at = placeOfRef(v[name], url, at); at != "" {
				return at
			}
		}
	}
	return ""
}

// faultOf returns the error of the compiler of a schema in other words.
func faultOf(err error, schema any) error {
	var invalid *jsonschema.SchemaValidationError
	var why *jsonschema.ValidationError
	var load *jsonschema.LoadURLError
	var pattern *jsonschema.InvalidRegexError
	switch {
	case errors.As(err, &invalid) && errors.As(invalid.Err, &why):
		found := leaves(why)
		return &Fault{found[0].Pointer, found[0].Message}
	case errors.As(err, &load):
		return &Fault{Pointer: placeOfRef(schema, load.URL, ""), Message: fmt.Sprintf("a $ref leads to another document (%s): a schema refers to its own places only, such as #/$defs/NAME", strings.TrimPrefix(load.URL, place))}
	case errors.As(err, &pattern):
		return &Fault{Message: fmt.Sprintf("the pattern %q: %v", plain.Clip(pattern.Regex, maxText), pattern.Err)}
	}
	return &Fault{Message: strings.ReplaceAll(plain.Clip(err.Error(), maxText), place, "")}
}

// Check returns what of a value does not fit; nothing if all of it does.
func (s *Schema) Check(value json.RawMessage) (found []kernel.ValueFault) {
	v, err := decode(value)
	if err != nil {
		return []kernel.ValueFault{{Pointer: err.Pointer, Message: err.Message}}
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	s.left = MaxWork
	defer func() {
		p := recover()
		if err, is := p.(error); is && errors.Is(err, errWork) {
			found = []kernel.ValueFault{{Message: "it takes too much work to check it with this schema"}}
		} else if p != nil {
			panic(p)
		}
	}()
	var why *jsonschema.ValidationError
	if err := s.root.Validate(v); errors.As(err, &why) {
		return leaves(why)
	}
	return nil
}

var errWork = errors.New("too much work")

// count makes each schema that is applied to a value count, before the schemas below it are applied. The library asks the
// format of a schema at that point, whatever the value is. So each schema gets a format that counts, and calls its own. An
// enum goes with it: the library compares a value with each of its members.
func (s *Schema) count(sub *jsonschema.Schema, known map[*jsonschema.Schema]bool) {
	if sub == nil || known[sub] {
		return
	}
	known[sub] = true
	fan := 1 + len(sub.AllOf) + len(sub.AnyOf) + len(sub.OneOf) + len(sub.Required) + len(sub.DependentSchemas) + len(sub.DependentRequired)
	ofItem, ofMember := 1, 1+len(sub.PatternProperties)
	if sub.Contains != nil {
		ofItem++
	}
	own := sub.Format
	members := enumOf(sub.Enum)
	sub.Enum = nil
	sub.Format = &jsonschema.Format{Name: nameOf(own), Validate: func(v any) error {
		work := fan
		switch v := v.(type) {
		case map[string]any:
			work += len(v) * ofMember
		case []any:
			work += len(v) * ofItem
		case string:
			work += len(v) / 64
		}
		if s.left -= work; s.left < 0 {
			panic(errWork)
		}
		if members != nil && !members.has(v) {
			return members
		}
		if own != nil {
			return own.Validate(v)
		}
		return nil
	}}
	s.countBelow(sub, known)
}

func nameOf(f *jsonschema.Format) string {
	if f == nil {
		return ""
	}
	return f.Name
}

func (s *Schema) countBelow(sub *jsonschema.Schema, known map[*jsonschema.Schema]bool) {
	for _, one := range []*jsonschema.Schema{sub.Ref, sub.Not, sub.If, sub.Then, sub.Else, sub.PropertyNames, sub.UnevaluatedProperties,
		sub.Contains, sub.Items2020, sub.UnevaluatedItems, sub.ContentSchema} {
		s.count(one, known)
	}
	for _, list := range [][]*jsonschema.Schema{sub.AllOf, sub.AnyOf, sub.OneOf, sub.PrefixItems} {
		for _, one := range list {
			s.count(one, known)
		}
	}
	for _, one := range sub.Properties {
		s.count(one, known)
	}
	for _, one := range sub.PatternProperties {
		s.count(one, known)
	}
	for _, one := range sub.DependentSchemas {
		s.count(one, known)
	}
	for _, one := range sub.Dependencies {
		if one, ok := one.(*jsonschema.Schema); ok {
			s.count(one, known)
		}
	}
	for _, one := range []any{sub.AdditionalProperties, sub.Items, sub.AdditionalItems} {
		if one, ok := one.(*jsonschema.Schema); ok {
			s.count(one, known)
		}
	}
}

// enum are the members of an enum by their text, in which equal values are equal.
type enum struct {
	texts map[string]bool
	shown string
}

func enumOf(e *jsonschema.Enum) *enum {
	if e == nil {
		return nil
	}
	m := &enum{texts: make(map[string]bool, len(e.Values))}
	list, _ := json.Marshal(e.Values) // values that were decoded
	m.shown = strings.Trim(string(list), "[]")
	for _, v := range e.Values {
		m.texts[textOf(v)] = true
	}
	return m
}

func (m *enum) has(v any) bool { return m.texts[textOf(v)] }

func (m *enum) Error() string { return "must be one of " + plain.Clip(m.shown, maxText) }

// leaves returns the faults that have no causes, up to maxFaults.
func leaves(e *jsonschema.ValidationError) (found []kernel.ValueFault) {
	printer := message.NewPrinter(language.English)
	var walk func(*jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		if len(found) >= maxFaults {
			return
		}
		if len(e.Causes) > 0 {
			for _, cause := range e.Causes {
				walk(cause)
			}
			return
		}
		text := e.ErrorKind.LocalizedString(printer)
		if f, ok := e.ErrorKind.(*kind.Format); ok {
			if m := (*enum)(nil); errors.As(f.Err, &m) {
				text = m.Error()
			}
		}
		pointer := ""
		for _, token := range e.InstanceLocation {
			pointer += "/" + escape(token)
		}
		found = append(found, kernel.ValueFault{Pointer: pointer, Message: plain.Clip(text, maxText)})
	}
	walk(e)
	return found
}

func escape(token string) string {
	return strings.ReplaceAll(strings.ReplaceAll(token, "~", "~0"), "/", "~1")
}

// decode reads JSON, with numbers as they were written. It refuses numbers whose exponents would take too much work.
func decode(text []byte) (any, *Fault) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, &Fault{Message: "not JSON: " + err.Error()}
	}
	return v, checkNumbers(v, "")
}

func checkNumbers(v any, pointer string) *Fault {
	switch v := v.(type) {
	case json.Number:
		if at := strings.IndexAny(string(v), "eE"); at >= 0 {
			if n, err := strconv.Atoi(string(v)[at+1:]); err != nil || n > MaxExponent || n < -MaxExponent {
				return &Fault{pointer, fmt.Sprintf("the number has an exponent beyond %d, and is not checked", MaxExponent)}
			}
		}
	case []any:
		for i := range v {
			if f := checkNumbers(v[i], pointer+"/"+strconv.Itoa(i)); f != nil {
				return f
			}
		}
	case map[string]any:
		for name, member := range v {
			if f := checkNumbers(member, pointer+"/"+escape(name)); f != nil {
				return f
			}
		}
	}
	return nil
}
