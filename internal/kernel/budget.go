package kernel

import "errors"

// Budget bounds the work of rendering. All inputs and conditions of one part of a transaction share one budget, and so
// do all jobs that one call submits. It belongs to one goroutine. A nil *Budget bounds nothing.
type Budget struct {
	Work  int // work left, in the units of the package that renders: one for each value, and one for every eight bytes, that it processes
	Bytes int // bytes of inputs and outputs that may still be handed out
	Read  int // bytes of inputs and outputs that may still be loaded for it
	// Stop is called repeatedly during long renderings, and ends them by returning an error. May be nil.
	Stop func() error
	// Memory is for the package that renders: it caches values there that it has read.
	Memory any

	err       error
	untilStop int
}

// ErrOverBudget is returned for work that takes more than is left of its budget.
var ErrOverBudget = errors.New("the budget for rendering is used up")

// ErrNoRoom is returned for a run that is too large for the rest of its claim's answer. Nothing has changed.
var ErrNoRoom = errors.New("the run does not fit into the answer of this claim")

// askEvery is the number of units of work between two calls of Stop: some milliseconds.
const workPerStop = 1 << 16

// Spend subtracts work from the budget. Once it has returned an error (ErrOverBudget, or that of Stop), every later
// call returns the same error.
func (b *Budget) Spend(work int) error {
	if b == nil || b.err != nil {
		return b.Err()
	}
	if b.Work -= work; b.Work < 0 {
		b.err = ErrOverBudget
	} else if b.untilStop -= work; b.untilStop <= 0 && b.Stop != nil {
		b.untilStop = workPerStop
		b.err = b.Stop()
	}
	return b.err
}

// Err is why nothing more can be spent; nil if something can.
func (b *Budget) Err() error {
	if b == nil {
		return nil
	}
	return b.err
}

// mayRead reports whether values that are not loaded may still be loaded.
func (b *Budget) mayRead() bool { return b == nil || b.Read > 0 }

// hand subtracts the size of an input or output from the budget. It returns false if the budget for bytes was used up.
func (b *Budget) spendBytes(bytes int) bool {
	if b == nil {
		return true
	}
	if b.Bytes <= 0 {
		return false
	}
	b.Bytes -= bytes
	return true
}
