package kernel

import (
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/protocol"
)

// policyAuthor is the author of what a definition's policy did.
const policyAuthor = "policy"

// failure is why a run did not bring about its pole.
type failure struct {
	event      string // failed, rejected, expired
	code       string
	message    string
	retryAfter time.Duration
	pointless  bool // to try again
}

func failureOf(rep *protocol.Report) failure {
	f := failure{event: rep.Outcome.String(), pointless: rep.Outcome == perdure.OutcomeRejected}
	if rep.Error != nil {
		f.code, f.message = rep.Error.Code, plain.Clip(rep.Error.Message, perdure.MaxReasonBytes)
		f.retryAfter = min(time.Duration(rep.Error.RetryAfter), perdure.MaxRetryAfter)
	}
	return f
}

// fail counts a failure of the run that has just ended and lets the ladder decide. One of a direction
// that is no longer wanted is recorded, and the step turns round at once.
func (w *Workset) fail(e *entry, r *row, f failure, author string) {
	w.record(e, r, r.Run, f, author)
	r.Returns = 0
	if r.turns() {
		r.startOver()
		w.next(e, r)
		return
	}
	r.Failures++
	w.decide(e, r, f)
}

// stumble: an expression failed when the step would have been dispatched. It counts as a rejected run
// without effect, and spends no run number.
func (w *Workset) stumble(e *entry, r *row, err error) {
	f := failure{event: "rejected", code: "expression", message: plain.Clip(err.Error(), perdure.MaxReasonBytes), pointless: true}
	w.record(e, r, 0, f, policyAuthor)
	r.Failures++
	w.decide(e, r, f)
}

// record keeps what is known of a failure, on the step and in the job's history.
func (w *Workset) record(e *entry, r *row, run int64, f failure, author string) {
	r.ErrorCode, r.LastError = f.code, f.message
	w.note(e, r.Name, run, f.event, author, errorText(&perdure.RunError{Code: f.code, Message: f.message}))
}

// turns says whether the direction of the latest run is no longer wanted.
func (s *Step) turns() bool { return s.wants() != s.Direction }

func (w *Workset) decide(e *entry, r *row, f failure) {
	ps := &e.plan.Steps[r.Index]
	if e.job.Overdue && r.Desired == perdure.Done {
		w.park(e, r, "")
		return
	}
	retry := ps.retry(r.wants())
	if !f.pointless && r.Failures < retry.Attempts && (f.code == "" || !slices.Contains(retry.NotOn, f.code)) {
		d := w.jitter(time.Duration(retry.Backoff), time.Duration(retry.MaxBackoff), r.Failures)
		w.place(e, r, perdure.Waiting, w.now.Add(max(d, f.retryAfter)))
		return
	}
	w.climb(e, r, f.pointless)
}

// jitter is the wait before attempt n+1: full jitter under a doubling bound.
func (w *Workset) jitter(base, most time.Duration, n int) time.Duration {
	d := base
	for ; n > 1 && d < most; n-- {
		d *= 2
	}
	return time.Duration(w.chance() * float64(min(d, most))).Round(time.Microsecond)
}

// climb goes down the ladder to the next rung that acts. In the undo direction only wait, alert and park
// mean anything; every ladder that does not end, ends in park.
func (w *Workset) climb(e *entry, r *row, pointless bool) {
	ladder := e.plan.ladder(r.Index)
	back := r.wants() == perdure.Undo
	for ; r.Rung < len(ladder); r.Rung++ {
		rung := ladder[r.Rung]
		switch rung.Kind {
		case RungAlert:
			w.alert(e, r.Name, perdure.AlertNamed, rung.Name, w.failedText(r))
			continue
		case RungWait:
			if pointless || r.Waits >= max(rung.Times, 1) {
				r.Waits = 0
				continue
			}
			w.waitLong(e, r, rung)
			return
		case RungUndo:
			if !back {
				w.alert(e, r.Name, perdure.AlertUndo, "", "the job is undone: "+w.failedText(r))
				w.turnBack(e, r, flip{to: perdure.Undone, kind: flipByPolicy, by: policyAuthor})
				return
			}
		case RungRestart:
			if !back && e.job.Restarts >= rung.Times {
				continue
			}
			if !back {
				e.job.Restarts++
				w.alert(e, r.Name, perdure.AlertRestart, "", fmt.Sprintf("the job is undone and done again (%d of %d): %s", e.job.Restarts, rung.Times, w.failedText(r)))
				w.turnBack(e, r, flip{to: perdure.Undone, kind: flipRestart, by: policyAuthor})
				return
			}
		case RungSkip:
			if !back {
				w.skip(r)
				w.note(e, r.Name, r.Run, "skip", policyAuthor, w.failedText(r))
				w.next(e, r)
				return
			}
		}
		break // park, or what reads as park on the way back
	}
	w.park(e, r, w.failedText(r))
}

// waitLong: again much later, alerting once; then retry starts over.
func (w *Workset) waitLong(e *entry, r *row, rung Rung) {
	if r.Waits == 0 {
		w.alert(e, r.Name, perdure.AlertWaiting, "", fmt.Sprintf("waits %s before it tries again: %s", rung.For, w.failedText(r)))
	}
	r.Waits++
	r.Failures = 0
	w.place(e, r, perdure.Waiting, w.now.Add(time.Duration(rung.For)))
}

// turnBack turns the whole job because of step r, which waits meanwhile like all the others.
func (w *Workset) turnBack(e *entry, r *row, f flip) {
	w.note(e, r.Name, r.Run, string(perdure.VerbUndo), policyAuthor, w.failedText(r))
	w.place(e, r, perdure.Waiting, time.Time{})
	w.turnLater(e, f)
}

// park takes the step out of the loop until a person acts. Without a message the job has an alert
// that says why.
func (w *Workset) park(e *entry, r *row, message string) {
	if message != "" {
		w.alert(e, r.Name, perdure.AlertParked, "", message)
	}
	w.place(e, r, perdure.Parked, time.Time{})
}

func (w *Workset) failedText(r *row) string {
	text := fmt.Sprintf("step %s, %s: %s", r.Name, r.wants(), plural(r.Failures, "failure"))
	if r.LastError != "" {
		text += ", last: " + oneLine(errorText(&perdure.RunError{Code: r.ErrorCode, Message: r.LastError}))
	}
	return text
}
