package kernel

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

// The operator's verbs. Each is audited with author and reason; one that already holds changes
// nothing; one that the rules refuse is a conflict that says what to do instead.

// Edited says for which direction an operator has given a step an input of its own.
type Edited uint8

const (
	notEdited  Edited = iota
	editedDo          // for the next do run
	editedUndo        // for the next undo run
	editedDone        // a do run was dispatched with it: the undo is handed it too
)

func editedFor(d perdure.Direction) Edited {
	if d == perdure.Undo {
		return editedUndo
	}
	return editedDo
}

// holds says whether the next run in direction d is handed the operator's input.
func (ed Edited) appliesTo(d perdure.Direction) bool {
	return ed == editedFor(d) || ed == editedDone && d == perdure.Do
}

// NeedsWhole says whether an act looks at all of a job's steps.
func NeedsWhole(a *perdure.Act) bool {
	return a.Verb == perdure.VerbUndo || a.Verb == perdure.VerbRedo || a.Verb == perdure.VerbGiveUp || a.Verb == perdure.VerbResume
}

// Act folds an operator's act in. index is the step's place, where the act names one.
func (w *Workset) Act(id perdure.JobID, index int, a *perdure.Act) error {
	e := w.entry(id)
	if a.Author == "" {
		return perdure.Refuse(perdure.CodeInvalid, "an act needs an author")
	}
	switch a.Verb {
	case perdure.VerbUndo:
		return w.operatorFlip(e, perdure.Undone, a)
	case perdure.VerbRedo:
		return w.operatorFlip(e, perdure.Done, a)
	case perdure.VerbGiveUp:
		return w.giveUp(e, a)
	}
	if e.job.GivenUp() {
		return perdure.Refuse(perdure.CodeConflict, "the job was given up by %s: undo or redo opens it again", e.job.GivenUpBy)
	}
	if a.Verb == perdure.VerbResume && a.Step == "" {
		return w.resumeAll(e, a)
	}
	r := e.steps.at(index)
	if w.runIsValid(r) {
		return w.runIsValidError(r)
	}
	switch a.Verb {
	case perdure.VerbResume:
		return w.resumeOne(e, r, a)
	case perdure.VerbSettle:
		return w.operatorSettle(e, r, a)
	case perdure.VerbSkip:
		return w.operatorSkip(e, r, a)
	case perdure.VerbEdit:
		return w.operatorEdit(e, r, a)
	}
	return perdure.Refuse(perdure.CodeInvalid, "unknown act %q", a.Verb)
}

// out says whether a run of the step is valid.
func (w *Workset) runIsValid(r *row) bool {
	return r.Phase == perdure.Running && w.now.Before(r.LockedUntil)
}

func (w *Workset) runIsValidError(r *row) error {
	return perdure.Refuse(perdure.CodeConflict, "run %d of step %s is valid until %s: wait for it, or for its end",
		r.Run, r.Name, r.LockedUntil.Format(time.RFC3339))
}

// end ends a run whose lock has passed. What comes next the act decides, not the ladder.
func (w *Workset) endExpiredRun(e *entry, r *row) {
	if r.Phase == perdure.Running {
		f, holder := w.expireRun(r, CauseTime)
		w.record(e, r, r.Run, f, holder)
	}
}

func (w *Workset) operatorFlip(e *entry, to perdure.State, a *perdure.Act) error {
	j := e.job
	if j.Desired == to && !j.GivenUp() {
		if to == perdure.Undone && j.Then { // it was on its way back only to be done again
			j.Then, e.dirty = false, true
			w.addHistory(e, "", 0, string(a.Verb), a.Author, a.Reason)
			w.finishEvent(e)
		}
		return nil
	}
	w.addHistory(e, "", 0, string(a.Verb), a.Author, a.Reason)
	w.enqueueFlip(e, flip{to: to, kind: flipByOperator, by: a.Author})
	w.finishEvent(e)
	return nil
}

func (w *Workset) resumeAll(e *entry, a *perdure.Act) error {
	parked := e.parked()
	if len(parked) == 0 {
		return perdure.Refuse(perdure.CodeConflict, "nothing is parked in this job")
	}
	w.resumeSteps(e, a, parked)
	return nil
}

func (w *Workset) resumeOne(e *entry, r *row, a *perdure.Act) error {
	if r.Phase != perdure.Parked {
		return perdure.Refuse(perdure.CodeConflict, "step %s is not parked, it is %s", r.Name, r.Phase)
	}
	if a.Input != nil || a.NewKey {
		if err := w.edit(e, r, a); err != nil {
			return err
		}
	}
	w.resumeSteps(e, a, []*row{r})
	return nil
}

func (e *entry) parked() []*row {
	var parked []*row
	for i := range e.plan.Steps {
		if e.steps.at(i).Phase == perdure.Parked {
			parked = append(parked, e.steps.at(i))
		}
	}
	return parked
}

func (w *Workset) resumeSteps(e *entry, a *perdure.Act, rows []*row) {
	w.renewDeadline(e)
	for _, r := range rows {
		w.closeAlerts(e, r.Name, a.Author, perdure.AlertParked)
		r.resetLadder()
		w.addHistory(e, r.Name, r.Run, string(perdure.VerbResume), a.Author, a.Reason)
		w.setPhase(e, r, perdure.Waiting, time.Time{})
		w.enqueue(e, taskAdvance, r.Index)
	}
	if len(e.parked()) == 0 {
		w.closeAlerts(e, "", a.Author, perdure.AlertParked) // the job's own, that held several
	}
	w.finishEvent(e)
}

// renewDeadline gives the job its full completeWithin from now on.
func (w *Workset) renewDeadline(e *entry) {
	j := e.job
	j.Overdue, e.dirty = false, true
	if !j.ParkedAt.IsZero() {
		j.ParkedAt = w.now
	}
	if d := time.Duration(e.plan.Definition.CompleteWithin); d > 0 {
		j.CompleteBy = w.now.Add(d)
	}
}

// settleBy records what a person knows about a step.
func (w *Workset) operatorSettle(e *entry, r *row, a *perdure.Act) error {
	if a.As == nil || *a.As == perdure.Unsure {
		return perdure.Refuse(perdure.CodeInvalid, "settle says as what: done or undone")
	}
	if a.Output != nil && *a.As != perdure.Done {
		return perdure.Refuse(perdure.CodeInvalid, "an output goes with as: done")
	}
	if err := checkPayload("output", a.Output); err != nil {
		return err
	}
	if r.Phase == perdure.Settled && r.Current == *a.As {
		return nil
	}
	if r.Phase == perdure.Settled {
		return perdure.Refuse(perdure.CodeConflict, "step %s is settled as %s: undo or redo the job", r.Name, r.Current)
	}
	w.endExpiredRun(e, r)
	w.addHistory(e, r.Name, r.Run, string(perdure.VerbSettle), a.Author, "as "+a.As.String()+reasonText(a.Reason))
	r.clearUndoStart()
	r.Current, r.EndedAt = *a.As, w.now
	if a.Output != nil {
		w.setOutput(r, meaningful(a.Output))
	}
	e.job.Current = perdure.Unsure
	w.reconsider(e, r, a.Author)
	return nil
}

// skipBy settles a step as far as doing goes.
func (w *Workset) operatorSkip(e *entry, r *row, a *perdure.Act) error {
	switch {
	case r.Skipped && r.Desired == perdure.Done:
		return nil
	case r.Phase == perdure.Settled:
		return perdure.Refuse(perdure.CodeConflict, "step %s is settled as %s", r.Name, r.Current)
	case r.nextDirection() == perdure.Undo:
		return perdure.Refuse(perdure.CodeConflict, "step %s is being undone, and an undo is not skipped: settle it instead", r.Name)
	}
	w.endExpiredRun(e, r)
	w.addHistory(e, r.Name, r.Run, string(perdure.VerbSkip), a.Author, a.Reason)
	w.skip(r)
	w.reconsider(e, r, a.Author)
	return nil
}

// release takes a step out of whatever it waited for and looks at it anew.
func (w *Workset) reconsider(e *entry, r *row, author string) {
	if r.Phase == perdure.Parked || e.plan.Steps[r.Index].Form == ByApproval {
		w.closeAlerts(e, r.Name, author, perdure.AlertParked, perdure.AlertApproval)
	}
	if e.plan.Steps[r.Index].Form != ByAgent {
		r.StartedAt = time.Time{}
	}
	r.resetLadder()
	w.setPhase(e, r, perdure.Waiting, time.Time{})
	w.enqueue(e, taskAdvance, r.Index)
	w.finishEvent(e)
}

func (w *Workset) operatorEdit(e *entry, r *row, a *perdure.Act) error {
	if a.Input == nil && !a.NewKey {
		return perdure.Refuse(perdure.CodeInvalid, "edit gives an input, or newKey")
	}
	if r.Phase == perdure.Settled {
		return perdure.Refuse(perdure.CodeConflict, "step %s is settled: undo or redo the job first", r.Name)
	}
	if err := w.edit(e, r, a); err != nil {
		return err
	}
	w.Expire(r.StepRef, "", CauseTime)
	return nil
}

// edit gives the step another input under the same key, or says that no earlier run had an effect.
func (w *Workset) edit(e *entry, r *row, a *perdure.Act) error {
	if e.plan.Steps[r.Index].Form != ByAgent {
		return perdure.Refuse(perdure.CodeConflict, "step %s is a rule, not an agent's: settle or skip it", r.Name)
	}
	if a.Input != nil && len(a.Input) == 0 {
		return perdure.Refuse(perdure.CodeInvalid, "the input is empty; null is none")
	}
	if err := checkPayload("input", a.Input); err != nil {
		return err
	}
	if a.NewKey && r.nextDirection() == perdure.Undo {
		return perdure.Refuse(perdure.CodeConflict, "step %s is being undone, under the key of that turn: newKey is for doing", r.Name)
	}
	if a.NewKey && r.Phase != perdure.Running && w.now.Before(r.LockedUntil) {
		return perdure.Refuse(perdure.CodeConflict, "run %d of step %s, whose holder died, may still act until %s under the old key",
			r.Run, r.Name, r.LockedUntil.Format(time.RFC3339))
	}
	var did []string
	if a.Input != nil {
		r.Edited = editedFor(r.nextDirection())
		w.setInput(r, a.Input)
		did = append(did, "another input")
	}
	if a.NewKey {
		did = append(did, "new key "+r.path(int64(r.Turn)+1))
		if r.Direction != perdure.Undo { // after an undo, the next run begins a turn, and so has a new key anyway
			r.Turn++
		}
		r.Current, r.dirty = perdure.Undone, true
	}
	w.addHistory(e, r.Name, r.Run, string(perdure.VerbEdit), a.Author, strings.Join(did, ", ")+reasonText(a.Reason))
	return nil
}

// giveUp closes a job as it is: open steps keep their current, marked.
func (w *Workset) giveUp(e *entry, a *perdure.Act) error {
	j := e.job
	if j.GivenUp() {
		return nil
	}
	if j.Phase == perdure.Settled {
		return perdure.Refuse(perdure.CodeConflict, "the job is settled: nothing is open")
	}
	for i := range e.plan.Steps {
		if r := e.steps.at(i); w.runIsValid(r) {
			return w.runIsValidError(r)
		}
	}
	for i := range e.plan.Steps {
		if r := e.steps.at(i); r.Phase != perdure.Settled {
			w.endExpiredRun(e, r)
			r.GivenUp = true
			w.setPhase(e, r, perdure.Settled, time.Time{})
		}
	}
	w.addHistory(e, "", 0, string(perdure.VerbGiveUp), a.Author, a.Reason)
	w.closeAlerts(e, "", a.Author, allAlerts...)
	j.Alerted = false
	j.GivenUpBy, j.GivenUpReason = a.Author, a.Reason
	j.Current, j.Phase, j.Then, j.Permit = perdure.Unsure, perdure.Settled, false, false
	j.SettledAt, j.CompleteBy, j.ParkedAt, j.Overdue = w.now, time.Time{}, time.Time{}, false
	e.dirty = true
	return nil
}

func checkPayload(what string, b json.RawMessage) error {
	if len(b) > perdure.MaxPayloadBytes {
		return perdure.Refuse(perdure.CodeTooLarge, "%s of %d bytes is over %d", what, len(b), perdure.MaxPayloadBytes)
	}
	if err := plain.CheckJSON(b); err != nil {
		return perdure.Refuse(perdure.CodeInvalid, "%s: %v", what, err)
	}
	return nil
}

func reasonText(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}
