package expr

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/kernel"
)

// Renderings spend the budget of their scope. A value that one rendering has read costs the next one almost nothing.
func TestRenderingsShareABudget(t *testing.T) {
	list := json.RawMessage("[" + strings.TrimSuffix(strings.Repeat("1,", 100_000), ",") + "]")
	spend := func(b *kernel.Budget, src string) int {
		before := b.Work
		scope := &kernel.Scope{Job: sample.Job, Outputs: map[string]json.RawMessage{"one": list}, Budget: b}
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
	if path := spend(b, "${steps.one.output}"); path < len(list)/copiedBytes {
		t.Errorf("a bare path of %d bytes costs %d", len(list), path)
	}
}

// A path whose budget is used up returns the error of the budget. It does not search the value for similar field
// names, because that work is not counted.
func TestPathOverBudgetIsABudgetError(t *testing.T) {
	large := json.RawMessage(`{"list":[` + strings.TrimSuffix(strings.Repeat("1,", 100_000), ",") + "]}")
	for _, src := range []string{
		"${steps.one.output.list}", "${steps.one.output?.list}", `${steps.one.output.list ?? "none"}`, "${len(steps.one.output.list)}",
	} {
		scope := &kernel.Scope{Job: sample.Job, Outputs: map[string]json.RawMessage{"one": large}, Budget: &kernel.Budget{Work: 1000}}
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
		scope := &kernel.Scope{Job: sample.Job, Outputs: map[string]json.RawMessage{"one": list}, Budget: b}
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
		scope := &kernel.Scope{Job: sample.Job, Outputs: map[string]json.RawMessage{"one": object}, Budget: b}
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
