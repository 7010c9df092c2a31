package kernel

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// ReportRefs appends the steps that a report on a step concerns: the step, and those that wait for it.
func (w *Workset) ReportRefs(refs []StepRef, ref StepRef) []StepRef {
	e := w.entry(ref.Job)
	refs = append(refs, ref)
	for _, i := range e.plan.opens(ref.Index, e.job.Desired) {
		refs = append(refs, StepRef{ref.Job, i})
	}
	return refs
}

// Report applies an agent's report. A report that does not come from the holder of the current run, or comes after its
// lock has ended, changes nothing; the result gives the reason.
func (w *Workset) Report(ref StepRef, holder string, rep *protocol.Report) protocol.ReportResult {
	e := w.entry(ref.Job)
	r := e.steps.at(ref.Index)
	rep, unfit := w.checkOutput(e, r, rep)
	if refusal, repeated := w.checkRun(r, holder, rep.Run, rep.Outcome); refusal != nil {
		return *refusal
	} else if repeated {
		return protocol.ReportResult{Accepted: true}
	}
	f := failure{}
	stopped := !r.StopRequestedAt.IsZero()
	if rep.Outcome != perdure.OutcomeDone {
		f = w.failureOf(e, r, rep)
		f.final = f.final || unfit
	}
	w.endRun(r, rep.Outcome, f.code)
	switch rep.Outcome {
	case perdure.OutcomeDone:
		r.Current = r.Direction.Pole()
		r.ErrorCode, r.LastError = "", ""
		if r.Direction == perdure.Do {
			w.setOutput(r, meaningful(rep.Output))
		}
		if r.Current != r.Desired {
			r.resetLadder() // the step changes direction
		}
		w.advanceAfterRun(e, r)
	case perdure.OutcomeReturned:
		if !stopped {
			w.returnRun(e, r, holder, rep)
			break
		}
		// The stop came before the start, or together with a drain. It counts all the same: otherwise the step would be
		// dispatched again at once.
		if rep.Effect != protocol.EffectUnknown {
			r.Current = r.CurrentBeforeRun
		}
		w.fail(e, r, f, holder)
	default:
		if rep.Effect == protocol.EffectNone {
			r.Current = r.CurrentBeforeRun
		}
		w.fail(e, r, f, holder)
	}
	w.finishEvent(e)
	return protocol.ReportResult{Accepted: true}
}

// OutcomeAfterIndeterminateCommit returns the answer to a report that is applied again because the commit of an earlier
// attempt has an unknown outcome (F063). attempts are the times of the earlier transactions, lost is the answer of the
// latest of them, and again is the answer now. If the step has been dispatched since, again is stale, and only the
// step's row tells whether the earlier commit took place. It did if one of the attempts made the step ready, or if the
// step has changed direction since it was reported done. A failure that shows neither stays stale: nothing was lost with
// it.
func OutcomeAfterIndeterminateCommit(s *Step, rep *protocol.Report, attempts []time.Time, lost, repeated protocol.ReportResult) protocol.ReportResult {
	redispatched := rep.Outcome == perdure.OutcomeDone && s.Run == rep.Run+1 && s.CurrentBeforeRun != perdure.Unsure && s.CurrentBeforeRun != s.Direction.Pole()
	if repeated.Reason == protocol.RefusedStale && lost.Accepted && (redispatched || slices.ContainsFunc(attempts, s.ReadyAt.Equal)) {
		return lost
	}
	return repeated
}

// checkRun returns a refusal unless run is the current run of the step and its lock has not ended. repeated means that
// the same outcome was accepted before.
func (w *Workset) checkRun(r *row, holder string, run int64, outcome perdure.Outcome) (refusal *protocol.ReportResult, repeated bool) {
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
		return deny(protocol.RefusedConflict, "run %d of step %s was reported before, as %s", run, r.Name, r.Outcome)
	case r.LockedBy != holder:
		return deny(protocol.RefusedForbidden, "run %d of step %s is held by another holder", run, r.Name)
	case !w.now.Before(r.LockedUntil):
		return deny(protocol.RefusedLate, "the lock of run %d of step %s by %s ended at %s", run, r.Name, holder, r.LockedUntil.Format(time.RFC3339Nano))
	}
	return nil, false
}

// endRun ends a run and its lock. If an earlier holder died before its lock ended, the step keeps the end of that lock
// (kept in AvailableAt while the step runs), because that run may still act.
func (w *Workset) endRun(r *row, o perdure.Outcome, code string) {
	w.runEnds = append(w.runEnds, RunEnd{Job: r.Job, Type: r.Type, Step: r.Name, Run: r.Run, Turn: cmp.Or(r.turnOfRun, r.Turn), Agent: r.Agent, Holder: r.LockedBy, Direction: r.Direction, Outcome: o, Code: code, Duration: w.now.Sub(r.StartedAt)})
	for _, n := range r.Needs.List() { // it runs, so that none of its job is among them
		w.releasedKeys = append(w.releasedKeys, n.LimitKey)
	}
	r.Outcome, r.EndedAt = o, w.now
	r.LockedBy, r.Request, r.Heartbeat, r.StopRequestedAt = "", "", 0, time.Time{}
	r.CompleteBy, r.LockedUntil = time.Time{}, r.AvailableAt
	r.dirty = true
}

// advanceAfterRun advances a step whose run has ended.
func (w *Workset) advanceAfterRun(e *entry, r *row) {
	w.setPhase(e, r, perdure.Waiting, time.Time{})
	w.enqueue(e, taskAdvance, r.Index)
}

const (
	freeReturns   = 2 // after more returned runs in a row, the step is dispatched with a delay
	returnBackoff = time.Second
	maxReturnWait = time.Minute
)

// returnRun handles a run that was not started, or that a drain cut short. It does not count as a failure.
func (w *Workset) returnRun(e *entry, r *row, holder string, rep *protocol.Report) {
	if rep.Effect != protocol.EffectUnknown {
		r.Current = r.CurrentBeforeRun
	}
	w.addRun(e, r, "returned", holder, errorText(rep.Error))
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

// Heartbeat applies a heartbeat. It moves the end of the lock, never past the deadline. A lock that has ended is not renewed.
func (w *Workset) Heartbeat(ref StepRef, holder string, b *protocol.Heartbeat) protocol.HeartbeatResult {
	e := w.entry(ref.Job)
	r := e.steps.at(ref.Index)
	res := protocol.HeartbeatResult{Job: b.Job, Step: b.Step, Run: b.Run}
	if refusal, _ := w.checkRun(r, holder, b.Run, perdure.NoOutcome); refusal != nil {
		res.Stop, res.Reason = true, string(refusal.Reason)
		return res
	}
	ps := &e.plan.Steps[r.Index]
	if len(b.Progress) > 0 && r.Progress != string(b.Progress) {
		r.Progress, r.ProgressAt, r.dirty = string(b.Progress), w.now, true
	}
	if until := r.lockEnd(w.now, ps); until.After(r.LockedUntil) {
		r.LockedUntil, r.dirty = until, true
	}
	res.LockedUntil, res.RemainingMs = r.LockedUntil, r.LockedUntil.Sub(w.now).Milliseconds()
	res.Reason = r.stopReason(w.now, ps)
	res.Stop = res.Reason != ""
	return res
}

// stopReason returns why a run in flight should stop; "" if it should not.
func (s *Step) stopReason(now time.Time, ps *PlanStep) string {
	switch {
	case s.mustReverse():
		return protocol.StopUndo
	case !s.StopRequestedAt.IsZero():
		return protocol.StopOperator
	case s.stalled(now, ps):
		return protocol.StopStalled
	}
	return ""
}

const (
	codeStopped = "stopped" // the code of an agent for a run that was to stop
	codeStalled = "stalled"
	codeTimeout = "timeout" // of exec
)

// failureOf returns the failure that a report tells of. The code says why the run was to stop, if it was: an agent
// need not know the reasons.
func (w *Workset) failureOf(e *entry, r *row, rep *protocol.Report) failure {
	f := failureOf(rep)
	switch stop := r.stopReason(w.now, &e.plan.Steps[r.Index]); {
	case stop == protocol.StopOperator:
		f.code, f.message = codeStopped, because("stopped by an operator", f.message)
	case stop == protocol.StopStalled && (f.code == codeStopped || f.code == codeTimeout && r.LockedUntil.Before(r.CompleteBy)):
		f.code, f.message = codeStalled, because(stalledText(&e.plan.Steps[r.Index]), f.message)
	}
	return f
}

// because returns the message of a run that was stopped for this reason. An agent, which need not know the reason, may have
// said that it was stopped.
func because(reason, message string) string {
	if message == "" || message == codeStopped {
		return reason
	}
	return reason + ": " + strings.TrimPrefix(message, codeStopped+": ")
}

// meaningful returns b; nil if b is empty or null.
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
