package kernel

import (
	"time"

	"github.com/perdure/perdure"
)

// What the supervisor asks to be looked at again: every unsettled step has a time, a neighbour, a
// limit or an open alert that will move it, and these are the times.

// Due looks at a step whose time to wait is over.
func (w *Workset) Due(ref StepRef) bool {
	if !w.IsDue(ref) {
		return false
	}
	e := w.entry(ref.Job)
	w.enqueue(e, taskAdvance, ref.Index)
	w.finishEvent(e)
	return true
}

// IsDue reports whether a step waits for a time that has come.
func (w *Workset) IsDue(ref StepRef) bool {
	s := w.Step(ref)
	return s != nil && s.Phase == perdure.Waiting && !s.AvailableAt.IsZero() && !w.now.Before(s.AvailableAt)
}

// Cause is why a run expired.
type Cause string

const (
	CauseTime Cause = "expired" // its lock has passed
	CauseLost Cause = "lost"    // its holder is known to be dead
)

// Expire ends a run that nobody reported on: a failure, and the step stays unsure. Where the holder
// is dead before its time, a run in the other direction still waits for the old lock.
func (w *Workset) Expire(ref StepRef, holder string, cause Cause) bool {
	e := w.entry(ref.Job)
	r := e.steps.at(ref.Index)
	if r.Phase != perdure.Running {
		return false
	}
	passed := !w.now.Before(r.LockedUntil)
	if cause == CauseTime && !passed || cause == CauseLost && r.LockedBy != holder {
		return false
	}
	f, author := w.expireRun(r, cause)
	w.fail(e, r, f, author)
	w.finishEvent(e)
	return true
}

// lapse ends a run that nobody reported on. Where its holder died before its time, the lock outlives it.
func (w *Workset) expireRun(r *row, cause Cause) (f failure, holder string) {
	f = failure{event: "expired", code: string(cause), message: "no report before its lock passed"}
	until, holder := r.LockedUntil, r.LockedBy
	w.endRun(r, perdure.OutcomeExpired)
	if cause == CauseLost {
		f.message = "its holder died"
	}
	if w.now.Before(until) && r.LockedUntil.Before(until) {
		r.LockedUntil = until
	}
	return f, holder
}

// OverdueNow acts on a job whose own deadline has passed, once: on the way to done the job's policy
// turns it back or parks it, on the way back an alert tells.
func (w *Workset) OverdueNow(id perdure.JobID) bool {
	e := w.entry(id)
	j := e.job
	if j.Overdue || j.AtRest() || j.CompleteBy.IsZero() || w.now.Before(j.CompleteBy) {
		return false
	}
	j.Overdue, e.dirty = true, true
	back := ladderHas(e.plan.Definition.OnFailure, RungUndo)
	w.addHistory(e, "", 0, "overdue", policyAuthor, "completeWithin "+e.plan.Definition.CompleteWithin.String()+" has passed")
	switch {
	case j.Desired == perdure.Undone:
		if back {
			j.Then = false // it was to be done again: too late for that
		}
		w.raiseAlert(e, "", perdure.AlertOverdue, "", "the job's completeWithin passed while it is being undone")
	case back:
		w.raiseAlert(e, "", perdure.AlertUndo, "", "the job is undone: its completeWithin has passed")
		w.enqueueFlip(e, flip{to: perdure.Undone, kind: flipByPolicy, by: policyAuthor})
	default:
		w.raiseAlert(e, "", perdure.AlertParked, "", "the job's completeWithin has passed; resume gives it that long again")
		w.enqueue(e, taskParkActive, 0)
	}
	w.finishEvent(e)
	return true
}

// halt parks what would move by itself. The job's alert says why.
func (w *Workset) parkActive(e *entry) {
	for i := range e.plan.Steps {
		r := e.steps.at(i)
		if !r.active() {
			continue
		}
		if e.plan.Steps[i].Form == ByApproval && !r.StartedAt.IsZero() { // resumed, it asks anew
			r.StartedAt = time.Time{}
			w.closeAlerts(e, r.Name, policyAuthor, perdure.AlertApproval)
		}
		w.park(e, r, "")
	}
}

func ladderHas(l Ladder, kind RungKind) bool {
	for _, r := range l {
		if r.Kind == kind {
			return true
		}
	}
	return false
}
