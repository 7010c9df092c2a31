package definition

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/racedetector"
)

// A definition compiled with the cache makes the same plan as one compiled without.
func TestCachedDefinitionMakesTheSamePlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		def := anyDefinition().Draw(t, "definition")
		c := &Compiler{}
		first, err := c.FromDefinition(def)
		if err != nil {
			t.Fatal(err)
		}
		second, err := c.FromDefinition(def)
		if err != nil {
			t.Fatal(err)
		}
		check(t, second)
		if second.Hash != first.Hash || second.ID != first.ID {
			t.Fatalf("another plan:\n%s\n%s", Canonical(first), Canonical(second))
		}
		other := *def
		other.StartAt = time.Time{}
		other.Key, other.Priority, other.Labels = "other", 3, map[string]string{"a": "b"}
		want, err := FromDefinition(&other)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.With(first, Values{Key: "other", Priority: 3, Labels: other.Labels, Input: def.Input})
		if err != nil {
			t.Fatal(err)
		}
		check(t, got)
		if got.Hash != want.Hash || got.ID != want.ID {
			t.Fatalf("With: another plan:\n%s\n%s", Canonical(want), Canonical(got))
		}
	})
}

// Faults of a job of a known shape are reported like those of the first job of the shape.
func TestKnownShapeReportsFaultsOfEachJob(t *testing.T) {
	const steps = `"steps":{"a":{"agent":"x","with":{"n":"${input.n}"}},"b":{"agent":"x","after":["a"],"when":"input.n > 1","with":{"o":"${steps.a.output}"}}}`
	c := &Compiler{}
	if _, err := c.Parse([]byte(`{"type":"t","input":{"n":1},`+steps+`}`), JSON, Options{}); err != nil {
		t.Fatal(err)
	}
	for _, values := range []string{
		``, `"input":{},`, `"input":{"n":"x"},`, `"key":"a/b","input":{"n":1},`, `"key":"","input":{"n":1},`, `"key":7,"input":{"n":1},`,
		`"priority":10,"input":{"n":1},`, `"priority":"${input.n}","input":{"n":11},`, `"labels":{"":"x"},"input":{"n":1},`, `"labels":7,"input":{"n":1},`,
		`"key":"${input.m}","input":{"n":1},`, `"key":"${","input":{"n":1},`, `"wrong":1,"input":{"n":1},`,
		`"startAt":"soon","input":{"n":1},`, `"startAt":7,"input":{"n":1},`, `"startAt":"${input.n}","input":{"n":1},`, `"startAt":"1969-01-01T00:00:00Z","input":{"n":1},`,
	} {
		body := []byte(`{"type":"t",` + values + steps + `}`)
		_, fresh := Parse(body, JSON, Options{})
		_, warm := c.Parse(body, JSON, Options{})
		if fresh == nil || warm == nil || FormatError("f", body, fresh) != FormatError("f", body, warm) {
			t.Errorf("%s\nfresh: %v\nknown: %v", values, fresh, warm)
		}
	}
	for _, v := range []Values{{}, {Input: json.RawMessage(`{"n":"x"}`)}, {Input: json.RawMessage(`{`)}, {Input: json.RawMessage("{\"n\":1}\x00")},
		{Key: "@a", Input: json.RawMessage(`{"n":1}`)}, {Priority: -1, Input: json.RawMessage(`{"n":1}`)}} {
		first, _ := c.Parse([]byte(`{"type":"t","input":{"n":1},`+steps+`}`), JSON, Options{})
		if _, err := c.With(first[0], v); perdure.CodeOf(err) == "" {
			t.Errorf("With(%+v): %v", v, err)
		}
	}
}

// The key of a unique job is computed for each job of a known shape.
func TestKnownShapeComputesTheUniqueKeyOfEachJob(t *testing.T) {
	c := &Compiler{}
	body := func(input string) []byte {
		return []byte(`{"type":"t","unique":{"key":"k-${input.n}","within":"10m"},"input":` + input + `,"steps":{"a":{"agent":"x"}}}`)
	}
	for _, n := range []string{`1`, `"x"`, `true`, `1`} {
		plans, err := c.Parse(body(`{"n":`+n+`}`), JSON, Options{})
		if want := "k-" + strings.Trim(n, `"`); err != nil || plans[0].UniqueKey != want {
			t.Errorf("input %s: key %q, want %q; %v", n, plans[0].UniqueKey, want, err)
		}
	}
	for _, n := range []string{`"` + strings.Repeat("x", 255) + `"`, `"\u0007"`} {
		if _, err := c.Parse(body(`{"n":`+n+`}`), JSON, Options{}); perdure.CodeOf(err) == "" {
			t.Errorf("input %s is accepted", n)
		}
	}
}

// The key of a limit is checked for each job of a known shape.
func TestKnownShapeChecksLimitKeysOfEachJob(t *testing.T) {
	const steps = `"steps":{"a":{"agent":"x","limits":[{"name":"ads","key":"${input.k}"},{"name":"mail"}]}}`
	c := &Compiler{}
	first, err := c.Parse([]byte(`{"type":"t","input":{"k":"x"},`+steps+`}`), JSON, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for key, ok := range map[string]bool{`"y"`: true, `7`: true, `null`: false, `""`: false, `{}`: false, `[1]`: false, `"a\nb"`: false,
		strconv.Quote(strings.Repeat("a", perdure.MaxLimitKeyBytes+1)): false} {
		body := []byte(`{"type":"t","input":{"k":` + key + `},` + steps + `}`)
		_, fresh := Parse(body, JSON, Options{})
		_, warm := c.Parse(body, JSON, Options{})
		if (warm == nil) != ok || !ok && FormatError("f", body, fresh) != FormatError("f", body, warm) {
			t.Errorf("%s\nfresh: %v\nknown: %v", key, fresh, warm)
		}
		if _, err := c.With(first[0], Values{Input: json.RawMessage(`{"k":` + key + `}`)}); (err == nil) != ok || !ok && perdure.CodeOf(err) != perdure.CodeInvalid {
			t.Errorf("With %s: %v", key, err)
		}
	}
}

func BenchmarkParseKnown(b *testing.B) {
	c := &Compiler{}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Parse([]byte(`{"type":"one","input":{"n":1},"steps":{"s":{"agent":"a","with":{"n":"${input.n}"}}}}`), JSON, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWith(b *testing.B) {
	c := &Compiler{}
	plans, err := c.Parse([]byte(`{"type":"one","input":{"n":1},"steps":{"s":{"agent":"a","with":{"n":"${input.n}"}}}}`), JSON, Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.With(plans[0], Values{Input: json.RawMessage(`{"n":1}`)}); err != nil {
			b.Fatal(err)
		}
	}
}

// The cache is bounded in total, and for each text (F158).
func TestCacheOfDefinitionsIsBounded(t *testing.T) {
	racedetector.Skip(t)
	large := func(n, bytes int) string {
		return fmt.Sprintf(`{"type":"t%d","steps":{"s":{"agent":"a","with":"%[2]s"},"t":{"agent":"a","with":"%[2]s"}}}`, n, strings.Repeat("x", bytes/2))
	}
	var c Compiler
	again := func(text string) bool {
		t.Helper()
		var shapes [2]*kernel.Shape
		for i := range shapes {
			plans, err := c.Parse([]byte(text), JSON, Options{})
			if err != nil {
				t.Fatal(err)
			}
			shapes[i] = plans[0].Shape
		}
		sum := 0
		for text, k := range c.memos.byText {
			sum += len(text) + k.bytes()
		}
		if len(c.memos.byText) > maxMemos || sum > maxMemoBytes || sum != c.memos.bytes {
			t.Fatalf("%d memos of %d bytes, counted as %d", len(c.memos.byText), sum, c.memos.bytes)
		}
		return shapes[0] == shapes[1]
	}
	for n := range maxMemos + 1 {
		if !again(large(n, 2)) {
			t.Fatalf("definition %d is compiled again", n)
		}
	}
	if n := len(c.memos.byText); n != 1 || len(c.memos.byShape) != n {
		t.Errorf("%d are remembered after %d", n, maxMemos+1)
	}
	const half = maxMemoText / 2
	for n := range 2*maxMemoBytes/maxMemoText + 1 {
		if !again(large(n, half)) {
			t.Fatalf("large definition %d is compiled again", n)
		}
	}
	again(`{"type":"t","input":"` + strings.Repeat("x", 300<<10) + `","steps":{"s":{"agent":"a","with":"` + strings.Repeat("y", half) + `"}}}`) // the whole way each time
	if again(large(0, maxMemoText)) {
		t.Error("one that is too large is remembered")
	}
}
