package perdure

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// StateNames are a user's own names for the states undone and done.
type StateNames struct {
	Undone string `json:"undone,omitempty"`
	Done   string `json:"done,omitempty"`
}

// Name returns the user's name for s.
func (n *StateNames) Name(s State) string {
	switch {
	case n != nil && s == Undone && n.Undone != "":
		return n.Undone
	case n != nil && s == Done && n.Done != "":
		return n.Done
	}
	return s.String()
}

// UndoDefinition describes how a step is undone. Fields that are missing have the step's own values.
type UndoDefinition struct {
	Agent          string          `json:"agent,omitempty"`
	Action         string          `json:"action,omitempty"`
	With           json.RawMessage `json:"with,omitempty"` // nil: the input of the do run
	CompleteWithin Duration        `json:"completeWithin,omitempty"`
	Retry          *Retry          `json:"retry,omitempty"`
	SameHost       string          `json:"sameHost,omitempty"` // prefer (the default): the host that has done the step goes first; require: no other; any
}

// Retry describes how often and how soon a failed run is retried, with full jitter.
type Retry struct {
	Attempts   int      `json:"attempts,omitempty"`
	Backoff    Duration `json:"backoff,omitempty"`
	MaxBackoff Duration `json:"maxBackoff,omitempty"`
	NotOn      []string `json:"notOn,omitempty"` // error codes after which a retry is pointless
}

// Duration is a time.Duration whose text is Go's syntax, with d for days.
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
		if err != nil || !(n >= 0) {
			return 0, fmt.Errorf("%q is not a duration", s)
		}
		if n*24 > MaxDuration.Hours() {
			return 0, fmt.Errorf("duration %q is over 10 years", s)
		}
		days, rest = time.Duration(n*24*float64(time.Hour)), tail
	}
	var v time.Duration
	if rest != "" {
		var err error
		if v, err = time.ParseDuration(rest); err != nil || v < 0 && days > 0 {
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
