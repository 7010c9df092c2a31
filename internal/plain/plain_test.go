package plain

import (
	"strings"
	"testing"
)

func TestCheckJSONRefusesInvalidText(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for text, want := range map[string]string{
		"":                             "",
		` {"a": [1, "é\ud800", null]}`: "", // the escape is stored as it is
		nested(MaxDepth):               "",
		nested(MaxDepth + 1):           "nested deeper than 64",
		"\"\xff\"":                     "not UTF-8",
		"[\xff" + nested(99):           "not UTF-8",
		"\"\x00\"":                     "holds a NUL",
		`{"a":1,}`:                     "not JSON: byte 6: a comma before `}`: remove it",
		`{} x`:                         "not JSON: byte 3: unexpected `x` after the end of the JSON value",
	} {
		got := ""
		if err := CheckJSON([]byte(text)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%.40q: %q, want %q", text, got, want)
		}
	}
}

func TestObjectWritesFieldsInOrder(t *testing.T) {
	names := []string{"a", "b\"<"}
	b, err := Object(2, func(i int) (string, any) { return names[i], map[string]string{"v": "<&>"} })
	const want = "{\"a\":{\"v\":\"<&>\"}\n,\"b\\\"<\":{\"v\":\"<&>\"}\n}"
	if err != nil || string(b) != want {
		t.Errorf("%s, %v", b, err)
	}
	if _, err := Object(1, func(int) (string, any) { return "a", func() {} }); err == nil || !strings.HasPrefix(err.Error(), "a: ") {
		t.Errorf("a function was written: %v", err)
	}
}
