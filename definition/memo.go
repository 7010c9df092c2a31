package definition

import (
	"crypto/sha256"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition/internal/expr"
	"github.com/perdure/perdure/definition/internal/text"
	"github.com/perdure/perdure/internal/kernel"
)

// The jobs of one definition differ only in key, priority, labels, startAt and input. What the rest was compiled to is cached,
// so that only those values are read and checked again.

// memo is what the common part of a definition was compiled to, without a fault.
type memo struct {
	shape *kernel.Shape
	early []evaluatedExpression
	keys  []expr.Pieces // of limits of steps: each is evaluated and checked for each job

	unique    expr.Pieces // the key of unique, evaluated for each job; nil: it is the same for all
	uniqueKey string
	rest      []byte // the canonical text after the values, with the steps in the order of their names

	limits []jobLimit // of the job
}

// evaluatedExpression is an expression that depends on the input alone. It is evaluated for each job, because its errors are
// refusals.
type evaluatedExpression struct {
	expr  *expr.Expression
	truth bool
}

// Bounds of the cache of memos.
const (
	maxMemos     = 1000
	maxMemoBytes = 64 << 20 // of the texts and of what they were compiled to
	maxMemoText  = 1 << 20  // of one document, as it is estimated
)

type memos struct {
	mu      sync.Mutex
	bytes   int              // of all of them, with the keys of byText
	byText  map[string]*memo // by the common part as it was written
	byShape map[kernel.ShapeID]*memo
}

func (m *memos) of(text []byte) *memo {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.byText[string(text)]
}

func (m *memos) ofShape(id kernel.ShapeID) *memo {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.byShape[id]
}

func (m *memos) keep(text []byte, k *memo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byText[string(text)] != nil {
		return // planFromMemo was not possible, or two goroutines have compiled it
	}
	size := len(text) + k.bytes()
	if size > maxMemoBytes {
		return
	}
	if m.byText == nil || len(m.byText) >= maxMemos || m.bytes+size > maxMemoBytes {
		m.byText, m.byShape, m.bytes = map[string]*memo{}, map[kernel.ShapeID]*memo{}, 0
	}
	m.bytes += size
	m.byText[string(text)], m.byShape[k.shape.ID] = k, k
}

// commonText writes what is not a value of the one job, in the order of the text: the key of a memo. It returns nil if that
// is too large to cache, or if the key, the priority or startAt is computed.
func commonText(n *text.Node) []byte {
	if n.Kind != text.Object || int(n.Bytes)+8*int(n.Size) > maxMemoText {
		return nil
	}
	b := make([]byte, 0, 512)
	for i := range n.Keys {
		switch n.Keys[i].Name {
		case "labels", "input":
		case "key", "priority", "startAt":
			if n.Kids[i].Kind == text.String && strings.Contains(n.Kids[i].Text, "${") {
				return nil
			}
		default:
			b = append(text.AppendString(b, n.Keys[i].Name), ':')
			b = append(appendAsIs(b, &n.Kids[i]), ',')
		}
	}
	return b
}

// appendAsIs is text.AppendNode with members in the order of the text.
func appendAsIs(b []byte, n *text.Node) []byte {
	switch n.Kind {
	case text.List:
		b = append(b, '[')
		for i := range n.Kids {
			b = append(appendAsIs(b, &n.Kids[i]), ',')
		}
		return append(b, ']')
	case text.Object:
		b = append(b, '{')
		for i := range n.Kids {
			b = append(text.AppendString(b, n.Keys[i].Name), ':')
			b = append(appendAsIs(b, &n.Kids[i]), ',')
		}
		return append(b, '}')
	}
	return text.AppendNode(b, n)
}

// planFromMemo makes the plan of a job of a known shape. It returns false if there is a fault: decode then reports it.
func (d *decoder) planFromMemo(n *text.Node, k *memo) (*kernel.Plan, bool) {
	allocated := &struct {
		plan kernel.Plan
		def  kernel.Definition
	}{def: *k.shape.Common}
	def := &allocated.def
	d.def, d.accepts = def, k.shape.Accepts
	for i := range n.Keys {
		d.value(n.Keys[i].Name, &n.Kids[i])
	}
	d.submission()
	// Values that are filled in several times may be too large together.
	if len(d.List) > 0 || (1+len(k.early))*len(def.Input) > perdure.MaxPayloadBytes/4 {
		return nil, false
	}
	for _, e := range k.early {
		var err error
		if e.truth {
			_, err = e.expr.Truth(&d.evaluator)
		} else {
			_, err = e.expr.Raw(&d.evaluator)
		}
		if err != nil {
			return nil, false
		}
	}
	for _, key := range k.keys {
		if _, err := d.keyOf(key); err != nil {
			return nil, false
		}
	}
	needs, err := d.jobNeeds(k.limits)
	if err != nil {
		return nil, false
	}
	unique := k.uniqueKey
	if k.unique != nil {
		if unique, err = d.keyOf(k.unique); err != nil {
			return nil, false
		}
	}
	if len(def.Labels) == 0 {
		def.Labels = nil
	}
	var room [1024]byte
	text := append(appendValues(room[:0], def), k.rest...)
	allocated.plan = kernel.Plan{Shape: k.shape, Definition: def, Hash: sha256.Sum256(text), Needs: needs, UniqueKey: unique}
	return &allocated.plan, true
}

// remember caches what the document was compiled to, if plans of further jobs can be made from that.
func (d *decoder) remember(memos *memos, text []byte, plan *kernel.Plan) {
	for i := range plan.Steps {
		s := &plan.Steps[i]
		_, known := builtins[s.Agent]
		if s.Undo != nil && !known {
			_, known = builtins[s.Undo.Agent]
		}
		if known && len(d.evaluated) > 0 || s.Form != kernel.ByAgent {
			return // the values of built-in agents are checked, too
		}
	}
	if d.fitsUnknown {
		return // inputs of steps are checked, too
	}
	memos.keep(text, &memo{shape: plan.Shape, early: d.evaluated, keys: d.limitTexts, unique: d.uniquePieces, uniqueKey: plan.UniqueKey, rest: d.rest, limits: d.jobLimits})
}

// decoders are empty decoders for With. A decoder is large, and no plan refers to it.
var decoders = sync.Pool{New: func() any { return new(decoder) }}

// Values are what the jobs of one definition may differ in.
type Values struct {
	Key      string
	Priority int
	Labels   map[string]string
	Input    json.RawMessage
}

// With makes the plan of another job of the same definition. It is fast, because nothing of the definition is read or
// compiled again.
func (c *Compiler) With(p *kernel.Plan, v Values) (*kernel.Plan, error) {
	n := text.Scalar(text.Object, 0, "")
	if v.Priority != 0 {
		n.Set("priority", text.Scalar(text.Number, 0, strconv.Itoa(v.Priority)))
	}
	if len(v.Labels) > 0 {
		labels := text.Scalar(text.Object, 0, "")
		for name, value := range v.Labels {
			labels.Set(name, text.Scalar(text.String, 0, value))
		}
		n.Set("labels", labels)
	}
	if len(v.Input) > 0 {
		f := text.CheckEncoding(v.Input)
		in := text.Node{}
		if f == nil {
			in, f = text.ReadTransientJSON(v.Input)
		}
		if f != nil {
			return nil, perdure.Refuse(perdure.CodeInvalid, "the input is not JSON: %s", f.Message)
		}
		n.Set("input", in)
	}
	if k := c.memos.ofShape(p.ID); k != nil {
		d := decoders.Get().(*decoder)
		d.programs, d.opts.Key = &c.programs, v.Key
		plan, ok := d.planFromMemo(&n, k)
		*d = decoder{}
		decoders.Put(d)
		if ok {
			return plan, nil
		}
	}
	def := *p.Definition
	def.Key, def.Priority, def.Labels, def.StartAt, def.Input = v.Key, v.Priority, v.Labels, time.Time{}, v.Input
	return c.FromDefinition(&def)
}
