package expr

import (
	"fmt"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"

	"github.com/perdure/perdure/definition/internal/text"
)

// rewriter replaces nodes of the syntax tree of expr by calls of the functions of this package, which bound their work:
//
//	input.a.b           @path(@, 0)            looked up in raw JSON, once, when it is reached
//	x.name, x[i]        @get(x, "name", @)     a missing value is an error, unless ?. or ?? allow it
//	a + b, a == b, …    @add(@, a, b), …       checked for overflow, and charged for what they read
//	f(a)                f(@, a)                only the functions of functions.go
//	map(xs, …)          map(@scan(@, xs), @tick(@, …))   each iteration and each value that it makes is charged
//
// let, method calls and bytes are refused.
type rewriter struct {
	src   string
	names Loop
	paths []Path
	bad   *Fault
}

func (r *rewriter) refuse(n ast.Node, message, hint string) {
	if r.bad == nil {
		r.bad = &Fault{At: runeOffset(r.src, n.Location().From), Message: message, Hint: hint}
	}
}

// call replaces n by a call of a function of this package.
func call(n *ast.Node, name string, args ...ast.Node) {
	ast.Patch(n, &ast.CallNode{Callee: &ast.IdentifierNode{Value: name}, Arguments: args})
}

func self() ast.Node { return &ast.IdentifierNode{Value: evalName} }

// rewrite rewrites *n. If lax is set, a missing member is null, because ?? follows.
func (r *rewriter) rewrite(n *ast.Node, lax bool) {
	if r.bad != nil {
		return
	}
	if r.path(n, lax) {
		return
	}
	switch x := (*n).(type) {
	case *ast.IdentifierNode:
		r.identifier(x)
	case *ast.MemberNode:
		r.member(n, x, lax)
	case *ast.ChainNode:
		r.rewrite(&x.Node, lax)
	case *ast.SliceNode:
		r.all(&x.Node, &x.From, &x.To)
	case *ast.UnaryNode:
		r.rewrite(&x.Node, false)
	case *ast.BinaryNode:
		r.binary(n, x)
	case *ast.ConditionalNode:
		r.all(&x.Cond, &x.Exp1, &x.Exp2)
	case *ast.CallNode:
		r.call(n, x)
	case *ast.BuiltinNode:
		r.loop(x)
	case *ast.PredicateNode:
		r.rewrite(&x.Node, false)
		call(&x.Node, "@tick", self(), x.Node)
	case *ast.ArrayNode:
		for i := range x.Nodes {
			r.rewrite(&x.Nodes[i], false)
		}
	case *ast.MapNode:
		for _, p := range x.Pairs {
			r.rewrite(&p.(*ast.PairNode).Key, false)
			r.rewrite(&p.(*ast.PairNode).Value, false)
		}
	case *ast.NilNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.StringNode, *ast.PointerNode:
	case *ast.VariableDeclaratorNode:
		r.refuse(x, "let is not offered in expressions", "")
	default:
		r.refuse(x, "this is not offered in expressions", "")
	}
}

func (r *rewriter) all(nodes ...*ast.Node) {
	for _, n := range nodes {
		if *n != nil {
			r.rewrite(n, false)
		}
	}
}

// path replaces *n if it is a path from one of the roots.
func (r *rewriter) path(n *ast.Node, lax bool) bool {
	p, ok := pathOf(*n, r.names)
	if !ok || !p.takeStep() {
		return false
	}
	p.At = runeOffset(r.src, start(*n).Location().From)
	name := "@path"
	if lax {
		name = "@lax"
	}
	call(n, name, self(), &ast.IntegerNode{Value: len(r.paths)})
	r.paths = append(r.paths, p)
	return true
}

// start returns the identifier that a member expression begins with.
func start(n ast.Node) ast.Node {
	for {
		switch x := n.(type) {
		case *ast.MemberNode:
			n = x.Node
		case *ast.ChainNode:
			n = x.Node
		default:
			return n
		}
	}
}

// pathOf reads a tree of constant members as a path.
func pathOf(n ast.Node, loop Loop) (p Path, ok bool) {
	switch x := n.(type) {
	case *ast.IdentifierNode:
		p.Root, ok = loop.root(x.Value)
	case *ast.ChainNode:
		return pathOf(x.Node, loop)
	case *ast.MemberNode:
		if p, ok = pathOf(x.Node, loop); !ok || x.Method {
			return p, false
		}
		k := Selector{optional: x.Optional}
		switch y := x.Property.(type) {
		case *ast.StringNode:
			k.Name = y.Value
		case *ast.IntegerNode:
			k.List, k.index = true, y.Value
		case *ast.UnaryNode:
			i, whole := y.Node.(*ast.IntegerNode)
			if !whole || y.Operator != "-" {
				return p, false
			}
			k.List, k.index = true, -i.Value
		default:
			return p, false
		}
		p.Selectors = append(p.Selectors, k)
	}
	return p, ok
}

func (r *rewriter) identifier(x *ast.IdentifierNode) {
	if x.Value == "steps" {
		r.refuse(x, "steps is not a value of its own", "write steps.NAME.output")
		return
	}
	if x.Value == rootSecret {
		bad := noSecret()
		r.refuse(x, bad.Message, bad.Hint)
		return
	}
	hint := "names are " + strings.Join(r.names.names(), ", ") + "; text is quoted; a literal ${ is written $${"
	if nearest := text.Nearest(x.Value, r.names.names()); nearest != "" {
		hint = "did you mean " + text.Quote(nearest) + "?"
	}
	r.refuse(x, "unknown name "+text.Quote(x.Value), hint)
}

// member rewrites a member of a value that is no path: of a result, or of # in a predicate.
func (r *rewriter) member(n *ast.Node, x *ast.MemberNode, lax bool) {
	if first, ok := start(x).(*ast.IdentifierNode); ok && first.Value == "steps" {
		r.identifier(first)
		return
	}
	r.rewrite(&x.Property, false)
	r.rewrite(&x.Node, lax)
	if !x.Optional && r.bad == nil {
		name := "@get"
		if lax {
			name = "@getLax"
		}
		// The value comes first: inside a chain, ?. jumps to the chain's end from within it, and
		// nothing may lie below it on the machine's stack then.
		call(n, name, x.Node, x.Property)
	}
}

// operators are the binary operators that become calls.
var operators = map[string]string{
	"+": "@add", "-": "@subtract", "*": "@multiply", "/": "@divide", "%": "@modulo", "**": "@power", "^": "@power",
	"==": "@equal", "!=": "@unequal", "<": "@less", "<=": "@lessOrEqual", ">": "@more", ">=": "@moreOrEqual",
	"in": "@in", "contains": "@contains", "startsWith": "@startsWith", "endsWith": "@endsWith", "matches": "@matches",
}

func (r *rewriter) binary(n *ast.Node, x *ast.BinaryNode) {
	pattern := x.Right
	r.rewrite(&x.Left, x.Operator == "??")
	r.rewrite(&x.Right, false)
	if x.Operator == "matches" {
		s, ok := pattern.(*ast.StringNode)
		if !ok {
			r.refuse(start(pattern), "a regular expression is written out, not computed", `input.name matches "^a"`)
			return
		}
		re, err := compileRegexp(s.Value)
		if err != nil {
			r.refuse(pattern, "not a regular expression: "+err.Error(), "")
			return
		}
		x.Right = &ast.ConstantNode{Value: re}
	}
	if name, ok := operators[x.Operator]; ok {
		call(n, name, self(), x.Left, x.Right)
	}
}

func (r *rewriter) call(n *ast.Node, x *ast.CallNode) {
	name, ok := x.Callee.(*ast.IdentifierNode)
	if !ok {
		r.refuse(x, "values have no methods", "write f(value), or value | f()")
		return
	}
	a, ok := arities[name.Value]
	if !ok {
		names := slices.Concat(functionNames, predicates)
		hint := ""
		if nearest := text.Nearest(name.Value, names); nearest != "" {
			hint = "did you mean " + text.Quote(nearest) + "?"
		}
		r.refuse(x, "there is no function "+text.Quote(name.Value), hint)
		return
	}
	if got := len(x.Arguments); got < a.least || got > a.most {
		r.refuse(x, fmt.Sprintf("%s takes %s, not %d", name.Value, a, got), "")
		return
	}
	for i := range x.Arguments {
		r.rewrite(&x.Arguments[i], false)
	}
	call(n, name.Value, append([]ast.Node{self()}, x.Arguments...)...)
}

// loop rewrites a call of a predicate.
func (r *rewriter) loop(x *ast.BuiltinNode) {
	if !slices.Contains(predicates, x.Name) {
		r.refuse(x, "there is no function "+text.Quote(x.Name), "")
		return
	}
	for i := range x.Arguments {
		r.rewrite(&x.Arguments[i], false)
	}
	if r.bad == nil {
		call(&x.Arguments[0], "@scan", self(), x.Arguments[0])
	}
}
