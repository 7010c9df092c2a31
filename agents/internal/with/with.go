// Package with reads the input of a step of a built-in agent (`with`) strictly, and makes texts valid for every store.
package with

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
)

// Decode reads one JSON object into the struct to which to points. A name that the struct's tags do not have in exactly
// that spelling is an error, and so is a second value. Errors name the place.
func Decode(b json.RawMessage, to any) error {
	if b = bytes.TrimSpace(b); len(b) == 0 || b[0] != '{' {
		return fmt.Errorf("an object is needed, not %s", Brief(b))
	}
	var names map[string]json.RawMessage
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(&names); err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("more than one JSON value")
	}
	v := reflect.ValueOf(to).Elem()
	known := make([]string, v.NumField())
	for i := range known {
		known[i] = v.Type().Field(i).Tag.Get("json")
		raw, ok := names[known[i]]
		if !ok || known[i] == "" {
			continue
		}
		delete(names, known[i])
		if err := json.Unmarshal(raw, v.Field(i).Addr().Interface()); err != nil {
			return fmt.Errorf("%s: %w", known[i], readable(err))
		}
	}
	for name := range names {
		return fmt.Errorf("unknown field %q (there are %s)", name, strings.Join(slices.DeleteFunc(known, empty), ", "))
	}
	return nil
}

func empty(s string) bool { return s == "" }

// readable replaces Go's terms in a decoding error.
func readable(err error) error {
	if typ := (*json.UnmarshalTypeError)(nil); errors.As(err, &typ) {
		return fmt.Errorf("%s does not fit here", article(typ.Value))
	}
	return err
}

func article(noun string) string {
	noun, _, _ = strings.Cut(noun, " ")
	switch noun {
	case "object", "array":
		return "an " + noun
	case "bool":
		return "a boolean"
	}
	return "a " + noun
}

// Scalar returns the text of a JSON string, number, boolean or null, with all digits; false for objects and arrays.
func Scalar(b json.RawMessage) (string, bool) {
	switch b[0] {
	case '"':
		var s string
		return s, json.Unmarshal(b, &s) == nil
	case '{', '[':
		return "", false
	}
	return string(b), true
}

// IsNull reports whether b is empty or null.
func IsNull(b json.RawMessage) bool {
	b = bytes.TrimSpace(b)
	return len(b) == 0 || string(b) == "null"
}

// Brief returns the beginning of b, for an error message.
func Brief(b []byte) string {
	switch {
	case len(b) == 0:
		return "nothing"
	case len(b) > 40:
		return Plain(string(b[:40])) + "…"
	}
	return Plain(string(b))
}

// Expression reports whether a string of a definition contains a ${…} that will be replaced. $${…} is literal text.
func Expression(s string) bool {
	for i := 0; i+1 < len(s); i++ {
		switch {
		case strings.HasPrefix(s[i:], "$${"):
			i += 2
		case s[i] == '$' && s[i+1] == '{':
			return true
		}
	}
	return false
}

// Plain returns s as every store accepts it: UTF-8 without NUL. Other bytes become U+FFFD.
func Plain(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// Text is a string, or the JSON of anything else.
type Text string

// UnmarshalJSON implements json.Unmarshaler.
func (t *Text) UnmarshalJSON(b []byte) error {
	if b[0] != '"' {
		*t = Text(b)
		return nil
	}
	return json.Unmarshal(b, (*string)(t))
}
