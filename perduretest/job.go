package perduretest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
)

type rawJSON = json.RawMessage

// Job is a job of this world.
type Job struct {
	w  *World
	ID perdure.JobID
}

// View returns the job as it is now.
func (j *Job) View() *perdure.JobView {
	j.w.Helper()
	v, err := j.w.node.Job(j.w.ctx, j.ID.String(), 0)
	if err != nil {
		j.w.Fatal(err)
	}
	return v
}

// Rest waits until the job is settled or parked.
func (j *Job) Rest() *perdure.JobView {
	j.w.Helper()
	wait := time.Duration(0) // first without waiting: a job whose agents nothing carries is not waited for
	for until := time.Now().Add(j.w.Patience); ; wait = perdure.MaxJobWait {
		v, err := j.w.node.Job(j.w.ctx, j.ID.String(), wait)
		if err != nil {
			j.w.Fatal(err)
		}
		if v.AtRest() {
			return v
		}
		j.stuck(v, wait > 0)
		if time.Now().After(until) {
			j.w.Fatalf("neither settled nor parked after %v:\n%s", j.w.Patience, Describe(v))
		}
	}
}

// stuck fails the test if all unsettled steps of the job wait for agents that no process of this world runs, or, after a wait,
// for children that are parked.
func (j *Job) stuck(v *perdure.JobView, waited bool) {
	j.w.Helper()
	if !v.CompleteBy.IsZero() {
		return // its own deadline will pass
	}
	var lonely *perdure.StepView
	for i := range v.Steps {
		switch s := &v.Steps[i]; {
		case s.Phase == perdure.Settled || s.Why != nil && s.Why.Kind == perdure.WhyAfterSteps:
		case s.Why != nil && s.Why.Kind == perdure.WhyNoAgent && !j.w.carries(s.Why.Agent):
			lonely = s
		case waited && s.Why != nil && s.Why.Kind == perdure.WhyChildren && s.Why.Children.Parked > 0 && s.Why.Children.Active == 0:
			lonely = s
		default:
			return // it may still change
		}
	}
	if lonely != nil && lonely.Why.Kind == perdure.WhyChildren {
		j.w.Fatalf("step %s waits for children that are parked: act on them (Children), or let their job end otherwise (onFailure)\n%s", lonely.Name, Describe(v))
	}
	if lonely != nil {
		j.w.Fatalf("step %s waits for agent %s, which this test does not carry: pass it to w.Carry before this, or make a w.Fake(%[2]q)\n%[3]s",
			lonely.Name, lonely.Why.Agent, Describe(v))
	}
}

// Done waits until the job is settled or parked, and fails the test unless all of its steps are done.
func (j *Job) Done() *perdure.JobView { j.w.Helper(); return j.ends(perdure.Done) }

// Undone waits until the job is settled or parked, and fails the test unless all of its steps are undone.
func (j *Job) Undone() *perdure.JobView { j.w.Helper(); return j.ends(perdure.Undone) }

func (j *Job) ends(as perdure.State) *perdure.JobView {
	j.w.Helper()
	v := j.Rest()
	if v.Phase != perdure.Settled || v.Current != as {
		j.w.Fatalf("not %s:\n%s", as, Describe(v))
	}
	return v
}

// Parked waits until the job is settled or parked, and fails the test unless exactly these steps are parked.
func (j *Job) Parked(steps ...string) *perdure.JobView {
	j.w.Helper()
	v := j.Rest()
	var parked []string
	for _, s := range v.Steps {
		if s.Phase == perdure.Parked {
			parked = append(parked, s.Name)
		}
	}
	slices.Sort(parked)
	if want := slices.Sorted(slices.Values(steps)); !slices.Equal(parked, want) {
		j.w.Fatalf("parked are %v, want %v:\n%s", parked, want, Describe(v))
	}
	return v
}

// Undo requests that the job be undone.
func (j *Job) Undo() *Job { j.w.Helper(); return j.Act(perdure.Act{Verb: perdure.VerbUndo}) }

// Redo requests that the job be done again.
func (j *Job) Redo() *Job { j.w.Helper(); return j.Act(perdure.Act{Verb: perdure.VerbRedo}) }

// Resume resumes the parked steps.
func (j *Job) Resume() *Job { j.w.Helper(); return j.Act(perdure.Act{Verb: perdure.VerbResume}) }

// Act performs any act of an operator.
func (j *Job) Act(act perdure.Act) *Job {
	j.w.Helper()
	if act.Author == "" {
		act.Author = "the test"
	}
	if _, err := j.w.node.Act(j.w.ctx, j.ID.String(), act); err != nil {
		j.w.Fatal(err)
	}
	return j
}

// Until waits until the step is in that phase.
func (j *Job) Until(step string, phase perdure.Phase) *perdure.StepView {
	j.w.Helper()
	for until := time.Now().Add(j.w.Patience); ; time.Sleep(10 * time.Millisecond) {
		v := j.View()
		s := v.Steps.Get(step)
		switch {
		case s == nil:
			j.w.Fatalf("there is no step %q:\n%s", step, Describe(v))
		case s.Phase == phase:
			return s
		case time.Now().After(until):
			j.w.Fatalf("step %s is not %s after %v:\n%s", step, phase, j.w.Patience, Describe(v))
		}
		j.stuck(v, false)
	}
}

// Children returns the child jobs of a step that exist, in the order of the items.
func (j *Job) Children(step string) []*Job {
	j.w.Helper()
	var all []*Job
	for v, err := range perdure.All(j.w.ctx, j.w.node, perdure.JobQuery{Parent: j.ID.String() + "/" + step, OldestFirst: true, Limit: perdure.MaxListLimit}) {
		if err != nil {
			j.w.Fatal(err)
		}
		all = append(all, &Job{w: j.w, ID: v.ID})
	}
	return all
}

// Describe returns the state of a job, with a line for each step.
func Describe(v *perdure.JobView) string {
	var b strings.Builder
	fmt.Fprintf(&b, "job %s: %s, wanted %s, %s\n", v.ID, v.Current, v.Desired, v.Phase)
	for _, s := range v.Steps {
		fmt.Fprintf(&b, "  %s: %s, wanted %s, %s, run %d, %d failures", s.Name, s.Current, s.Desired, s.Phase, s.Run, s.Failures)
		if s.LastError != nil {
			fmt.Fprintf(&b, ", %s", s.LastError.Message)
		}
		if s.Why != nil {
			fmt.Fprintf(&b, " (%s)", s.Why.Kind)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
