package operate

import "github.com/perdure/perdure"

// Validation is the answer to a valid definition: what a job of it would do.
type Validation struct {
	Plan     Plan         `json:"plan"`
	Graph    *Graph       `json:"graph"`
	Existing *ExistingJob `json:"existing,omitempty"` // missing if no job has the definition's key, or it has none
}

// MaxPlanLimits bounds the limits of a Plan. Of the warnings there are at most 100, too.
const MaxPlanLimits = 100

// Plan is what a job of the definition would do.
type Plan struct {
	Steps           int         `json:"steps"` // their number
	LongestPath     LongestPath `json:"longestPath"`
	Limits          []PlanLimit `json:"limits"` // the limits that the job and its steps name, those of the job first, the others in the order of their first steps
	LimitsLeftOut   int         `json:"limitsLeftOut,omitempty"`
	Warnings        []Warning   `json:"warnings"`
	WarningsLeftOut int         `json:"warningsLeftOut,omitempty"`
}

// LongestPath measures paths through the steps. Steps and Time may be those of different paths.
type LongestPath struct {
	Steps int `json:"steps"` // the largest number of steps that follow each other
	// Time is the largest sum, along a path, of the deadlines of the steps' runs and the lengths of sleeps. Retries,
	// approvals without a deadline, and sleeps with a computed length or an end do not count.
	Time perdure.Duration `json:"time"`
}

// PlanLimit is a limit that steps name. If it has no bounds here, it is not set, or bounds only single keys.
type PlanLimit struct {
	Name   string            `json:"name"`
	Steps  int               `json:"steps"`  // the number of steps that name it
	Amount int               `json:"amount"` // the most permits that one step needs
	Max    *int              `json:"max,omitempty"`
	Rate   string            `json:"rate,omitempty"`
	PerKey *perdure.KeyLimit `json:"perKey,omitempty"`
}

// Warning is something in a valid definition that its author may not intend.
type Warning struct {
	Kind string `json:"kind"`           // noAgent, noUndo, deadline, limitNotSet, limitTooSmall or noReceiver
	Step string `json:"step,omitempty"` // the first step that the warning is about; missing: the job
	Text string `json:"text"`           // a sentence
}

// ExistingJob is the job that has the definition's key.
type ExistingJob struct {
	Job  perdure.JobID `json:"job"`
	Same bool          `json:"same"` // it has the same definition and input: a submission returns this job. Otherwise a submission is a conflict
}
