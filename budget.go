package perdure

import "errors"

// Budget bounds what rendering may take of a node: all inputs and conditions of one transaction share one, and so does
// all that one call submits. It belongs to one goroutine. A nil *Budget bounds nothing.
type Budget struct {
	Work  int // left, in the units of the package that renders: values, and bytes by eights, that are gone through
	Bytes int // of inputs and outputs handed out, left
	Read  int // bytes of inputs and outputs that may still be loaded for it
	// Stop is asked now and then during long renderings: an error ends them. Nil: nothing does.
	Stop func() error
	// Memory belongs to the package that renders: values that it has read, for as long as the budget lasts.
	Memory any

	err        error
	untilAsked int
}

// ErrOverBudget is the error of what takes more than is left.
var ErrOverBudget = errors.New("the budget for rendering is used up")

// ErrNoRoom is the error of a run that is too large for what is left of its claim's answer. Nothing has changed.
var ErrNoRoom = errors.New("the run does not fit into the answer of this claim")

// askEvery is after how many units of work Stop is asked: some milliseconds.
const askEvery = 1 << 16

// Spend takes work off the budget. Once it returns an error (ErrOverBudget, or that of Stop), every later call returns the
// same one.
func (b *Budget) Spend(work int) error {
	if b == nil || b.err != nil {
		return b.Err()
	}
	if b.Work -= work; b.Work < 0 {
		b.err = ErrOverBudget
	} else if b.untilAsked -= work; b.untilAsked <= 0 && b.Stop != nil {
		b.untilAsked = askEvery
		b.err = b.Stop()
	}
	return b.err
}

// Err is why no more work can be taken off; nil if some can.
func (b *Budget) Err() error {
	if b == nil {
		return nil
	}
	return b.err
}

// mayRead says whether values that are not loaded can still be.
func (b *Budget) mayRead() bool { return b == nil || b.Read > 0 }

// hand takes the size of an input or output off the budget; false if nothing was left for it.
func (b *Budget) hand(bytes int) bool {
	if b == nil {
		return true
	}
	if b.Bytes <= 0 {
		return false
	}
	b.Bytes -= bytes
	return true
}
