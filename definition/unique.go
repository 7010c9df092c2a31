package definition

import (
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition/internal/expr"
	"github.com/perdure/perdure/definition/internal/text"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/plain"
)

const uniqueHint = "unique: {key: \"report-${input.customer}\", within: 10m}, or while: unsettled in place of within"

// unique reads which further submissions are the same job. Its key is computed later, see readUniqueKey.
func (d *decoder) unique(n *text.Node, p *text.Pointer) *kernel.UniqueDefinition {
	if n.Kind != text.Object {
		d.mismatch(n, p, "an object with a key").WithHint(uniqueHint)
		return nil
	}
	u := &kernel.UniqueDefinition{}
	for i := range n.Keys {
		k, v := n.Keys[i], &n.Kids[i]
		p := p.Member(k.Name)
		switch k.Name {
		case "key":
			if d.string(v, p) {
				u.Key, d.uniqueKey = v.Text, v
			}
		case "within":
			if u.Within = d.duration(v, p); u.Within > perdure.Duration(perdure.MaxUniqueWithin) {
				d.Add(p, v.At, "%s; at most %s", plain.Duration(time.Duration(u.Within)), plain.Duration(perdure.MaxUniqueWithin)).WithHint("a `key` of the job holds as long as the job is kept")
			}
		case "while":
			if u.While = v.Text; v.Kind != text.String || v.Text != kernel.WhileUnsettled {
				d.mismatch(v, p, "unsettled").WithHint(uniqueHint)
			}
		default:
			d.unknown(uniqueFields, "unique", k, p)
		}
	}
	switch {
	case n.Get("key") == nil:
		d.Add(p, n.At, "`key` is missing").WithHint(uniqueHint)
	case (n.Get("within") == nil) == (n.Get("while") == nil):
		d.Add(p, n.At, "give either `within` or `while`").WithHint(uniqueHint)
	}
	return u
}

// readUniqueKey computes the key of unique from the input.
func (d *decoder) readUniqueKey(n *text.Node, env *environment) {
	p := (*text.Pointer)(nil).Member("unique").Member("key")
	before := len(d.List)
	_, templates, _ := expr.CompileTemplate(n, p, &d.Faults, env)
	if len(d.List) > before {
		return
	}
	d.uniquePieces = templates[n]
	v, ok := d.known(templates, n, p)
	switch {
	case !ok:
	case v.Kind == text.String || v.Kind == text.Number || v.Kind == text.Bool:
		if err := kernel.CheckLimitKey(v.Text); err != nil {
			d.Add(p, n.At, "the key %s", err.Error())
		}
		d.computedUnique = v.Text
	default:
		d.mismatch(&v, p, "text, a number, true or false")
	}
}
