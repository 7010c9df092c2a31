package definition

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// template is a compiled `with`: its canonical JSON, cut where values go in.
type template struct {
	parts []part
	tail  []byte // after the last part; all of it where there are none
	refs  []int  // steps whose outputs it reads
}

// part is a piece of JSON text and the value that follows it.
type part struct {
	before  []byte
	expr    *expression
	inText  bool // the value goes into a longer string
	pointer *pointer
}

// Refs are the indexes of the steps whose outputs it reads.
func (t *template) Refs() []int { return t.refs }

// Render fills in the values. Errors name the field and say what is missing in it.
func (t *template) Render(s *kernel.Scope) (json.RawMessage, error) {
	if len(t.parts) == 0 {
		return t.tail, nil
	}
	v := &view{scope: s, work: renderWork}
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
func (p *part) fill(b []byte, v *view) ([]byte, error) {
	raw, err := p.expr.raw(v)
	switch {
	case err != nil:
		return b, err
	case !p.inText:
		return append(b, raw...), nil
	}
	return appendInside(b, raw), nil
}

// appendInside puts a value into the middle of a JSON string: text as it is, the rest as compact JSON.
func appendInside(b []byte, raw json.RawMessage) []byte {
	if raw[0] == '"' {
		return append(b, raw[1:len(raw)-1]...) // escaped already
	}
	return appendEscaped(b, string(raw))
}

// condition is a compiled `when`.
type condition struct {
	expr *expression
	refs []int
}

// Eval says whether the step is to be done.
func (c *condition) Eval(s *kernel.Scope) (bool, error) {
	yes, err := c.expr.truth(&view{scope: s, work: renderWork})
	if err != nil {
		return false, fmt.Errorf("when: %w", err)
	}
	return yes, nil
}

// Refs are the indexes of the steps whose outputs it reads.
func (c *condition) Refs() []int { return c.refs }

// span is a piece of a string with ${…} in it: text, or the source of an expression.
type span struct {
	text string // $${ undone
	expr string
	at   int // byte offset of the expression in the string
	hole bool
}

// split cuts a string at its ${…}; nil if it has none and no $${ either.
func split(s string) ([]span, *misfit) {
	if !strings.Contains(s, "${") {
		return nil, nil
	}
	var spans []span
	var text strings.Builder
	for i := 0; i < len(s); {
		switch {
		case strings.HasPrefix(s[i:], "$${"):
			text.WriteString("${")
			i += 3
		case strings.HasPrefix(s[i:], "${"):
			end := closing(s, i+2)
			if end < 0 {
				return nil, &misfit{at: i, message: "this ${ is never closed", hint: "a literal ${ is written $${"}
			}
			if text.Len() > 0 {
				spans = append(spans, span{text: text.String()})
				text.Reset()
			}
			spans = append(spans, span{expr: s[i+2 : end], at: i + 2, hole: true})
			i = end + 1
		default:
			text.WriteByte(s[i])
			i++
		}
	}
	if text.Len() > 0 {
		spans = append(spans, span{text: text.String()})
	}
	return spans, nil
}

// closing is the index of the } that ends the expression at i, past nested braces and quoted text.
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

// templater compiles one `with` while it writes its JSON.
type templater struct {
	d    *decoder
	see  *sight
	out  template
	text []byte // since the last part
	made templates
	size int // of the values that are known
}

// templates are the strings of a `with` that hold expressions, so that what an agent checks can be
// evaluated one by one.
type templates map[*node][]piece

// piece is some text, or the expression whose value stands in its place.
type piece struct {
	text string
	expr *expression
}

// template compiles n. Faults are recorded; what comes back is of use only if there were none. Size is
// how large the filled-in JSON is at least.
func (d *decoder) template(n *node, p *pointer, see *sight) (out *template, made templates, size int) {
	t := templater{d: d, see: see}
	t.node(n, p)
	t.out.tail = t.text
	size = t.size + len(t.text)
	for i := range t.out.parts {
		size += len(t.out.parts[i].before)
	}
	done := t.out // a copy: a pointer into t would keep the text that is being read, and the tree of it
	return &done, t.made, size
}

func (t *templater) node(n *node, p *pointer) {
	switch n.kind {
	case kindString:
		t.string(n, p)
	case kindList:
		t.text = append(t.text, '[')
		for i := range n.kids {
			if i > 0 {
				t.text = append(t.text, ',')
			}
			t.node(&n.kids[i], p.item(i))
		}
		t.text = append(t.text, ']')
	case kindObject:
		t.text = append(t.text, '{')
		for i, k := range n.order() {
			if i > 0 {
				t.text = append(t.text, ',')
			}
			name := n.keys[k].name
			if strings.Contains(name, "${") {
				t.d.add(p.member(name), n.keys[k].at, "an expression in a field name").hinted("only values are filled in")
			}
			t.text = append(appendString(t.text, name), ':')
			t.node(&n.kids[k], p.member(name))
		}
		t.text = append(t.text, '}')
	default:
		t.text = appendNode(t.text, n)
	}
}

// string compiles one string. A lone ${…} keeps the type of its value.
func (t *templater) string(n *node, p *pointer) {
	spans, bad := split(n.text)
	if bad != nil {
		t.d.misfit(p, n, 0, bad)
		return
	}
	if spans == nil {
		t.text = appendString(t.text, n.text)
		return
	}
	lone := len(spans) == 1 && spans[0].hole
	pieces := make([]piece, 0, len(spans))
	if !lone {
		t.text = append(t.text, '"')
	}
	for _, s := range spans {
		if !s.hole {
			t.text = appendEscaped(t.text, s.text)
			pieces = append(pieces, piece{text: s.text})
			continue
		}
		c, known := t.d.expression(n, p, s, false, t.see)
		switch {
		case c == nil:
			continue
		case !lone && len(known) > 0 && known[0] == '"':
			t.size += len(known) - len(`""`)
		default:
			t.size += len(known)
		}
		t.out.parts = append(t.out.parts, part{before: t.text, expr: c.expr, inText: !lone, pointer: p})
		t.text = nil
		t.out.refs = t.see.refs(t.out.refs, c)
		pieces = append(pieces, piece{expr: c.expr})
	}
	if !lone {
		t.text = append(t.text, '"')
	}
	if t.made == nil {
		t.made = templates{}
	}
	t.made[n] = pieces
}

// fill evaluates one string of a template to JSON.
func fill(pieces []piece, v *view) (json.RawMessage, error) {
	if len(pieces) == 1 && pieces[0].expr != nil {
		return pieces[0].expr.raw(v)
	}
	b := []byte{'"'}
	for _, p := range pieces {
		if p.expr == nil {
			b = appendEscaped(b, p.text)
			continue
		}
		raw, err := p.expr.raw(v)
		if err != nil {
			return nil, err
		}
		b = appendInside(b, raw)
	}
	return append(b, '"'), nil
}
