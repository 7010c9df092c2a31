package sqlite

import (
	"slices"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/internal/merge"
)

// laneHeads are the heads of lanes, as one transaction has read and changed them. Nobody else writes meanwhile.
type laneHeads map[kernel.LaneRef]merge.Head

// note notes the head of a lane.
func (h *laneHeads) note(lane kernel.LaneRef, head merge.Head) {
	if *h == nil {
		*h = laneHeads{}
	}
	(*h)[lane] = head
}

// enter notes that a step of the lane has become ready.
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

// leave notes that a step of the lane is no longer ready.
func (h laneHeads) leave(lane kernel.LaneRef, step kernel.StepRef) {
	head := h[lane]
	if i := slices.IndexFunc(head.Steps, func(c kernel.Candidate) bool { return c.StepRef == step }); i >= 0 {
		head.Steps = slices.Delete(head.Steps, i, i+1)
		h[lane] = head
	}
}

// first is the first step of a lane. ok is false if it is not known, or if there is none.
func (h laneHeads) first(lane kernel.LaneRef) (first kernel.Candidate, ok bool) {
	if steps := h[lane].Steps; len(steps) > 0 {
		return steps[0], true
	}
	return first, false
}

// empty says that a lane is known to have no step.
func (h laneHeads) empty(lane kernel.LaneRef) bool {
	head := h[lane]
	return head.Whole && len(head.Steps) == 0
}
