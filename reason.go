package perdure

import "time"

// Reason says why an unsettled step is not running, or since when it is. It is made here alone, so
// that API, command line and console say the same.
type Reason struct {
	Kind    ReasonKind   `json:"reason"`
	Text    string       `json:"text"`
	Steps   []string     `json:"steps,omitempty"` // afterSteps: the first ten of them
	Count   int          `json:"count,omitempty"` // afterSteps: how many
	Agent   string       `json:"agent,omitempty"`
	Limit   string       `json:"limit,omitempty"`
	Key     string       `json:"key,omitempty"` // of the limit, if it is one key that has no room
	Max     *int         `json:"max,omitempty"`
	Used    int          `json:"used,omitempty"`
	Holders []HolderView `json:"holders,omitempty"`
	Until   time.Time    `json:"until,omitzero"`
	Since   time.Time    `json:"since,omitzero"`
	Code    string       `json:"code,omitempty"`
}

// ReasonKind is the closed list of reasons.
type ReasonKind string

const (
	WhyAfterSteps ReasonKind = "afterSteps" // neighbours are not settled
	WhyNoAgent    ReasonKind = "noAgent"    // nobody has asked for this agent's work lately
	WhyAgentBusy  ReasonKind = "agentBusy"  // ready; whoever asks for this agent's work has not come to it yet
	WhyLimit      ReasonKind = "limit"      // a limit is full; with Max 0 it stops all work
	WhyBackoff    ReasonKind = "backoff"    // again later, after a failure
	WhyNotYet     ReasonKind = "notYet"     // sleeps
	WhyHeld       ReasonKind = "held"       // an earlier run, whose holder is dead, may still act
	WhyApproval   ReasonKind = "approval"   // waits for a person
	WhyRunning    ReasonKind = "running"
	WhyExpired    ReasonKind = "expired" // the run's time is up; the supervisor looks within its period
	WhyParked     ReasonKind = "parked"
	WhyDeadline   ReasonKind = "deadline" // the job's ultimatum has passed
)
