package sqlite

import (
	"slices"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/internal/merge"
)

// laneHeads are the heads of lanes as one transaction has read and changed them. There is no other writer.
type laneHeads map[kernel.LaneRef]merge.Head

// note sets the head of a lane.
func (h *laneHeads) note(lane kernel.LaneRef, head merge.Head) {
	if *h == nil {
		*h = laneHeads{}
	}
	(*h)[lane] = head
}

// enter adds a step of the lane that has become ready.
func (h laneHeads) enter(lane kernel.LaneRef, c kernel.Candidate) {
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

// leave removes a step of the lane that is no longer ready.
func (h laneHeads) leave(lane kernel.LaneRef, step kernel.StepRef) {
	head := h[lane]
	if i := slices.IndexFunc(head.Steps, func(c kernel.Candidate) bool { return c.StepRef == step }); i >= 0 {
		head.Steps = slices.Delete(head.Steps, i, i+1)
		h[lane] = head
	}
}

// first returns the first step of a lane; ok is false if it is unknown, or if there is none.
func (h laneHeads) first(lane kernel.LaneRef) (first kernel.Candidate, ok bool) {
	if steps := h[lane].Steps; len(steps) > 0 {
		return steps[0], true
	}
	return first, false
}

// empty reports whether a lane is known to have no step.
func (h laneHeads) empty(lane kernel.LaneRef) bool {
	head := h[lane]
	return head.Whole && len(head.Steps) == 0
}
