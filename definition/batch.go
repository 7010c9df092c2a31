package definition

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"

	"github.com/perdure/perdure/internal/kernel"
)

// isValue says that a job of a batch may have a field of its own.
func isValue(name string) bool {
	return name == "key" || name == "priority" || name == "labels" || name == "input"
}

var valueFields = slices.DeleteFunc(slices.Clone(jobFields), func(f field) bool { return !isValue(f.name) })

// ParseAll makes a plan of each of jobs, or says why not: of two at the same index, one is nil. Each is a
// definition in JSON; or, where there is a base, the values of one job of that definition, which replace
// those that it has. A base that cannot be read is an error of every job.
//
// Errors are those of Parse, with pointers into the one definition and no lines: as a whole text nobody
// has seen it. stop is as in Options, and may be nil.
func (c *Compiler) ParseAll(base []byte, jobs []json.RawMessage, stop func() error) ([]*kernel.Plan, []error) {
	plans, errs := make([]*kernel.Plan, len(jobs)), make([]error, len(jobs))
	b := &batch{c: c, budget: newBudget(stop)}
	plan := b.listed
	if len(base) > 0 {
		b.take(base)
		plan = b.merged
	}
	for i, job := range jobs {
		plans[i], errs[i] = plan(job)
	}
	return plans, errs
}

// batch makes the plans of many jobs. A definition that they have in common is read once.
type batch struct {
	c      *Compiler
	budget *kernel.Budget

	base   node
	err    error // why it cannot be read
	values node  // those of the base that a job may replace

	common  []byte // of the base; nil: nothing is remembered of it
	known   *memo
	learned bool

	// Used for one job after the other: no plan keeps anything of them.
	reader jsonReader
	own    node // the values of the job
	d      decoder
}

const definitionIs = "a definition is an object with a type and steps"

// listed makes the plan of a job that is written out.
func (b *batch) listed(job json.RawMessage) (*kernel.Plan, error) {
	doc, f := b.object(job, definitionIs)
	if f != nil {
		return nil, refusal(f)
	}
	plan, found, err := b.c.plan(&doc, text{}, Options{}, b.budget)
	return plan, cmp.Or(err, refusal(found...))
}

// take reads the definition that the jobs have in common.
func (b *batch) take(base []byte) {
	n, f := b.object(base, definitionIs)
	if f != nil {
		b.err = refusal(f)
		return
	}
	b.base, b.values = n, n.only(isValue)
	bare := n.only(func(name string) bool { return !isValue(name) })
	b.common = common(&bare)
	b.known = b.c.memos.of(b.common)
}

// merged makes the plan of the job that has these values.
func (b *batch) merged(values json.RawMessage) (*kernel.Plan, error) {
	if b.err != nil {
		return nil, b.err
	}
	if found := b.merge(values); len(found) > 0 {
		return nil, refusal(found...)
	}
	if b.known != nil && b.budget.Err() == nil {
		b.d = decoder{programs: &b.c.programs, budget: b.budget}
		if plan, ok := b.d.again(&b.own, b.known); ok {
			return plan, nil
		}
	}
	return b.whole()
}

// merge puts the values of a job in place of the base's. They stand where those stood, so that faults keep
// an order.
func (b *batch) merge(values json.RawMessage) []*fault {
	given, f := b.object(values, "the values of a job are an object")
	if f != nil {
		return []*fault{f}
	}
	own := &b.own
	own.keys, own.kids = append(own.keys[:0], b.values.keys...), append(own.kids[:0], b.values.kids...)
	var wrong decoder
	for i, k := range given.keys {
		if !isValue(k.name) {
			wrong.unknown(valueFields, "the values of a job", k, (*pointer)(nil).member(k.name))
			continue
		}
		at := b.base.at
		if there := b.values.get(k.name); there != nil {
			at = there.at
		}
		given.kids[i].move(at)
		own.set(k.name, given.kids[i])
	}
	return wrong.list
}

// whole makes the plan of a job with nothing known, and looks what is known after the first of which that
// can be said.
func (b *batch) whole() (*kernel.Plan, error) {
	doc := b.base.with(&b.own)
	if err := new(tally).add(&doc, 0); err != nil {
		return nil, refusal(tooLarge(0, err))
	}
	plan, found, err := b.c.plan(&doc, text{}, Options{}, b.budget)
	if err = cmp.Or(err, refusal(found...)); err != nil {
		return nil, err
	}
	if !b.learned && b.common != nil {
		b.learn(&doc)
	}
	return plan, nil
}

// learn finds what is known of the base once a job of it was found without fault. Nothing was remembered of
// one whose key or priority is computed: it is made once more without them.
func (b *batch) learn(doc *node) {
	b.learned = true
	if common(doc) == nil {
		bare := doc.only(func(name string) bool { return name != "key" && name != "priority" })
		_, _, _ = b.c.plan(&bare, text{}, Options{}, b.budget)
	}
	b.known = b.c.memos.of(b.common)
}

// object reads one object in JSON; what says that it has to be one.
func (b *batch) object(data []byte, what string) (node, *fault) {
	data = bytes.TrimPrefix(data, byteOrderMark)
	if f := acceptable(data); f != nil {
		return node{}, f
	}
	b.reader = jsonReader{src: data, keys: b.reader.keys[:0], kids: b.reader.kids[:0]}
	n, f := b.reader.document()
	if f == nil && n.kind != kindObject {
		f = invalid(0, "%s, not %s", what, n.kind)
	}
	return n, f
}

// only is an object with those members alone that keep says.
func (n *node) only(keep func(name string) bool) node {
	out := *n
	out.keys, out.kids = nil, nil
	for i, k := range n.keys {
		if keep(k.name) {
			out.keys, out.kids = append(out.keys, k), append(out.kids, n.kids[i])
		}
	}
	out.adopt()
	return out
}

// with is an object with the members of another in place of its own, or beside them.
func (n *node) with(others *node) node {
	out := *n
	out.keys, out.kids = slices.Clone(n.keys), slices.Clone(n.kids)
	for i, k := range others.keys {
		out.set(k.name, others.kids[i])
	}
	out.adopt()
	return out
}

// refusal is what faults amount to in a text that nobody has seen as it was read; nil if there are none.
func refusal(found ...*fault) error {
	fs := faults{list: found}
	return withoutLines(fs.err())
}
