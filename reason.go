package perdure

import "time"

// Reason says why an unsettled step is not running. API, command line and console show the same reasons.
type Reason struct {
	Kind    ReasonKind   `json:"reason"`
	Text    string       `json:"text"`
	Steps   []string     `json:"steps,omitempty"` // afterSteps: the first ten
	Count   int          `json:"count,omitempty"` // afterSteps: their number
	Agent   string       `json:"agent,omitempty"`
	Limit   string       `json:"limit,omitempty"`
	Key     string       `json:"key,omitempty"` // limit: the key, if the limit is full for one key; signal: that of the signal
	Max     *int         `json:"max,omitempty"`
	Used    int          `json:"used,omitempty"`
	Holders []HolderView `json:"holders,omitempty"`
	Behind  JobID        `json:"behind,omitzero"` // limit: the job before it, if the jobs of the key run in the order of submission
	Until   time.Time    `json:"until,omitzero"`
	Since   time.Time    `json:"since,omitzero"`
	Code    string       `json:"code,omitempty"`

	Children  *ChildCounts `json:"children,omitempty"`  // children: how far they are
	Signal    string       `json:"signal,omitempty"`    // signal: the name of the signal
	Group     string       `json:"group,omitempty"`     // approval: its members approve; missing: operators
	Message   string       `json:"message,omitempty"`   // approval: the question
	Quorum    int          `json:"quorum,omitempty"`    // approval: how many have to approve
	Approvals []Mark       `json:"approvals,omitempty"` // approval: those that have been given
}

// ReasonKind is the kind of a reason.
type ReasonKind string

const (
	WhyAfterSteps ReasonKind = "afterSteps" // other steps are not settled
	WhyNoAgent    ReasonKind = "noAgent"    // no process has claimed runs of this agent lately
	WhyNoHost     ReasonKind = "noHost"     // no host could take the step, even if it had no runs
	WhyAgentBusy  ReasonKind = "agentBusy"  // ready; its agent's processes have not claimed it yet
	WhyLimit      ReasonKind = "limit"      // a limit is full; a limit with Max 0 stops all work
	WhyBackoff    ReasonKind = "backoff"    // will be retried after a pause
	WhyNotYet     ReasonKind = "notYet"     // a sleep has not ended
	WhyHeld       ReasonKind = "held"       // an earlier run, whose holder is gone, may still act
	WhyApproval   ReasonKind = "approval"   // waits for an approval
	WhySignal     ReasonKind = "signal"     // waits for a signal
	WhyChildren   ReasonKind = "children"   // its children are not settled
	WhyRunning    ReasonKind = "running"
	WhyExpired    ReasonKind = "expired" // the run has expired; the supervisor will act shortly
	WhyParked     ReasonKind = "parked"
	WhyDeadline   ReasonKind = "deadline" // the job's deadline has passed

	// WhyQuarantined means that this node does not touch the job until it restarts, because of an internal error or a
	// damaged row.
	WhyQuarantined ReasonKind = "quarantined"
)
