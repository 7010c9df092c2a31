package sim

import (
	"errors"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// ledger is the resource on which all agents act. It deduplicates by key and refuses a run with a lower number than it
// has seen, as docs/reliability.md demands of a resource. It records requests that no resource must ever receive (I5,
// I9, I10).
type ledger struct {
	w       *world
	effects map[perdure.JobID]map[string]*effect
}

// effect is what the resource has recorded of a step.
type effect struct {
	fence  int64 // the highest run number seen
	exists bool  // the effect exists now
	key    string
	undone map[string]bool // keys whose effect was undone, or never happened
	acted  map[string]int  // how often each key has had an effect
	hand   bool            // an operator has settled the step in a state that is not the real one: no check applies afterwards
}

func (l *ledger) of(job perdure.JobID, step string) *effect {
	steps := l.effects[job]
	if steps == nil {
		steps = map[string]*effect{}
		l.effects[job] = steps
	}
	e := steps[step]
	if e == nil {
		e = &effect{undone: map[string]bool{}, acted: map[string]int{}}
		steps[step] = e
	}
	return e
}

var errFenced = errors.New("a newer run has been here")

// act applies the effect once per key, or undoes it.
func (l *ledger) act(run *perdure.Run) error {
	e := l.of(run.Job, run.Step)
	if run.Number < e.fence {
		l.w.hit("F025", "F040")
		if run.Direction == perdure.Do && e.undone[run.Key] {
			l.w.hit("F091")
		}
		return errFenced
	}
	e.fence = run.Number
	if run.Direction == perdure.Undo {
		l.undo(e, run)
		return nil
	}
	switch {
	case e.hand:
	case e.undone[run.Key]:
		l.w.wrong("I10", "%s/%s is done under key %s, which was undone", run.Job, run.Step, run.Key)
	case e.exists && e.key != run.Key:
		l.w.wrong("I5", "%s/%s has an effect under %s, and gets one under %s", run.Job, run.Step, e.key, run.Key)
	}
	l.inOrder(run)
	if e.exists {
		l.w.hit("F036")
		return nil
	}
	e.exists, e.key = true, run.Key
	if e.acted[run.Key]++; e.acted[run.Key] > 1 && !e.hand {
		l.w.wrong("I5", "%s/%s has a second effect under %s", run.Job, run.Step, run.Key)
	}
	return nil
}

func (l *ledger) undo(e *effect, run *perdure.Run) {
	if e.undone[run.DoKey] {
		l.w.hit("F092")
	}
	if e.exists && e.key != run.DoKey && !e.hand {
		l.w.wrong("I10", "%s/%s was done under %s, and is undone under %s", run.Job, run.Step, e.key, run.DoKey)
	}
	plan := l.w.plan(run.Job)
	for _, i := range plan.Steps[plan.Index[run.Step]].Before {
		later := &plan.Steps[i]
		if o := l.of(run.Job, later.Name); o.exists && later.Undo != nil && !o.hand && !e.hand {
			l.w.wrong("I10", "%s/%s is undone before %s, which came after it", run.Job, run.Step, later.Name)
		}
	}
	if !e.exists && !e.undone[run.DoKey] {
		l.w.hit("F035") // dispatched without an effect: it is undone nevertheless
	}
	e.undone[run.DoKey], e.exists = true, false
}

// inOrder checks that the effect of a valid run comes after those of the steps before it (I9). Steps that were skipped
// when it was dispatched are excepted: they may be done in the meantime if the job has changed direction twice.
func (l *ledger) inOrder(run *perdure.Run) {
	plan, steps := l.w.plan(run.Job), l.w.steps(run.Job)
	i := plan.Index[run.Step]
	if s := steps[i]; s.Run != run.Number || s.Phase != perdure.Running {
		return // the run is over: the fence decides
	}
	for _, b := range plan.Steps[i].After {
		before := &plan.Steps[b]
		if o := l.of(run.Job, before.Name); before.Form == kernel.ByAgent && !o.exists && !o.hand && !steps[b].Skipped &&
			!l.w.book.without[passing{handle{run.Job, run.Step, run.Number}, before.Name}] {
			l.w.wrong("I9", "%s/%s is done before %s", run.Job, run.Step, before.Name)
		}
	}
}

// audit compares the effects with the state of a settled job.
func (l *ledger) audit(j *kernel.Job, plan *kernel.Plan, steps []*kernel.Step) {
	for _, s := range steps {
		e, ps := l.of(j.ID, s.Name), &plan.Steps[s.Index]
		switch {
		case ps.Form != kernel.ByAgent || e.hand || s.GivenUp:
		case s.Run == 0 && (e.fence > 0 || e.exists):
			l.w.wrong("I5", "%s/%s was never dispatched, but has an effect", j.ID, s.Name)
		case s.Current == perdure.Done && !s.Skipped && !e.exists:
			l.w.wrong("I5", "%s/%s is done, and had no effect", j.ID, s.Name)
		case s.Current == perdure.Done && !s.Skipped && s.Direction == perdure.Do && e.key != s.Key():
			l.w.wrong("I4", "%s/%s is done under %s, and its key is %s", j.ID, s.Name, e.key, s.Key())
		case s.Current == perdure.Undone && !s.Skipped && e.exists && ps.Undo != nil:
			l.w.wrong("I10", "%s/%s is undone, and its effect is there", j.ID, s.Name)
		}
		if s.Run == 0 && j.Current == perdure.Undone {
			l.w.hit("F096")
		}
	}
}
