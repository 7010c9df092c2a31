package kernel

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

// DropNews deletes news for steps that do not exist any more.
func (w *Workset) DropNews(news []ChildNews) {
	w.changes.TakenNews = append(w.changes.TakenNews, news...)
}

// OwnerMoved reports whether the latest event on a step with children has changed it.
func (w *Workset) OwnerMoved(ref StepRef) bool { return w.ownersMoved[ref] }

// IsOwner reports whether a step that was added has children.
func (w *Workset) IsOwner(ref StepRef) bool {
	e := w.entry(ref.Job)
	return e != nil && e.steps.at(ref.Index) != nil && e.plan.Steps[ref.Index].Form == ByChildren
}

// owning reports whether a run of a step with children has begun in direction d and has not ended.
func (s *Step) owning(d perdure.Direction) bool {
	return s.Run > 0 && s.Direction == d && s.Outcome == perdure.NoOutcome && s.Current == perdure.Unsure
}

// ownsAgain reports whether the next do run of a step with children goes on with those of the run before, because they are not
// undone.
func (s *Step) ownsAgain() bool {
	return s.Run > 0 && s.Direction == perdure.Do && s.Outcome != perdure.NoOutcome && s.Current == perdure.Unsure
}

// endOwning ends the run of a step with children that was not over: the job has changed direction, or an operator has settled the
// step.
func (w *Workset) endOwning(e *entry, r *row) {
	if e.plan.Steps[r.Index].Form == ByChildren && r.Run > 0 && r.Outcome == perdure.NoOutcome {
		r.Outcome, r.EndedAt, r.dirty = perdure.OutcomeReturned, w.now, true
		w.addRun(e, r, perdure.OutcomeReturned.String(), policyAuthor, "it was ended before all children were settled")
		w.moved(r)
	}
}

// own continues a step with children in a direction, or begins it.
func (w *Workset) own(e *entry, r *row, d perdure.Direction) {
	if d == perdure.Undo && !r.owning(d) {
		c := w.childrenOf(r)
		w.dropCollected(r, &c)
		if job := e.plan.Steps[r.Index].Job; c.Spawned == 0 || job.Detached && !job.UndoChild {
			w.endOwning(e, r)
			r.Current = perdure.Undone
			w.settle(e, r)
			return
		}
		w.beginOwner(e, r, d)
		c.Pass, c.Cursor, c.Left, c.Gone = PassUndo, 0, 0, 0
		if c.Unsettled() > 0 {
			c.Pass = PassStop
		}
		w.putChildren(r, &c)
	}
	w.tend(e, r)
}

// childrenOf returns what a step records of its children.
func (w *Workset) childrenOf(r *row) Children {
	c, err := r.Children.Read()
	if err != nil {
		panic(fmt.Sprintf("children of step %s of job %s: %v", r.Name, r.Job, err))
	}
	return c
}

func (w *Workset) putChildren(r *row, c *Children) {
	if s := c.state(); s != r.Children {
		r.Children, r.dirty = s, true
		w.moved(r)
	}
}

func (w *Workset) moved(r *row) {
	if w.ownersMoved == nil {
		w.ownersMoved = map[StepRef]bool{}
	}
	w.ownersMoved[r.StepRef] = true
}

// beginOwner begins a run of a step with children.
func (w *Workset) beginOwner(e *entry, r *row, d perdure.Direction) {
	w.endOwning(e, r)
	w.keepRun(e, r)
	r.turnOfRun = 0
	if d != r.Direction {
		r.Turn++
		if d == perdure.Do {
			w.setOutput(r, nil)
		}
	}
	r.CurrentBeforeRun, r.Current = r.Current, perdure.Unsure
	r.Run = max(r.Run+1, w.fence)
	r.Direction, r.Outcome = d, perdure.NoOutcome
	r.StartedAt, r.EndedAt, r.dirty = w.now, time.Time{}, true
	e.job.Current, e.job.StartBy, e.dirty = perdure.Unsure, time.Time{}, true
	w.moved(r)
}

// awaitChildren lets a step wait for its children. If more can be done at once, it is due at once.
func (w *Workset) awaitChildren(e *entry, r *row, more bool) {
	var at time.Time
	if more {
		at = w.now
	}
	w.awaitChildrenUntil(e, r, at)
}

// awaitChildrenUntil lets a step wait for its children. It is due at a time; zero: when there is news.
func (w *Workset) awaitChildrenUntil(e *entry, r *row, at time.Time) {
	if r.Phase == perdure.Waiting && r.Owns && r.AvailableAt.Equal(at) {
		return
	}
	if r.AvailableAt.IsZero() != at.IsZero() {
		w.moved(r)
	}
	w.setPhase(e, r, perdure.Waiting, at)
	e.count(r.Step, -1)
	r.Owns = true
	e.count(r.Step, +1)
}

// tend counts the news of the children of a step, and, if the step is not held back, decides what follows.
func (w *Workset) tend(e *entry, r *row) {
	c := w.childrenOf(r)
	f := w.owners[r.StepRef]
	if f == nil {
		w.ask(e, r, w.wantOf(e, r, &c))
		return
	}
	ps := &e.plan.Steps[r.Index]
	for _, n := range f.News {
		w.takenNews[n.Number] = true
		w.changes.TakenNews = append(w.changes.TakenNews, n)
		w.moved(r)
		if ChildID(n.Child, 0) == c.First {
			c.change(n, ps)
			if ps.Collect == CollectArtifact {
				c.News++
			}
			c.Collected, f.Outputs = 0, nil // an output may be another one now, and those of another set were found
		}
	}
	f.News = nil
	w.putChildren(r, &c)
	d := r.nextDirection()
	if r.Phase != perdure.Waiting || r.Blockers > 0 || r.Current == r.Desired || !r.AvailableAt.IsZero() && !r.Owns && w.now.Before(r.AvailableAt) {
		delete(w.owners, r.StepRef)
		w.noticeTurned(e, r, &c)
		return
	}
	if !f.All {
		delete(w.owners, r.StepRef)
		w.awaitChildren(e, r, true)
		return
	}
	if d == perdure.Do && !r.owning(d) && e.job.startsTooLate(w.now) { // the scan for such jobs ends it (ExpireJob)
		delete(w.owners, r.StepRef)
		if r.AvailableAt.IsZero() {
			w.setPhase(e, r, perdure.Waiting, w.now)
		}
		return
	}
	if d == perdure.Do && !r.owning(d) {
		if began, waits := w.beginDo(e, r, ps, &c, f); waits {
			return // called again, with what was found
		} else if !began {
			delete(w.owners, r.StepRef)
			return
		}
	}
	if d == perdure.Do {
		w.tendDo(e, r, ps, &c, f)
	} else {
		w.tendUndo(e, r, ps, &c, f)
	}
	if !slices.ContainsFunc(w.blocked, func(t task) bool { return t.entry == e && t.index == r.Index }) {
		delete(w.owners, r.StepRef)
	}
}

// ask wants something of the store for a step, which goes on when it was found.
func (w *Workset) ask(e *entry, r *row, want OwnerWant) {
	w.missing.Owners = append(w.missing.Owners, want)
	w.block(task{entry: e, kind: taskTend, index: r.Index})
}

// change counts one change of a child.
func (c *Children) change(n ChildNews, ps *PlanStep) {
	*c.count(n.From)--
	*c.count(n.To)++
	if c.Pass == PassRedo || c.Pass == PassRetry {
		if number := ChildNumber(n.Child); !c.reached(number, ps) {
			if n.From.failed() {
				c.Left--
			}
			if n.To.failed() {
				c.Left++
			}
		}
	}
	if n.To.failed() && c.FirstFailed.IsZero() {
		c.FirstFailed = n.Child
	}
	switch {
	case n.To == ChildParked && c.FirstParked.IsZero():
		c.FirstParked = n.Child
	case n.From == ChildParked && n.Child == c.FirstParked:
		c.FirstParked = perdure.JobID{}
	}
}

// beginDo begins a do run: the first of a turn, or a further one after a failure. waits: more has to be loaded. began is false
// if the step has failed, or waits for something else.
func (w *Workset) beginDo(e *entry, r *row, ps *PlanStep, c *Children, f *OwnerFound) (began, waits bool) {
	if r.ownsAgain() {
		w.beginOwner(e, r, perdure.Do)
		if c.FirstFailed = (perdure.JobID{}); !ps.Job.Detached {
			c.Pass, c.Cursor, c.Left, c.Gone, c.Collected = PassRetry, 0, c.Undone+c.Unsure, 0, 0
		}
		w.putChildren(r, c)
		return true, false
	}
	items, digest, err := w.itemsOf(e, r, ps)
	switch deferred := w.deferTend(e, r, err); {
	case deferred:
		return false, len(w.missing.Payloads) > 0
	case err != nil:
		if fault := (*ownerFault)(nil); errors.As(err, &fault) {
			w.failBeforeRun(e, r, failure{event: "rejected", code: fault.code, message: fault.message, final: true})
		} else {
			w.failExpression(e, r, err)
		}
		return false, false
	}
	if items.artifact != nil {
		l, asked := w.linesOf(e, r, f, LinesWant{Hash: *items.artifact})
		if l == nil {
			return false, asked
		}
		if l.Code != "" {
			w.failBeforeRun(e, r, failure{event: "rejected", code: l.Code, message: l.Reason, final: true})
			return false, false
		}
		items.n = l.Total
	}
	most, why := MostItems(ps.StepDefinition)
	parent, _ := e.job.Parent.Parts()
	switch {
	case f.Missing != nil:
		w.failBeforeRun(e, r, failure{event: "rejected", code: codeChildInvalid, message: f.Missing.Error(), final: true})
		return false, false
	case items.total() > most:
		w.failBeforeRun(e, r, failure{event: "rejected", code: codeTooManyItems, message: fmt.Sprintf("%d items; at most %d%s", items.total(), most, why), final: true})
		return false, false
	case parent.Depth >= MaxChildDepth:
		w.failBeforeRun(e, r, failure{event: "rejected", code: codeTooDeep, message: fmt.Sprintf("%d jobs are above this one, which is the maximum", parent.Depth), final: true})
		return false, false
	}
	sum := sha256.New()
	sum.Write(digest[:])
	sum.Write([]byte(f.MadeFrom))
	made := hex.EncodeToString(sum.Sum(nil)[:16])
	again := r.Children != "" && c.Digest == made && c.Spawned > 0
	w.beginOwner(e, r, perdure.Do)
	if again {
		c.FirstFailed = perdure.JobID{}
		if !ps.Job.Detached || ps.Job.UndoChild {
			c.Pass, c.Cursor, c.Left, c.Gone, c.Collected = PassRedo, 0, c.Undone+c.Unsure, 0, 0
		}
	} else { // also after an undo, if the items are others: the old children stay undone
		*c = Children{First: firstChild(r.Step, w.now), Digest: made, MadeFrom: f.MadeFrom, Total: items.total(), Turned: c.Turned}
	}
	w.putChildren(r, c)
	return true, false
}

// ownerFault is a fault of the items of a step.
type ownerFault struct{ code, message string }

func (f *ownerFault) Error() string { return f.code + ": " + f.message }

// deferTend is deferAdvance for a step with children, which goes on with taskTend.
func (w *Workset) deferTend(e *entry, r *row, err error) bool {
	var missing *NotLoaded
	if errors.As(err, &missing) && w.budget.mayRead() {
		w.noteMissing(r, missing)
		w.block(task{entry: e, kind: taskTend, index: r.Index})
		return true
	}
	return w.deferAdvance(e, r, err)
}

// tendDo decides on a step that is being done.
func (w *Workset) tendDo(e *entry, r *row, ps *PlanStep, c *Children, f *OwnerFound) {
	if !ps.Job.Detached && c.Failed() > ps.Tolerate.Of(c.Total) {
		w.failOwner(e, r, c, failure{event: "failed", code: codeChildFailed, message: childFailedText(c)})
		return
	}
	room := MaxItems
	if !ps.Job.Detached {
		room = cmp.Or(ps.MaxParallel, DefaultMaxParallel) - c.Unsettled()
	}
	more := false
	if c.Pass != NoPass {
		room, more = w.pass(e, r, ps, c, f, room)
		w.putChildren(r, c)
	}
	if c.Pass == NoPass && c.Spawned < c.Total {
		var ok bool
		if more, ok = w.spawn(e, r, ps, c, f, room); !ok {
			return
		}
	}
	if c.Pass == NoPass && c.Spawned == c.Total && !more && (ps.Job.Detached || c.Unsettled() == 0) {
		if ps.Job.Detached || !w.childrenChanged(c) {
			w.finishOwner(e, r, ps, c, f)
			return
		}
		more = true // an act in this transaction may turn them back, and then there is no news
	}
	w.putChildren(r, c)
	w.awaitChildren(e, r, more)
}

// goneText says how many children a pass has not found.
func goneText(c *Children) string {
	if c.Gone == 0 {
		return ""
	}
	return fmt.Sprintf("; %d of them were deleted", c.Gone)
}

func childFailedText(c *Children) string {
	text := fmt.Sprintf("%d of %d children have failed", c.Failed(), c.Total)
	if !c.FirstFailed.IsZero() {
		text += ", the first is " + c.FirstFailed.String()
	}
	return text + goneText(c)
}

// nextRung returns the rung that decides if the step fails now.
func (w *Workset) nextRung(e *entry, r *row) RungKind {
	ladder := e.plan.ladder(r.Index)
	for i := r.Rung; i < len(ladder); i++ {
		switch rung := ladder[i]; {
		case rung.Kind == RungAlert:
		case rung.Kind == RungWait && r.Waits >= max(rung.Times, 1):
		case rung.Kind == RungRestart && e.job.Restarts >= rung.Times:
		default:
			return rung.Kind
		}
	}
	return RungPark
}

// failOwner ends the run of a step with children as failed, and lets the ladder decide. Retries are those of the children.
func (w *Workset) failOwner(e *entry, r *row, c *Children, f failure) {
	w.putChildren(r, c)
	if r.Direction == perdure.Do && c.Unsettled() > 0 && !e.plan.Steps[r.Index].Job.Detached && w.nextRung(e, r) == RungSkip {
		w.awaitChildren(e, r, false) // it fails when its children are settled, because it settles then
		return
	}
	r.Outcome, r.EndedAt = perdure.OutcomeFailed, w.now
	w.recordRun(e, r, f, policyAuthor)
	w.moved(r)
	r.Failures++
	if e.job.Overdue && r.Desired == perdure.Done {
		w.park(e, r, "")
		return
	}
	w.escalate(e, r, false)
}

// collects reports whether the outputs of the children are part of that of the step.
func collects(ps *PlanStep) bool {
	return !ps.Job.Detached && (ps.Collect == CollectList || ps.Items == nil)
}

// finishOwner settles a step whose children are all settled, when their outputs are collected.
func (w *Workset) finishOwner(e *entry, r *row, ps *PlanStep, c *Children, f *OwnerFound) {
	if collects(ps) && f.Outputs == nil && c.Total > 0 {
		w.putChildren(r, c)
		delete(w.owners, r.StepRef)
		w.tend(e, r)
		return
	}
	if ps.Collect == CollectArtifact && f.collected == nil {
		w.putChildren(r, c)
		if f.collectedKnown { // it is being written
			w.awaitChildrenUntil(e, r, w.now.Add(linesPause))
			w.moved(r)
			return
		}
		w.ask(e, r, OwnerWant{StepRef: r.StepRef, Collect: &CollectWant{c.First, c.Total, c.News}})
		return
	}
	var before json.RawMessage
	if c.Collected > 0 {
		var err error
		if before, err = e.output(r.Index); w.deferTend(e, r, err) {
			return
		}
	}
	out, collected := w.outputOfOwner(ps, c, f, before)
	w.setOutput(r, meaningful(out))
	if c.Collected = collected; collected > 0 {
		w.putChildren(r, c)
		w.awaitChildren(e, r, true)
		return
	}
	r.Current, r.Outcome, r.EndedAt = perdure.Done, perdure.OutcomeDone, w.now
	r.ErrorCode, r.LastError = "", ""
	r.resetLadder()
	c.Settled = c.Done
	w.putChildren(r, c)
	w.moved(r)
	w.settle(e, r)
}

// outputOfOwner returns the output of a step with children: that of the one child, or counts and perhaps the outputs. before has
// the first outputs (Collected). If there are more of them, collected is how many the output has now; otherwise it is 0.
func (w *Workset) outputOfOwner(ps *PlanStep, c *Children, f *OwnerFound, before json.RawMessage) (out json.RawMessage, collected int) {
	switch {
	case ps.Job.Detached && ps.Items == nil:
		return fmt.Appendf(nil, `{"job":"%s"}`, c.First), 0
	case ps.Job.Detached:
		return fmt.Appendf(nil, `{"total":%d}`, c.Total), 0
	case ps.Items == nil:
		return f.Outputs[c.First], 0
	}
	counts := fmt.Appendf(nil, `{"total":%d,"done":%d,"failed":%d`, c.Total, c.Done, c.Undone+c.Unsure)
	switch a := f.collected; {
	case ps.Collect == CollectArtifact && a.Reason != "":
		reason, _ := json.Marshal(a.Reason) // cannot fail
		return append(append(append(counts, `,"items":null,"itemsError":`...), reason...), '}'), 0
	case ps.Collect == CollectArtifact:
		return fmt.Appendf(counts, `,"items":{"$artifact":"%s","size":%d,"type":"application/x-ndjson"}}`, a.Hash, a.Size), 0
	case ps.Collect != CollectList:
		return append(counts, '}'), 0
	}
	const end = `]}`
	b := append(slices.Clone(counts), `,"items":[`...)
	if c.Collected > 0 {
		b = slices.Clone(before[:len(before)-len(end)])
	}
	last := min(c.Total, c.Collected+CollectSet)
	for i := c.Collected; i < last; i++ {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, plain.OrNull(f.Outputs[ChildID(c.First, i)])...)
		if f.TooLarge || len(b) > perdure.MaxPayloadBytes-len(end) {
			return fmt.Appendf(counts, `,"items":null,"itemsError":"the outputs have more than %d bytes in total"}`, perdure.MaxPayloadBytes), 0
		}
	}
	if last < c.Total {
		collected = last
	}
	return append(b, end...), collected
}

// dropCollected deletes the output of a step if it has the outputs of some children only.
func (w *Workset) dropCollected(r *row, c *Children) {
	if c.Collected > 0 {
		c.Collected = 0
		w.setOutput(r, nil)
		w.putChildren(r, c)
	}
}

// settleChildren records how many children are done when an operator settles a step.
func (w *Workset) settleChildren(e *entry, r *row) {
	if e.plan.Steps[r.Index].Form == ByChildren {
		c := w.childrenOf(r)
		w.dropCollected(r, &c)
		c.Pass, c.Cursor, c.Left, c.Settled = NoPass, 0, 0, c.Done
		w.putChildren(r, &c)
	}
}

// closeTurned closes the alert of noticeTurned.
func (w *Workset) closeTurned(e *entry, r *row) {
	if r.Children == "" {
		return // as most steps
	}
	c := w.childrenOf(r)
	if !c.Turned {
		return
	}
	c.Turned = false
	w.putChildren(r, &c)
	e.job.Alerted = true // it stays open while the job is settled
	w.closeAlerts(e, r.Name, policyAuthor, perdure.AlertChildTurned)
}
