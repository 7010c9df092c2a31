package kernel

import (
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// The events in this file come from the supervisor. Every step that is not settled waits for a time, a neighbour, a
// limit, an agent or an operator; the supervisor finds those whose time has come.

// Due advances a step whose wait is over. It returns false if the step is not due.
func (w *Workset) Due(ref StepRef) bool {
	e := w.entry(ref.Job)
	switch {
	case w.IsDue(ref):
		w.enqueue(e, taskAdvance, ref.Index)
	case w.IsOwner(ref): // it has news
		delete(w.ownersMoved, ref)
		w.enqueue(e, taskTend, ref.Index)
	default:
		return false
	}
	w.finishEvent(e)
	return true
}

// IsDue reports whether a step waits for a time that has come.
func (w *Workset) IsDue(ref StepRef) bool {
	s := w.Step(ref)
	return s != nil && s.Phase == perdure.Waiting && !s.AvailableAt.IsZero() && !w.now.Before(s.AvailableAt)
}

// Cause is the reason why a run expired.
type Cause string

const (
	CauseTime Cause = "expired" // its lock has ended; the code is stalled if it ended because the run made no progress
	CauseLost Cause = "lost"    // its holder is known to be dead, or to have lost it; see Unlisted
)

// Expire ends a run that was not reported. It counts as a failure, and the step stays unsure. If the holder died before
// the lock ended, a later run in the other direction waits until the end of the old lock. Expire returns false if the
// run has not expired.
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
	f, author := w.expireRun(e, r, cause)
	w.fail(e, r, f, author)
	w.finishEvent(e)
	return true
}

// expireRun ends a run that was not reported. If its holder died before the end of the lock, the step keeps the time of
// the lock.
func (w *Workset) expireRun(e *entry, r *row, cause Cause) (f failure, holder string) {
	f = failure{event: "expired", code: string(cause), message: noReport}
	until, holder := r.LockedUntil, r.LockedBy
	ps := &e.plan.Steps[r.Index]
	switch end := r.progressEnd(ps); {
	case cause != CauseTime:
	case !end.IsZero() && !until.Before(end) && until.Before(r.CompleteBy):
		f.code, f.message = codeStalled, stalledText(ps)
	case until.Before(r.CompleteBy):
	case r.Agent == AgentExec: // a host ends the command by then, also while it reaches no node
		f.code, f.message = codeTimeout, "stopped after "+deadlineText(r)+"; its host has not reported how it ended"
	default:
		f.message = "no report within " + deadlineText(r)
	}
	host := HostOfHolder(holder)
	w.endRun(r, perdure.OutcomeExpired, f.code)
	switch {
	case cause == CauseLost && host != "":
		f.message = "host " + host + " has lost the run: its command may have run"
	case cause == CauseLost:
		f.message = "its holder died or has lost it"
	case host != "" && f.message == noReport:
		f.message = "host " + host + " was not heard of any more: its command may have run"
	}
	if w.now.Before(until) && r.LockedUntil.Before(until) {
		r.LockedUntil = until
	}
	return f, holder
}

// noReport is the failure of a run whose holder was not heard of any more.
const noReport = "no report before its lock passed"

// deadlineText names the deadline of a run.
func deadlineText(r *row) string {
	return fmt.Sprintf("completeWithin (%s)", span(r.CompleteBy.Sub(r.StartedAt)))
}

// stalledText says why a run was stopped that has made no progress.
func stalledText(ps *PlanStep) string {
	return fmt.Sprintf("no progress for %s (progressWithin)", ps.ProgressWithin)
}

// ExpireJob acts on a job whose deadline has passed, once. A job that is being done is undone or parked, as its policy
// says. A job that is being undone goes on, and an alert is raised. If no run was dispatched within startWithin, see
// failLateStart. ExpireJob returns false if there is nothing to do.
func (w *Workset) ExpireJob(id perdure.JobID) bool {
	e := w.entry(id)
	j := e.job
	if j.startsTooLate(w.now) && !j.AtRest() {
		w.failLateStart(e)
		w.finishEvent(e)
		return true
	}
	if j.Overdue || j.AtRest() || j.CompleteBy.IsZero() || w.now.Before(j.CompleteBy) {
		return false
	}
	j.Overdue, j.StartBy, e.dirty = true, time.Time{}, true
	undoes := ladderHas(e.plan.Definition.OnFailure, RungUndo)
	w.addHistory(e, "", 0, "overdue", policyAuthor, "completeWithin "+e.plan.Definition.CompleteWithin.String()+" has passed")
	switch {
	case j.Desired == perdure.Undone:
		if undoes {
			j.RestartPending = false // a restart is not redone after the deadline
		}
		w.raiseAlert(e, nil, perdure.AlertOverdue, "", "the job's completeWithin passed while it is being undone")
	case undoes:
		w.raiseAlert(e, nil, perdure.AlertUndo, "", "the job is undone: its completeWithin has passed")
		w.enqueueFlip(e, flip{to: perdure.Undone, kind: flipByPolicy, by: policyAuthor})
	default:
		w.raiseAlert(e, nil, perdure.AlertParked, "", "the job's completeWithin has passed; resume gives it that long again")
		w.enqueue(e, taskParkActive, 0)
	}
	w.finishEvent(e)
	return true
}

// parkActive parks all steps that would move on without an operator. The job's alert gives the reason. f is the failure of
// these steps; without a code they have none.
func (w *Workset) parkActive(e *entry, f failure) {
	for i := range e.plan.Steps {
		r := e.steps.at(i)
		if !r.active() {
			continue
		}
		if f.code != "" {
			w.setError(r, f)
		}
		if form := e.plan.Steps[i].Form; (form == ByApproval || form == BySignal) && !r.StartedAt.IsZero() { // when it is resumed, it waits again
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

// Unlisted returns those of the steps whose runs a complete heartbeat of the holder proves to be lost.
//
// The heartbeat may arrive late, and its holder may send several claims at the same time. So a run that is not listed is
// lost only if the holder must have received it when it sent the heartbeat. The run was dispatched before AsOf, which the
// holder had then received: so its claim was sent before the heartbeat, and was either answered or is in OpenClaims.
func Unlisted(steps []*Step, c *protocol.CompleteHeartbeat) (lost []*Step) {
	type run struct {
		job  perdure.JobID
		step string
		run  int64
	}
	listed := make(map[run]bool, len(c.Runs))
	for i := range c.Runs {
		listed[run{c.Runs[i].Job, c.Runs[i].Step, c.Runs[i].Run}] = true
	}
	for _, s := range steps {
		held := s.Phase == perdure.Running && s.LockedBy == c.Holder
		if held && !listed[run{s.Job, s.Name, s.Run}] && s.StartedAt.Before(c.AsOf) && !slices.Contains(c.OpenClaims, s.Request) {
			lost = append(lost, s)
		}
	}
	return lost
}
