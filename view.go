package perdure

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// JobView is a job as the outside sees it: REST, command line and console show the same one.
//
// A view is bounded: an input, an output or a definition of more than MaxShownValue bytes is left out, and so are the
// inputs and outputs of steps beyond MaxShownValues bytes in all. A value that is left out is replaced by its size.
// Jobs.Step and Jobs.Definition return such values in full.
type JobView struct {
	ID          JobID             `json:"id"`
	Key         string            `json:"key,omitempty"`
	Type        string            `json:"type"`
	Priority    int               `json:"priority"`
	Labels      map[string]string `json:"labels,omitempty"`
	States      *StateNames       `json:"states,omitempty"` // the user's names for the poles
	Current     State             `json:"current"`
	Desired     State             `json:"desired"`
	Phase       Phase             `json:"phase"`
	Then        *State            `json:"then,omitempty"` // restart: where it turns once it is back
	Restarts    int               `json:"restarts,omitempty"`
	Unsettled   int               `json:"unsettled"`
	CompleteBy  time.Time         `json:"completeBy,omitzero"`
	GivenUp     *Mark             `json:"givenUp,omitempty"`
	SubmittedAt time.Time         `json:"submittedAt"`
	UpdatedAt   time.Time         `json:"updatedAt"`
	SettledAt   time.Time         `json:"settledAt,omitzero"`
	Input       json.RawMessage   `json:"input,omitempty"`
	InputBytes  int               `json:"inputBytes,omitempty"` // of an input that is left out
	// Definition is in canonical form: submitted again, it is the same job (Jobs.Definition). It is not in lists, in
	// answers to submissions, or in events that have only the steps that moved.
	Definition      json.RawMessage `json:"definition,omitempty"`
	DefinitionBytes int             `json:"definitionBytes,omitempty"` // of a definition that is left out
	Alerts          []AlertView     `json:"alerts,omitempty"`          // open ones; not in lists
	Steps           StepViews       `json:"steps,omitempty"`           // not in lists; complete, save in an event that says so
}

// Mark is who did a thing, and why.
type Mark struct {
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
}

// StepView is a step as the outside sees it. Why says, of an unsettled one, why it is not running.
type StepView struct {
	Name        string    `json:"-"`
	Agent       string    `json:"agent"`
	Action      string    `json:"action"`
	After       []string  `json:"after,omitempty"`
	Current     State     `json:"current"`
	Desired     State     `json:"desired"`
	Phase       Phase     `json:"phase"`
	Skipped     bool      `json:"skipped,omitempty"`
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
	// Input is what the latest run was handed or, after an edit, what the next run will be handed. It is missing before
	// the first dispatch, and if it was not stored and cannot be rendered from what is stored.
	Input       json.RawMessage `json:"input,omitempty"`
	InputBytes  int             `json:"inputBytes,omitempty"` // of an input that is left out
	Output      json.RawMessage `json:"output,omitempty"`
	OutputBytes int             `json:"outputBytes,omitempty"` // of an output that is left out
	LastError   *RunError       `json:"lastError,omitempty"`
	Progress    json.RawMessage `json:"progress,omitempty"`
	ReadyAt     time.Time       `json:"readyAt,omitzero"`
	StartedAt   time.Time       `json:"startedAt,omitzero"`
	EndedAt     time.Time       `json:"endedAt,omitzero"`
	Why         *Reason         `json:"why,omitempty"`
}

// StepDetail is one step with all of its values.
type StepDetail struct {
	Job  JobID  `json:"job"`
	Name string `json:"name"`
	StepView
}

// StepViews are in the order of the definition; as JSON they are an object in that order.
type StepViews []StepView

// Get finds a step by name; nil if there is none.
func (v StepViews) Get(name string) *StepView {
	for i := range v {
		if v[i].Name == name {
			return &v[i]
		}
	}
	return nil
}

func (v StepViews) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // or outputs would change; whoever encodes the whole may still escape it
	b.WriteByte('{')
	for i := range v {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:", v[i].Name) // step names are plain identifiers
		if err := enc.Encode(&v[i]); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
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

// KeptValues are the values of a job that a view has read.
type KeptValues struct {
	Job       *Job
	Steps     []*Step // all of the job's, in order
	Shape     *Shape
	Input     json.RawMessage // the job's
	InputRead bool            // otherwise it was left out
	Payloads  map[int]SizedPayload
	Budget    *Budget // for inputs that are rendered again; once it is used up, no more are rendered
}

// input returns the kept input, or its size if it was not read.
func (p *SizedPayload) input() (in json.RawMessage, bytes int) {
	if p.Input != nil {
		return p.Input, 0
	}
	return nil, p.InputBytes
}

// output returns the kept output of a step; known is false if it was not read.
func (k *KeptValues) output(i int) (out json.RawMessage, known bool) {
	if !k.Steps[i].HasOutput {
		return orNull(nil), true
	}
	out = k.Payloads[i].Output
	return out, out != nil
}

// InputOf returns the input of step i for a view: that of its latest run or, after an edit, of its next run. An input
// that was not stored is rendered again if all values that it depends on were read and have not changed. If there is
// nothing to show, in is nil; bytes is the size of a stored input that was not read.
func (k *KeptValues) InputOf(i int) (in json.RawMessage, bytes int) {
	s, ps, kept := k.Steps[i], &k.Shape.Steps[i], k.Payloads[i]
	switch {
	case s.Edited == editedFor(s.wants()):
		return kept.input()
	case s.Edited == editedDo || s.Edited == editedUndo:
		return nil, 0 // it is not for the next run, and may have replaced the input that the latest run was handed
	case s.Run == 0:
		return nil, 0
	case s.Direction == Undo && ps.Revert != nil:
		return k.renderUndo(s, ps.Revert), 0
	case s.OwnInput:
		return kept.input()
	case ps.Do == nil:
		return orNull(nil), 0
	case s.Direction == Undo:
		return k.renderUndo(s, ps.Do), 0
	case len(ps.Do.Refs()) > 0:
		return nil, 0
	}
	return k.render(ps.Do, &Scope{}), 0
}

// InputRefs returns the other steps whose outputs InputOf renders the input of step i from.
func (k *KeptValues) InputRefs(i int) []int {
	s, ps := k.Steps[i], &k.Shape.Steps[i]
	switch {
	case s.Direction != Undo || s.Run == 0:
		return nil
	case ps.Revert != nil:
		return ps.Revert.Refs()
	case s.OwnInput || ps.Do == nil:
		return nil
	}
	return ps.Do.Refs()
}

// renderUndo renders the input of an undo again, which was the latest run of the step. The values that it reads must
// not have changed since then. The step's own output has not changed if this run led to the present state of the step.
// Outputs of other steps change when these are done again, settled by an operator or skipped. If such a change
// has the same time as the start of the run, its order is not known, and nothing is rendered.
func (k *KeptValues) renderUndo(s *Step, t Template) json.RawMessage {
	own, known := k.output(s.Index)
	byRun := s.Current == Unsure || s.Current == Undone && s.Outcome == OutcomeDone
	if !known || !byRun || s.StartedAt.IsZero() {
		return nil
	}
	scope := &Scope{Outputs: map[string]json.RawMessage{}, Output: own, Key: s.Key(), DoKey: s.DoKey()}
	for _, ref := range t.Refs() {
		out, known := k.output(ref)
		if !known || !k.Steps[ref].UpdatedAt.Before(s.StartedAt) {
			return nil
		}
		scope.Outputs[k.Steps[ref].Name] = out
	}
	return k.render(t, scope)
}

// render returns nil if values that it needs were not read, or if rendering fails.
func (k *KeptValues) render(t Template, scope *Scope) json.RawMessage {
	if !k.InputRead {
		return nil
	}
	scope.Job, scope.Input, scope.Budget = k.Job, k.Input, k.Budget
	in, err := bounded(t.Render(scope))
	if err != nil {
		return nil
	}
	return in
}

// AlertView is an alert as the outside sees it.
type AlertView struct {
	ID       int64     `json:"id"`
	Job      JobID     `json:"job,omitzero"` // none: it is the whole store's
	Step     string    `json:"step,omitempty"`
	Kind     AlertKind `json:"kind"`
	Name     string    `json:"name,omitempty"`
	Message  string    `json:"message"`
	RaisedAt time.Time `json:"raisedAt"`
	ClosedAt time.Time `json:"closedAt,omitzero"`
	ClosedBy string    `json:"closedBy,omitempty"`
}

// NodeState says whether a node is assumed to be working. A dead node is still listed for a day.
type NodeState string

const (
	NodeAlive NodeState = "alive"
	NodeDead  NodeState = "dead"
)

// NodeView is a process of the grid as the outside sees it, with the roles that it has.
type NodeView struct {
	ID       string         `json:"id"`
	State    NodeState      `json:"state"`
	Host     string         `json:"host"`
	PID      int            `json:"pid"`
	Version  string         `json:"version"`
	Listen   string         `json:"listen,omitempty"`
	Agents   []string       `json:"agents"`
	Slots    map[string]int `json:"slots"`    // of each agent: runs that it takes at once here
	Leads    []Place        `json:"leads"`    // the roles that it leads
	StandsBy []Place        `json:"standsBy"` // and those that it would take over
	Since    time.Time      `json:"since"`
	SeenAt   time.Time      `json:"seenAt"`
}

// Place is what a node has in a role. The epoch is that of the role's leader.
type Place struct {
	Role  string    `json:"role"`
	Epoch int64     `json:"epoch"`
	Until time.Time `json:"until"` // unless it is heard of before
}

// EntryView is a line of a job's history as the outside sees it.
type EntryView struct {
	Step   string    `json:"step,omitempty"`
	Run    int64     `json:"run,omitempty"`
	At     time.Time `json:"at"`
	Event  string    `json:"event"`
	Author string    `json:"author,omitempty"`
	Detail string    `json:"detail,omitempty"`
}

// LimitView is a limit with who holds its permits (the first hundred of them).
type LimitView struct {
	Name    string       `json:"name"`
	Max     int          `json:"max"`
	Used    int          `json:"used"`
	Holders []HolderView `json:"holders"`
}

// HolderView names the row that holds a permit: a job, or a run.
type HolderView struct {
	Job  JobID  `json:"job"`
	Step string `json:"step,omitempty"`
	Run  int64  `json:"run,omitempty"`
}

// MaxHoldersShown bounds LimitView.Holders.
const MaxHoldersShown = 100

// Page is one page of a list. No NextCursor: it was the last.
type Page[T any] struct {
	Items      []T    `json:"items"`
	NextCursor string `json:"nextCursor,omitempty"`
}

// Finding is what a consistency check found wrong.
type Finding struct {
	Job     JobID  `json:"job"`
	Step    string `json:"step,omitempty"`
	Rule    string `json:"rule"` // the invariant, as faults.md numbers them
	Message string `json:"message"`
}
