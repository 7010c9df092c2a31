// Package expr compiles and evaluates expressions: the ${…} in the values of a definition, and the conditions of its
// steps.
//
// The language is that of github.com/expr-lang/expr, restricted to what is deterministic and whose cost can be bounded
// (ADR 6). Most expressions are only a path, such as input.legs[0].city. A path is looked up in the raw JSON, so that
// numbers keep their digits. All others are compiled to a program of expr's virtual machine. Before that, the syntax
// tree is rewritten (rewrite.go): operators and functions become calls of functions of this package, which charge for
// the work that they do.
//
// The nouns:
//
//   - Expression: the text of an expression that was compiled without a fault. It is immutable and small.
//   - Compiled: an expression, the paths that it reads, and its program.
//   - Programs: the cache of compiled expressions, bounded in bytes. A program that was evicted is compiled again.
//   - Template: the value of a `with`, as canonical JSON that is cut where values are filled in.
//   - Condition: a `when`.
//   - Environment: what the expressions at one place may refer to. Package definition implements it, because that
//     depends on the graph of steps.
//   - Evaluator: a kernel.Scope (input, outputs, job) with the work that its expressions may still do.
//
// The flow: CompileTemplate walks a tree of package text and splits each string at its ${…}. Environment.Compile compiles
// each expression, checks its references, and evaluates it if it depends on the input alone. Later Template.Render and
// Condition.Eval evaluate the rest, once the outputs of earlier steps are known.
//
// Work is counted in units and bounded three times: for one expression, for one input, and by the kernel.Budget of the
// call. An expression that needs more fails, and the error suggests to let an agent compute it.
//
// The package reads no clock, no randomness and no environment variables: the same scope gives the same value.
package expr
