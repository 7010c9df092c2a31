package sim

import (
	"context"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// previewed is what an operator was shown before an act, and the state of the job at that time.
type previewed struct {
	job     *kernel.Job
	steps   []*kernel.Step
	at      time.Time
	commits int // to the job
	acts    int // that operators have begun on the job
	view    *operate.Preview
	refusal error
}

// preview previews an act at a node. It returns nil if the job changes meanwhile, if another act may be under way, or if
// the node does not answer.
func (w *world) preview(ctx context.Context, n *node, id perdure.JobID, a perdure.Act) *previewed {
	if w.own.IntN(2) == 0 || w.actsBegun[id] != w.actsAnswered[id] {
		return nil
	}
	p := &previewed{job: w.job(id), steps: w.steps(id), at: w.storeNow(), commits: w.book.commits[id], acts: w.actsBegun[id]}
	p.view, p.refusal = n.real.Preview(ctx, id.String(), a)
	code := perdure.CodeOf(p.refusal)
	if p.job == nil || w.book.commits[id] != p.commits || p.refusal != nil && code != perdure.CodeConflict && code != perdure.CodeInvalid {
		return nil
	}
	return p
}

// checkPreview checks that an act has done what its preview has shown, if nothing else has happened to the job in
// between: no other transaction, no other act in the same transaction, no end of a run, and no time that the rules wait for. The transaction of the act may
// have dispatched steps that the act has made ready.
func (w *world) checkPreview(p *previewed, a perdure.Act, refusal error) {
	if p == nil || w.actsBegun[p.job.ID] > p.acts+1 || w.timePassed(p) {
		return
	}
	steps, commits := w.steps(p.job.ID), w.book.commits[p.job.ID]-p.commits
	for i, s := range steps {
		if before := p.steps[i]; before.Phase == perdure.Running && (s.Phase != perdure.Running || s.Run != before.Run) {
			return // a report may have been in the same transaction
		}
	}
	name := short(p.job.ID) + "/" + a.Step
	switch code := perdure.CodeOf(refusal); {
	case refusal != nil && code != perdure.CodeConflict && code != perdure.CodeInvalid:
		return // it is not known whether the act was performed
	case commits > 1 || commits == 1 && (refusal != nil || p.view != nil && p.view.Job.Unchanged):
		return // another transaction has changed the job
	case (refusal == nil) != (p.refusal == nil):
		w.wrong("preview", "%s of %s: the preview ends with %v, the act with %v", a.Verb, name, p.refusal, refusal)
		return
	case refusal != nil:
		return
	case w.job(p.job.ID).Restarts != p.job.Restarts:
		return // a step that the act has made ready could not be dispatched, and its ladder has restarted the job
	}
	for i, s := range steps {
		if shown := &p.view.Job.Steps[i]; w.isReady(p, i) && s.Phase != perdure.Ready && s.Run == shown.Run {
			return // its input cannot be evaluated, which is found when it is dispatched
		}
	}
	for i, s := range steps {
		waited := p.view.Job.Steps[i].Why
		if (s.Topic != "") != (waited != nil && waited.Kind == perdure.WhySignal) {
			return // a signal was kept after the preview, or another job has received it
		}
	}
	for i, s := range steps {
		shown := &p.view.Job.Steps[i]
		if s.Run == shown.Run+1 && w.isReady(p, i) {
			continue // dispatched
		}
		same := s.Run == shown.Run && s.Current == shown.Current && s.Desired == shown.Desired && s.Skipped == shown.Skipped && s.GivenUp == shown.GivenUp
		if !same || s.Phase != shown.Phase && !w.isReady(p, i) {
			w.wrong("preview", "%s of %s: step %s is %s %s run %d, and its preview was %s %s run %d", a.Verb, name, s.Name,
				s.Current, s.Phase, s.Run, shown.Current, shown.Phase, shown.Run)
		}
	}
	w.hit("previewed")
}

// isReady reports whether a preview has shown a step as ready. A ready step that only a limit holds back is shown as
// waiting.
func (w *world) isReady(p *previewed, i int) bool {
	s := &p.view.Job.Steps[i]
	return s.Phase == perdure.Ready || s.Why != nil && s.Why.Kind == perdure.WhyLimit
}

// timePassed reports whether a time has come, since a preview, for which a step or the job has waited then or would
// wait after the act.
func (w *world) timePassed(p *previewed) bool {
	now := w.storeNow()
	passed := func(t time.Time) bool { return !t.IsZero() && t.After(p.at.Add(-slack)) && !t.After(now) }
	if passed(p.job.CompleteBy) || passed(p.job.StartBy) {
		return true
	}
	for _, s := range p.steps {
		// What was due before the preview may also happen after it, if the node was busy or stood still.
		due := s.Phase == perdure.Waiting && !s.AvailableAt.IsZero() && !s.AvailableAt.After(now) || s.Phase == perdure.Running && !s.LockedUntil.After(now)
		if due || passed(s.LockedUntil) || passed(s.AvailableAt) {
			return true
		}
	}
	if p.view == nil {
		return false
	}
	return slices.ContainsFunc(p.view.Effects.WaitFor, func(s operate.StepWait) bool { return passed(s.Until) })
}
