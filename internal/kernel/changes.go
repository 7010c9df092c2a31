package kernel

import (
	"github.com/perdure/perdure"
)

// Changes are what the rules made of what was loaded: all of it is written, or none. Nobody writes to
// the rows in it: the workset goes on to compare with them.
type Changes struct {
	NewJobs  []NewJob
	Jobs     []JobChange
	Steps    []StepChange
	Payloads []PayloadChange
	// CloseAlerts come before Alerts: what a step raises anew stays open.
	CloseAlerts []CloseAlerts
	Alerts      []Alert // ID is given by the store
	History     []Entry
	CloseLanes  []ClosedLane
}

// Empty says that there is nothing to write.
func (c *Changes) Empty() bool {
	return len(c.NewJobs)+len(c.Jobs)+len(c.Steps)+len(c.Payloads)+len(c.CloseAlerts)+len(c.Alerts)+len(c.History)+len(c.CloseLanes) == 0
}

// NewJob is an accepted submission: the job, the text of its shape and all its steps. Jobs of one shape have the same
// steps, by place and name, and a job that is settled has none that waits: a store may know by the shape of steps that
// wait for others still.
type NewJob struct {
	Job   *Job
	Shape []byte
	Steps []*Step
}

// JobChange is a row as it shall be, and as it was when it was loaded. The store compares the latter's
// Current, Desired, Phase and counts.
type JobChange struct{ Now, Was *Job }

// StepChange is a row as it shall be, and as it was when it was loaded. The store compares the
// latter's Run, Phase, Current and Desired.
type StepChange struct{ Now, Was *Step }

// PayloadChange writes those of a step's two large values that are set.
type PayloadChange struct {
	StepRef
	SetInput, SetOutput bool
	Input, Output       []byte // nil clears
}

// CloseAlerts closes the open alerts of the Kinds named, of a step or of a whole job and all its steps.
type CloseAlerts struct {
	Job   perdure.JobID
	Step  string // empty: the job and all its steps
	Kinds []perdure.AlertKind
	By    string
}
