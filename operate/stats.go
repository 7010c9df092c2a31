package operate

import (
	"time"

	"github.com/perdure/perdure"
)

// Bounds of Stats.
const (
	MaxStatsTypes   = 100
	MaxStatsReasons = 100
	MaxStatsAlerts  = 100
	MaxStatsAgents  = 100
	MaxStatsLimits  = 100
	MaxStatsErrors  = 10 // error codes of one agent
	SeriesMinutes   = 60 // values of each list of Series
)

// Stats are the numbers of an overview. The node that leads the role supervisor computes them every few seconds, and
// reads a bounded number of rows for each of them.
type Stats struct {
	AsOf           time.Time     `json:"asOf,omitzero"` // when they were computed; missing: they were never computed
	Jobs           JobStats      `json:"jobs"`
	Types          []TypeStats   `json:"types"`                    // of unsettled jobs, in order of names
	TypesCapped    bool          `json:"typesCapped,omitempty"`    // there are more unsettled jobs than were counted by type: types has the oldest
	TypesLeftOut   int           `json:"typesLeftOut,omitempty"`   // how many further types there are
	Reasons        []ReasonStats `json:"reasons"`                  // why steps wait: first those that an operator can remove
	ReasonsLeftOut int           `json:"reasonsLeftOut,omitempty"` // how many further reasons there are
	Alerts         []AlertStats  `json:"alerts"`                   // open alerts, those that hold a step first, then the most frequent
	AlertsCapped   bool          `json:"alertsCapped,omitempty"`   // there are more open alerts: the newest were counted
	AlertsLeftOut  int           `json:"alertsLeftOut,omitempty"`  // how many further groups of alerts there are
	// AlertKinds has the open alerts by kind, also those of the groups that are left out.
	AlertKinds    map[perdure.AlertKind]int `json:"alertKinds,omitempty"`
	Agents        []AgentStats              `json:"agents"`                  // in order of names
	AgentsLeftOut int                       `json:"agentsLeftOut,omitempty"` // how many further agents there are
	Limits        []LimitStats              `json:"limits"`                  // in order of names: those for which steps wait come before others if there are too many
	LimitsLeftOut int                       `json:"limitsLeftOut,omitempty"` // how many further limits there are
	Signals       SignalStats               `json:"signals"`
	Nodes         NodeStats                 `json:"nodes"`
	Series        Series                    `json:"series"`
}

// Tally is a count that may be incomplete.
type Tally struct {
	N         int  `json:"n"`
	Capped    bool `json:"capped,omitempty"`    // there are more
	Estimated bool `json:"estimated,omitempty"` // it may be far off
}

// JobStats are the numbers of jobs by phase.
type JobStats struct {
	Waiting Tally `json:"waiting"`
	Running Tally `json:"running"`
	Parked  Tally `json:"parked"`
	Settled Tally `json:"settled"`
}

// TypeStats are the unsettled jobs of a type.
type TypeStats struct {
	Type          string    `json:"type"`
	Waiting       int       `json:"waiting"`
	Running       int       `json:"running"`
	Parked        int       `json:"parked"`
	Undoing       int       `json:"undoing"` // of all these, those that are to be undone
	OldestWaiting time.Time `json:"oldestWaiting,omitzero"`
}

// ReasonStats is a reason for which steps wait.
type ReasonStats struct {
	// Reason is noAgent, noHost, agentBusy, limit, backoff, notYet (a sleep, an approval with a deadline, or an earlier run that
	// may still act) or afterSteps (other steps, or an approval without a deadline).
	Reason    perdure.ReasonKind `json:"reason"`
	Name      string             `json:"name,omitempty"` // of the agent (noAgent, noHost, agentBusy) or limit
	Steps     int                `json:"steps"`
	Capped    bool               `json:"capped,omitempty"`     // there are more
	Oldest    time.Time          `json:"oldest,omitzero"`      // noAgent, agentBusy: when about the oldest of the steps became ready
	LastClaim time.Time          `json:"lastClaim,omitzero"`   // noAgent: missing if there was none in the last day
	Next      time.Time          `json:"next,omitzero"`        // backoff, notYet: when the first of them goes on
	Used      int                `json:"used,omitempty"`       // limit: the permits that are held
	Max       *int               `json:"max,omitempty"`        // limit: of all permits
	Rate      string             `json:"rate,omitempty"`       // limit: of all permits
	PerKey    *int               `json:"perKeyMax,omitempty"`  // limit: of the permits of one key
	KeyRate   string             `json:"perKeyRate,omitempty"` // limit: of the permits of one key
}

// AlertStats is a group of open alerts that are alike.
type AlertStats struct {
	Kind   perdure.AlertKind `json:"kind"`
	Type   string            `json:"type,omitempty"` // of the jobs
	Step   string            `json:"step,omitempty"` // missing: they are about jobs, or about the store
	Code   string            `json:"code,omitempty"` // error code of the latest failure
	N      int               `json:"n"`
	Oldest time.Time         `json:"oldest,omitzero"`
}

// AgentStats are the numbers of an agent.
type AgentStats struct {
	Agent       string    `json:"agent"`
	Ready       int       `json:"ready"` // steps
	ReadyCapped bool      `json:"readyCapped,omitempty"`
	OldestReady time.Time `json:"oldestReady,omitzero"` // when about the oldest of them became ready
	Running     int       `json:"running"`              // runs in flight
	Nodes       int       `json:"nodes"`                // live nodes that carry out its runs
	Slots       int       `json:"slots"`                // of these nodes
	Holders     int       `json:"holders"`              // processes that have claimed its runs within NotSeenFor
	LastClaim   time.Time `json:"lastClaim,omitzero"`
	// SharesWaiting is how many shares have ready steps that no limit holds back, if the agent has fairBy.
	SharesWaiting int  `json:"sharesWaiting,omitempty"`
	SharesCapped  bool `json:"sharesCapped,omitempty"` // there may be more
	// Refused counts the reports of the last hour that were refused, and Errors the failed runs by error code: the most
	// frequent codes, and under "" all others.
	Refused int            `json:"refused,omitempty"`
	Errors  map[string]int `json:"errors,omitempty"`
}

// LimitStats is the use of a limit that is set.
type LimitStats struct {
	Limit string `json:"limit"`
	Used  int    `json:"used"`          // permits that are held
	Max   *int   `json:"max,omitempty"` // of all permits; missing: it bounds only the permits of one key
}

// SignalStats are the numbers of signals.
type SignalStats struct {
	Kept    Tally `json:"kept"`    // for the next step that waits for them
	Waiters Tally `json:"waiters"` // steps that wait for a signal
}

// NodeStats are the numbers of nodes by state. A node that has died is counted until it is forgotten.
type NodeStats struct {
	Alive int `json:"alive"`
	Dead  int `json:"dead"`
}

// Series are the numbers of the last hour, one for each minute from From on. The last minute is not over yet.
type Series struct {
	Every     perdure.Duration `json:"every"`
	From      time.Time        `json:"from,omitzero"`
	Submitted []int            `json:"submitted"`
	Done      []int            `json:"done"`   // jobs that have settled as done
	Undone    []int            `json:"undone"` // jobs that have settled as undone
	Parked    []int            `json:"parked"`
	Failed    []int            `json:"failed"` // runs that failed, were rejected or expired
}
