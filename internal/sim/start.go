package sim

import (
	"context"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// jobOutput checks that a job that is done has the output of the step that its definition names, and another has none
// (F303).
func (w *world) jobOutput(j *kernel.Job) {
	of := w.book.jobs[j.ID].output
	found, err := w.inner.Payload(context.Background(), kernel.StepRef{Job: j.ID, Index: kernel.OutputIndex})
	w.must(err)
	got, want := "null", "null"
	if found != nil {
		got = string(orNull(found.Output))
	}
	if of != "" && j.Current == perdure.Done {
		want = w.book.at(j.ID, of).output.json()
		w.hit("F303")
	}
	if got != want || j.HasOutput != (want != "null") || j.OutputError != "" {
		w.wrong("F303", "%s has the output %s (%v, %q), and not %s", short(j.ID), got, j.HasOutput, j.OutputError, want)
	}
}

// checkStart checks that the first run of a job is dispatched in the time that its definition gives, unless an operator has
// acted on the job.
func (w *world) checkStart(s *kernel.Step, name string) {
	j, d := w.job(s.Job), w.plan(s.Job).Definition
	from := j.CreatedAt.Add(time.Duration(d.StartIn))
	if d.StartIn > 0 {
		w.hit("F300")
		if s.StartedAt.Before(from.Truncate(time.Microsecond)) {
			w.wrong("F300", "%s is dispatched %s before the start of its job", name, from.Sub(s.StartedAt))
		}
	}
	if by := from.Add(time.Duration(d.StartWithin)); d.StartWithin > 0 && !s.StartedAt.Before(by) {
		w.wrong("F301", "%s is dispatched %s after the time by which its job must start", name, s.StartedAt.Sub(by))
	}
}
