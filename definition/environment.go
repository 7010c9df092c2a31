package definition

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition/internal/expr"
	"github.com/perdure/perdure/definition/internal/text"
	"github.com/perdure/perdure/internal/kernel"
)

// environment is what the expressions at one place may refer to. It is the expr.Environment of the templates there.
type environment struct {
	d        *decoder
	step     int // index of the step; -1: the job itself
	undo     bool
	done     bool      // all steps are settled: the output of the job
	agent    string    // which gets the value as its input; "": none does
	loop     expr.Loop // the name of the item, if the place belongs to a child of forEach
	ancestry *ancestry // nil: the graph has faults, and the order of steps is not checked
}

// expression compiles one ${…} of n, checks what it refers to, and evaluates it if it depends on the input alone: then its
// value is known. It returns nil if there were faults.
func (d *decoder) expression(n *text.Node, p *text.Pointer, s expr.Span, truth bool, env *environment) (c *expr.Compiled, known json.RawMessage) {
	if d.expressionCount++; d.expressionCount > perdure.MaxExpressions && !d.stored {
		if d.expressionCount == perdure.MaxExpressions+1 {
			d.AddTooLarge(p, n.At, "more than %d expressions in one definition", perdure.MaxExpressions)
		}
		return nil, nil
	}
	c, bad, err := d.programs.Compile(s.Expr, truth, env.loop, d.budget)
	if bad != nil {
		bad.Record(&d.Faults, n, p, s.At)
	}
	if bad != nil || err != nil { // err comes from the budget, and the caller returns it
		return nil, nil
	}
	if d.stored {
		return c, nil
	}
	for i := range c.Paths {
		if bad := env.check(&c.Paths[i]); bad != nil {
			bad.At = c.Paths[i].At
			bad.Record(&d.Faults, n, p, s.At)
			return nil, nil
		}
	}
	x := c.Expr
	if !x.Early || d.template {
		return c, nil
	}
	// What is known at submission is evaluated now, so that its errors are refusals.
	d.evaluated = append(d.evaluated, evaluatedExpression{x, truth})
	if truth {
		_, err = x.Truth(&d.evaluator)
	} else {
		known, err = x.Raw(&d.evaluator)
	}
	if err != nil {
		(&expr.Fault{Message: err.Error(), Large: errors.Is(err, expr.ErrWork)}).Record(&d.Faults, n, p, s.At)
		return nil, nil
	}
	return c, known
}

// Compile compiles an expression of a template at this place.
func (s *environment) Compile(n *text.Node, p *text.Pointer, x expr.Span) (*expr.Compiled, json.RawMessage) {
	return s.d.expression(n, p, x, false, s)
}

// check returns the fault of a reference, or nil.
func (s *environment) check(p *expr.Path) *expr.Fault {
	switch p.Root {
	case expr.RootStep:
		return s.checkStep(p)
	case expr.RootJob:
		return s.checkJob(p)
	case expr.RootOutput, expr.RootKey, expr.RootDoKey:
		switch {
		case s.undo:
		case p.Root == expr.RootOutput:
			return &expr.Fault{Message: "`output` is seen in an undo only", Hint: "the output of another step is steps.NAME.output"}
		default:
			return &expr.Fault{Message: text.Quote(expr.RootNames[p.Root]) + " is seen in an undo only",
				Hint: "the key of the job is job.key; an agent is handed the step's key with each run"}
		}
	}
	return nil
}

// Secret returns why a string of this template may not refer to secrets, or nil.
func (s *environment) Secret(pointer string, n int) *expr.Fault {
	switch {
	case s.d.stored:
	case s.agent == "":
		return &expr.Fault{Message: "a secret can be used in the input of an agent only", Hint: "write ${secret.NAME} in the `with` of a step or of its undo"}
	case formOf(s.agent) != kernel.ByAgent:
		return &expr.Fault{Message: "`" + s.agent + "` takes no secrets", Hint: "it is not carried out by an agent, which would resolve them"}
	case n > perdure.MaxSecrets:
		return &expr.Fault{Large: true, Message: fmt.Sprintf("more than %d references to secrets in one input", perdure.MaxSecrets), Hint: "a secret may be a JSON text that has several values"}
	case len(pointer) > perdure.MaxSecretPointerBytes:
		return &expr.Fault{Large: true, Message: fmt.Sprintf("the place of this secret, as a JSON Pointer, has %d bytes; at most %d", len(pointer), perdure.MaxSecretPointerBytes),
			Hint: "use shorter field names, or nest it less deeply"}
	}
	return nil
}

var jobNames = []string{"id", "key", "labels", "type"}

func (s *environment) checkJob(p *expr.Path) *expr.Fault {
	if len(p.Selectors) == 0 || p.Selectors[0].List {
		if s.step < 0 && !s.done {
			return &expr.Fault{Message: "the job's id is not known before it is accepted", Hint: "job.type and job.labels are"}
		}
		return nil
	}
	name := p.Selectors[0].Name
	switch {
	case !slices.Contains(jobNames, name):
		return &expr.Fault{Message: "no field " + name + " in job; there are " + strings.Join(jobNames, ", "),
			Hint: text.DidYouMean(name, jobNames)}
	case s.step < 0 && !s.done && (name == "id" || name == "key"):
		return &expr.Fault{Message: "job." + name + " is not known here: this is evaluated before the job is accepted",
			Hint: "input, job.type and job.labels are"}
	}
	return nil
}

func (s *environment) checkStep(p *expr.Path) *expr.Fault {
	if s.done {
		if _, ok := s.d.index[p.Step]; !ok {
			return &expr.Fault{Message: "there is no step " + text.Quote(p.Step), Hint: text.Suggest(p.Step, s.d.stepNames())}
		}
		return nil
	}
	if s.step < 0 {
		return &expr.Fault{Message: "no step has run when this is evaluated", Hint: "input, job.type and job.labels are known"}
	}
	j, ok := s.d.index[p.Step]
	own := s.d.def.Steps[s.step].Name
	switch {
	case !ok:
		return &expr.Fault{Message: "there is no step " + text.Quote(p.Step), Hint: text.Suggest(p.Step, s.d.stepNames())}
	case j == s.step && s.undo:
		return &expr.Fault{Message: "step " + text.Quote(own) + " refers to itself", Hint: "in its undo, what it did is `output`"}
	case j == s.step:
		return &expr.Fault{Message: "step " + text.Quote(own) + " refers to its own output", Hint: "it is there only once the step is done"}
	case s.ancestry != nil && !s.ancestry.before(j, s.step):
		return &expr.Fault{Message: "step " + text.Quote(own) + " does not come after " + text.Quote(p.Step),
			Hint: "add " + text.Quote(p.Step) + " to its after, so that the output is there"}
	}
	return nil
}

// Steps adds the steps whose outputs an expression reads to those of a template.
func (s *environment) Steps(refs []int, c *expr.Compiled) []int {
	for i := range c.Paths {
		if c.Paths[i].Root != expr.RootStep {
			continue
		}
		if j, ok := s.d.index[c.Paths[i].Step]; ok && !slices.Contains(refs, j) {
			refs = append(refs, j)
		}
	}
	return refs
}
