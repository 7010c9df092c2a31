package kernel

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/perdure/perdure"
)

// Job is the row of a job. Its counts of steps are kept up to date by setPhase, so that the cost of a report depends on
// the neighbours of the step, not on the size of the job.
type Job struct {
	ID               perdure.JobID
	Key              string // empty: none
	Type             string
	Priority         int
	Labels           map[string]string
	States           *perdure.StateNames
	Hash             [32]byte // the definition's fingerprint
	Shape            ShapeID
	Input            json.RawMessage // nil: none, or stored apart
	InputStoredApart bool            // the input is larger than MaxInlineInput; only Inputs reads it

	Current        perdure.State // Unsure from the first dispatch after the submission or a flip until all steps are settled
	Desired        perdure.State
	Phase          perdure.Phase // derived from the counts, see phaseOf
	RestartPending bool          // a restart: the job is being undone, and will be done again afterwards
	Restarts       int           // in the life of the job
	Needs          Needs         // permits of named limits that the job needs, without a demand; empty: none
	HasPermit      bool          // the job holds these, and a permit of limit job:TYPE: from the first dispatch until it is parked or settled

	Unsettled int // number of steps that are not settled
	Running   int // number of steps that are running
	Active    int // number of steps that are ready, or wait for a time, a signal or their children

	StartAt    time.Time // nothing is dispatched before this time, unless an operator starts it; zero: it starts at once
	StartBy    time.Time // a run must be dispatched by then; zero: one was dispatched, or there is no such time
	CompleteBy time.Time // the job's deadline; zero: none
	ParkedAt   time.Time // when the job was parked, which stops its deadline; zero: not parked
	Overdue    bool      // the deadline has passed, and the supervisor has acted on it

	HasOutput   bool   // the output was rendered, and is not null. It is stored as the output of step OutputIndex
	OutputError string // why the output could not be rendered

	Alerted bool // an alert was raised since the job last settled, so one may be open

	GivenUpBy, GivenUpReason string // set: an operator closed the job; only undo or redo opens it again

	CreatedAt, UpdatedAt, SettledAt time.Time
	ReopenedAt                      time.Time // when the job, after it had settled, was last undone or redone; zero: never

	MadeFrom string // the stored definition and version that it was made from, NAME@VERSION; empty: the submission had the definition

	Traceparent string // of the submission, in the form of W3C Trace Context; empty: none, or traces are not exported
	Submitter   string // who submitted the job; recorded only if an approval excludes the submitter
	Parent      Parent // the step whose child the job is; empty: none
}

// GivenUp reports whether an operator closed the job unfinished.
func (j *Job) GivenUp() bool { return j.GivenUpBy != "" }

// LargeInput reports whether a store keeps the input apart from the job's row.
func (j *Job) LargeInput() bool { return len(j.Input) > perdure.MaxInlineInput }

// OutputIndex is the index under which stores keep the output of a job. A large input of the job has the same index.
const OutputIndex = -1

// AtRest reports whether the job is settled or parked: nothing happens to it until an operator acts.
func (j *Job) AtRest() bool { return j.Phase == perdure.Settled || j.Phase == perdure.Parked }

// StepRef names a step by its job and its index in the definition.
type StepRef struct {
	Job   perdure.JobID
	Index int
}

// Compare orders by job, then by index.
func (r StepRef) Compare(o StepRef) int {
	return cmp.Or(r.Job.Compare(o.Job), cmp.Compare(r.Index, o.Index))
}

// Step is the row of a step. Its input and output are large, and stored apart (Payload).
type Step struct {
	StepRef
	Name     string
	Type     string // the job's
	Priority int    // the job's

	Current          perdure.State
	Desired          perdure.State
	Phase            perdure.Phase
	Skipped          bool              // counts as done for the steps after it
	Run              int64             // number of the latest run: the fencing token, never used twice
	Direction        perdure.Direction // of the latest run
	CurrentBeforeRun perdure.State     // Current before the latest run
	Turn             int               // starts at 1; grows when a run is dispatched in the other direction, or an edit asks for a new key

	Agent       string // may claim it, while it is ready or running
	LockedBy    string // the holder of the run
	Request     string // requestId of the claim: if the claim is repeated, it returns the same runs
	CompleteBy  time.Time
	LockedUntil time.Time     // end of the lock; kept after the run if its holder died before that time
	Heartbeat   time.Duration // interval that the holder promised; 0: none

	Failures    int       // since the ladder was last reset
	Rung        int       // index in the ladder
	Waits       int       // number of waits on the present wait rung
	Returns     int       // number of returned runs in a row
	AvailableAt time.Time // a waiting step: not before this time. A running step: the old lock, see LockedUntil

	Outcome   perdure.Outcome // of the latest run
	ErrorCode string
	LastError string
	Progress  string // JSON, from the latest heartbeat
	// ProgressAt is when the progress of the latest run changed last; zero: not since its start.
	ProgressAt time.Time
	// StopRequestedAt is when an operator requested that the run in flight stop; zero: not.
	StopRequestedAt time.Time
	Host            string // of the latest do run; empty: it ran on no host
	HasOutput       bool   // the payload has an output, which may be null
	OwnInput        bool   // the payload has an input: it was rendered from outputs, or edited
	Edited          Edited // the direction for which an operator set that input
	GivenUp         bool

	Blockers int           // number of neighbours that must settle first, in the desired direction
	Ageing   time.Duration // setting of the agent when the step became ready; 0: DefaultAgeing
	Needs    Needs         // permits of named limits, computed when the step first becomes ready in a do turn; and those of its job, see withJob
	Topic    Topic         // of the signals for which the step waits; empty: it waits for none
	Approval ApprovalState // of the approval for which the step waits; empty: it waits for none

	Children ChildrenState // of a step with children: what it records of them; empty: it has had none
	Owns     bool          // the step waits for its children

	ReadyAt, StartedAt, EndedAt, UpdatedAt time.Time
}

// Handle returns the name of the latest run: job, step and number.
func (s *Step) Handle() string { return s.path(s.Run) }

// Key returns the idempotency key of the present turn. All runs of one turn have the same key.
func (s *Step) Key() string { return s.path(int64(s.Turn)) }

// DoKey returns, in an undo turn, the key of the turn that it undoes.
func (s *Step) DoKey() string { return s.path(int64(s.Turn) - 1) }

func (s *Step) path(n int64) string {
	var room [64 + perdure.MaxNameLength]byte
	b, _ := s.Job.AppendText(room[:0])
	b = append(append(b, '/'), s.Name...)
	return string(strconv.AppendInt(append(b, '/'), n, 10))
}

// nextDirection returns the direction of the next run. An undo that was dispatched and whose outcome is not known is
// finished first, under its key, even if Done is desired again.
func (s *Step) nextDirection() perdure.Direction {
	if s.Desired == perdure.Done && s.Current == perdure.Unsure && s.Run > 0 && s.Direction == perdure.Undo {
		return perdure.Undo
	}
	return directionTo(s.Desired)
}

// active reports whether the step will move on without an operator or a neighbour: it is ready, or waits for a time, a signal
// or its children.
func (s *Step) active() bool {
	return s.Phase == perdure.Ready || s.Phase == perdure.Waiting && (!s.AvailableAt.IsZero() || s.Topic != "" || s.Owns)
}

// Payload holds the large values of a step: its input, if it cannot be rendered again from the definition alone, and the
// output of its latest do run.
type Payload struct {
	StepRef
	Input, Output []byte
}

// SizedPayload is a payload whose large values may be left out. Such a value is nil, and its size is not 0.
type SizedPayload struct {
	Payload
	InputBytes, OutputBytes int
}

// Alert asks an operator to look at something. The alert of a parked step is closed only when the step is no longer
// parked.
type Alert struct {
	ID       int64
	Job      perdure.JobID
	Type     string // the job's
	JobKey   string // the job's
	Step     string // empty: the alert is about the job
	Kind     perdure.AlertKind
	Code     string // error code of the step's latest failure, when the alert was raised
	Attempts int    // failures of the step then
	Name     string // the name that an alert rung gives
	Message  string
	RaisedAt time.Time
	ClosedAt time.Time
	ClosedBy string
}

// OfStep returns the name of the alert's step; empty: it is about a job, a host, a schedule or the store.
func (a *Alert) OfStep() string {
	if a.Kind == perdure.AlertNoSpace || a.Kind == perdure.AlertSchedule { // see AlertsOfHost and AlertOfSchedule
		return ""
	}
	return a.Step
}

var allAlerts = []perdure.AlertKind{perdure.AlertParked, perdure.AlertApproval, perdure.AlertWaiting, perdure.AlertUndo, perdure.AlertRestart, perdure.AlertNamed, perdure.AlertOverdue, perdure.AlertOutput}

// Entry is one line of a job's history. It records acts, and the ends of runs. A run that has succeeded has no entry
// while it is the latest run of its step, because the step's row has its times. Its entry is written when the row is
// about to lose them: usually when the step is dispatched again.
type Entry struct {
	ID     int64 // assigned by the store, and grows with each entry of a job; 0: not written yet
	Job    perdure.JobID
	Step   string // empty: the entry is about the job
	Run    int64
	At     time.Time // of an entry that IsRun: the end of the run
	Event  string    // done, failed, rejected, returned, expired; undo, redo, resume, …
	Author string    // holder of the run, operator, or "policy"; empty: a run that is done
	Detail string    // cause, code and message, or reason

	// The run that has ended, if the entry IsRun. Entries of older programs lack these values: their turn is 0.
	Turn      int
	Direction perdure.Direction
	ReadyAt   time.Time // when the step became ready for this run; zero: not known
	StartedAt time.Time
}

// RunEvents are the events of entries that record the end of a run.
var RunEvents = []string{"done", "failed", "rejected", "returned", "expired"}

// IsRun reports whether the entry records the end of a run.
func (e *Entry) IsRun() bool { return e.Run > 0 && slices.Contains(RunEvents, e.Event) }

// RunPlace is the place of a recorded run in the order of starts.
type RunPlace struct {
	StartedAt time.Time // if the start is not known, the end
	Step      string
	Run       int64
}

// Place returns the place of a run that an entry records.
func (e *Entry) Place() RunPlace {
	p := RunPlace{StartedAt: e.StartedAt, Step: e.Step, Run: e.Run}
	if p.StartedAt.IsZero() {
		p.StartedAt = e.At
	}
	return p
}

// Compare orders by start, then by step and run.
func (p RunPlace) Compare(o RunPlace) int {
	return cmp.Or(p.StartedAt.Compare(o.StartedAt), cmp.Compare(p.Step, o.Step), cmp.Compare(p.Run, o.Run))
}

// RowHasRun reports whether the step's row is the only record of its latest run: the run is in flight, or it has
// succeeded and the history has no entry of it.
func (s *Step) RowHasRun() bool {
	return s.Run > 0 && (s.Phase == perdure.Running || s.Outcome == perdure.OutcomeDone && !s.StartedAt.IsZero())
}

// RunReadyAt returns when the step became ready for its latest run; zero if it has become ready again since.
func (s *Step) RunReadyAt() time.Time {
	if s.ReadyAt.After(s.StartedAt) {
		return time.Time{}
	}
	return s.ReadyAt
}

// directionTo returns the direction of a run that leads to state s.
func directionTo(s perdure.State) perdure.Direction {
	if s == perdure.Done {
		return perdure.Do
	}
	return perdure.Undo
}
