package definition

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/perdure/perdure"
)

// sight is what the expressions of one place may refer to.
type sight struct {
	d        *decoder
	step     int // index of the step; -1: the job itself
	undo     bool
	ancestry *ancestry // nil: not to be asked
}

// expression compiles one ${…} of n, or all of its text where s covers it, checks what it refers to,
// and evaluates it where it depends on the input alone: then its value is known. Nil if there were faults.
func (d *decoder) expression(n *node, p *pointer, s span, truth bool, see *sight) (c *compiled, known json.RawMessage) {
	if d.exprs++; d.exprs > perdure.MaxExpressions && !d.stored {
		if d.exprs == perdure.MaxExpressions+1 {
			d.large(p, n.at, "more than %d expressions in one definition", perdure.MaxExpressions)
		}
		return nil, nil
	}
	c, bad, err := d.programs.compile(s.expr, truth, d.budget)
	if bad != nil {
		d.misfit(p, n, s.at, bad)
	}
	if bad != nil || err != nil { // err comes from the budget, and the caller returns it
		return nil, nil
	}
	if d.stored {
		return c, nil
	}
	for i := range c.paths {
		if bad := see.check(&c.paths[i]); bad != nil {
			bad.at = c.paths[i].at
			d.misfit(p, n, s.at, bad)
			return nil, nil
		}
	}
	x := c.expr
	if !x.early {
		return c, nil
	}
	// What is known at submission is evaluated now, so that its errors are refusals.
	d.earlies = append(d.earlies, early{x, truth})
	if truth {
		_, err = x.truth(&d.early)
	} else {
		known, err = x.raw(&d.early)
	}
	if err != nil {
		d.misfit(p, n, s.at, &misfit{message: err.Error(), large: errors.Is(err, errWork)})
		return nil, nil
	}
	return c, known
}

// misfit records the fault of an expression that begins at byte at of the text of n.
func (d *decoder) misfit(p *pointer, n *node, at int, m *misfit) {
	f := d.add(p, d.inside(n, at+m.at), "%s", m.message)
	if m.large {
		f.code = perdure.CodeTooLarge
	}
	if m.hint != "" {
		f.hinted("%s", m.hint)
	}
}

// inside is the place of the ith byte of n's text where the text stands there as it is: unquoted, or
// in quotes without escapes before it. Otherwise it is the place of n.
func (d *decoder) inside(n *node, i int) int32 {
	src := d.text.src
	at := int(n.at)
	if at < len(src) && (src[at] == '"' || src[at] == '\'') {
		at++
	}
	i = min(i, len(n.text))
	if at+i > len(src) || string(src[at:at+i]) != n.text[:i] {
		return n.at
	}
	return int32(at + i)
}

// check says what is wrong with a reference; nil if nothing is.
func (s *sight) check(p *path) *misfit {
	switch p.root {
	case rootStep:
		return s.checkStep(p)
	case rootJob:
		return s.checkJob(p)
	case rootOutput, rootKey, rootDoKey:
		switch {
		case s.undo:
		case p.root == rootOutput:
			return &misfit{message: "`output` is seen in an undo only", hint: "the output of another step is steps.NAME.output"}
		default:
			return &misfit{message: quote(rootNames[p.root]) + " is seen in an undo only",
				hint: "the key of the job is job.key; an agent is handed the step's key with each run"}
		}
	}
	return nil
}

var jobNames = []string{"id", "key", "labels", "type"}

func (s *sight) checkJob(p *path) *misfit {
	if len(p.pick) == 0 || p.pick[0].list {
		if s.step < 0 {
			return &misfit{message: "the job's id is not known before it is accepted", hint: "job.type and job.labels are"}
		}
		return nil
	}
	name := p.pick[0].name
	switch {
	case !slices.Contains(jobNames, name):
		return &misfit{message: "no field " + name + " in job; there are " + strings.Join(jobNames, ", "),
			hint: didYouMean(name, jobNames)}
	case s.step < 0 && (name == "id" || name == "key"):
		return &misfit{message: "job." + name + " is not known here: this is evaluated before the job is accepted",
			hint: "input, job.type and job.labels are"}
	}
	return nil
}

func didYouMean(word string, among []string) string {
	if near := nearest(word, among); near != "" {
		return "did you mean " + quote(near) + "?"
	}
	return ""
}

func (s *sight) checkStep(p *path) *misfit {
	if s.step < 0 {
		return &misfit{message: "no step has run when this is evaluated", hint: "input, job.type and job.labels are known"}
	}
	j, ok := s.d.index[p.step]
	own := s.d.def.Steps[s.step].Name
	switch {
	case !ok:
		return &misfit{message: "there is no step " + quote(p.step), hint: suggest(p.step, s.d.stepNames())}
	case j == s.step && s.undo:
		return &misfit{message: "step " + quote(own) + " refers to itself", hint: "in its undo, what it did is `output`"}
	case j == s.step:
		return &misfit{message: "step " + quote(own) + " refers to its own output", hint: "it is there only once the step is done"}
	case s.ancestry != nil && !s.ancestry.before(j, s.step):
		return &misfit{message: "step " + quote(own) + " does not come after " + quote(p.step),
			hint: "add " + quote(p.step) + " to its after, so that the output is there"}
	}
	return nil
}

// refs adds the steps that an expression reads to those of a template.
func (s *sight) refs(refs []int, c *compiled) []int {
	for i := range c.paths {
		if c.paths[i].root != rootStep {
			continue
		}
		if j, ok := s.d.index[c.paths[i].step]; ok && !slices.Contains(refs, j) {
			refs = append(refs, j)
		}
	}
	return refs
}
