// Package plain checks, cleans and shortens texts and JSON values, so that every store and every message can carry
// them.
package plain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/jsontext"
)

// MaxDepth is the deepest nesting of a JSON value that CheckJSON accepts.
const MaxDepth = 64

// CheckJSON returns why b is not a JSON value that every store keeps byte for byte: one value in UTF-8, without NUL,
// nested no deeper than MaxDepth. An empty b is valid.
func CheckJSON(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	e := jsontext.Check(b, jsontext.Options{MaxDepth: MaxDepth})
	switch {
	case e == nil:
		return nil
	case !utf8.Valid(b):
		return fmt.Errorf("not UTF-8")
	case bytes.IndexByte(b, 0) >= 0:
		return fmt.Errorf("holds a NUL")
	case e.TooDeep:
		return e
	}
	return fmt.Errorf("not JSON: byte %d: %w", e.Offset, e)
}

// OrNull returns b, or the JSON value null if b is empty.
func OrNull(b json.RawMessage) json.RawMessage {
	if len(b) == 0 {
		return json.RawMessage("null")
	}
	return b
}

// Object writes a JSON object of n members, in their order. HTML characters are not escaped.
func Object(n int, member func(i int) (name string, value any)) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	b.WriteByte('{')
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		name, value := member(i)
		b.Write(jsontext.AppendString(b.AvailableBuffer(), name, false))
		b.WriteByte(':')
		if err := enc.Encode(value); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// IsText reports whether every store keeps s as it is: UTF-8 without NUL.
func IsText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// Text replaces the parts of s that not every store keeps.
func Text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// Clip shortens s to at most n bytes, between two characters.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// Shorten is Clip, and appends "…" to a text that it shortens.
func Shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return Clip(s, n) + "…"
}

// IsLine reports whether s has 1 to max characters, all of which can be printed, and not only spaces.
func IsLine(s string, max int) bool {
	return strings.TrimSpace(s) != "" && utf8.ValidString(s) && utf8.RuneCountInString(s) <= max &&
		!strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// IsName reports whether s can be the name of a type, step, agent, action or limit: letters, digits, ".", "_" and "-",
// starting with a letter or digit. It says nothing of its length.
func IsName(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9'
		if !letter && (i == 0 || c != '.' && c != '_' && c != '-') {
			return false
		}
	}
	return s != ""
}
