package kernel

import (
	"time"

	"github.com/perdure/perdure"
)

// Effects are what an act does to the steps of a job at once, as a preview shows it. A step that waits for other steps
// is in none of the lists, except perhaps WithoutUndo: what becomes of it depends on those. Each list is in the order of
// the definition.
type Effects struct {
	Dispatch []string // steps that become ready, or are ready for the other direction: an agent may claim them
	Settle   []string // steps that are settled without a run, or whose state changes although they are settled
	Park     []string // steps that the act has changed and that are parked: they wait for an operator
	WaitFor  []StepWait
	// WithoutUndo has the steps that may have had an effect, are to be undone now, and have no undo: their effect
	// remains.
	WithoutUndo []string
}

// StepWait is a step that was changed and waits: for the end of its run, for a time, a signal or an approval.
type StepWait struct {
	Step  string
	Until time.Time // the end of the run's lock, or the time; zero: there is no time, as for an approval or a signal without a deadline
}

// EffectsOf returns the effects of the changes that one act has made to one job.
func EffectsOf(c *Changes, shape *Shape) Effects {
	var e Effects
	for i := range c.Steps {
		e.add(c.Steps[i].Now, c.Steps[i].Loaded, &shape.Steps[c.Steps[i].Now.Index])
	}
	return e
}

func (e *Effects) add(now, before *Step, ps *PlanStep) {
	if before.Desired == perdure.Done && now.Desired == perdure.Undone && before.Current != perdure.Undone && ps.Form == ByAgent && ps.Undo == nil {
		e.WithoutUndo = append(e.WithoutUndo, now.Name)
	}
	switch now.Phase {
	case perdure.Ready:
		if before.Phase != perdure.Ready || before.nextDirection() != now.nextDirection() {
			e.Dispatch = append(e.Dispatch, now.Name)
		}
	case perdure.Settled:
		if before.Phase != perdure.Settled || before.Current != now.Current || before.Skipped != now.Skipped {
			e.Settle = append(e.Settle, now.Name)
		}
	case perdure.Parked:
		e.Park = append(e.Park, now.Name)
	case perdure.Running:
		e.WaitFor = append(e.WaitFor, StepWait{now.Name, now.LockedUntil})
	case perdure.Waiting:
		if asks := (ps.Form == ByApproval || ps.Form == BySignal) && now.Blockers == 0 && !now.StartedAt.IsZero(); asks || now.Owns || !now.AvailableAt.IsZero() {
			e.WaitFor = append(e.WaitFor, StepWait{now.Name, now.AvailableAt})
		}
	}
}

// LatestWait is the source of randomness of a preview: of the times that a wait may have, a preview shows the latest.
func LatestWait() float64 { return 1 }
