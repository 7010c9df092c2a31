package definition

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition/internal/expr"
	"github.com/perdure/perdure/definition/internal/text"
	"github.com/perdure/perdure/internal/kernel"
)

// Format is how a definition is written.
type Format uint8

const (
	YAML Format = iota // any number of documents; accepts JSON as well
	JSON               // one document; much faster
)

// FormatOf returns the format of a file by its name: JSON for .json, YAML for all others.
func FormatOf(file string) Format {
	if strings.HasSuffix(strings.ToLower(file), ".json") {
		return JSON
	}
	return YAML
}

// Options change the values of a definition before it is checked.
type Options struct {
	Input      map[string]json.RawMessage // replaces fields of the input, or adds them
	Key        string                     // replaces the key, and is no template
	DefaultKey string                     // the key of a definition that has none; no template either

	// Stop is called repeatedly while expressions are evaluated. If it returns an error, such as that of a caller's
	// context, evaluation ends with that error.
	Stop func() error
}

// callWork bounds the evaluation of all definitions of one call.
const callWork = 4 * expr.SubmitWork

func newBudget(stop func() error) *kernel.Budget {
	return &kernel.Budget{Work: callWork, Stop: stop}
}

// errCallBudget is the fault of a definition if the budget of its call is used up.
func errCallBudget() *text.Fault {
	return text.TooLarge(0, errors.New("the expressions of all definitions in this call take too much work")).
		WithHint("submit fewer at once, or let an agent compute it")
}

// Compiler makes plans of definitions. It caches definitions and expressions that it has compiled, up to a bound in bytes.
// The zero value is ready to use, and it is safe for concurrent use.
type Compiler struct {
	programs expr.Programs
	memos    memos
}

var _ kernel.Compiler = (*Compiler)(nil)

// Plan is a definition that was checked, with its expressions compiled. It is immutable. Node.SubmitPlan submits it, and so
// does SubmitTx of store/postgres or store/sqlite in a transaction of your own.
type Plan = kernel.Plan

// Parse reads the definitions in data, checks them, and evaluates what depends on their input alone. Without an error there
// is at least one plan.
//
// The error is a *perdure.Error. Its code is malformed if data cannot be read, tooLarge if it exceeds one of the bounds of
// package perdure, and invalid otherwise. It has a FieldError for each fault, and at most 20 of them.
func Parse(data []byte, format Format, opts Options) ([]*Plan, error) {
	return new(Compiler).Parse(data, format, opts)
}

// FromDefinition is Parse for a job that was built in Go. Its faults have pointers and no lines.
func FromDefinition(d perdure.Definable) (*Plan, error) {
	return new(Compiler).FromDefinition(d)
}

// Parse is like the function Parse, and uses the caches of the compiler.
func (c *Compiler) Parse(data []byte, format Format, opts Options) ([]*Plan, error) {
	data = bytes.TrimPrefix(data, text.ByteOrderMark)
	fs := text.Faults{Source: text.NewSource(data)}
	docs, f := read(data, format)
	if f != nil {
		fs.Put(f)
		return nil, fs.Err()
	}
	if len(docs) == 0 {
		fs.Put(text.Malformed(0, "there is no definition in it").WithHint("a job has a type and steps: perdure schema describes it"))
		return nil, fs.Err()
	}
	plans := make([]*kernel.Plan, 0, len(docs))
	budget := newBudget(opts.Stop)
	for i := range docs {
		if fs.Full() {
			break
		}
		plan, found, err := c.plan(&docs[i], fs.Source, opts, budget)
		if err != nil {
			return nil, err
		}
		if fs.List = append(fs.List, found...); len(fs.List) == 0 {
			plans = append(plans, plan)
		}
	}
	if err := fs.Err(); err != nil {
		return nil, err
	}
	return plans, nil
}

// plan makes the plan of one document, or returns its faults. A non-nil error ended the evaluation.
func (c *Compiler) plan(doc *text.Node, src text.Source, opts Options, budget *kernel.Budget) (*kernel.Plan, []*text.Fault, error) {
	if budget.Err() != nil {
		return nil, []*text.Fault{errCallBudget()}, nil
	}
	written := commonText(doc)
	if known := c.memos.of(written); known != nil {
		d := decoder{programs: &c.programs, opts: opts, budget: budget}
		if plan, ok := d.planFromMemo(doc, known); ok {
			return plan, nil, nil
		}
	}
	d := decoder{Faults: text.Faults{Source: src}, programs: &c.programs, opts: opts, budget: budget}
	plan := d.decode(doc)
	switch err := budget.Err(); {
	case errors.Is(err, kernel.ErrOverBudget):
		return nil, []*text.Fault{errCallBudget()}, nil
	case err != nil:
		return nil, nil, err
	}
	if len(d.List) == 0 && written != nil {
		d.remember(&c.memos, written, plan)
	}
	return plan, d.List, nil
}

// read reads the documents of a text.
func read(data []byte, format Format) ([]text.Node, *text.Fault) {
	if f := text.Check(data); f != nil {
		return nil, f
	}
	if format == JSON {
		n, f := text.ReadJSON(data)
		if f != nil {
			return nil, f
		}
		return []text.Node{n}, nil
	}
	return text.ReadYAML(data)
}

// ToJSON returns the one document of a text as compact JSON, with its fields in their order. It does not check what the
// document means. The error is as that of Parse.
func ToJSON(data []byte, format Format) (json.RawMessage, error) {
	data = bytes.TrimPrefix(data, text.ByteOrderMark)
	fs := text.Faults{Source: text.NewSource(data)}
	docs, f := read(data, format)
	switch {
	case f != nil:
		fs.Put(f)
	case len(docs) != 1:
		fs.Put(text.Malformed(0, "it has %d documents; one is expected", len(docs)))
	default:
		return text.AppendAsWritten(make([]byte, 0, len(data)), &docs[0]), nil
	}
	return nil, fs.Err()
}

// Compile makes a shape of the canonical text that a store keeps. That text was checked before it was stored, so that only
// what makes a shape impossible is refused here.
func (c *Compiler) Compile(stored []byte) (*kernel.Shape, error) {
	n, f := text.ReadJSON(stored)
	d := decoder{Faults: text.Faults{Source: text.NewSource(stored)}, programs: &c.programs, stored: true}
	if f != nil {
		d.Put(f)
		return nil, d.Err()
	}
	plan := d.decode(&n)
	if err := d.Err(); err != nil {
		return nil, err
	}
	return plan.Shape, nil
}

// Children implements kernel.Compiler.
func (c *Compiler) Children(definition []byte, values []json.RawMessage) ([]*kernel.Plan, []error) {
	return c.ParseAll(definition, values, nil)
}

// FromDefinition is like the function FromDefinition, and uses the caches of the compiler.
func (c *Compiler) FromDefinition(d perdure.Definable) (*Plan, error) {
	if d == nil {
		return nil, perdure.Refuse(perdure.CodeInvalid, "there is no definition: it is nil")
	}
	body, err := d.Define()
	if err != nil {
		return nil, err
	}
	plans, err := c.Parse(body, JSON, Options{})
	if err != nil {
		return nil, withoutLines(err)
	}
	return plans[0], nil
}
