package kernel

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure"
)

// Shape is what the jobs of one definition have in common: everything except key, priority, labels and input, with names
// resolved to indexes and expressions compiled. It is immutable, so that any number of jobs and goroutines may share it.
// A store keeps its text once.
type Shape struct {
	ID     ShapeID
	Text   []byte      // the definition without these four fields, in canonical form
	Common *Definition // Text, parsed
	Steps  []PlanStep
	Index  map[string]int // step name → index in Steps
	Output Template       // the compiled output of the job; nil: it has none

	Accepts, Returns ValueSchema // of the job's input and output; nil: none
	Size             int         // approximate size in memory, in bytes

	Artifacts []ArtifactHash // to which Text refers
}

// ShapeID is the first half of the SHA-256 of the shape's text.
type ShapeID [16]byte

// Plan is a definition that is ready to run: its shape, and the fields that belong to one job.
type Plan struct {
	*Shape
	Definition *Definition
	Hash       [32]byte // the definition's fingerprint
	Needs      Needs    // of a submission; see Job.Needs
	UniqueKey  string   // of Definition.Unique, computed; empty: there is none, or the plan is that of a stored job

	Traceparent string    // of the submission; see Job.Traceparent
	Submitter   string    // see Job.Submitter
	MadeFrom    string    // the stored definition that the submission named, with its version; see Job.MadeFrom
	Parent      Parent    // see Job.Parent
	CompleteBy  time.Time // of a child: the deadline of its parent; zero: it has none
}

// PlanOf returns the plan of a job with this shape. If the job's input is stored apart (Job.InputStoredApart), it is passed as
// input.
func (s *Shape) PlanOf(j *Job, input json.RawMessage) (*Plan, error) {
	switch {
	case !j.InputStoredApart:
		input = j.Input
	case len(input) == 0:
		return nil, fmt.Errorf("the input of job %s is not loaded", j.ID)
	}
	allocated := &struct { // one allocation
		Plan
		Definition
	}{Plan{Shape: s, Hash: j.Hash}, *s.Common}
	d := &allocated.Definition
	d.Key, d.Priority, d.Labels, d.Input = j.Key, j.Priority, j.Labels, input
	if d.StartIn == 0 {
		d.StartAt = j.StartAt
	}
	allocated.Plan.Definition = d
	return &allocated.Plan, nil
}

// PlanStep is one step of a plan. After and Before are its direct neighbours, as indexes.
type PlanStep struct {
	*StepDefinition
	After  []int
	Before []int
	Test   Condition // the compiled `when`; nil: always true
	Do     Template
	Revert Template // the input of the undo; nil: no undo, or the input of the do run
	Limits Template // renders the limits with their keys; nil: none
	Items  Template // of a step with children: renders its items; nil: there is one child
	Child  Template // of a step with children: the input of one of them; nil: none
	Key    Template // of a step with children: the key of one of them; nil: none

	Accepts, Returns ValueSchema // of the input and the output of do runs; nil: none
	Form             StepForm
}

// StepForm distinguishes steps that agents carry out from those that the rules handle themselves.
type StepForm uint8

const (
	ByAgent StepForm = iota
	BySleep
	ByApproval
	BySignal
	ByChildren
)

// Names of agents that stand for rules. Their steps are never dispatched.
const (
	AgentSleep    = "sleep"
	AgentApproval = "approval"
	AgentSignal   = "signal"
)

// Scope holds the values that an expression may read.
type Scope struct {
	Job     *Job
	Input   json.RawMessage            // the job's input
	Outputs map[string]json.RawMessage // by step name, of the steps that the expression reads; null for a step without an output. Never nil
	Output  json.RawMessage            // undo: the output of the step's do run, null if unknown. Never nil in an undo
	Key     string                     // undo: the key of this turn
	DoKey   string                     // undo: the key of the turn that is undone
	Item    json.RawMessage            // a child of forEach: its item; nil: it is no such scope
	Index   int                        // and its number
	Budget  *Budget                    // the budget for the work; nil: no bound
}

// Condition is a compiled `when`.
type Condition interface {
	Eval(*Scope) (bool, error)
	Refs() []int // steps whose outputs it reads
}

// Template is a compiled `with`.
type Template interface {
	Render(*Scope) (json.RawMessage, error)
	Refs() []int           // steps whose outputs it reads
	Secrets() []SecretText // strings in which it refers to secrets
}

// SecretText is a string of an input in which the definition refers to secrets, and nothing else is filled in: its place, as
// a JSON Pointer, and its text. The place is the same in every rendering.
type SecretText struct{ Pointer, Text string }

// ValueSchema is a compiled JSON Schema. Check returns what of a value does not fit; nothing if all of it does. The work of a
// check is bounded.
type ValueSchema interface {
	Check(value json.RawMessage) []ValueFault
}

// ValueFault is a place in a value, as a JSON Pointer, and what does not fit there.
type ValueFault struct{ Pointer, Message string }

// Compiler compiles the text of a shape, and the expression by which an agent's steps are divided into shares.
type Compiler interface {
	Compile(text []byte) (*Shape, error)
	CompileFairBy(text string) (Template, error)
	// Children makes plans of jobs of one definition, each with values of its own.
	Children(definition []byte, values []json.RawMessage) ([]*Plan, []error)
}

// agentOf returns the agent and action that carry out a step in a direction.
func (p *PlanStep) agentOf(d perdure.Direction) (agent, action string) {
	agent, action = p.Agent, p.Action
	if action == "" {
		action = p.Name
	}
	if d == perdure.Undo && p.Undo != nil {
		if p.Undo.Agent != "" {
			agent = p.Undo.Agent
		}
		if p.Undo.Action != "" {
			action = p.Undo.Action
		}
	}
	return agent, action
}

// heartbeat returns the interval after whose end a run expires, for a holder that promises the given one. It has room for a
// heartbeat that says stop, and for the time between TERM and KILL.
func (p *PlanStep) heartbeat(promised time.Duration) time.Duration {
	if promised <= 0 {
		return 0
	}
	return max(promised, time.Duration(p.Heartbeat), 2*time.Duration(p.StopWithin))
}

// progressWithin returns for how long a run in direction d may go without progress; 0: for ever.
func (p *PlanStep) progressWithin(d perdure.Direction) time.Duration {
	if d == perdure.Undo {
		return 0
	}
	return time.Duration(p.ProgressWithin)
}

func (p *PlanStep) completeWithin(d perdure.Direction) time.Duration {
	if d == perdure.Undo && p.Undo != nil && p.Undo.CompleteWithin > 0 {
		return time.Duration(p.Undo.CompleteWithin)
	}
	if p.CompleteWithin > 0 {
		return time.Duration(p.CompleteWithin)
	}
	return perdure.DefaultCompleteWithin
}

func (p *PlanStep) retry(d perdure.Direction) perdure.Retry {
	r := perdure.Retry{}
	if p.Retry != nil {
		r = *p.Retry
	}
	if d == perdure.Undo && p.Undo != nil && p.Undo.Retry != nil {
		r = *p.Undo.Retry
	}
	if r.Attempts == 0 {
		r.Attempts = perdure.DefaultAttempts
	}
	if r.Backoff == 0 {
		r.Backoff = perdure.Duration(perdure.DefaultBackoff)
	}
	if r.MaxBackoff == 0 {
		r.MaxBackoff = max(perdure.Duration(perdure.DefaultMaxBackoff), r.Backoff)
	}
	return r
}

// ladder returns the ladder of a step: its own, or the job's.
func (p *Plan) ladder(i int) Ladder {
	if l := p.Steps[i].OnFailure; len(l) > 0 {
		return l
	}
	return p.Definition.OnFailure
}

// waitsFor returns the neighbours that must settle before step i may move towards s. opens returns the neighbours that
// wait for step i.
func (p *Plan) waitsFor(i int, s perdure.State) []int {
	if s == perdure.Done {
		return p.Steps[i].After
	}
	return p.Steps[i].Before
}

func (p *Plan) opens(i int, s perdure.State) []int {
	if s == perdure.Done {
		return p.Steps[i].Before
	}
	return p.Steps[i].After
}

// isRule reports whether a step of this form is a rule without an effect: it has no runs.
func (f StepForm) isRule() bool { return f != ByAgent && f != ByChildren }

// namesLimits reports whether a step of the job names limits.
func (s *Shape) namesLimits() bool {
	return slices.ContainsFunc(s.Steps, func(ps PlanStep) bool { return ps.Limits != nil })
}
