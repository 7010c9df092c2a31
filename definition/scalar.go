package definition

import (
	"slices"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition/internal/text"
	"github.com/perdure/perdure/internal/plain"
)

// mismatch records that n is not what was expected.
func (d *decoder) mismatch(n *text.Node, p *text.Pointer, want string) *text.Fault {
	found := n.Kind.String()
	switch n.Kind {
	case text.Null:
		found = "nothing"
	case text.String:
		found = text.Quote(n.Text)
	case text.Number, text.Bool:
		found = n.Text
	}
	return d.Add(p, n.At, "expected %s, found %s", want, found)
}

func (d *decoder) string(n *text.Node, p *text.Pointer) bool {
	if n.Kind == text.String {
		return true
	}
	f := d.mismatch(n, p, "text")
	if n.Kind == text.Number || n.Kind == text.Bool {
		f.WithHint("quote it: \"%s\"", n.Text)
	}
	return false
}

// name reads a type, agent, action or alert name.
func (d *decoder) name(n *text.Node, p *text.Pointer) string {
	if d.stored {
		return n.Text
	}
	if !d.string(n, p) {
		return ""
	}
	d.checkName(n, p, "name")
	return n.Text
}

func (d *decoder) checkName(n *text.Node, p *text.Pointer, what string) {
	switch {
	case len(n.Text) > perdure.MaxNameLength:
		d.AddTooLarge(p, n.At, "a %s of %d characters; at most %d", what, len(n.Text), perdure.MaxNameLength)
	case strings.Contains(n.Text, "${"):
		d.Add(p, n.At, "a %s cannot be computed", what).WithHint("expressions are understood in with, when, key and priority")
	case !plain.IsName(n.Text):
		d.Add(p, n.At, "%s is no %s", text.Quote(n.Text), what).WithHint("letters, digits, `.`, `_` and `-`, starting with a letter or digit")
	}
}

func (d *decoder) duration(n *text.Node, p *text.Pointer) perdure.Duration {
	if n.Kind != text.String {
		f := d.mismatch(n, p, "a duration such as 30s")
		if n.Kind == text.Number {
			f.WithHint("with its unit: %ss, say", n.Text)
		}
		return 0
	}
	v, err := perdure.ParseDuration(n.Text)
	if err != nil {
		d.Add(p, n.At, "%s", err.Error()).WithHint("durations are written 500ms, 30s, 5m, 1h30m, 2d")
	}
	return perdure.Duration(v)
}

// count reads a whole number between least and most.
func (d *decoder) count(n *text.Node, p *text.Pointer, what string, least, most int) int {
	v, ok := text.ParseNumber(n.Text).(int)
	if n.Kind != text.Number || !ok {
		d.mismatch(n, p, "a whole number")
		return 0
	}
	if v < least || v > most {
		d.Add(p, n.At, "%s is between %d and %d, not %d", what, least, most, v)
		return 0
	}
	return v
}

func (d *decoder) labels(n *text.Node, p *text.Pointer) map[string]string {
	if n.Kind != text.Object {
		d.mismatch(n, p, "an object of text")
		return nil
	}
	if len(n.Kids) > perdure.MaxLabels {
		d.AddTooLarge(p, n.At, "%d labels; at most %d", len(n.Kids), perdure.MaxLabels)
		return nil
	}
	m := make(map[string]string, len(n.Kids))
	for i, k := range n.Keys {
		v, p := &n.Kids[i], p.Member(k.Name)
		switch {
		case !d.string(v, p):
		case k.Name == "":
			d.Add(p, k.At, "a label without a name")
		case len(k.Name) > perdure.MaxLabelLength || len(v.Text) > perdure.MaxLabelLength:
			d.AddTooLarge(p, v.At, "a label of more than %d bytes", perdure.MaxLabelLength)
		case !d.stored && strings.Contains(v.Text, "${"):
			d.Add(p, v.At, "expressions in labels are not built yet").WithHint("expressions are understood in with, when, key and priority")
		}
		m[k.Name] = v.Text
	}
	return m
}

func (d *decoder) states(n *text.Node, p *text.Pointer) *perdure.StateNames {
	if n.Kind != text.Object {
		d.mismatch(n, p, "an object such as {undone: free, done: booked}")
		return nil
	}
	s := &perdure.StateNames{}
	for i, k := range n.Keys {
		v, p := &n.Kids[i], p.Member(k.Name)
		var own *string
		var others []string
		switch k.Name {
		case "undone":
			own, others = &s.Undone, []string{"done", "unsure"}
		case "done":
			own, others = &s.Done, []string{"undone", "unsure"}
		default:
			d.unknown(stateFields, "states", k, p)
			continue
		}
		if *own = d.name(v, p); slices.Contains(others, v.Text) {
			d.Add(p, v.At, "%s is the name of another state", text.Quote(v.Text))
		}
	}
	if s.Undone != "" && s.Undone == s.Done {
		d.Add(p, n.At, "both states have the name %s", text.Quote(s.Done))
	}
	return s
}

// unknown records a field that does not exist, or is not built yet.
func (d *decoder) unknown(fields []field, what string, k text.Key, p *text.Pointer) {
	names := make([]string, 0, len(fields))
	for _, f := range fields {
		if f.name == k.Name && f.hint != "" {
			d.Add(p, k.At, "unknown field %s in %s", text.Quote(k.Name), what).WithHint("%s", f.hint)
			return
		}
		if f.name == k.Name && f.planned {
			d.Add(p, k.At, "%s is not built yet", text.Quote(k.Name)).WithHint("remove it; it is refused, not ignored, so that no job relies on it unawares")
			return
		}
		if f.schema != "" {
			names = append(names, f.name)
		}
	}
	d.Add(p, k.At, "unknown field %s in %s", text.Quote(k.Name), what).WithHint("%s", text.Suggest(k.Name, names))
}
