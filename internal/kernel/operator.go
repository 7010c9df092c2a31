package kernel

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

// The acts of operators. Each is recorded with author and reason. An act whose result already holds changes nothing. An
// act that the rules do not allow returns a conflict that names an alternative.

// Edited records whether, and for which direction, an operator has replaced the input of a step.
type Edited uint8

const (
	notEdited  Edited = iota
	editedDo          // for the next do run
	editedUndo        // for the next undo run
	editedDone        // a do run was dispatched with it, and its undo gets it too
)

func editedFor(d perdure.Direction) Edited {
	if d == perdure.Undo {
		return editedUndo
	}
	return editedDo
}

// appliesTo reports whether the next run in direction d gets the operator's input.
func (ed Edited) appliesTo(d perdure.Direction) bool {
	return ed == editedFor(d) || ed == editedDone && d == perdure.Do
}

// NeedsWhole reports whether an act needs all steps of a job.
func NeedsWholeJob(a *perdure.Act) bool {
	return a.Verb == perdure.VerbUndo || a.Verb == perdure.VerbRedo || a.Verb == perdure.VerbGiveUp || a.Verb == perdure.VerbResume
}

// Act applies an operator's act. index is that of the step that the act names, if it names one.
func (w *Workset) Act(id perdure.JobID, index int, a *perdure.Act) error {
	w.actUnneeded = false
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
	if a.Verb == perdure.VerbStop {
		return w.operatorStop(e, r, a)
	}
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
	case perdure.VerbApprove, perdure.VerbReject:
		return w.operatorDecide(e, r, a)
	}
	return perdure.Refuse(perdure.CodeInvalid, "unknown act %q", a.Verb)
}

// ActUnneeded reports whether the latest Act returned no error and found nothing to do, because its result already held.
func (w *Workset) ActUnneeded() bool { return w.actUnneeded }

// unneeded ends an act whose result already holds.
func (w *Workset) unneeded() error {
	w.actUnneeded = true
	return nil
}

// runIsValid reports whether a run of the step is in flight and its lock has not ended.
func (w *Workset) runIsValid(r *row) bool {
	return r.Phase == perdure.Running && w.now.Before(r.LockedUntil)
}

func (w *Workset) runIsValidError(r *row) error {
	return perdure.Refuse(perdure.CodeConflict, "run %d of step %s is in flight: wait until it has ended, or stop it", r.Run, r.Name)
}

// endExpiredRun ends a run whose lock has ended. The act decides what follows, not the ladder.
func (w *Workset) endExpiredRun(e *entry, r *row) {
	if r.Phase == perdure.Running {
		f, holder := w.expireRun(e, r, CauseTime)
		w.recordRun(e, r, f, holder)
	}
}

func (w *Workset) operatorFlip(e *entry, to perdure.State, a *perdure.Act) error {
	j := e.job
	if j.Desired == to && !j.GivenUp() {
		if to == perdure.Undone && j.RestartPending { // the undo of a restart: it will not be redone
			j.RestartPending, e.dirty = false, true
			w.addHistory(e, "", 0, string(a.Verb), a.Author, a.Reason)
			w.finishEvent(e)
			return nil
		}
		return w.unneeded()
	}
	w.addHistory(e, "", 0, string(a.Verb), a.Author, a.Reason)
	w.enqueueFlip(e, flip{to: to, kind: flipByOperator, by: a.Author})
	w.finishEvent(e)
	return nil
}

func (w *Workset) resumeAll(e *entry, a *perdure.Act) error {
	var rows []*row
	for i := range e.plan.Steps {
		if r := e.steps.at(i); r.Phase == perdure.Parked || w.waitsForRetry(e, r) {
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		return perdure.Refuse(perdure.CodeConflict, "no step of this job is parked, or waits for a retry or for its start")
	}
	w.resumeSteps(e, a, rows)
	return nil
}

// waitsForRetry reports whether the step waits for the backoff of a retry, on a wait rung, or for the start of its job. A
// sleep, an approval, a wait for a signal, and a step that waits for the end of an old lock wait for something else.
func (w *Workset) waitsForRetry(e *entry, r *row) bool {
	switch {
	case r.Phase != perdure.Waiting || r.Blockers > 0 || !w.now.Before(r.AvailableAt):
		return false
	case r.mustReverse() && r.AvailableAt.Equal(r.LockedUntil):
		return false
	}
	return !e.plan.Steps[r.Index].Form.isRule() && !r.Owns || r.StartedAt.IsZero()
}

func (w *Workset) resumeOne(e *entry, r *row, a *perdure.Act) error {
	if r.Phase != perdure.Parked && !w.waitsForRetry(e, r) {
		return perdure.Refuse(perdure.CodeConflict, "step %s is not parked, and waits neither for a retry nor for its start: it is %s", r.Name, r.Phase)
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
	e.job.StartBy, e.dirty = time.Time{}, true
	if len(e.parked()) > 0 {
		w.renewDeadline(e)
	}
	for _, r := range rows {
		w.closeAlerts(e, r.Name, a.Author, perdure.AlertParked)
		r.resetLadder()
		w.addHistory(e, r.Name, r.Run, string(perdure.VerbResume), a.Author, a.Reason)
		w.setPhase(e, r, perdure.Waiting, time.Time{})
		w.enqueue(e, taskAdvance, r.Index)
	}
	if len(e.parked()) == 0 {
		w.closeAlerts(e, "", a.Author, perdure.AlertParked) // an alert of the job itself, which stood for several steps
	}
	w.finishEvent(e)
}

// renewDeadline sets the job's deadline to its full completeWithin from now.
func (w *Workset) renewDeadline(e *entry) {
	j := e.job
	j.Overdue, e.dirty = false, true
	if !j.ParkedAt.IsZero() {
		j.ParkedAt = w.now
	}
	if d := e.plan.Definition.CompleteWithin; d > 0 {
		j.CompleteBy = w.deadline(j, d)
	}
}

// operatorStop requests that the run in flight stop. The holder receives the request with the answer to its next heartbeat.
// What follows is decided by the ladder, when the run is reported or expires.
func (w *Workset) operatorStop(e *entry, r *row, a *perdure.Act) error {
	switch {
	case !w.runIsValid(r):
		return perdure.Refuse(perdure.CodeConflict, "no run of step %s is in flight: it is %s", r.Name, r.Phase)
	case !r.StopRequestedAt.IsZero():
		return w.unneeded()
	}
	r.StopRequestedAt, r.dirty = w.now, true
	w.addHistory(e, r.Name, r.Run, string(perdure.VerbStop), a.Author, a.Reason)
	w.finishEvent(e)
	return nil
}

// operatorSettle records the state of a step as an operator knows it.
func (w *Workset) operatorSettle(e *entry, r *row, a *perdure.Act) error {
	if a.As == nil || *a.As == perdure.Unsure {
		return perdure.Refuse(perdure.CodeInvalid, "settle needs as: done or undone")
	}
	if a.Output != nil && *a.As != perdure.Done {
		return perdure.Refuse(perdure.CodeInvalid, "an output can be given only with as: done")
	}
	if err := checkPayload("output", a.Output); err != nil {
		return err
	}
	if s := e.plan.Steps[r.Index].Returns; s != nil && a.Output != nil {
		if err := misfit("output", r, s.Check(a.Output)); err != nil {
			return err
		}
	}
	if r.Phase == perdure.Settled && r.Current == *a.As {
		return w.unneeded()
	}
	if r.Phase == perdure.Settled {
		return perdure.Refuse(perdure.CodeConflict, "step %s is settled as %s: undo or redo the job", r.Name, r.Current)
	}
	if err := w.childrenSettled(e, r, *a.As); err != nil {
		return err
	}
	if form := e.plan.Steps[r.Index].Form; form.isRule() && *a.As == perdure.Undone && r.Desired == perdure.Done {
		return settledAsUndoneError(form, r)
	}
	w.endExpiredRun(e, r)
	w.endOwning(e, r)
	w.addHistory(e, r.Name, r.Run, string(perdure.VerbSettle), a.Author, "as "+a.As.String()+reasonText(a.Reason))
	w.keepRun(e, r) // the act sets EndedAt
	w.clearUndoStart(e, r)
	r.Current, r.EndedAt = *a.As, w.now
	w.settleChildren(e, r)
	if a.Output != nil {
		w.setOutput(r, meaningful(a.Output))
	}
	e.job.Current = perdure.Unsure
	w.reconsider(e, r, a.Author)
	return nil
}

// settledAsUndoneError refuses to settle a sleep, an approval or a wait for a signal as undone while it is to be done. It has
// no effect that could be undone, so the act would only begin it again.
func settledAsUndoneError(form StepForm, r *row) error {
	switch form {
	case BySignal:
		return perdure.Refuse(perdure.CodeConflict, "step %s waits for a signal, which has no effect to undo: settle it as done or skip it to end the wait, or undo the job", r.Name)
	case BySleep:
		return perdure.Refuse(perdure.CodeConflict, "step %s is a sleep, which has no effect to undo: settle it as done or skip it to end the sleep, or undo the job", r.Name)
	}
	return perdure.Refuse(perdure.CodeConflict, "step %s is an approval: approve or reject it, or undo the job", r.Name)
}

// operatorSkip skips a step.
func (w *Workset) operatorSkip(e *entry, r *row, a *perdure.Act) error {
	switch {
	case r.Skipped && r.Desired == perdure.Done:
		return w.unneeded()
	case r.Phase == perdure.Settled:
		return perdure.Refuse(perdure.CodeConflict, "step %s is settled as %s", r.Name, r.Current)
	case r.nextDirection() == perdure.Undo:
		return perdure.Refuse(perdure.CodeConflict, "step %s is being undone, and an undo is not skipped: settle it instead", r.Name)
	}
	if err := w.childrenSettled(e, r, perdure.Done); err != nil {
		return err
	}
	w.endExpiredRun(e, r)
	w.endOwning(e, r)
	w.addHistory(e, r.Name, r.Run, string(perdure.VerbSkip), a.Author, a.Reason)
	w.skip(e, r)
	w.reconsider(e, r, a.Author)
	return nil
}

// reconsider ends whatever a step waits for, and decides its next phase.
func (w *Workset) reconsider(e *entry, r *row, author string) {
	if r.Phase == perdure.Parked || e.plan.Steps[r.Index].Form == ByApproval {
		w.closeAlerts(e, r.Name, author, perdure.AlertParked, perdure.AlertApproval)
	}
	if e.plan.Steps[r.Index].Form.isRule() {
		r.StartedAt = time.Time{}
	}
	e.job.StartBy = time.Time{}
	r.resetLadder()
	w.setPhase(e, r, perdure.Waiting, time.Time{})
	w.enqueue(e, taskAdvance, r.Index)
	w.finishEvent(e)
}

func (w *Workset) operatorEdit(e *entry, r *row, a *perdure.Act) error {
	if a.Input == nil && !a.NewKey {
		return perdure.Refuse(perdure.CodeInvalid, "edit needs an input, or newKey")
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

// edit replaces the step's input under the same key, or (newKey) records that no earlier run had an effect.
func (w *Workset) edit(e *entry, r *row, a *perdure.Act) error {
	if e.plan.Steps[r.Index].Form == ByChildren {
		return perdure.Refuse(perdure.CodeConflict, "step %s has children and no input of its own: edit the steps of its children", r.Name)
	}
	if e.plan.Steps[r.Index].Form != ByAgent {
		return perdure.Refuse(perdure.CodeConflict, "step %s is not carried out by an agent and has no input to edit: settle or skip it", r.Name)
	}
	if a.Input != nil && len(a.Input) == 0 {
		return perdure.Refuse(perdure.CodeInvalid, "the input is empty; use null for no input")
	}
	if err := checkPayload("input", a.Input); err != nil {
		return err
	}
	if s := e.plan.Steps[r.Index].Accepts; s != nil && a.Input != nil && r.nextDirection() == perdure.Do {
		if err := misfit("input", r, s.Check(a.Input)); err != nil {
			return err
		}
	}
	if a.NewKey && r.nextDirection() == perdure.Undo {
		return perdure.Refuse(perdure.CodeConflict, "step %s is being undone, and an undo keeps its key: use newKey only for a step that is to be done", r.Name)
	}
	if a.NewKey && r.Phase != perdure.Running && w.now.Before(r.LockedUntil) {
		return perdure.Refuse(perdure.CodeConflict, "run %d of step %s may still act under the old key until %s, although its holder died: edit it after that time",
			r.Run, r.Name, r.LockedUntil.Format(time.RFC3339))
	}
	var changes []string
	if a.Input != nil {
		r.Edited = editedFor(r.nextDirection())
		w.setInput(r, a.Input)
		changes = append(changes, "another input")
	}
	if a.NewKey {
		changes = append(changes, "new key "+r.path(int64(r.Turn)+1))
		if r.Direction != perdure.Undo { // after an undo, the next run begins a turn and has a new key in any case
			w.keepRun(e, r)
			r.turnOfRun = r.Turn // the run, if it is in flight, has expired, and is recorded after the edit
			r.Turn++
		}
		r.Current, r.dirty = perdure.Undone, true
	}
	w.addHistory(e, r.Name, r.Run, string(perdure.VerbEdit), a.Author, strings.Join(changes, ", ")+reasonText(a.Reason))
	return nil
}

// giveUp closes a job as it is. Steps that are not settled keep their current state, and are marked.
func (w *Workset) giveUp(e *entry, a *perdure.Act) error {
	j := e.job
	if j.GivenUp() {
		return w.unneeded()
	}
	if j.Phase == perdure.Settled {
		return perdure.Refuse(perdure.CodeConflict, "the job is settled: there is nothing to give up")
	}
	for i := range e.plan.Steps {
		if r := e.steps.at(i); w.runIsValid(r) {
			return w.runIsValidError(r)
		}
	}
	for i := range e.plan.Steps {
		if r := e.steps.at(i); r.Phase != perdure.Settled {
			w.endExpiredRun(e, r)
			w.endOwning(e, r)
			w.closeTurned(e, r)
			r.GivenUp = true
			w.setPhase(e, r, perdure.Settled, time.Time{})
		}
	}
	w.addHistory(e, "", 0, string(perdure.VerbGiveUp), a.Author, a.Reason)
	w.closeAlerts(e, "", a.Author, allAlerts...)
	w.releaseUnique(e)
	j.Alerted = false
	j.GivenUpBy, j.GivenUpReason = a.Author, a.Reason
	j.Current, j.Phase, j.RestartPending = perdure.Unsure, perdure.Settled, false
	w.releasePermit(j)
	j.SettledAt, j.StartBy, j.CompleteBy, j.ParkedAt, j.Overdue = w.now, time.Time{}, time.Time{}, time.Time{}, false
	e.dirty = true
	return nil
}

func checkPayload(what string, b json.RawMessage) error {
	if len(b) > perdure.MaxPayloadBytes {
		return perdure.Refuse(perdure.CodeTooLarge, "%s has %d bytes; at most %d", what, len(b), perdure.MaxPayloadBytes)
	}
	if err := plain.CheckJSON(b); err != nil {
		return perdure.Refuse(perdure.CodeInvalid, "%s: %v", what, err)
	}
	if _, err := plain.Artifacts(b); err != nil {
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

// childrenSettled refuses to settle or skip a step with children by hand while some of them are not settled, or, as undone,
// while some of them are not undone.
func (w *Workset) childrenSettled(e *entry, r *row, as perdure.State) error {
	if e.plan.Steps[r.Index].Form != ByChildren {
		return nil
	}
	if job := e.plan.Steps[r.Index].Job; job.Detached && !(job.UndoChild && as == perdure.Undone) {
		return nil
	}
	c := w.childrenOf(r)
	switch {
	case c.Unsettled() > 0:
		return perdure.Refuse(perdure.CodeConflict, "%d children of step %s are not settled: wait for them, act on them, or undo the job", c.Unsettled(), r.Name)
	case as == perdure.Undone && c.Undone+c.Gone < c.Spawned: // those that were deleted cannot be undone
		return perdure.Refuse(perdure.CodeConflict, "%d children of step %s are not undone: undo the job, or them", c.Spawned-c.Undone, r.Name)
	}
	return nil
}
