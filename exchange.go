package perdure

import (
	"context"
	"encoding/json"
	"time"
)

// Exchange is all that an agent host asks of a scheduler, near or far.
type Exchange interface {
	Claim(context.Context, ClaimRequest) ([]Run, error)
	// Report answers each report, in their order. Where next is given, so are the runs of that claim, which is served
	// together with the reports: what they make ready need not be stored and found again. Its Holder is the reports',
	// it has a RequestID, and does not wait.
	Report(ctx context.Context, holder string, reports []Report, next *ClaimRequest) ([]ReportResult, []Run, error)
	Heartbeat(ctx context.Context, holder string, beats []Beat) ([]BeatResult, error)
}

// ClaimRequest asks for runs of one agent.
type ClaimRequest struct {
	Agent     string
	Holder    string
	Max       int           // 1 to MaxBatch
	Wait      time.Duration // how long to wait for work; 0: not at all
	Heartbeat time.Duration // promised: a run is the holder's for so long after each heartbeat; 0: until completeBy
	RequestID string        // repeated, it returns the same runs while they are valid and unreported
	First     bool          // no claim had this RequestID before: there is nothing to be found by it
}

// Run is one numbered letting-out of a step, as its agent gets it.
type Run struct {
	Job         JobID           `json:"job"`
	Step        string          `json:"step"`
	Action      string          `json:"action"`
	Number      int64           `json:"run"`
	Direction   Direction       `json:"direction"`
	Input       json.RawMessage `json:"input"`
	Output      json.RawMessage `json:"output,omitempty"` // undo: of the do run, null if unknown
	DoKey       string          `json:"doKey,omitempty"`  // undo: the key that the do runs had
	Key         string          `json:"key"`              // stable over the runs of a turn
	LockedUntil time.Time       `json:"lockedUntil"`
	CompleteBy  time.Time       `json:"completeBy"`
	RemainingMs int64           `json:"remainingMs"` // until LockedUntil, by the store's clock
	// WaitedMs is how long the claim had waited when RemainingMs was read, by the scheduler's own
	// clock. Who counts the remaining time from when the claim was sent, plus this, errs early only.
	WaitedMs    int64  `json:"waitedMs,omitempty"`
	Priority    int    `json:"priority"`
	Traceparent string `json:"traceparent,omitempty"`
}

// Report tells how a run ended.
type Report struct {
	Job     JobID           `json:"job"`
	Step    string          `json:"step"`
	Run     int64           `json:"run"`
	Outcome Outcome         `json:"outcome"`
	Output  json.RawMessage `json:"output,omitempty"`
	Error   *RunError       `json:"error,omitempty"`
	// Effect "none" says that the run changed nothing. "unknown", for returned alone, says that the
	// run was cut short by a drain: it counts no failure, and the step stays unsure.
	Effect string `json:"effect,omitempty"`
}

const (
	EffectNone    = "none"
	EffectUnknown = "unknown"
)

// RunError is why a run failed or was rejected.
type RunError struct {
	Code       string   `json:"code,omitempty"`
	Message    string   `json:"message"`
	RetryAfter Duration `json:"retryAfter,omitempty"`
}

// ReportResult answers one report.
type ReportResult struct {
	Accepted bool          `json:"accepted"`
	Reason   RefusalReason `json:"reason,omitempty"`
	Message  string        `json:"message,omitempty"`
}

// RefusalReason is why a report or heartbeat changed nothing.
type RefusalReason string

const (
	RefusedLate      RefusalReason = "late"      // at or past lockedUntil, and not let out again
	RefusedStale     RefusalReason = "stale"     // a newer run was let out
	RefusedConflict  RefusalReason = "conflict"  // answered before, with another outcome
	RefusedUnknown   RefusalReason = "unknown"   // never let out
	RefusedInvalid   RefusalReason = "invalid"   // unreadable, too large
	RefusedForbidden RefusalReason = "forbidden" // another holder's
)

// Beat is one run's heartbeat.
type Beat struct {
	Job      JobID           `json:"job"`
	Step     string          `json:"step"`
	Run      int64           `json:"run"`
	Progress json.RawMessage `json:"progress,omitempty"`
}

// BeatResult answers one heartbeat. Stop says that the run is no longer wanted or no longer valid.
type BeatResult struct {
	Job         JobID     `json:"job"`
	Step        string    `json:"step"`
	Run         int64     `json:"run"`
	LockedUntil time.Time `json:"lockedUntil"`
	RemainingMs int64     `json:"remainingMs"`
	Stop        bool      `json:"stop"`
	Reason      string    `json:"reason,omitempty"` // late, stale, unknown, forbidden; undo or redo where desired was flipped
}
