package definition

import (
	"slices"
	"strings"
	"time"

	"perdure"
)

// decoder makes a definition, and the plan of it, from one document's tree. It goes on after a fault,
// so that one answer names all of them.
type decoder struct {
	faults
	cache  *cache
	opts   Options
	stored bool // as a store keeps it: no checks, no evaluation; the key is no template

	def   *perdure.Definition
	chain bool
	input *node
	key   *node
	prio  *node
	steps []stepSource
	index map[string]int
	plan  *perdure.Plan
	early view // what is known at submission
}

// stepSource is a step and the places it was read from.
type stepSource struct {
	at               int32
	pointer          *pointer
	after            []place
	when, with, undo *node // undo: the undo's with
	undoAt           int32
	node             *node
}

// place is a name and where it stands.
type place struct {
	name string
	at   int32
}

// decode is the whole way from tree to plan; nil if there were faults.
func (d *decoder) decode(n *node) *perdure.Plan {
	if n.kind != kindObject {
		d.add(nil, n.at, "a definition is an object with a type and steps, not %s", n.kind)
		return nil
	}
	d.def = &perdure.Definition{}
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
		case "type":
			seen |= 1
			d.def.Type = d.name(v, p)
		case "key":
			d.key = v
		case "priority":
			d.prio = v
		case "labels":
			d.def.Labels = d.labels(v, p)
		case "input":
			d.input = v
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
	d.def.Steps = make(perdure.StepDefinitions, len(n.kids))
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
func (d *decoder) step(s *perdure.StepDefinition, src *stepSource, n *node) {
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

// ——— scalars ———

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
	case !plainName(n.text):
		d.add(p, n.at, "%s is no %s", quote(n.text), what).hinted("letters, digits, `.`, `_` and `-`, starting with a letter or digit")
	}
}

func plainName(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9'
		if !letter && (i == 0 || c != '.' && c != '_' && c != '-') {
			return false
		}
	}
	return s != ""
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

// ——— ladders ———

func (d *decoder) retry(n *node, p *pointer) *perdure.Retry {
	if n.kind != kindObject {
		d.wrong(n, p, "an object such as {attempts: 5, backoff: 1s}")
		return nil
	}
	r := &perdure.Retry{}
	for i, k := range n.keys {
		v, p := &n.kids[i], p.member(k.name)
		switch k.name {
		case "attempts":
			r.Attempts = d.count(v, p, "attempts", 1, perdure.MaxAttempts)
		case "backoff":
			r.Backoff = d.duration(v, p)
		case "maxBackoff":
			r.MaxBackoff = d.duration(v, p)
		case "notOn":
			r.NotOn = d.codes(v, p)
		default:
			d.unknown(retryFields, "retry", k, p)
		}
	}
	if b := r.Backoff; b > 0 && r.MaxBackoff > 0 && r.MaxBackoff < b {
		d.add(p.member("maxBackoff"), n.get("maxBackoff").at, "maxBackoff %s is below backoff %s", r.MaxBackoff, b)
	} else if b == 0 && r.MaxBackoff > 0 && time.Duration(r.MaxBackoff) < perdure.DefaultBackoff {
		d.add(p.member("maxBackoff"), n.get("maxBackoff").at, "maxBackoff %s is below backoff, which is %s if nothing is said", r.MaxBackoff, perdure.DefaultBackoff)
	}
	return r
}

// codes reads a list of error codes.
func (d *decoder) codes(n *node, p *pointer) []string {
	if n.kind != kindList {
		d.wrong(n, p, "a list of error codes")
		return nil
	}
	var codes []string
	for i := range n.kids {
		v, p := &n.kids[i], p.item(i)
		switch {
		case !d.string(v, p):
		case v.text == "":
			d.add(p, v.at, "an empty error code")
		case len(v.text) > perdure.MaxCodeLength:
			d.large(p, v.at, "an error code of %d characters; at most %d", len(v.text), perdure.MaxCodeLength)
		default:
			codes = append(codes, v.text)
		}
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

// ladder reads one rung, or a list of them.
func (d *decoder) ladder(n *node, p *pointer) perdure.Ladder {
	if n.kind != kindList {
		r, ok := d.rung(n, p)
		if !ok {
			return nil
		}
		return perdure.Ladder{r}
	}
	switch {
	case len(n.kids) == 0:
		d.add(p, n.at, "a ladder without rungs").hinted("leave it out, or write park")
	case len(n.kids) > perdure.MaxRungs:
		d.large(p, n.at, "%d rungs; at most %d", len(n.kids), perdure.MaxRungs)
		return nil
	}
	var l perdure.Ladder
	end := ""
	for i := range n.kids {
		v, p := &n.kids[i], p.item(i)
		if end != "" {
			d.add(p, v.at, "never reached: the ladder ends at `%s` above it", end)
			break
		}
		r, ok := d.rung(v, p)
		if !ok {
			continue
		}
		if r.Kind == perdure.RungPark || r.Kind == perdure.RungUndo || r.Kind == perdure.RungSkip {
			end = string(r.Kind)
		}
		l = append(l, r)
	}
	return l
}

var rungWords = []string{"park", "undo", "skip", "wait", "restart", "alert"}

// rung reads one rung: a word, or an object of one.
func (d *decoder) rung(n *node, p *pointer) (r perdure.Rung, ok bool) {
	if n.kind == kindString {
		switch r.Kind = perdure.RungKind(n.text); r.Kind {
		case perdure.RungPark, perdure.RungUndo, perdure.RungSkip:
			return r, true
		case perdure.RungWait, perdure.RungRestart, perdure.RungAlert:
			d.add(p, n.at, "`%s` needs a value", n.text).hinted("{wait: 1h, times: 4}, {restart: 3}, {alert: NAME}")
			return r, false
		}
		d.add(p, n.at, "unknown word %s in onFailure", quote(n.text)).hinted("%s", suggest(n.text, rungWords))
		return r, false
	}
	if n.kind != kindObject || len(n.kids) == 0 {
		d.wrong(n, p, "park, undo, skip, {wait: 1h, times: 4}, {restart: N} or {alert: NAME}")
		return r, false
	}
	before := len(d.list)
	for i, k := range n.keys {
		v, p := &n.kids[i], p.member(k.name)
		word := perdure.RungKind(k.name)
		switch word {
		case perdure.RungWait, perdure.RungRestart, perdure.RungAlert:
			if r.Kind != "" {
				d.add(p, k.at, "two words in one rung").hinted("each rung is an entry of its own in the list")
				return r, false
			}
			r.Kind = word
		}
		switch word {
		case perdure.RungWait:
			r.For = d.duration(v, p)
		case perdure.RungRestart:
			r.Times = d.count(v, p, "restart", 1, perdure.MaxRestarts)
		case perdure.RungAlert:
			r.Name = d.name(v, p)
		case "times":
			if n.get("wait") == nil {
				d.add(p, k.at, "`times` without `wait`")
				return r, false
			}
			r.Times = d.count(v, p, "times", 1, perdure.MaxWaitTimes)
		case perdure.RungPark, perdure.RungUndo, perdure.RungSkip:
			d.add(p, k.at, "`%s` is a word without a value", k.name)
		default:
			d.add(p, k.at, "unknown word %s in onFailure", quote(k.name)).hinted("%s", suggest(k.name, append(rungWords, "times")))
		}
	}
	if r.Kind == perdure.RungWait && r.Times == 0 {
		r.Times = 1
	}
	return r, len(d.list) == before && r.Kind != ""
}
