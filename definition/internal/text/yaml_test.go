package text

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"pgregory.net/rapid"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition/internal/cases"
)

func TestYAML(t *testing.T) {
	for _, c := range cases.YAML {
		t.Run(c.Name, func(t *testing.T) {
			docs, f := ReadYAML([]byte(c.Text))
			if f != nil {
				line, column := Source{[]byte(c.Text)}.Locate(f.at)
				t.Fatalf("%d:%d: %s", line, column, f.Message)
			}
			got := make([]string, len(docs))
			for i := range docs {
				got[i] = string(AppendNode(nil, &docs[i]))
			}
			if s := strings.Join(got, "\n"); s != c.Want {
				t.Errorf("got  %s\nwant %s", s, c.Want)
			}
		})
	}
}

// TestYAMLAgreesWithGoccy writes random values with goccy/go-yaml and reads them back.
func TestYAMLAgreesWithGoccy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := anyValue(3).Draw(t, "value")
		src, err := yaml.Marshal(v)
		if err != nil {
			t.Skip(err)
		}
		var theirs any
		if yaml.Unmarshal(src, &theirs) != nil {
			t.Skip("goccy cannot read what it wrote")
		}
		want, _ := json.Marshal(v)
		if again, _ := json.Marshal(theirs); string(again) != string(want) {
			t.Skip("goccy reads something else than it wrote")
		}
		docs, f := ReadYAML(src)
		if f != nil {
			t.Fatalf("%s at %d in:\n%s", f.Message, f.at, src)
		}
		if got := string(AppendNode(nil, &docs[0])); !sameJSON(got, string(want)) {
			t.Fatalf("got %s\nwant %s\n%s", got, want, src)
		}
	})
}

func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}

var unquoted = regexp.MustCompile(`^[-+0-9_.eE]+$|^\?( |$)`)

// anyValue generates a JSON value.
func anyValue(depth int) *rapid.Generator[any] {
	word := rapid.StringMatching(`[a-z :#'"{}\[\],&*!|>%@-]{0,6}|[ -~é\n]{0,12}|true|null|~|yes`)
	// goccy does not quote some words that YAML 1.2 reads as numbers (0E0), or that we refuse because 1.1 and
	// 1.2 differ (--0), or that begin a key (?).
	word = word.Filter(func(s string) bool { return !unquoted.MatchString(s) })
	leaf := rapid.OneOf(rapid.Map(word, func(s string) any { return s }),
		rapid.Map(rapid.IntRange(-1000, 1000), func(i int) any { return i }),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }), rapid.Just[any](nil))
	if depth == 0 {
		return leaf
	}
	deeper := rapid.Deferred(func() *rapid.Generator[any] { return anyValue(depth - 1) })
	return rapid.OneOf(leaf,
		rapid.Map(rapid.SliceOfN(deeper, 0, 3), func(l []any) any { return l }),
		rapid.Map(rapid.MapOfN(rapid.StringMatching(`[a-z][a-z0-9]{0,4}`), deeper, 0, 3), func(m map[string]any) any { return m }))
}

// bombs are small texts that become large, or slow, when their values are expanded.
func bombs() map[string]string {
	laughs := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := 1; i < 12; i++ {
		laughs += fmt.Sprintf("a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
	}
	merges := "m0: &m0 {a: 1}\n"
	for i := 1; i < 40; i++ {
		merges += fmt.Sprintf("m%d: &m%d {x: *m%d, y: *m%d}\n", i, i, i-1, i-1)
	}
	return map[string]string{
		"billion laughs":  laughs,
		"doubling":        merges,
		"quadratic":       "a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a, ", 1<<10) + "]\n",
		"merge quadratic": "a: &a {" + strings.Repeat("", 0) + wide(2000) + "}\nb:\n" + strings.Repeat("  - {<<: *a}\n", 3000),
		"deep flow":       "a: " + strings.Repeat("[", 1<<20),
		"deep map":        "a: " + strings.Repeat("{a: ", 1<<18),
		"deep dashes":     "a:\n  " + strings.Repeat("- ", 1<<20),
		"deep block":      deepBlock(3000),
		"anchors":         "a: " + strings.Repeat("&a ", 1<<18),
		"deep alias":      deepAlias(),
		"many values":     "a: [" + strings.Repeat("0,", 3<<20) + "]",
		"documents":       strings.Repeat("--- {}\n", 1001),
	}
}

func wide(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "k%d: 1, ", i)
	}
	return b.String()
}

func deepBlock(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

func deepAlias() string {
	s := "a0: &a0 [x]\n"
	for i := 1; i < 100; i++ {
		s += fmt.Sprintf("a%d: &a%d [*a%d]\n", i, i, i-1)
	}
	return s
}

func TestYAMLBombsAreRefused(t *testing.T) {
	for name, src := range bombs() {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			_, f := ReadYAML([]byte(src))
			cases.Quick(t, began, 30*time.Second)
			if f == nil || f.Code != perdure.CodeTooLarge && name != "anchors" {
				t.Errorf("not refused as too large: %+v", f)
			}
		})
	}
}

// Texts that were slow in other readers are read at two sizes: four times the text must take about four times as long.
func TestReadingTakesLinearTime(t *testing.T) {
	for name, text := range map[string]func(n int) string{
		"keys":         func(n int) string { return "type: t\ninput:\n" + blockKeys(n/12) },
		"flow keys":    func(n int) string { return "input: {" + wide(n/10) + "}" },
		"quoted tabs":  func(n int) string { return "input: \"" + strings.Repeat("\t", n) + "\"" },
		"quoted lines": func(n int) string { return "input: \"" + strings.Repeat("x\n", n/2) + "\"" },
		"plain lines":  func(n int) string { return "input:\n" + strings.Repeat("  x\n", n/4) },
		"literal":      func(n int) string { return "input: |\n" + strings.Repeat("  x\n", n/4) },
		"empty lines":  func(n int) string { return "input: |\n  x\n" + strings.Repeat("\n", n) },
		"folded empty": func(n int) string { return "input: >\n  x\n" + strings.Repeat("\n", n) + "  y\n" },
		"plain empty":  func(n int) string { return "input: x\n" + strings.Repeat("\n", n) + "b: 1\n" },
		"many plain":   func(n int) string { return "input:\n" + strings.Repeat("- x\n\n\n\n", n/7) },
		"escapes":      func(n int) string { return "input: \"" + strings.Repeat("\\n", n/2) + "\"" },
		"quotes":       func(n int) string { return "input: '" + strings.Repeat("''", n/2) + "'" },
		"comments":     func(n int) string { return strings.Repeat("# x\n", n/4) + "input: 1\n" },
		"list":         func(n int) string { return "input:\n" + strings.Repeat("- 1\n", n/8) },
		"blanks":       func(n int) string { return "input:" + strings.Repeat(" ", n) + "1\n" },
		"dollars":      func(n int) string { return "with: \"" + strings.Repeat("${", n/2) + "\"" },
	} {
		measure := func(n int) time.Duration {
			src := []byte(text(n))
			best := time.Hour
			for range 3 {
				began := time.Now()
				_, f := ReadYAML(src)
				if f != nil {
					t.Fatalf("%s: %s at %d", name, f.Message, f.at)
				}
				best = min(best, time.Since(began))
			}
			return best
		}
		small, large := measure(1<<18), measure(1<<20)
		if large > 12*small+300*time.Millisecond {
			t.Errorf("%s: 256 KiB take %s, 1 MiB %s", name, small, large)
		}
	}
}

func blockKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "  k%d: 1\n", i)
	}
	return b.String()
}
