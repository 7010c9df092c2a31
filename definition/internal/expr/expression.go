package expr

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/checker"
	"github.com/expr-lang/expr/compiler"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/types"
	"github.com/expr-lang/expr/vm"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition/internal/text"
)

// Expression is the text inside a ${…}, or a `when`, that was compiled without an error. It is immutable.
//
// Most are only a path, which is looked up in raw JSON, so that numbers keep their digits. The others are programs of
// expr's virtual machine. expr bounds the nodes of a syntax tree and allocations, but not the time that nested loops,
// regular expressions and doubled strings take. Those bounds are in rewrite.go and functions.go.
//
// A program may take a hundred times the bytes of its text, and a definition may have thousands of expressions. An
// expression therefore keeps only its text, and its program is in a cache that is bounded in bytes (program.go). A
// program that was evicted is compiled again when the expression is evaluated.
type Expression struct {
	src       string // as it was written
	condition bool   // it gives true or false
	loop      Loop
	Early     bool  // all that it reads is known when a job is submitted
	path      *Path // nil: a program
	programs  *Programs
}

// maxNodes bounds the syntax tree of one expression.
const maxNodes = 1000

// Fault is the fault of an expression, at a byte offset in it.
type Fault struct {
	At            int
	Message, Hint string
	Large         bool // over a bound
}

// Record adds the fault to those of the text. The expression begins at byte at of the text of n, the value of p.
func (m *Fault) Record(fs *text.Faults, n *text.Node, p *text.Pointer, at int) {
	f := fs.Add(p, fs.Source.Inside(n, at+m.At), "%s", m.Message)
	if m.Large {
		f.Code = perdure.CodeTooLarge
	}
	if m.Hint != "" {
		f.WithHint("%s", m.Hint)
	}
}

// compileExpression compiles src. If truth is set, its result must be true or false.
func compileExpression(src string, truth bool, loop Loop) (*Compiled, *Fault) {
	if len(src) > perdure.MaxExpressionBytes {
		return nil, &Fault{Large: true, Message: fmt.Sprintf("an expression of %d bytes; at most %d", len(src), perdure.MaxExpressionBytes),
			Hint: "let an agent compute what takes that many words"}
	}
	src = strings.Clone(src) // otherwise the whole text around it would stay in memory
	trimmed := strings.TrimSpace(src)
	if trimmed == "" {
		return nil, &Fault{Message: "an empty expression"}
	}
	c := &Compiled{Expr: &Expression{src: src, condition: truth, loop: loop}}
	if p, ok := parsePath(trimmed, loop); ok {
		p.At = strings.Index(src, trimmed)
		c.Paths = []Path{p}
		c.Expr.path = &c.Paths[0]
	} else if bad := c.compile(); bad != nil {
		return nil, bad
	}
	c.Expr.Early = !slices.ContainsFunc(c.Paths, func(p Path) bool { return !p.early() })
	return c, nil
}

// compile makes the program.
func (c *Compiled) compile() *Fault {
	src, conf := c.Expr.src, newConfig()
	tree, err := parser.ParseWithConfig(src, conf)
	if err != nil {
		return faultOf(src, err)
	}
	r := rewriter{src: src, names: c.Expr.loop}
	r.rewrite(&tree.Node, false)
	if r.bad != nil {
		return r.bad
	}
	result, err := checker.Check(tree, conf)
	if err != nil {
		return faultOf(src, err)
	}
	if c.Expr.condition && result.Kind() != reflect.Bool && result.Kind() != reflect.Interface {
		return &Fault{Message: "a condition must be true or false, this is " + goKind(result), Hint: "compare it with something: input.amount > 0"}
	}
	// The program keeps a reference to the root of its syntax tree, which it does not need. This root compiles to no
	// code of its own. The tree below it, which takes most of the memory, is released here.
	root := &ast.SequenceNode{Nodes: []ast.Node{tree.Node}}
	tree.Node = root
	c.prog, err = compiler.Compile(tree, conf)
	root.Nodes = nil
	if err != nil {
		return faultOf(src, err)
	}
	c.Paths = r.paths
	return nil
}

// evalName is the variable that hands the *evaluation to the functions of this package. It is no name of the language.
const evalName = "@"

// newConfig returns the configuration of expr: of its own functions those that loop over a predicate, and the functions of
// this package.
func newConfig() *conf.Config {
	c := &conf.Config{
		ShortCircuit: true,
		MaxNodes:     maxNodes,
		Functions:    functions,
		Disabled:     disabled,
	}
	c.WithEnv(types.Map{evalName: types.Any})
	return c
}

// faultOf converts an error of expr.
func faultOf(src string, err error) *Fault {
	var e *file.Error
	if !errors.As(err, &e) {
		return &Fault{Message: "this expression does not compile: " + err.Error()}
	}
	m := &Fault{At: runeOffset(src, e.From), Message: "this expression does not compile: " + plainMessage(e.Message)}
	switch {
	case strings.HasSuffix(e.Message, "unexpected token EOF"):
		m.At, m.Message = len(src), "this expression does not compile: it ends too early"
	case m.At > 0 && src[m.At-1] == '$':
		m.At--
		m.Hint = "all of this is an expression already: leave out ${ and }"
	case strings.Contains(src, "==="):
		m.Hint = "equal is =="
	}
	return m
}

// goKind names the type of a literal or of a function's result.
func goKind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int, reflect.Float64:
		return text.Number.String()
	case reflect.String:
		return text.String.String()
	case reflect.Slice:
		return text.List.String()
	case reflect.Map:
		return text.Object.String()
	}
	return t.String()
}

// runeOffset is the byte offset of the nth rune.
func runeOffset(s string, n int) int {
	at := 0
	for range n {
		if at >= len(s) {
			break
		}
		_, size := utf8.DecodeRuneInString(s[at:])
		at += size
	}
	return at
}

// plainMessage rewords the messages of expr, which name types of Go and tokens, in terms of JSON.
func plainMessage(s string) string {
	if kind, rest, ok := strings.Cut(s, `("`); ok && strings.HasPrefix(kind, "unexpected token ") && strings.HasSuffix(rest, `")`) {
		return "unexpected " + text.Quote(strings.TrimSuffix(rest, `")`))
	}
	if conversion, ok := strings.CutPrefix(s, "interface conversion: interface {} is "); ok {
		if found, expected, ok := strings.Cut(conversion, ", not "); ok {
			return "this is " + plainType(found) + ", not " + plainType(expected)
		}
	}
	return plainNames.Replace(s)
}

func plainType(name string) string {
	switch name {
	case "int", "float64", "text.Digits":
		return text.Number.String()
	case "string":
		return text.String.String()
	case "bool":
		return text.Bool.String()
	case "nil":
		return text.Null.String()
	case "[]interface {}", "[]int":
		return text.List.String()
	case "map[string]interface {}":
		return text.Object.String()
	}
	return plainNames.Replace(name)
}

var plainNames = strings.NewReplacer("map[string]interface {}", "an object", "[]interface {}", "a list", "interface {}", "a value",
	"<nil>", "null", "text.Digits", "a number beyond 64 bits", "float64", "a number", "runtime error: ", "",
	"memory budget exceeded", ErrWork.Error())

// evaluation is one run of a program: its evaluator, the paths that it has read, and the work that it may still do.
type evaluation struct {
	view   *Evaluator
	paths  []Path
	values []any // values of the paths; unseen until looked up
	work   int
}

type notRead struct{}

func (e *evaluation) spend(n int) error {
	if e.work -= n; e.work < 0 {
		return ErrWork
	}
	return e.view.spend(n)
}

// Raw evaluates the expression to JSON. The value of a path keeps its digits.
func (x *Expression) Raw(v *Evaluator) (json.RawMessage, error) {
	if x.path != nil {
		raw, err := x.path.find(v, false)
		if err == nil {
			err = v.spend(1 + len(raw)/copiedBytes)
		}
		if err != nil {
			return nil, x.failed(err)
		}
		return text.Compact(raw), nil
	}
	result, err := x.value(v)
	if err != nil {
		return nil, err
	}
	b, err := appendValue(nil, result)
	if err == nil && len(b) > perdure.MaxPayloadBytes {
		err = fmt.Errorf("the result is larger than %d bytes", perdure.MaxPayloadBytes)
	}
	if err == nil {
		err = v.spend(len(b) / copiedBytes)
	}
	if err != nil {
		return nil, x.failed(err)
	}
	return b, nil
}

// Truth evaluates a condition.
func (x *Expression) Truth(v *Evaluator) (bool, error) {
	if x.path != nil {
		raw, err := x.path.find(v, false)
		switch {
		case err != nil:
			return false, x.failed(err)
		case string(raw) != "true" && string(raw) != "false":
			return false, x.failed(fmt.Errorf("a condition must be true or false, this is %s", kindOf(raw)))
		}
		return string(raw) == "true", nil
	}
	result, err := x.value(v)
	if err != nil {
		return false, err
	}
	yes, ok := result.(bool)
	if !ok {
		return false, x.failed(fmt.Errorf("a condition must be true or false, this is %s", kindOfValue(result)))
	}
	return yes, nil
}

// value runs the program.
func (x *Expression) value(v *Evaluator) (any, error) {
	c, err := x.programs.program(x, v.scope.Budget)
	if err != nil {
		return nil, x.failed(err)
	}
	e := &evaluation{view: v, paths: c.Paths, work: exprWork, values: make([]any, len(c.Paths))}
	for i := range e.values {
		e.values[i] = notRead{}
	}
	result, err := vm.Run(c.prog, map[string]any{evalName: e})
	if err != nil {
		return nil, x.failed(err)
	}
	return result, nil
}

// failed adds the text of the expression to an evaluation error. If err is ErrWork, errors.Is still finds it in the
// result.
func (x *Expression) failed(err error) error {
	worded := &evaluationError{text: text.Quote(strings.TrimSpace(x.src)) + ": " + err.Error()}
	var e *file.Error
	if errors.As(err, &e) {
		worded.text = text.Quote(strings.TrimSpace(x.src)) + ": " + plainMessage(e.Message)
	}
	if errors.Is(err, ErrWork) || strings.HasSuffix(worded.text, ErrWork.Error()) {
		worded.cause = ErrWork
	}
	return worded
}

type evaluationError struct {
	text  string
	cause error
}

func (e *evaluationError) Error() string { return e.text }

func (e *evaluationError) Unwrap() error { return e.cause }

func kindOfValue(v any) text.Kind {
	b, err := appendValue(nil, v)
	if err != nil {
		return text.Number
	}
	return kindOf(b)
}
