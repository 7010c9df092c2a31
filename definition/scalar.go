package definition

import (
	"slices"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

// wrong records that n is not what was expected.
func (d *decoder) wrong(n *node, p *pointer, want string) *fault {
	found := n.kind.String()
	switch n.kind {
	case kindNull:
		found = "nothing"
	case kindString:
		found = quote(n.text)
	case kindNumber, kindBool:
		found = n.text
	}
	return d.add(p, n.at, "expected %s, found %s", want, found)
}

func (d *decoder) string(n *node, p *pointer) bool {
	if n.kind == kindString {
		return true
	}
	f := d.wrong(n, p, "text")
	if n.kind == kindNumber || n.kind == kindBool {
		f.hinted("quote it: \"%s\"", n.text)
	}
	return false
}

// name reads a type, agent, action or alert name.
func (d *decoder) name(n *node, p *pointer) string {
	if d.stored {
		return n.text
	}
	if !d.string(n, p) {
		return ""
	}
	d.checkName(n, p, "name")
	return n.text
}

func (d *decoder) checkName(n *node, p *pointer, what string) {
	switch {
	case len(n.text) > perdure.MaxNameLength:
		d.large(p, n.at, "a %s of %d characters; at most %d", what, len(n.text), perdure.MaxNameLength)
	case strings.Contains(n.text, "${"):
		d.add(p, n.at, "a %s cannot be computed", what).hinted("expressions are understood in with, when, key and priority")
	case !plain.IsName(n.text):
		d.add(p, n.at, "%s is no %s", quote(n.text), what).hinted("letters, digits, `.`, `_` and `-`, starting with a letter or digit")
	}
}

func (d *decoder) duration(n *node, p *pointer) perdure.Duration {
	if n.kind != kindString {
		f := d.wrong(n, p, "a duration such as 30s")
		if n.kind == kindNumber {
			f.hinted("with its unit: %ss, say", n.text)
		}
		return 0
	}
	v, err := perdure.ParseDuration(n.text)
	if err != nil {
		d.add(p, n.at, "%s", err.Error()).hinted("durations are written 500ms, 30s, 5m, 1h30m, 2d")
	}
	return perdure.Duration(v)
}

// count reads a whole number between least and most.
func (d *decoder) count(n *node, p *pointer, what string, least, most int) int {
	v, ok := number(n.text).(int)
	if n.kind != kindNumber || !ok {
		d.wrong(n, p, "a whole number")
		return 0
	}
	if v < least || v > most {
		d.add(p, n.at, "%s is between %d and %d, not %d", what, least, most, v)
		return 0
	}
	return v
}

func (d *decoder) labels(n *node, p *pointer) map[string]string {
	if n.kind != kindObject {
		d.wrong(n, p, "an object of text")
		return nil
	}
	if len(n.kids) > perdure.MaxLabels {
		d.large(p, n.at, "%d labels; at most %d", len(n.kids), perdure.MaxLabels)
		return nil
	}
	m := make(map[string]string, len(n.kids))
	for i, k := range n.keys {
		v, p := &n.kids[i], p.member(k.name)
		switch {
		case !d.string(v, p):
		case k.name == "":
			d.add(p, k.at, "a label without a name")
		case len(k.name) > perdure.MaxLabelLength || len(v.text) > perdure.MaxLabelLength:
			d.large(p, v.at, "a label of more than %d bytes", perdure.MaxLabelLength)
		case !d.stored && strings.Contains(v.text, "${"):
			d.add(p, v.at, "expressions in labels are not built yet").hinted("expressions are understood in with, when, key and priority")
		}
		m[k.name] = v.text
	}
	return m
}

func (d *decoder) states(n *node, p *pointer) *perdure.StateNames {
	if n.kind != kindObject {
		d.wrong(n, p, "an object such as {undone: free, done: booked}")
		return nil
	}
	s := &perdure.StateNames{}
	for i, k := range n.keys {
		v, p := &n.kids[i], p.member(k.name)
		var own *string
		var others []string
		switch k.name {
		case "undone":
			own, others = &s.Undone, []string{"done", "unsure"}
		case "done":
			own, others = &s.Done, []string{"undone", "unsure"}
		default:
			d.unknown(stateFields, "states", k, p)
			continue
		}
		if *own = d.name(v, p); slices.Contains(others, v.text) {
			d.add(p, v.at, "%s is the name of another state", quote(v.text))
		}
	}
	if s.Undone != "" && s.Undone == s.Done {
		d.add(p, n.at, "both states have the name %s", quote(s.Done))
	}
	return s
}

// unknown records a field that there is not, or not yet.
func (d *decoder) unknown(fields []field, what string, k key, p *pointer) {
	names := make([]string, 0, len(fields))
	for _, f := range fields {
		if f.name == k.name && f.hint != "" {
			d.add(p, k.at, "unknown field %s in %s", quote(k.name), what).hinted("%s", f.hint)
			return
		}
		if f.name == k.name && f.later {
			d.add(p, k.at, "%s is not built yet", quote(k.name)).hinted("take it out; it is not ignored, so that nobody relies on it unawares")
			return
		}
		if !f.later {
			names = append(names, f.name)
		}
	}
	d.add(p, k.at, "unknown field %s in %s", quote(k.name), what).hinted("%s", suggest(k.name, names))
}
