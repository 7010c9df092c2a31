package perdure

import (
	"encoding/json"
	"time"
)

// Run is one numbered attempt of a step, as its agent gets it.
type Run struct {
	Job       JobID           `json:"job"`
	Step      string          `json:"step"`
	Action    string          `json:"action"`
	Number    int64           `json:"run"`
	Direction Direction       `json:"direction"`
	Input     json.RawMessage `json:"input"`
	// Secrets are JSON Pointers of the strings of Input in which the definition refers to secrets (${secret.NAME}). The
	// process that executes the run resolves them, in these strings and no others: a handler gets an input with the
	// values.
	Secrets     []string        `json:"secrets,omitempty"`
	Output      json.RawMessage `json:"output,omitempty"` // undo: of the do run; null if unknown
	DoKey       string          `json:"doKey,omitempty"`  // undo: the key of the do runs
	Key         string          `json:"key"`              // the same for all runs until the step changes direction
	LockedUntil time.Time       `json:"lockedUntil"`
	CompleteBy  time.Time       `json:"completeBy"`
	RemainingMs int64           `json:"remainingMs"` // until LockedUntil, by the store's clock
	// WaitedMs is how long the claim had waited when RemainingMs was read, by the scheduler's own clock. If the
	// remaining time is counted from the time at which the claim was sent, plus WaitedMs, it can only be too short.
	WaitedMs int64 `json:"waitedMs,omitempty"`
	Priority int   `json:"priority"`
	// StopWithin is the time between SIGTERM and SIGKILL of a program, if the definition gives one; 0: as the agent has it.
	StopWithin Duration `json:"stopWithin,omitempty"`
	// Requires is what the run takes of its host until it ends; nil: nothing.
	Requires *Requires `json:"requires,omitempty"`
	// Labels are those of the job, if Requires is not nil: a host may choose the user of a command by them.
	Labels      map[string]string `json:"labels,omitempty"`
	Traceparent string            `json:"traceparent,omitempty"`
}

// RunError is why a run failed or was rejected.
type RunError struct {
	Code       string   `json:"code,omitempty"`
	Message    string   `json:"message"`
	RetryAfter Duration `json:"retryAfter,omitempty"`
}
