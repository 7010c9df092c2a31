package definition

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

func raws(texts ...string) []json.RawMessage {
	jobs := make([]json.RawMessage, len(texts))
	for i, s := range texts {
		jobs[i] = json.RawMessage(s)
	}
	return jobs
}

// valuesOf are values that a job of a batch may have of its own, valid and invalid ones.
var valuesOf = []struct {
	name  string
	texts []string
}{
	{"key", []string{"", `"k-1"`, `"k-${input.a}"`, `"${input.big}"`, `"a/b"`}},
	{"priority", []string{"", "3", `"${input.a}"`, "10", "null"}},
	{"labels", []string{"", `{"b":"2","a":"1"}`, "{}", "7"}},
	{"startAt", []string{"", `"2031-01-01T08:00:00+02:00"`, `"${input.s}"`, `7`}},
	{"input", []string{"", `{"a":2,"s":"y","big":7,"l":[1.0]}`, `{"a":"x"}`, "null"}},
}

// A job of a batch equals the job that its definition makes when it is written out.
func TestJobOfABatchEqualsItsOwnDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		def := anyDefinition().Draw(t, "definition")
		base, _ := json.Marshal(def)
		var written, values []json.RawMessage
		for range rapid.IntRange(1, 4).Draw(t, "jobs") {
			own, whole := map[string]json.RawMessage{}, map[string]json.RawMessage{}
			if err := json.Unmarshal(base, &whole); err != nil {
				t.Fatal(err)
			}
			for _, v := range valuesOf {
				if text := rapid.SampledFrom(v.texts).Draw(t, v.name); text != "" {
					own[v.name], whole[v.name] = json.RawMessage(text), json.RawMessage(text)
				}
			}
			value, _ := json.Marshal(own)
			text, _ := json.Marshal(whole)
			written, values = append(written, text), append(values, value)
		}
		c := &Compiler{}
		merged, refused := c.ParseAll(base, values, nil)
		listed, errs := c.ParseAll(nil, written, nil)
		for i := range values {
			alone, err := fresh(written[i])
			if want := faultsOf(err); faultsOf(refused[i]) != want || faultsOf(errs[i]) != want {
				t.Fatalf("%s\nmerged: %v\nlisted: %v\nalone: %v", written[i], refused[i], errs[i], err)
			}
			if err != nil {
				continue
			}
			check(t, merged[i])
			if merged[i].Hash != alone.Hash || listed[i].Hash != alone.Hash || merged[i].ID != alone.ID || listed[i].ID != alone.ID {
				t.Fatalf("another plan:\n%s\n%s\n%s", Canonical(alone), Canonical(listed[i]), Canonical(merged[i]))
			}
		}
	})
}

// fresh compiles a definition without a cache.
func fresh(text []byte) (*kernel.Plan, error) {
	plans, err := Parse(text, JSON, Options{})
	if err != nil {
		return nil, err
	}
	return plans[0], nil
}

// faultsOf returns the faults of a refusal, sorted.
func faultsOf(err error) string {
	var e *perdure.Error
	if !errors.As(err, &e) {
		return fmt.Sprint(err)
	}
	var all []string
	for _, f := range e.Fields {
		all = append(all, f.Pointer+" "+f.Message+" "+f.Hint)
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

func TestJobsOfABatchReplaceValues(t *testing.T) {
	base := `{"type":"t","key":"base-${input.n}","priority":4,"labels":{"a":"1","b":"2"},"input":{"n":1,"m":2},"steps":{"s":{"agent":"x","with":"${input.n}"}}}`
	plans, errs := new(Compiler).ParseAll([]byte(base), raws(
		`{}`, `{"key":"own"}`, ` {"priority": 0} `, `{"labels":{"c":"3"}}`, `{"input":{"n":7}}`, `{"labels":{}}`,
		`{"key":"k-${input.n}","priority":"${input.n}","input":{"n":8}}`, `{}`,
	), nil)
	const labels = `"labels":{"a":"1","b":"2"},`
	for i, want := range []string{
		`"key":"base-1","priority":4,` + labels + `"input":{"m":2,"n":1}`,
		`"key":"own","priority":4,` + labels + `"input":{"m":2,"n":1}`,
		`"key":"base-1",` + labels + `"input":{"m":2,"n":1}`,
		`"key":"base-1","priority":4,"labels":{"c":"3"},"input":{"m":2,"n":1}`,
		`"key":"base-7","priority":4,` + labels + `"input":{"n":7}`,
		`"key":"base-1","priority":4,"input":{"m":2,"n":1}`,
		`"key":"k-8","priority":8,` + labels + `"input":{"n":8}`,
		`"key":"base-1","priority":4,` + labels + `"input":{"m":2,"n":1}`,
	} {
		want = `{"type":"t",` + want + `,"steps":{"s":{"agent":"x","with":"${input.n}"}}}`
		if errs[i] != nil || string(Canonical(plans[i])) != want {
			t.Errorf("%d: %v\n%s\n%s", i, errs[i], Canonical(plans[i]), want)
		}
	}
}

// The jobs of one definition share its shape, also if each has a computed key.
func TestJobsOfABatchShareTheShape(t *testing.T) {
	for _, base := range []string{
		small, strings.Replace(small, `"k-1"`, `"k-${input.amount}"`, 1), strings.Replace(small, `"key":"k-1"`, `"priority":"${input.n}"`, 1),
	} {
		plans, errs := new(Compiler).ParseAll([]byte(base), raws(`{"input":{"amount":1,"sku":"a","n":1}}`, `{"input":{"amount":2,"sku":"b","n":2}}`, `{"input":{"amount":3,"sku":"c","n":3}}`), nil)
		if err := errors.Join(errs...); err != nil || plans[1].Shape != plans[2].Shape || plans[1].ID != plans[0].ID {
			t.Errorf("%v: made again: %s", err, base)
		}
	}
}

// Each job is answered separately, with places in its one definition.
func TestFaultyJobsOfABatchAreRefusedAlone(t *testing.T) {
	const steps = `"steps":{"a":{"agent":"x","with":{"n":"${input.n}"}}}`
	const good = `{"type":"t","input":{"n":1},` + steps + `}`
	deep := strings.Repeat("[", 64) + strings.Repeat("]", 64)
	for _, test := range []struct {
		base, job string
		code      perdure.Code
		pointer   string
		want      string // in the message or hint
	}{
		{"", `{"type":"t"}`, "invalid", "", "`steps` is missing"},
		{"", `{"type":"t",` + steps + `,"input":{"n":1},"inptu":{}}`, "invalid", "/inptu", "did you mean `input`?"},
		{"", `{"type":"t",` + steps + `}`, "invalid", "/steps/a/with/n", "input.n"},
		{"", `[1]`, "invalid", "", "not a list"},
		{"", `null`, "invalid", "", "not null"},
		{"", ``, "malformed", "", "expected a value"},
		{"", `{"type":`, "malformed", "", "expected a value"},
		{"", good + good, "malformed", "", "after the end"},
		{"", "{\"type\":\"\xff\"}", "malformed", "", "not valid UTF-8"},
		{"", "{\"type\":\"\x00\"}", "malformed", "", "NUL"},
		{"", `{"type":"\u0000"}`, "malformed", "", "NUL"},
		{"", `{"type":"t","type":"u"}`, "invalid", "", "duplicate field"},
		{"", `{"input":` + deep + `}`, "tooLarge", "", "levels"},
		{"", strings.Repeat(" ", perdure.MaxDefinitionBytes) + good, "tooLarge", "", "16 MiB"},

		{good, strings.Repeat(" ", perdure.MaxDefinitionBytes) + `{}`, "tooLarge", "", "16 MiB"},
		{good, `{"inptu":{"n":1}}`, "invalid", "/inptu", "did you mean `input`?"},
		{good, `{"prio":1}`, "invalid", "/prio", "key, priority, labels, startAt, input"},
		{good, `{"type":"t"}`, "invalid", "/type", "key, priority, labels, startAt, input"},
		{good, `{"steps":{}}`, "invalid", "/steps", "in the values of a job"},
		{good, `{"output":1}`, "invalid", "/output", "unknown field"},
		{good, `{"a~/b":1}`, "invalid", "/a~0~1b", "unknown field"},
		{good, `{"input":{}}`, "invalid", "/steps/a/with/n", "input.n"},
		{good, `{"key":"a/b"}`, "invalid", "/key", "/"},
		{good, `{"key":null}`, "invalid", "/key", ""},
		{good, `{"priority":10}`, "invalid", "/priority", "9"},
		{good, `{"labels":{"":"x"}}`, "invalid", "/labels/", ""},
		{good, `{"key":"${input.m}"}`, "invalid", "/key", "input.m"},
		{good, `[]`, "invalid", "", "the values of a job are an object, not a list"},
		{good, `"k"`, "invalid", "", "not a string"},
		{good, ``, "malformed", "", "expected a value"},
		{good, `{`, "malformed", "", "double quotes"},
		{good, `{} {}`, "malformed", "", "after the end"},
		{good, "{\"key\":\"\xff\"}", "malformed", "", "not valid UTF-8"},
		{good, `{"key":"\u0000"}`, "malformed", "", "NUL"},
		{good, `{"key":"a","key":"b"}`, "invalid", "", "duplicate field `key`"},
		{good, `{"input":` + deep + `}`, "tooLarge", "", "levels"},
		{good, `{"input":"` + strings.Repeat("x", perdure.MaxPayloadBytes) + `"}`, "tooLarge", "/input", "1048576"},

		// A fault of the base is a fault of each job.
		{`{`, `{}`, "malformed", "", "double quotes"},
		{`[]`, `{}`, "invalid", "", "a definition is an object with a type and steps, not a list"},
		{"{\"type\":\"\xff\"}", `{}`, "malformed", "", "not valid UTF-8"},
		{`{"type":"t","type":"t"}`, `{}`, "invalid", "", "duplicate field"},
		{`{"type":"t"}`, `{}`, "invalid", "", "`steps` is missing"},
		{`{"type":"t","steps":{"a":{"agent":"x","aftr":[]}}}`, `{}`, "invalid", "/steps/a/aftr", "did you mean `after`?"},
		{`{"type":"t","steps":{"a":{"agent":"x"}},"input":` + deep[1:127] + `}`, `{"key":"@"}`, "invalid", "/key", "prefixes of ids"},
	} {
		c := &Compiler{}
		jobs := raws(`{}`, test.job, `{}`)
		if test.base == "" {
			jobs = raws(good, test.job, good)
		}
		for range 2 { // the second time, with the cache
			plans, errs := c.ParseAll([]byte(test.base), jobs, nil)
			var e *perdure.Error
			if !errors.As(errs[1], &e) || e.Code != test.code || !slices.ContainsFunc(e.Fields, func(f perdure.FieldError) bool { return f.Pointer == test.pointer }) || !strings.Contains(e.Message+e.Hint, test.want) {
				t.Errorf("%.80s with %.80s: %+v", test.base, test.job, errs[1])
				continue
			}
			for _, f := range e.Fields {
				if f.Line != 0 || f.Column != 0 {
					t.Errorf("%.80s with %.80s: the fault points to lines of a text that was not submitted: %+v", test.base, test.job, f)
				}
			}
			if plans[1] != nil {
				t.Errorf("%.80s with %.80s: a plan, and %v", test.base, test.job, errs[1])
			}
			if ok := errs[0] == nil && plans[0] != nil; ok != (errs[2] == nil && plans[2] != nil) || !ok && (test.base == "" || test.base == good) {
				t.Errorf("%.80s with %.80s took others down: %v, %v", test.base, test.job, errs[0], errs[2])
			}
		}
	}
}

// Two parts that are each within bounds may exceed them together.
func TestJobsOfABatchAreBoundedAfterMerging(t *testing.T) {
	half := "[" + strings.Repeat("0,", perdure.MaxNodes/2) + "0]"
	base := `{"type":"t","steps":{"a":{"agent":"x","with":` + half + `}}}`
	_, errs := new(Compiler).ParseAll([]byte(base), raws(`{"input":`+half+`}`), nil)
	if perdure.CodeOf(errs[0]) != perdure.CodeTooLarge || !strings.Contains(errs[0].Error(), "values in one definition") {
		t.Error(errs[0])
	}
}

// All faults of a job come in one answer, its own and those of the merged definition: the deepest first.
func TestJobOfABatchReportsAllFaults(t *testing.T) {
	base := `{"type":"t","priority":1,"steps":{"a":{"agent":"x","aftr":[]}}}`
	_, errs := new(Compiler).ParseAll([]byte(base), raws(`                              {"priority":10,"labels":7}`), nil)
	var e *perdure.Error
	if !errors.As(errs[0], &e) {
		t.Fatal(errs[0])
	}
	var got []string
	for _, f := range e.Fields {
		got = append(got, f.Pointer)
	}
	if want := []string{"/steps/a/aftr", "/labels", "/priority"}; !reflect.DeepEqual(got, want) {
		t.Error(got)
	}
}

const batchSize = 1000

func benchmarkBatch(b *testing.B, base string, job func(int) string) {
	jobs := make([]json.RawMessage, batchSize)
	for i := range jobs {
		jobs[i] = json.RawMessage(job(i))
	}
	c := &Compiler{}
	b.ReportAllocs()
	for b.Loop() {
		if _, errs := c.ParseAll([]byte(base), jobs, nil); errors.Join(errs...) != nil {
			b.Fatal(errors.Join(errs...))
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batchSize), "ns/job")
}

func BenchmarkBatch(b *testing.B) {
	const one = `{"type":"one","input":{"n":1},"steps":{"s":{"agent":"a","with":{"n":"${input.n}"}}}}`
	keyed := func(i int) string {
		return fmt.Sprintf(`{"key":"order-%d","input":{"amount":%d,"sku":"tea-12"}}`, i, i)
	}
	input := func(i int) string { return fmt.Sprintf(`{"input":{"amount":%d,"sku":"tea-12"}}`, i) }
	for name, base := range map[string]string{
		"one step": strings.ReplaceAll(one, "input.n", "input.amount"), "three steps": small,
		"built-in agent": `{"type":"call","steps":{"s":{"agent":"http","with":{"url":"http://x/${input.sku}"}}}}`,
	} {
		b.Run(name, func(b *testing.B) { benchmarkBatch(b, base, keyed) })
	}
	b.Run("computed key", func(b *testing.B) {
		benchmarkBatch(b, strings.Replace(small, `"k-1"`, `"order-${input.amount}"`, 1), input)
	})
	b.Run("written out", func(b *testing.B) {
		benchmarkBatch(b, "", func(i int) string {
			return strings.Replace(small, `"key":"k-1","input":{"amount":4200`, fmt.Sprintf(`"key":"order-%d","input":{"amount":%d`, i, i), 1)
		})
	})
}
