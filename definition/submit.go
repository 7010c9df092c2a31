package definition

import (
	"strings"
	"unicode/utf8"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// submission reads what is known before the job is accepted: the input, with what the caller
// replaces in it, and the key and priority, which may be computed from it.
func (d *decoder) submission() {
	d.mergeInput()
	if n := d.input; n != nil && n.kind != kindNull {
		d.def.Input = appendNode(make([]byte, 0, int(n.bytes)+6*int(n.size)), n)
		if len(d.def.Input) > perdure.MaxPayloadBytes {
			d.large((*pointer)(nil).member("input"), n.at, "an input of %d bytes; at most %d", len(d.def.Input), perdure.MaxPayloadBytes)
		}
	}
	job := &d.made
	*job = kernel.Job{Type: d.def.Type, Labels: d.def.Labels}
	d.scope = kernel.Scope{Job: job, Input: d.def.Input, Budget: d.budget}
	d.early = view{scope: &d.scope, work: submitWork}
	see := &sight{d: d, step: -1}
	if d.key != nil {
		d.readKey(d.key, see)
	}
	if d.opts.Key != "" {
		d.def.Key = d.opts.Key
		d.checkKey(d.opts.Key, (*pointer)(nil).member("key"), d.placeOf(d.key))
	} else if d.opts.DefaultKey != "" && d.key == nil {
		d.def.Key = d.opts.DefaultKey
		d.checkKey(d.opts.DefaultKey, (*pointer)(nil).member("key"), 0)
	}
	if d.prio != nil {
		d.readPriority(d.prio, see)
	}
	job.Key, job.Priority = d.def.Key, d.def.Priority
}

func (d *decoder) placeOf(n *node) int32 {
	if n == nil {
		return 0
	}
	return n.at
}

// mergeInput replaces the fields of the input that the options name.
func (d *decoder) mergeInput() {
	if len(d.opts.Input) == 0 {
		return
	}
	p := (*pointer)(nil).member("input")
	merged := scalar(kindObject, int(d.placeOf(d.input)), "")
	if n := d.input; n != nil && n.kind != kindNull {
		if n.kind != kindObject {
			d.add(p, n.at, "the input is %s: no field of it can be replaced", n.kind)
			return
		}
		merged.keys, merged.kids = append(merged.keys, n.keys...), append(merged.kids, n.kids...)
	}
	for name, raw := range d.opts.Input {
		kid, f := readJSON(raw)
		if f == nil {
			f = readable(raw)
		}
		if f != nil {
			d.add(p.member(name), merged.at, "the value given for %s is not JSON: %s", quote(name), f.message)
			continue
		}
		kid.move(merged.at)
		merged.set(name, kid)
	}
	d.input = &merged
}

// set replaces the member of that name, or adds it.
func (n *node) set(name string, kid node) {
	for i := range n.keys {
		if n.keys[i].name == name {
			n.kids[i] = kid
			return
		}
	}
	n.keys, n.kids = append(n.keys, key{name, n.at}), append(n.kids, kid)
}

// move gives a tree that was read elsewhere a place in this text.
func (n *node) move(at int32) {
	n.at = at
	for i := range n.keys {
		n.keys[i].at = at
	}
	for i := range n.kids {
		n.kids[i].move(at)
	}
}

// computed evaluates a field of the job that may hold expressions. Its value has the place of n.
func (d *decoder) computed(n *node, p *pointer, see *sight) (node, bool) {
	if n.kind != kindString || d.stored {
		return *n, true
	}
	before := len(d.list)
	_, made, _ := d.template(n, p, see)
	if len(d.list) > before {
		return *n, false
	}
	return d.known(made, n, p)
}

func (d *decoder) readKey(n *node, see *sight) {
	p := (*pointer)(nil).member("key")
	v, ok := d.computed(n, p, see)
	if !ok {
		return
	}
	if v.kind == kindNumber && n.kind == kindString { // key: ${input.id}, of a number
		v.kind = kindString
	}
	if !d.string(&v, p) {
		return
	}
	d.def.Key = v.text
	if !d.stored {
		d.checkKey(v.text, p, n.at)
	}
}

func (d *decoder) checkKey(key string, p *pointer, at int32) {
	n := utf8.RuneCountInString(key)
	switch refusal := perdure.CheckKey(key); {
	case refusal == nil:
	case n == 0:
		d.add(p, at, "%s", refusal.Message).hinted("leave it out if the job has none")
	case n > perdure.MaxKeyLength:
		d.large(p, at, "a key of %d characters; at most %d", n, perdure.MaxKeyLength)
	default:
		d.add(p, at, "%s", refusal.Message).hinted("%s", refusal.Hint)
	}
}

func (d *decoder) readPriority(n *node, see *sight) {
	p := (*pointer)(nil).member("priority")
	if v, ok := d.computed(n, p, see); ok {
		d.def.Priority = d.count(&v, p, "priority", 0, perdure.MaxPriority)
	}
}

// known is the value of n where it is known at submission: as it stands, or evaluated.
func (d *decoder) known(made templates, n *node, p *pointer) (node, bool) {
	pieces, ok := made[n]
	if !ok {
		return *n, true
	}
	for _, x := range pieces {
		if x.expr != nil && !x.expr.early {
			return *n, false
		}
	}
	raw, err := fill(pieces, &d.early)
	if err != nil {
		return *n, false // reported where the expression was compiled
	}
	r := jsonReader{src: raw, lenient: true}
	v, f := r.value(0)
	if f != nil {
		d.add(p, n.at, "%s", f.message)
		return *n, false
	}
	v.move(n.at)
	return v, true
}

// expressions compiles what is computed when a step is let out, and checks the inputs of built-in
// agents.
func (d *decoder) expressions() {
	ancestry := &ancestry{plan: d.plan}
	if len(d.list) > 0 {
		ancestry = nil // the graph is not to be trusted, one fault is enough
	}
	for i := range d.steps {
		if d.full() {
			return
		}
		src, s, ps := &d.steps[i], &d.def.Steps[i], &d.plan.Steps[i]
		see := &sight{d: d, step: i, ancestry: ancestry}
		if src.when != nil {
			ps.Test = d.condition(s, src, see)
		}
		var made templates
		if src.with != nil {
			var t *template
			t, made = d.with(src.with, src.pointer.member("with"), see)
			s.With, ps.Do = appendNode(nil, src.with), t
		}
		var undone templates
		if src.undo != nil {
			p := src.pointer.member("undo").member("with")
			var t *template
			t, undone = d.with(src.undo, p, &sight{d: d, step: i, undo: true, ancestry: ancestry})
			s.Undo.With, ps.Revert = appendNode(nil, src.undo), t
		}
		if src.limits != nil {
			ps.Limits = d.limitKeys(src.limits, src.pointer.member("limits"), see)
		}
		ps.Form = formOf(s.Agent)
		if !d.stored {
			d.builtin(s, src, made, undone)
		}
	}
}

func formOf(agent string) kernel.StepForm {
	switch agent {
	case kernel.AgentSleep:
		return kernel.BySleep
	case kernel.AgentApproval:
		return kernel.ByApproval
	}
	return kernel.ByAgent
}

// with compiles the input of a run.
func (d *decoder) with(n *node, p *pointer, see *sight) (*template, templates) {
	t, made, size := d.template(n, p, see)
	if size > perdure.MaxPayloadBytes {
		d.large(p, n.at, "with its values filled in, an input of %d bytes or more; at most %d", size, perdure.MaxPayloadBytes)
	}
	return t, made
}

// condition compiles `when`, with or without ${ } around it.
func (d *decoder) condition(s *kernel.StepDefinition, src *stepSource, see *sight) kernel.Condition {
	n, p := src.when, src.pointer.member("when")
	text := n.text
	at := len(text) - len(strings.TrimLeft(text, " \t\r\n"))
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "${") && closing(text, 2) == len(text)-1 {
		text, at = text[2:len(text)-1], at+2
		at += len(text) - len(strings.TrimLeft(text, " \t\r\n"))
		text = strings.TrimSpace(text)
	}
	s.When = text
	c, _ := d.expression(n, p, span{expr: text, at: at}, true, see)
	if c == nil {
		return nil
	}
	return &condition{expr: c.expr, refs: see.refs(nil, c)}
}

// limitKeys compiles the limits of a step, and checks the keys that are known already.
func (d *decoder) limitKeys(n *node, p *pointer, see *sight) kernel.Template {
	faults := len(d.list)
	t, made, _ := d.template(n, p, see)
	if len(d.list) > faults || d.stored {
		return t
	}
	for i := range n.kids {
		key := n.kids[i].get("key")
		if key == nil {
			continue
		}
		p := p.item(i).member("key")
		v, ok := d.known(made, key, p)
		if pieces := made[key]; ok && pieces != nil {
			d.keys = append(d.keys, pieces)
		}
		switch {
		case !ok:
		case v.kind == kindString || v.kind == kindNumber || v.kind == kindBool:
			if err := kernel.CheckLimitKey(v.text); err != nil {
				d.add(p, key.at, "the key %s", err.Error())
			}
		default:
			d.wrong(&v, p, "text, a number, true or false")
		}
	}
	return t
}
