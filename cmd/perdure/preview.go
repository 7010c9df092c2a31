package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

// preview prints what an act would do. It changes nothing: the node of a store is not started.
func (a *app) preview(ctx context.Context, t *target, ref string, act perdure.Act) error {
	act.Author = author()
	p, err := t.Preview(ctx, ref, act)
	if err != nil {
		return err
	}
	if a.json() {
		return a.object(p)
	}
	a.printPreview(p)
	a.talk("%s: nothing was changed (--dry-run)", actName(&act))
	return nil
}

func (a *app) printPreview(p *operate.Preview) {
	job := newTracker(p.Job, p.Job.Desired)
	a.printf("%s %s would be: %s, %s\n", plain(p.Job.Type), job.name(), stateText(a.st, p.Job), job.progress())
	if p.Job.Unchanged {
		a.printf("%s\n", nothingToDo)
		return
	}
	e, left := &p.Effects, operate.EffectCounts{}
	if e.LeftOut != nil {
		left = *e.LeftOut
	}
	tb := a.newTable()
	row := func(what string, steps []string, more int) {
		if len(steps) == 0 {
			return
		}
		text := plain(strings.Join(steps, ", "))
		if more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		tb.row("  "+what, text)
	}
	row("ready to run", e.Dispatch, left.Dispatch)
	row("settled at once", e.Settle, left.Settle)
	row("parked", e.Park, left.Park)
	for i, w := range e.WaitFor {
		if i == maxWaitsShown {
			tb.row("  waits", plural(len(e.WaitFor)+left.WaitFor-i, "more step"))
			break
		}
		text := w.Step
		if s := p.Job.Steps.Get(w.Step); s != nil && s.Why != nil {
			text += ": " + brief(s.Why.Text)
		}
		tb.row("  waits", plain(text))
	}
	row("no undo, effect remains", e.WithoutUndo, left.WithoutUndo)
	later := waitingForSteps(p.Job)
	named := min(len(later), maxLaterShown)
	row("wait for other steps", later[:named], len(later)-named)
	tb.print(a.out)
}

// maxWaitsShown bounds the lines of a preview about steps that wait.
const maxWaitsShown = 10

// maxLaterShown bounds the steps that a preview names as those that come after others.
const maxLaterShown = 20

// waitingForSteps returns the steps that wait for other steps.
func waitingForSteps(v *perdure.JobView) (names []string) {
	for i := range v.Steps {
		if why := v.Steps[i].Why; why != nil && why.Kind == perdure.WhyAfterSteps {
			names = append(names, v.Steps[i].Name)
		}
	}
	return names
}
