package kernel

import (
	"cmp"
	"time"

	"github.com/perdure/perdure"
)

// Places are the queue tables in which a step has an entry, each with the key of the entry. They follow from the step's
// row alone. Stores write the entries in the transaction that writes the row, and search them. `perdure check` compares
// the entries with what PlacesOf returns.
type Places struct {
	Ready    ReadyKey
	DueAt    time.Time // the step waits until this time; zero: no entry
	InFlight InFlightKey
	Waiting  Topic // the step waits for a signal of this topic; empty: no entry
	Line     Needs // the step stands in line for keys among these; empty: no entries
}

// ReadyKey is the entry of a ready step. Claims of the agent find it by its lane, in the order of ClaimLess.
type ReadyKey struct {
	Ready bool // false: no entry
	Agent string
	Lane  LaneID
	Order int64
}

// InFlightKey is the entry of a run in flight. It is found by its holder and claim, and when its lock ends.
type InFlightKey struct {
	InFlight bool // false: no entry
	Agent    string
	Holder   string
	Request  string
	Until    time.Time // end of the run's lock
}

// PlacesOf returns the entries of a step in all queue tables.
func PlacesOf(s *Step) Places {
	return Places{ReadyOf(s), DueOf(s), InFlightOf(s), WaitingOf(s), LineOf(s)}
}

// ReadyOf returns the entry of a step among the ready steps.
func ReadyOf(s *Step) ReadyKey {
	if s.Phase != perdure.Ready {
		return ReadyKey{}
	}
	return ReadyKey{Ready: true, Agent: s.Agent, Lane: LaneOf(s.Type, s.Needs), Order: s.order()}
}

// DueOf returns the time until which a step waits; zero if it does not wait for a time.
func DueOf(s *Step) time.Time {
	if s.Phase != perdure.Waiting {
		return time.Time{}
	}
	return s.AvailableAt
}

// WaitingOf returns the topic of the signals for which a step waits; empty: it waits for none.
func WaitingOf(s *Step) Topic {
	if s.Phase != perdure.Waiting {
		return ""
	}
	return s.Topic
}

// InFlightOf returns the entry of a step among the runs in flight.
func InFlightOf(s *Step) InFlightKey {
	if s.Phase != perdure.Running {
		return InFlightKey{}
	}
	return InFlightKey{InFlight: true, Agent: s.Agent, Holder: s.LockedBy, Request: s.Request, Until: s.LockedUntil}
}

// Same reports whether two entries differ in their time at most.
func (k InFlightKey) Same(o InFlightKey) bool {
	return k.InFlight == o.InFlight && k.Agent == o.Agent && k.Holder == o.Holder && k.Request == o.Request
}

// Covers reports whether a run that is found by entry k is still found in time if its key is now o. A heartbeat moves
// the end of the lock to a later time, so the entry may have an earlier time than the row.
func (k InFlightKey) Covers(o InFlightKey) bool { return k.Same(o) && !o.Until.Before(k.Until) }

// Candidate is a ready step as a dispatch search finds it.
type Candidate struct {
	StepRef
	Order int64
}

// CandidateOf returns a ready step as a candidate.
func CandidateOf(s *Step) Candidate {
	return Candidate{s.StepRef, s.order()}
}

// ClaimLess orders ready steps as claims get them: by Order, then by age of the job, then by index. The result is below
// 0 if a comes before b.
func ClaimLess(a, b Candidate) int {
	if a.Order != b.Order {
		return cmp.Compare(a.Order, b.Order)
	}
	return a.StepRef.Compare(b.StepRef)
}

// OverdueAt returns when the job's deadline passes: StartBy or CompleteBy, whichever is earlier. It is zero if the job has
// none, if the deadline has been acted on, or if the job is parked or settled.
func (j *Job) OverdueAt() (at time.Time) {
	if j.Phase == perdure.Settled || !j.ParkedAt.IsZero() {
		return time.Time{}
	}
	if !j.Overdue {
		at = j.CompleteBy
	}
	if !j.StartBy.IsZero() && (at.IsZero() || j.StartBy.Before(at)) {
		at = j.StartBy
	}
	return at
}

// Permits are the permits that a row of a step holds. A field that is empty stands for no permit.
type Permits struct {
	Type  string // the step is the first of its job, and the job holds a permit of job:TYPE
	Job   Needs  // and these of named limits
	Agent string // the step runs, and holds a permit of agent:NAME
	Needs Needs  // the step runs, and holds these permits of named limits
}

// PermitsOf returns the permits that a row of a step holds. j is the job if the step is the first of its job, else nil:
// the permit of the job is stored with its first step.
func PermitsOf(s *Step, j *Job) (p Permits) {
	if j != nil && j.HasPermit {
		p.Type, p.Job = j.Type, j.Needs
	}
	if s.Phase == perdure.Running {
		p.Agent, p.Needs = s.Agent, s.Needs
	}
	return p
}

// InitialStep returns step i of a job as it is when the job is submitted. Stores that do not store steps which are still in
// that state (implicit rows) read them as this.
func InitialStep(j *Job, i int, name string, blockers int) Step {
	return Step{StepRef: StepRef{j.ID, i}, Name: name, Type: j.Type, Priority: j.Priority,
		Desired: perdure.Done, Phase: perdure.Waiting, Turn: 1, Blockers: blockers, UpdatedAt: j.CreatedAt}
}

// List returns the permits, each with its limit and key. Those of named limits that the job holds are marked.
func (p Permits) List() (held []Need) {
	if p.Type != "" {
		held = append(held, Need{LimitKey: LimitKey{Name: JobLimit(p.Type)}, Amount: 1})
	}
	if p.Agent != "" {
		held = append(held, Need{LimitKey: LimitKey{Name: AgentLimit(p.Agent)}, Amount: 1})
	}
	held = append(held, p.Needs.List()...)
	for _, n := range p.Job.List() {
		n.OfJob = true
		held = append(held, n)
	}
	for i := range held {
		held[i].Line = NotInLine
	}
	return held
}
