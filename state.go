package perdure

import (
	"fmt"
	"strconv"
)

// State is the current or the desired state of a job or step.
type State uint8

// The poles are Undone and Done. Unsure means that a run was dispatched and its outcome is not known;
// it is never desired.
const (
	Undone State = iota
	Done
	Unsure
)

// Phase is what a job or step is doing to reach its desired state.
type Phase uint8

const (
	Settled Phase = iota // nothing to do
	Waiting              // for other steps, a time, or an operator
	Ready                // can be claimed (steps only)
	Running              // dispatched, and the run is valid
	Parked               // stopped until an operator acts
)

// Direction is the direction of a run: do or undo.
type Direction uint8

const (
	Do Direction = iota
	Undo
)

// Pole returns the state that a run in this direction brings about.
func (d Direction) Pole() State {
	if d == Undo {
		return Undone
	}
	return Done
}

// Outcome is how the latest run of a step ended.
type Outcome uint8

const (
	NoOutcome Outcome = iota // never dispatched, or still in flight
	OutcomeDone
	OutcomeFailed
	OutcomeRejected
	OutcomeReturned
	OutcomeExpired
)

var (
	stateNames     = []string{"undone", "done", "unsure"}
	phaseNames     = []string{"settled", "waiting", "ready", "running", "parked"}
	directionNames = []string{"do", "undo"}
	outcomeNames   = []string{"", "done", "failed", "rejected", "returned", "expired"}
)

func (s State) String() string     { return nameOf(stateNames, s) }
func (p Phase) String() string     { return nameOf(phaseNames, p) }
func (d Direction) String() string { return nameOf(directionNames, d) }
func (o Outcome) String() string   { return nameOf(outcomeNames, o) }

// nameOf returns the name of a value; for a value that does not exist, its number.
func nameOf[T ~uint8](names []string, v T) string {
	if int(v) < len(names) {
		return names[v]
	}
	return strconv.Itoa(int(v))
}

func (s State) MarshalText() ([]byte, error)     { return []byte(s.String()), nil }
func (p Phase) MarshalText() ([]byte, error)     { return []byte(p.String()), nil }
func (d Direction) MarshalText() ([]byte, error) { return []byte(d.String()), nil }
func (o Outcome) MarshalText() ([]byte, error)   { return []byte(o.String()), nil }

func (s *State) UnmarshalText(b []byte) error { return parseName(s, stateNames, b, "state") }
func (p *Phase) UnmarshalText(b []byte) error { return parseName(p, phaseNames, b, "phase") }
func (d *Direction) UnmarshalText(b []byte) error {
	return parseName(d, directionNames, b, "direction")
}
func (o *Outcome) UnmarshalText(b []byte) error { return parseName(o, outcomeNames, b, "outcome") }

func parseName[T ~uint8](to *T, names []string, b []byte, noun string) error {
	for i, n := range names {
		if n == string(b) {
			*to = T(i)
			return nil
		}
	}
	return fmt.Errorf("unknown %s %q", noun, b)
}
