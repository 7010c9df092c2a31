package definition

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition/internal/text"
	"github.com/perdure/perdure/internal/kernel"
)

// CheckTemplate checks a definition that is stored for later submissions, and returns it as JSON with sorted fields. What
// depends on the input is checked with each submission, because the input comes with it: expressions are compiled, and
// their references checked, but they are not evaluated. Faults are those of Parse.
func (c *Compiler) CheckTemplate(body []byte, format Format, stop func() error) ([]byte, error) {
	body = bytes.TrimPrefix(body, text.ByteOrderMark)
	fs := text.Faults{Source: text.NewSource(body)}
	docs, f := read(body, format)
	switch {
	case f != nil:
		fs.Put(f)
		return nil, fs.Err()
	case len(docs) != 1:
		return nil, perdure.Refuse(perdure.CodeMalformed, "one definition per call, not %d", len(docs))
	}
	budget := newBudget(stop)
	d := decoder{Faults: fs, programs: &c.programs, budget: budget, template: true}
	d.decode(&docs[0])
	if err := budget.Err(); err != nil {
		return nil, err
	}
	if err := d.Err(); err != nil {
		return nil, err
	}
	out := text.AppendNode(nil, &docs[0])
	if len(out) > perdure.MaxStoredBytes {
		e := perdure.Refuse(perdure.CodeTooLarge, "the definition has %d bytes as JSON; at most %d are stored", len(out), perdure.MaxStoredBytes)
		e.Hint = "submit it as it is, or move large values to the input"
		return nil, e
	}
	return out, nil
}

// Reference returns the name of the stored definition that a submission names in place of a definition, and its own values;
// ok is false if it names none.
func Reference(body []byte, format Format) (ref string, values json.RawMessage, ok bool, err error) {
	if !bytes.Contains(body, []byte("definition")) { // nearly all submissions
		return "", nil, false, nil
	}
	body = bytes.TrimPrefix(body, text.ByteOrderMark)
	docs, f := read(body, format)
	if f != nil || len(docs) != 1 || docs[0].Kind != text.Object {
		return "", nil, false, nil // Parse reports the fault
	}
	n := docs[0].Get("definition")
	if n == nil {
		return "", nil, false, nil
	}
	d := decoder{Faults: text.Faults{Source: text.NewSource(body)}}
	p := (*text.Pointer)(nil).Member("definition")
	if n.Kind != text.String {
		d.mismatch(n, p, "the name of a stored definition").WithHint("definition: order, or order@7; a definition itself has type and steps at its top")
	}
	for _, k := range docs[0].Keys {
		if k.Name != "definition" && !isJobValue(k.Name) {
			d.unknown(slices.Concat(referenceFields, valueFields), "a submission of a stored definition", k, (*text.Pointer)(nil).Member(k.Name))
		}
	}
	if err := d.Err(); err != nil {
		return "", nil, false, err
	}
	own := docs[0].Only(isJobValue)
	return n.Text, text.AppendNode(nil, &own), true, nil
}

var referenceFields = []field{{name: "definition"}}

// ParseStored makes the plan of a stored definition, in JSON, with the values of one job: its key, priority, labels, startAt and
// input, which replace those of the definition.
func (c *Compiler) ParseStored(base, values []byte, opts Options) (*kernel.Plan, error) {
	b := &batch{c: c, budget: newBudget(opts.Stop), opts: opts}
	b.readBase(base)
	return b.planMerged(values)
}
