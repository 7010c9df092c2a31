package kernel

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

// Definition is the request from which a job is made. Its JSON is canonical: without fields that equal a default, with
// sorted keys, and with numbers in their original digits. Stores keep this form, and package definition reads it back.
type Definition struct {
	Type           string              `json:"type"`
	Key            string              `json:"key,omitempty"`
	Priority       int                 `json:"priority,omitempty"`
	Labels         map[string]string   `json:"labels,omitempty"`
	StartAt        time.Time           `json:"startAt,omitzero"` // in UTC, to the microsecond
	Input          json.RawMessage     `json:"input,omitempty"`
	InputSchema    json.RawMessage     `json:"inputSchema,omitempty"`
	OutputSchema   json.RawMessage     `json:"outputSchema,omitempty"`
	OnFailure      Ladder              `json:"onFailure,omitempty"`
	CompleteWithin perdure.Duration    `json:"completeWithin,omitempty"`
	Limits         []LimitUse          `json:"limits,omitempty"`
	StartIn        perdure.Duration    `json:"startIn,omitempty"`     // since the submission; not together with StartAt
	StartWithin    perdure.Duration    `json:"startWithin,omitempty"` // since the job may start; 0: it may start at any time
	Unique         *UniqueDefinition   `json:"unique,omitempty"`
	States         *perdure.StateNames `json:"states,omitempty"`
	Notify         []NotifyDefinition  `json:"notify,omitempty"`
	Output         json.RawMessage     `json:"output,omitempty"` // a template: strings may hold ${…}
	Steps          StepDefinitions     `json:"steps"`
}

// UniqueDefinition makes further submissions with the same key the first job: within a time since its submission, or while
// it is unsettled.
type UniqueDefinition struct {
	Key    string           `json:"key"` // may hold ${…} of the input
	Within perdure.Duration `json:"within,omitempty"`
	While  string           `json:"while,omitempty"` // WhileUnsettled; empty: Within is given
}

// WhileUnsettled is the only value of UniqueDefinition.While.
const WhileUnsettled = "unsettled"

// Define implements perdure.Definable.
func (d *Definition) Define() (json.RawMessage, error) {
	body, err := json.Marshal(d)
	if err != nil {
		return nil, perdure.Refuse(perdure.CodeMalformed, "the definition is not JSON: %v", err)
	}
	return body, nil
}

// StepDefinition is one step of a definition, with the job's defaults filled in.
type StepDefinition struct {
	Name           string                  `json:"-"`
	Agent          string                  `json:"agent,omitempty"`  // empty: the step has children
	Action         string                  `json:"action,omitempty"` // empty: the step's name
	After          []string                `json:"after,omitempty"`
	When           string                  `json:"when,omitempty"`
	With           json.RawMessage         `json:"with,omitempty"` // a template: strings may hold ${…}
	Undo           *perdure.UndoDefinition `json:"undo,omitempty"` // nil: nothing to undo
	CompleteWithin perdure.Duration        `json:"completeWithin,omitempty"`
	Retry          *perdure.Retry          `json:"retry,omitempty"`
	OnFailure      Ladder                  `json:"onFailure,omitempty"`
	Limits         []LimitUse              `json:"limits,omitempty"`
	Requires       *perdure.Requires       `json:"requires,omitempty"`
	Prefers        *Preferences            `json:"prefers,omitempty"`
	Place          string                  `json:"place,omitempty"`          // PlaceSpread; empty: PlacePack
	Heartbeat      perdure.Duration        `json:"heartbeat,omitempty"`      // the least interval; 0: what the holder promises
	ProgressWithin perdure.Duration        `json:"progressWithin,omitempty"` // of do runs; 0: no progress is expected
	StopWithin     perdure.Duration        `json:"stopWithin,omitempty"`     // between TERM and KILL; 0: as the agent has it
	InputSchema    json.RawMessage         `json:"inputSchema,omitempty"`    // of do runs
	OutputSchema   json.RawMessage         `json:"outputSchema,omitempty"`   // of do runs

	// The fields of a step with children. Job is nil for all others.
	ForEach     json.RawMessage  `json:"forEach,omitempty"` // a template: {"in": …} or {"range": […]}; nil: there is one child
	As          string           `json:"as,omitempty"`      // the name of the item in expressions; empty: DefaultItemName
	MaxParallel int              `json:"maxParallel,omitempty"`
	Tolerate    *Tolerance       `json:"tolerate,omitempty"`
	ParkedIs    string           `json:"parkedIs,omitempty"`  // ParkedIsFailed; empty: a parked child waits for its operator
	UndoOrder   string           `json:"undoOrder,omitempty"` // UndoReverse; empty: in the order of the items
	Collect     string           `json:"collect,omitempty"`   // CollectList; empty: counts only
	Job         *ChildDefinition `json:"job,omitempty"`
}

// ChildDefinition says which jobs are the children of a step.
type ChildDefinition struct {
	Definition json.RawMessage   `json:"definition"`          // the name of a stored definition, or a definition
	Input      json.RawMessage   `json:"input,omitempty"`     // a template
	Labels     map[string]string `json:"labels,omitempty"`    // nil: those of the parent
	Priority   *int              `json:"priority,omitempty"`  // nil: that of the parent
	Key        string            `json:"key,omitempty"`       // a template; empty: the children have no keys
	Detached   bool              `json:"-"`                   // wait: false: the step is done when its children are submitted
	UndoChild  bool              `json:"undoChild,omitempty"` // of such a step: its undo undoes the children
}

// Tolerance is how many children of a step may fail.
type Tolerance struct {
	Count int // this number,
	Share int // or this share of all children, in thousandths of a percent
}

// MarshalJSON writes the tolerance as a job file has it.
func (t Tolerance) MarshalJSON() ([]byte, error) {
	if t.Share == 0 {
		return fmt.Appendf(nil, `{"failed":%d}`, t.Count), nil
	}
	share := strconv.FormatFloat(float64(t.Share)/1000, 'f', -1, 64)
	return fmt.Appendf(nil, `{"failed":"%s%%"}`, share), nil
}

// Of returns how many of the children of a step may fail.
func (t *Tolerance) Of(total int) int {
	switch {
	case t == nil:
		return 0
	case t.Share > 0:
		return total * t.Share / wholeShare
	}
	return t.Count
}

// wholeShare is a Share of 100 %.
const wholeShare = 100_000

// Preferences are the labels of the hosts that a step prefers.
type Preferences struct {
	Labels map[string]string `json:"labels"`
}

// LimitUse is a limit of which a step needs permits while it runs, or a job from its first run until it is settled or parked.
type LimitUse struct {
	Name   string `json:"name"`
	Key    string `json:"key,omitempty"`    // may hold ${…}; empty: none
	Amount int    `json:"amount,omitempty"` // 0 means 1
}

// RungKind is the measure of one rung of an escalation ladder.
type RungKind string

const (
	RungPark    RungKind = "park"
	RungUndo    RungKind = "undo"
	RungSkip    RungKind = "skip"
	RungWait    RungKind = "wait"
	RungRestart RungKind = "restart"
	RungAlert   RungKind = "alert"
)

// Rung is one rung of an escalation ladder.
type Rung struct {
	Kind  RungKind
	For   perdure.Duration // wait: how long
	Times int              // wait: how often; restart: how often in the life of the job
	Name  string           // alert: the name of the alert
}

// Ladder lists the measures that follow, from first to last, once the retries of a step are used up. If none of them
// decides, the step is parked.
type Ladder []Rung

// MarshalJSON writes a ladder as a job file has it: one word, or a list.
func (l Ladder) MarshalJSON() ([]byte, error) {
	rungs := make([]any, len(l))
	for i, r := range l {
		switch r.Kind {
		case RungWait:
			rungs[i] = map[string]any{"wait": r.For, "times": r.Times}
		case RungRestart:
			rungs[i] = map[string]any{"restart": r.Times}
		case RungAlert:
			rungs[i] = map[string]any{"alert": r.Name}
		default:
			rungs[i] = string(r.Kind)
		}
	}
	if len(rungs) == 1 {
		return json.Marshal(rungs[0])
	}
	return json.Marshal(rungs)
}

// StepDefinitions are the steps in the order of the file. In JSON they are an object with its fields in that order.
type StepDefinitions []StepDefinition

// MarshalJSON writes the steps as an object.
func (s StepDefinitions) MarshalJSON() ([]byte, error) {
	return plain.Object(len(s), func(i int) (string, any) { return s[i].Name, &s[i] })
}

// Fingerprint returns a hash that is equal for equal definitions: after defaults are applied, and whatever the order of
// their fields and steps. The digits of numbers count: 1.0 is not 1.
func (d *Definition) Fingerprint() ([32]byte, error) {
	c := *d
	c.Steps = slices.Clone(d.Steps)
	slices.SortFunc(c.Steps, func(a, b StepDefinition) int { return strings.Compare(a.Name, b.Name) })
	for i := range c.Steps {
		c.Steps[i].After = slices.Sorted(slices.Values(c.Steps[i].After))
	}
	body, err := json.Marshal(&c)
	if err != nil {
		return [32]byte{}, err
	}
	return sha256.Sum256(body), nil
}
