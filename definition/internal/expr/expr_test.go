package expr

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/definition/internal/cases"
	"github.com/perdure/perdure/definition/internal/text"
	"github.com/perdure/perdure/internal/kernel"
)

func BenchmarkExpr(b *testing.B) {
	for b.Loop() {
		if _, m := compileExpression("input.amount > 0 && input.b.c != 'x'", true, ""); m != nil {
			b.Fatal(m)
		}
	}
}

// sample is the scope of the expressions in these tests.
var sample = &kernel.Scope{
	Job: &kernel.Job{Key: "k-1", Type: "trip", Labels: map[string]string{"team": "travel", "a b": "x"}},
	Input: json.RawMessage(`{"a":1,"b":2.5,"big":12345678901234567890,"price":1.10,"huge":1e400,"s":"x\"y<é>","t":true,"n":null,
		"l":[1,2,{"c":"d"}],"o":{"p":{"q":1},"r s":2},"esc\u0061pe":7,"items":[{"id":1,"p":3},{"id":2,"p":5}],"date":"2031-01-01"}`),
	Outputs: map[string]json.RawMessage{"one": json.RawMessage(`{"id": "r-1", "ns": [1, 2 ], "z":{"y": 1.50 } }`), "skipped": json.RawMessage("null")},
	Output:  json.RawMessage(`{"id":"c-9"}`), Key: "undo-key", DoKey: "do-key",
}

func TestTemplatesAreRendered(t *testing.T) {
	for src, want := range map[string]string{
		// A string that is one ${…} keeps type and digits.
		`${input.a}`:                        `1`,
		`${input.big}`:                      `12345678901234567890`,
		`${input.price}`:                    `1.10`,
		`${input.huge}`:                     `1e400`,
		`${input["big"]}`:                   `12345678901234567890`,
		`${ input.l[2].c }`:                 `"d"`,
		`${input.l[-1]}`:                    `{"c":"d"}`,
		`${input.o["r s"]}`:                 `2`,
		`${input.escape}`:                   `7`,
		`${input.n}`:                        `null`,
		`${input.n?.x}`:                     `null`,
		`${input?.nope?.x}`:                 `null`,
		`${input?.big}`:                     `12345678901234567890`,
		`${steps.one.output.z}`:             `{"y":1.50}`,
		`${steps["one"].output.ns[1]}`:      `2`,
		`${steps.skipped.output}`:           `null`,
		`${steps.skipped.output?.id}`:       `null`,
		`${output.id}`:                      `"c-9"`,
		`${doKey}`:                          `"do-key"`,
		`${key}`:                            `"undo-key"`,
		`${job.key}`:                        `"k-1"`,
		`${job.labels.team}`:                `"travel"`,
		`${job.labels["a b"]}`:              `"x"`,
		`${job}`:                            `{"id":"job_00000000000000000000000000000000","key":"k-1","labels":{"a b":"x","team":"travel"},"type":"trip"}`,
		`${[input.big, input.huge]}`:        `[12345678901234567890,1e400]`,
		`${input.t ? input.big : 0}`:        `12345678901234567890`,
		`${{"v": input.a, "w": [input.s]}}`: `{"v":1,"w":["x\"y\u003cé\u003e"]}`,
		// In a longer string, a text is inserted as it is, and other values as compact JSON.
		`x-${input.a}-y`:             `"x-1-y"`,
		`<${input.s}>`:               `"\u003cx\"y<é>\u003e"`,
		`${input.big}${input.price}`: `"123456789012345678901.10"`,
		`o=${steps.one.output.ns}`:   `"o=[1,2]"`,
		`o=${input.o}`:               `"o={\"p\":{\"q\":1},\"r s\":2}"`,
		`n=${input.n}`:               `"n=null"`,
		`$${input.a}`:                `"${input.a}"`,
		`$$${input.a}`:               `"$${input.a}"`,
		`a$b ${"}"} ${'${'}`:         `"a$b } ${"`,
		`$${x} ${input.a}`:           `"${x} 1"`,
		`cost $5 {x}`:                `"cost $5 {x}"`,
		// Expressions.
		`${input.a + 1}`:                       `2`,
		`${input.a + input.b}`:                 `3.5`,
		`${input.a / 2}`:                       `0.5`,
		`${4 / 2}`:                             `2`,
		`${2 ** 10}`:                           `1024`,
		`${-7 % 3}`:                            `-1`,
		`${input.s + "!"}`:                     `"x\"y\u003cé\u003e!"`,
		`${len(input.l)}`:                      `3`,
		`${map(input.items, .p * 2)}`:          `[6,10]`,
		`${filter(input.items, .p > 3)[0].id}`: `2`,
		`${input.items | filter(.p > 3) | map(.id)}`:      `[2]`,
		`${sum(input.items, .p)}`:                         `8`,
		`${any(input.items, .id == 2)}`:                   `true`,
		`${sortBy(input.items, .p, "desc")[0].p}`:         `5`,
		`${groupBy(input.items, .id)}`:                    `{"1":[{"id":1,"p":3}],"2":[{"id":2,"p":5}]}`,
		`${reduce(input.l[:2], #acc + #, 10)}`:            `13`,
		`${upper("a") + lower("B")}`:                      `"Ab"`,
		`${join(["a", "b"], "-")}`:                        `"a-b"`,
		`${join(map(input.items, .id), ",")}`:             `"1,2"`,
		`${split("a,b", ",")}`:                            `["a","b"]`,
		`${replace("aXbX", "X", "--")}`:                   `"a--b--"`,
		`${string(input.o)}`:                              `"{\"p\":{\"q\":1},\"r s\":2}"`,
		`${string(5) + "x"}`:                              `"5x"`,
		`${int("42") + 1}`:                                `43`,
		`${keys(input.o)}`:                                `["p","r s"]`,
		`${values({"b": 1, "a": 2})}`:                     `[2,1]`,
		`${fromJSON("{\"a\": 1.50}").a}`:                  `1.5`,
		`${toJSON({"b": 1, "a": [input.big]})}`:           `"{\"a\":[12345678901234567890],\"b\":1}"`,
		`${fromBase64(toBase64("hé"))}`:                   `"hé"`,
		`${input.s matches "^x"}`:                         `true`,
		`${input.date startsWith "2031"}`:                 `true`,
		`${"a" in input}`:                                 `true`,
		`${1 in input.l and not (9 in input.l)}`:          `true`,
		`${"zz" in input}`:                                `false`,
		`${input.nope ?? 5}`:                              `5`,
		`${input.nope.deep ?? 5}`:                         `5`,
		`${input.n ?? "none"}`:                            `"none"`,
		`${input.a ?? 5}`:                                 `1`,
		`${input.items[0].nope ?? 5}`:                     `5`,
		`${input.items[input.a].id}`:                      `2`,
		`${input.items?.[7]?.id}`:                         `null`,
		`${filter(input.items, .id == 9)[0]?.id ?? "no"}`: `"no"`,
		`${input.t && input.a == 1 ? "y" : "n"}`:          `"y"`,
		`${if input.t { 1 } else { 2 }}`:                  `1`,
		`${1..3}`:                                         `[1,2,3]`,
		`${max(1, 5, 3)}`:                                 `5`,
		`${first(input.l)}`:                               `1`,
		`${round(2.6)}`:                                   `3`,
		`${type(input.big)}`:                              `"int"`,
		`${nil}`:                                          `null`,
		`${get(input, "nope")}`:                           `null`,
		`${input.l == [1, 2, {"c": "d"}]}`:                `true`,
		`${input.a == 1.0}`:                               `true`,
		`${find(input.items, .id == 2)}`:                  `{"id":2,"p":5}`,
		`${concat([1], ["a"])}`:                           `[1,"a"]`,
		`${map([1, 2], {{"i": #, "x": #index}})}`:         `[{"i":1,"x":0},{"i":2,"x":1}]`,
	} {
		got, err := render(src)
		if err != nil || got != want {
			t.Errorf("%s\n got %s %v\nwant %s", src, got, err, want)
		}
	}
}

// render compiles src as a `with`, and fills it in.
func render(src string) (string, error) { return renderIn(sample, src) }

func renderIn(scope *kernel.Scope, src string) (string, error) {
	fs := &text.Faults{}
	n := text.Scalar(text.String, 0, src)
	t, _, _ := CompileTemplate(&n, nil, fs, &unchecked{faults: fs})
	if err := fs.Err(); err != nil {
		return "", err
	}
	raw, err := t.Render(scope)
	if err == nil && !json.Valid(raw) {
		err = fmt.Errorf("not JSON")
	}
	return string(raw), err
}

// unchecked is an environment whose expressions may refer to everything.
type unchecked struct {
	faults   *text.Faults
	programs Programs
}

func (u *unchecked) Compile(n *text.Node, p *text.Pointer, s Span) (*Compiled, json.RawMessage) {
	c, bad, _ := u.programs.Compile(s.Expr, false, "", nil)
	if bad != nil {
		bad.Record(u.faults, n, p, s.At)
	}
	return c, nil
}

func (u *unchecked) Secret(string, int) *Fault { return nil }

func (u *unchecked) Steps(refs []int, _ *Compiled) []int { return refs }

func TestRenderErrors(t *testing.T) {
	for src, want := range map[string]string{
		`${input.nope}`:                        "no field nope in input; there are a, b, big,",
		`${input.o.x}`:                         "no field x in input.o; there are p, r s",
		`${steps.one.output.nope}`:             "no field nope in steps.one.output; there are id, ns, z",
		`${steps.skipped.output.id}`:           "steps.skipped.output is null",
		`${input.l.x}`:                         "input.l is a list, not an object",
		`${input.o[0]}`:                        "input.o is an object, not a list",
		`${input.l[3]}`:                        "no entry [3] in input.l; it has 3",
		`${input.items[0].nope + 1}`:           "no field nope in input.items[0]; there are id, p",
		`${map(input.items, .nope)}`:           "no field nope in this object; there are id, p",
		`${input.big + 1}`:                     "a number beyond 64 bits",
		`${input.big > 5}`:                     "a number beyond 64 bits",
		`${input.a / 0}`:                       "no number",
		`${input.a * 9223372036854775807 * 2}`: "64 bits",
		`${-9223372036854775807 - 10}`:         "64 bits",
		`${input.s * 2}`:                       "invalid operation",
		`${input.t + 1}`:                       "invalid operation",
		`${all(input.items, .id)}`:             "",
		`${upper(5)}`:                          "",
		`${int("x")}`:                          "",
		`${fromJSON("{")}`:                     "not readable as JSON",
		`${input.items[7]?.id}`:                "no entry [7]",
		`${len(5)}`:                            "",
		`${split("a", 5)}`:                     "",
		`${take([1], "x")}`:                    "",
		`${input.s matches input.s + "("}`:     "",
		`${replace(input.s, "", input.s) | replace("", "` + strings.Repeat("z", 500) + `") | replace("z", "` + strings.Repeat("z", 700) + `") | replace("z", "zzzzzzzzzzz")}`:                                                                                            "longer than",
		`${map(map(map(map(map(map(map(map([1],[#,#]),[#,#]),[#,#]),[#,#,#,#,#,#,#,#]),[#,#,#,#,#,#,#,#]),[#,#,#,#,#,#,#,#]),[#,#,#,#,#,#,#,#]),[#,#,#,#,#,#,#,#]) | map([#,#,#,#,#,#,#,#]) | map([#,#,#,#,#,#,#,#]) | map([#,#,#,#,#,#,#,#]) | map([#,#,#,#,#,#,#,#])}`: "too much work",
		`${all(1..900, all(1..900, all(1..900, all(1..900, true))))}`: "too much work",
		`${-9223372036854775807..9223372036854775807}`:                "",
	} {
		began := time.Now()
		got, err := render(src)
		if err == nil && src != `${-9223372036854775807..9223372036854775807}` {
			t.Errorf("%s gives %.80s", src, got)
		} else if err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s does not say %q: %v", src, want, err)
		}
		cases.Quick(t, began, 5*time.Second)
		if err != nil && (strings.Contains(err.Error(), "interface {}") || strings.Contains(err.Error(), "goroutine")) {
			t.Errorf("%s speaks of Go: %v", src, err)
		}
	}
}

// An output that the scope does not have was not loaded. It is an error, and never reads as null (F149).
func TestOutputThatIsNotLoadedIsAnError(t *testing.T) {
	for _, src := range []string{"${steps.one.output}", "${steps.one.output?.id}", `${steps.one.output.id ?? "none"}`,
		"${output}", "a ${output ?? 1}", "${[steps.skipped.output]}"} {
		scope := &kernel.Scope{Job: sample.Job, Input: sample.Input, Outputs: map[string]json.RawMessage{"one": nil}}
		if got, err := renderIn(scope, src); err == nil || !strings.Contains(err.Error(), "not loaded") {
			t.Errorf("%s is %s, %v", src, got, err)
		}
	}
}

// FuzzTemplate: each expression renders JSON or returns an error.
func FuzzTemplate(f *testing.F) {
	for _, src := range []string{"${input.a}", "x ${input.l[0]} $${y}", "${map(input.items, .p + #index) ?? [nil]}", "${input?.a.b?.c[0]}",
		"${steps.one.output.ns | filter(# > 1)}", "${job.labels[\"a b\"] + string(input.o)}", "${not (input.a in [1, 2.5]) ? 'x' : `y`}"} {
		f.Add(src)
	}
	f.Fuzz(func(t *testing.T, src string) {
		if len(src) > 3000 {
			return
		}
		if out, err := render(src); err != nil && strings.Contains(err.Error(), "not JSON") {
			t.Fatalf("%q gives %q", src, out)
		}
	})
}
