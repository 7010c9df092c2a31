package definition

import (
	"fmt"
	"strings"
	"testing"
)

const small = `{"type":"trip","key":"k-1","input":{"amount":4200,"sku":"tea-12"},"steps":{
"a":{"agent":"payments","with":{"amount":"${input.amount}"},"undo":{}},
"b":{"agent":"payments","after":["a"],"with":{"id":"${steps.a.output.id}","note":"for ${input.sku}"},"undo":{}},
"c":{"agent":"payments","after":["b"],"when":"input.amount > 0","with":{"x":1}}}}`

func BenchmarkParseJSON(b *testing.B) {
	c := &Compiler{}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Parse([]byte(small), JSON, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	c := &Compiler{}
	plans, err := c.Parse([]byte(small), JSON, Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Compile(plans[0].Text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseYAML(b *testing.B) {
	c := &Compiler{}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Parse([]byte(order), YAML, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRender(b *testing.B) {
	plans, err := Parse([]byte(small), JSON, Options{})
	if err != nil {
		b.Fatal(err)
	}
	s := scopeOf(plans[0], map[string]string{"a": `{"id":12345678901234567890}`})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := plans[0].Steps[1].Do.Render(s); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkYAML10000(b *testing.B) {
	src := []byte(many(10_000))
	b.SetBytes(int64(len(src)))
	for b.Loop() {
		if _, err := Parse(src, YAML, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

// many returns a chain of n steps, each of which reads the one before it.
func many(n int) string {
	var b strings.Builder
	b.WriteString("type: large\ninput: {a: 1}\nsteps:\n")
	for i := range n {
		fmt.Fprintf(&b, "  s%d:\n    agent: http\n    with: {url: \"http://x/${input.a}\", body: {a: 1}}\n", i)
		if i > 0 {
			fmt.Fprintf(&b, "    after: [s%d]\n    when: steps.s%d.output.status == 200\n", i-1, i-1)
		}
		fmt.Fprintf(&b, "    undo: {with: {url: \"http://x/${output.body.id}\", method: DELETE}}\n")
	}
	return b.String()
}
