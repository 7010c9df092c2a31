// Package merge finds the first ready steps of many lanes, in order, without reading all of any.
package merge

import (
	"slices"

	"github.com/perdure/perdure/internal/kernel"
)

// Of the lanes together, share times as many steps as are asked for are read at first, and more times as many of those
// lanes of which that was too few.
const (
	share = 2
	more  = 8
)

// First returns the first steps of the lanes, at most max, in the order of kernel.ClaimLess. read returns the first steps of
// each of some lanes, in order, at most n of each.
func First[R any](max int, of []kernel.LaneID, candidate func(R) kernel.Candidate, read func(of []kernel.LaneID, n int) (map[kernel.LaneID][]R, error)) ([]R, error) {
	if len(of) == 0 {
		return nil, nil
	}
	less := func(a, b R) int { return kernel.ClaimLess(candidate(a), candidate(b)) }
	found := map[kernel.LaneID][]R{}
	for n := 1 + share*max/len(of); ; n *= more {
		n = min(n, max)
		got, err := read(of, n)
		if err != nil {
			return nil, err
		}
		for lane, steps := range got {
			found[lane] = steps
		}
		var all []R
		for _, steps := range found {
			all = append(all, steps...)
		}
		slices.SortFunc(all, less)
		all = all[:min(len(all), max)]
		of = slices.DeleteFunc(slices.Clone(of), func(lane kernel.LaneID) bool {
			steps := got[lane]
			return len(steps) < n || len(all) == max && less(steps[n-1], all[max-1]) >= 0
		})
		if n == max || len(of) == 0 {
			return all, nil
		}
	}
}

// Heads are the first steps of lanes, as one transaction has read them.
type Heads map[kernel.LaneRef][]kernel.Candidate

// Read notes the first steps of a lane, in order.
func (h *Heads) Read(lane kernel.LaneRef, first []kernel.Candidate) {
	if *h == nil {
		*h = Heads{}
	}
	(*h)[lane] = first
}

// Order is that of the first step of a lane of those that were read and are still there. ok is false if none is: then the
// lane has others, or it is empty.
func (h Heads) Order(lane kernel.LaneRef, gone func(kernel.StepRef) bool) (order int64, ok bool) {
	for _, c := range h[lane] {
		if !gone(c.StepRef) {
			return c.Order, true
		}
	}
	return 0, false
}
