package kernel

import "errors"

// Budget bounds the work of rendering. All inputs and conditions of one part of a transaction share one budget, and so
// do all jobs of one submission. It belongs to one goroutine. A nil *Budget bounds nothing.
type Budget struct {
	Work  int // work left, in the units of the package that renders: one for each value, and one for every eight bytes, that it processes
	Full  int // the value of Work in a transaction while the renderers are idle; 0: unknown
	Bytes int // bytes of inputs and outputs that may still be returned to claims
	Read  int // bytes of inputs and outputs that may still be loaded for rendering
	// Stop is called repeatedly during long renderings, and ends them by returning an error. May be nil.
	Stop func() error
	// Memory belongs to the package that renders: it caches values there that it has parsed.
	Memory any

	err       error
	spent     bool // Spend was called
	untilStop int
}

// ErrOverBudget is returned for work that needs more than the budget has left.
var ErrOverBudget = errors.New("the budget for rendering is used up")

// ErrNoRoom is returned for a run that is too large for the rest of its claim's answer. Nothing has changed.
var ErrNoRoom = errors.New("the run does not fit into the answer of this claim")

// workPerStop is the number of units of work between two calls of Stop: some milliseconds.
const workPerStop = 1 << 16

// Spend subtracts work from the budget. Once it has returned an error (ErrOverBudget, or that of Stop), every later
// call returns the same error.
func (b *Budget) Spend(work int) error {
	if b == nil || b.err != nil {
		return b.Err()
	}
	b.spent = true
	if b.Work -= work; b.Work < 0 {
		b.err = ErrOverBudget
	} else if b.untilStop -= work; b.untilStop <= 0 && b.Stop != nil {
		b.untilStop = workPerStop
		b.err = b.Stop()
	}
	return b.err
}

// Err returns the error with which Spend refuses all further work; nil if there is none.
func (b *Budget) Err() error {
	if b == nil {
		return nil
	}
	return b.err
}

// mayRead reports whether values that are not loaded may still be loaded.
func (b *Budget) mayRead() bool { return b == nil || b.Read > 0 }

// spendBytes subtracts the size of an input or output from the budget. It returns false if the budget for bytes was
// already used up.
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

// untouched reports whether nothing of the budget for work was used since it was made.
func (b *Budget) untouched() bool { return b == nil || !b.spent }
