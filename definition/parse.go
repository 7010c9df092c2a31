package definition

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// Format is how a definition is written.
type Format uint8

const (
	YAML Format = iota // any number of documents; JSON is YAML, too
	JSON               // one document; much faster
)

// FormatOf is the format of a file by its name: JSON for .json, YAML for all else.
func FormatOf(file string) Format {
	if strings.HasSuffix(strings.ToLower(file), ".json") {
		return JSON
	}
	return YAML
}

// Options change what a text says before it is checked.
type Options struct {
	Input      map[string]json.RawMessage // replaces fields of the input, or adds them
	Key        string                     // replaces the key, and is no template
	DefaultKey string                     // the key of a definition that has none; no template either

	// Stop is called repeatedly while expressions are evaluated. If it returns an error, such as that of a caller's
	// context, evaluation ends with that error.
	Stop func() error
}

// callWork bounds the evaluation of all definitions of one call.
const callWork = 4 * submitWork

func newBudget(stop func() error) *kernel.Budget {
	return &kernel.Budget{Work: callWork, Stop: stop}
}

// errCall refuses a definition because the budget of its call is used up.
func errCall() *fault {
	return tooLarge(0, errors.New("the expressions of all definitions in this call take too much work")).
		hinted("submit fewer at once, or let an agent compute it")
}

// Compiler makes plans of definitions. It keeps definitions and expressions that it has compiled, up to a
// bound in bytes. The zero value is ready; it is safe for concurrent use.
type Compiler struct {
	programs programs
	memos    memos
}

var _ kernel.Compiler = (*Compiler)(nil)

// Plan is a definition made ready to run: checked, and with its expressions compiled. It is immutable, and submitted by
// Node.SubmitPlan, or in a transaction of your own by the SubmitTx of store/postgres or store/sqlite.
type Plan = kernel.Plan

// Parse reads the definitions in data, checks them, and evaluates what depends on their input alone.
// There is at least one.
//
// The error is a *perdure.Error: malformed if data is not readable at all, tooLarge if it is over one
// of perdure's bounds, invalid otherwise, with a FieldError for each fault up to 20 of a document.
func Parse(data []byte, format Format, opts Options) ([]*Plan, error) {
	return new(Compiler).Parse(data, format, opts)
}

// FromDefinition is Parse for a job that was built in Go. Its faults have pointers and no lines.
func FromDefinition(d perdure.Definable) (*Plan, error) {
	return new(Compiler).FromDefinition(d)
}

// Parse is the function of that name, with the compiler's memory.
func (c *Compiler) Parse(data []byte, format Format, opts Options) ([]*Plan, error) {
	data = bytes.TrimPrefix(data, byteOrderMark)
	fs := faults{text: text{data}}
	docs, f := read(data, format)
	if f != nil {
		fs.put(f)
		return nil, fs.err()
	}
	if len(docs) == 0 {
		fs.put(malformed(0, "there is no definition in it").hinted("a job has a type and steps: perdure schema describes it"))
		return nil, fs.err()
	}
	plans := make([]*kernel.Plan, 0, len(docs))
	budget := newBudget(opts.Stop)
	for i := range docs {
		if fs.full() {
			break
		}
		plan, found, err := c.plan(&docs[i], fs.text, opts, budget)
		if err != nil {
			return nil, err
		}
		if fs.list = append(fs.list, found...); len(fs.list) == 0 {
			plans = append(plans, plan)
		}
	}
	if err := fs.err(); err != nil {
		return nil, err
	}
	return plans, nil
}

// plan makes the plan of one document, or finds its faults. A non-nil error ended its evaluation early.
func (c *Compiler) plan(doc *node, src text, opts Options, budget *kernel.Budget) (*kernel.Plan, []*fault, error) {
	if budget.Err() != nil {
		return nil, []*fault{errCall()}, nil
	}
	written := common(doc)
	if known := c.memos.of(written); known != nil {
		d := decoder{programs: &c.programs, opts: opts, budget: budget}
		if plan, ok := d.again(doc, known); ok {
			return plan, nil, nil
		}
	}
	d := decoder{faults: faults{text: src}, programs: &c.programs, opts: opts, budget: budget}
	plan := d.decode(doc)
	switch err := budget.Err(); {
	case errors.Is(err, kernel.ErrOverBudget):
		return nil, []*fault{errCall()}, nil
	case err != nil:
		return nil, nil, err
	}
	if len(d.list) == 0 && written != nil {
		d.remember(&c.memos, written, plan)
	}
	return plan, d.list, nil
}

// byteOrderMark may begin a text in UTF-8 and has no column.
var byteOrderMark = []byte("\uFEFF")

// read makes trees of a text, after the checks that both formats need.
func read(data []byte, format Format) ([]node, *fault) {
	if f := acceptable(data); f != nil {
		return nil, f
	}
	if format == JSON {
		n, f := readJSON(data)
		if f != nil {
			return nil, f
		}
		return []node{n}, nil
	}
	return readYAML(data)
}

// acceptable refuses what is too large or no text, before anything looks into it.
func acceptable(data []byte) *fault {
	if len(data) > perdure.MaxDefinitionBytes {
		return tooLarge(perdure.MaxDefinitionBytes, fmt.Errorf("larger than %d MiB", perdure.MaxDefinitionBytes>>20))
	}
	return readable(data)
}

// readable refuses what is not text in UTF-8: other encodings, NUL, control characters.
func readable(data []byte) *fault {
	if bytes.HasPrefix(data, []byte{0xff, 0xfe}) || bytes.HasPrefix(data, []byte{0xfe, 0xff}) {
		return malformed(0, "this is UTF-16").hinted("save it as UTF-8")
	}
	for i := 0; i < len(data); {
		c := data[i]
		if c < utf8.RuneSelf {
			if c < 0x20 && c != '\n' && c != '\t' && c != '\r' || c == 0x7f {
				what := fmt.Sprintf("control character U+%04X", c)
				if c == 0 {
					what = "a NUL byte"
				}
				return malformed(i, "%s: this is not text", what)
			}
			i++
			continue
		}
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 {
			return malformed(i, "byte 0x%02X is not valid UTF-8", c).hinted("save it as UTF-8")
		}
		i += size
	}
	return nil
}

// Compile makes a shape of the text that the store keeps. It was checked before it was stored, so that
// only what would make no plan at all is refused here.
func (c *Compiler) Compile(stored []byte) (*kernel.Shape, error) {
	n, f := readJSON(stored)
	d := decoder{faults: faults{text: text{stored}}, programs: &c.programs, stored: true}
	if f != nil {
		d.put(f)
		return nil, d.err()
	}
	plan := d.decode(&n)
	if err := d.err(); err != nil {
		return nil, err
	}
	return plan.Shape, nil
}

// FromDefinition is the function of that name, with the compiler's memory.
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
