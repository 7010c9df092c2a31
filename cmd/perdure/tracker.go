package main

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
)

// tracker keeps the complete view of a job while changes of parts of it arrive.
type tracker struct {
	view perdure.JobView
	want perdure.State // the requested state
	note string        // why the job is followed: submitted, continued, undo, …

	stuck bool // it has needed an operator for stuckFor, and is not followed any more

	past past // as far as it was looked up

	order []int          // steps in order of their dependencies, as indexes into view.Steps
	index map[string]int // step name → index
}

// newTracker begins with a complete view.
func newTracker(v *perdure.JobView, want perdure.State) *tracker {
	t := &tracker{want: want}
	t.whole(v)
	return t
}

func (t *tracker) whole(v *perdure.JobView) {
	t.view = *v
	t.view.Steps = slices.Clone(v.Steps)
	t.index = make(map[string]int, len(v.Steps))
	for i := range v.Steps {
		t.index[v.Steps[i].Name] = i
	}
	t.order = inOrder(v.Steps, t.index)
}

// change is a step before and after a change.
type change struct{ before, after perdure.StepView }

// take merges a view and returns which steps have changed, in the order in which they run.
func (t *tracker) take(v *perdure.JobView) []change {
	if len(t.index) == 0 {
		t.whole(v)
		return nil
	}
	moved := map[int]perdure.StepView{}
	steps := t.view.Steps
	for i := range v.Steps {
		at, ok := t.index[v.Steps[i].Name]
		if !ok {
			continue
		}
		moved[at] = steps[at]
		steps[at] = v.Steps[i]
	}
	before := t.view
	t.view = *v
	t.view.Steps = steps
	if v.Input == nil && v.InputBytes == 0 { // events leave out values that never change
		t.view.Input, t.view.InputBytes = before.Input, before.InputBytes
	}
	if v.Definition == nil && v.DefinitionBytes == 0 {
		t.view.Definition, t.view.DefinitionBytes = before.Definition, before.DefinitionBytes
	}
	var changes []change
	for _, i := range t.order {
		if before, ok := moved[i]; ok {
			changes = append(changes, change{before, steps[i]})
		}
	}
	if v.Desired == perdure.Undone {
		slices.Reverse(changes)
	}
	return changes
}

// atRest reports whether the job is settled, or goes on only after an operator has acted.
func (t *tracker) atRest() bool {
	return t.view.Phase == perdure.Settled || t.view.Phase == perdure.Parked || t.stuck
}

// stuckFor is for how long a job must have needed an operator for its children, so that it is believed: the news that one of
// them goes on may be on its way.
const stuckFor = 2 * time.Second

// needsOperator reports whether a job is parked, or waits for nothing but parked children.
func needsOperator(v *perdure.JobView) bool {
	if v.Phase != perdure.Waiting {
		return v.Phase == perdure.Parked
	}
	some := false
	for i := range v.Steps {
		s := &v.Steps[i]
		switch n := s.Children; {
		case s.Phase == perdure.Settled || s.Phase == perdure.Parked:
		case s.Why != nil && s.Why.Kind == perdure.WhyAfterSteps:
		case s.Why != nil && s.Why.Kind == perdure.WhyChildren && n != nil && n.Parked > 0 && n.Active == 0 && (n.Submitted == n.Total || s.Desired == perdure.Undone):
			some = true
		default:
			return false
		}
	}
	return some
}

// name returns the job's key, or its short id.
func (t *tracker) name() string { return nameOf(&t.view) }

func nameOf(v *perdure.JobView) string {
	if v.Key != "" {
		return plain(v.Key)
	}
	return shortID(v)
}

// title returns all names of the job.
func (t *tracker) title() string {
	v := &t.view
	if v.Key != "" {
		return plain(v.Type) + " " + plain(v.Key) + " (" + v.ID.String() + ")"
	}
	return plain(v.Type) + " " + v.ID.String()
}

// refOf returns the text that names this job in a command.
func refOf(v *perdure.JobView) string {
	if v.Key != "" {
		return quoted(v.Key)
	}
	return shortID(v)
}

// shortID returns the part of an id that is unique among the jobs of one node: its time to a quarter of a microsecond,
// which a node never uses twice. The children of a step share it, so that theirs is the whole id.
func shortID(v *perdure.JobView) string {
	id := v.ID.String()
	if v.Parent != "" {
		return id
	}
	return id[:len("job_")+16]
}

// inOrder sorts the steps so that each comes after all steps that it waits for, and otherwise in the order of the file.
func inOrder(steps perdure.StepViews, index map[string]int) []int {
	order := make([]int, 0, len(steps))
	state := make([]uint8, len(steps)) // 0: new; 1: on the stack; 2: placed
	stack := make([]int, 0, 16)
	for i := range steps {
		stack = append(stack, i)
		for len(stack) > 0 {
			top := stack[len(stack)-1]
			if state[top] != 0 {
				stack = stack[:len(stack)-1]
				if state[top] == 1 {
					state[top] = 2
					order = append(order, top)
				}
				continue
			}
			state[top] = 1
			for _, name := range slices.Backward(steps[top].After) {
				if at, ok := index[name]; ok && state[at] == 0 {
					stack = append(stack, at)
				}
			}
		}
	}
	return order
}

// tally counts the steps by the word that is shown for them, in the order of urgency.
func (t *tracker) tally(rows []int) []count {
	n := map[string]int{}
	rank := map[string]int{}
	for _, i := range rows {
		r := rowOf(&t.view, &t.view.Steps[i], time.Time{})
		n[r.word]++
		rank[r.word] = r.rank
	}
	counts := make([]count, 0, len(n))
	for word, c := range n {
		counts = append(counts, count{word, c, rank[word]})
	}
	slices.SortFunc(counts, func(a, b count) int {
		return cmp.Or(a.rank-b.rank, b.n-a.n, strings.Compare(a.word, b.word))
	})
	return counts
}

type count struct {
	word string
	n    int
	rank int
}

// settled returns how many steps are in their desired state.
func (t *tracker) settled() int {
	n := len(t.view.Steps) - t.view.Unsettled
	if t.view.GivenUp != nil { // settled, but not in the desired state
		for i := range t.view.Steps {
			if t.view.Steps[i].GivenUp {
				n--
			}
		}
	}
	return n
}
