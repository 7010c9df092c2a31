package perdure

import (
	"encoding/json"
	"time"
)

// Admission is what a claim knows of the limits: those that are there, locked and counted.
type Admission map[string]*Limit

// of is the limit of a kind, an agent's or a job type's, by the prefix of such names; nil where there is none.
func (a Admission) of(prefix, name string) *Limit {
	if len(a) == 0 {
		return nil
	}
	return a[prefix+name]
}

// room says whether one more permit may be taken.
func (l *Limit) room() bool { return l == nil || l.Used < l.Max }

func (l *Limit) take() {
	if l != nil {
		l.Used++
	}
}

// ClaimRefs are the steps whose payloads must be added before Claim can let the step out: those that
// its input reads, and its own.
func (w *Workset) ClaimRefs(ref StepRef) []StepRef {
	e := w.entry(ref.Job)
	s := e.steps.at(ref.Index)
	var refs []StepRef
	if _, known := e.output(ref.Index); !known || !e.inputKnown(s) {
		refs = append(refs, ref)
	}
	for _, i := range e.inputRefs(s.Step) {
		if _, known := e.output(i); !known {
			refs = append(refs, StepRef{ref.Job, i})
		}
	}
	return refs
}

// Claim lets a step out, if it may be let out as things stand: ready, for this agent, before the job's
// ultimatum, and with room under the limits of its agent and of its job's type. The answer is nil where
// it may not.
func (w *Workset) Claim(ref StepRef, c *ClaimRequest, limits Admission) *Run {
	e := w.entry(ref.Job)
	r := e.steps.at(ref.Index)
	if r.Phase != Ready || r.Agent != c.Agent || w.pastUltimatum(e.job) {
		return nil
	}
	ofAgent, ofType := limits.of(agentLimitPrefix, c.Agent), limits.of(jobLimitPrefix, e.job.Type)
	if !ofAgent.room() || !e.job.Permit && !ofType.room() {
		return nil
	}
	d := r.wants()
	input, err := w.renderInput(e, r, d)
	if err != nil { // no run number is spent on it
		w.stumble(e, r, err)
		w.touch(e)
		return nil
	}
	if !e.job.Permit {
		e.job.Permit = true
		ofType.take()
	}
	ofAgent.take()
	w.letOut(e, r, d, c)
	w.keepInput(e, r, d, input)
	w.touch(e)
	return w.runOf(e, r, input)
}

func (w *Workset) pastUltimatum(j *Job) bool {
	return j.Desired == Done && !j.CompleteBy.IsZero() && !w.now.Before(j.CompleteBy)
}

// letOut gives the step a new run number and the locks of its holder.
func (w *Workset) letOut(e *entry, r *row, d Direction, c *ClaimRequest) {
	if d != r.Direction {
		r.Turn++
		if d == Do {
			w.setOutput(e, r, nil)
		}
	}
	var held time.Time // the holder of an earlier run is dead: what it set going may still act
	if w.now.Before(r.LockedUntil) {
		held = r.LockedUntil
	}
	r.Was, r.Current = r.Current, Unsure
	r.Run = max(r.Run+1, w.fence)
	r.Direction, r.Outcome, r.Progress = d, NoOutcome, ""
	r.LockedBy, r.Request, r.Heartbeat = c.Holder, c.RequestID, c.Heartbeat
	r.CompleteBy = w.now.Add(e.plan.Steps[r.Index].completeWithin(d))
	if cb := e.job.CompleteBy; w.now.Before(cb) && cb.Before(r.CompleteBy) {
		r.CompleteBy = cb
	}
	r.LockedUntil = r.lockEnd(w.now)
	r.StartedAt, r.EndedAt = w.now, time.Time{}
	w.place(e, r, Running, held)
	e.job.Current = Unsure
}

// lockEnd is until when the run is its holder's, heard from at now: never past its ultimatum.
func (s *Step) lockEnd(now time.Time) time.Time {
	if s.Heartbeat <= 0 {
		return s.CompleteBy
	}
	if until := now.Add(s.Heartbeat); until.Before(s.CompleteBy) {
		return until
	}
	return s.CompleteBy
}

// Again is the run that a repeated claim gets once more: the same, with what is left of its time. The
// payloads of ClaimRefs must be there. The answer is nil where the run is no longer valid.
func (w *Workset) Again(ref StepRef, c *ClaimRequest) *Run {
	e := w.entry(ref.Job)
	r := e.steps.at(ref.Index)
	if r.Phase != Running || r.LockedBy != c.Holder || r.Agent != c.Agent || r.Request != c.RequestID || !w.now.Before(r.LockedUntil) {
		return nil
	}
	input, err := w.renderInput(e, r, r.Direction)
	if err != nil {
		return nil // it was rendered from the same values before
	}
	return w.runOf(e, r, input)
}

func (w *Workset) runOf(e *entry, r *row, input json.RawMessage) *Run {
	_, action := e.plan.Steps[r.Index].agentOf(r.Direction)
	run := &Run{Job: e.job.ID, Step: r.Name, Action: action, Number: r.Run, Direction: r.Direction,
		Input: input, Key: r.Key(), LockedUntil: r.LockedUntil, CompleteBy: r.CompleteBy,
		RemainingMs: r.LockedUntil.Sub(w.now).Milliseconds(), Priority: r.Priority}
	if r.Direction == Undo {
		out, _ := e.output(r.Index)
		run.Output, run.DoKey = orNull(out), r.DoKey()
	}
	return run
}

// ——— inputs ———

// inputRefs are the steps whose outputs the next input of s reads.
func (e *entry) inputRefs(s *Step) []int {
	ps := &e.plan.Steps[s.Index]
	d := s.wants()
	if s.Phase == Running {
		d = s.Direction
	}
	switch {
	case s.Edited.holds(d):
		return nil
	case d == Undo && ps.Revert != nil:
		return ps.Revert.Refs()
	case d == Undo && s.OwnInput && s.Edited != editedDo || ps.Do == nil:
		return nil
	}
	return ps.Do.Refs()
}

// lookRefs are the steps whose outputs a look at step i may read.
func (e *entry) lookRefs(i int) []int {
	ps := &e.plan.Steps[i]
	s := e.steps.at(i).Step
	if s.Desired != Done || s.Blockers > 1 || s.Phase == Running || s.Phase == Parked {
		return nil
	}
	var refs []int
	if ps.Test != nil {
		refs = append(refs, ps.Test.Refs()...)
	}
	if ps.Form == BySleep && ps.Do != nil {
		refs = append(refs, ps.Do.Refs()...)
	}
	return refs
}

// renderInput is what a run in direction d is handed. An undo carries the input of the last do run
// unless its definition has one of its own.
func (w *Workset) renderInput(e *entry, r *row, d Direction) (json.RawMessage, error) {
	ps := &e.plan.Steps[r.Index]
	switch {
	case r.Edited.holds(d):
		return e.input(r), nil
	case d == Undo && ps.Revert != nil:
		return bounded(ps.Revert.Render(e.scope(r, Undo, ps.Revert.Refs())))
	case d == Undo && r.OwnInput && r.Edited != editedDo:
		return e.input(r), nil
	case r.Phase == Running && d == Do && r.OwnInput:
		return e.input(r), nil
	}
	return renderDo(e, r, ps)
}

func renderDo(e *entry, r *row, ps *PlanStep) (json.RawMessage, error) {
	if ps.Do == nil {
		return json.RawMessage("null"), nil
	}
	return bounded(ps.Do.Render(e.scope(r, Do, ps.Do.Refs())))
}

func bounded(b json.RawMessage, err error) (json.RawMessage, error) {
	if err == nil && len(b) > MaxPayloadBytes {
		return nil, Refuse(CodeTooLarge, "the input would be %d bytes, over %d", len(b), MaxPayloadBytes)
	}
	return b, err
}

// keepInput stores the input of a do run where it was made of outputs: those may be others when the
// undo comes.
func (w *Workset) keepInput(e *entry, r *row, d Direction, input json.RawMessage) {
	ps := &e.plan.Steps[r.Index]
	switch {
	case d == Undo:
		return
	case r.Edited.holds(Do):
		r.Edited = editedDone
		return
	}
	r.Edited = notEdited
	if ps.Do != nil && len(ps.Do.Refs()) > 0 {
		w.setInput(e, r, input)
	} else {
		w.setInput(e, r, nil)
	}
}

// scope is what an expression of the step may see.
func (e *entry) scope(r *row, d Direction, refs []int) *Scope {
	s := &Scope{Job: e.job, Input: e.plan.Definition.Input}
	if len(refs) > 0 {
		s.Outputs = make(map[string]json.RawMessage, len(refs))
	}
	for _, i := range refs {
		if out, _ := e.output(i); out != nil {
			s.Outputs[e.plan.Steps[i].Name] = out
		}
	}
	if d == Undo {
		turn := *r.Step
		if r.Direction != Undo {
			turn.Turn++ // the run that is about to be let out begins it
		}
		out, _ := e.output(r.Index)
		s.Output, s.Key, s.DoKey = orNull(out), turn.Key(), turn.DoKey()
	}
	return s
}
