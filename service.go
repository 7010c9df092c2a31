package perdure

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/perdure/perdure/internal/plain"
)

// Service is everything that a node offers to programs and operators. Package client implements it for remote servers.
// ref names a job: its id, a unique prefix of the id, its key, or @latest.
type Service interface {
	Jobs
	Operations
}

// Jobs submits jobs and reads them.
type Jobs interface {
	// Submit stores the definition in body (mediaType application/json or application/yaml) before it returns. In place of a
	// definition, body may name a stored one, with values of the job: {"definition": "order@7", "input": …}. created
	// is false if the same key and body were submitted before.
	Submit(ctx context.Context, body []byte, mediaType string) (job *JobView, created bool, err error)
	// SubmitWithKey is Submit with a key for a definition that has none. If the definition has a key, the given one is
	// ignored.
	SubmitWithKey(ctx context.Context, body []byte, mediaType, key string) (job *JobView, created bool, err error)
	// SubmitAll submits many jobs, in JSON. Each job has a result of its own, in the same order: a job that is refused
	// does not affect the others. If there is a base, it is the definition of all of them, or the name of a stored one, and each element of jobs has
	// values that replace the base's: key, priority, labels, startAt, input. If SubmitAll returns an error, the outcome of all of
	// them is unknown.
	SubmitAll(ctx context.Context, base json.RawMessage, jobs []json.RawMessage) ([]Submitted, error)
	// Job returns the job when it is settled or parked, or as it is after wait.
	Job(ctx context.Context, ref string, wait time.Duration) (*JobView, error)
	// Definition returns the definition of a job in canonical form, without fields that have their default. Submitted
	// again, it is the same job.
	Definition(ctx context.Context, ref string) (json.RawMessage, error)
	// Output returns the output of a job, whatever its size; null if it has none.
	Output(ctx context.Context, ref string) (json.RawMessage, error)
	// Step returns one step of a job with its input and output in full, whatever their size.
	Step(ctx context.Context, ref, step string) (*StepDetail, error)
	ListJobs(context.Context, JobQuery) (*Page[JobView], error)
	// Follow calls see with the whole job first, and then with each change (only the steps that changed), until the job
	// is settled or parked, see returns an error, or ctx ends.
	Follow(ctx context.Context, ref string, see func(*JobView) error) error
	History(context.Context, HistoryQuery) (*Page[EntryView], error)
	Act(ctx context.Context, ref string, act Act) (*JobView, error)
}

// Operations is for operators.
type Operations interface {
	ListAlerts(context.Context, AlertQuery) (*Page[AlertView], error)
	CloseAlert(ctx context.Context, id int64, by string) (*AlertView, error)
	ListLimits(context.Context) ([]LimitView, error)
	GetLimit(ctx context.Context, name string) (*LimitView, error)
	PutLimit(ctx context.Context, name string, settings LimitSettings) (*LimitView, error)
	DeleteLimit(ctx context.Context, name string) error
	ListNodes(context.Context) ([]NodeView, error)
	// ListAgents returns the agents that have settings, whose processes have claimed runs in the last day, or that had
	// ready steps when the statistics were computed.
	ListAgents(context.Context) ([]AgentView, error)
	GetAgent(ctx context.Context, name string) (*AgentView, error)
	PutAgent(ctx context.Context, name string, settings AgentSettings) (*AgentView, error)
	DeleteAgent(ctx context.Context, name string) error
}

// LimitSettings are the bounds of a limit: at least one of them is set. Only users' own limits, which steps name, have
// PerKey and Keys.
type LimitSettings struct {
	Max    *int      `json:"max,omitempty"`    // most permits that are held at once; 0 stops all work
	Rate   string    `json:"rate,omitempty"`   // most permits that are taken in a time: N/s, N/m, N/h or N/d
	Burst  int       `json:"burst,omitempty"`  // most that a rate lets through at once after a pause; 0: what comes in a tenth of a second, at least 1
	PerKey *KeyLimit `json:"perKey,omitempty"` // bounds of the permits with the same key
	// Order is "submitted" if the jobs of a key get its permit in the order in which they were submitted: while one is ready,
	// or waits to be tried again, those behind it wait. It needs a PerKey.Max of 1. Empty: priorities count, and which step is
	// ready first. A change applies to steps that become ready afterwards.
	Order string              `json:"order,omitempty"`
	Keys  map[string]KeyLimit `json:"keys,omitempty"` // bounds of single keys, up to MaxLimitKeys: what is set here replaces PerKey
}

// KeyLimit bounds the permits of one key of a limit. Its fields are those of LimitSettings.
type KeyLimit struct {
	Max   *int   `json:"max,omitempty"`
	Rate  string `json:"rate,omitempty"`
	Burst int    `json:"burst,omitempty"`
}

// AgentSettings are an agent's settings by operators.
type AgentSettings struct {
	// Ageing is the head start of one level of priority, MinAgeing to DefaultAgeing: a step goes before the steps of all
	// jobs of one level less that were submitted less than Ageing before its own. With 10m, a job of priority 9 goes
	// before all jobs of priority 0 that were submitted in the 90 minutes before it, and no job waits behind one that
	// was submitted more than 90 minutes later. A change applies to steps that become ready afterwards.
	Ageing Duration `json:"ageing"`
	// Patience is how long a step waits for room on a host before it reserves one, MinPatience to MaxPatience; 0:
	// DefaultPatience. A change takes effect at once.
	Patience Duration `json:"patience,omitempty"`
	// FairBy divides the agent's ready steps into shares: it is an expression of the job, such as job.labels.customer, and the
	// steps of jobs with the same value are one share. Runs are dispatched from the shares in turn. Empty: there are no
	// shares. A change applies to steps that become ready afterwards.
	FairBy string `json:"fairBy,omitempty"`
	// Weights are the weights of shares, 1 to MaxFairWeight, by their values: with 4, a share gets four times the runs of one
	// that is not named. A change takes effect at once.
	Weights map[string]int `json:"weights,omitempty"`
}

// Submitted is the result for one job of SubmitAll.
type Submitted struct {
	ID      JobID
	Key     string
	Created bool  // false if the same key and definition were submitted before
	Err     error // why it was refused; then there is no ID
}

// JobQuery selects jobs, newest first. A field that is nil or empty selects all.
//
// A search that finds little reads at most MaxListRead jobs in one call. Then the page has fewer than Limit jobs, or none,
// and NextCursor and ScannedBackTo: the next page goes on from there.
type JobQuery struct {
	Phases  []Phase // any of these
	Type    string
	Current *State
	Desired *State
	Key     string
	Labels  map[string]string // all of these
	Since   time.Time         // submitted at this time or later
	Until   time.Time         // submitted before this time
	// Agent, Step, Reason and Error select jobs by an open step that waits for no other step: its agent, its name, why it
	// is not running, and the error code of its latest failure.
	Agent  string
	Step   string
	Reason ReasonKind
	Error  string
	Alert  AlertKind // with an open alert of this kind
	Parent string    // JOB/STEP: only the children of this step
	Search string    // the beginning of an id or key, or the value of a label

	OldestFirst bool
	WithCount   bool // also count the jobs
	WithSummary bool // also summarize the steps of each job; at most MaxSummaries jobs
	Limit       int  // 0: DefaultListLimit
	Cursor      string
}

// AlertQuery selects alerts, newest first. A field that is empty selects all.
type AlertQuery struct {
	Job    string // a ref; empty: all jobs
	Closed bool   // include closed ones
	Kind   AlertKind
	Type   string // of the job
	Step   string
	Code   string // error code of the step's latest failure
	Limit  int
	Cursor string
}

// HistoryQuery selects the entries of a job's history, oldest first.
type HistoryQuery struct {
	Job    string // a ref
	Limit  int    // 0: DefaultListLimit
	Cursor string // NextCursor of the previous page
}

// Verb is an act of an operator on a job or step.
type Verb string

const (
	VerbUndo   Verb = "undo"
	VerbRedo   Verb = "redo"
	VerbResume Verb = "resume" // all steps of a job that are parked or wait for a retry, or one of them
	VerbGiveUp Verb = "giveUp"
	VerbSettle Verb = "settle"
	VerbSkip   Verb = "skip"
	VerbEdit   Verb = "edit"
	VerbStop   Verb = "stop" // the present run of a step

	VerbApprove Verb = "approve" // a step that waits for an approval
	VerbReject  Verb = "reject"
)

// Act is one act of an operator. It is recorded with author and reason. An act without an author is refused.
type Act struct {
	Verb   Verb            `json:"-"`
	Step   string          `json:"-"` // settle, skip, edit, stop, approve, reject; resume of one step
	Author string          `json:"-"`
	Reason string          `json:"reason,omitempty"`
	As     *State          `json:"as,omitempty"`     // settle: done or undone
	Output json.RawMessage `json:"output,omitempty"` // settle as done
	Input  json.RawMessage `json:"input,omitempty"`  // edit, resume of one step
	NewKey bool            `json:"newKey,omitempty"` // edit, resume of one step: no earlier run had an effect
	Data   json.RawMessage `json:"data,omitempty"`   // approve: for the step's output; at most 64 KiB
}

// Check returns an error with CodeInvalid, or CodeTooLarge, if the act is unknown, lacks what it needs, has what it does not
// use, which would otherwise be ignored, or has a value that no step can have. A node and a client check each act.
func (a *Act) Check() error {
	switch a.Verb {
	case VerbUndo, VerbRedo, VerbGiveUp:
		if a.Step != "" {
			return refuseField("/step", "leave out the step", "%s is an act on a job", a.Verb)
		}
	case VerbSettle, VerbSkip, VerbEdit, VerbStop, VerbApprove, VerbReject:
		if a.Step == "" {
			return refuseField("/step", "name the step", "%s is an act on a step", a.Verb)
		}
	case VerbResume:
	default:
		return refuseField("/act", "use undo, redo, resume, giveUp, settle, skip, edit, stop, approve or reject", "unknown act %q", a.Verb)
	}
	settles := a.Verb == VerbSettle
	edits := a.Verb == VerbEdit || a.Verb == VerbResume && a.Step != ""
	switch {
	case settles && (a.As == nil || *a.As != Done && *a.As != Undone):
		return refuseField("/as", "say which of the two the step is", "settle needs as: done or undone")
	case !settles && a.As != nil:
		return refuseField("/as", "leave it out", "as is only for settle")
	case a.Output != nil && !(settles && *a.As == Done):
		return refuseField("/output", "leave it out", "an output can be given only with settle as done")
	case a.Input != nil && !edits:
		return refuseField("/input", "leave it out, or name the step", "an input can be given only with edit, or with resume of one step")
	case a.NewKey && !edits:
		return refuseField("/newKey", "leave it out, or name the step", "newKey can be given only with edit, or with resume of one step")
	case a.Verb == VerbEdit && a.Input == nil && !a.NewKey:
		return refuseField("/input", "give input, newKey, or both", "edit needs an input, or newKey")
	case a.Input != nil && len(a.Input) == 0:
		return refuseField("/input", "use null for no input", "the input is empty")
	case a.Data != nil && a.Verb != VerbApprove:
		return refuseField("/data", "leave it out", "data can be given only with approve")
	}
	if err := checkValue("input", a.Input, MaxPayloadBytes); err != nil {
		return err
	}
	if err := checkValue("data", a.Data, maxApprovalBytes); err != nil {
		return err
	}
	return checkValue("output", a.Output, MaxPayloadBytes)
}

// maxApprovalBytes bounds the data of an approval. It is kept in the row of the step until enough have approved.
const maxApprovalBytes = 64 << 10

// checkValue checks the input, output or data of an act.
func checkValue(name string, value json.RawMessage, most int) error {
	if len(value) > most {
		e := refuseField("/"+name, "make it an artifact, and pass a reference", "%s has %d bytes; at most %d", name, len(value), most)
		e.Code = CodeTooLarge
		return e
	}
	if err := plain.CheckJSON(value); err != nil {
		return refuseField("/"+name, "", "%s: %v", name, err)
	}
	if _, err := plain.Artifacts(value); err != nil {
		at := ""
		if bad := (*plain.ArtifactError)(nil); errors.As(err, &bad) {
			at = bad.Pointer
		}
		return refuseField("/"+name+at, "", "%s: %v", name, err)
	}
	return nil
}

// refuseField refuses a field of an act.
func refuseField(pointer, hint, format string, args ...any) *Error {
	e := Refuse(CodeInvalid, format, args...)
	e.Hint, e.Fields = hint, []FieldError{{Pointer: pointer, Message: e.Message, Hint: hint}}
	return e
}
