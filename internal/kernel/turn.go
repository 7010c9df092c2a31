package kernel

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure"
)

// advance sets the next phase of a step that is waiting or ready: it settles, becomes ready, or waits for a neighbour, a
// time or an operator.
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
		// The holder of the latest run is dead, but what it started may still act at the receiver. A run in the other
		// direction waits until the old lock ends.
		w.setPhase(e, r, perdure.Waiting, r.LockedUntil)
		return
	}
	switch {
	case w.now.Before(r.AvailableAt):
	case e.job.Overdue && r.Desired == perdure.Done:
		w.park(e, r, "") // the job's alert gives the reason
	case d == perdure.Undo:
		w.advanceUndo(e, r)
	default:
		w.advanceDo(e, r)
	}
}

// advanceUndo settles a step that has nothing to undo without a run. Any other becomes ready.
func (w *Workset) advanceUndo(e *entry, r *row) {
	ps := &e.plan.Steps[r.Index]
	if ps.Form == ByChildren {
		w.own(e, r, perdure.Undo)
		return
	}
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
			w.skip(e, r)
			w.settle(e, r)
			return
		}
	}
	switch ps.Form {
	case BySleep:
		w.sleep(e, r, ps)
	case ByApproval:
		w.awaitApproval(e, r, ps)
	case BySignal:
		w.awaitSignal(e, r, ps)
	case ByChildren:
		w.own(e, r, perdure.Do)
	default:
		w.makeReady(e, r, perdure.Do)
	}
}

// skip marks a step whose desired state is done as skipped. It has no output then, even if it had one in an earlier
// turn.
func (w *Workset) skip(e *entry, r *row) {
	w.clearUndoStart(e, r)
	r.Skipped = true
	w.setOutput(r, nil)
}

// clearUndoStart is called before a step is settled or skipped without a run. If the latest run was an undo that has
// ended, its start time is cleared: it does not belong to the new state of the step. Without it, a view does not render
// the input of that run again, because the step's output may be replaced now.
func (w *Workset) clearUndoStart(e *entry, r *row) {
	if r.Run > 0 && r.Direction == perdure.Undo && r.nextDirection() == perdure.Do {
		w.keepRun(e, r)
		r.StartedAt = time.Time{}
	}
}

func (w *Workset) makeReady(e *entry, r *row, d perdure.Direction) {
	ps := &e.plan.Steps[r.Index]
	w.lineMoved(e, r) // its keys may be others now
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
	r.Needs = r.Needs.withoutJob().withDemand(r.demand(ps, d))
	if !e.job.HasPermit {
		r.Needs = r.Needs.withJob(e.job.Needs)
	}
	w.setPhase(e, r, perdure.Ready, time.Time{})
}

// mustEvalLimits reports whether the keys of the step's limits must be computed before it becomes ready: only for the
// first run of each do turn. Later runs and the undo use the same keys.
func (s *Step) mustEvalLimits(d perdure.Direction) bool {
	return s.Needs.WithShare("") == "" || d == perdure.Do && (s.Run == 0 || s.Direction == perdure.Undo)
}

// evalLimits evaluates the keys of the step's limits.
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

// sleep waits until the time that the step's input gives. A sleeping step holds no slot and is never dispatched.
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

// evalCondition evaluates the step's `when`.
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
	return done.conditionHolds, done.err
}

// deferAdvance reports whether the next phase of a step cannot be decided now. If values are missing, the decision is
// repeated once they are loaded. If they are more than can be loaded, or take more work than the budget has left, the
// decision is postponed: the step is due at once, and the supervisor finds it.
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

// settle settles the step, and unblocks the steps that waited for it. The last step settles once the job's output is
// rendered.
func (w *Workset) settle(e *entry, r *row) {
	if w.outputPending(e, r) {
		return
	}
	w.setPhase(e, r, perdure.Settled, time.Time{})
	w.settleTurned(e, r)
	r.Agent = ""
	for _, i := range e.plan.opens(r.Index, r.Desired) {
		w.enqueue(e, taskUnblock, i)
	}
}

// flip is a change of the desired state of a whole job.
type flip struct {
	to      perdure.State
	kind    flipKind
	by      string
	failure failure // of the steps that could be dispatched; without a code: none
}

type flipKind uint8

const (
	flipByOperator flipKind = iota
	flipByPolicy
	flipRestartUndo // by policy: undo, then redo
	flipRestartRedo // the redo of a restart
)

// flipJob sets the desired state of the job and of every step. A run in flight continues until it is reported or its
// lock ends; its step then changes direction.
func (w *Workset) flipJob(e *entry, f flip) {
	j := e.job
	if f.kind == flipRestartRedo {
		w.addHistory(e, "", 0, string(perdure.VerbRedo), policyAuthor, "restart")
	}
	w.updateDeadline(e, f)
	j.Desired, j.RestartPending = f.to, f.kind == flipRestartUndo
	j.GivenUpBy, j.GivenUpReason = "", ""
	if !j.SettledAt.IsZero() {
		j.ReopenedAt = w.now
	}
	j.SettledAt = time.Time{}
	if f.kind != flipRestartUndo && f.kind != flipRestartRedo { // a restart gives no more time to start
		j.StartBy = time.Time{}
	}
	e.dirty = true
	for i := range e.plan.Steps {
		r := e.steps.at(i)
		if f.failure.code != "" && r.active() {
			w.setError(r, f.failure)
		}
		w.flipStep(e, r, f.to)
	}
	w.closeAlerts(e, "", f.by, perdure.AlertParked, perdure.AlertApproval, perdure.AlertOutput)
	w.setJobOutput(e, nil, "")
	for i := range e.plan.Steps {
		switch r := e.steps.at(i); {
		case r.Blockers > 0:
		case f.kind == flipByOperator && f.to == perdure.Done && r.Phase != perdure.Running:
			w.begin(e, r)
		default:
			w.enqueue(e, taskAdvance, i)
		}
	}
}

// updateDeadline sets the job's deadline anew at a redo, clears it if a settled job is undone, and keeps it otherwise.
func (w *Workset) updateDeadline(e *entry, f flip) {
	j := e.job
	switch {
	case f.kind == flipRestartRedo:
		j.Overdue = false // if it passed during the undo, the supervisor acts on it now
	case f.to == perdure.Undone && j.Phase == perdure.Settled:
		j.CompleteBy, j.Overdue = time.Time{}, false
	case f.to == perdure.Done:
		w.renewDeadline(e)
	}
}

// flipStep resets the ladder, and sets Blockers to the number of all neighbours in the new direction. Each neighbour
// decrements it when it settles.
func (w *Workset) flipStep(e *entry, r *row, to perdure.State) {
	r.Desired, r.GivenUp = to, false
	r.resetLadder()
	r.Blockers = len(e.plan.waitsFor(r.Index, to))
	if to == perdure.Done {
		r.Skipped = false
	}
	if e.plan.Steps[r.Index].Form.isRule() {
		r.StartedAt = time.Time{}
	}
	if r.Phase == perdure.Running {
		r.dirty = true
		return
	}
	w.setPhase(e, r, perdure.Waiting, time.Time{})
}

// resetLadder sets the step back to the first rung, with no failures.
func (r *row) resetLadder() {
	r.Failures, r.Rung, r.Waits, r.Returns = 0, 0, 0, 0
	r.dirty = true
}

// updateJob sets the phase of the job's row from the counts of its steps, and what depends on the phase.
func (w *Workset) updateJob(e *entry) {
	j := e.job
	if j.GivenUp() {
		return
	}
	if j.Unsettled == 0 && j.RestartPending { // a restart: the undo is complete, and the redo begins
		w.enqueueFlip(e, flip{to: perdure.Done, kind: flipRestartRedo, by: policyAuthor})
		return
	}
	before := j.Phase
	j.Phase = phaseOf(j)
	// If a job is flipped and settles again in one event, its phase is unchanged, but it has no SettledAt: that is set
	// now.
	if j.Phase == before && (j.Phase != perdure.Settled || j.Current == j.Desired && !j.SettledAt.IsZero()) {
		return
	}
	e.dirty = true
	switch j.Phase {
	case perdure.Settled:
		j.Current, j.SettledAt, j.StartBy = j.Desired, w.now, time.Time{}
		w.releasePermit(j)
		w.closeAlerts(e, "", policyAuthor, allAlerts...)
		w.releaseUnique(e)
		j.Alerted = false
		w.raiseOutputAlert(e)
	case perdure.Parked:
		if parts, _ := j.Parent.Parts(); parts.ParkedFails && j.Desired == perdure.Done {
			j.Phase = before
			w.addHistory(e, "", 0, string(perdure.VerbUndo), policyAuthor, "it is parked, which its parent counts as failed")
			w.enqueueFlip(e, flip{to: perdure.Undone, kind: flipByPolicy, by: policyAuthor})
			return
		}
		w.closeAlerts(e, "", policyAuthor, perdure.AlertUndo, perdure.AlertRestart)
	}
	w.pauseDeadline(j, before)
}

// releasePermit releases what the job holds of limits.
func (w *Workset) releasePermit(j *Job) {
	if !j.HasPermit {
		return
	}
	j.HasPermit = false
	for _, n := range j.Needs.List() {
		w.releasedKeys = append(w.releasedKeys, n.LimitKey)
	}
}

// pauseDeadline stops the deadline of a job that is parked and releases its permit. When the job is no longer parked,
// the deadline moves by the time that it was parked.
func (w *Workset) pauseDeadline(j *Job, before perdure.Phase) {
	switch {
	case j.Phase == perdure.Parked && before != perdure.Parked:
		j.ParkedAt = w.now
		w.releasePermit(j)
	case before == perdure.Parked && j.Phase != perdure.Parked:
		if !j.CompleteBy.IsZero() && !j.ParkedAt.IsZero() {
			j.CompleteBy = j.CompleteBy.Add(w.now.Sub(j.ParkedAt))
		}
		j.ParkedAt = time.Time{}
	}
}
