package definition

import (
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition/internal/expr"
	"github.com/perdure/perdure/definition/internal/text"
	"github.com/perdure/perdure/internal/kernel"
)

// decoder makes the plan of one document. It goes on after a fault, so that one answer has all of them.
type decoder struct {
	text.Faults
	programs *expr.Programs
	opts     Options
	template bool // it is stored for later submissions: what depends on the input is not evaluated
	stored   bool // the text of a store: it was checked before, nothing is evaluated, and its key is no template

	def       *kernel.Definition
	chain     bool
	input     *text.Node
	key       *text.Node
	priority  *text.Node
	startAt   *text.Node
	output    *text.Node
	accepts   kernel.ValueSchema
	returns   kernel.ValueSchema
	returnsAt int32
	steps     []stepSource
	index     map[string]int
	plan      *kernel.Plan

	knownJob        kernel.Job // as far as is known at submission,
	knownScope      kernel.Scope
	evaluator       expr.Evaluator
	budget          *kernel.Budget        // of the call; nil: none
	evaluated       []evaluatedExpression // and the expressions that depend on no more than that
	limitTexts      []expr.Pieces         // the keys of limits of steps that do
	limitsNode      *text.Node            // the limits of the job
	jobLimits       []jobLimit            // the same
	uniqueKey       *text.Node            // of unique; nil: there is none
	uniquePieces    expr.Pieces           // of this key, if it is computed
	computedUnique  string                // this key
	expressionCount int                   // expressions so far
	rest            []byte                // see memo
	fitsUnknown     bool                  // the known input of a step depends on the job's, and was checked by a schema
}

// stepSource has the nodes and places of a step.
type stepSource struct {
	at               int32
	pointer          *text.Pointer
	after            []place
	when, with, undo *text.Node // undo: the undo's with
	limits           *text.Node
	undoAt           int32
	node             *text.Node
	accepts, returns kernel.ValueSchema

	forEach, job *text.Node // of a step with children
}

// place is a name and its place in the text.
type place struct {
	name string
	at   int32
}

// decode makes the plan, or returns nil if there were faults.
func (d *decoder) decode(n *text.Node) *kernel.Plan {
	if n.Kind != text.Object {
		d.Add(nil, n.At, "a definition is an object with a type and steps, not %s", n.Kind)
		return nil
	}
	d.def = &kernel.Definition{}
	d.job(n)
	if len(d.List) > 0 && len(d.steps) == 0 {
		return nil
	}
	d.link()
	d.submission()
	d.expressions()
	if len(d.List) > 0 {
		return nil
	}
	d.normalize()
	return d.finish()
}

// job reads the fields of the job itself.
func (d *decoder) job(n *text.Node) {
	seen := uint64(0)
	for i := range n.Keys {
		k, v := n.Keys[i], &n.Kids[i]
		p := (*text.Pointer)(nil).Member(k.Name)
		switch k.Name {
		case "$schema": // for editors
			d.string(v, p)
		case "type":
			seen |= 1
			d.def.Type = d.name(v, p)
		case "key", "priority", "labels", "startAt", "input":
			d.value(k.Name, v)
		case "flow":
			if d.string(v, p) && v.Text != "chain" {
				d.Add(p, v.At, "unknown flow %s", text.Quote(v.Text)).WithHint("flow: chain makes each step come after the one before it")
			}
			d.chain = v.Text == "chain"
		case "onFailure":
			d.def.OnFailure = d.ladder(v, p)
		case "completeWithin":
			d.def.CompleteWithin = d.duration(v, p)
		case "limits":
			d.limitsNode = v
		case "startIn":
			d.def.StartIn = d.duration(v, p)
		case "startWithin":
			d.def.StartWithin = d.duration(v, p)
		case "inputSchema":
			d.def.InputSchema, d.accepts = d.valueSchema(v, p)
		case "outputSchema":
			d.returnsAt = v.At
			d.def.OutputSchema, d.returns = d.valueSchema(v, p)
		case "output":
			if v.Kind != text.Null {
				d.output = v
			}
		case "unique":
			d.def.Unique = d.unique(v, p)
		case "states":
			d.def.States = d.states(v, p)
		case "notify":
			d.def.Notify = d.notify(v, p)
		case "steps":
			seen |= 2
			d.stepMap(v, p)
		default:
			d.unknown(jobFields, "a job", k, p)
		}
	}
	if seen&1 == 0 {
		d.Add(nil, n.At, "`type` is missing").WithHint("type: order, say: limits, metrics and lists go by it")
	}
	if seen&2 == 0 {
		d.Add(nil, n.At, "`steps` is missing").WithHint("a job has at least one step with an agent")
	}
}

// value reads a value of the one job (see isJobValue). It ignores other fields.
func (d *decoder) value(name string, v *text.Node) {
	switch name {
	case "key":
		d.key = v
	case "priority":
		d.priority = v
	case "labels":
		d.def.Labels = d.labels(v, (*text.Pointer)(nil).Member(name))
	case "startAt":
		d.startAt = v
	case "input":
		d.input = v
	}
}

// stepMap reads all steps.
func (d *decoder) stepMap(n *text.Node, p *text.Pointer) {
	switch {
	case n.Kind != text.Object:
		d.mismatch(n, p, "an object of steps by name")
		return
	case len(n.Kids) == 0:
		d.Add(p, n.At, "there are no steps").WithHint("a job has at least one step with an agent")
		return
	case len(n.Kids) > perdure.MaxSteps:
		d.AddTooLarge(p, n.At, "%d steps; at most %d", len(n.Kids), perdure.MaxSteps)
		return
	}
	d.def.Steps = make(kernel.StepDefinitions, len(n.Kids))
	d.steps = make([]stepSource, len(n.Kids))
	d.index = make(map[string]int, len(n.Kids))
	for i := range n.Keys {
		k := n.Keys[i]
		sp := p.Member(k.Name)
		if !d.stored {
			d.stepName(k, sp)
		}
		d.index[k.Name] = i
		d.def.Steps[i].Name = k.Name
		d.steps[i] = stepSource{at: k.At, pointer: sp}
		d.step(&d.def.Steps[i], &d.steps[i], &n.Kids[i])
		if d.Full() {
			return
		}
	}
}

func (d *decoder) stepName(k text.Key, p *text.Pointer) {
	switch {
	case len(k.Name) > perdure.MaxNameLength:
		d.AddTooLarge(p, k.At, "a name of %d characters; at most %d", len(k.Name), perdure.MaxNameLength)
	case !text.IsIdentifier(k.Name):
		d.Add(p, k.At, "%s is no step name", text.Quote(k.Name)).WithHint("letters, digits and _, not starting with a digit, so that steps.NAME can be written")
	}
}

// step reads one step.
func (d *decoder) step(s *kernel.StepDefinition, src *stepSource, n *text.Node) {
	if n.Kind != text.Object {
		d.mismatch(n, src.pointer, "an object with an agent")
		return
	}
	src.node = n
	for i := range n.Keys {
		k, v := n.Keys[i], &n.Kids[i]
		p := src.pointer.Member(k.Name)
		switch k.Name {
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
			if v.Kind != text.Null {
				src.with = v
			}
		case "undo":
			src.undoAt = v.At
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
		case "requires":
			s.Requires = d.requires(v, p)
		case "prefers":
			s.Prefers = d.prefers(v, p)
		case "place":
			s.Place = d.place(v, p)
		case "heartbeat":
			s.Heartbeat = d.duration(v, p)
		case "progressWithin":
			s.ProgressWithin = d.duration(v, p)
		case "stopWithin":
			s.StopWithin = d.stopWithin(v, p)
		case "inputSchema":
			s.InputSchema, src.accepts = d.valueSchema(v, p)
		case "outputSchema":
			s.OutputSchema, src.returns = d.valueSchema(v, p)
		case "forEach":
			src.forEach = v
		case "job":
			src.job = v
		case "as":
			s.As = d.itemName(v, p)
		case "maxParallel":
			s.MaxParallel = d.count(v, p, "maxParallel", 1, kernel.MaxParallel)
		case "tolerate":
			s.Tolerate = d.tolerance(v, p)
		case "parkedIs":
			s.ParkedIs = d.word(v, p, kernel.ParkedIsFailed)
		case "undoOrder":
			s.UndoOrder = d.word(v, p, kernel.UndoReverse)
		case "collect":
			s.Collect = d.word(v, p, kernel.CollectList, kernel.CollectArtifact, kernel.CollectNone)
		default:
			d.unknown(stepFields, "a step", k, p)
		}
	}
	d.placement(s, src)
	d.signsOfLife(s, src)
	if src.owns() {
		d.owner(s, src)
		return
	}
	d.ownerFieldsElsewhere(src)
	if n.Get("agent") == nil {
		d.Add(src.pointer, src.at, "step %s has no agent", text.Quote(s.Name)).WithHint("agent: http, shell, exec, sleep, approval, signal, or one of your own")
	}
}

// undo reads how a step is undone.
func (d *decoder) undo(n *text.Node, src *stepSource, p *text.Pointer) *perdure.UndoDefinition {
	if n.Kind != text.Object {
		d.mismatch(n, p, "an object").WithHint("undo: {} asks the same agent; without undo there is nothing to undo")
		return nil
	}
	u := &perdure.UndoDefinition{}
	for i := range n.Keys {
		k, v := n.Keys[i], &n.Kids[i]
		p := p.Member(k.Name)
		switch k.Name {
		case "agent":
			u.Agent = d.name(v, p)
		case "action":
			u.Action = d.name(v, p)
		case "with":
			if src.undo = v; v.Kind == text.Null {
				d.Add(p, v.At, "`with` is empty").WithHint("leave it out to hand over the input of the do run, or write {}")
			}
		case "completeWithin":
			u.CompleteWithin = d.duration(v, p)
		case "retry":
			u.Retry = d.retry(v, p)
		case "sameHost":
			u.SameHost = d.sameHost(v, p)
		default:
			d.unknown(undoFields, "an undo", k, p)
		}
	}
	return u
}

// after reads the names of the steps that a step comes after.
func (d *decoder) after(n *text.Node, p *text.Pointer) []place {
	if n.Kind != text.List {
		d.mismatch(n, p, "a list of steps").WithHint("after: [reserve]")
		return nil
	}
	places := make([]place, 0, len(n.Kids))
	for i := range n.Kids {
		v := &n.Kids[i]
		if !d.string(v, p.Item(i)) {
			continue
		}
		places = append(places, place{v.Text, v.At})
	}
	return places
}

// limits reads the limits of which a step or job needs permits.
func (d *decoder) limits(n *text.Node, p *text.Pointer) []kernel.LimitUse {
	if n.Kind != text.List {
		d.mismatch(n, p, "a list of limits").WithHint("limits: [{name: ads-api, key: \"${input.account}\"}]")
		return nil
	}
	if len(n.Kids) > perdure.MaxStepLimits {
		d.AddTooLarge(p, n.At, "%d limits; at most %d", len(n.Kids), perdure.MaxStepLimits)
		return nil
	}
	if len(n.Kids) == 0 {
		return nil
	}
	uses := make([]kernel.LimitUse, len(n.Kids))
	for i := range n.Kids {
		uses[i] = d.limit(&n.Kids[i], p.Item(i))
		for _, other := range uses[:i] {
			if other.Name == uses[i].Name && other.Key == uses[i].Key {
				d.Add(p.Item(i), n.Kids[i].At, "limit %s is named twice with the same key", text.Quote(other.Name)).WithHint("name it once, with the sum of the amounts")
			}
		}
	}
	return uses
}

func (d *decoder) limit(n *text.Node, p *text.Pointer) (use kernel.LimitUse) {
	if n.Kind != text.Object {
		d.mismatch(n, p, "an object with the name of a limit").WithHint("limits: [{name: ads-api, key: \"${input.account}\"}]")
		return use
	}
	for i := range n.Keys {
		k, v := n.Keys[i], &n.Kids[i]
		p := p.Member(k.Name)
		switch k.Name {
		case "name":
			use.Name = d.name(v, p)
		case "key":
			if d.string(v, p) {
				use.Key = v.Text
			}
			if !d.stored && v.Kind == text.String && v.Text == "" {
				d.Add(p, v.At, "the key is empty").WithHint("leave it out if the limit bounds all steps that name it")
			}
		case "amount":
			if use.Amount = d.count(v, p, "amount", 1, perdure.MaxLimitAmount); use.Amount == 1 {
				use.Amount = 0
			}
		default:
			d.unknown(limitFields, "a limit", k, p)
		}
	}
	if n.Get("name") == nil {
		d.Add(p, n.At, "`name` is missing").WithHint("limits: [{name: ads-api}]")
	}
	return use
}
