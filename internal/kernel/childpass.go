package kernel

import (
	"cmp"
	"fmt"

	"github.com/perdure/perdure"
)

// child returns a child that was locked, and that has not changed since; nil if there is none.
func (w *Workset) child(id perdure.JobID) *entry {
	e := w.entry(id)
	if e == nil || e.dirty || e.loaded == nil || !e.whole || e.updateQueued || e.hasBlockedTask {
		return nil
	}
	return e
}

// pass goes through the children that exist, from the cursor on, as far as they are locked, and turns at most room of them that
// are settled. It returns the room that is left, and whether another transaction can go on at once.
func (w *Workset) pass(e *entry, r *row, ps *PlanStep, c *Children, f *OwnerFound, room int) (left int, more bool) {
	seen, fromStart := 0, c.Cursor == 0
	for n := 0; n < SpawnSet && c.Cursor < c.Spawned; n++ {
		if c.Pass == PassStop && (c.Unsettled() == 0 || fromStart && seen == c.Unsettled()) { // no other is unsettled
			c.Cursor = c.Spawned
			break
		}
		id := ChildID(c.First, c.number(c.Cursor, ps))
		if f.Gone[id] { // it stays in the counts as it was, and cannot be turned
			c.Gone++
			c.Cursor++
			w.moved(r)
			continue
		}
		child := w.child(id)
		if child == nil {
			return room, true
		}
		state := ChildStateOf(child.job)
		switch c.Pass {
		case PassRedo, PassRetry:
			if !state.failed() {
				break
			}
			if room <= 0 {
				return room, false
			}
			room--
			c.Left--
			w.turnChild(e, r, child, perdure.Done)
		case PassStop:
			if state == ChildActive || state == ChildParked {
				seen++
				w.turnChild(e, r, child, perdure.Undone)
			}
		case PassUndo:
			switch {
			case state == ChildUndone:
			case state == ChildActive || state == ChildParked:
				w.turnChild(e, r, child, perdure.Undone)
			case room <= 0:
				return room, false
			default:
				room--
				w.turnChild(e, r, child, perdure.Undone)
			}
		}
		c.Cursor++
		w.moved(r)
	}
	if c.Cursor < c.Spawned {
		return room, true
	}
	switch c.Cursor = 0; c.Pass {
	case PassStop:
		c.Pass, c.Gone = PassUndo, 0
		return room, true
	case PassUndo:
		c.Cursor = c.Spawned // it is over, and the step waits for the children
		return room, false
	}
	c.Pass, c.Left = NoPass, 0
	return room, c.Spawned < c.Total
}

// turnChild changes the direction of a child on behalf of its parent.
func (w *Workset) turnChild(e *entry, r *row, child *entry, to perdure.State) {
	if child.job.Desired == to && !child.job.GivenUp() { // it is on its way, or parked there
		if child.job.RestartPending {
			child.job.RestartPending, child.dirty = false, true
			w.queueUpdate(child)
		}
		return
	}
	verb := perdure.VerbUndo
	if to == perdure.Done {
		verb = perdure.VerbRedo
	}
	w.addHistory(child, "", 0, string(verb), policyAuthor, fmt.Sprintf("its parent %s/%s is to be %s", e.job.ID, r.Name, to))
	w.enqueueFlip(child, flip{to: to, kind: flipByPolicy, by: policyAuthor})
	w.queueUpdate(child)
}

// tendUndo decides on a step that is being undone.
func (w *Workset) tendUndo(e *entry, r *row, ps *PlanStep, c *Children, f *OwnerFound) {
	more := false
	if c.Cursor < c.Spawned || c.Pass == PassStop {
		_, more = w.pass(e, r, ps, c, f, cmp.Or(ps.MaxParallel, DefaultMaxParallel)-c.Unsettled())
	}
	switch {
	case c.Pass != PassUndo || c.Cursor < c.Spawned || c.Unsettled() > 0:
		w.putChildren(r, c)
		w.awaitChildren(e, r, more)
	case w.childrenChanged(c):
		w.putChildren(r, c)
		w.awaitChildren(e, r, true) // an act in this transaction may turn them back, and then there is no news
	case c.Undone < c.Spawned: // given up, or done again by an operator meanwhile
		w.failOwner(e, r, c, failure{event: "failed", code: codeChildFailed, message: fmt.Sprintf("%d of %d children are not undone%s", c.Spawned-c.Undone, c.Spawned, goneText(c))})
	default:
		r.Current, r.Outcome, r.EndedAt = perdure.Undone, perdure.OutcomeDone, w.now
		r.ErrorCode, r.LastError = "", ""
		c.Pass, c.Cursor = NoPass, 0
		w.putChildren(r, c)
		w.moved(r)
		r.resetLadder()
		w.advanceAfterRun(e, r) // it settles, or is done again
	}
}

// childrenChanged reports whether children have changed in this transaction, so that their news is not counted yet.
func (w *Workset) childrenChanged(c *Children) bool {
	for i := range w.order {
		if id := w.order[i].job.ID; ChildID(id, 0) == c.First && (w.order[i].dirty || w.order[i].updateQueued) {
			return true
		}
	}
	return false
}

// turnedAlone reports whether a child is not as the step desires, so that an operator has turned it alone if the step was done or
// undone.
func (w *Workset) turnedAlone(e *entry, r *row, c *Children) bool {
	switch job := e.plan.Steps[r.Index].Job; {
	case job.Detached && (r.Desired == perdure.Done || !job.UndoChild):
		return false // the children go their own ways
	case r.Desired == perdure.Done:
		return c.Done < c.Settled
	}
	return c.Undone < c.Spawned
}

// settleTurned closes the alert of noticeTurned when a step settles, or raises it if a child was turned while the step waited to
// be done or undone again, which did not happen.
func (w *Workset) settleTurned(e *entry, r *row) {
	if r.Children == "" {
		return // as most steps
	}
	c := w.childrenOf(r)
	if r.Outcome != perdure.OutcomeDone || r.Skipped || !w.turnedAlone(e, r, &c) {
		w.closeTurned(e, r)
		return
	}
	if r.Current = perdure.Unsure; !c.Turned {
		w.noticeTurned(e, r, &c)
	}
}

// noticeTurned raises an alert if a child of a settled step is not as the step is, because an operator has turned it alone. The
// step is unsure then. When that is over, it is as it was, and the alert is closed.
func (w *Workset) noticeTurned(e *entry, r *row, c *Children) {
	if r.Phase != perdure.Settled || r.Skipped || r.GivenUp || r.Run == 0 {
		return
	}
	switch turned := w.turnedAlone(e, r, c); {
	case turned && !c.Turned:
		c.Turned, r.Current = true, perdure.Unsure
		w.raiseAlert(e, r, perdure.AlertChildTurned, "", fmt.Sprintf("step %s was %s, but of its %d children %d are done and %d undone: redo or undo the child that was turned, or undo the job",
			r.Name, r.Desired, c.Spawned, c.Done, c.Undone))
	case !turned && c.Turned:
		r.Current = r.Desired
		w.closeTurned(e, r)
		return
	default:
		return
	}
	w.putChildren(r, c)
}
