package definition

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition/internal/expr"
	"github.com/perdure/perdure/internal/racedetector"
)

// manyRefs returns a definition of n steps, each of which reads the same input of the given size by a bare path.
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
	racedetector.Skip(t)
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
	racedetector.Skip(t)
	jobs := make([]json.RawMessage, 7)
	for i := range jobs {
		jobs[i] = manyRefs(440, 1_000_000) // some 14 million units of 16
	}
	plans, errs := new(Compiler).ParseAll(nil, jobs, nil)
	compiled := 0
	for i := range jobs {
		switch {
		case errs[i] == nil && plans[i] != nil:
			compiled++
		case perdure.CodeOf(errs[i]) != perdure.CodeTooLarge || plans[i] != nil:
			t.Errorf("job %d: %v", i, errs[i])
		}
	}
	if compiled < 1 || compiled > 1+callWork/expr.SubmitWork {
		t.Errorf("%d of %d jobs were accepted", compiled, len(jobs))
	}
}

// Evaluation ends with the caller's context (F156).
func TestEvaluationEndsWithItsCall(t *testing.T) {
	errGone := errors.New("the caller has gone")
	checks := 0
	stop := func() error {
		if checks++; checks > 3 {
			return errGone
		}
		return nil
	}
	if plans, err := Parse(manyRefs(400, 1_000_000), JSON, Options{Stop: stop}); !errors.Is(err, errGone) || plans != nil {
		t.Errorf("%v, %v after %d questions", plans, err, checks)
	}
	checks = 0
	if _, errs := new(Compiler).ParseAll(nil, []json.RawMessage{manyRefs(400, 1_000_000)}, stop); !errors.Is(errs[0], errGone) {
		t.Errorf("%v after %d questions", errs[0], checks)
	}
}
