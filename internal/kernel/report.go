package kernel

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// ReportRefs adds the steps that a report on the step touches: itself, and those that wait for it.
func (w *Workset) ReportRefs(refs []StepRef, ref StepRef) []StepRef {
	e := w.entry(ref.Job)
	refs = append(refs, ref)
	for _, i := range e.plan.opens(ref.Index, e.job.Desired) {
		refs = append(refs, StepRef{ref.Job, i})
	}
	return refs
}

// Report folds an agent's report in. Anything that does not come from the holder of the current run
// before its lock has passed changes nothing, and says why.
func (w *Workset) Report(ref StepRef, holder string, rep *protocol.Report) protocol.ReportResult {
	e := w.entry(ref.Job)
	r := e.steps.at(ref.Index)
	if refusal, repeated := w.checkRun(r, holder, rep.Run, rep.Outcome); refusal != nil {
		return *refusal
	} else if repeated {
		return protocol.ReportResult{Accepted: true}
	}
	w.endRun(r, rep.Outcome)
	switch rep.Outcome {
	case perdure.OutcomeDone:
		r.Current = r.Direction.Pole()
		r.ErrorCode, r.LastError = "", ""
		if r.Direction == perdure.Do {
			w.setOutput(r, meaningful(rep.Output))
		}
		if r.Current != r.Desired {
			r.resetLadder() // it turns round
		}
		w.advanceAfterRun(e, r)
	case perdure.OutcomeReturned:
		w.returnRun(e, r, holder, rep)
	default:
		if rep.Effect == protocol.EffectNone {
			r.Current = r.Was
		}
		w.fail(e, r, failureOf(rep), holder)
	}
	w.finishEvent(e)
	return protocol.ReportResult{Accepted: true}
}

// OutcomeAfterIndeterminateCommit is the answer to a report that was applied before, in a transaction whose commit has
// an unknown outcome (F063). attempts are the times of these transactions, lost is the answer of the latest, and again
// is the answer now. If the step has been dispatched since, the report is stale now, and only the step's row tells
// whether the commit took place: an attempt made the step ready, or the step has turned from what was reported done.
// A failure that shows neither stays stale: nothing was taken from it.
func OutcomeAfterIndeterminateCommit(s *Step, rep *protocol.Report, attempts []time.Time, lost, again protocol.ReportResult) protocol.ReportResult {
	turned := rep.Outcome == perdure.OutcomeDone && s.Run == rep.Run+1 && s.Was != perdure.Unsure && s.Was != s.Direction.Pole()
	if again.Reason == protocol.RefusedStale && lost.Accepted && (turned || slices.ContainsFunc(attempts, s.ReadyAt.Equal)) {
		return lost
	}
	return again
}

// refuse answers what is not the current run's, or comes late. repeated: it was accepted before.
func (w *Workset) checkRun(r *row, holder string, run int64, outcome perdure.Outcome) (no *protocol.ReportResult, repeated bool) {
	deny := func(why protocol.RefusalReason, format string, args ...any) (*protocol.ReportResult, bool) {
		return &protocol.ReportResult{Reason: why, Message: fmt.Sprintf(format, args...)}, false
	}
	switch {
	case run <= 0 || run > r.Run:
		return deny(protocol.RefusedUnknown, "run %d of step %s was never dispatched", run, r.Name)
	case run < r.Run:
		return deny(protocol.RefusedStale, "run %d of step %s was dispatched after run %d", r.Run, r.Name, run)
	case r.Phase != perdure.Running && r.Outcome == outcome && outcome != perdure.NoOutcome:
		return nil, true
	case r.Phase != perdure.Running && (r.Outcome == perdure.OutcomeExpired || r.Outcome == perdure.NoOutcome):
		return deny(protocol.RefusedLate, "run %d of step %s has expired", run, r.Name)
	case r.Phase != perdure.Running:
		return deny(protocol.RefusedConflict, "run %d of step %s was answered before, with %s", run, r.Name, r.Outcome)
	case r.LockedBy != holder:
		return deny(protocol.RefusedForbidden, "run %d of step %s is held by another holder", run, r.Name)
	case !w.now.Before(r.LockedUntil):
		return deny(protocol.RefusedLate, "run %d of step %s was %s's until %s", run, r.Name, holder, r.LockedUntil.Format(time.RFC3339Nano))
	}
	return nil, false
}

// land ends the run: nobody holds the step any more. An earlier run, whose holder died before its time,
// may still act.
func (w *Workset) endRun(r *row, o perdure.Outcome) {
	w.runEnds = append(w.runEnds, Landing{Agent: r.Agent, Direction: r.Direction, Outcome: o, Took: w.now.Sub(r.StartedAt)})
	for _, n := range r.Needs.List() {
		w.freed = append(w.freed, n.LimitKey)
	}
	r.Outcome, r.EndedAt = o, w.now
	r.LockedBy, r.Request, r.Heartbeat = "", "", 0
	r.CompleteBy, r.LockedUntil = time.Time{}, r.AvailableAt
	r.dirty = true
}

// next looks at a step whose run has ended.
func (w *Workset) advanceAfterRun(e *entry, r *row) {
	w.setPhase(e, r, perdure.Waiting, time.Time{})
	w.enqueue(e, taskAdvance, r.Index)
}

const (
	freeReturns   = 2 // given back more often in a row, a step backs off
	returnBackoff = time.Second
	maxReturnWait = time.Minute
)

// giveBack: the run was never started, or a drain cut it short. No failure is counted.
func (w *Workset) returnRun(e *entry, r *row, holder string, rep *protocol.Report) {
	if rep.Effect != protocol.EffectUnknown {
		r.Current = r.Was
	}
	w.addHistory(e, r.Name, r.Run, "returned", holder, errorText(rep.Error))
	if r.mustReverse() {
		r.resetLadder()
		w.advanceAfterRun(e, r)
		return
	}
	r.Returns++
	if r.Returns > freeReturns {
		w.setPhase(e, r, perdure.Waiting, w.now.Add(w.jitter(returnBackoff, maxReturnWait, r.Returns-freeReturns)))
		return
	}
	w.advanceAfterRun(e, r)
}

// Beat folds a heartbeat in: it moves the lock on, never past the deadline, and never revives.
func (w *Workset) Beat(ref StepRef, holder string, b *protocol.Heartbeat) protocol.HeartbeatResult {
	e := w.entry(ref.Job)
	r := e.steps.at(ref.Index)
	res := protocol.HeartbeatResult{Job: b.Job, Step: b.Step, Run: b.Run}
	if no, _ := w.checkRun(r, holder, b.Run, perdure.NoOutcome); no != nil {
		res.Stop, res.Reason = true, string(no.Reason)
		return res
	}
	if until := r.lockEnd(w.now); until.After(r.LockedUntil) {
		r.LockedUntil, r.dirty = until, true
	}
	if len(b.Progress) > 0 && r.Progress != string(b.Progress) {
		r.Progress, r.dirty = string(b.Progress), true
	}
	res.LockedUntil, res.RemainingMs = r.LockedUntil, r.LockedUntil.Sub(w.now).Milliseconds()
	if r.mustReverse() {
		res.Stop, res.Reason = true, string(perdure.VerbUndo)
	}
	return res
}

// meaningful is b, or nil where it says no more than null.
func meaningful(b []byte) []byte {
	if t := bytes.TrimSpace(b); len(t) == 0 || string(t) == "null" {
		return nil
	}
	return b
}

func errorText(e *perdure.RunError) string {
	switch {
	case e == nil:
		return ""
	case e.Code == "":
		return e.Message
	}
	return e.Code + ": " + e.Message
}
