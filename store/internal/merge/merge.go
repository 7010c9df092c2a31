// Package merge finds the first ready steps of many lanes, in order, without reading all of any. Heads remembers, for one
// transaction, what it has read of lanes.
package merge

import (
	"slices"

	"github.com/perdure/perdure/internal/kernel"
)

// more is how many times as many steps are read of those lanes of which too few were read.
const more = 8

// Head is the first steps of a lane, in the order of kernel.ClaimLess.
type Head struct {
	Steps []kernel.Candidate
	Whole bool // the lane has no others
}

// First returns the first steps of the lanes, at most max, in the order of kernel.ClaimLess. read returns the heads of some
// lanes: at least one step of each that has one. A lane is read again if that was too few, as a rule with a larger
// n; then there are at least n, if the lane has so many. It saves a second look if read returns one step more than n: that one
// tells that none of those which are left out comes before it.
func First(max int, of []kernel.LaneID, read func(of []kernel.LaneID, n int) (map[kernel.LaneID]Head, error)) ([]kernel.Candidate, error) {
	if len(of) == 0 {
		return nil, nil
	}
	heads := make(map[kernel.LaneID]Head, len(of))
	for n := (max + len(of) - 1) / len(of); ; n *= more {
		n = min(n, max)
		got, err := read(of, n)
		if err != nil {
			return nil, err
		}
		var all []kernel.Candidate
		for lane, head := range got {
			heads[lane] = head
		}
		for _, head := range heads {
			all = append(all, head.Steps...)
		}
		slices.SortFunc(all, kernel.ClaimLess)
		all = all[:min(len(all), max)]
		of = slices.DeleteFunc(slices.Clone(of), func(lane kernel.LaneID) bool {
			steps := heads[lane].Steps
			return heads[lane].Whole || len(steps) >= max || len(steps) > 0 && len(all) == max && kernel.ClaimLess(steps[len(steps)-1], all[max-1]) >= 0
		})
		if len(of) == 0 {
			return all, nil
		}
	}
}

// Heads are the heads of lanes, as one transaction has read and changed them.
type Heads map[kernel.LaneRef]Head

// Read notes the head of a lane.
func (h *Heads) Read(lane kernel.LaneRef, head Head) {
	if *h == nil {
		*h = Heads{}
	}
	(*h)[lane] = head
}

// Enter notes that a step of the lane has become ready.
func (h Heads) Enter(lane kernel.LaneRef, c kernel.Candidate) {
	head, read := h[lane]
	if !read {
		return
	}
	at, there := slices.BinarySearchFunc(head.Steps, c, kernel.ClaimLess)
	if !there && (at < len(head.Steps) || head.Whole) {
		head.Steps = slices.Insert(head.Steps, at, c)
		h[lane] = head
	}
}

// Leave notes that a step of the lane is no longer ready.
func (h Heads) Leave(lane kernel.LaneRef, step kernel.StepRef) {
	head := h[lane]
	if i := slices.IndexFunc(head.Steps, func(c kernel.Candidate) bool { return c.StepRef == step }); i >= 0 {
		head.Steps = slices.Delete(head.Steps, i, i+1)
		h[lane] = head
	}
}

// First is the first step of a lane. ok is false if it is not known, or if there is none.
func (h Heads) First(lane kernel.LaneRef) (first kernel.Candidate, ok bool) {
	if steps := h[lane].Steps; len(steps) > 0 {
		return steps[0], true
	}
	return first, false
}

// Empty says that a lane is known to have no step.
func (h Heads) Empty(lane kernel.LaneRef) bool {
	head := h[lane]
	return head.Whole && len(head.Steps) == 0
}
