package kernel

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/perdure/perdure"
)

// What a step's row keeps of its limits is what was rendered: sorted, with texts for keys, and each limit and key once.
func TestNeeds(t *testing.T) {
	for rendered, want := range map[string]string{
		`[]`:                          ``,
		`[{"name":"ads"}]`:            `[{"name":"ads"}]`,
		`[{"name":"ads","amount":1}]`: `[{"name":"ads"}]`,
		`[{"name":"ads","key":7},{"name":"a","key":true},{"name":"ads","key":"x"}]`: `[{"name":"a","key":"true"},{"name":"ads","key":"7"},{"name":"ads","key":"x"}]`,
		`[{"name":"ads","key":"7","amount":2},{"name":"ads","key":7}]`:              `[{"name":"ads","key":"7","amount":3}]`,
		`[{"name":"ads","key":"a\"b\\c"}]`:                                          `[{"name":"ads","key":"a\"b\\c"}]`,
		`[{"name":"ads","key":12345678901234567890}]`:                               `[{"name":"ads","key":"12345678901234567890"}]`,
	} {
		got, err := NeedsFrom(json.RawMessage(rendered))
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v; want %s", rendered, got, err, want)
		}
		slow, err := parseNeeds([]byte(max(string(got), "[]")))
		if err != nil || !reflect.DeepEqual(append([]Need{}, got.List()...), append([]Need{}, slow...)) {
			t.Errorf("%s: read as %v, and is %v (%v)", got, got.List(), slow, err)
		}
	}
	for rendered, want := range map[string]string{
		`[{"name":"ads","key":""}]`: "is empty", `[{"name":"ads","key":{}}]`: "object or a list", `[{"name":"ads","key":["a"]}]`: "object or a list",
		`[{"name":"ads","key":"a\u0000b"}]`: "control characters", `[{"name":"ads","key":"` + strings.Repeat("a", perdure.MaxLimitKeyBytes+1) + `"}]`: "257 bytes; at most 256",
	} {
		if needs, err := NeedsFrom(json.RawMessage(rendered)); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "limit ads") {
			t.Errorf("%s: %q, %v", rendered, needs, err)
		}
	}
}

// What is not as NeedsFrom writes it is read all the same, or is damaged.
func FuzzNeeds(f *testing.F) {
	for _, seed := range []string{`[{"name":"ads","key":"a","amount":3}]`, `[ {"name":"ads"}]`, `[{"key":"a","name":"ads"}]`, `[{"name":"ads"},]`, `[{"name":"ads"`, `[`, `[{"name":"ads","amount":}]`, `[{"name":"ads"}]x`, `{}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		quick, ok := Needs(text).plainList()
		if !ok || !utf8.ValidString(text) { // which no row has
			return
		}
		if slow, err := parseNeeds([]byte(text)); err == nil && len(quick)+len(slow) > 0 && !reflect.DeepEqual(quick, slow) {
			t.Errorf("%q: read as %v, and is %v", text, quick, slow)
		}
	})
}
