// Package definition makes plans of job definitions. Its input is a text in YAML or JSON, or a definition that was built
// in Go. Its output is a kernel.Plan, or every fault that prevents one, each with its line and column.
//
// The nouns:
//
//   - Definition (kernel.Definition): the text of a job, decoded: its type, its steps, their inputs and policies.
//   - Shape (kernel.Shape): the part that many jobs have in common. It has the graph of steps, the compiled templates and
//     conditions, and the canonical text, by whose hash stores keep it once.
//   - Plan (kernel.Plan): a shape, and the values of one job: its key, priority, labels and input.
//   - Compiler: makes plans, and caches what earlier ones came to.
//
// The flow of a text goes through three packages, of which each imports only those before it:
//
//   - internal/text reads YAML and JSON into one bounded tree whose values have their places.
//   - internal/expr compiles expressions and templates, and evaluates them within a budget.
//   - this package makes the plan. decode.go, scalar.go and ladder.go read the fields of the tree strictly, and go on
//     after a fault, so that one answer has all of them. graph.go resolves the steps that a step comes after, and refuses
//     cycles. submit.go evaluates what depends on the input alone, because it is known now and its errors are refusals;
//     environment.go says what an expression may refer to. agents.go checks the inputs of the agents that come with
//     Perdure. canonical.go leaves out defaults, and writes the text and the hash that jobs of equal meaning share.
//
// A store keeps the canonical text. Compiler.Compile makes the same shape from it again, without the checks that were
// made before it was stored.
//
// A thousand jobs of one definition differ in a few values. The Compiler recognizes the part that they have in common
// (memo.go) and only reads the values of further ones. Compiler.With and Compiler.ParseAll make use of that.
//
// Everything here is a pure function of its arguments, apart from the caches of the Compiler, which are bounded in bytes
// as size.go counts them. The package does no I/O and reads no clock. It decides nothing about the course of a job: that
// is internal/kernel.
package definition
