package perdure

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/perdure/perdure/internal/plain"
)

// JobView is a job as it is shown by REST, the command line and the console.
//
// A view is bounded: an input, an output or a definition of more than MaxShownValue bytes is left out, and so are inputs
// and outputs of steps beyond MaxShownValues bytes in total. A value that is left out is replaced by its size. Jobs.Step
// and Jobs.Definition return such values in full.
type JobView struct {
	ID          JobID             `json:"id"`
	Key         string            `json:"key,omitempty"`
	Type        string            `json:"type"`
	MadeFrom    string            `json:"madeFrom,omitempty"` // the stored definition that the submission named, with its version: order@7
	Priority    int               `json:"priority"`
	Labels      map[string]string `json:"labels,omitempty"`
	States      *StateNames       `json:"states,omitempty"` // the user's names for undone and done
	Current     State             `json:"current"`
	Desired     State             `json:"desired"`
	Phase       Phase             `json:"phase"`
	Then        *State            `json:"then,omitempty"` // restart: the desired state after the job is undone
	Restarts    int               `json:"restarts,omitempty"`
	Unsettled   int               `json:"unsettled"`
	StartAt     time.Time         `json:"startAt,omitzero"` // the job starts then, unless an operator starts it earlier
	StartBy     time.Time         `json:"startBy,omitzero"` // a run must be dispatched by then; missing once one was
	CompleteBy  time.Time         `json:"completeBy,omitzero"`
	GivenUp     *Mark             `json:"givenUp,omitempty"`
	SubmittedAt time.Time         `json:"submittedAt"`
	UpdatedAt   time.Time         `json:"updatedAt"`
	SettledAt   time.Time         `json:"settledAt,omitzero"`
	Input       json.RawMessage   `json:"input,omitempty"`
	InputBytes  int               `json:"inputBytes,omitempty"` // of an input that is left out
	// Output is computed from the outputs of the steps when a job with an output is done. It is null if that has failed, and
	// OutputError says why. It is missing in lists. Jobs.Output returns it whatever its size.
	Output      json.RawMessage `json:"output,omitempty"`
	OutputBytes int             `json:"outputBytes,omitempty"` // of an output that is left out
	OutputError string          `json:"outputError,omitempty"`
	// Definition is in canonical form: submitted again, it is the same job (Jobs.Definition). It is missing in lists, in
	// answers to submissions, and in events that contain only the steps that changed.
	Definition      json.RawMessage `json:"definition,omitempty"`
	DefinitionBytes int             `json:"definitionBytes,omitempty"` // of a definition that is left out
	Alerts          []AlertView     `json:"alerts,omitempty"`          // open alerts; missing in lists
	Steps           StepViews       `json:"steps,omitempty"`           // missing in lists; complete, except in an event that says otherwise
	Summary         *JobSummary     `json:"summary,omitempty"`         // only in lists that ask for it
	TraceID         string          `json:"traceId,omitempty"`         // of the job's trace, if one is exported; missing in lists
	TraceURL        string          `json:"traceUrl,omitempty"`        // where it is shown, if the node knows that
	Unchanged       bool            `json:"unchanged,omitempty"`       // only in the answer to an act: there was nothing to do, and nothing was recorded
}

// Mark is the author of an act, and the reason that the author gave.
type Mark struct {
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
}

// StepView is a step as it is shown. Why says why an unsettled step is not running.
type StepView struct {
	Name        string    `json:"-"`
	Agent       string    `json:"agent"`
	Action      string    `json:"action"`
	After       []string  `json:"after,omitempty"`
	Current     State     `json:"current"`
	Desired     State     `json:"desired"`
	Phase       Phase     `json:"phase"`
	Skipped     bool      `json:"skipped,omitempty"`
	NoUndo      bool      `json:"noUndo,omitempty"` // the step is undone, and nothing was done for it: its definition has no undo, so an effect of its runs remains
	GivenUp     bool      `json:"givenUp,omitempty"`
	Run         int64     `json:"run"`
	Direction   Direction `json:"direction"`
	Was         State     `json:"was"`
	Turn        int       `json:"turn"`
	Key         string    `json:"key"`
	LockedBy    string    `json:"lockedBy,omitempty"`
	LockedUntil time.Time `json:"lockedUntil,omitzero"`
	CompleteBy  time.Time `json:"completeBy,omitzero"`
	Failures    int       `json:"failures"`
	Rung        int       `json:"rung,omitempty"`
	Waits       int       `json:"waits,omitempty"`
	Returns     int       `json:"returns,omitempty"`
	AvailableAt time.Time `json:"availableAt,omitzero"`
	Outcome     Outcome   `json:"outcome,omitempty"`
	// Input is the input of the latest run or, after an edit, of the next run. It is missing before the first dispatch,
	// and if it was not stored and cannot be rendered from what is stored. An approval that waits for an operator shows
	// its message and role here.
	Input       json.RawMessage `json:"input,omitempty"`
	InputBytes  int             `json:"inputBytes,omitempty"` // of an input that is left out
	Output      json.RawMessage `json:"output,omitempty"`
	OutputBytes int             `json:"outputBytes,omitempty"` // of an output that is left out
	// Limits are the limits of which each run of the step holds permits, with the keys that were computed when the step
	// became ready. It is missing before that.
	Limits []StepLimit `json:"limits,omitempty"`
	// Requires is what each run of the step takes of its host. It is missing before the step became ready.
	Requires  *Requires       `json:"requires,omitempty"`
	LastError *RunError       `json:"lastError,omitempty"`
	Progress  json.RawMessage `json:"progress,omitempty"`
	// ProgressAt is when the progress last changed during the latest run.
	ProgressAt time.Time `json:"progressAt,omitzero"`
	// StopRequestedAt is when an operator requested that the run in flight stop.
	StopRequestedAt time.Time `json:"stopRequestedAt,omitzero"`
	ReadyAt         time.Time `json:"readyAt,omitzero"`
	StartedAt       time.Time `json:"startedAt,omitzero"`
	EndedAt         time.Time `json:"endedAt,omitzero"`
	Why             *Reason   `json:"why,omitempty"`
}

// StepLimit is a limit that a step names, with the number of permits that each run holds. The key may be empty.
type StepLimit struct {
	Name   string `json:"name"`
	Key    string `json:"key,omitempty"`
	Amount int    `json:"amount,omitempty"`
}

// StepDetail is one step with all of its values.
type StepDetail struct {
	Job  JobID  `json:"job"`
	Name string `json:"name"`
	StepView
}

// StepViews are in the order of the definition. Their JSON form is an object in that order.
type StepViews []StepView

// Get returns the step with a name; nil if there is none.
func (v StepViews) Get(name string) *StepView {
	for i := range v {
		if v[i].Name == name {
			return &v[i]
		}
	}
	return nil
}

// MarshalJSON does not escape HTML characters in outputs. The encoder of the enclosing value may do so.
func (v StepViews) MarshalJSON() ([]byte, error) {
	return plain.Object(len(v), func(i int) (string, any) { return v[i].Name, &v[i] })
}

func (v *StepViews) UnmarshalJSON(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	if _, err := dec.Token(); err != nil {
		return err
	}
	*v = StepViews{}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return err
		}
		var s StepView
		if err := dec.Decode(&s); err != nil {
			return err
		}
		s.Name, _ = name.(string)
		*v = append(*v, s)
	}
	return nil
}

// AlertView is an alert as it is shown.
type AlertView struct {
	ID       int64     `json:"id"`
	Job      JobID     `json:"job,omitzero"`     // zero: the alert concerns the whole store
	Type     string    `json:"type,omitempty"`   // the job's
	JobKey   string    `json:"jobKey,omitempty"` // the job's
	Step     string    `json:"step,omitempty"`
	Kind     AlertKind `json:"kind"`
	Code     string    `json:"code,omitempty"`     // error code of the step's latest failure, when the alert was raised
	Attempts int       `json:"attempts,omitempty"` // failures of the step then
	Name     string    `json:"name,omitempty"`
	Message  string    `json:"message"`
	RaisedAt time.Time `json:"raisedAt"`
	ClosedAt time.Time `json:"closedAt,omitzero"`
	ClosedBy string    `json:"closedBy,omitempty"`
}

// AlertKind is the reason for an alert.
type AlertKind string

const (
	AlertParked      AlertKind = "parked"   // closed when the step is no longer parked
	AlertApproval    AlertKind = "approval" // waits for an operator's approval; closed as parked is
	AlertUndo        AlertKind = "undo"     // raised by the ladder; closed when the job is settled or parked
	AlertRestart     AlertKind = "restart"  // as undo
	AlertWaiting     AlertKind = "waiting"  // raised by a wait rung; this and the following are closed when the job settles
	AlertNamed       AlertKind = "alert"
	AlertOverdue     AlertKind = "overdue"
	AlertOutput      AlertKind = "output"      // the job is done, and its output could not be computed; closed by an operator, undo or redo
	AlertRefused     AlertKind = "refused"     // a submission in a caller's transaction was refused; closed by an operator
	AlertClock       AlertKind = "clock"       // without a job: the database server's clock was set; closed by an operator
	AlertUndelivered AlertKind = "undelivered" // without a job: notifications of a receiver are dead; closed by an operator
	AlertNoSpace     AlertKind = "noSpace"     // without a job: a host has reported no capacity; closed when it has some again
	AlertSchedule    AlertKind = "schedule"    // without a job: a rule has paused a schedule; closed when that is resumed, replaced or deleted
	AlertSetback     AlertKind = "setback"     // without a job: the store may have lost commits; closed by an operator, or after a failover without loss
)

// Holds reports whether the alert concerns a step that only an operator can move on.
func (k AlertKind) Holds() bool { return k == AlertParked || k == AlertApproval }

// NodeState says whether a node is assumed to be working. A dead node is still listed for a day.
type NodeState string

const (
	NodeAlive NodeState = "alive"
	NodeDead  NodeState = "dead"
)

// NodeView is a node as it is shown, with its roles.
type NodeView struct {
	ID       string         `json:"id"`
	State    NodeState      `json:"state"`
	Host     string         `json:"host"`
	PID      int            `json:"pid"`
	Version  string         `json:"version"`
	Listen   string         `json:"listen,omitempty"`
	Agents   []string       `json:"agents"`
	Slots    map[string]int `json:"slots"`    // for each agent, the number of runs at once
	Leads    []RoleView     `json:"leads"`    // the roles that it leads
	StandsBy []RoleView     `json:"standsBy"` // the roles of which it is the standby
	Since    time.Time      `json:"since"`
	SeenAt   time.Time      `json:"seenAt"`
}

// AgentView is an agent as it is shown.
type AgentView struct {
	Name string `json:"name"`
	AgentSettings
	Holders int       `json:"holders"`         // processes that have claimed its runs within NotSeenFor
	Gone    int       `json:"gone,omitempty"`  // processes that have claimed its runs in the last day, but not within NotSeenFor
	SeenAt  time.Time `json:"seenAt,omitzero"` // time of the latest claim

	// The following are of the statistics, which are a few seconds old (AsOf). They are missing if these were never
	// computed, or if the agent was not among the agents with the most ready steps.
	AsOf        time.Time `json:"asOf,omitzero"`
	Nodes       int       `json:"nodes,omitempty"` // live nodes that carry out its runs
	Slots       int       `json:"slots,omitempty"` // of these nodes
	Running     int       `json:"running,omitempty"`
	Ready       int       `json:"ready,omitempty"`
	ReadyCapped bool      `json:"readyCapped,omitempty"` // there are more
	OldestReady time.Time `json:"oldestReady,omitzero"`  // when about the oldest of the ready steps became ready
	// Refused counts the reports of the last hour that were refused, and Errors the failed runs by error code ("": those
	// without a code, and of rare codes).
	Refused int            `json:"refused,omitempty"`
	Errors  map[string]int `json:"errors,omitempty"`

	// Health has the holders whose runs have ended within the last ten minutes at the node that answers: those that get
	// fewer runs first, and at most MaxHealth. Only GetAgent has it.
	Health []HolderHealth `json:"health,omitempty"`

	// Shares are the shares that have ready steps, if the settings have fairBy: those that go first, and at most MaxHealth. Only
	// GetAgent has them.
	Shares []ShareView `json:"shares,omitempty"`
}

// ShareView is a share of an agent's ready steps, see AgentSettings.FairBy. The steps without a value are a share that is not
// shown.
type ShareView struct {
	Value  string `json:"value"`
	Weight int    `json:"weight"`
	// Ahead is how many runs of weight 1 the share has got more than the least that counts. The share with the lowest number
	// goes first.
	Ahead       float64 `json:"ahead"`
	Ready       int     `json:"ready"`
	ReadyCapped bool    `json:"readyCapped,omitempty"` // there are more
}

// HolderHealth is how the latest runs of a holder have ended, up to 100 of the last ten minutes.
type HolderHealth struct {
	Holder       string   `json:"holder"`
	Runs         int      `json:"runs"`         // that have ended
	Done         int      `json:"done"`         // of these
	MeanDuration Duration `json:"meanDuration"` // of these
	Weight       float64  `json:"weight"`       // the share of what it claims that it gets at most: 1, or 0.1 for a holder that fails or is slow
}

// RoleView is a role that a node leads, or of which it is the standby. The epoch is that of the leader.
type RoleView struct {
	Role  string    `json:"role"`
	Epoch int64     `json:"epoch"`
	Until time.Time `json:"until"` // unless it is renewed before
}

// EntryView is an entry of a job's history as it is shown.
type EntryView struct {
	Step   string    `json:"step,omitempty"`
	Run    int64     `json:"run,omitempty"`
	At     time.Time `json:"at"`
	Event  string    `json:"event"`
	Author string    `json:"author,omitempty"`
	Detail string    `json:"detail,omitempty"`
}

// LimitView is a limit with the holders of its permits (the first hundred).
type LimitView struct {
	Name string `json:"name"`
	LimitSettings
	Used    int          `json:"used"`            // sum of the amounts of all permits
	RoomAt  time.Time    `json:"roomAt,omitzero"` // when the rate has room for another permit, if it has none now
	Holders []HolderView `json:"holders"`
}

// HolderView names the row that holds a permit: a job, or a run.
type HolderView struct {
	Job    JobID  `json:"job"`
	Step   string `json:"step,omitempty"`
	Run    int64  `json:"run,omitempty"`
	Key    string `json:"key,omitempty"`    // of a user's own limit
	Amount int    `json:"amount,omitempty"` // 0 means 1
}

// Page is one page of a list. The last page has no NextCursor.
type Page[T any] struct {
	Items      []T    `json:"items"`
	NextCursor string `json:"nextCursor,omitempty"`
	// ScannedBackTo is set if the search ended before it had found enough: NextCursor goes on with jobs submitted before
	// this time or, with the oldest first, after it.
	ScannedBackTo time.Time `json:"scannedBackTo,omitzero"`
	Count         *Count    `json:"count,omitempty"` // if it was asked for: of all pages
}

// Count is the number of jobs that match a query.
type Count struct {
	N      int  `json:"n"`
	Capped bool `json:"capped,omitempty"` // there may be more than N
}

// JobSummary says how far the steps of a job are. Step is the open step that an operator would look at first, with the
// reason why it is not running. Both are missing, and Parked is 0, if the job is settled or has very many steps.
type JobSummary struct {
	Steps   int     `json:"steps"`
	Settled int     `json:"settled"`
	Running int     `json:"running"`
	Parked  int     `json:"parked"`
	Step    string  `json:"step,omitempty"`
	Why     *Reason `json:"why,omitempty"`
}
