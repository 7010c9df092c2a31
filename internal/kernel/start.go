package kernel

import (
	"fmt"
	"time"

	"github.com/perdure/perdure"
)

// The rules of startAt, startIn and startWithin.
//
// A job that starts later waits in its first steps: those that come after no others are not advanced before its StartAt.
// So the job holds no permit and is in no queue but that of steps which wait for a time, and an undo settles it at once.
// An operator starts it earlier with resume.

// codeStartedTooLate is the error code of the first steps of a job of which no run was dispatched within startWithin.
const codeStartedTooLate = "startedTooLate"

// begin advances a step that waits for no other, or lets it wait for the start of its job.
func (w *Workset) begin(e *entry, r *row) {
	if w.now.Before(e.job.StartAt) {
		w.setPhase(e, r, perdure.Waiting, e.job.StartAt)
		return
	}
	w.enqueue(e, taskAdvance, r.Index)
}

// deadline returns the end of a time that begins when the job may start, and not before now; zero if it is not bounded.
func (w *Workset) deadline(j *Job, within perdure.Duration) time.Time {
	if within == 0 {
		return time.Time{}
	}
	from := w.now
	if from.Before(j.StartAt) {
		from = j.StartAt
	}
	return from.Add(time.Duration(within))
}

// waitsForStart reports whether a step waits for the start of its job.
func (s *Step) waitsForStart(j *Job) bool {
	return s.Phase == perdure.Waiting && s.Run == 0 && s.Blockers == 0 && !j.StartAt.IsZero() && s.AvailableAt.Equal(j.StartAt)
}

// startsTooLate reports whether no run may be dispatched any more, because none was in time.
func (j *Job) startsTooLate(now time.Time) bool {
	return !j.StartBy.IsZero() && !now.Before(j.StartBy)
}

// failLateStart ends a job of which no run was dispatched in time. The job's ladder decides how, and without one the job is
// undone: its work is worthless now. To wait, to restart or to skip a step is no answer to that, so these rungs are passed
// over. A ladder that decides nothing parks the job.
func (w *Workset) failLateStart(e *entry) {
	d := e.plan.Definition
	f := failure{event: "overdue", code: codeStartedTooLate, message: fmt.Sprintf("no run was dispatched within startWithin (%s)", d.StartWithin)}
	e.job.StartBy, e.dirty = time.Time{}, true
	w.addHistory(e, "", 0, f.event, policyAuthor, f.text())
	undo := len(d.OnFailure) == 0
ladder:
	for _, rung := range d.OnFailure {
		switch rung.Kind {
		case RungAlert:
			w.raiseAlert(e, nil, perdure.AlertNamed, rung.Name, f.text())
		case RungUndo:
			undo = true
			break ladder
		case RungPark:
			break ladder
		}
	}
	if undo {
		w.raiseAlert(e, nil, perdure.AlertUndo, "", "the job is undone: "+f.text())
		w.enqueueFlip(e, flip{to: perdure.Undone, kind: flipByPolicy, by: policyAuthor, failure: f})
		return
	}
	w.raiseAlert(e, nil, perdure.AlertParked, "", f.text()+"; resume starts it all the same")
	w.addTask(task{entry: e, kind: taskParkActive, flip: flip{failure: f}})
}
