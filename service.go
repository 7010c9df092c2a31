package perdure

import (
	"context"
	"encoding/json"
	"time"
)

// Service is all that the outside can ask. A node answers it near; package client answers it far.
// A job is named by ref: its id, a prefix of one that is unique, its key, or @latest.
type Service interface {
	Jobs
	Operations
}

// Jobs takes definitions and follows what became of them.
type Jobs interface {
	// Submit stores the one definition in body (mediaType application/json or application/yaml) before
	// it answers. created is false where the same key and body were submitted before.
	Submit(ctx context.Context, body []byte, mediaType string) (job *JobView, created bool, err error)
	// SubmitWithKey is Submit with a key for a definition that has none. If the definition has a key, the key given
	// here is ignored.
	SubmitWithKey(ctx context.Context, body []byte, mediaType, key string) (job *JobView, created bool, err error)
	// SubmitAll is Submit for many jobs, in JSON, each of which is answered for itself, in order: one that is
	// refused does not take the others down. Where there is a base, it is the definition of all of them, and
	// each of jobs has values of its own, which replace the base's: key, priority, labels, input. An error
	// says that nothing is known of any of them.
	SubmitAll(ctx context.Context, base json.RawMessage, jobs []json.RawMessage) ([]Submitted, error)
	// Job answers when the job is at rest, or as it is after wait.
	Job(ctx context.Context, ref string, wait time.Duration) (*JobView, error)
	// Definition returns the definition of a job in canonical form, without fields that have their default. Submitted
	// again, it is the same job.
	Definition(ctx context.Context, ref string) (json.RawMessage, error)
	// Step returns one step of a job with its input and output in full, whatever their size.
	Step(ctx context.Context, ref, step string) (*StepDetail, error)
	ListJobs(context.Context, JobQuery) (*Page[JobView], error)
	// Follow calls see with the whole job first and then, as it moves, with what changed of it (only the
	// steps that moved), until the job is at rest, see returns an error, or ctx ends.
	Follow(ctx context.Context, ref string, see func(*JobView) error) error
	History(context.Context, HistoryQuery) (*Page[EntryView], error)
	Act(ctx context.Context, ref string, act Act) (*JobView, error)
}

// Operations is what operators look at and change.
type Operations interface {
	ListAlerts(context.Context, AlertQuery) (*Page[AlertView], error)
	CloseAlert(ctx context.Context, id int64, by string) (*AlertView, error)
	ListLimits(context.Context) ([]LimitView, error)
	GetLimit(ctx context.Context, name string) (*LimitView, error)
	PutLimit(ctx context.Context, name string, settings LimitSettings) (*LimitView, error)
	DeleteLimit(ctx context.Context, name string) error
	ListNodes(context.Context) ([]NodeView, error)
	// ListAgents are the agents that have settings, or have claimed runs in the last day.
	ListAgents(context.Context) ([]AgentView, error)
	GetAgent(ctx context.Context, name string) (*AgentView, error)
	PutAgent(ctx context.Context, name string, settings AgentSettings) (*AgentView, error)
}

// LimitSettings are the bounds of a limit: at least one of them. Only limits of users' own, which steps name, have PerKey.
type LimitSettings struct {
	Max    *int      `json:"max,omitempty"`    // of all permits that are held at once; 0 stops all
	PerKey *KeyLimit `json:"perKey,omitempty"` // of those with the same key
}

// KeyLimit bounds the permits of one key of a limit.
type KeyLimit struct {
	Max int `json:"max"`
}

// AgentSettings are what operators set for an agent.
type AgentSettings struct {
	// Ageing is the head start that one level of priority gives, MinAgeing to DefaultAgeing: a step goes before the steps
	// of all jobs of one level less that were submitted less than Ageing before its own. With 10m, a job of priority 9 goes
	// before all jobs of priority 0 that were submitted in the 90 minutes before it, and no job waits behind one that was
	// submitted more than 90 minutes later. A change holds for steps that become ready afterwards.
	Ageing Duration `json:"ageing"`
}

// Submitted is what became of one job of several that were submitted at once.
type Submitted struct {
	ID      JobID
	Key     string
	Created bool  // false where the same key and definition were submitted before
	Err     error // why it was not taken; then there is no ID
}

// JobQuery selects jobs, newest first. A nil or empty field does not select.
type JobQuery struct {
	Phase   *Phase
	Type    string
	Current *State
	Desired *State
	Key     string
	Labels  map[string]string
	Limit   int    // 0: DefaultListLimit
	Cursor  string // NextCursor of the page before
}

// AlertQuery selects alerts, newest first.
type AlertQuery struct {
	Job    string // ref; empty: all
	Closed bool   // closed ones too
	Limit  int
	Cursor string
}

// HistoryQuery selects the entries of a job's history, oldest first.
type HistoryQuery struct {
	Job    string // ref
	Limit  int    // 0: DefaultListLimit
	Cursor string // NextCursor of the page before
}

// Verb is what an operator can do to a job or step.
type Verb string

const (
	VerbUndo   Verb = "undo"
	VerbRedo   Verb = "redo"
	VerbResume Verb = "resume" // a job's parked steps, or one of them
	VerbGiveUp Verb = "giveUp"
	VerbSettle Verb = "settle"
	VerbSkip   Verb = "skip"
	VerbEdit   Verb = "edit"
)

// Act is one act of an operator, audited with author and reason. An act without an author is refused.
type Act struct {
	Verb   Verb            `json:"-"`
	Step   string          `json:"-"` // settle, skip, edit; resume of one step
	Author string          `json:"-"`
	Reason string          `json:"reason,omitempty"`
	As     *State          `json:"as,omitempty"`     // settle: done or undone
	Output json.RawMessage `json:"output,omitempty"` // settle as done
	Input  json.RawMessage `json:"input,omitempty"`  // edit, resume of one step
	NewKey bool            `json:"newKey,omitempty"` // edit, resume of one step: no earlier run had an effect
}
