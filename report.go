package perdure

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// ReportRefs adds the steps that a report on the step touches: itself, and those that wait for it.
func (w *Workset) ReportRefs(refs []StepRef, ref StepRef) []StepRef {
	e := w.entry(ref.Job)
	refs = append(refs, ref)
	for _, i := range e.plan.opens(ref.Index, e.job.Desired) {
		refs = append(refs, StepRef{ref.Job, i})
	}
	return refs
}

// Report folds an agent's report in. Anything that does not come from the holder of the current run
// before its lock has passed changes nothing, and says why.
func (w *Workset) Report(ref StepRef, holder string, rep *Report) ReportResult {
	e := w.entry(ref.Job)
	r := e.steps.at(ref.Index)
	if refusal, repeated := w.refuse(r, holder, rep.Run, rep.Outcome); refusal != nil {
		return *refusal
	} else if repeated {
		return ReportResult{Accepted: true}
	}
	w.land(r, rep.Outcome)
	switch rep.Outcome {
	case OutcomeDone:
		r.Current = r.Direction.Pole()
		r.ErrorCode, r.LastError = "", ""
		if r.Direction == Do {
			w.setOutput(r, meaningful(rep.Output))
		}
		if r.Current != r.Desired {
			r.startOver() // it turns round
		}
		w.next(e, r)
	case OutcomeReturned:
		w.giveBack(e, r, holder, rep)
	default:
		if rep.Effect == EffectNone {
			r.Current = r.Was
		}
		w.fail(e, r, failureOf(rep), holder)
	}
	w.touch(e)
	return ReportResult{Accepted: true}
}

// refuse answers what is not the current run's, or comes late. repeated: it was accepted before.
func (w *Workset) refuse(r *row, holder string, run int64, outcome Outcome) (no *ReportResult, repeated bool) {
	deny := func(why RefusalReason, format string, args ...any) (*ReportResult, bool) {
		return &ReportResult{Reason: why, Message: fmt.Sprintf(format, args...)}, false
	}
	switch {
	case run <= 0 || run > r.Run:
		return deny(RefusedUnknown, "run %d of step %s was never let out", run, r.Name)
	case run < r.Run:
		return deny(RefusedStale, "run %d of step %s was let out after run %d", r.Run, r.Name, run)
	case r.Phase != Running && r.Outcome == outcome && outcome != NoOutcome:
		return nil, true
	case r.Phase != Running && (r.Outcome == OutcomeExpired || r.Outcome == NoOutcome):
		return deny(RefusedLate, "run %d of step %s has expired", run, r.Name)
	case r.Phase != Running:
		return deny(RefusedConflict, "run %d of step %s was answered before, with %s", run, r.Name, r.Outcome)
	case r.LockedBy != holder:
		return deny(RefusedForbidden, "run %d of step %s is held by another holder", run, r.Name)
	case !w.now.Before(r.LockedUntil):
		return deny(RefusedLate, "run %d of step %s was %s's until %s", run, r.Name, holder, r.LockedUntil.Format(time.RFC3339Nano))
	}
	return nil, false
}

// land ends the run: nobody holds the step any more. An earlier run, whose holder died before its time,
// may still act.
func (w *Workset) land(r *row, o Outcome) {
	w.landed = append(w.landed, Landing{Agent: r.Agent, Direction: r.Direction, Outcome: o, Took: w.now.Sub(r.StartedAt)})
	r.Outcome, r.EndedAt = o, w.now
	r.LockedBy, r.Request, r.Heartbeat = "", "", 0
	r.CompleteBy, r.LockedUntil = time.Time{}, r.AvailableAt
	r.dirty = true
}

// next looks at a step whose run has ended.
func (w *Workset) next(e *entry, r *row) {
	w.place(e, r, Waiting, time.Time{})
	w.later(e, taskLook, r.Index)
}

const (
	freeReturns   = 2 // given back more often in a row, a step backs off
	returnBackoff = time.Second
	maxReturnWait = time.Minute
)

// giveBack: the run was never started, or a drain cut it short. No failure is counted.
func (w *Workset) giveBack(e *entry, r *row, holder string, rep *Report) {
	if rep.Effect != EffectUnknown {
		r.Current = r.Was
	}
	w.note(e, r.Name, r.Run, "returned", holder, errorText(rep.Error))
	if r.turns() {
		r.startOver()
		w.next(e, r)
		return
	}
	r.Returns++
	if r.Returns > freeReturns {
		w.place(e, r, Waiting, w.now.Add(w.jitter(returnBackoff, maxReturnWait, r.Returns-freeReturns)))
		return
	}
	w.next(e, r)
}

// Beat folds a heartbeat in: it moves the lock on, never past the ultimatum, and never revives.
func (w *Workset) Beat(ref StepRef, holder string, b *Beat) BeatResult {
	e := w.entry(ref.Job)
	r := e.steps.at(ref.Index)
	res := BeatResult{Job: b.Job, Step: b.Step, Run: b.Run}
	if no, _ := w.refuse(r, holder, b.Run, NoOutcome); no != nil {
		res.Stop, res.Reason = true, string(no.Reason)
		return res
	}
	if until := r.lockEnd(w.now); until.After(r.LockedUntil) {
		r.LockedUntil, r.dirty = until, true
	}
	if len(b.Progress) > 0 && r.Progress != string(b.Progress) {
		r.Progress, r.dirty = string(b.Progress), true
	}
	res.LockedUntil, res.RemainingMs = r.LockedUntil, r.LockedUntil.Sub(w.now).Milliseconds()
	if r.turns() {
		res.Stop, res.Reason = true, string(VerbUndo)
	}
	return res
}

// Check says what is wrong with a report in itself; nil where nothing is.
func (rep *Report) Check() error {
	switch rep.Outcome {
	case OutcomeDone, OutcomeFailed, OutcomeRejected, OutcomeReturned:
	default:
		return Refuse(CodeInvalid, "outcome is done, failed, rejected or returned")
	}
	switch {
	case rep.Effect != "" && rep.Effect != EffectNone && !(rep.Effect == EffectUnknown && rep.Outcome == OutcomeReturned):
		return Refuse(CodeInvalid, `effect is "none" or nothing`)
	case rep.Effect == EffectNone && rep.Outcome == OutcomeDone:
		return Refuse(CodeInvalid, `effect "none" does not go with outcome done`)
	case len(rep.Output) > MaxPayloadBytes:
		return Refuse(CodeTooLarge, "output of %d bytes is over %d", len(rep.Output), MaxPayloadBytes)
	}
	if err := CheckJSON(rep.Output); err != nil {
		return Refuse(CodeInvalid, "output: %v", err)
	}
	if err := rep.Error.check(); err != nil {
		return err
	}
	return nil
}

func (e *RunError) check() error {
	switch {
	case e == nil:
		return nil
	case len(e.Code) > MaxCodeLength:
		return Refuse(CodeInvalid, "error.code is over %d characters", MaxCodeLength)
	case !plainText(e.Code) || !plainText(e.Message):
		return Refuse(CodeInvalid, "error holds a NUL or is not UTF-8")
	case e.RetryAfter < 0:
		return Refuse(CodeInvalid, "error.retryAfter is below 0")
	}
	return nil
}

// CheckJSON says whether b, if there is any, is one JSON value that every store keeps byte for byte: UTF-8,
// no NUL, nested no deeper than MaxDepth.
func CheckJSON(b []byte) error {
	switch {
	case len(b) == 0:
		return nil
	case !utf8.Valid(b):
		return fmt.Errorf("not UTF-8")
	case bytes.IndexByte(b, 0) >= 0:
		return fmt.Errorf("holds a NUL")
	case !json.Valid(b):
		return fmt.Errorf("not JSON")
	case depth(b) > MaxDepth:
		return fmt.Errorf("nested deeper than %d", MaxDepth)
	}
	return nil
}

// depth is how deep valid JSON is nested.
func depth(b []byte) (deepest int) {
	level, quoted := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			level++
			deepest = max(deepest, level)
		case c == '}' || c == ']':
			level--
		}
	}
	return deepest
}

func plainText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// meaningful is b, or nil where it says no more than null.
func meaningful(b []byte) []byte {
	if t := bytes.TrimSpace(b); len(t) == 0 || string(t) == "null" {
		return nil
	}
	return b
}

func errorText(e *RunError) string {
	switch {
	case e == nil:
		return ""
	case e.Code == "":
		return e.Message
	}
	return e.Code + ": " + e.Message
}
