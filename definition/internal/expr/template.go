package expr

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition/internal/text"
	"github.com/perdure/perdure/internal/kernel"
)

// Template is a compiled `with`: its canonical JSON, cut where values are filled in.
type Template struct {
	parts []part
	tail  []byte // after the last part; the whole text if there is none
	refs  []int  // steps whose outputs it reads

	secrets []kernel.SecretText
}

// part is a piece of JSON text and the value that follows it.
type part struct {
	before  []byte
	expr    *Expression
	inText  bool // the value goes into a longer string
	pointer *text.Pointer
}

// Refs are the indexes of the steps whose outputs it reads.
func (t *Template) Refs() []int { return t.refs }

// Secrets are the strings in which it refers to secrets.
func (t *Template) Secrets() []kernel.SecretText { return t.secrets }

// Render fills in the values. References to secrets stay as they are. An error names the field and what is missing in it.
func (t *Template) Render(s *kernel.Scope) (json.RawMessage, error) {
	if len(t.parts) == 0 {
		return t.tail, nil
	}
	v := &Evaluator{scope: s, work: renderWork}
	b := make([]byte, 0, 2*len(t.tail)+64*len(t.parts))
	for i := range t.parts {
		p := &t.parts[i]
		b = append(b, p.before...)
		var err error
		if b, err = p.fill(b, v); err != nil {
			return nil, fmt.Errorf("%s: %w", p.pointer, err)
		}
		if len(b) > perdure.MaxPayloadBytes {
			return nil, perdure.Refuse(perdure.CodeTooLarge, "with its values filled in the input is larger than %d bytes", perdure.MaxPayloadBytes)
		}
	}
	return append(b, t.tail...), nil
}

// fill appends the value of one part.
func (p *part) fill(b []byte, v *Evaluator) ([]byte, error) {
	raw, err := p.expr.Raw(v)
	switch {
	case err != nil:
		return b, err
	case !p.inText:
		return append(b, raw...), nil
	}
	return appendInside(b, raw), nil
}

// appendInside appends a value within a JSON string: text as it is, other values as compact JSON.
func appendInside(b []byte, raw json.RawMessage) []byte {
	if raw[0] == '"' {
		return append(b, raw[1:len(raw)-1]...) // escaped already
	}
	return text.AppendEscaped(b, string(raw))
}

// Condition is a compiled `when`.
type Condition struct {
	expr *Expression
	refs []int
}

// Eval reports whether the step is to be done.
func (c *Condition) Eval(s *kernel.Scope) (bool, error) {
	yes, err := c.expr.Truth(&Evaluator{scope: s, work: renderWork})
	if err != nil {
		return false, fmt.Errorf("when: %w", err)
	}
	return yes, nil
}

// Refs are the indexes of the steps whose outputs it reads.
func (c *Condition) Refs() []int { return c.refs }

// NewCondition makes a condition of a compiled expression that reads the outputs of the steps with those indexes.
func NewCondition(c *Compiled, refs []int) *Condition { return &Condition{expr: c.Expr, refs: refs} }

// ConditionOf returns the expression of a `when`, which may be in ${ }.
func ConditionOf(when string) Span {
	src := strings.TrimLeft(when, blanks)
	at := len(when) - len(src)
	src = strings.TrimRight(src, blanks)
	if strings.HasPrefix(src, "${") && closing(src, 2) == len(src)-1 {
		inner := strings.TrimLeft(src[2:len(src)-1], blanks)
		at += len(src) - 1 - len(inner)
		src = strings.TrimRight(inner, blanks)
	}
	return Span{Expr: src, At: at}
}

const blanks = " \t\r\n"

// Span is a piece of a string with ${…} in it: text, or the source of an expression.
type Span struct {
	text string // with ${ in place of $${
	Expr string
	At   int // byte offset of the expression in the string
	hole bool
}

// split cuts a string at its ${…}. It returns nil if there is neither ${ nor $${.
func split(s string) ([]Span, *Fault) {
	if !strings.Contains(s, "${") {
		return nil, nil
	}
	var spans []Span
	var text strings.Builder
	for i := 0; i < len(s); {
		switch {
		case strings.HasPrefix(s[i:], "$${"):
			text.WriteString("${")
			i += 3
		case strings.HasPrefix(s[i:], "${"):
			end := closing(s, i+2)
			if end < 0 {
				return nil, &Fault{At: i, Message: "this ${ is never closed", Hint: "a literal ${ is written $${"}
			}
			if text.Len() > 0 {
				spans = append(spans, Span{text: text.String()})
				text.Reset()
			}
			spans = append(spans, Span{Expr: s[i+2 : end], At: i + 2, hole: true})
			i = end + 1
		default:
			text.WriteByte(s[i])
			i++
		}
	}
	if text.Len() > 0 {
		spans = append(spans, Span{text: text.String()})
	}
	return spans, nil
}

// closing returns the index of the } that ends the expression at i, or -1. It skips nested braces and quoted text.
func closing(s string, i int) int {
	depth := 0
	for ; i < len(s); i++ {
		switch c := s[i]; c {
		case '{':
			depth++
		case '}':
			if depth == 0 {
				return i
			}
			depth--
		case '"', '\'', '`':
			for i++; i < len(s) && s[i] != c; i++ {
				if s[i] == '\\' && c != '`' {
					i++
				}
			}
		}
	}
	return -1
}

// templater compiles one template while it writes its JSON.
type templater struct {
	faults  *text.Faults
	env     Environment
	out     Template
	text    []byte // since the last part
	strings Templates
	size    int           // of the values that are known already
	base    *text.Pointer // of the template
	secrets int           // references to secrets so far
}

// Templates are the strings of a `with` that hold expressions. So each can be evaluated for itself, to check the input of
// an agent.
type Templates map[*text.Node]Pieces

// Pieces are a string that holds expressions, cut at them.
type Pieces []piece

// Early reports whether all values are known when a job is submitted.
func (ps Pieces) Early() bool {
	return !slices.ContainsFunc(ps, func(p piece) bool { return p.secret || p.expr != nil && !p.expr.Early })
}

// HasSecret reports whether the string refers to a secret.
func (ps Pieces) HasSecret() bool {
	return slices.ContainsFunc(ps, func(p piece) bool { return p.secret })
}

// piece is some text, or the expression whose value stands in its place.
type piece struct {
	text   string
	expr   *Expression
	secret bool // text has references to secrets, which are not known before an agent resolves them
}

// Environment compiles the expressions of a template, and knows what those at this place may refer to.
type Environment interface {
	// Compile compiles the expression s of the text of n, and returns its value if that is known already. If there is a
	// fault, it records it and returns nil.
	Compile(n *text.Node, p *text.Pointer, s Span) (c *Compiled, known json.RawMessage)
	// Secret returns why the string at a pointer into the template may not refer to secrets; nil if it may. n is the number
	// of references in the template, with those of the string.
	Secret(pointer string, n int) *Fault
	// Steps adds the indexes of the steps whose outputs c reads to steps.
	Steps(steps []int, c *Compiled) []int
}

// CompileTemplate compiles n, the value of p. It records the faults, and its results are of use only if there are none.
// Size is the least size of the JSON with its values filled in.
func CompileTemplate(n *text.Node, p *text.Pointer, fs *text.Faults, env Environment) (out *Template, strings Templates, size int) {
	t := templater{faults: fs, env: env, base: p}
	t.node(n, p)
	t.out.tail = t.text
	size = t.size + len(t.text)
	for i := range t.out.parts {
		size += len(t.out.parts[i].before)
	}
	done := t.out // a copy: a pointer into t would keep the text that is being read, and the tree of it
	return &done, t.strings, size
}

func (t *templater) node(n *text.Node, p *text.Pointer) {
	switch n.Kind {
	case text.String:
		t.string(n, p)
	case text.List:
		t.text = append(t.text, '[')
		for i := range n.Kids {
			if i > 0 {
				t.text = append(t.text, ',')
			}
			t.node(&n.Kids[i], p.Item(i))
		}
		t.text = append(t.text, ']')
	case text.Object:
		t.text = append(t.text, '{')
		for i, k := range n.Order() {
			if i > 0 {
				t.text = append(t.text, ',')
			}
			name := n.Keys[k].Name
			if strings.Contains(name, "${") {
				t.faults.Add(p.Member(name), n.Keys[k].At, "an expression in a field name").WithHint("only values are filled in")
			}
			t.text = append(text.AppendString(t.text, name), ':')
			t.node(&n.Kids[k], p.Member(name))
		}
		t.text = append(t.text, '}')
	default:
		t.text = text.AppendNode(t.text, n)
	}
}

// string compiles one string. A ${…} that is the whole string keeps the type of its value.
func (t *templater) string(n *text.Node, p *text.Pointer) {
	spans, bad := split(n.Text)
	if bad != nil {
		bad.Record(t.faults, n, p, 0)
		return
	}
	if spans == nil {
		t.text = text.AppendString(t.text, n.Text)
		return
	}
	if slices.ContainsFunc(spans, func(s Span) bool { return s.hole && refersToSecret(s.Expr) }) {
		t.secretString(n, p, spans)
		return
	}
	lone := len(spans) == 1 && spans[0].hole
	whole := make(Pieces, 0, len(spans))
	if !lone {
		t.text = append(t.text, '"')
	}
	for _, s := range spans {
		if !s.hole {
			t.text = text.AppendEscaped(t.text, s.text)
			whole = append(whole, piece{text: s.text})
			continue
		}
		c, known := t.env.Compile(n, p, s)
		switch {
		case c == nil:
			continue
		case !lone && len(known) > 0 && known[0] == '"':
			t.size += len(known) - len(`""`)
		default:
			t.size += len(known)
		}
		t.out.parts = append(t.out.parts, part{before: t.text, expr: c.Expr, inText: !lone, pointer: p})
		t.text = nil
		t.out.refs = t.env.Steps(t.out.refs, c)
		whole = append(whole, piece{expr: c.Expr})
	}
	if !lone {
		t.text = append(t.text, '"')
	}
	if t.strings == nil {
		t.strings = Templates{}
	}
	t.strings[n] = whole
}

// Fill evaluates the string to JSON.
func (ps Pieces) Fill(v *Evaluator) (json.RawMessage, error) {
	if len(ps) == 1 && ps[0].expr != nil {
		return ps[0].expr.Raw(v)
	}
	b := []byte{'"'}
	for _, p := range ps {
		if p.expr == nil {
			b = text.AppendEscaped(b, p.text)
			continue
		}
		raw, err := p.expr.Raw(v)
		if err != nil {
			return nil, err
		}
		b = appendInside(b, raw)
	}
	return append(b, '"'), nil
}

// Lift returns a string with another expression in place of each of its expressions. A string without expressions, and one
// that refers to secrets, is returned as it is. replace returns the new text of the expression src.
func Lift(s string, replace func(src string) string) string {
	spans, bad := split(s)
	if bad != nil || spans == nil || slices.ContainsFunc(spans, func(s Span) bool { return s.hole && refersToSecret(s.Expr) }) {
		return s
	}
	var b strings.Builder
	for _, s := range spans {
		if s.hole {
			b.WriteString("${" + replace(s.Expr) + "}")
		} else {
			b.WriteString(strings.ReplaceAll(s.text, "${", "$${"))
		}
	}
	return b.String()
}
