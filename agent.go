package perdure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/internal/runcontext"
)

// Agent wraps one service or resource and executes runs of its steps. The same value works in a node's own process and
// against a remote server.
type Agent struct {
	Name  string
	Slots int // runs at once in one process; 0: DefaultSlots

	actions map[string]Handler
	any     Handler
}

// Handler executes one run. The context ends at the run's deadline, or earlier: when the run no longer belongs to this
// process, when it is no longer wanted, or when a drain takes too long. A result that is returned after the context has
// ended is not reported. Goroutines are reused for later runs: a handler that calls runtime.LockOSThread must call
// runtime.UnlockOSThread before it returns.
type Handler func(ctx context.Context, run *Run) (output json.RawMessage, err error)

// NewAgent makes an agent without actions.
func NewAgent(name string) *Agent {
	return &Agent{Name: name, actions: map[string]Handler{}}
}

// HandleAny sets the handler of all actions that have none of their own, in both directions. A second call is a
// programming error, and panics.
func (a *Agent) HandleAny(h Handler) {
	if a.any != nil {
		panic(fmt.Sprintf("perdure: agent %s has two handlers for any action", a.Name))
	}
	a.any = h
}

// HandleRaw sets the handler of one action, in both directions. A second handler for an action is a programming error,
// and panics.
func (a *Agent) HandleRaw(action string, h Handler) {
	if a.actions[action] != nil {
		panic(fmt.Sprintf("perdure: agent %s has two handlers for %q", a.Name, action))
	}
	a.actions[action] = h
}

// Execute calls the handler of the run's action. A run whose action has no handler is rejected.
func (a *Agent) Execute(ctx context.Context, run *Run) (json.RawMessage, error) {
	h := a.actions[run.Action]
	if h == nil {
		h = a.any
	}
	if h == nil {
		return nil, NoEffect(Rejected(fmt.Errorf("agent %s has no action %q; it has %s", a.Name, run.Action, a.knows()), "noAction"))
	}
	return h(ctx, run)
}

// maxActionsNamed is how many of an agent's actions an error names.
const maxActionsNamed = 10

// knows lists the agent's actions, for an error.
func (a *Agent) knows() string {
	names := slices.Sorted(maps.Keys(a.actions))
	switch more := len(names) - maxActionsNamed; {
	case len(names) == 0:
		return "none"
	case more > 0:
		names = append(names[:maxActionsNamed], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// Op is the two directions of an action. It keeps them together, so that a missing undo is visible and the types of both
// agree.
type Op[In, Out any] struct {
	Do   func(context.Context, In) (Out, error)
	Undo func(context.Context, In, Out) error // nil: no step of this action may have an undo in its definition

	// AllowUnknownFields makes Do ignore fields of the input that In does not have. By default such a run is rejected
	// (code input), because otherwise a misspelled field would be lost without notice.
	AllowUnknownFields bool
}

// Handle adds an action to an agent. Inputs that do not fit In are rejected without effect (code input): a value of
// another type, and in the do direction an unknown field, or no input at all (null) for a struct with fields that are
// neither pointers nor omitempty or omitzero. Undo ignores unknown fields of the input and of the output of
// the do run: both may come from an older or newer version of the program, and must not block the undo. An undo run is
// also rejected if the action has no Undo: otherwise the effect would remain although the job is shown as undone. A
// second handler for an action is a programming error, and panics.
func Handle[In, Out any](a *Agent, action string, op Op[In, Out]) {
	if op.Do == nil {
		panic("perdure.Handle: " + action + " without Do (" + reflect.TypeFor[Op[In, Out]]().String() + ")")
	}
	needed := requiredFields(reflect.TypeFor[In]())
	a.HandleRaw(action, func(ctx context.Context, run *Run) (json.RawMessage, error) {
		var in In
		if needed != "" && run.Direction == Do && bytes.Equal(bytes.TrimSpace(plain.OrNull(run.Input)), []byte("null")) {
			return nil, NoEffect(Rejected(fmt.Errorf("input of %s at agent %s: the step has no input, and the handler takes an object with %s: give the step a `with`", action, a.Name, needed), "input"))
		}
		if err := decodeInput(run.Input, &in, op.AllowUnknownFields || run.Direction == Undo); err != nil {
			return nil, NoEffect(Rejected(fmt.Errorf("input of %s at agent %s: %w", action, a.Name, err), "input"))
		}
		if run.Direction == Undo {
			if op.Undo == nil {
				return nil, noUndo(a.Name, action)
			}
			var out Out
			if err := json.Unmarshal(plain.OrNull(run.Output), &out); err != nil {
				return nil, Rejected(fmt.Errorf("output of the do run: %w", err), "output")
			}
			return nil, op.Undo(ctx, in, out)
		}
		out, err := op.Do(ctx, in)
		if err != nil {
			return nil, err
		}
		return json.Marshal(out)
	})
}

// requiredFields lists the JSON fields of a struct that have neither omitempty nor omitzero; "" if t is another type or has
// no such fields. A handler with such an input cannot mean a step without any: it would run with zero values. A type that
// reads its JSON itself decides itself.
func requiredFields(t reflect.Type) string {
	if t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return ""
	}
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || f.Anonymous || name == "-" || f.Type.Kind() == reflect.Pointer || strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero") {
			continue
		}
		if name == "" {
			name = f.Name
		}
		names = append(names, name)
	}
	if more := len(names) - maxActionsNamed; more > 0 {
		names = append(names[:maxActionsNamed], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// decodeInput reads an input into the handler's own type.
func decodeInput(input json.RawMessage, in any, allowUnknown bool) error {
	input = plain.OrNull(input)
	if allowUnknown {
		return json.Unmarshal(input, in)
	}
	d := json.NewDecoder(bytes.NewReader(input))
	d.DisallowUnknownFields()
	if err := d.Decode(in); err != nil {
		return err
	}
	if rest := input[d.InputOffset():]; len(bytes.TrimSpace(rest)) > 0 {
		return errors.New("more than one JSON value")
	}
	return nil
}

// noUndo parks the step: only an operator can know whether there is something to undo.
func noUndo(agent, action string) error {
	return NoEffect(Rejected(fmt.Errorf("agent %s has no undo for %q, and the step's definition asks for one: "+
		"give the handler an undo (one that does nothing, if nothing is to be undone) and resume the job; or settle the step by hand, and leave undo out of the definition",
		agent, action), "noUndo"))
}

// Failure is the error of a run with further properties. Rejected, Failed, RetryAfter, NoEffect and Returned make it.
type Failure struct {
	Err      error
	Code     string
	Reject   bool          // retrying is pointless
	NoEffect bool          // nothing was changed
	Return   bool          // the run was not started
	After    time.Duration // retry no earlier than this
}

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

func with(err error, set func(*Failure)) error {
	if err == nil {
		return nil
	}
	f := &Failure{Err: err}
	if prev := (*Failure)(nil); errors.As(err, &prev) {
		*f = *prev
		f.Err = err
	}
	set(f)
	return f
}

// Rejected marks an error after which a retry is pointless: the next rung of the ladder follows at once. The code is for
// programs. If err is nil, Rejected returns nil, and so do the following functions.
func Rejected(err error, code ...string) error {
	return with(err, func(f *Failure) {
		f.Reject = true
		for _, c := range code {
			f.Code = c
		}
	})
}

// Failed adds a code to an error, which `retry.notOn` can name.
func Failed(err error, code string) error { return with(err, func(f *Failure) { f.Code = code }) }

// RetryAfter marks an error after which the next attempt must not begin before d has passed.
func RetryAfter(d time.Duration, err error) error {
	return with(err, func(f *Failure) { f.After = d })
}

// NoEffect marks an error of a run that has changed nothing, so that the step keeps its state.
func NoEffect(err error) error { return with(err, func(f *Failure) { f.NoEffect = true }) }

// Returned marks the error of a run that was not started because this process temporarily lacks a resource, such as file
// descriptors. The run is returned to the scheduler: no failure is counted, and the step keeps its state. If the runs of
// a step are returned repeatedly, the step is dispatched after increasing pauses of at most a minute.
func Returned(err error) error { return with(err, func(f *Failure) { f.Return = true }) }

// RunOf returns the run to which a handler's context belongs; nil for another context.
func RunOf(ctx context.Context) *Run {
	run, _ := runcontext.Run(ctx).(*Run)
	return run
}

// Progress sends v, as JSON of at most MaxProgressBytes, with the next heartbeat.
func Progress(ctx context.Context, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(b) > MaxProgressBytes {
		return Refuse(CodeTooLarge, "progress of %d bytes is over %d", len(b), MaxProgressBytes)
	}
	runcontext.SendProgress(ctx, b)
	return nil
}
