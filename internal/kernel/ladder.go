package kernel

import (
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/protocol"
)

// policyAuthor is the author of acts that follow from the definition.
const policyAuthor = "policy"

// failure describes a run that did not reach the state that it was dispatched for.
type failure struct {
	event      string // failed, rejected, expired
	code       string
	message    string
	retryAfter time.Duration
	final      bool // do not retry
}

func failureOf(rep *protocol.Report) failure {
	f := failure{event: rep.Outcome.String(), final: rep.Outcome == perdure.OutcomeRejected}
	if rep.Error != nil {
		f.code, f.message = rep.Error.Code, plain.Clip(rep.Error.Message, perdure.MaxReasonBytes)
		f.retryAfter = min(time.Duration(rep.Error.RetryAfter), perdure.MaxRetryAfter)
	}
	return f
}

// fail counts a failure of the run that has just ended, and lets the retry policy and the ladder decide what follows. A
// failure in a direction that is no longer wanted is recorded, but not counted: the step changes direction at once.
func (w *Workset) fail(e *entry, r *row, f failure, author string) {
	w.recordRun(e, r, f, author)
	r.Returns = 0
	if r.mustReverse() {
		r.resetLadder()
		w.advanceAfterRun(e, r)
		return
	}
	r.Failures++
	w.retryOrEscalate(e, r, f)
}

// failExpression handles an expression that cannot be evaluated when the step would be dispatched. It counts as a
// rejected run without effect, and uses no run number.
func (w *Workset) failExpression(e *entry, r *row, err error) {
	w.failBeforeRun(e, r, failure{event: "rejected", code: "expression", message: plain.Clip(err.Error(), perdure.MaxReasonBytes), final: true})
}

// failBeforeRun counts a failure that needs no run to be known.
func (w *Workset) failBeforeRun(e *entry, r *row, f failure) {
	w.setError(r, f)
	w.addHistory(e, r.Name, 0, f.event, policyAuthor, f.text())
	r.Failures++
	w.retryOrEscalate(e, r, f)
}

// failSecrets handles a claim of a step with secrets by a process that does not resolve them: an older version, which would
// send the reference in place of the value. It counts as a failed run without effect, and uses no run number. The step is
// tried again, because another process of the agent may resolve them.
func (w *Workset) failSecrets(e *entry, r *row, c *protocol.Claim) {
	f := failure{event: "failed", code: "secretUnsupported",
		message: "the input has secrets, and the process that claimed the step does not resolve them (" + c.Holder + "): use a version of its agent library that does"}
	w.setError(r, f)
	w.addHistory(e, r.Name, 0, f.event, policyAuthor, f.text())
	r.Failures++
	w.retryOrEscalate(e, r, f)
}

// recordRun stores the failure of the run that has just ended on the step and in the job's history.
func (w *Workset) recordRun(e *entry, r *row, f failure, author string) {
	w.setError(r, f)
	w.addRun(e, r, f.event, author, f.text())
}

func (w *Workset) setError(r *row, f failure) { r.ErrorCode, r.LastError = f.code, f.message }

func (f *failure) text() string {
	return errorText(&perdure.RunError{Code: f.code, Message: f.message})
}

// mustReverse reports whether the direction of the latest run is no longer wanted.
func (s *Step) mustReverse() bool { return s.nextDirection() != s.Direction }

func (w *Workset) retryOrEscalate(e *entry, r *row, f failure) {
	ps := &e.plan.Steps[r.Index]
	if e.job.Overdue && r.Desired == perdure.Done {
		w.park(e, r, "")
		return
	}
	retry := ps.retry(r.nextDirection())
	if !f.final && r.Failures < retry.Attempts && (f.code == "" || !slices.Contains(retry.NotOn, f.code)) {
		d := w.jitter(time.Duration(retry.Backoff), time.Duration(retry.MaxBackoff), r.Failures)
		w.setPhase(e, r, perdure.Waiting, w.now.Add(max(d, f.retryAfter)))
		return
	}
	w.escalate(e, r, f.final)
}

// jitter returns the wait before attempt n+1: a random part of the backoff, which doubles with each failure up to most.
func (w *Workset) jitter(base, most time.Duration, n int) time.Duration {
	d := base
	for ; n > 1 && d < most; n-- {
		d *= 2
	}
	return time.Duration(w.random() * float64(min(d, most))).Round(time.Microsecond)
}

// escalate goes down the ladder, from the step's present rung to the next one that acts. For an undo only wait, alert
// and park apply; any other rung parks the step. A ladder that ends without a decision parks it too.
func (w *Workset) escalate(e *entry, r *row, pointless bool) {
	ladder := e.plan.ladder(r.Index)
	undoing := r.nextDirection() == perdure.Undo
	for ; r.Rung < len(ladder); r.Rung++ {
		rung := ladder[r.Rung]
		switch rung.Kind {
		case RungAlert:
			w.raiseAlert(e, r, perdure.AlertNamed, rung.Name, w.failureText(r))
			continue
		case RungWait:
			if pointless || r.Waits >= max(rung.Times, 1) {
				r.Waits = 0
				continue
			}
			w.waitOnRung(e, r, rung)
			return
		case RungUndo:
			if !undoing {
				w.raiseAlert(e, r, perdure.AlertUndo, "", "the job is undone: "+w.failureText(r))
				w.undoJob(e, r, flip{to: perdure.Undone, kind: flipByPolicy, by: policyAuthor})
				return
			}
		case RungRestart:
			if !undoing && e.job.Restarts >= rung.Times {
				continue
			}
			if !undoing {
				e.job.Restarts++
				w.raiseAlert(e, r, perdure.AlertRestart, "", fmt.Sprintf("the job is undone and done again (%d of %d): %s", e.job.Restarts, rung.Times, w.failureText(r)))
				w.undoJob(e, r, flip{to: perdure.Undone, kind: flipRestartUndo, by: policyAuthor})
				return
			}
		case RungSkip:
			if !undoing {
				w.skip(e, r)
				w.addHistory(e, r.Name, r.Run, "skip", policyAuthor, w.failureText(r))
				w.advanceAfterRun(e, r)
				return
			}
		}
		break // park, or a rung that parks an undo
	}
	w.park(e, r, w.failureText(r))
}

// waitOnRung waits for the time of a wait rung. After it, the attempts of the retry policy start again. It raises an
// alert the first time only.
func (w *Workset) waitOnRung(e *entry, r *row, rung Rung) {
	if r.Waits == 0 {
		w.raiseAlert(e, r, perdure.AlertWaiting, "", fmt.Sprintf("waits %s before it tries again: %s", rung.For, w.failureText(r)))
	}
	r.Waits++
	r.Failures = 0
	w.setPhase(e, r, perdure.Waiting, w.now.Add(time.Duration(rung.For)))
}

// undoJob undoes the whole job because of step r.
func (w *Workset) undoJob(e *entry, r *row, f flip) {
	w.addHistory(e, r.Name, r.Run, string(perdure.VerbUndo), policyAuthor, w.failureText(r))
	w.setPhase(e, r, perdure.Waiting, time.Time{})
	w.enqueueFlip(e, f)
}

// park stops a step until an operator acts. Pass no message if an alert of the job gives the reason.
func (w *Workset) park(e *entry, r *row, message string) {
	if message != "" {
		w.raiseAlert(e, r, perdure.AlertParked, "", message)
	}
	w.setPhase(e, r, perdure.Parked, time.Time{})
}

func (w *Workset) failureText(r *row) string {
	text := fmt.Sprintf("step %s, %s: %s", r.Name, r.nextDirection(), plural(r.Failures, "failure"))
	if r.LastError != "" {
		text += ", last: " + oneLine(errorText(&perdure.RunError{Code: r.ErrorCode, Message: r.LastError}))
	}
	return text
}
