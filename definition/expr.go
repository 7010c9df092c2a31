package definition

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/expr-lang/expr/checker"
	"github.com/expr-lang/expr/compiler"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/types"
	"github.com/expr-lang/expr/vm"

	"perdure"
)

// expression is the compiled inside of a ${…}, or a `when`. It is immutable.
//
// Most are nothing but a path, which is looked up in raw JSON and keeps its digits. The others run in
// expr's machine, under bounds of our own (rewrite.go, functions.go): what expr bounds is nodes and
// allocation, not the time that nested loops, regular expressions and doubled strings take.
type expression struct {
	src   string
	paths []path      // what it reads
	prog  *vm.Program // nil: the value of paths[0]
}

// maxExprNodes bounds the syntax tree of one expression.
const maxExprNodes = 1000

// misfit is the fault of an expression, at a byte offset in it.
type misfit struct {
	at            int
	message, hint string
}

// compileExpr compiles src; truth says that it must give true or false.
func compileExpr(src string, truth bool) (*expression, *misfit) {
	if len(src) > perdure.MaxExpressionBytes {
		return nil, &misfit{message: fmt.Sprintf("an expression of %d bytes; at most %d", len(src), perdure.MaxExpressionBytes),
			hint: "let an agent compute what takes that many words"}
	}
	trimmed := strings.TrimSpace(src)
	if trimmed == "" {
		return nil, &misfit{message: "an empty expression"}
	}
	if p, ok := parsePath(trimmed); ok {
		p.at = strings.Index(src, trimmed)
		return &expression{src: trimmed, paths: []path{p}}, nil
	}
	return compileProgram(src, truth)
}

func compileProgram(src string, truth bool) (*expression, *misfit) {
	c := newConfig(truth)
	tree, err := parser.ParseWithConfig(src, c)
	if err != nil {
		return nil, misfitOf(src, err)
	}
	r := rewriter{src: src}
	r.rewrite(&tree.Node, false)
	if r.bad != nil {
		return nil, r.bad
	}
	if _, err := checker.Check(tree, c); err != nil {
		return nil, misfitOf(src, err)
	}
	prog, err := compiler.Compile(tree, c)
	if err != nil {
		return nil, misfitOf(src, err)
	}
	return &expression{src: strings.TrimSpace(src), paths: r.paths, prog: prog}, nil
}

// evalName is the variable that carries the *evaluation into our functions; no user can write it.
const evalName = "@"

// newConfig is expr's configuration: of its own functions only those that loop over a predicate, and
// beside them ours.
func newConfig(truth bool) *conf.Config {
	c := &conf.Config{
		ShortCircuit: true,
		MaxNodes:     maxExprNodes,
		Builtins:     nil,
		Functions:    functions,
		Disabled:     disabled,
	}
	c.WithEnv(types.Map{evalName: types.Any})
	if truth {
		c.Expect, c.ExpectAny = reflect.Bool, true
	}
	return c
}

// misfitOf takes place and words out of one of expr's errors.
func misfitOf(src string, err error) *misfit {
	var e *file.Error
	if !errors.As(err, &e) {
		return &misfit{message: "this expression does not compile: " + err.Error()}
	}
	m := &misfit{at: runeOffset(src, e.From), message: "this expression does not compile: " + plainWords(e.Message)}
	switch {
	case strings.Contains(e.Message, "expected bool"):
		m.message = "a condition must be true or false: " + plainWords(e.Message)
	case m.at < len(src) && src[m.at] == '$':
		m.hint = "the whole of it is an expression already: leave out ${ and }"
	case strings.Contains(src, "&&&") || strings.Contains(src, "==="):
		m.hint = "equal is ==, and is &&"
	}
	return m
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

// plainWords puts expr's messages, which speak of Go, into the words of JSON.
func plainWords(s string) string {
	return strings.NewReplacer("interface {}", "a value", "map[string]a value", "an object", "[]a value", "a list",
		"<nil>", "null", "map[string]interface {}", "an object", "[]interface {}", "a list",
		"definition.digits", "a number beyond 64 bits", "float64", "a number", "runtime error: ", "").Replace(s)
}

// evaluation is one run of an expression: what it sees, what it has looked up, and how much work it
// may still do.
type evaluation struct {
	scope *perdure.Scope
	expr  *expression
	seen  []any // values of expr.paths; unseen until looked up
	work  int
}

type unseen struct{}

// maxWork bounds one evaluation: values and, eight at a time, bytes that it may go through. It takes
// some tens of milliseconds to use up.
const maxWork = 4 << 20

var errWork = errors.New("the expression takes too much work; let an agent compute this")

// spend pays for n units of work.
func (e *evaluation) spend(n int) error {
	if e.work -= n; e.work < 0 || n < 0 {
		return errWork
	}
	return nil
}

// raw evaluates to JSON. A path gives what it finds as it stands.
func (x *expression) raw(s *perdure.Scope) (json.RawMessage, error) {
	if x.prog == nil {
		raw, err := x.paths[0].find(s, false)
		if err != nil {
			return nil, x.failed(err)
		}
		return compacted(raw), nil
	}
	v, err := x.value(s)
	if err != nil {
		return nil, err
	}
	b, err := appendValue(nil, v)
	if err == nil && len(b) > perdure.MaxPayloadBytes {
		err = fmt.Errorf("the result is larger than %d bytes", perdure.MaxPayloadBytes)
	}
	if err != nil {
		return nil, x.failed(err)
	}
	return b, nil
}

// truth evaluates a condition.
func (x *expression) truth(s *perdure.Scope) (bool, error) {
	if x.prog == nil {
		raw, err := x.paths[0].find(s, false)
		switch {
		case err != nil:
			return false, x.failed(err)
		case string(raw) != "true" && string(raw) != "false":
			return false, x.failed(fmt.Errorf("a condition must be true or false, this is %s", kindOf(raw)))
		}
		return string(raw) == "true", nil
	}
	v, err := x.value(s)
	if err != nil {
		return false, err
	}
	yes, ok := v.(bool)
	if !ok {
		return false, x.failed(fmt.Errorf("a condition must be true or false, this is %s", kindOfValue(v)))
	}
	return yes, nil
}

// value runs the program.
func (x *expression) value(s *perdure.Scope) (any, error) {
	e := &evaluation{scope: s, expr: x, work: maxWork, seen: make([]any, len(x.paths))}
	for i := range e.seen {
		e.seen[i] = unseen{}
	}
	v, err := vm.Run(x.prog, map[string]any{evalName: e})
	if err != nil {
		return nil, x.failed(err)
	}
	return v, nil
}

// failed words an error of evaluation.
func (x *expression) failed(err error) error {
	var e *file.Error
	if errors.As(err, &e) {
		if e.Prev != nil {
			err = e.Prev
		} else {
			err = errors.New(plainWords(e.Message))
		}
	}
	return fmt.Errorf("%s: %w", quote(x.src), err)
}

func kindOfValue(v any) kind {
	b, err := appendValue(nil, v)
	if err != nil {
		return kindNumber
	}
	return kindOf(b)
}

// cache keeps compiled expressions: definitions of one type are submitted again and again.
type cache struct {
	mu    sync.Mutex
	exprs map[cacheKey]*expression
}

type cacheKey struct {
	src   string
	truth bool
}

const maxCached = 4096

func (c *cache) compile(src string, truth bool) (*expression, *misfit) {
	k := cacheKey{src, truth}
	c.mu.Lock()
	x := c.exprs[k]
	c.mu.Unlock()
	if x != nil {
		return x, nil
	}
	x, bad := compileExpr(src, truth)
	if bad != nil {
		return nil, bad
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.exprs == nil || len(c.exprs) >= maxCached {
		c.exprs = make(map[cacheKey]*expression)
	}
	c.exprs[k] = x
	return x, nil
}
