package jsontext

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

var corpus = []string{
	``, ` `, `{}`, `[]`, `null`, `""`, `0`, `-0`, `1.5e+3`, `true`, `false`, ` [ 1 , 2 ] `, `{"a":[{"b":"\"\\"},[],{}],"c":-1.5e+3,"d":"\u00e9\ud83d\ude00"}`,
	`{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, "\xef\xbb\xbf{}", `{"a":1,}`, `[1,]`, `[,]`, `{,}`, `{"a"}`, `{"a":}`, `{a:1}`, `{'a':1}`, `[1 2]`, `[1}`, `{"a":1]`, `[]]`, `{} {}`,
	`01`, `+1`, `1.`, `.5`, `1e`, `1e+`, `-`, `--1`, `0x1`, `1a`, `NaN`, `tru`, `truex`, `nul`, `"`, `"a`, `"\`, `"\x"`, `"\u12"`, `"\u12g4"`, `"\ud800"`, `"\ud800\u0041"`,
	`"\udc00\ud800"`, `"\ud800\ud800\udc00"`, `"a` + "\n" + `"`, `"a` + "\x00" + `"`, "\"\xff\"", `"\u0000"`, "\"\u2028\"", `{"\ud800":1}`, "{\"\xff\":1}",
	strings.Repeat("[", 200) + strings.Repeat("]", 200), strings.Repeat(`{"a":[`, 70) + strings.Repeat("]}", 70), strings.Repeat("[", 10001) + strings.Repeat("]", 10001),
	`{"a":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `,"b":{}}`, manyMembers(40), `{"k3":1,` + manyMembers(40)[1:],
	`{"k30":1,` + manyMembers(20)[1:len(manyMembers(20))-1] + `,"k19":1}`, `{"x":` + manyMembers(20) + `,"k3":` + manyMembers(17) + `,"k19":1}`,
}

// manyMembers is an object with members k0, k1 and so on.
func manyMembers(n int) string {
	b := []byte{'{'}
	for i := range n {
		b = append(strconv.AppendInt(append(b, `"k`...), int64(i), 10), `":1,`...)
	}
	return string(b[:len(b)-1]) + "}"
}

// tree reads the next value, through every method that reads one. It skips the second of two members of one name; the
// reader must report it.
func tree(r *Reader, duplicates *bool) any {
	switch r.Peek() {
	case Object:
		m := map[string]any{}
		for r.Object(); r.More(); {
			name, again := r.Name()
			if *duplicates = *duplicates || again; again {
				r.Skip()
				continue
			}
			m[string(name)] = tree(r, duplicates)
		}
		return m
	case List:
		l := []any{}
		for r.List(); r.More(); {
			l = append(l, tree(r, duplicates))
		}
		return l
	case String:
		return r.Text()
	case Bool:
		return r.Bool()
	case Number:
		return json.Number(r.Number())
	}
	if !r.Null() {
		r.Skip() // which is the message
	}
	return nil
}

// hasDuplicates reports whether any object of valid JSON has two members of one name, as encoding/json finds them.
func hasDuplicates(dec *json.Decoder) bool {
	token, err := dec.Token()
	if err != nil {
		return false
	}
	found, seen := false, map[string]bool{}
	switch token {
	case json.Delim('{'):
		for dec.More() {
			name, _ := dec.Token()
			key := name.(string)
			found, seen[key] = found || seen[key], true
			found = hasDuplicates(dec) || found
		}
	case json.Delim('['):
		for dec.More() {
			found = hasDuplicates(dec) || found
		}
	default:
		return false
	}
	_, _ = dec.Token()
	return found
}

// A Reader accepts no more than encoding/json, a lenient one exactly as much, and both read the same values.
func FuzzReader(f *testing.F) {
	for _, s := range corpus {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text := []byte(s)
		isJSON := json.Valid(text)
		if err := Check(text, Options{Lenient: true}); (err == nil) != isJSON {
			t.Fatalf("%q: %v; encoding/json: %v", s, err, isJSON)
		}
		var want any
		if isJSON {
			dec := json.NewDecoder(bytes.NewReader(text))
			dec.UseNumber()
			if err := dec.Decode(&want); err != nil {
				t.Skip(err)
			}
		}
		for _, lenient := range []bool{false, true} {
			r, duplicates := NewReader(text, Options{Lenient: lenient}), false
			got := tree(r, &duplicates)
			err := r.End()
			switch {
			case err == nil && !isJSON:
				t.Fatalf("%q is read as %v, and is not JSON", s, got)
			case err != nil && isJSON && (lenient || utf8.Valid(text) && !strings.Contains(strings.ToLower(s), `\ud`)):
				t.Fatalf("%q is not read: %v", s, err)
			case err != nil:
				checkError(t, s, err)
				continue
			}
			if utf8.Valid(text) && duplicates != hasDuplicates(json.NewDecoder(bytes.NewReader(text))) {
				t.Fatalf("%q: duplicates %v", s, duplicates)
			}
			if utf8.Valid(text) && !duplicates && !reflect.DeepEqual(got, want) {
				t.Fatalf("%q is read as %#v, and is %#v", s, got, want)
			}
			if raw := NewReader(text, Options{Lenient: true}).Raw(); string(raw) != strings.Trim(s, " \t\r\n") {
				t.Fatalf("%q: raw value %q", s, raw)
			}
		}
	})
}

func checkError(t *testing.T, s string, e *Error) {
	t.Helper()
	if e.Offset < 0 || e.Offset > len(s) || e.Message == "" || !utf8.ValidString(e.Message) || len(e.Message) > 200 {
		t.Fatalf("%q: error %#v", s, e)
	}
}

// Each message has what is wrong, its place, and how to mend it where that is not plain.
func TestErrorsHavePlaceAndRemedy(t *testing.T) {
	for _, test := range []struct {
		text    string
		offset  int
		message string
	}{
		{``, 0, "expected a value, found the end of the text"},
		{" \n", 2, "expected a value, found the end of the text"},
		{`{"a":1`, 6, "expected `,` or `}`, found the end of the text"},
		{`{"a":1,}`, 6, "a comma before `}`: remove it"},
		{`[1, ]`, 2, "a comma before `]`: remove it"},
		{`[1 2]`, 3, "expected `,` or `]`, found `2`"},
		{`{"a" 1}`, 5, "expected `:` after the field name, found `1`"},
		{`{"a":}`, 5, "expected a value, found `}`"},
		{`{a:1}`, 1, "expected a field name in double quotes, found `a`"},
		{`{'a':1}`, 1, "expected a field name in double quotes, found a single quote: strings are in double quotes"},
		{"\uFEFF{}", 0, "expected a value, found a byte order mark: leave it out"},
		{`[nil]`, 1, "expected null, found `nil`"},
		{`[True]`, 1, "expected a value, found `True`"},
		{`[01]`, 1, "`01` is not a number as JSON has it: digits on both sides of a point, no leading zero, no + before it"},
		{`{} {}`, 3, "unexpected `{` after the end of the JSON value"},
		{`["a`, 1, "this string is never closed"},
		{"[\"a\nb\"]", 3, "control character in a string: write it as an escape, such as \\n"},
		{`["\x41"]`, 2, "`\\x41` is no escape: after \\ comes one of \" \\ / b f n r t, or u and four hexadecimal digits"},
		{`["a\ud83d"]`, 3, "\\ud83d is half a character: a surrogate needs its other half"},
		{"[\"a\xff\"]", 3, "not UTF-8"},
		{strings.Repeat("[", 10001), 10000, "nested deeper than 10000"},
	} {
		for name, read := range map[string]func(*Reader){
			"tree": func(r *Reader) { tree(r, new(bool)) },
			"skip": (*Reader).Skip,
		} {
			if name == "skip" && strings.Contains(test.message, "half a character") {
				continue // it checks the grammar alone
			}
			r := NewReader([]byte(test.text), Options{})
			read(r)
			e := r.End()
			if e == nil {
				t.Errorf("%s: %q was read", name, test.text)
			} else if e.Offset != test.offset || e.Message != test.message || e.TooDeep != strings.Contains(e.Message, "deeper") {
				t.Errorf("%s: %q: %+v, want %q at %d", name, test.text, *e, test.message, test.offset)
			}
		}
	}
}

// A value of another kind than the caller expects is an error at its place.
func TestUnexpectedKindsAreErrors(t *testing.T) {
	for text, test := range map[string]struct {
		read    func(*Reader)
		message string
	}{
		` 7`:                   {func(r *Reader) { r.Text() }, "expected a string, found `7`"},
		` "7"`:                 {func(r *Reader) { r.Int() }, "expected a number, found `\"`"},
		` 7.5`:                 {func(r *Reader) { r.Int() }, "expected an integer of 64 bits, found `7.5`"},
		` 9223372036854775808`: {func(r *Reader) { r.Int() }, "expected an integer of 64 bits, found `9223372036854775808`"},
		` null`:                {func(r *Reader) { r.Bool() }, "expected true or false, found `null`"},
		` []`:                  {(*Reader).Object, "expected an object, found `[`"},
		` {}`:                  {(*Reader).List, "expected a list, found `{`"},
		` [[[]]]`:              {(*Reader).Skip, "nested deeper than 2"},
	} {
		r := NewReader([]byte(text), Options{MaxDepth: 2})
		test.read(r)
		e := r.End()
		if e == nil || e.Message != test.message || e.Offset != 1 && !e.TooDeep {
			t.Errorf("%q: %+v, want %q", text, e, test.message)
		}
	}
}

// After an error nothing is read, whatever is called.
func TestFirstErrorIsKept(t *testing.T) {
	r := NewReader([]byte(`{"a":x,"b":[1],"c":"text"}`), Options{})
	r.Object()
	if !r.More() {
		t.Fatal("no member")
	}
	r.Name()
	r.Skip()
	at := r.Offset()
	r.Object()
	r.List()
	name, again := r.Name()
	if r.More() || r.Peek() != None || r.Null() || r.Bool() || r.Int() != 0 || r.Text() != "" || r.Raw() != nil || r.Number() != nil || name != nil || again || r.Offset() != at {
		t.Error("something was read")
	}
	if err := r.End(); err == nil || err.Error() != "expected a value, found `x`" {
		t.Error(err)
	}
}

func TestLineColumnCountsCharacters(t *testing.T) {
	text := []byte("{\n \"é\": x")
	for offset, want := range map[int][2]int{0: {1, 1}, 2: {2, 1}, 8: {2, 6}, 99: {2, 8}} {
		if line, column := LineColumn(text, offset); line != want[0] || column != want[1] {
			t.Errorf("%d: %d:%d, want %v", offset, line, column, want)
		}
	}
}

func BenchmarkSkip(b *testing.B) {
	text := []byte("[" + strings.Repeat(`{"key":"order-1042","input":{"amount":4200.50,"sku":["tea-12",null,true]}},`, 1000) + "{}]")
	for name, valid := range map[string]func() bool{
		"jsontext":      func() bool { return Check(text, Options{}) == nil },
		"encoding/json": func() bool { return json.Valid(text) },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if !valid() {
					b.Fatal("not valid")
				}
			}
		})
	}
}
