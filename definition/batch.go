package definition

import (
	"bytes"
	"encoding/json"
	"slices"

	"perdure"
)

// valueFields are the fields that a job of a batch may have of its own.
var valueFields = slices.DeleteFunc(slices.Clone(jobFields), func(f field) bool {
	return !slices.Contains([]string{"key", "priority", "labels", "input"}, f.name)
})

// ParseAll makes a plan of each of jobs, or says why not: of two at the same index, one is nil. Each is a
// definition in JSON; or, where there is a base, the values of one job of that definition, which replace
// those that it has. A base that cannot be read is an error of every job.
//
// Errors are those of Parse, with pointers into the one definition and no lines: as a whole text nobody
// has seen it.
func (c *Compiler) ParseAll(base []byte, jobs []json.RawMessage) ([]*perdure.Plan, []error) {
	plans, errs := make([]*perdure.Plan, len(jobs)), make([]error, len(jobs))
	plan := c.unseen
	if len(base) > 0 {
		plan = c.batch(base).plan
	}
	for i, job := range jobs {
		plans[i], errs[i] = plan(job)
	}
	return plans, errs
}

// unseen is Parse for one definition in JSON, without lines.
func (c *Compiler) unseen(body json.RawMessage) (*perdure.Plan, error) {
	plans, err := c.Parse(body, JSON, Options{})
	if err != nil {
		return nil, unplaced(err)
	}
	return plans[0], nil
}

// batch makes the plans of many jobs of one definition, which is read once.
type batch struct {
	c    *Compiler
	base node
	err  error // why the base cannot be read

	common  []byte // of the base; nil: nothing is remembered of it
	known   *memo
	learned bool
}

func (c *Compiler) batch(text []byte) *batch {
	b := &batch{c: c}
	base, f := readObject(text, "a definition is an object with a type and steps")
	if f != nil {
		b.err = refusal(f)
		return b
	}
	b.base = base
	bare := base.without("key", "priority", "labels", "input")
	b.common = common(&bare)
	b.known = c.memos.of(b.common)
	return b
}

// plan makes the plan of the job that has these values.
func (b *batch) plan(values json.RawMessage) (*perdure.Plan, error) {
	if b.err != nil {
		return nil, b.err
	}
	doc, found := b.merge(values)
	if len(found) > 0 {
		return nil, refusal(found...)
	}
	if b.known != nil {
		d := decoder{cache: &b.c.cache}
		if plan, ok := d.again(&doc, b.known); ok {
			return plan, nil
		}
	}
	plan, found := b.c.plan(&doc, text{}, Options{})
	if len(found) > 0 {
		return nil, refusal(found...)
	}
	b.learn(&doc)
	return plan, nil
}

// merge puts the values of a job in place of the base's. They stand where those stood, so that faults keep
// an order.
func (b *batch) merge(values json.RawMessage) (node, []*fault) {
	own, f := readObject(values, "the values of a job are an object")
	if f != nil {
		return node{}, []*fault{f}
	}
	doc := b.base
	doc.keys = append(make([]key, 0, len(doc.keys)+len(own.keys)), doc.keys...)
	doc.kids = append(make([]node, 0, len(doc.kids)+len(own.kids)), doc.kids...)
	d := decoder{}
	for i, k := range own.keys {
		if !slices.ContainsFunc(valueFields, func(f field) bool { return f.name == k.name }) {
			d.unknown(valueFields, "the values of a job", k, (*pointer)(nil).member(k.name))
			continue
		}
		kid, at := own.kids[i], doc.at
		if there := doc.get(k.name); there != nil {
			at = there.at
		}
		kid.move(at)
		doc.set(k.name, kid)
	}
	doc.adopt()
	if err := new(tally).add(&doc, 0); err != nil {
		d.put(tooLarge(0, err))
	}
	return doc, d.list
}

// learn looks what is known of the base after a first job of it was found without fault. Of one whose key or
// priority is computed nothing was remembered: it is made once more without them.
func (b *batch) learn(doc *node) {
	if b.learned || b.common == nil {
		return
	}
	b.learned = true
	if common(doc) == nil {
		bare := doc.without("key", "priority")
		b.c.plan(&bare, text{}, Options{})
	}
	b.known = b.c.memos.of(b.common)
}

// readObject reads one object in JSON; what says that it has to be one.
func readObject(data []byte, what string) (node, *fault) {
	docs, f := read(bytes.TrimPrefix(data, byteOrderMark), JSON)
	if f != nil {
		return node{}, f
	}
	if n := docs[0]; n.kind != kindObject {
		return n, invalid(0, "%s, not %s", what, n.kind)
	}
	return docs[0], nil
}

// without is an object without the members of these names.
func (n *node) without(names ...string) node {
	out := *n
	out.keys, out.kids = nil, nil
	for i, k := range n.keys {
		if !slices.Contains(names, k.name) {
			out.keys, out.kids = append(out.keys, k), append(out.kids, n.kids[i])
		}
	}
	out.adopt()
	return out
}

// refusal is what faults amount to in a text that nobody has seen as it was read.
func refusal(found ...*fault) error {
	fs := faults{list: found}
	return unplaced(fs.err())
}
