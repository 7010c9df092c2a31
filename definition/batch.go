package definition

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"

	"github.com/perdure/perdure/definition/internal/text"
	"github.com/perdure/perdure/internal/kernel"
)

// isJobValue reports whether a field is a value of the one job, which a job of a batch may have for itself.
func isJobValue(name string) bool {
	return name == "key" || name == "priority" || name == "labels" || name == "startAt" || name == "input"
}

var valueFields = slices.DeleteFunc(slices.Clone(jobFields), func(f field) bool { return !isJobValue(f.name) })

// ParseAll makes a plan of each job, or returns why not: of the plan and the error at an index, one is nil. Without a base,
// each job is a definition in JSON. With a base, which is a definition in JSON, each job is an object of the values that
// it has in place of those of the base. A base that cannot be read is the error of every job.
//
// Errors are those of Parse. They have pointers into the definition of the job, and no lines, because the caller has not
// seen that definition as one text. stop is as in Options, and may be nil.
func (c *Compiler) ParseAll(base []byte, jobs []json.RawMessage, stop func() error) ([]*kernel.Plan, []error) {
	plans, errs := make([]*kernel.Plan, len(jobs)), make([]error, len(jobs))
	b := &batch{c: c, budget: newBudget(stop)}
	plan := b.planStandalone
	if len(base) > 0 {
		b.readBase(base)
		plan = b.planMerged
	}
	for i, job := range jobs {
		plans[i], errs[i] = plan(job)
	}
	return plans, errs
}

// batch makes the plans of many jobs. The definition that they have in common, the base, is read once.
type batch struct {
	c      *Compiler
	budget *kernel.Budget
	opts   Options

	base   text.Node
	err    error     // why it cannot be read
	values text.Node // those of the base that a job may replace

	commonText   []byte // of the base; nil: there is no memo of it
	memo         *memo
	memoSearched bool

	// Used for one job after the other. No plan keeps a reference to them.
	reader text.JSONReader
	job    text.Node // the values of the job
	d      decoder
}

const definitionIs = "a definition is an object with a type and steps"

// planStandalone makes the plan of a job without a base.
func (b *batch) planStandalone(job json.RawMessage) (*kernel.Plan, error) {
	doc, f := b.object(job, definitionIs)
	if f != nil {
		return nil, refusal(f)
	}
	plan, found, err := b.c.plan(&doc, text.Source{}, Options{}, b.budget)
	return plan, cmp.Or(err, refusal(found...))
}

// readBase reads the base.
func (b *batch) readBase(base []byte) {
	n, f := b.object(base, definitionIs)
	if f != nil {
		b.err = refusal(f)
		return
	}
	b.base, b.values = n, n.Only(isJobValue)
	bare := n.Only(func(name string) bool { return !isJobValue(name) })
	b.commonText = commonText(&bare)
	b.memo = b.c.memos.of(b.commonText)
}

// planMerged makes the plan of the base with the values of one job.
func (b *batch) planMerged(values json.RawMessage) (*kernel.Plan, error) {
	if b.err != nil {
		return nil, b.err
	}
	if found := b.mergeValues(values); len(found) > 0 {
		return nil, refusal(found...)
	}
	if b.memo != nil && b.budget.Err() == nil {
		b.d = decoder{programs: &b.c.programs, opts: b.opts, budget: b.budget}
		if plan, ok := b.d.planFromMemo(&b.job, b.memo); ok {
			return plan, nil
		}
	}
	return b.planWhole()
}

// mergeValues sets the values of a job in place of those of the base. They get the places of those, so that faults have an
// order.
func (b *batch) mergeValues(values json.RawMessage) []*text.Fault {
	given, f := b.object(values, "the values of a job are an object")
	if f != nil {
		return []*text.Fault{f}
	}
	own := &b.job
	own.Keys, own.Kids = append(own.Keys[:0], b.values.Keys...), append(own.Kids[:0], b.values.Kids...)
	var faults decoder
	for i, k := range given.Keys {
		if !isJobValue(k.Name) {
			faults.unknown(valueFields, "the values of a job", k, (*text.Pointer)(nil).Member(k.Name))
			continue
		}
		at := b.base.At
		if base := b.values.Get(k.Name); base != nil {
			at = base.At
		}
		given.Kids[i].Move(at)
		own.Set(k.Name, given.Kids[i])
	}
	return faults.List
}

// planWhole makes the plan of a job without a memo. After the first job without a fault it looks for the memo of the base.
func (b *batch) planWhole() (*kernel.Plan, error) {
	doc := b.base.Merged(&b.job)
	if err := new(text.Tally).Add(&doc, 0); err != nil {
		return nil, refusal(text.TooLarge(0, err))
	}
	plan, found, err := b.c.plan(&doc, text.Source{}, b.opts, b.budget)
	if err = cmp.Or(err, refusal(found...)); err != nil {
		return nil, err
	}
	if !b.memoSearched && b.commonText != nil {
		b.findMemo(&doc)
	}
	return plan, nil
}

// findMemo finds the memo of the base, after a job of it was compiled without a fault. A job whose key, priority or startAt is
// computed leaves no memo. Then the base is compiled once more without them.
func (b *batch) findMemo(doc *text.Node) {
	b.memoSearched = true
	if commonText(doc) == nil {
		bare := doc.Only(func(name string) bool { return name != "key" && name != "priority" && name != "startAt" })
		_, _, _ = b.c.plan(&bare, text.Source{}, Options{}, b.budget)
	}
	b.memo = b.c.memos.of(b.commonText)
}

// object reads one object in JSON. what is the message if it is another kind of value.
func (b *batch) object(data []byte, what string) (text.Node, *text.Fault) {
	data = bytes.TrimPrefix(data, text.ByteOrderMark)
	if f := text.Check(data); f != nil {
		return text.Node{}, f
	}
	b.reader.Reset(data)
	n, f := b.reader.Document()
	if f == nil && n.Kind != text.Object {
		f = text.Invalid(0, "%s, not %s", what, n.Kind)
	}
	return n, f
}

// refusal returns faults as an error without lines, or nil if there are none.
func refusal(found ...*text.Fault) error {
	fs := text.Faults{List: found}
	return withoutLines(fs.Err())
}
