package definition

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// manyRefs is a definition of n steps, each of which reads the same input of the given size by a bare path.
func manyRefs(n, bytes int) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `{"type":"t","input":{"s":%q},"steps":{`, strings.Repeat("x", bytes))
	for i := range n {
		fmt.Fprintf(&b, `%s"s%d":{"agent":"a","with":"${input.s}"}`, ","[:min(i, 1)], i)
	}
	return []byte(b.String() + "}}")
}

// A bare path costs what it copies, as an expression does: a thousand references into a megabyte are a gigabyte (F156).
func TestSubmissionThatEvaluatesTooMuchIsTooLarge(t *testing.T) {
	_, err := Parse(manyRefs(1000, 1_000_000), JSON, Options{})
	if perdure.CodeOf(err) != perdure.CodeTooLarge || !strings.Contains(err.Error(), "too much work") {
		t.Errorf("the error is %v", err)
	}
	if _, err := Parse(manyRefs(1000, 1000), JSON, Options{}); err != nil {
		t.Errorf("a small one is refused: %v", err)
	}
}

// The definitions of one call share a budget (F156).
func TestCallThatEvaluatesTooMuchRefusesTheRest(t *testing.T) {
	jobs := make([]json.RawMessage, 7)
	for i := range jobs {
		jobs[i] = manyRefs(440, 1_000_000) // some 14 million units of 16
	}
	plans, errs := new(Compiler).ParseAll(nil, jobs, nil)
	made := 0
	for i := range jobs {
		switch {
		case errs[i] == nil && plans[i] != nil:
			made++
		case perdure.CodeOf(errs[i]) != perdure.CodeTooLarge || plans[i] != nil:
			t.Errorf("job %d: %v", i, errs[i])
		}
	}
	if made < 1 || made > 1+callWork/submitWork {
		t.Errorf("%d of %d jobs were accepted", made, len(jobs))
	}
}

// Evaluation ends with the caller's context (F156).
func TestEvaluationEndsWithItsCall(t *testing.T) {
	gone := errors.New("the caller has gone")
	asked := 0
	stop := func() error {
		if asked++; asked > 3 {
			return gone
		}
		return nil
	}
	if plans, err := Parse(manyRefs(400, 1_000_000), JSON, Options{Stop: stop}); !errors.Is(err, gone) || plans != nil {
		t.Errorf("%v, %v after %d questions", plans, err, asked)
	}
	asked = 0
	if _, errs := new(Compiler).ParseAll(nil, []json.RawMessage{manyRefs(400, 1_000_000)}, stop); !errors.Is(errs[0], gone) {
		t.Errorf("%v after %d questions", errs[0], asked)
	}
}

// Renderings spend the budget of their scope. A value that one rendering has read costs the next one almost nothing.
func TestRenderingsShareABudget(t *testing.T) {
	list := json.RawMessage("[" + strings.TrimSuffix(strings.Repeat("1,", 100_000), ",") + "]")
	spend := func(b *kernel.Budget, src string) int {
		before := b.Work
		scope := &kernel.Scope{Job: seen.Job, Outputs: map[string]json.RawMessage{"one": list}, Budget: b}
		if got, err := renderIn(scope, src); err != nil {
			t.Fatalf("%s: %s, %v", src, got, err)
		}
		return before - b.Work
	}
	b := &kernel.Budget{Work: 1 << 30}
	first, second := spend(b, "${len(steps.one.output)}"), spend(b, "${len(steps.one.output) + 1}")
	if first < 100_000 || second > 100 {
		t.Errorf("reading a list of 100,000 costs %d, and once more %d", first, second)
	}
	if path := spend(b, "${steps.one.output}"); path < len(list)/copied {
		t.Errorf("a bare path of %d bytes costs %d", len(list), path)
	}
}

// A path whose budget is used up returns the error of the budget. It does not search the value for similar field
// names, because that work is not counted.
func TestPathOverBudgetIsNotMissing(t *testing.T) {
	large := json.RawMessage(`{"list":[` + strings.TrimSuffix(strings.Repeat("1,", 100_000), ",") + "]}")
	for _, src := range []string{
		"${steps.one.output.list}", "${steps.one.output?.list}", `${steps.one.output.list ?? "none"}`, "${len(steps.one.output.list)}",
	} {
		scope := &kernel.Scope{Job: seen.Job, Outputs: map[string]json.RawMessage{"one": large}, Budget: &kernel.Budget{Work: 1000}}
		got, err := renderIn(scope, src)
		if err == nil || strings.Contains(err.Error(), "no field") || !strings.Contains(err.Error(), kernel.ErrOverBudget.Error()) {
			t.Errorf("%s: %s, %v", src, got, err)
		}
	}
}

// F156, F157: decoded values of a budget are bounded in bytes: a list of a megabyte may have half a million entries.
func TestDecodedPartsAreBounded(t *testing.T) {
	b := &kernel.Budget{Work: 1 << 30}
	const lists = 20
	for i := range lists {
		list := json.RawMessage("[" + strings.TrimSuffix(strings.Repeat(fmt.Sprint(i%10)+",", 250_000), ",") + "]")
		scope := &kernel.Scope{Job: seen.Job, Outputs: map[string]json.RawMessage{"one": list}, Budget: b}
		if got, err := renderIn(scope, "${steps.one.output[-1]}"); err != nil || got != fmt.Sprint(i%10) {
			t.Fatalf("list %d: %s, %v", i, got, err)
		}
	}
	var members strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&members, `"%d":0,`, i)
	}
	for range lists {
		object := json.RawMessage("{" + members.String() + `"last":1}`)
		scope := &kernel.Scope{Job: seen.Job, Outputs: map[string]json.RawMessage{"one": object}, Budget: b}
		if got, err := renderIn(scope, "${steps.one.output.last}"); err != nil || got != "1" {
			t.Fatalf("%s, %v", got, err)
		}
	}
	cache, held := b.Memory.(*memory), 0
	for _, list := range cache.lists {
		held += cap(list) * entryBytes
	}
	for _, object := range cache.objects {
		held += len(object) * memberBytes
	}
	if held > partsBytes*5/4 || held < partsBytes/2 { // append allocates up to a quarter more
		t.Errorf("%d lists and %d objects take %d bytes, of %d", len(cache.lists), len(cache.objects), held, partsBytes)
	}
}
