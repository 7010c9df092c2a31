package kernel

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure"
)

// look sets the next phase of a step that is neither running nor parked: it settles, becomes ready, or waits for a
// neighbour, a time or an operator.
func (w *Workset) advance(e *entry, r *row) {
	if r.Phase == perdure.Running || r.Phase == perdure.Parked || r.Phase == perdure.Settled {
		return
	}
	if r.Blockers > 0 {
		w.setPhase(e, r, perdure.Waiting, time.Time{})
		return
	}
	if r.Current == r.Desired || r.Desired == perdure.Done && r.Skipped {
		w.settle(e, r)
		return
	}
	d := r.nextDirection()
	if r.Run > 0 && d != r.Direction && w.now.Before(r.LockedUntil) {
		// The holder is known dead, but what it set going may still act: the other way must wait.
		w.setPhase(e, r, perdure.Waiting, r.LockedUntil)
		return
	}
	switch {
	case w.now.Before(r.AvailableAt):
	case e.job.Overdue && r.Desired == perdure.Done:
		w.park(e, r, "") // the job's alert says why
	case d == perdure.Undo:
		w.advanceUndo(e, r)
	default:
		w.advanceDo(e, r)
	}
}

// lookBack: what has nothing to undo settles without a run.
func (w *Workset) advanceUndo(e *entry, r *row) {
	ps := &e.plan.Steps[r.Index]
	if ps.Undo == nil || ps.Form != ByAgent {
		r.Current = perdure.Undone
		w.settle(e, r)
		return
	}
	w.makeReady(e, r, perdure.Undo)
}

func (w *Workset) advanceDo(e *entry, r *row) {
	ps := &e.plan.Steps[r.Index]
	if ps.Test != nil && r.Current == perdure.Undone {
		yes, err := w.evalCondition(e, r, ps)
		if w.deferAdvance(e, r, err) {
			return
		}
		if err != nil {
			w.failExpression(e, r, err)
			return
		}
		if !yes {
			w.skip(r)
			w.settle(e, r)
			return
		}
	}
	switch ps.Form {
	case BySleep:
		w.sleep(e, r, ps)
	case ByApproval:
		w.awaitApproval(e, r, ps)
	default:
		w.makeReady(e, r, perdure.Do)
	}
}

// skip settles a step that is on its way to done. The step has no output then, even if it had one in an earlier turn.
func (w *Workset) skip(r *row) {
	r.clearUndoStart()
	r.Skipped = true
	w.setOutput(r, nil)
}

// forgetUndo is called before a step is settled or skipped without a run. If the latest run was an undo that has ended,
// its start time is cleared: it does not belong to the new state of the step. Without it, the view does not render the
// input of that run again, because the step's output may be replaced now.
func (r *row) clearUndoStart() {
	if r.Run > 0 && r.Direction == perdure.Undo && r.nextDirection() == perdure.Do {
		r.StartedAt = time.Time{}
	}
}

func (w *Workset) makeReady(e *entry, r *row, d perdure.Direction) {
	ps := &e.plan.Steps[r.Index]
	if ps.Limits != nil && r.mustEvalLimits(d) {
		needs, err := w.evalLimits(e, r, ps)
		if w.deferAdvance(e, r, err) {
			return
		}
		if err != nil {
			w.failExpression(e, r, err)
			return
		}
		r.Needs = needs
	}
	r.Agent, _ = ps.agentOf(d)
	w.setPhase(e, r, perdure.Ready, time.Time{})
}

// needsLimits reports whether the keys of the step's limits are to be computed before it becomes ready: in the first run
// of each do turn. Repeated runs and the undo keep them.
func (s *Step) mustEvalLimits(d perdure.Direction) bool {
	return s.Needs == "" || d == perdure.Do && (s.Run == 0 || s.Direction == perdure.Undo)
}

// needs evaluates the keys of the step's limits.
func (w *Workset) evalLimits(e *entry, r *row, ps *PlanStep) (Needs, error) {
	if r.readsTooMuch {
		return "", errReadsTooMuch
	}
	refs := ps.Limits.Refs()
	scope, err := w.scope(e, r, perdure.Do, nil, refs)
	if err != nil {
		return "", err
	}
	done, err := w.evaluate(e, &Rendering{Key: RenderingKey{r.StepRef, r.Turn, OfLimits}, template: ps.Limits, scope: scope, reads: refs})
	if err != nil {
		return "", err
	}
	if done.err != nil {
		return "", fmt.Errorf("limits: %w", done.err)
	}
	needs, err := NeedsFrom(done.Input)
	if err != nil {
		return "", fmt.Errorf("limits: %w", err)
	}
	return needs, nil
}

// sleep waits until the time that the step's input tells. It holds no slot and is never dispatched.
func (w *Workset) sleep(e *entry, r *row, ps *PlanStep) {
	since := r.StartedAt
	if since.IsZero() {
		since = w.now
	}
	until, err := w.wakeTime(e, r, since)
	if w.deferAdvance(e, r, err) {
		return
	}
	if err != nil {
		w.failExpression(e, r, err)
		return
	}
	r.StartedAt = since
	if w.now.Before(until) {
		w.setPhase(e, r, perdure.Waiting, until)
		return
	}
	r.Current, r.EndedAt = perdure.Done, w.now
	w.settle(e, r)
}

// holds evaluates the step's condition.
func (w *Workset) evalCondition(e *entry, r *row, ps *PlanStep) (bool, error) {
	if r.readsTooMuch {
		return false, errReadsTooMuch
	}
	refs := ps.Test.Refs()
	scope, err := w.scope(e, r, perdure.Do, nil, refs)
	if err != nil {
		return false, err
	}
	done, err := w.evaluate(e, &Rendering{Key: RenderingKey{r.StepRef, r.Turn, OfCondition}, condition: ps.Test, scope: scope, reads: refs})
	if err != nil {
		return false, err
	}
	return done.yes, done.err
}

// lookAgain reports whether the next phase of a step cannot be decided now. If values are missing, the decision is
// repeated once they are loaded. If they are more than can be loaded, or take more work than is left, the decision is
// postponed: the step is due at once, and the supervisor finds it.
func (w *Workset) deferAdvance(e *entry, r *row, err error) bool {
	if err == nil {
		return false
	}
	var missing *NotLoaded
	var more *Postponed
	switch {
	case errors.As(err, &more):
		w.postponed = append(w.postponed, more.Rendering)
	case !errors.As(err, &missing):
		if damage := (*missingValue)(nil); errors.As(err, &damage) {
			panic(err)
		}
		return false
	case w.budget.mayRead():
		w.noteMissing(r, missing)
		w.block(task{entry: e, kind: taskAdvance, index: r.Index})
		return true
	}
	if r.Phase != perdure.Waiting || r.AvailableAt.IsZero() {
		w.setPhase(e, r, perdure.Waiting, w.now)
	}
	return true
}

func (w *Workset) wakeTime(e *entry, r *row, since time.Time) (time.Time, error) {
	src, err := w.sourceOf(e, r, perdure.Do)
	if err != nil {
		return time.Time{}, err
	}
	in, err := w.render(e, &src)
	if err != nil {
		return time.Time{}, err
	}
	var arg struct {
		For   string    `json:"for"`
		Until time.Time `json:"until"`
	}
	if err := json.Unmarshal(in, &arg); err != nil {
		return time.Time{}, fmt.Errorf("sleep: %w", err)
	}
	if arg.For == "" {
		return arg.Until, nil
	}
	d, err := perdure.ParseDuration(arg.For)
	if err != nil {
		return time.Time{}, fmt.Errorf("sleep: for: %w", err)
	}
	return since.Add(d), nil
}

// await waits for a person. With a completeWithin of its own the step fails when that has passed.
func (w *Workset) awaitApproval(e *entry, r *row, ps *PlanStep) {
	var until time.Time
	switch {
	case r.StartedAt.IsZero():
		r.StartedAt = w.now
		if ps.CompleteWithin > 0 {
			until = w.now.Add(time.Duration(ps.CompleteWithin))
		}
		w.raiseAlert(e, r.Name, perdure.AlertApproval, "", fmt.Sprintf("step %s waits for a person: settle it as done, or undo the job", r.Name))
		w.setPhase(e, r, perdure.Waiting, until)
	case r.AvailableAt.IsZero(): // looked at again: still waiting
		w.setPhase(e, r, perdure.Waiting, until)
	default:
		r.StartedAt = time.Time{}
		w.closeAlerts(e, r.Name, policyAuthor, perdure.AlertApproval)
		r.Failures++
		r.ErrorCode, r.LastError = "expired", "nobody approved it in time"
		w.addHistory(e, r.Name, 0, "expired", policyAuthor, r.LastError)
		w.escalate(e, r, false)
	}
}

// settle: nothing is left to do, and those who waited for this step wait for one less.
func (w *Workset) settle(e *entry, r *row) {
	w.setPhase(e, r, perdure.Settled, time.Time{})
	r.Agent = ""
	for _, i := range e.plan.opens(r.Index, r.Desired) {
		w.enqueue(e, taskUnblock, i)
	}
}

// flip is the turning of a whole job.
type flip struct {
	to   perdure.State
	kind flipKind
	by   string
}

type flipKind uint8

const (
	flipByOperator flipKind = iota
	flipByPolicy
	flipRestartUndo // by policy, and to turn again once it is back
	flipRestartRedo    // the second half of a restart
)

// turn makes a job desire to; every step follows. Runs in flight go on to their report or their
// lock's end and then turn round.
func (w *Workset) flipJob(e *entry, f flip) {
	j := e.job
	if f.kind == flipRestartRedo {
		w.addHistory(e, "", 0, string(perdure.VerbRedo), policyAuthor, "restart")
	}
	w.updateDeadline(e, f)
	j.Desired, j.Then = f.to, f.kind == flipRestartUndo
	j.GivenUpBy, j.GivenUpReason = "", ""
	j.SettledAt = time.Time{}
	e.dirty = true
	for i := range e.plan.Steps {
		w.flipStep(e, e.steps.at(i), f.to)
	}
	w.closeAlerts(e, "", f.by, perdure.AlertParked, perdure.AlertApproval)
	for i := range e.plan.Steps {
		if e.steps.at(i).Blockers == 0 {
			w.enqueue(e, taskAdvance, i)
		}
	}
}

// setDeadline: it is set at redo, forgotten at the undo of a job that had met it, and kept otherwise.
func (w *Workset) updateDeadline(e *entry, f flip) {
	j := e.job
	switch {
	case f.kind == flipRestartRedo:
		j.Overdue = false // passed while it went back: the supervisor acts on it now
	case f.to == perdure.Undone && j.Phase == perdure.Settled:
		j.CompleteBy, j.Overdue = time.Time{}, false
	case f.to == perdure.Done:
		w.renewDeadline(e)
	}
}

// turnStep resets the ladder, and sets Blockers to the number of all neighbours in the new direction. Each neighbour
// decrements it when it settles.
func (w *Workset) flipStep(e *entry, r *row, to perdure.State) {
	r.Desired, r.GivenUp = to, false
	r.resetLadder()
	r.Blockers = len(e.plan.waitsFor(r.Index, to))
	if to == perdure.Done {
		r.Skipped = false
	}
	if e.plan.Steps[r.Index].Form != ByAgent {
		r.StartedAt = time.Time{}
	}
	if r.Phase == perdure.Running {
		r.dirty = true
		return
	}
	w.setPhase(e, r, perdure.Waiting, time.Time{})
}

// startOver puts a step on the first rung, as if it had never failed.
func (r *row) resetLadder() {
	r.Failures, r.Rung, r.Waits, r.Returns = 0, 0, 0, 0
	r.dirty = true
}

// rest brings the job's own row in line with the counts of its steps.
func (w *Workset) updateJob(e *entry) {
	j := e.job
	if j.GivenUp() {
		return
	}
	if j.Unsettled == 0 && j.Then { // not at rest: it turns once more
		w.enqueueFlip(e, flip{to: perdure.Done, kind: flipRestartRedo, by: policyAuthor})
		return
	}
	before := j.Phase
	j.Phase = phaseOf(j)
	// If a job turns and settles again in one event, its phase is unchanged, but it has no SettledAt: that is set now.
	if j.Phase == before && (j.Phase != perdure.Settled || j.Current == j.Desired && !j.SettledAt.IsZero()) {
		return
	}
	e.dirty = true
	switch j.Phase {
	case perdure.Settled:
		j.Current, j.SettledAt, j.Permit = j.Desired, w.now, false
		w.closeAlerts(e, "", policyAuthor, allAlerts...)
		j.Alerted = false
	case perdure.Parked:
		w.closeAlerts(e, "", policyAuthor, perdure.AlertUndo, perdure.AlertRestart)
	}
	w.pauseDeadline(j, before)
}

// standStill: a parked job holds no permit, and its deadline does not come nearer.
func (w *Workset) pauseDeadline(j *Job, before perdure.Phase) {
	switch {
	case j.Phase == perdure.Parked && before != perdure.Parked:
		j.Permit, j.ParkedAt = false, w.now
	case before == perdure.Parked && j.Phase != perdure.Parked:
		if !j.CompleteBy.IsZero() && !j.ParkedAt.IsZero() {
			j.CompleteBy = j.CompleteBy.Add(w.now.Sub(j.ParkedAt))
		}
		j.ParkedAt = time.Time{}
	}
}
