// Package merge finds the first ready steps of many lanes, in order, without reading any lane completely.
package merge

import (
	"slices"

	"github.com/perdure/perdure/internal/kernel"
)

// More is the factor by which more steps are read of lanes of which too few were read.
const More = 8

// Part returns how many steps are read of each lane at first, if max are wanted of all of them.
func Part(max, lanes int) int { return (max + lanes) / (lanes + 1) }

// Head is the first steps of a lane, in the order of kernel.ClaimLess.
type Head struct {
	Steps []kernel.Candidate
	Whole bool // the lane has no further steps
}

// First returns the first steps of the lanes, at most max, in the order of kernel.ClaimLess. read returns the heads of
// some lanes, with at least one step of each lane that has one. If that is too few, the lane is read again, mostly with
// a larger n; then read returns at least n steps, if the lane has so many. If read returns one step more than n, a
// second read is mostly saved: the additional step shows that no step which is left out comes before it.
func First(max int, of []kernel.LaneID, read func(of []kernel.LaneID, n int) (map[kernel.LaneID]Head, error)) ([]kernel.Candidate, error) {
	if len(of) == 0 {
		return nil, nil
	}
	heads := make(map[kernel.LaneID]Head, len(of))
	for n := (max + len(of) - 1) / len(of); ; n *= More {
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

// Join returns the first steps of two groups of lanes of one share. Those behind the last step of a group that has more are
// left out, because unread steps come before them.
func Join(a, b kernel.ShareHead) kernel.ShareHead {
	j := a
	j.Whole = a.Whole && b.Whole
	j.Steps = slices.Concat(a.Steps, b.Steps)
	slices.SortFunc(j.Steps, kernel.ClaimLess)
	for _, h := range []kernel.ShareHead{a, b} {
		if h.Whole {
			continue
		}
		j.Steps = upTo(j.Steps, h.Steps)
	}
	return j
}

// upTo returns the steps up to the last one of read.
func upTo(steps, read []kernel.Candidate) []kernel.Candidate {
	if len(read) == 0 {
		return nil
	}
	last := read[len(read)-1]
	end, _ := slices.BinarySearchFunc(steps, last, kernel.ClaimLess)
	return steps[:min(end+1, len(steps))]
}

// Add adds steps of a share that were found in another way, all that there are.
func Add(h kernel.ShareHead, steps []kernel.Candidate) kernel.ShareHead {
	joined := Join(h, kernel.ShareHead{Steps: steps, Whole: true})
	joined.Steps = slices.Compact(joined.Steps)
	return joined
}
