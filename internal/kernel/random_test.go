package kernel

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/perdure/perdure"
)

// Layer 2: random events on random jobs, too large to be walked through. Every event is played twice, once
// with the whole job loaded and once with what the rules ask for alone; the rows must come out the same.

// randomJob draws a job of up to a few hundred steps, each after some of those before it.
func randomJob(t *rapid.T) string {
	n := rapid.OneOf(rapid.IntRange(1, 12), rapid.IntRange(13, 300)).Draw(t, "steps")
	var b strings.Builder
	fmt.Fprintf(&b, "onFailure %s", rapid.SampledFrom([]string{"park", "undo", "restart:1", "wait:1,skip", "alert:ops,undo"}).Draw(t, "ladder"))
	if rapid.IntRange(0, 3).Draw(t, "within") == 0 {
		b.WriteString("; within 60s")
	}
	for i := range n {
		fmt.Fprintf(&b, "; s%d", i)
		var after []string
		for range min(i, rapid.IntRange(0, 3).Draw(t, "after")) {
			near := max(0, i-1-rapid.IntRange(0, 20).Draw(t, "near"))
			after = append(after, fmt.Sprintf("s%d", near))
		}
		slices.Sort(after)
		after = slices.Compact(after)
		if len(after) > 0 {
			b.WriteString(" after " + strings.Join(after, " "))
		}
		b.WriteString(rapid.SampledFrom([]string{"", " undo", " undo", " undo", " revert", " undo attempts 2", " undo or skip", " undo or undo", " sleep", " approval lasts"}).Draw(t, "kind"))
		if len(after) > 0 {
			b.WriteString(rapid.SampledFrom([]string{"", "", "", " reads " + after[0], " when " + after[0]}).Draw(t, "reads"))
		}
	}
	return b.String()
}

func TestPropertyRandomJobs(tb *testing.T) { // I3 to I12, L1
	rapid.Check(tb, func(t *rapid.T) {
		text := randomJob(t)
		x := &explored{world: *newWorld(inner{tb, t}, text)}
		x.accept()
		x.far = make([]far, len(x.steps))
		for i := range x.far {
			x.far[i].may = maybeUndone
		}
		for range rapid.IntRange(1, 200).Draw(t, "events") {
			x.happen(t)
		}
		x.toRest(t)
	})
}

// inner lets a world fail a rapid check.
type inner struct {
	testing.TB
	t *rapid.T
}

func (in inner) Helper()                           {}
func (in inner) Fatalf(format string, args ...any) { in.t.Fatalf(format, args...) }
func (in inner) Fatal(args ...any)                 { in.t.Fatal(args...) }

// happen draws an event that may do something, and plays it both ways.
func (x *explored) happen(t *rapid.T) {
	names := []string{"claim", "claim", "claim", "done", "done", "done with output", "done with a bad output", "failed", "failed without effect",
		"rejected", "returned", "cut short", "doubled report", "late or second answer", "heartbeat", "expired", "holder lost", "due", "due", "overdue", "time",
		"undo", "redo", "resume", "resume step", "settle as done", "settle as done with output", "settle as undone", "skip", "edit", "edit with a new key", "give up"}
	name := rapid.SampledFrom(names).Draw(t, "event")
	h := happenings[slices.IndexFunc(happenings, func(h happening) bool { return h.name == name })]
	step := -1
	if h.each {
		step = x.anyStep(t, name)
	}
	before, far := x.world, slices.Clone(x.far)
	other := explored{world: x.world, far: slices.Clone(x.far)}
	other.partial = true
	did := h.try(x, step)
	if also := h.try(&other, step); also != did || other.same(x) != "" {
		t.Fatalf("%s %d comes out otherwise with what the rules ask for alone: %v and %v\n%s", name, step, did, also, other.same(x))
	}
	if !did && x.same(&explored{world: before, far: far}) != "" {
		t.Fatalf("%s %d was refused and changed something", name, step)
	}
	x.still(&before, name)
	x.truthful()
	x.reasonable()
	for _, f := range CheckJob(x.job, x.plan, x.steps, x.alerts, x.now) {
		t.Fatalf("after %s %d: %s: step %q: %s", name, step, f.Rule, f.Step, f.Message)
	}
}

// anyStep prefers one to which the event means something.
func (x *explored) anyStep(t *rapid.T, name string) int {
	fits := func(s *Step) bool {
		switch name {
		case "claim":
			return s.Phase == perdure.Ready
		case "due":
			return s.Phase == perdure.Waiting && !s.AvailableAt.IsZero()
		case "resume step":
			return s.Phase == perdure.Parked
		case "settle as done", "settle as done with output", "settle as undone", "skip", "edit", "edit with a new key":
			return s.Phase != perdure.Settled
		case "doubled report", "late or second answer":
			return s.Run > 0
		}
		return s.Phase == perdure.Running
	}
	var steps []int
	for i, s := range x.steps {
		if fits(s) {
			steps = append(steps, i)
		}
	}
	if len(steps) == 0 {
		return rapid.IntRange(0, len(x.steps)-1).Draw(t, "step")
	}
	return rapid.SampledFrom(steps).Draw(t, "step")
}

// same says how two worlds differ. In which order one event has raised alerts and written history depends on
// the order in which rows were loaded.
func (x *explored) same(y *explored) string {
	d := differ(x.job, y.job) + differ(x.kept, y.kept) + differ(inOrder(x.alerts), inOrder(y.alerts)) + differ(inOrder(x.past), inOrder(y.past))
	for i := range x.steps {
		if *x.steps[i] != *y.steps[i] {
			d += cmp.Diff(x.steps[i], y.steps[i])
		}
	}
	return d
}

func inOrder[T any](all []T) []T {
	return slices.SortedFunc(slices.Values(all), func(a, b T) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
}

func differ(a, b any) string {
	if reflect.DeepEqual(a, b) {
		return ""
	}
	return cmp.Diff(a, b)
}

// toRest is L1: from here on nothing fails, persons let go what is parked, and the job comes to its end.
func (x *explored) toRest(t *rapid.T) {
	for range 40 * (len(x.steps) + 5) {
		switch moved := x.allGoesWell(); {
		case x.job.Phase == perdure.Settled:
			return
		case moved:
		case x.job.Phase == perdure.Parked:
			x.lend(t)
		default:
			at, ok := x.next()
			if !ok {
				t.Fatalf("nothing will look at the job again")
			}
			x.now = at
		}
	}
	t.Fatalf("the job does not come to its end: %s, desired %s, %s, %d unsettled", x.job.Current, x.job.Desired, x.job.Phase, x.job.Unsettled)
}

func (x *explored) allGoesWell() (moved bool) {
	play := func(name string, i int, is func(*explored, int) bool) {
		if is(x, i) {
			h := happenings[slices.IndexFunc(happenings, func(h happening) bool { return h.name == name })]
			moved = h.try(x, i) || moved
			x.truthful()
		}
	}
	play("overdue", -1, isOverdue)
	for i := range x.steps {
		play("expired", i, hasLapsed)
		play("due", i, isDue)
		play("claim", i, isReady)
		play("done", i, isOut)
	}
	return moved
}

// lend is a person's hand: what waits for approval is approved, what is parked is skipped or settled.
func (x *explored) lend(t *rapid.T) {
	for i, s := range x.steps {
		verb := "settle as done"
		if s.Phase == perdure.Parked && s.nextDirection() == perdure.Undo {
			verb = "settle as undone"
		}
		if s.Phase == perdure.Parked || s.Phase == perdure.Waiting && s.Blockers == 0 && s.AvailableAt.IsZero() {
			h := happenings[slices.IndexFunc(happenings, func(h happening) bool { return h.name == verb })]
			if !h.try(x, i) {
				t.Fatalf("%s of %s does nothing", verb, s.Name)
			}
			return
		}
	}
	t.Fatalf("parked, and there is nothing for a person to do")
}
