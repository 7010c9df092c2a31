package sim

import (
	"bytes"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// The lines for the keys of limits with an order (I28): no step overtakes.

// waitingInLine is a step that stands in line for a key, as the transactions so far have left it.
type waitingInLine struct {
	begun bool      // its job had begun
	since time.Time // by the store's clock; a transaction that began earlier may not have seen it
}

// lineBook has the steps that stand in line, by key.
type lineBook map[kernel.LimitKey]map[kernel.StepRef]waitingInLine

// checkLines checks the runs that a transaction has dispatched, and then moves the lines on.
func (w *world) checkLines(t *watchedTx) {
	var runs []*kernel.Step
	begunBefore := map[perdure.JobID]bool{}
	touched := map[perdure.JobID]bool{}
	last := map[kernel.StepRef]*kernel.Step{}
	for _, c := range t.saved {
		for i := range c.NewJobs {
			begunBefore[c.NewJobs[i].Job.ID] = c.NewJobs[i].Job.Parent != ""
			for _, s := range c.NewJobs[i].Steps {
				last[s.StepRef] = s
				if s.Phase == perdure.Running {
					runs = append(runs, s)
				}
			}
		}
		for i := range c.Jobs {
			if _, met := begunBefore[c.Jobs[i].Now.ID]; !met {
				begunBefore[c.Jobs[i].Now.ID] = c.Jobs[i].Loaded.HasPermit || c.Jobs[i].Now.Parent != ""
			}
		}
		for i := range c.Steps {
			last[c.Steps[i].Now.StepRef] = c.Steps[i].Now
			if now := c.Steps[i].Now; now.Phase == perdure.Running && now.Run != c.Steps[i].Loaded.Run {
				runs = append(runs, now)
			}
		}
	}
	for ref := range last {
		touched[ref.Job] = true
	}
	dispatched := map[perdure.JobID]int{}
	for _, s := range runs {
		dispatched[s.Job]++
	}
	for _, s := range runs {
		begun, known := begunBefore[s.Job]
		begun = begun || dispatched[s.Job] > 1 // another step may have been dispatched first, in this transaction
		for _, n := range s.Needs.List() {
			if l := w.book.limits[n.Name]; n.Line != kernel.NotInLine && l.Ordered {
				w.checkTurn(n.LimitKey, s, begun || !known, touched)
			}
		}
	}
	for ref, s := range last {
		for _, line := range w.inLine {
			delete(line, ref)
		}
		if s.Phase != perdure.Ready && (s.Phase != perdure.Waiting || s.Blockers > 0 || s.AvailableAt.IsZero()) {
			continue
		}
		for _, n := range s.Needs.List() {
			if n.Line == kernel.NotInLine {
				continue
			}
			if w.inLine[n.LimitKey] == nil {
				w.inLine[n.LimitKey] = map[kernel.StepRef]waitingInLine{}
			}
			w.inLine[n.LimitKey][ref] = waitingInLine{begun: n.Line == kernel.RankBegun, since: w.storeNow()}
		}
	}
}

// checkTurn checks that a run has taken the permit of a key in its turn: no step of another job stood in line before it. The
// transaction may have changed the steps of the jobs that it touched.
func (w *world) checkTurn(k kernel.LimitKey, s *kernel.Step, begun bool, touched map[perdure.JobID]bool) {
	for ref, other := range w.inLine[k] {
		if ref.Job == s.Job || touched[ref.Job] {
			continue
		}
		w.hit("F345")
		if other.before(ref.Job, begun, s.Job) && other.since.Before(s.StartedAt) {
			w.wrong("I28", "%s/%s takes the permit of %s, and step %d of %s stands in line before it", short(s.Job), s.Name, k, ref.Index, short(ref.Job))
		}
	}
}

// firstInLine reports whether no other job stands in line before a step, for one of the keys that it needs.
func (w *world) firstInLine(s *kernel.Step, n kernel.Need) bool {
	if n.Line == kernel.NotInLine || !w.book.limits[n.Name].Ordered {
		return true
	}
	mine := w.inLine[n.LimitKey][s.StepRef]
	for ref, other := range w.inLine[n.LimitKey] {
		if other.before(ref.Job, mine.begun, s.Job) {
			return false
		}
	}
	return true
}

// before reports whether a step of job a stands before one of job b, of which begun says whether it had begun.
func (s waitingInLine) before(a perdure.JobID, begun bool, b perdure.JobID) bool {
	if s.begun != begun {
		return s.begun && a != b
	}
	return bytes.Compare(a[:], b[:]) < 0
}
