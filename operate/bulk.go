package operate

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

// Bulk performs acts on many jobs.
//
// A bulk act is stored, and one node of the grid carries it out: it goes through the jobs in the order of their
// submission, and performs the act on each as if an operator did. It survives the end of the node. A job is acted on once,
// if it matches the filter when its turn comes. Jobs submitted after the start are not affected.
type Bulk interface {
	// PreviewBulk counts the jobs of a bulk act, and says on how many of the first MaxBulkPreviewed the act would be
	// refused. It stores nothing.
	PreviewBulk(context.Context, BulkRequest) (*BulkPreview, error)
	// StartBulk stores a bulk act. If the key of the request was used before, it returns the earlier bulk act, or a
	// conflict if that one is different. At most MaxBulkRunning bulk acts run at once; another one is a conflict.
	StartBulk(context.Context, BulkRequest) (*BulkView, error)
	// ListBulks returns bulk acts, newest first.
	ListBulks(context.Context, BulkQuery) (*perdure.Page[BulkView], error)
	GetBulk(ctx context.Context, id string) (*BulkView, error)
	// BulkRefusals returns the jobs on which the act was refused, in the order in which they were met: at most the first
	// MaxBulkRefusals.
	BulkRefusals(context.Context, BulkRefusalQuery) (*perdure.Page[BulkRefusal], error)
	// StopBulk stops a bulk act. The acts that it has performed remain. ResumeBulk continues it after its latest job.
	// Either does nothing if the bulk act is stopped, or running, already. One that is done can be neither stopped nor
	// resumed.
	StopBulk(ctx context.Context, id, author string) (*BulkView, error)
	ResumeBulk(ctx context.Context, id, author string) (*BulkView, error)
}

// Bounds of bulk acts.
const (
	MaxBulkRunning   = 10     // bulk acts that run at once
	MaxBulkIDs       = 10_000 // ids of one request
	MaxBulkRefusals  = 1000   // refusals that are kept of each bulk act
	MaxBulkPreviewed = 1000   // jobs on which a preview tries the act
	MaxBulkSamples   = 10     // jobs that a preview shows
	MaxBulkKeyLength = 200
	MaxBulkPerSecond = 10_000
	BulkKept         = 90 * 24 * time.Hour // how long a bulk act is kept after its end
)

// BulkState says whether a bulk act goes on.
type BulkState string

// The states of a bulk act.
const (
	BulkRunning BulkState = "running"
	BulkDone    BulkState = "done"    // all of its jobs were met
	BulkStopped BulkState = "stopped" // an operator has stopped it; it can be resumed
)

// BulkStates are all states of bulk acts.
var BulkStates = []BulkState{BulkRunning, BulkDone, BulkStopped}

// BulkRequest is an act on many jobs: those of IDs, or those that match Filter.
type BulkRequest struct {
	Act    perdure.Verb    `json:"act"`
	Step   string          `json:"step,omitempty"`   // as in perdure.Act, as the four that follow
	As     *perdure.State  `json:"as,omitempty"`     //
	Output json.RawMessage `json:"output,omitempty"` //
	Input  json.RawMessage `json:"input,omitempty"`  //
	NewKey bool            `json:"newKey,omitempty"` //
	Filter *BulkFilter     `json:"filter,omitempty"`
	IDs    []string        `json:"ids,omitempty"` // ids or keys of jobs, at most MaxBulkIDs
	// PerSecond bounds how many jobs are met within any second, 1 to MaxBulkPerSecond; 0: as fast as claims and reports allow.
	PerSecond int    `json:"perSecond,omitempty"`
	Reason    string `json:"reason"`        // required; for the history of each job
	Key       string `json:"key,omitempty"` // makes a repeated StartBulk safe; "": a client draws one
	Author    string `json:"-"`
}

// PerJob returns the act that is performed on each job.
func (r *BulkRequest) PerJob() perdure.Act {
	return perdure.Act{Verb: r.Act, Step: r.Step, Author: r.Author, Reason: r.Reason, As: r.As, Output: r.Output, Input: r.Input, NewKey: r.NewKey}
}

// Check returns an error with CodeInvalid, or CodeTooLarge, if the request is incomplete, contradicts itself, or could
// succeed on no job. A node and a client check each request.
func (r *BulkRequest) Check() error {
	act := r.PerJob()
	if err := act.Check(); err != nil {
		return err
	}
	switch {
	case r.Step != "" && (len(r.Step) > perdure.MaxNameLength || !plain.IsName(r.Step)):
		return refuseField("/step", "letters, digits, `.`, `_` and `-`, starting with a letter or digit", "is not a name that a step can have")
	case strings.TrimSpace(r.Reason) == "":
		return refuseField("/reason", "say why, for the history of each job", "is required: a bulk act needs a reason")
	case r.Filter == nil && len(r.IDs) == 0:
		return refuseField("/filter", "give filter or ids", "a bulk act needs jobs: a filter with at least one field, or ids")
	case r.Filter != nil && len(r.IDs) > 0:
		return refuseField("/ids", "give either filter or ids", "cannot be given together with a filter")
	case r.Filter != nil && r.Filter.IsEmpty():
		return refuseField("/filter", "give at least one field, such as type", "is empty, and would select every job")
	case r.Filter != nil && !r.Filter.Until.IsZero() && r.Filter.Since.After(r.Filter.Until):
		return refuseField("/filter/since", "give an earlier time, or leave it out", "is later than until: no job can match")
	case len(r.IDs) > MaxBulkIDs:
		return refuseField("/ids", "use a filter, or several bulk acts", "has %d elements; at most %d", len(r.IDs), MaxBulkIDs)
	case r.PerSecond < 0 || r.PerSecond > MaxBulkPerSecond:
		return refuseField("/perSecond", "give a number of jobs, or leave it out for no bound", "%d is not from 1 to %d", r.PerSecond, MaxBulkPerSecond)
	case len(r.Key) > MaxBulkKeyLength:
		return refuseField("/key", "", "is longer than %d bytes", MaxBulkKeyLength)
	}
	return nil
}

func refuseField(pointer, hint, format string, args ...any) error {
	e := perdure.Refuse(perdure.CodeInvalid, format, args...)
	f := perdure.FieldError{Pointer: pointer, Message: e.Message, Hint: hint}
	e.Message, e.Hint, e.Fields = strings.ReplaceAll(strings.TrimPrefix(pointer, "/"), "/", ".")+": "+e.Message, hint, []perdure.FieldError{f}
	return e
}

// BulkFilter selects jobs as perdure.JobQuery does. Its fields have the names of the parameters of GET /v1/jobs.
type BulkFilter struct {
	Phase   []perdure.Phase    `json:"phase,omitempty"`
	Type    string             `json:"type,omitempty"`
	Current *perdure.State     `json:"current,omitempty"`
	Desired *perdure.State     `json:"desired,omitempty"`
	Key     string             `json:"key,omitempty"`
	Label   map[string]string  `json:"label,omitempty"`
	Since   time.Time          `json:"since,omitzero"`
	Until   time.Time          `json:"until,omitzero"`
	Agent   string             `json:"agent,omitempty"`
	Step    string             `json:"step,omitempty"`
	Reason  perdure.ReasonKind `json:"reason,omitempty"`
	Error   string             `json:"error,omitempty"`
	Alert   perdure.AlertKind  `json:"alert,omitempty"`
	Parent  string             `json:"parent,omitempty"` // JOB/STEP: only the children of this step
	Q       string             `json:"q,omitempty"`
}

// FilterOf returns the filter that selects the jobs of a query.
func FilterOf(q *perdure.JobQuery) *BulkFilter {
	return &BulkFilter{Phase: q.Phases, Type: q.Type, Current: q.Current, Desired: q.Desired, Key: q.Key, Label: q.Labels, Since: q.Since, Until: q.Until,
		Agent: q.Agent, Step: q.Step, Reason: q.Reason, Error: q.Error, Alert: q.Alert, Parent: q.Parent, Q: q.Search}
}

// Query returns the query for the jobs of the filter.
func (f *BulkFilter) Query() perdure.JobQuery {
	return perdure.JobQuery{Phases: f.Phase, Type: f.Type, Current: f.Current, Desired: f.Desired, Key: f.Key, Labels: f.Label, Since: f.Since, Until: f.Until,
		Agent: f.Agent, Step: f.Step, Reason: f.Reason, Error: f.Error, Alert: f.Alert, Parent: f.Parent, Search: f.Q}
}

// IsEmpty reports whether the filter selects every job.
func (f *BulkFilter) IsEmpty() bool {
	return len(f.Phase) == 0 && f.Type == "" && f.Current == nil && f.Desired == nil && f.Key == "" && len(f.Label) == 0 && f.Since.IsZero() && f.Until.IsZero() &&
		f.Agent == "" && f.Step == "" && f.Reason == "" && f.Error == "" && f.Alert == "" && f.Parent == "" && f.Q == ""
}

// BulkPreview is what a bulk act would meet now.
type BulkPreview struct {
	Count   perdure.Count        `json:"count"`
	Samples []perdure.JobView    `json:"samples"` // the first jobs, at most MaxBulkSamples
	Refused map[perdure.Code]int `json:"refused"` // how many of the first MaxBulkPreviewed jobs the act would be refused on, by code
	// Unchanged is how many of the same jobs the act would leave as they are, because its result already holds.
	Unchanged int `json:"unchanged"`
}

// BulkView is a bulk act, and how far it is.
type BulkView struct {
	ID     string          `json:"id"` // bulk_ and 32 hexadecimal digits
	Key    string          `json:"key,omitempty"`
	Act    perdure.Verb    `json:"act"`
	Step   string          `json:"step,omitempty"`
	As     *perdure.State  `json:"as,omitempty"`
	Output json.RawMessage `json:"output,omitempty"`
	Input  json.RawMessage `json:"input,omitempty"`
	NewKey bool            `json:"newKey,omitempty"`
	Filter *BulkFilter     `json:"filter,omitempty"` // missing: the act is on jobs that were listed
	Jobs   int             `json:"jobs,omitempty"`   // how many were listed
	// PerSecond is the bound on the jobs that are met within a second; missing: none.
	PerSecond int    `json:"perSecond,omitempty"`
	Author    string `json:"author"`
	Reason    string `json:"reason"`

	State     BulkState     `json:"state"`
	StoppedBy string        `json:"stoppedBy,omitempty"`
	Expected  perdure.Count `json:"expected"`  // how many jobs there were at the start
	Matched   int           `json:"matched"`   // jobs that were met so far: the sum of the next three
	Done      int           `json:"done"`      // the act was performed
	Unchanged int           `json:"unchanged"` // its result already held
	Refused   int           `json:"refused"`   // the rules refused it

	StartedAt   time.Time `json:"startedAt"`
	UpdatedAt   time.Time `json:"updatedAt"`
	EndedAt     time.Time `json:"endedAt,omitzero"`
	Rate        float64   `json:"rate,omitempty"`       // jobs in a second, since the start or the latest resume; only while running
	ExpectedEnd time.Time `json:"expectedEnd,omitzero"` // missing if the expected number is capped, or not known yet
}

// BulkQuery selects bulk acts, newest first.
type BulkQuery struct {
	State  BulkState // "": all
	Limit  int       // 0: DefaultListLimit
	Cursor string
}

// BulkRefusalQuery selects refusals of a bulk act.
type BulkRefusalQuery struct {
	ID     string
	Limit  int // 0: DefaultListLimit
	Cursor string
}

// BulkRefusal is a job on which the act was refused.
type BulkRefusal struct {
	Job     perdure.JobID `json:"job"`
	Key     string        `json:"key,omitempty"` // of the job
	Code    perdure.Code  `json:"code"`
	Message string        `json:"message"`
}
