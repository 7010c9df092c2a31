package sim

import (
	"time"

	"github.com/perdure/perdure/internal/kernel"
)

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
