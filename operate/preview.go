package operate

import (
	"time"

	"github.com/perdure/perdure"
)

// Preview is what an act would do to a job now.
type Preview struct {
	// Job is the job as it would be right after the act: without its definition and alerts, and without inputs and
	// outputs. Its Unchanged is true if the act would find nothing to do.
	Job     *perdure.JobView `json:"job"`
	Effects Effects          `json:"effects"`
}

// MaxEffects bounds each list of Effects.
const MaxEffects = 100

// Effects are what an act would do to steps at once. A step that has to wait for other steps is only in the job. Each
// list is in the order of the definition.
type Effects struct {
	Dispatch []string   `json:"dispatch"` // steps that agents could claim after the act, and could not before, in the direction that is then desired
	Settle   []string   `json:"settle"`   // steps that the act would settle, or whose state it would change although they are settled
	Park     []string   `json:"park"`     // steps that the act would change, and that would be parked after it
	WaitFor  []StepWait `json:"waitFor"`  // steps that the act would change, and that would wait for a time, an approval or the end of their run
	// WithoutUndo has the steps that are to be undone by the act, may have had an effect, and have no undo: the effect
	// remains.
	WithoutUndo []string      `json:"withoutUndo"`
	LeftOut     *EffectCounts `json:"leftOut,omitempty"` // how many further steps each list would have
}

// StepWait is a step that waits. Until is the end of the lock of its run, which heartbeats prolong, or the latest time
// for which the step waits. It is missing if the step waits for an approval without a deadline.
type StepWait struct {
	Step  string    `json:"step"`
	Until time.Time `json:"until,omitzero"`
}

// EffectCounts are numbers of steps, by list of Effects.
type EffectCounts struct {
	Dispatch    int `json:"dispatch,omitempty"`
	Settle      int `json:"settle,omitempty"`
	Park        int `json:"park,omitempty"`
	WaitFor     int `json:"waitFor,omitempty"`
	WithoutUndo int `json:"withoutUndo,omitempty"`
}
