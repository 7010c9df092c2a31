package kernel

import (
	"cmp"
	"encoding/json"
	"strconv"
	"time"

	"github.com/perdure/perdure"
)

// Job is one accepted definition on its way. The counts are of its own steps, so that what one
// report costs depends on the step's neighbours and never on the size of the job.
type Job struct {
	ID       perdure.JobID
	Key      string // empty: none
	Type     string
	Priority int
	Labels   map[string]string
	States   *perdure.StateNames
	Hash     [32]byte // the definition's fingerprint
	Shape    ShapeID
	Input    json.RawMessage // nil: none, or Apart
	Apart    bool            // the input is over MaxInlineInput, and read by Inputs only

	Current  perdure.State // Unsure from the first dispatch of a turn round until nothing is unsettled
	Desired  perdure.State
	Phase    perdure.Phase // derived from the counts; see phaseOf
	Then     bool          // restart: going back, and to turn to Done again after that
	Restarts int           // over the job's life
	Permit   bool          // holds one of limit job:TYPE: from the first dispatch until rest

	Unsettled int // steps not settled
	Running   int // steps dispatched
	Active    int // steps ready, or waiting for a time

	CompleteBy time.Time // the job's own deadline; zero: none
	ParkedAt   time.Time // since when the deadline stands still
	Overdue    bool      // its passing has been acted upon

	Alerted bool // an alert was raised since the job last settled: one may be open

	GivenUpBy, GivenUpReason string // only undo or redo opens it again

	CreatedAt, UpdatedAt, SettledAt time.Time
}

// GivenUp says whether an operator closed the job as it was.
func (j *Job) GivenUp() bool { return j.GivenUpBy != "" }

// AtRest says whether nothing moves unless a person acts.
func (j *Job) AtRest() bool { return j.Phase == perdure.Settled || j.Phase == perdure.Parked }

// StepRef names a step: its job, and its place in the definition.
type StepRef struct {
	Job   perdure.JobID
	Index int
}

// Compare is by job, and then by place.
func (r StepRef) Compare(o StepRef) int {
	return cmp.Or(r.Job.Compare(o.Job), cmp.Compare(r.Index, o.Index))
}

// Step is one unit of a job's work. What is large (input, output) is a Payload apart.
type Step struct {
	StepRef
	Name     string
	Type     string // of the job: ready steps are found by agent and type
	Priority int    // of the job

	Current   perdure.State
	Desired   perdure.State
	Phase     perdure.Phase
	Skipped   bool              // settled as far as doing goes
	Run       int64             // number of the latest run: the fencing token, never reused
	Direction perdure.Direction // which way that run was dispatched
	Was       perdure.State     // Current before that run
	Turn      int               // times dispatched in another direction than before, from 1

	Agent       string // who may claim it, while it is ready or running
	LockedBy    string // the holder of the run
	Request     string // the claim's requestId: repeated, it returns the same runs
	CompleteBy  time.Time
	LockedUntil time.Time     // outlives the run where its holder died before its time
	Heartbeat   time.Duration // promised by the holder; 0: none

	Failures    int       // since the ladder last started over
	Rung        int       // where on the ladder
	Waits       int       // rounds spent on a wait rung
	Returns     int       // given back in a row
	AvailableAt time.Time // not before; of a running step: not the other way before (see LockedUntil)

	Outcome   perdure.Outcome // of the latest run
	ErrorCode string
	LastError string
	Progress  string // JSON, as the latest heartbeat had it
	HasOutput bool   // a payload's output is there (null counts)
	OwnInput  bool   // a payload's input is there: rendered from outputs, or edited
	Edited    Edited // that input came from an operator, for this direction
	GivenUp   bool

	Blockers int           // neighbours still waited for, in the direction desired
	Ageing   time.Duration // setting of the agent when the step became ready; 0: DefaultAgeing
	Needs    Needs         // permits of named limits that it needs, since it was first ready in this turn

	ReadyAt, StartedAt, EndedAt, UpdatedAt time.Time
}

// Handle names a run: job, step and number.
func (s *Step) Handle() string { return s.path(s.Run) }

// Key is the stable key of a turn of the step: what the remote side deduplicates by.
func (s *Step) Key() string { return s.path(int64(s.Turn)) }

// DoKey is, in an undo turn, the key of the turn that it undoes.
func (s *Step) DoKey() string { return s.path(int64(s.Turn) - 1) }

func (s *Step) path(n int64) string {
	var room [64 + perdure.MaxNameLength]byte
	b, _ := s.Job.AppendText(room[:0])
	b = append(append(b, '/'), s.Name...)
	return string(strconv.AppendInt(append(b, '/'), n, 10))
}

// wants is the direction in which the step would be dispatched next. An undo whose run was dispatched and
// whose outcome is not known is finished first, under its key, even if Done is desired again.
func (s *Step) nextDirection() perdure.Direction {
	if s.Desired == perdure.Done && s.Current == perdure.Unsure && s.Run > 0 && s.Direction == perdure.Undo {
		return perdure.Undo
	}
	return directionTo(s.Desired)
}

// active says that time or an agent will move the step on.
func (s *Step) active() bool {
	return s.Phase == perdure.Ready || s.Phase == perdure.Waiting && !s.AvailableAt.IsZero()
}

// Payload is what is large about a step: the input it was dispatched with, where that cannot be
// rendered again from the definition alone, and the output of its latest do run.
type Payload struct {
	StepRef
	Input, Output []byte
}

// SizedPayload is a payload whose large values may be left out. Such a value is nil, and its size is not 0.
type SizedPayload struct {
	Payload
	InputBytes, OutputBytes int
}

// Alert asks for a person's attention. A parked step's is closed only by what unparks it.
type Alert struct {
	ID       int64
	Job      perdure.JobID
	Step     string // empty: the job
	Kind     perdure.AlertKind
	Name     string // of an alert rung
	Message  string
	RaisedAt time.Time
	ClosedAt time.Time
	ClosedBy string
}

var allAlerts = []perdure.AlertKind{perdure.AlertParked, perdure.AlertApproval, perdure.AlertWaiting, perdure.AlertUndo, perdure.AlertRestart, perdure.AlertNamed, perdure.AlertOverdue}

// Entry is one line of a job's history: what did not go the happy way, and who acted.
type Entry struct {
	ID     int64 // the store's: grows with each entry of a job; 0 of an entry that is not written yet
	Job    perdure.JobID
	Step   string // empty: the job
	Run    int64
	At     time.Time
	Event  string // failed, rejected, returned, expired; undo, redo, resume, …
	Author string // the holder of the run, or who acted
	Detail string // cause, code and message, or reason
}

// toward is the direction in which a run would bring about s.
func directionTo(s perdure.State) perdure.Direction {
	if s == perdure.Done {
		return perdure.Do
	}
	return perdure.Undo
}
