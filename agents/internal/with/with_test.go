package with

import (
	"encoding/json"
	"testing"
)

func TestExpressionRecognizesExpressions(t *testing.T) {
	for s, want := range map[string]bool{
		"": false, "plain": false, "${x}": true, "a ${x} b": true, "$${x}": false, "$${x} ${y}": true,
		"$$${x}": false, "$": false, "{x}": false, "$${x}$${y}": false,
	} {
		if got := Expression(s); got != want {
			t.Errorf("%q: %v", s, got)
		}
	}
}

func TestDecodeIsStrict(t *testing.T) {
	for in, want := range map[string]string{
		`{"dir": "/srv", "codes": [1]}`: "",
		`{}`:                            "",
		`{"Dir": "/srv"}`:               `unknown field "Dir" (there are dir, codes)`,
		`{"dir": 1}`:                    "dir: a number does not fit here",
		`{"codes": {}}`:                 "codes: an object does not fit here",
		`[1]`:                           "an object is needed, not [1]",
		``:                              "an object is needed, not nothing",
		`{} {}`:                         "more than one JSON value",
		`{"dir": `:                      "not JSON: unexpected EOF",
	} {
		var to struct {
			Dir   string `json:"dir"`
			Codes []int  `json:"codes"`
			cache int
		}
		got := ""
		if err := Decode(json.RawMessage(in), &to); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
		_ = to.cache
	}
}

func TestPlainReplacesInvalidCharacters(t *testing.T) {
	if got := Plain("a\x00b\xff\xfec"); got != "a\uFFFDb\uFFFDc" {
		t.Errorf("%q", got)
	}
}
