package kernel

import (
	"crypto/sha256"
	"encoding/json"
	"errors"

	"github.com/perdure/perdure"
)

// Rendering is an input or a condition that is to be evaluated. In a transaction it is evaluated within the budget of
// the transaction. If that is not enough, it is evaluated outside (Run), and the next transaction uses the result
// (Prepared) if the values that it has read are still the same.
type Rendering struct {
	Key RenderingKey

	template  Template // either this
	condition Condition
	scope     *Scope
	reads     []int // steps whose outputs it reads
	values    *[sha256.Size]byte
	bytes     int // size of these outputs
}

// RenderingKey names an input or a condition of a step in one of its turns.
type RenderingKey struct {
	Step StepRef
	Turn int
	Of   RenderingOf
}

// RenderingOf distinguishes the expressions of a step.
type RenderingOf uint8

const (
	OfDo RenderingOf = iota
	OfUndo
	OfCondition
	OfLimits
	OfOutput // of the job: the step is the last one to settle
	OfItems  // of a step with children
)

// Rendered is the result of a Rendering: a value or an error.
type Rendered struct {
	Input          json.RawMessage
	conditionHolds bool
	err            error // an error of the definition, which makes the step fail

	values *[sha256.Size]byte // hash of the values that it was rendered from
}

// Prepared returns results of renderings that were evaluated outside of transactions; nil if there is none for the key.
type Prepared interface {
	Rendered(RenderingKey) *Rendered
}

// Postponed is the error for a step whose input takes more work than the transaction has left. Nothing has changed.
type Postponed struct{ *Rendering }

func (p *Postponed) Error() string { return ErrOverBudget.Error() }

// Size returns about how many bytes the rendering keeps in memory until it is done.
func (x *Rendering) Size() int { return x.bytes }

// Run evaluates the rendering outside of a transaction. The error is that of the budget.
func (x *Rendering) Run(b *Budget) (*Rendered, error) {
	scope := *x.scope
	scope.Budget = b
	done, err := x.run(&scope)
	if err != nil {
		return nil, err
	}
	return &done, nil
}

func (x *Rendering) run(scope *Scope) (Rendered, error) {
	done := Rendered{values: x.values}
	if x.condition != nil {
		done.conditionHolds, done.err = x.condition.Eval(scope)
	} else {
		done.Input, done.err = bounded(x.template.Render(scope))
	}
	if budgetErr := scope.Budget.Err(); done.err != nil && budgetErr != nil {
		return Rendered{}, budgetErr
	}
	return done, nil
}

func bounded(b json.RawMessage, err error) (json.RawMessage, error) {
	if err == nil && len(b) > perdure.MaxPayloadBytes {
		return nil, perdure.Refuse(perdure.CodeTooLarge, "the rendered value has %d bytes; at most %d", len(b), perdure.MaxPayloadBytes)
	}
	return b, err
}

// evaluate returns the prepared result, or evaluates within the budget. The error is a *Postponed, or means that rows
// are damaged.
func (w *Workset) evaluate(e *entry, x *Rendering) (Rendered, error) {
	if w.prepared != nil {
		if done := w.prepared.Rendered(x.Key); done != nil {
			if err := e.identify(x); err != nil {
				return Rendered{}, err
			}
			if *done.values == *x.values {
				return *done, nil
			}
		}
	}
	done, err := x.run(x.scope)
	if !errors.Is(err, ErrOverBudget) {
		return done, err
	}
	if err := e.identify(x); err != nil {
		return Rendered{}, err
	}
	kept, scope := *x, *x.scope
	kept.scope = &scope
	return Rendered{}, &Postponed{&kept}
}

// identify sets the hash of all outputs in the scope of a rendering. The other values that it reads, which are the job's
// input, key and labels, never change.
func (e *entry) identify(x *Rendering) error {
	if x.values != nil {
		return nil
	}
	h := sha256.New()
	x.bytes = len(x.scope.Output)
	own := sha256.Sum256(x.scope.Output)
	h.Write(own[:])
	for _, i := range x.reads {
		sum, size, err := e.outputSum(i)
		if err != nil {
			return err
		}
		x.bytes += size
		h.Write(sum[:])
	}
	x.values = (*[sha256.Size]byte)(h.Sum(nil))
	return nil
}

// outputSum returns the hash of an output that is loaded. It is computed once in a workset, because many steps may read
// it.
func (e *entry) outputSum(i int) (*[sha256.Size]byte, int, error) {
	out, err := e.output(i)
	if err != nil {
		return nil, 0, err
	}
	v := &e.valuesOf(i).output
	if v.sum == nil {
		sum := sha256.Sum256(out)
		v.sum = &sum
	}
	return v.sum, len(out), nil
}

// Postponed returns the conditions that needed more work than the budget had left. Their steps are due at once, and the
// supervisor decides them again.
func (w *Workset) Postponed() []*Rendering { return w.postponed }
