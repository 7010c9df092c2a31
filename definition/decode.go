package definition

import (
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// decoder makes a definition, and the plan of it, from one document's tree. It goes on after a fault,
// so that one answer names all of them.
type decoder struct {
	faults
	programs *programs
	opts     Options
	stored   bool // as a store keeps it: no checks, no evaluation; the key is no template

	def   *kernel.Definition
	chain bool
	input *node
	key   *node
	prio  *node
	steps []stepSource
	index map[string]int
	plan  *kernel.Plan

	made    kernel.Job // as far as is known at submission,
	scope   kernel.Scope
	early   view
	budget  *kernel.Budget // of the call; nil: none
	earlies []early        // and the expressions that depend on no more than that
	keys    [][]piece      // the keys of limits that do
	exprs   int            // expressions so far
	rest    []byte         // see memo
}

// stepSource is a step and the places it was read from.
type stepSource struct {
	at               int32
	pointer          *pointer
	after            []place
	when, with, undo *node // undo: the undo's with
	limits           *node
	undoAt           int32
	node             *node
}

// place is a name and where it stands.
type place struct {
	name string
	at   int32
}

// decode is the whole way from tree to plan; nil if there were faults.
func (d *decoder) decode(n *node) *kernel.Plan {
	if n.kind != kindObject {
		d.add(nil, n.at, "a definition is an object with a type and steps, not %s", n.kind)
		return nil
	}
	d.def = &kernel.Definition{}
	d.job(n)
	if len(d.list) > 0 && len(d.steps) == 0 {
		return nil
	}
	d.link()
	d.submission()
	d.expressions()
	if len(d.list) > 0 {
		return nil
	}
	d.normalize()
	return d.finish()
}

// job reads the fields of the job itself.
func (d *decoder) job(n *node) {
	seen := uint64(0)
	for i := range n.keys {
		k, v := n.keys[i], &n.kids[i]
		p := (*pointer)(nil).member(k.name)
		switch k.name {
		case "$schema": // for editors
			d.string(v, p)
		case "type":
			seen |= 1
			d.def.Type = d.name(v, p)
		case "key", "priority", "labels", "input":
			d.value(k.name, v)
		case "flow":
			if d.string(v, p) && v.text != "chain" {
				d.add(p, v.at, "unknown flow %s", quote(v.text)).hinted("flow: chain makes each step come after the one before it")
			}
			d.chain = v.text == "chain"
		case "onFailure":
			d.def.OnFailure = d.ladder(v, p)
		case "completeWithin":
			d.def.CompleteWithin = d.duration(v, p)
		case "states":
			d.def.States = d.states(v, p)
		case "steps":
			seen |= 2
			d.stepMap(v, p)
		default:
			d.unknown(jobFields, "a job", k, p)
		}
	}
	if seen&1 == 0 {
		d.add(nil, n.at, "`type` is missing").hinted("type: order, say: limits, metrics and lists go by it")
	}
	if seen&2 == 0 {
		d.add(nil, n.at, "`steps` is missing").hinted("a job has at least one step with an agent")
	}
}

// value reads a field that one job has of its own; others are not its concern (see isValue).
func (d *decoder) value(name string, v *node) {
	switch name {
	case "key":
		d.key = v
	case "priority":
		d.prio = v
	case "labels":
		d.def.Labels = d.labels(v, (*pointer)(nil).member(name))
	case "input":
		d.input = v
	}
}

// stepMap reads all steps.
func (d *decoder) stepMap(n *node, p *pointer) {
	switch {
	case n.kind != kindObject:
		d.wrong(n, p, "an object of steps by name")
		return
	case len(n.kids) == 0:
		d.add(p, n.at, "there are no steps").hinted("a job has at least one step with an agent")
		return
	case len(n.kids) > perdure.MaxSteps:
		d.large(p, n.at, "%d steps; at most %d", len(n.kids), perdure.MaxSteps)
		return
	}
	d.def.Steps = make(kernel.StepDefinitions, len(n.kids))
	d.steps = make([]stepSource, len(n.kids))
	d.index = make(map[string]int, len(n.kids))
	for i := range n.keys {
		k := n.keys[i]
		sp := p.member(k.name)
		if !d.stored {
			d.stepName(k, sp)
		}
		d.index[k.name] = i
		d.def.Steps[i].Name = k.name
		d.steps[i] = stepSource{at: k.at, pointer: sp}
		d.step(&d.def.Steps[i], &d.steps[i], &n.kids[i])
		if d.full() {
			return
		}
	}
}

func (d *decoder) stepName(k key, p *pointer) {
	switch {
	case len(k.name) > perdure.MaxNameLength:
		d.large(p, k.at, "a name of %d characters; at most %d", len(k.name), perdure.MaxNameLength)
	case !identifier(k.name):
		d.add(p, k.at, "%s is no step name", quote(k.name)).hinted("letters, digits and _, not starting with a digit, so that steps.NAME can be written")
	}
}

// step reads one step.
func (d *decoder) step(s *kernel.StepDefinition, src *stepSource, n *node) {
	if n.kind != kindObject {
		d.wrong(n, src.pointer, "an object with an agent")
		return
	}
	src.node = n
	for i := range n.keys {
		k, v := n.keys[i], &n.kids[i]
		p := src.pointer.member(k.name)
		switch k.name {
		case "agent":
			s.Agent = d.name(v, p)
		case "action":
			s.Action = d.name(v, p)
		case "after":
			src.after = d.after(v, p)
		case "when":
			if d.string(v, p) {
				src.when = v
			}
		case "with":
			if v.kind != kindNull {
				src.with = v
			}
		case "undo":
			src.undoAt = v.at
			s.Undo = d.undo(v, src, p)
		case "completeWithin":
			s.CompleteWithin = d.duration(v, p)
		case "retry":
			s.Retry = d.retry(v, p)
		case "onFailure":
			s.OnFailure = d.ladder(v, p)
		case "limits":
			s.Limits = d.limits(v, p)
			if len(s.Limits) > 0 {
				src.limits = v
			}
		default:
			d.unknown(stepFields, "a step", k, p)
		}
	}
	if n.get("agent") == nil {
		d.add(src.pointer, src.at, "step %s has no agent", quote(s.Name)).hinted("agent: http, shell, sleep, approval, or one of your own")
	}
}

// undo reads how a step is undone.
func (d *decoder) undo(n *node, src *stepSource, p *pointer) *perdure.UndoDefinition {
	if n.kind != kindObject {
		d.wrong(n, p, "an object").hinted("undo: {} asks the same agent; without undo there is nothing to undo")
		return nil
	}
	u := &perdure.UndoDefinition{}
	for i := range n.keys {
		k, v := n.keys[i], &n.kids[i]
		p := p.member(k.name)
		switch k.name {
		case "agent":
			u.Agent = d.name(v, p)
		case "action":
			u.Action = d.name(v, p)
		case "with":
			if src.undo = v; v.kind == kindNull {
				d.add(p, v.at, "`with` is empty").hinted("leave it out to hand over the input of the do run, or write {}")
			}
		case "completeWithin":
			u.CompleteWithin = d.duration(v, p)
		case "retry":
			u.Retry = d.retry(v, p)
		default:
			d.unknown(undoFields, "an undo", k, p)
		}
	}
	return u
}

// after reads the names of the steps that a step comes after: a list, or a single name.
func (d *decoder) after(n *node, p *pointer) []place {
	if n.kind != kindList {
		d.wrong(n, p, "a list of steps").hinted("after: [reserve]")
		return nil
	}
	places := make([]place, 0, len(n.kids))
	for i := range n.kids {
		v := &n.kids[i]
		if !d.string(v, p.item(i)) {
			continue
		}
		places = append(places, place{v.text, v.at})
	}
	return places
}

// limits reads the limits that a step needs permits of.
func (d *decoder) limits(n *node, p *pointer) []kernel.LimitUse {
	if n.kind != kindList {
		d.wrong(n, p, "a list of limits").hinted("limits: [{name: ads-api, key: \"${input.account}\"}]")
		return nil
	}
	if len(n.kids) > perdure.MaxStepLimits {
		d.large(p, n.at, "%d limits; at most %d", len(n.kids), perdure.MaxStepLimits)
		return nil
	}
	if len(n.kids) == 0 {
		return nil
	}
	uses := make([]kernel.LimitUse, len(n.kids))
	for i := range n.kids {
		uses[i] = d.limit(&n.kids[i], p.item(i))
		for _, other := range uses[:i] {
			if other.Name == uses[i].Name && other.Key == uses[i].Key {
				d.add(p.item(i), n.kids[i].at, "limit %s is named twice with the same key", quote(other.Name)).hinted("name it once, with the sum of the amounts")
			}
		}
	}
	return uses
}

func (d *decoder) limit(n *node, p *pointer) (use kernel.LimitUse) {
	if n.kind != kindObject {
		d.wrong(n, p, "an object with the name of a limit").hinted("limits: [{name: ads-api, key: \"${input.account}\"}]")
		return use
	}
	for i := range n.keys {
		k, v := n.keys[i], &n.kids[i]
		p := p.member(k.name)
		switch k.name {
		case "name":
			use.Name = d.name(v, p)
		case "key":
			if d.string(v, p) {
				use.Key = v.text
			}
			if !d.stored && v.kind == kindString && v.text == "" {
				d.add(p, v.at, "the key is empty").hinted("leave it out if the limit bounds all steps that name it")
			}
		case "amount":
			if use.Amount = d.count(v, p, "amount", 1, perdure.MaxLimitAmount); use.Amount == 1 {
				use.Amount = 0
			}
		default:
			d.unknown(limitFields, "a limit", k, p)
		}
	}
	if n.get("name") == nil {
		d.add(p, n.at, "`name` is missing").hinted("limits: [{name: ads-api}]")
	}
	return use
}
