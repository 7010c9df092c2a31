package perdure

import "fmt"

// State is where a job or a step is, or is wanted: at one of the two poles, or between them.
type State uint8

// The poles are Undone and Done. Unsure means that a run was dispatched and its outcome is not known;
// it is never desired.
const (
	Undone State = iota
	Done
	Unsure
)

// Phase is what a job or a step is doing about the difference between current and desired.
type Phase uint8

const (
	Settled Phase = iota // nothing to do
	Waiting              // for neighbours, a time, or a person
	Ready                // may be claimed (steps only)
	Running              // let out, and the run is valid
	Parked               // out of the loop until a person acts
)

// Direction is the way a run is let out. Its pole is the state that the run brings about.
type Direction uint8

const (
	Do Direction = iota
	Undo
)

// Pole is the state that a run in this direction brings about.
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

func (s State) String() string     { return stateNames[s] }
func (p Phase) String() string     { return phaseNames[p] }
func (d Direction) String() string { return directionNames[d] }
func (o Outcome) String() string   { return outcomeNames[o] }

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
