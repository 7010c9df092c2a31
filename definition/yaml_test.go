package definition

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
)

// yamlCases are texts and the JSON of their documents, one a line.
var yamlCases = []struct{ name, text, want string }{
	{"scalars", "a: 1\nb: -2.50\nc: true\nd: null\ne: ~\nf:\ng: text\nh: 1e3\ni: +7\nj: .5\nk: 5.\nl: -0\nm: 0x1F\nn: 0o17\n",
		`{"a":1,"b":-2.50,"c":true,"d":null,"e":null,"f":null,"g":"text","h":1e3,"i":7,"j":0.5,"k":5.0,"l":-0,"m":31,"n":15}`},
	{"yaml 1.1 words are text", "on: yes\nno: off\ny: n\nt: 12:30:45\nd: 2001-01-01\nip: 127.0.0.1\nv: 1.2.3\n",
		`{"d":"2001-01-01","ip":"127.0.0.1","no":"off","on":"yes","t":"12:30:45","v":"1.2.3","y":"n"}`},
	{"big numbers keep their digits", "a: 123456789012345678901234567890\nb: 1.10\nc: 1e400\nd: 0xFFFFFFFFFFFFFFFFFF\n",
		`{"a":123456789012345678901234567890,"b":1.10,"c":1e400,"d":4722366482869645213695}`},
	{"quotes", `a: 'it''s'` + "\n" + `b: "x\ty\u00e9\U0001F600\x41\ud83d\ude00"` + "\n" + `"c d": 'no \n escape'` + "\n",
		`{"a":"it's","b":"x\tyé😀A😀","c d":"no \\n escape"}`},
	{"folded quotes", "a: \"one\n  two\n\n  three\\\n   four\"\nb: 'one\n  two\n\n\n  three'\n", `{"a":"one two\nthreefour","b":"one two\n\nthree"}`},
	{"plain over lines", "a: one\n  two\n\n  three # no\nb: x\n", `{"a":"one two\nthree","b":"x"}`},
	{"hash and colon in text", "a: b#c\nb: http://x:80/y?z#w\nc: a:b\ne: x # comment\n", `{"a":"b#c","b":"http://x:80/y?z#w","c":"a:b","e":"x"}`},
	{"literal", "a: |\n  one\n   two\n\n  three\nb: |-\n  x\n\nc: |+\n  y\n\nd: |2\n    z\ne: |\nf: 1\n", `{"a":"one\n two\n\nthree\n","b":"x","c":"y\n\n","d":"  z\n","e":"","f":1}`},
	{"folded", "a: >\n  one\n  two\n\n  three\n    four\n  five\nb: >-\n  x\n  y\n", `{"a":"one two\nthree\n  four\nfive\n","b":"x y"}`},
	{"lists", "a:\n- 1\n- 2\nb:\n  - x: 1\n    y: 2\n  -\n    z: 3\n  - - p\n    - q\n  -\nc: []\n", `{"a":[1,2],"b":[{"x":1,"y":2},{"z":3},["p","q"],null],"c":[]}`},
	{"flow", "a: [1, 'x', \"y\", {b: c, \"d\":1, e}, [], {}, ]\nb: {c: [1,\n  2], # comment\n  d: many words\n   here}\n",
		`{"a":[1,"x","y",{"b":"c","d":1,"e":null},[],{}],"b":{"c":[1,2],"d":"many words here"}}`},
	{"flow is JSON", `{"a":[1,2.50,"x\"y",null,true],"b":{}}`, `{"a":[1,2.50,"x\"y",null,true],"b":{}}`},
	{"urls in flow", "a: {u: http://x/y, v: [http://z:1/w]}\n", `{"a":{"u":"http://x/y","v":["http://z:1/w"]}}`},
	{"anchors", "a: &x {p: 1}\nb: *x\nc: &y\n  q: [*x, &z 5]\nd: *y\ne: *z\n", `{"a":{"p":1},"b":{"p":1},"c":{"q":[{"p":1},5]},"d":{"q":[{"p":1},5]},"e":5}`},
	{"merge", "a: &x {p: 1, q: 2}\nb: &y {q: 3, r: 4}\nc:\n  <<: *x\n  p: 9\nd:\n  <<: [*x, *y]\n\"<<\": 1\n", `{"\u003c\u003c":1,"a":{"p":1,"q":2},"b":{"q":3,"r":4},"c":{"p":9,"q":2},"d":{"p":1,"q":2,"r":4}}`},
	{"tags", "a: !!str 5\nb: !!int \"5\"\nc: !!map {}\nd: !!float 1.5\ne: !!str\n", `{"a":"5","b":5,"c":{},"d":1.5,"e":""}`},
	{"documents", "%YAML 1.2\n---\na: 1\n...\n---\n# nothing\n---\nb: 2\n--- \nc: |\n  x\n---\n", "{\"a\":1}\n{\"b\":2}\n{\"c\":\"x\\n\"}"},
	{"crlf", "a: 1\r\nb:\r\n  - x\r\n  - |\r\n    y\r\n    z\r\n", `{"a":1,"b":["x","y\nz\n"]}`},
	{"comments", "# a\na: 1 # b\n  # c\nb: # d\n  # e\n  c: 2\n# f\n", `{"a":1,"b":{"c":2}}`},
	{"expressions", "a: ${input.a}\nb: x ${input.b} y\nc: \"${a ? 1 : 2}\"\nd: ['${x}']\n", `{"a":"${input.a}","b":"x ${input.b} y","c":"${a ? 1 : 2}","d":["${x}"]}`},
	{"bare", "just text\n", `"just text"`},
	{"quoted key with colon", "\"a: b\": 1\n'c': 2\n", `{"a: b":1,"c":2}`},
	{"space before colon", "a : 1\n", `{"a":1}`},
	{"dash text", "a: -x\nb: --flag\nc: [-]\n", `{"a":"-x","b":"--flag","c":["-"]}`},
	{"indented list of maps", "steps:\n    - name: a\n      run: |\n        x\n    - name: b\n", `{"steps":[{"name":"a","run":"x\n"},{"name":"b"}]}`},
	{"no final newline", "a: |\n  x", `{"a":"x\n"}`},
}

func TestYAML(t *testing.T) {
	for _, c := range yamlCases {
		t.Run(c.name, func(t *testing.T) {
			docs, f := readYAML([]byte(c.text))
			if f != nil {
				line, column := text{[]byte(c.text)}.locate(f.at)
				t.Fatalf("%d:%d: %s", line, column, f.message)
			}
			got := make([]string, len(docs))
			for i := range docs {
				got[i] = string(appendNode(nil, &docs[i]))
			}
			if s := strings.Join(got, "\n"); s != c.want {
				t.Errorf("got  %s\nwant %s", s, c.want)
			}
		})
	}
}

// TestYAMLAsGoccy writes random values with goccy/go-yaml and reads them back.
func TestYAMLAsGoccy(t *testing.T) {
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
		docs, f := readYAML(src)
		if f != nil {
			t.Fatalf("%s at %d in:\n%s", f.message, f.at, src)
		}
		if got := string(appendNode(nil, &docs[0])); !sameJSON(got, string(want)) {
			t.Fatalf("got %s\nwant %s\n%s", got, want, src)
		}
	})
}

func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}

var unquoted = regexp.MustCompile(`^[-+0-9_.eE]+$|^\?( |$)`)

// anyValue is a JSON value.
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

// bombs are small texts that are large, or slow, once somebody walks what they say.
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

func TestBombs(t *testing.T) {
	heavy(t)
	for name, src := range bombs() {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			_, err := Parse([]byte(src), YAML, Options{})
			quick(t, began, 10*time.Second)
			if perdure.CodeOf(err) != perdure.CodeTooLarge && name != "anchors" {
				t.Errorf("not refused as too large: %v", err)
			}
		})
	}
}

// TestLinear reads texts that were slow in other readers, at two sizes: four times the text is to
// take about four times as long.
func TestLinear(t *testing.T) {
	heavy(t)
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
				_, f := readYAML(src)
				if f != nil {
					t.Fatalf("%s: %s at %d", name, f.message, f.at)
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
