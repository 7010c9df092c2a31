package definition

import (
	"errors"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition/internal/cases"
)

// FuzzParse: each text gives a plan that reads its own canonical text, or a refusal with places inside the text, and
// never a panic.
func FuzzParse(f *testing.F) {
	for _, c := range badYAML {
		f.Add([]byte(strings.Replace(c.text, "§", "", 1)))
	}
	for _, c := range badJSON {
		f.Add([]byte(strings.Replace(c.text, "§", "", 1)))
	}
	for _, c := range cases.YAML {
		f.Add([]byte(c.Text))
	}
	for _, src := range good() {
		f.Add([]byte(src))
	}
	f.Add([]byte(order))
	f.Add([]byte(small))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<14 {
			return
		}
		for _, format := range []Format{YAML, JSON} {
			plans, err := Parse(data, format, Options{})
			if err == nil {
				for _, p := range plans {
					check(t, p)
				}
				continue
			}
			var e *perdure.Error
			if !errors.As(err, &e) {
				t.Fatalf("no refusal: %v", err)
			}
			lines := strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(data)), "\n")
			for _, fe := range e.Fields {
				if fe.Line < 1 || fe.Line > len(lines) || fe.Column < 1 || fe.Column > len(lines[fe.Line-1])+1 || fe.Message == "" {
					t.Fatalf("no such place: %+v in %q", fe, data)
				}
			}
			FormatError("f", data, err)
		}
	})
}
