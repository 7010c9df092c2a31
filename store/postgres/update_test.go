package postgres

import (
	"fmt"
	"slices"
	"testing"

	"github.com/perdure/perdure/internal/kernel"
)

// Each row is in one statement, and the order of rows is kept. A large claim has a statement of its own, small claims
// share one, and no statement has more than maxRows rows.
func TestUpdatesAreSplitByClaim(t *testing.T) {
	for _, tt := range []struct{ claims, want []int }{
		{[]int{1}, []int{1}},
		{[]int{1000, 1000, 1000}, []int{1000, 1000, 1000}},
		{[]int{10, 20, 30}, []int{60}},
		{[]int{150, 150, 150, 500}, []int{450, 500}},
		{[]int{500, 10, 20}, []int{500, 30}},
		{[]int{500, 10, 500}, []int{500, 10, 500}},
		{[]int{maxRows + 1}, []int{maxRows, 1}},
		{[]int{maxRows - 1, maxRows}, []int{maxRows - 1, maxRows}},
		{slices.Repeat([]int{1}, maxRows+1), []int{maxRows, 1}},
		{slices.Repeat([]int{manyRows - 1}, 26), []int{maxRows, 26*(manyRows-1) - maxRows}},
	} {
		var all []rowChange
		for claim, n := range tt.claims {
			for range n {
				all = append(all, rowChange{step: &kernel.StepChange{Now: &kernel.Step{StepRef: kernel.StepRef{Index: len(all)}, Request: fmt.Sprint(claim)}}})
			}
		}
		var sizes []int
		at := 0
		for part := range byClaim(all) {
			sizes = append(sizes, len(part))
			for _, ch := range part {
				if ch.step.Now.Index != at {
					t.Fatalf("claims %v: row %d is at position %d", tt.claims, ch.step.Now.Index, at)
				}
				at++
			}
		}
		if !slices.Equal(sizes, tt.want) {
			t.Errorf("claims %v: statements %v, want %v", tt.claims, sizes, tt.want)
		}
	}
}
