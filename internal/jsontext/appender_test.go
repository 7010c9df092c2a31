package jsontext

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"
)

// A string is written byte for byte as encoding/json writes it.
func FuzzAppendString(f *testing.F) {
	for _, s := range []string{"", "plain", "Größe \"x\"\\\n\r\t\b\f\x00\x1f\x7f", "<&>", "\u2028\u2029\u2027", "\xff\xe2\x80", "\U0001F600"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, escapeHTML := range []bool{false, true} {
			var want bytes.Buffer
			enc := json.NewEncoder(&want)
			enc.SetEscapeHTML(escapeHTML)
			if err := enc.Encode(s); err != nil {
				t.Fatal(err)
			}
			if got := string(AppendString(nil, s, escapeHTML)) + "\n"; got != want.String() {
				t.Errorf("%q: %s, want %s", s, got, &want)
			}
		}
	})
}

// An Appender writes what a Reader reads, with the commas in place.
func FuzzAppender(f *testing.F) {
	for _, s := range corpus {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r := NewReader([]byte(s), Options{})
		a := NewAppender([]byte(`{"before":`))
		copyValue(r, &a)
		if r.End() != nil {
			return
		}
		var want bytes.Buffer
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		got := bytes.TrimPrefix(a.Bytes(), []byte(`{"before":`))
		var before, is any
		if json.Unmarshal([]byte(s), &before) != nil || json.Unmarshal(got, &is) != nil {
			t.Fatalf("%q is written as %s", s, got)
		}
		_ = enc.Encode(before)
		var again bytes.Buffer
		enc = json.NewEncoder(&again)
		enc.SetEscapeHTML(false)
		_ = enc.Encode(is)
		if want.String() != again.String() {
			t.Errorf("%q is written as %s", s, got)
		}
	})
}

func copyValue(r *Reader, a *Appender) {
	switch r.Peek() {
	case Object:
		a.BeginObject()
		for r.Object(); r.More(); {
			name, _ := r.Name()
			a.TextName(string(name))
			copyValue(r, a)
		}
		a.EndObject()
	case List:
		a.BeginList()
		for r.List(); r.More(); {
			copyValue(r, a)
		}
		a.EndList()
	case String:
		a.Text(r.Text())
	case Bool:
		a.Bool(r.Bool())
	default:
		a.Raw(r.Raw())
	}
}

func TestAppenderWritesAnObject(t *testing.T) {
	a := NewAppender([]byte("data: "))
	a.BeginObject()
	a.IntField("n", -7)
	a.OptionalText("empty", "")
	a.OptionalText("text", "a<b")
	a.Name("list")
	a.BeginList()
	a.Bool(true)
	a.Raw(nil)
	a.Raw([]byte(`{"raw": 1}`))
	a.BeginList()
	a.EndList()
	a.BeginObject()
	a.EndObject()
	a.EndList()
	n := len(a.Bytes())
	a.IntField("gone", 1)
	a.Truncate(n)
	a.TimeField("at", time.Unix(1e9, 5000).UTC())
	a.EscapeHTML()
	a.TextName("<")
	a.Text(">")
	a.EndObject()
	const want = `data: {"n":-7,"text":"a<b","list":[true,null,{"raw": 1},[],{}],"at":"2001-09-09T01:46:40.000005Z","\u003c":"\u003e"}`
	if got := string(a.Bytes()); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
