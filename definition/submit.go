package definition

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition/internal/expr"
	"github.com/perdure/perdure/definition/internal/text"
	"github.com/perdure/perdure/internal/kernel"
)

// submission reads the input, with the fields that the options replace, and the key and the priority, which may be computed
// from it.
func (d *decoder) submission() {
	d.mergeInput()
	if n := d.input; n != nil && n.Kind != text.Null {
		d.def.Input = text.AppendNode(make([]byte, 0, int(n.Bytes)+6*int(n.Size)), n)
		if len(d.def.Input) > perdure.MaxPayloadBytes {
			d.AddTooLarge((*text.Pointer)(nil).Member("input"), n.At, "an input of %d bytes; at most %d", len(d.def.Input), perdure.MaxPayloadBytes).WithHint("make large values artifacts")
		}
		if !d.stored {
			d.artifacts(n, (*text.Pointer)(nil).Member("input"), d.def.Input, nil)
		}
	}
	if d.accepts != nil && !d.stored && !d.template {
		d.checkFit(d.input, (*text.Pointer)(nil).Member("input"), d.def.Input, d.accepts)
	}
	job := &d.knownJob
	*job = kernel.Job{Type: d.def.Type, Labels: d.def.Labels}
	d.knownScope = kernel.Scope{Job: job, Input: d.def.Input, Budget: d.budget}
	d.evaluator = expr.NewEvaluator(&d.knownScope, expr.SubmitWork)
	env := &environment{d: d, step: -1}
	if d.key != nil {
		d.readKey(d.key, env)
	}
	if d.opts.Key != "" {
		d.def.Key = d.opts.Key
		d.checkKey(d.opts.Key, (*text.Pointer)(nil).Member("key"), d.placeOf(d.key))
	} else if d.opts.DefaultKey != "" && d.key == nil {
		d.def.Key = d.opts.DefaultKey
		d.checkKey(d.opts.DefaultKey, (*text.Pointer)(nil).Member("key"), 0)
	}
	if d.priority != nil {
		d.readPriority(d.priority, env)
	}
	if d.startAt != nil {
		d.readStartAt(d.startAt, env)
	}
	if d.uniqueKey != nil && !d.stored {
		d.readUniqueKey(d.uniqueKey, env)
	}
	job.Key, job.Priority = d.def.Key, d.def.Priority
	if d.limitsNode != nil {
		d.readJobLimits(d.limitsNode, env)
	}
}

func (d *decoder) placeOf(n *text.Node) int32 {
	if n == nil {
		return 0
	}
	return n.At
}

// mergeInput replaces the fields of the input that the options name.
func (d *decoder) mergeInput() {
	if len(d.opts.Input) == 0 {
		return
	}
	p := (*text.Pointer)(nil).Member("input")
	merged := text.Scalar(text.Object, int(d.placeOf(d.input)), "")
	if n := d.input; n != nil && n.Kind != text.Null {
		if n.Kind != text.Object {
			d.Add(p, n.At, "the input is %s: no field of it can be replaced", n.Kind)
			return
		}
		merged.Keys, merged.Kids = append(merged.Keys, n.Keys...), append(merged.Kids, n.Kids...)
	}
	for name, raw := range d.opts.Input {
		kid, f := text.ReadJSON(raw)
		if f == nil {
			f = text.CheckEncoding(raw)
		}
		if f != nil {
			d.Add(p.Member(name), text.Beside, "the value given for %s is not JSON: %s", text.Quote(name), f.Message)
			continue
		}
		kid.Move(text.Beside)
		merged.Set(name, kid)
	}
	d.input = &merged
}

// computed evaluates a field of the job that may have expressions. Its value has the place of n.
func (d *decoder) computed(n *text.Node, p *text.Pointer, env *environment) (text.Node, bool) {
	if n.Kind != text.String || d.stored {
		return *n, true
	}
	before := len(d.List)
	_, templates, _ := expr.CompileTemplate(n, p, &d.Faults, env)
	if len(d.List) > before {
		return *n, false
	}
	return d.known(templates, n, p)
}

func (d *decoder) readKey(n *text.Node, env *environment) {
	p := (*text.Pointer)(nil).Member("key")
	v, ok := d.computed(n, p, env)
	if !ok {
		return
	}
	if v.Kind == text.Number && n.Kind == text.String { // key: ${input.id}, of a number
		v.Kind = text.String
	}
	if !d.string(&v, p) {
		return
	}
	d.def.Key = v.Text
	if !d.stored {
		d.checkKey(v.Text, p, n.At)
	}
}

func (d *decoder) checkKey(key string, p *text.Pointer, at int32) {
	n := utf8.RuneCountInString(key)
	switch refusal := perdure.CheckKey(key); {
	case refusal == nil:
	case n == 0:
		d.Add(p, at, "%s", refusal.Message).WithHint("leave it out if the job has none")
	case n > perdure.MaxKeyLength:
		d.AddTooLarge(p, at, "a key of %d characters; at most %d", n, perdure.MaxKeyLength)
	default:
		d.Add(p, at, "%s", refusal.Message).WithHint("%s", refusal.Hint)
	}
}

func (d *decoder) readPriority(n *text.Node, env *environment) {
	p := (*text.Pointer)(nil).Member("priority")
	if v, ok := d.computed(n, p, env); ok {
		d.def.Priority = d.count(&v, p, "priority", 0, perdure.MaxPriority)
	}
}

// jobLimit is a limit of a job.
type jobLimit struct {
	use kernel.LimitUse
	key expr.Pieces // nil: the key of use
}

// readJobLimits reads the limits of the job, and checks their keys.
func (d *decoder) readJobLimits(n *text.Node, env *environment) {
	p := (*text.Pointer)(nil).Member("limits")
	d.def.Limits = d.limits(n, p)
	if d.stored {
		return
	}
	for i, use := range d.def.Limits {
		for j := range d.def.Steps {
			s := &d.def.Steps[j]
			if slices.ContainsFunc(s.Limits, func(of kernel.LimitUse) bool { return of.Name == use.Name }) {
				d.Add(p.Item(i).Member("name"), n.Kids[i].Get("name").At, "step %s names limit %s, too: jobs that hold permits could wait for each other", s.Name, text.Quote(use.Name)).
					WithHint("name it either in the job or in its steps, or use two limits")
				break
			}
			if s.Job != nil && !s.Job.Detached && slices.Contains(limitsOf(s.Job.Definition), use.Name) {
				d.Add(p.Item(i).Member("name"), n.Kids[i].Get("name").At, "children of step %s name limit %s, too: they would wait for the permits that this job holds until they have ended", s.Name, text.Quote(use.Name)).
					WithHint("name it either in the job or in its children, or use two limits")
				break
			}
		}
		l := jobLimit{use: use}
		if key := n.Kids[i].Get("key"); key != nil {
			p := p.Item(i).Member("key")
			faults := len(d.List)
			_, templates, _ := expr.CompileTemplate(key, p, &d.Faults, env)
			if len(d.List) > faults {
				continue
			}
			v, ok := d.known(templates, key, p)
			if l.key = templates[key]; ok {
				d.checkLimitKey(&v, key, p)
			}
		}
		d.jobLimits = append(d.jobLimits, l)
	}
}

// limitsOf returns the names of the limits that the definition of children names, and of those of their children. The name of a
// stored definition has none: its limits are compared when the children are submitted.
func limitsOf(definition json.RawMessage) (names []string) {
	var of struct {
		Limits []kernel.LimitUse
		Steps  map[string]struct {
			Limits []kernel.LimitUse
			Job    *struct{ Definition json.RawMessage }
		}
	}
	_ = json.Unmarshal(definition, &of) // what cannot be read has been reported
	add := func(limits []kernel.LimitUse) {
		for _, l := range limits {
			names = append(names, l.Name)
		}
	}
	add(of.Limits)
	for _, s := range of.Steps {
		if add(s.Limits); s.Job != nil {
			names = append(names, limitsOf(s.Job.Definition)...)
		}
	}
	return names
}

// jobNeeds returns the permits that the job needs.
func (d *decoder) jobNeeds(limits []jobLimit) (kernel.Needs, error) {
	if len(limits) == 0 {
		return "", nil
	}
	needs := make([]kernel.Need, len(limits))
	for i, l := range limits {
		needs[i] = kernel.Need{LimitKey: kernel.LimitKey{Name: l.use.Name, Key: l.use.Key}, Amount: cmp.Or(l.use.Amount, 1)}
		if l.key == nil {
			continue
		}
		var err error
		if needs[i].Key, err = d.keyOf(l.key); err != nil {
			return "", err
		}
	}
	return kernel.NeedsOf(needs), nil
}

// keyOf evaluates a key that depends on the input alone.
func (d *decoder) keyOf(p expr.Pieces) (string, error) {
	raw, err := p.Fill(&d.evaluator)
	if err != nil {
		return "", err
	}
	return kernel.LimitKeyText(raw)
}

// checkLimitKey checks the key of a limit, whose value is known.
func (d *decoder) checkLimitKey(v, n *text.Node, p *text.Pointer) {
	if v.Kind != text.String && v.Kind != text.Number && v.Kind != text.Bool {
		d.mismatch(v, p, "text, a number, true or false")
	} else if err := kernel.CheckLimitKey(v.Text); err != nil {
		d.Add(p, n.At, "the key %s", err.Error())
	}
}

func (d *decoder) readStartAt(n *text.Node, env *environment) {
	p := (*text.Pointer)(nil).Member("startAt")
	v, ok := d.computed(n, p, env)
	if !ok {
		return
	}
	const hint = "startAt: 2031-01-01T08:00:00Z"
	if v.Kind != text.String {
		d.mismatch(&v, p, "a time as in RFC 3339").WithHint(hint)
		return
	}
	at, err := time.Parse(time.RFC3339Nano, v.Text)
	switch at = at.UTC().Truncate(time.Microsecond); {
	case err != nil:
		d.Add(p, n.At, "%s is no time as in RFC 3339", text.Quote(v.Text)).WithHint(hint)
	case at.Year() < perdure.MinStartYear || at.Year() > perdure.MaxStartYear:
		d.Add(p, n.At, "a time in the years %d to %d, not %d", perdure.MinStartYear, perdure.MaxStartYear, at.Year()).WithHint(hint)
	case d.def.StartIn != 0:
		d.Add(p, n.At, "both startAt and startIn").WithHint("a job starts at one time")
	default:
		d.def.StartAt = at
	}
}

// known returns the value of n, evaluated if it has expressions. False: the value is not known at submission.
func (d *decoder) known(templates expr.Templates, n *text.Node, p *text.Pointer) (text.Node, bool) {
	whole, ok := templates[n]
	if !ok {
		return *n, true
	}
	if !whole.Early() || d.template {
		return *n, false
	}
	raw, err := whole.Fill(&d.evaluator)
	if err != nil {
		return *n, false // reported where the expression was compiled
	}
	v, f := text.ReadLenientJSON(raw)
	if f != nil {
		d.Add(p, n.At, "%s", f.Message)
		return *n, false
	}
	v.Move(n.At)
	return v, true
}

// expressions compiles the conditions, inputs and keys of limits of the steps, and checks the inputs of built-in agents.
func (d *decoder) expressions() {
	ancestry := &ancestry{plan: d.plan}
	if len(d.List) > 0 {
		ancestry = nil // the graph may be wrong, and one fault for one cause is enough
	}
	for i := range d.steps {
		if d.Full() {
			return
		}
		src, s, ps := &d.steps[i], &d.def.Steps[i], &d.plan.Steps[i]
		env := &environment{d: d, step: i, ancestry: ancestry}
		if src.when != nil {
			ps.Test = d.condition(s, src, env)
		}
		if src.owns() {
			d.children(i, ancestry)
			continue
		}
		var do expr.Templates
		if src.with != nil {
			var t *expr.Template
			t, do = d.with(src.with, src.pointer.Member("with"), &environment{d: d, step: i, agent: s.Agent, ancestry: ancestry})
			s.With, ps.Do = text.AppendNode(nil, src.with), t
			if !d.stored {
				d.artifacts(src.with, src.pointer.Member("with"), s.With, do)
			}
		}
		var undo expr.Templates
		if src.undo != nil {
			p := src.pointer.Member("undo").Member("with")
			var t *expr.Template
			t, undo = d.with(src.undo, p, &environment{d: d, step: i, undo: true, agent: cmp.Or(s.Undo.Agent, s.Agent), ancestry: ancestry})
			s.Undo.With, ps.Revert = text.AppendNode(nil, src.undo), t
			if !d.stored {
				d.artifacts(src.undo, p, s.Undo.With, undo)
			}
		}
		if src.limits != nil {
			ps.Limits = d.limitKeys(src.limits, src.pointer.Member("limits"), env)
		}
		ps.Form = formOf(s.Agent)
		ps.Accepts, ps.Returns = src.accepts, src.returns
		if !d.stored {
			d.stepSchemas(s, src, ps, do)
			d.builtin(s, src, do, undo)
		}
	}
	d.plan.Accepts, d.plan.Returns = d.accepts, d.returns
	if d.output != nil && !d.Full() {
		d.jobOutput(d.output)
	}
	if d.returns != nil && d.output == nil {
		d.Add((*text.Pointer)(nil).Member("outputSchema"), d.returnsAt, "outputSchema without output").WithHint("output: ${steps.NAME.output}, or an outputSchema of a step")
	}
}

// jobOutput compiles the output of the job, which sees the outputs of all steps.
func (d *decoder) jobOutput(n *text.Node) {
	p := (*text.Pointer)(nil).Member("output")
	t, templates, size := expr.CompileTemplate(n, p, &d.Faults, &environment{d: d, step: -1, done: true})
	if size > perdure.MaxPayloadBytes {
		d.AddTooLarge(p, n.At, "with its values filled in, an output of %d bytes or more; at most %d", size, perdure.MaxPayloadBytes)
	}
	d.def.Output, d.plan.Output = text.AppendNode(nil, n), t
	if !d.stored {
		d.artifacts(n, p, d.def.Output, templates)
	}
}

func formOf(agent string) kernel.StepForm {
	switch agent {
	case kernel.AgentSleep:
		return kernel.BySleep
	case kernel.AgentApproval:
		return kernel.ByApproval
	case kernel.AgentSignal:
		return kernel.BySignal
	}
	return kernel.ByAgent
}

// with compiles the input of a run.
func (d *decoder) with(n *text.Node, p *text.Pointer, env *environment) (*expr.Template, expr.Templates) {
	t, templates, size := expr.CompileTemplate(n, p, &d.Faults, env)
	if size > perdure.MaxPayloadBytes {
		d.AddTooLarge(p, n.At, "with its values filled in, an input of %d bytes or more; at most %d", size, perdure.MaxPayloadBytes)
	}
	return t, templates
}

// condition compiles `when`.
func (d *decoder) condition(s *kernel.StepDefinition, src *stepSource, env *environment) kernel.Condition {
	n, p := src.when, src.pointer.Member("when")
	x := expr.ConditionOf(n.Text)
	s.When = x.Expr
	c, _ := d.expression(n, p, x, true, env)
	if c == nil {
		return nil
	}
	return expr.NewCondition(c, env.Steps(nil, c))
}

// limitKeys compiles the limits of a step, and checks the keys that are known already.
func (d *decoder) limitKeys(n *text.Node, p *text.Pointer, env *environment) kernel.Template {
	faults := len(d.List)
	t, templates, _ := expr.CompileTemplate(n, p, &d.Faults, env)
	if len(d.List) > faults || d.stored {
		return t
	}
	for i := range n.Kids {
		key := n.Kids[i].Get("key")
		if key == nil {
			continue
		}
		p := p.Item(i).Member("key")
		v, ok := d.known(templates, key, p)
		if pieces := templates[key]; ok && pieces != nil {
			d.limitTexts = append(d.limitTexts, pieces)
		}
		if ok {
			d.checkLimitKey(&v, key, p)
		}
	}
	return t
}
