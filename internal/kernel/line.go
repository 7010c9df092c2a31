package kernel

import (
	"cmp"
	"slices"
	"strings"

	"github.com/perdure/perdure"
)

// A limit with the order "submitted" has a line for each of its keys. Steps that need a permit with the key stand in it by
// the age of their jobs, and only the first one may be dispatched. A step stands in line while it is ready, and while it
// waits to be tried again.
//
// Steps of jobs that have begun stand before those of jobs that have not. A job that has begun may hold permits of other
// limits, for which a job before it in the line may wait: they would wait for each other.

// OrderSubmitted is the order of a limit by the age of the jobs.
const OrderSubmitted = "submitted"

// LineRank says where in a line a need stands. The rank is computed when a step becomes ready, and again when its job
// begins.
type LineRank uint8

const (
	NotInLine LineRank = iota
	RankBegun          // its job has begun, or is the child of one that has
	RankNew
)

// LinePlace is the place of a step in the line for a key of a limit. Without a rank, there is none.
type LinePlace struct {
	Rank LineRank
	StepRef
}

// Compare orders the places of a line.
func (p LinePlace) Compare(o LinePlace) int {
	return cmp.Or(cmp.Compare(p.Rank, o.Rank), p.StepRef.Compare(o.StepRef))
}

// LineEntry is a place in the line for a key, as stores keep it.
type LineEntry struct {
	LimitKey
	LinePlace
}

// FirstInLine is the first place in the line for a key. The other steps of its job that stand in this line may be dispatched as
// well.
type FirstInLine struct {
	LinePlace
	Lane LaneRef // of the first of these steps that is ready; without an agent: all of them wait to be tried again
}

// Waits reports whether there is a first place, and no step of its job is ready.
func (f FirstInLine) Waits() bool { return f.Rank != NotInLine && f.Lane.Agent == "" }

// FirstLanes returns the lanes of the first in these lines, and the keys whose lines are empty.
func FirstLanes(keys []LimitKey, use map[LimitKey]Taken) (lanes []ClosedLane, empty []LimitKey) {
	for _, k := range keys {
		switch first := use[k].First; {
		case first.Rank == NotInLine:
			empty = append(empty, k)
		case !first.Waits():
			lanes = append(lanes, ClosedLane{first.Lane, k})
		}
	}
	return lanes, empty
}

// LineOf returns the needs of a step if it stands in line for keys among them; empty: it does not.
func LineOf(s *Step) Needs {
	retried := s.Phase == perdure.Waiting && s.Blockers == 0 && !s.AvailableAt.IsZero()
	if s.Phase != perdure.Ready && !retried || !s.Needs.hasLine() {
		return ""
	}
	return s.Needs
}

// LineEntries returns the places of a step that stands in line with these needs.
func LineEntries(ref StepRef, needs Needs) (entries []LineEntry) {
	for _, n := range needs.List() {
		if n.Line != NotInLine {
			entries = append(entries, LineEntry{n.LimitKey, LinePlace{n.Line, ref}})
		}
	}
	slices.SortFunc(entries, func(a, b LineEntry) int {
		return cmp.Or(a.LimitKey.Compare(b.LimitKey), a.LinePlace.Compare(b.LinePlace))
	})
	return slices.Compact(entries)
}

// LineChanges returns the places that a step leaves and enters if its needs in lines (LineOf) were others before.
func LineChanges(ref StepRef, was, now Needs) (left, entered []LineEntry) {
	if was == now {
		return nil, nil
	}
	had, has := LineEntries(ref, was), LineEntries(ref, now)
	of := func(list []LineEntry) func(LineEntry) bool {
		return func(e LineEntry) bool { return slices.Contains(list, e) }
	}
	return slices.DeleteFunc(slices.Clone(had), of(has)), slices.DeleteFunc(has, of(had))
}

// lineField begins the rank of a need. Within a text, the quotation marks would be escaped.
const lineField = `,"line":`

func (n Needs) hasLine() bool { return strings.Contains(string(n), lineField) }

// withLine returns the needs with their ranks in lines. ordered are the limits with an order. A need of several permits does not
// stand in line: there is one for each key, so that it would keep all others waiting.
func (n Needs) withLine(ordered []string, begun bool) Needs {
	if len(ordered) == 0 && !n.hasLine() {
		return n
	}
	list := n.List()
	for i := range list {
		switch {
		case list[i].Key == "" || list[i].Amount > 1 || !slices.Contains(ordered, list[i].Name):
			list[i].Line = NotInLine
		case begun:
			list[i].Line = RankBegun
		default:
			list[i].Line = RankNew
		}
	}
	return n.withList(list)
}

// withLineBegun returns the needs with the ranks of a job that has begun, in the lines in which they stand.
func (n Needs) withLineBegun() Needs {
	if !n.hasLine() {
		return n
	}
	list := n.List()
	for i := range list {
		if list[i].Line != NotInLine {
			list[i].Line = RankBegun
		}
	}
	return n.withList(list)
}

// UseOrdered sets which limits have an order, for steps that become ready after this call.
func (w *Workset) UseOrdered(limits []Limit) {
	w.ordered = nil
	for i := range limits {
		if limits[i].Ordered {
			w.ordered = append(w.ordered, limits[i].Name)
		}
	}
}

// begun reports whether the steps of a job stand in lines as those of jobs that have begun.
func (j *Job) begun() bool { return j.HasPermit || j.Parent != "" }

// lineMoved notes that the first of the lines in which a step stands may be another one now, or may be ready now. Lanes
// that are closed for it are opened. A job that is new stands behind all others: if it does not, because the clocks of
// two nodes differ, the supervisor opens its lane.
func (w *Workset) lineMoved(e *entry, r *row) {
	if e.loaded == nil {
		return
	}
	for _, of := range LineEntries(r.StepRef, LineOf(r.Step)) {
		w.releasedKeys = append(w.releasedKeys, of.LimitKey)
	}
}

// behind reports whether a step must wait for a permit because another job stands before it in the line.
func (a *Admission) behind(n Need, ref StepRef) bool {
	l := a.limits[n.Name]
	if l == nil || !l.Ordered {
		return false
	}
	return a.keys[n.LimitKey].First.before(n, ref)
}

// before reports whether the first in the line for a key is the step of another job, before a step that stands there with
// this need.
func (f FirstInLine) before(n Need, ref StepRef) bool {
	return n.Line != NotInLine && f.Rank != NotInLine && f.Job != ref.Job && f.Compare(LinePlace{n.Line, ref}) < 0
}
