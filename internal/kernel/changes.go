package kernel

import (
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

// Changes is what one transaction must write: all of it, or nothing. Its rows must not be changed, because the workset
// compares with them later.
type Changes struct {
	NewJobs  []NewJob
	Jobs     []JobChange
	Steps    []StepChange
	Payloads []PayloadChange
	// CloseAlerts are applied before Alerts, so that an alert that is raised again in the same transaction stays open.
	CloseAlerts []CloseAlerts
	Alerts      []Alert // the store assigns ID
	History     []Entry
	CloseLanes  []ClosedLane
	Buckets     []KeyBucket // each once; their limits are locked
	Served      []Charge    // of shares, each share once, in order
	// ReleaseUnique are jobs that are settled: the rows that they hold until then are deleted, before Unique is written. Each
	// key is in Unique once.
	ReleaseUnique []perdure.JobID
	Unique        []UniqueChange
	Signals       []SignalChange       // each once; their topics are locked
	Audit         []operate.AuditEntry // the store assigns ID
	// ArtifactUses are stored once each; those that the store has are no error.
	ArtifactUses []ArtifactUse
	Firings      []FiringChange // of jobs of schedules that have changed
	// Notifications are written after everything else. The store assigns Number.
	Notifications []Notification
}

// Empty reports whether there is nothing to write.
func (c *Changes) Empty() bool {
	return len(c.NewJobs)+len(c.Jobs)+len(c.Steps)+len(c.Payloads)+len(c.CloseAlerts)+len(c.Alerts)+len(c.History)+len(c.CloseLanes)+len(c.Buckets)+len(c.Served)+len(c.Signals)+len(c.ReleaseUnique)+len(c.Unique)+len(c.Audit)+len(c.ArtifactUses)+len(c.Firings)+len(c.Notifications) == 0
}

// NewJob is a new job with the text of its shape and all its steps. All jobs of one shape have the same steps, with the
// same indexes and names, and no step of a settled job is waiting. A store may therefore derive waiting steps from the
// shape instead of storing them.
type NewJob struct {
	Job   *Job
	Shape []byte
	Steps []*Step
}

// JobChange is the row to write (Now) and the row as it was loaded (Loaded). The store compares Current, Desired, Phase and
// the counts of Loaded with the stored row, and returns ErrStale if they differ.
type JobChange struct{ Now, Loaded *Job }

// StepChange is the row to write (Now) and the row as it was loaded (Loaded). The store compares Run, Phase, Current and
// Desired of Loaded with the stored row, and returns ErrStale if they differ.
type StepChange struct{ Now, Loaded *Step }

// PayloadChange writes the input of a step if SetInput, and its output if SetOutput.
type PayloadChange struct {
	StepRef
	SetInput, SetOutput bool
	Input, Output       []byte // nil deletes the value
}

// CloseAlerts closes the open alerts of these kinds of one step, or of a job and all its steps.
type CloseAlerts struct {
	Job   perdure.JobID
	Step  string // empty: the job and all its steps
	Kinds []perdure.AlertKind
	By    string
}

// Closes reports whether it closes an alert, if that is open.
func (c *CloseAlerts) Closes(a *Alert) bool {
	return a.Job == c.Job && (c.Step == "" || a.Step == c.Step) && slices.Contains(c.Kinds, a.Kind)
}
