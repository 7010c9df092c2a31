package perdure

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/perdure/perdure/internal/plain"
)

// Definable is a job definition, in JSON: a JobBuilder or StepBuilder, or a type of your own.
type Definable interface {
	Define() (json.RawMessage, error)
}

// JobBuilder builds a job definition in Go. It checks nothing itself: the definition is checked when it is submitted or
// compiled (definition.FromDefinition), with the same refusals as a file.
//
//	job := perdure.Define("order").Key("order-1042").Input(order).OnFailure(perdure.UndoRung())
//	job.Step("reserve", "stock").With(map[string]any{"sku": "${input.sku}"}).Undo()
//	job.Step("charge", "payments").After("reserve").With(Charge{Amount: 4200}).Undo()
type JobBuilder struct {
	job   builtJob
	steps []*StepBuilder
	chain bool
	err   error // of the first value that cannot be encoded as JSON
}

// builtJob is the JSON of a definition; docs/definition.md describes it.
type builtJob struct {
	Type           string            `json:"type"`
	Key            string            `json:"key,omitempty"`
	Priority       int               `json:"priority,omitempty"`
	Labels         map[string]string `json:"labels,omitempty"`
	StartAt        time.Time         `json:"startAt,omitzero"`
	Input          json.RawMessage   `json:"input,omitempty"`
	InputSchema    json.RawMessage   `json:"inputSchema,omitempty"`
	OutputSchema   json.RawMessage   `json:"outputSchema,omitempty"`
	OnFailure      []Rung            `json:"onFailure,omitempty"`
	CompleteWithin Duration          `json:"completeWithin,omitempty"`
	Limits         []StepLimit       `json:"limits,omitempty"`
	StartIn        Duration          `json:"startIn,omitempty"`
	StartWithin    Duration          `json:"startWithin,omitempty"`
	Unique         *builtUnique      `json:"unique,omitempty"`
	States         *StateNames       `json:"states,omitempty"`
	Notify         []builtNotify     `json:"notify,omitempty"`
	Output         json.RawMessage   `json:"output,omitempty"`
	Steps          builtSteps        `json:"steps"`
}

type builtUnique struct {
	Key    string   `json:"key"`
	Within Duration `json:"within,omitempty"`
	While  string   `json:"while,omitempty"`
}

type builtNotify struct {
	Webhook  string   `json:"webhook,omitempty"`
	Receiver string   `json:"receiver,omitempty"`
	On       []string `json:"on,omitempty"`
	Secret   string   `json:"secret,omitempty"`
}

type builtStep struct {
	Agent          string          `json:"agent,omitempty"`
	Action         string          `json:"action,omitempty"`
	After          []string        `json:"after,omitempty"`
	When           string          `json:"when,omitempty"`
	With           json.RawMessage `json:"with,omitempty"`
	Undo           *UndoDefinition `json:"undo,omitempty"`
	CompleteWithin Duration        `json:"completeWithin,omitempty"`
	Retry          *Retry          `json:"retry,omitempty"`
	OnFailure      []Rung          `json:"onFailure,omitempty"`
	Limits         []StepLimit     `json:"limits,omitempty"`
	Requires       *Requires       `json:"requires,omitempty"`
	Prefers        *builtPrefers   `json:"prefers,omitempty"`
	Place          string          `json:"place,omitempty"`
	Heartbeat      Duration        `json:"heartbeat,omitempty"`
	ProgressWithin Duration        `json:"progressWithin,omitempty"`
	StopWithin     Duration        `json:"stopWithin,omitempty"`
	InputSchema    json.RawMessage `json:"inputSchema,omitempty"`
	OutputSchema   json.RawMessage `json:"outputSchema,omitempty"`
	builtOwner
}

type builtPrefers struct {
	Labels map[string]string `json:"labels"`
}

// builtSteps are a JSON object, in their order.
type builtSteps []*StepBuilder

func (s builtSteps) MarshalJSON() ([]byte, error) {
	return plain.Object(len(s), func(i int) (string, any) {
		step := s[i].built()
		if s[i].job.chain && i > 0 {
			step.After = append([]string{s[i-1].name}, step.After...)
		}
		return s[i].name, &step
	})
}

// Define begins a job of this type.
func Define(typ string) *JobBuilder { return &JobBuilder{job: builtJob{Type: typ}} }

// Key sets the idempotency key: a second submission with the same key is the same job. Like every text, it may contain
// ${…} of the input.
func (b *JobBuilder) Key(key string) *JobBuilder { b.job.Key = key; return b }

// Priority sets the priority, 0 to 9. A higher one goes first.
func (b *JobBuilder) Priority(p int) *JobBuilder { b.job.Priority = p; return b }

// Label adds a label.
func (b *JobBuilder) Label(name, value string) *JobBuilder {
	if b.job.Labels == nil {
		b.job.Labels = map[string]string{}
	}
	b.job.Labels[name] = value
	return b
}

// Input sets the value that the job's expressions see as input: anything that can be encoded as JSON.
func (b *JobBuilder) Input(v any) *JobBuilder { b.job.Input = b.json("input", v); return b }

// OnFailure sets the escalation ladder of steps that have none of their own.
func (b *JobBuilder) OnFailure(rungs ...Rung) *JobBuilder { b.job.OnFailure = rungs; return b }

// CompleteWithin sets the deadline of the whole job, counted from its submission or, if it starts later, from its start.
func (b *JobBuilder) CompleteWithin(d time.Duration) *JobBuilder {
	b.job.CompleteWithin = Duration(d)
	return b
}

// StartAt sets the time at which the job starts: it waits until then.
func (b *JobBuilder) StartAt(t time.Time) *JobBuilder { b.job.StartAt = t; return b }

// StartIn sets how long after its submission the job starts. It is not used together with StartAt.
func (b *JobBuilder) StartIn(d time.Duration) *JobBuilder { b.job.StartIn = Duration(d); return b }

// StartWithin sets the time within which a run must be dispatched, counted from when the job may start. Otherwise the
// job fails as OnFailure says, and is undone without it: for work that is worthless when it is late.
func (b *JobBuilder) StartWithin(d time.Duration) *JobBuilder {
	b.job.StartWithin = Duration(d)
	return b
}

// UniqueWithin makes further submissions of jobs of this type with the same key the first job, for a time since its
// submission, up to MaxUniqueWithin. The key may contain ${…} of the input.
func (b *JobBuilder) UniqueWithin(key string, d time.Duration) *JobBuilder {
	b.job.Unique = &builtUnique{Key: key, Within: Duration(d)}
	return b
}

// UniqueWhileUnsettled is UniqueWithin until the first job is settled.
func (b *JobBuilder) UniqueWhileUnsettled(key string) *JobBuilder {
	b.job.Unique = &builtUnique{Key: key, While: "unsettled"}
	return b
}

// States sets your own names for the states undone and done.
func (b *JobBuilder) States(undone, done string) *JobBuilder {
	b.job.States = &StateNames{Undone: undone, Done: done}
	return b
}

// NotifyURL adds a URL to which notifications of changes are posted: of those named by on, such as parked
// (operate.JobEventKinds), or of parked, done and undone. Deliveries are signed with the secret of this name, of which each
// node has the value; "": they are not signed.
func (b *JobBuilder) NotifyURL(url, secret string, on ...string) *JobBuilder {
	b.job.Notify = append(b.job.Notify, builtNotify{Webhook: url, Secret: secret, On: on})
	return b
}

// NotifyReceiver is NotifyURL for a receiver of the store. If there is none of this name, nothing is stored.
func (b *JobBuilder) NotifyReceiver(name string, on ...string) *JobBuilder {
	b.job.Notify = append(b.job.Notify, builtNotify{Receiver: name, On: on})
	return b
}

// Output sets the output of the job: anything that can be encoded as JSON. Texts in it may contain ${…}, which is computed
// when the last step settles, and sees the outputs of all steps.
func (b *JobBuilder) Output(v any) *JobBuilder { b.job.Output = b.json("output", v); return b }

// Schemas sets the JSON Schemas (2020-12) of the job's input and output: anything that can be encoded as JSON; nil: none.
func (b *JobBuilder) Schemas(input, output any) *JobBuilder {
	b.job.InputSchema, b.job.OutputSchema = b.schema("inputSchema", input), b.schema("outputSchema", output)
	return b
}

func (b *JobBuilder) schema(what string, v any) json.RawMessage {
	if v == nil {
		return nil
	}
	return b.json(what, v)
}

// Chain makes each step come after the one before it.
func (b *JobBuilder) Chain() *JobBuilder { b.chain = true; return b }

// Step adds a step, which is carried out by the given agent.
func (b *JobBuilder) Step(name, agent string) *StepBuilder {
	s := &StepBuilder{job: b, name: name, step: builtStep{Agent: agent}}
	b.steps = append(b.steps, s)
	return s
}

// Define implements Definable.
func (b *JobBuilder) Define() (json.RawMessage, error) {
	if b.err != nil {
		return nil, b.err
	}
	job := b.job
	job.Steps = b.steps
	return json.Marshal(&job)
}

func (b *JobBuilder) json(what string, v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil && b.err == nil {
		b.err = Refuse(CodeMalformed, "%s of job type %s is not JSON: %v", what, b.job.Type, err)
	}
	return raw
}

// StepBuilder builds one step of a job.
type StepBuilder struct {
	job  *JobBuilder
	name string
	step builtStep
}

// Action sets the action that the agent carries out. The default is the step's name.
func (s *StepBuilder) Action(name string) *StepBuilder { s.step.Action = name; return s }

// After names the steps that come before this one.
func (s *StepBuilder) After(names ...string) *StepBuilder {
	s.step.After = append(s.step.After, names...)
	return s
}

// Schemas sets the JSON Schemas (2020-12) of the input and the output of the step's do runs: anything that can be encoded as
// JSON; nil: none.
func (s *StepBuilder) Schemas(input, output any) *StepBuilder {
	s.step.InputSchema, s.step.OutputSchema = s.job.schema("inputSchema", input), s.job.schema("outputSchema", output)
	return s
}

// When skips the step if the expression is false.
func (s *StepBuilder) When(expression string) *StepBuilder { s.step.When = expression; return s }

// With sets the step's input: anything that can be encoded as JSON. Texts in it may contain ${…}, which is computed when
// the step is dispatched. Put texts from other people into the job's Input, or wrap them in Literal.
func (s *StepBuilder) With(v any) *StepBuilder {
	s.step.With = s.job.json(fmt.Sprintf("with of step %s", s.name), v)
	return s
}

// Undo declares that the step can be undone, by the same action of the same agent in the undo direction.
func (s *StepBuilder) Undo() *StepBuilder { return s.UndoBy(UndoDefinition{}) }

// Limit makes the job hold amount permits of a limit from its first run until it is settled or parked. If key is not empty, the
// limit's bound for each key applies as well. The key may contain ${…} of the input.
func (b *JobBuilder) Limit(name, key string, amount int) *JobBuilder {
	b.job.Limits = append(b.job.Limits, StepLimit{name, key, amount})
	return b
}

// Limit makes each run of the step hold amount permits of a limit, undo runs included. If key is not empty, the limit's
// bound for each key applies as well. The key may contain ${…}.
func (s *StepBuilder) Limit(name, key string, amount int) *StepBuilder {
	s.step.Limits = append(s.step.Limits, StepLimit{name, key, amount})
	return s
}

// Requires makes the step run on hosts only that have what r requires. A run takes its amounts until it ends.
func (s *StepBuilder) Requires(r Requires) *StepBuilder { s.step.Requires = &r; return s }

// Prefers ranks hosts that have more of these labels first. It excludes none.
func (s *StepBuilder) Prefers(labels map[string]string) *StepBuilder {
	s.step.Prefers = &builtPrefers{labels}
	return s
}

// Place chooses between hosts that rank equally: "pack", the default, takes the one with the least left over, and "spread"
// the one with the most.
func (s *StepBuilder) Place(place string) *StepBuilder { s.step.Place = place; return s }

// Heartbeat sets for how long the process that runs the step may be silent, if that is longer than what it promises.
func (s *StepBuilder) Heartbeat(d time.Duration) *StepBuilder {
	s.step.Heartbeat = Duration(d)
	return s
}

// ProgressWithin stops do runs whose progress does not change for so long.
func (s *StepBuilder) ProgressWithin(d time.Duration) *StepBuilder {
	s.step.ProgressWithin = Duration(d)
	return s
}

// StopWithin sets the time between SIGTERM and SIGKILL for a program of agent exec: at most MaxStopWithin.
func (s *StepBuilder) StopWithin(d time.Duration) *StepBuilder {
	s.step.StopWithin = Duration(d)
	return s
}

// UndoWith is Undo with an input of its own.
func (s *StepBuilder) UndoWith(v any) *StepBuilder {
	return s.UndoBy(UndoDefinition{With: s.job.json(fmt.Sprintf("undo of step %s", s.name), v)})
}

// UndoBy is Undo with another agent, action, input, deadline or retry.
func (s *StepBuilder) UndoBy(d UndoDefinition) *StepBuilder { s.step.Undo = &d; return s }

// CompleteWithin sets the deadline of each run, counted from its dispatch.
func (s *StepBuilder) CompleteWithin(d time.Duration) *StepBuilder {
	s.step.CompleteWithin = Duration(d)
	return s
}

// Retry sets how often and how soon a failed run is retried.
func (s *StepBuilder) Retry(r Retry) *StepBuilder { s.step.Retry = &r; return s }

// OnFailure sets the step's escalation ladder.
func (s *StepBuilder) OnFailure(rungs ...Rung) *StepBuilder { s.step.OnFailure = rungs; return s }

// Step adds the next step of the job.
func (s *StepBuilder) Step(name, agent string) *StepBuilder { return s.job.Step(name, agent) }

// Define implements Definable. It returns the whole job.
func (s *StepBuilder) Define() (json.RawMessage, error) { return s.job.Define() }

// Literal is a value of With in which no text is an expression.
func Literal(v any) any { return literal{v} }

type literal struct{ v any }

func (l literal) MarshalJSON() ([]byte, error) {
	raw, err := json.Marshal(l.v)
	return bytes.ReplaceAll(raw, []byte("${"), []byte("$${")), err
}

// Rung is one measure of an escalation ladder. The ladder begins when the retries of a step are used up. Each rung
// follows if the one before it did not help. A ladder that does not end otherwise ends in ParkRung.
type Rung struct{ json any }

// MarshalJSON writes the rung as the job file has it.
func (r Rung) MarshalJSON() ([]byte, error) { return json.Marshal(r.json) }

// ParkRung parks the step: it waits until an operator acts.
func ParkRung() Rung { return Rung{"park"} }

// UndoRung undoes the whole job.
func UndoRung() Rung { return Rung{"undo"} }

// SkipRung continues without the step.
func SkipRung() Rung { return Rung{"skip"} }

// WaitRung retries after d, at most the given number of times.
func WaitRung(d time.Duration, times int) Rung {
	return Rung{map[string]any{"wait": Duration(d), "times": times}}
}

// RestartRung undoes the job and does it again, at most the given number of times in the life of the job.
func RestartRung(times int) Rung { return Rung{map[string]any{"restart": times}} }

// AlertRung raises an alert with this name, and continues with the next rung.
func AlertRung(name string) Rung { return Rung{map[string]any{"alert": name}} }
