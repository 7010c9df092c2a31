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

// Random events on random jobs that are too large to try every order. Every event is played twice: with the whole job
// loaded, and with only those rows that the rules request. The results must be equal.

// randomJob draws a job of up to a few hundred steps, each after some of the earlier ones.
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

func TestPropertyRandomJobsKeepInvariants(tb *testing.T) { // I3 to I12, L1
	rapid.Check(tb, func(t *rapid.T) {
		text := randomJob(t)
		x := &explored{world: *newWorld(rapidTB{tb, t}, text)}
		x.submitPlan()
		x.receivers = make([]receiverState, len(x.steps))
		for i := range x.receivers {
			x.receivers[i].possible = maybeUndone
		}
		for range rapid.IntRange(1, 200).Draw(t, "events") {
			x.randomEvent(t)
		}
		x.runToSettled(t)
	})
}

// rapidTB lets a world fail a rapid check.
type rapidTB struct {
	testing.TB
	t *rapid.T
}

func (in rapidTB) Helper()                           {}
func (in rapidTB) Fatalf(format string, args ...any) { in.t.Fatalf(format, args...) }
func (in rapidTB) Fatal(args ...any)                 { in.t.Fatal(args...) }

// randomEvent draws an event that may change something, and plays it both ways.
func (x *explored) randomEvent(t *rapid.T) {
	names := []string{"claim", "claim", "claim", "done", "done", "done with output", "done with a bad output", "failed", "failed without effect",
		"rejected", "returned", "cut short", "doubled report", "late or second answer", "heartbeat", "expired", "holder lost", "due", "due", "overdue", "time",
		"undo", "redo", "resume", "resume step", "settle as done", "settle as done with output", "settle as undone", "skip", "edit", "edit with a new key", "give up"}
	name := rapid.SampledFrom(names).Draw(t, "event")
	h := eventKinds[slices.IndexFunc(eventKinds, func(h eventKind) bool { return h.name == name })]
	step := -1
	if h.ofStep {
		step = x.drawStep(t, name)
	}
	before, receivers := x.world, slices.Clone(x.receivers)
	other := explored{world: x.world, receivers: slices.Clone(x.receivers)}
	other.loadOnDemand = true
	applied := h.try(x, step)
	if also := h.try(&other, step); also != applied || other.difference(x) != "" {
		t.Fatalf("%s %d: another result with only the requested rows loaded: %v and %v\n%s", name, step, applied, also, other.difference(x))
	}
	if !applied && x.difference(&explored{world: before, receivers: receivers}) != "" {
		t.Fatalf("%s %d was refused, but changed something", name, step)
	}
	x.checkSettledUnchanged(&before, name)
	x.checkCurrent()
	x.checkReasons()
	x.checkRecords()
	for _, f := range CheckJob(x.job, x.plan, x.steps, x.alerts, x.now) {
		t.Fatalf("after %s %d: %s: step %q: %s", name, step, f.Rule, f.Step, f.Message)
	}
}

// drawStep draws a step, if possible one that the event can change.
func (x *explored) drawStep(t *rapid.T, name string) int {
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

// difference returns how two worlds differ. The order of alerts and history entries of one event is ignored, because it
// depends on the order in which rows were loaded.
func (x *explored) difference(y *explored) string {
	d := differ(x.job, y.job) + differ(x.kept, y.kept) + differ(inOrder(x.alerts), inOrder(y.alerts)) + differ(inOrder(x.history), inOrder(y.history))
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

// runToSettled checks L1: if nothing fails any more and an operator handles what is parked, the job becomes settled.
func (x *explored) runToSettled(t *rapid.T) {
	for range 40 * (len(x.steps) + 5) {
		switch progressed := x.succeedAll(); {
		case x.job.Phase == perdure.Settled:
			return
		case progressed:
		case x.job.Phase == perdure.Parked:
			x.actAsOperator(t)
		default:
			at, ok := x.nextTime()
			if !ok {
				t.Fatalf("nothing will move the job on")
			}
			x.now = at
		}
	}
	t.Fatalf("the job does not become settled: %s, desired %s, %s, %d unsettled", x.job.Current, x.job.Desired, x.job.Phase, x.job.Unsettled)
}

func (x *explored) succeedAll() (progressed bool) {
	play := func(name string, i int, applies func(*explored, int) bool) {
		if applies(x, i) {
			h := eventKinds[slices.IndexFunc(eventKinds, func(h eventKind) bool { return h.name == name })]
			progressed = h.try(x, i) || progressed
			x.checkCurrent()
		}
	}
	play("overdue", -1, isOverdue)
	for i := range x.steps {
		play("expired", i, hasExpired)
		play("due", i, isDue)
		play("claim", i, isReady)
		play("done", i, isInFlight)
	}
	return progressed
}

// actAsOperator approves a step that waits for approval, or settles one that is parked.
func (x *explored) actAsOperator(t *rapid.T) {
	for i, s := range x.steps {
		verb := "settle as done"
		if s.Phase == perdure.Parked && s.nextDirection() == perdure.Undo {
			verb = "settle as undone"
		}
		if s.Phase == perdure.Parked || s.Phase == perdure.Waiting && s.Blockers == 0 && s.AvailableAt.IsZero() {
			h := eventKinds[slices.IndexFunc(eventKinds, func(h eventKind) bool { return h.name == verb })]
			if !h.try(x, i) {
				t.Fatalf("%s of %s changed nothing", verb, s.Name)
			}
			return
		}
	}
	t.Fatalf("parked, but an operator can do nothing")
}
