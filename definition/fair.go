package definition

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition/internal/expr"
	"github.com/perdure/perdure/definition/internal/text"
	"github.com/perdure/perdure/internal/kernel"
)

// CompileFairBy compiles the expression by which an agent's ready steps are divided into shares. It may read the key, the
// labels and the type of the job. An error says what is wrong.
func (c *Compiler) CompileFairBy(expression string) (kernel.Template, error) {
	src, err := json.Marshal("${" + expression + "}")
	if err != nil {
		return nil, err
	}
	n, bad := text.ReadJSON(src)
	fs := text.Faults{Source: text.NewSource(src)}
	if bad != nil || strings.ContainsAny(expression, "{}") {
		return nil, &perdure.Error{Code: perdure.CodeInvalid, Message: "fairBy is not an expression without braces", Hint: "for example: job.labels.customer"}
	}
	t, _, _ := expr.CompileTemplate(&n, nil, &fs, &fairEnvironment{faults: &fs, programs: &c.programs})
	if len(fs.List) > 0 {
		return nil, &perdure.Error{Code: perdure.CodeInvalid, Message: "fairBy: " + fs.List[0].Message, Hint: "job.labels.NAME, job.type and job.key can be read"}
	}
	return t, nil
}

// fairEnvironment is what fairBy may refer to.
type fairEnvironment struct {
	faults   *text.Faults
	programs *expr.Programs
}

var fairNames = []string{"key", "labels", "type"}

// Compile compiles an expression, and checks what it reads.
func (f *fairEnvironment) Compile(n *text.Node, p *text.Pointer, s expr.Span) (*expr.Compiled, json.RawMessage) {
	c, bad, err := f.programs.Compile(s.Expr, false, nil)
	if err != nil {
		bad = &expr.Fault{Message: err.Error()}
	}
	if bad == nil {
		for i := range c.Paths {
			q := &c.Paths[i]
			if q.Root != expr.RootJob || len(q.Selectors) == 0 || !slices.Contains(fairNames, q.Selectors[0].Name) {
				bad = &expr.Fault{At: q.At, Message: text.Quote(q.String()) + " cannot be read here", Hint: "job.labels.NAME, job.type and job.key can"}
				break
			}
		}
	}
	if bad != nil {
		bad.Record(f.faults, n, p, s.At)
		return nil, nil
	}
	return c, nil
}

// Secret refuses references to secrets.
func (f *fairEnvironment) Secret(string, int) *expr.Fault {
	return &expr.Fault{Message: "a secret cannot be read here"}
}

// Steps adds nothing: outputs cannot be read.
func (f *fairEnvironment) Steps(steps []int, _ *expr.Compiled) []int { return steps }
