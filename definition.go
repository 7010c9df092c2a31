package perdure

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Definition is what is asked for: the request from which a job is made. Its JSON is the canonical
// form, without what equals a default, keys sorted and numbers in the digits they came in; it is what a
// store keeps and what package definition reads back.
type Definition struct {
	Type           string            `json:"type"`
	Key            string            `json:"key,omitempty"`
	Priority       int               `json:"priority,omitempty"`
	Labels         map[string]string `json:"labels,omitempty"`
	Input          json.RawMessage   `json:"input,omitempty"`
	OnFailure      Ladder            `json:"onFailure,omitempty"`
	CompleteWithin Duration          `json:"completeWithin,omitempty"`
	States         *StateNames       `json:"states,omitempty"`
	Steps          StepDefinitions   `json:"steps"`
}

// StateNames are a user's own names for the two poles.
type StateNames struct {
	Undone string `json:"undone,omitempty"`
	Done   string `json:"done,omitempty"`
}

// Name is the user's name for s.
func (n *StateNames) Name(s State) string {
	switch {
	case n != nil && s == Undone && n.Undone != "":
		return n.Undone
	case n != nil && s == Done && n.Done != "":
		return n.Done
	}
	return s.String()
}

// StepDefinition is one step as asked for, with the job's defaults filled in.
type StepDefinition struct {
	Name           string          `json:"-"`
	Agent          string          `json:"agent"`
	Action         string          `json:"action,omitempty"` // empty: the step's name
	After          []string        `json:"after,omitempty"`
	When           string          `json:"when,omitempty"`
	With           json.RawMessage `json:"with,omitempty"` // a template: strings may hold ${…}
	Undo           *UndoDefinition `json:"undo,omitempty"` // nil: nothing to undo
	CompleteWithin Duration        `json:"completeWithin,omitempty"`
	Retry          *Retry          `json:"retry,omitempty"`
	OnFailure      Ladder          `json:"onFailure,omitempty"`
}

// UndoDefinition says how a step is undone; what it leaves out is the step's own.
type UndoDefinition struct {
	Agent          string          `json:"agent,omitempty"`
	Action         string          `json:"action,omitempty"`
	With           json.RawMessage `json:"with,omitempty"` // nil: the input of the do run
	CompleteWithin Duration        `json:"completeWithin,omitempty"`
	Retry          *Retry          `json:"retry,omitempty"`
}

// Retry is how often and how soon a failed run is tried again, with full jitter.
type Retry struct {
	Attempts   int      `json:"attempts,omitempty"`
	Backoff    Duration `json:"backoff,omitempty"`
	MaxBackoff Duration `json:"maxBackoff,omitempty"`
	NotOn      []string `json:"notOn,omitempty"` // error codes that are not worth another attempt
}

// RungKind is what one rung of a failure ladder does.
type RungKind string

const (
	RungPark    RungKind = "park"
	RungUndo    RungKind = "undo"
	RungSkip    RungKind = "skip"
	RungWait    RungKind = "wait"
	RungRestart RungKind = "restart"
	RungAlert   RungKind = "alert"
)

// Rung is one line of a ladder.
type Rung struct {
	Kind  RungKind
	For   Duration // wait: how long
	Times int      // wait: how often; restart: how often over the job's life
	Name  string   // alert: whom or what for
}

// Ladder is what happens, top to bottom, once retry is exhausted. One that does not end, ends in park.
type Ladder []Rung

// Duration is a time.Duration that reads and prints Go's syntax, and d for days.
type Duration time.Duration

func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func (d *Duration) UnmarshalText(b []byte) error {
	v, err := ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// ParseDuration reads Go's syntax, with d for days of 24 hours ("1d12h"). The result is above 0 and
// at most MaxDuration.
func ParseDuration(s string) (time.Duration, error) {
	rest, days := s, time.Duration(0)
	if head, tail, ok := strings.Cut(s, "d"); ok {
		n, err := strconv.ParseFloat(head, 64)
		if err != nil || !(n >= 0) || n*24 > MaxDuration.Hours() {
			return 0, fmt.Errorf("%q is not a duration", s)
		}
		days, rest = time.Duration(n*24*float64(time.Hour)), tail
	}
	var v time.Duration
	if rest != "" {
		var err error
		if v, err = time.ParseDuration(rest); err != nil || v < 0 {
			return 0, fmt.Errorf("%q is not a duration", s)
		}
	} else if days == 0 && s == "" {
		return 0, fmt.Errorf("%q is not a duration", s)
	}
	v += days
	if v <= 0 {
		return 0, fmt.Errorf("duration %q is not above 0", s)
	}
	if v > MaxDuration {
		return 0, fmt.Errorf("duration %q is over 10 years", s)
	}
	return v, nil
}

// MarshalJSON writes a ladder as the file has it: one word, or a list.
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

// StepDefinitions are the steps in the order of the file. As JSON they are an object in that order.
type StepDefinitions []StepDefinition

// MarshalJSON writes the steps as an object.
func (s StepDefinitions) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i := range s {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(s[i].Name)
		if err != nil {
			return nil, err
		}
		body, err := json.Marshal(&s[i])
		if err != nil {
			return nil, fmt.Errorf("step %s: %w", s[i].Name, err)
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(body)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// Fingerprint tells whether two definitions are the same one: equal after defaults, whatever the
// order of their fields and steps. Digits count: 1.0 is not 1.
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
