// Package protocol is the exchange between the processes that execute runs (agent hosts) and a scheduler: a host claims
// runs, sends heartbeats while they last, and reports how they ended. Programs rarely need it: client.Serve and a node
// are hosts already. It is for a host of your own in Go; other languages make the same three calls over HTTP
// (docs/rest.md).
package protocol

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/operate"
)

// Exchange is everything that an agent host needs from a scheduler, in the same process or remote.
type Exchange interface {
	Claim(context.Context, Claim) ([]perdure.Run, error)
	// Report answers each report, in their order. If next is not nil, it also returns the runs of that claim, which is
	// served together with the reports: steps that the reports make ready need not be stored and found again. The Holder
	// of next is that of the reports, it has a RequestID, and it does not wait.
	Report(ctx context.Context, holder string, reports []Report, next *Claim) ([]ReportResult, []perdure.Run, error)
	Heartbeat(ctx context.Context, holder string, beats []Heartbeat) ([]HeartbeatResult, error)
}

// Completer takes complete heartbeats: a holder that has lost a run, for example because its machine was started again, need
// not wait for the end of the run's lock.
type Completer interface {
	// HeartbeatAll is Heartbeat with every run of the holder. The scheduler expires any other run that it has for the holder,
	// except those that the holder may not have received when it sent the call. The second result is the time of the answer,
	// for CompleteHeartbeat.AsOf of the next call.
	HeartbeatAll(context.Context, CompleteHeartbeat) ([]HeartbeatResult, time.Time, error)
}

// CompleteHeartbeat lists every run of a holder, as of one instant of the holder. All claims of such a holder have a
// RequestID.
type CompleteHeartbeat struct {
	Holder string
	// Runs are all runs that were not reported, or whose report was not answered: at most MaxBatch, or none.
	Runs []Heartbeat
	// OpenClaims are the RequestIDs of the holder's claims that were sent, and that it will repeat until they are answered: at
	// most MaxOpenClaims. Their runs do not expire.
	OpenClaims []string
	// AsOf is the time of the latest answer to a complete heartbeat of this process. Only runs that were dispatched before
	// expire, so a call that arrives late does no harm. Zero, in the first call of a process: nothing expires.
	AsOf time.Time
}

// Server is everything that a node offers: to programs and operators, to consoles, and to agent hosts.
type Server interface {
	perdure.Service
	operate.Service
	Exchange
	Completer
	LogWriter
}

// Claim requests runs of one agent.
type Claim struct {
	Agent     string
	Holder    string
	Max       int             // 1 to MaxBatch
	Wait      time.Duration   // how long to wait for runs; 0: not at all
	Heartbeat time.Duration   // promised interval: a run belongs to the holder for this long after each heartbeat; 0: until its deadline
	RequestID string          // a repeated claim returns the same runs while they are valid and not reported
	Secrets   bool            // the holder resolves Run.Secrets; a step with secrets that is claimed without this fails
	Host      string          // the host that carries out the runs; empty: none, and then steps that require one are not granted
	Free      perdure.Amounts // what is free of the host
	First     bool            // no earlier claim had this RequestID, so no runs need be searched for it
}

// Report is the end of a run.
type Report struct {
	Job     perdure.JobID     `json:"job"`
	Step    string            `json:"step"`
	Run     int64             `json:"run"`
	Outcome perdure.Outcome   `json:"outcome"`
	Output  json.RawMessage   `json:"output,omitempty"`
	Error   *perdure.RunError `json:"error,omitempty"`
	// Effect "none" says that the run has changed nothing. "unknown", for returned runs only, says that a drain has
	// interrupted the run: no failure is counted, and the step stays unsure.
	Effect string `json:"effect,omitempty"`
}

const (
	EffectNone    = "none"
	EffectUnknown = "unknown"
)

// ReportResult is the answer to one report.
type ReportResult struct {
	Accepted bool          `json:"accepted"`
	Reason   RefusalReason `json:"reason,omitempty"`
	Message  string        `json:"message,omitempty"`
}

// RefusalReason is why a report or heartbeat changed nothing.
type RefusalReason string

const (
	RefusedLate      RefusalReason = "late"      // after lockedUntil, and the step was not dispatched again
	RefusedStale     RefusalReason = "stale"     // a newer run was dispatched
	RefusedConflict  RefusalReason = "conflict"  // answered before, with another outcome
	RefusedUnknown   RefusalReason = "unknown"   // never dispatched
	RefusedInvalid   RefusalReason = "invalid"   // unreadable, too large
	RefusedForbidden RefusalReason = "forbidden" // another holder's
	RefusedFull      RefusalReason = "full"      // of a log: the node has reached its bound on bytes a second
	RefusedGap       RefusalReason = "gap"       // of a log: bytes before the chunk are missing
)

// Heartbeat is one run's heartbeat.
type Heartbeat struct {
	Job      perdure.JobID   `json:"job"`
	Step     string          `json:"step"`
	Run      int64           `json:"run"`
	Progress json.RawMessage `json:"progress,omitempty"`
}

// Reasons why a run that still belongs to its holder should stop. The holder ends it, and reports the end.
const (
	StopUndo     = "undo"     // the job is to be undone, or done again
	StopOperator = "operator" // an operator has stopped the run
	StopStalled  = "stalled"  // the run has made no progress within the step's progressWithin
)

// HeartbeatResult is the answer to one heartbeat. Stop says that the run is no longer wanted or no longer valid.
type HeartbeatResult struct {
	Job         perdure.JobID `json:"job"`
	Step        string        `json:"step"`
	Run         int64         `json:"run"`
	LockedUntil time.Time     `json:"lockedUntil"`
	RemainingMs int64         `json:"remainingMs"`
	Stop        bool          `json:"stop"`
	Reason      string        `json:"reason,omitempty"` // late, stale, unknown, forbidden; or StopUndo, StopOperator, StopStalled
}

// ReportOf makes the report from a handler's result. Every store accepts it: if the output is not JSON, or over a bound,
// the report is a failure, and the texts of an error are shortened.
func ReportOf(run *perdure.Run, output json.RawMessage, err error) Report {
	r := Report{Job: run.Job, Step: run.Step, Run: run.Number, Outcome: perdure.OutcomeDone}
	if err == nil {
		if r.Output, err = payload(output); err == nil {
			return r
		}
	}
	r.Output, r.Outcome = nil, perdure.OutcomeFailed
	r.Error = &perdure.RunError{Message: plain.Clip(plain.Text(err.Error()), perdure.MaxReasonBytes)}
	var f *perdure.Failure
	if errors.As(err, &f) {
		r.Error.Code = plain.Clip(plain.Text(f.Code), perdure.MaxCodeLength)
		r.Error.RetryAfter = perdure.Duration(min(max(f.After, 0), perdure.MaxRetryAfter))
		switch {
		case f.Return: // implies that nothing was changed
			r.Outcome = perdure.OutcomeReturned
			return r
		case f.Reject:
			r.Outcome = perdure.OutcomeRejected
		}
		if f.NoEffect {
			r.Effect = EffectNone
		}
	}
	return r
}

// payload normalizes an output as it is sent and measured: compact, and valid UTF-8. One invalid output must not
// invalidate the other reports of a call.
func payload(output json.RawMessage) (json.RawMessage, error) {
	if len(output) == 0 {
		return nil, nil
	}
	b, err := json.Marshal(output)
	if err == nil {
		b = bytes.ToValidUTF8(b, []byte("\uFFFD"))
		err = plain.CheckJSON(b)
	}
	if err != nil {
		return nil, perdure.Failed(fmt.Errorf("output: %w", err), "outputInvalid")
	}
	if len(b) > perdure.MaxPayloadBytes {
		return nil, perdure.Failed(fmt.Errorf("output of %d bytes is over %d: make it an artifact", len(b), perdure.MaxPayloadBytes), "outputTooLarge")
	}
	if _, err := plain.Artifacts(b); err != nil {
		return nil, perdure.Failed(fmt.Errorf("output: %w", err), "outputInvalid")
	}
	return b, nil
}

// Check returns what is wrong with a report; nil if it is valid.
func (rep *Report) Check() error {
	switch rep.Outcome {
	case perdure.OutcomeDone, perdure.OutcomeFailed, perdure.OutcomeRejected, perdure.OutcomeReturned:
	default:
		return perdure.Refuse(perdure.CodeInvalid, "outcome is done, failed, rejected or returned")
	}
	switch {
	case rep.Effect != "" && rep.Effect != EffectNone && !(rep.Effect == EffectUnknown && rep.Outcome == perdure.OutcomeReturned):
		return perdure.Refuse(perdure.CodeInvalid, `effect is "none" or nothing`)
	case rep.Effect == EffectNone && rep.Outcome == perdure.OutcomeDone:
		return perdure.Refuse(perdure.CodeInvalid, `effect "none" does not go with outcome done`)
	case len(rep.Output) > perdure.MaxPayloadBytes:
		return perdure.Refuse(perdure.CodeTooLarge, "output of %d bytes is over %d: make it an artifact", len(rep.Output), perdure.MaxPayloadBytes)
	}
	if err := plain.CheckJSON(rep.Output); err != nil {
		return perdure.Refuse(perdure.CodeInvalid, "output: %v", err)
	}
	if _, err := plain.Artifacts(rep.Output); err != nil {
		return perdure.Refuse(perdure.CodeInvalid, "output: %v", err)
	}
	if err := checkError(rep.Error); err != nil {
		return err
	}
	return nil
}

func checkError(e *perdure.RunError) error {
	switch {
	case e == nil:
		return nil
	case len(e.Code) > perdure.MaxCodeLength:
		return perdure.Refuse(perdure.CodeInvalid, "error.code is over %d characters", perdure.MaxCodeLength)
	case !plain.IsText(e.Code) || !plain.IsText(e.Message):
		return perdure.Refuse(perdure.CodeInvalid, "error holds a NUL or is not UTF-8")
	case e.RetryAfter < 0:
		return perdure.Refuse(perdure.CodeInvalid, "error.retryAfter is below 0")
	}
	return nil
}
