package definition

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition/internal/expr"
	"github.com/perdure/perdure/definition/internal/text"
	"github.com/perdure/perdure/internal/kernel"
)

// A step with children has job, which says what they are, or forEach and the fields of a step of an agent, which is the short
// form: each child is a job of one step then. The short form is read as job with such a definition:
//
//	stamp:                                       stamp:
//	  forEach: {range: [0, 200]}                   forEach: {range: [0, 200]}
//	  as: i                                        as: i
//	  agent: shell                                 job:
//	  with: {command: ["./stamp", "${i}"]}           input: {item: "${i}", index: "${index}", values: ["${i}"]}
//	                                                 definition:
//	                                                   type: TYPE.stamp
//	                                                   onFailure: undo
//	                                                   steps: {stamp: {agent: shell, with: {command: ["./stamp", "${input.values[0]}"]}}}
//	                                                   output: ${steps.stamp.output}
//
// So the expressions of the short form see what those of the parent see, and are evaluated when the child is made. Those of its
// undo that refer to output, key and doKey are evaluated in the child.

// owns reports whether the step has children.
func (s *stepSource) owns() bool { return s.forEach != nil || s.job != nil }

// ownerFields are the fields of steps with children only.
var ownerFields = []string{"as", "maxParallel", "tolerate", "parkedIs", "undoOrder", "collect"}

// loopFields are those of them that need forEach.
var loopFields = []string{"as", "maxParallel", "tolerate", "undoOrder", "collect"}

// fieldsOfAgent are the fields of a step that belong to the child in the short form.
var fieldsOfAgent = []string{"agent", "action", "with", "undo", "completeWithin", "retry", "limits", "requires", "prefers", "place", "heartbeat", "progressWithin", "stopWithin", "inputSchema", "outputSchema"}

// awaitedFields are those of them that are about children which the step waits for.
var awaitedFields = []string{"maxParallel", "tolerate", "parkedIs", "collect"}

// ownerFieldsElsewhere refuses fields of steps with children in other steps.
func (d *decoder) ownerFieldsElsewhere(src *stepSource) {
	for _, k := range src.node.Keys {
		if slices.Contains(ownerFields, k.Name) {
			d.Add(src.pointer.Member(k.Name), k.At, "%s without forEach or job", text.Quote(k.Name)).WithHint("it is of a step that has children")
		}
	}
}

// owner checks the fields of a step with children, and reads its job.
func (d *decoder) owner(s *kernel.StepDefinition, src *stepSource) {
	for _, k := range src.node.Keys {
		p := src.pointer.Member(k.Name)
		switch {
		case src.forEach == nil && slices.Contains(loopFields, k.Name):
			d.Add(p, k.At, "%s without forEach", text.Quote(k.Name)).WithHint("a step with job alone has one child")
		case src.job != nil && slices.Contains(fieldsOfAgent, k.Name):
			d.Add(p, k.At, "%s beside job", text.Quote(k.Name)).WithHint("the job has its own: write it in the definition of the job")
		}
	}
	if src.job == nil && src.node.Get("agent") == nil {
		d.Add(src.pointer, src.at, "step %s has forEach, and neither job nor agent", text.Quote(s.Name)).WithHint("job: {definition: resize, input: {…}}, or an agent with its fields")
	}
	if src.job != nil {
		s.Job = d.childJob(src.job, src.pointer.Member("job"))
		d.detached(s.Job, src)
	}
	if f := src.forEach; f != nil && !d.stored {
		d.loop(f, src.pointer.Member("forEach"), s)
	}
}

// detached checks the fields of a step that does not wait for its children.
func (d *decoder) detached(job *kernel.ChildDefinition, src *stepSource) {
	if !job.Detached {
		if n := src.job.Get("undoChild"); n != nil && !d.stored {
			d.Add(src.pointer.Member("job").Member("undoChild"), n.At, "undoChild without `wait: false`").WithHint("the undo of a step that waits for its children undoes them")
		}
		return
	}
	for _, k := range src.node.Keys {
		if slices.Contains(awaitedFields, k.Name) || k.Name == "undoOrder" && !job.UndoChild {
			d.Add(src.pointer.Member(k.Name), k.At, "%s beside `wait: false`", text.Quote(k.Name)).WithHint("the step does not wait for its children")
		}
	}
}

// loop checks the form of forEach.
func (d *decoder) loop(n *text.Node, p *text.Pointer, s *kernel.StepDefinition) {
	const hint = "forEach: {in: \"${steps.list.output}\"}, or {range: [0, 100]}"
	if n.Kind != text.Object || len(n.Keys) != 1 {
		d.mismatch(n, p, "an object with in, range or artifact").WithHint(hint)
		return
	}
	v, p := &n.Kids[0], p.Member(n.Keys[0].Name)
	switch n.Keys[0].Name {
	case "in":
		if v.Kind != text.List && (v.Kind != text.String || !strings.Contains(v.Text, "${")) {
			d.mismatch(v, p, "a list, or an expression with a list").WithHint(hint)
		}
	case "range":
		if v.Kind != text.List || len(v.Kids) != 2 {
			d.mismatch(v, p, "two whole numbers").WithHint(hint)
			return
		}
		var ends [2]int
		for i := range v.Kids {
			if k := &v.Kids[i]; k.Kind == text.String && strings.Contains(k.Text, "${") {
				return // known when the step begins
			}
			ends[i] = d.count(&v.Kids[i], p.Item(i), "a range", -kernel.MaxRange, kernel.MaxRange)
		}
		most, why := kernel.MostItems(s)
		switch total := ends[1] - ends[0]; {
		case total < 0:
			d.Add(p, v.At, "the range ends before it begins")
		case total > most:
			d.AddTooLarge(p, v.At, "%d items; at most %d%s", total, most, why)
		}
	case "artifact":
		if v.Kind != text.Object && (v.Kind != text.String || !strings.Contains(v.Text, "${")) {
			d.mismatch(v, p, "an artifact of JSON lines, or an expression with one").WithHint("forEach: {artifact: \"${steps.list.output.file}\"}")
		}
	default:
		d.Add(p, n.Keys[0].At, "unknown field %s in forEach", text.Quote(n.Keys[0].Name)).WithHint(hint)
	}
}

// childJob reads job.
func (d *decoder) childJob(n *text.Node, p *text.Pointer) *kernel.ChildDefinition {
	c := &kernel.ChildDefinition{}
	if n.Kind != text.Object {
		d.mismatch(n, p, "an object with a definition").WithHint("job: {definition: resize, input: {image: \"${image}\"}}")
		return c
	}
	for i := range n.Keys {
		k, v := n.Keys[i], &n.Kids[i]
		p := p.Member(k.Name)
		switch k.Name {
		case "definition":
			c.Definition = d.childDefinition(v, p)
		case "input":
			if v.Kind != text.Null {
				c.Input = text.AppendNode(nil, v)
			}
		case "labels":
			c.Labels = d.labels(v, p)
		case "priority":
			priority := d.count(v, p, "priority", 0, perdure.MaxPriority)
			c.Priority = &priority
		case "key":
			if d.string(v, p) {
				c.Key = v.Text
			}
			if c.Key == "" {
				d.Add(p, v.At, "the key is empty").WithHint("leave it out if the jobs have none")
			}
		case "wait":
			c.Detached = d.truth(v, p) == falseWord
		case "undoChild":
			c.UndoChild = d.truth(v, p) == trueWord
		default:
			d.unknown(childFields, "a job of a step", k, p)
		}
	}
	if n.Get("definition") == nil {
		d.Add(p, n.At, "`definition` is missing").WithHint("job: {definition: resize@3}, or a definition with type and steps")
	}
	return c
}

// Words of truth.
const (
	trueWord  = "true"
	falseWord = "false"
)

// truth reads true or false.
func (d *decoder) truth(n *text.Node, p *text.Pointer) string {
	if n.Kind != text.Bool {
		d.mismatch(n, p, "true or false")
	}
	return n.Text
}

// childDefinition reads the definition of children: the name of a stored one, or a whole one.
func (d *decoder) childDefinition(n *text.Node, p *text.Pointer) json.RawMessage {
	if d.stored {
		return text.AppendNode(nil, n)
	}
	switch n.Kind {
	case text.String:
		if _, err := kernel.ParseDefinitionRef(n.Text); err != nil {
			d.Add(p, n.At, "%s", err.Error()).WithHint("definition: resize, or resize@3 for a version")
		}
	case text.Object:
		for i, k := range n.Keys {
			if k.Name == "key" || k.Name == "unique" {
				d.Add(p.Member(k.Name), k.At, "%s in the definition of a child", text.Quote(k.Name)).WithHint("write the key in job, beside definition")
			}
			if k.Name == "input" && n.Kids[i].Kind != text.Null {
				d.Add(p.Member(k.Name), k.At, "an input in the definition of a child").WithHint("write it in job, beside definition")
			}
		}
		d.check(n)
	default:
		d.mismatch(n, p, "the name of a stored definition, or a definition")
	}
	return text.AppendNode(nil, n)
}

// check reports the first faults of a definition within this one.
func (d *decoder) check(n *text.Node) {
	if len(d.List) > 0 {
		return
	}
	inner := decoder{Faults: text.Faults{Source: d.Source}, programs: d.programs, budget: d.budget, template: true}
	inner.decode(n)
	d.List = append(d.List, inner.List...)
}

// itemName reads as.
func (d *decoder) itemName(n *text.Node, p *text.Pointer) string {
	if d.stored {
		return n.Text
	}
	switch {
	case !d.string(n, p):
		return ""
	case !text.IsIdentifier(n.Text) || len(n.Text) > perdure.MaxNameLength:
		d.Add(p, n.At, "%s is no name of an item", text.Quote(n.Text)).WithHint("letters, digits and _, not starting with a digit")
	case expr.IsTaken(n.Text):
		d.Add(p, n.At, "%s has another meaning in expressions", text.Quote(n.Text)).WithHint("use another name: as: image")
	}
	return n.Text
}

// word reads one of some words.
func (d *decoder) word(n *text.Node, p *text.Pointer, words ...string) string {
	if d.string(n, p) && !slices.Contains(words, n.Text) {
		d.Add(p, n.At, "expected %s, found %s", strings.Join(words, " or "), text.Quote(n.Text))
	}
	return n.Text
}

// tolerance reads tolerate.
func (d *decoder) tolerance(n *text.Node, p *text.Pointer) *kernel.Tolerance {
	t := &kernel.Tolerance{}
	const hint = "tolerate: {failed: 1%}, or a number of children"
	if n.Kind != text.Object || n.Get("failed") == nil {
		d.mismatch(n, p, "an object with failed").WithHint("%s", hint)
		return t
	}
	for i := range n.Keys {
		v, q := &n.Kids[i], p.Member(n.Keys[i].Name)
		switch {
		case n.Keys[i].Name != "failed":
			d.unknown(tolerateFields, "tolerate", n.Keys[i], q)
		case v.Kind == text.Number:
			t.Count = d.count(v, q, "failed", 0, kernel.MaxUncollectedItems)
		case v.Kind == text.String:
			share, ok := shareOf(v.Text)
			if t.Share = share; !ok {
				d.mismatch(v, q, "a number, or a share from 0% to 100% with at most three decimals").WithHint("%s", hint)
			}
		default:
			d.mismatch(v, q, "a number or a share").WithHint("%s", hint)
		}
	}
	return t
}

// shareOf returns a share in thousandths of a percent.
func shareOf(s string) (share int, ok bool) {
	number, percent := strings.CutSuffix(s, "%")
	whole, decimals, _ := strings.Cut(number, ".")
	if !percent || len(whole) == 0 || len(whole) > 3 || len(decimals) > 3 || strings.HasSuffix(number, ".") || strings.Trim(whole+decimals, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(whole + (decimals + "000")[:3])
	return n, err == nil && n <= 100_000
}

// children compiles the expressions of a step with children. The short form becomes a job.
func (d *decoder) children(i int, ancestry *ancestry) {
	src, s, ps := &d.steps[i], &d.def.Steps[i], &d.plan.Steps[i]
	ps.Form = kernel.ByChildren
	plain := &environment{d: d, step: i, ancestry: ancestry}
	child := &environment{d: d, step: i, ancestry: ancestry}
	if n := src.forEach; n != nil {
		if s.As == kernel.DefaultItemName {
			s.As = ""
		}
		child.loop = expr.Loop(kernel.ItemName(s))
		t, templates, _ := expr.CompileTemplate(n, src.pointer.Member("forEach"), &d.Faults, plain)
		if !d.stored {
			d.artifacts(n, src.pointer.Member("forEach"), text.AppendNode(nil, n), templates)
		}
		s.ForEach, ps.Items = text.AppendNode(nil, n), t
	}
	if src.job == nil {
		d.shortForm(i, child)
		return
	}
	if n := src.job.Get("input"); n != nil && n.Kind != text.Null {
		p := src.pointer.Member("job").Member("input")
		t, _, size := expr.CompileTemplate(n, p, &d.Faults, child)
		if size > perdure.MaxPayloadBytes {
			d.AddTooLarge(p, n.At, "with its values filled in, an input of %d bytes or more; at most %d", size, perdure.MaxPayloadBytes)
		}
		ps.Child = t
	}
	if n := src.job.Get("key"); n != nil {
		p := src.pointer.Member("job").Member("key")
		ps.Key, _, _ = expr.CompileTemplate(n, p, &d.Faults, child)
		if src.forEach != nil && !d.stored && !strings.Contains(n.Text, "${") {
			d.Add(p, n.At, "the same key for all children").WithHint("key: \"%s-${%s}\"", "resize", string(child.loop))
		}
	}
}

// shortForm makes the job of the short form.
func (d *decoder) shortForm(i int, env *environment) {
	src, s, ps := &d.steps[i], &d.def.Steps[i], &d.plan.Steps[i]
	if len(d.List) > 0 {
		return
	}
	// First the expressions are compiled as they were written, so that faults have their places.
	with := func(n *text.Node, p *text.Pointer, agent string, undo bool) {
		if n != nil {
			e := *env
			e.agent, e.undo = agent, undo
			_, _, _ = expr.CompileTemplate(n, p, &d.Faults, &e)
		}
	}
	with(src.with, src.pointer.Member("with"), s.Agent, false)
	if s.Undo != nil {
		agent := s.Undo.Agent
		if agent == "" {
			agent = s.Agent
		}
		with(src.undo, src.pointer.Member("undo").Member("with"), agent, true)
	}
	with(src.limits, src.pointer.Member("limits"), "", false)
	if len(d.List) > 0 {
		return
	}
	l := lifter{d: d, env: env, values: text.Node{Kind: text.List, At: src.at}}
	step := text.Node{Kind: text.Object, At: src.at}
	for k := range src.node.Keys {
		name, v := src.node.Keys[k].Name, src.node.Kids[k]
		if !slices.Contains(fieldsOfAgent, name) {
			continue
		}
		p := src.pointer.Member(name)
		switch name {
		case "with", "limits":
			v = l.lift(&v, p, false)
		case "undo":
			undo := text.Node{Kind: text.Object, At: v.At}
			for j := range v.Keys {
				kid := v.Kids[j]
				if v.Keys[j].Name == "with" {
					kid = l.lift(&kid, p.Member("with"), true)
				}
				undo.Set(v.Keys[j].Name, kid)
			}
			v = undo
		}
		step.Set(name, v)
	}
	str := func(s string) text.Node { return text.Scalar(text.String, int(src.at), s) }
	steps := text.Node{Kind: text.Object, At: src.at}
	steps.Set(s.Name, step)
	def := text.Node{Kind: text.Object, At: src.at}
	def.Set("type", str(d.def.Type+"."+s.Name))
	def.Set("onFailure", str(string(kernel.RungUndo))) // so that it has failed; onFailure of the step is what follows then
	def.Set("steps", steps)
	def.Set("output", str("${steps."+s.Name+".output}"))
	d.check(&def)
	if len(d.List) > 0 {
		return
	}
	input := text.Node{Kind: text.Object, At: src.at}
	input.Set("item", str("${"+string(env.loop)+"}"))
	input.Set("index", str("${"+expr.IndexName+"}"))
	if len(l.values.Kids) > 0 {
		input.Set("values", l.values)
	}
	t, _, size := expr.CompileTemplate(&input, src.pointer.Member("with"), &d.Faults, env)
	if size > perdure.MaxPayloadBytes {
		d.AddTooLarge(src.pointer.Member("with"), src.at, "with its values filled in, an input of %d bytes or more; at most %d", size, perdure.MaxPayloadBytes)
	}
	ps.Child = t
	job := &kernel.ChildDefinition{Definition: text.AppendNode(nil, &def), Input: text.AppendNode(nil, &input)}
	*s = kernel.StepDefinition{Name: s.Name, After: s.After, When: s.When, OnFailure: s.OnFailure, ForEach: s.ForEach, As: s.As, MaxParallel: s.MaxParallel,
		Tolerate: s.Tolerate, ParkedIs: s.ParkedIs, UndoOrder: s.UndoOrder, Collect: s.Collect, Job: job}
}

// lifter moves expressions of the short form into the input of the child.
type lifter struct {
	d      *decoder
	env    *environment
	values text.Node // the expressions, each the whole of a string
}

// lift returns a value whose expressions refer to the input of the child. Those of an undo that refer to output, key and
// doKey stay.
func (l *lifter) lift(n *text.Node, p *text.Pointer, undo bool) text.Node {
	out := *n
	switch n.Kind {
	case text.String:
		out = text.Scalar(text.String, int(n.At), expr.Lift(n.Text, func(src string) string {
			if undo && l.ofRun(src, n, p) {
				return src
			}
			for i := range l.values.Kids {
				if l.values.Kids[i].Text == "${"+src+"}" {
					return "input.values[" + strconv.Itoa(i) + "]"
				}
			}
			l.values.Kids = append(l.values.Kids, text.Scalar(text.String, int(n.At), "${"+src+"}"))
			return "input.values[" + strconv.Itoa(len(l.values.Kids)-1) + "]"
		}))
	case text.List, text.Object:
		out.Kids = make([]text.Node, len(n.Kids))
		for i := range n.Kids {
			q := p.Item(i)
			if n.Kind == text.Object {
				q = p.Member(n.Keys[i].Name)
			}
			out.Kids[i] = l.lift(&n.Kids[i], q, undo)
		}
	}
	return out
}

// ofRun reports whether an expression of an undo refers to the run that is undone. One that refers to other values, too, can
// be evaluated neither when the child is made nor in the child, and is refused.
func (l *lifter) ofRun(src string, n *text.Node, p *text.Pointer) bool {
	c, bad, err := l.d.programs.Compile(src, false, l.env.loop, l.d.budget)
	if bad != nil || err != nil {
		return false // reported before, or by the caller
	}
	run, other := false, false
	for i := range c.Paths {
		switch c.Paths[i].Root {
		case expr.RootOutput, expr.RootKey, expr.RootDoKey:
			run = true
		default:
			other = true
		}
	}
	if run && other {
		l.d.Add(p, n.At, "an expression of the undo that refers to output, key or doKey, and to other values").WithHint("write two expressions: \"${%s}-${output.id}\"", string(l.env.loop))
	}
	return run
}

// appendOwner writes the fields of a step with children.
func appendOwner(b []byte, s *kernel.StepDefinition) []byte {
	if s.Job == nil {
		return b
	}
	b = appendText(appendRaw(b, `,"forEach":`, s.ForEach), `,"as":`, s.As)
	if s.MaxParallel != 0 {
		b = strconv.AppendInt(append(b, `,"maxParallel":`...), int64(s.MaxParallel), 10)
	}
	if s.Tolerate != nil {
		raw, _ := s.Tolerate.MarshalJSON() // cannot fail
		b = appendRaw(b, `,"tolerate":`, raw)
	}
	b = appendText(appendText(appendText(b, `,"parkedIs":`, s.ParkedIs), `,"undoOrder":`, s.UndoOrder), `,"collect":`, s.Collect)
	b = appendRaw(b, `,"job":{"definition":`, s.Job.Definition)
	b = appendRaw(b, `,"input":`, s.Job.Input)
	if len(s.Job.Labels) > 0 {
		raw, _ := json.Marshal(s.Job.Labels) // cannot fail
		b = appendRaw(b, `,"labels":`, raw)
	}
	if s.Job.Priority != nil {
		b = strconv.AppendInt(append(b, `,"priority":`...), int64(*s.Job.Priority), 10)
	}
	b = appendText(b, `,"key":`, s.Job.Key)
	if s.Job.Detached {
		b = append(b, `,"wait":false`...)
	}
	if s.Job.UndoChild {
		b = append(b, `,"undoChild":true`...)
	}
	return append(b, '}')
}

// normalizeOwner removes what equals a default.
func normalizeOwner(s *kernel.StepDefinition) {
	if s.MaxParallel == kernel.DefaultMaxParallel {
		s.MaxParallel = 0
	}
	if s.Tolerate != nil && *s.Tolerate == (kernel.Tolerance{}) {
		s.Tolerate = nil
	}
	if s.Collect == kernel.CollectNone {
		s.Collect = ""
	}
}
