// Package definition reads job definitions: YAML and JSON into kernel.Plan, or every fault that
// stands in the way, each with its line and column.
//
// The way of a text, downhill and once:
//
//	text → node (yaml.go, json.go: bounded trees with places) → kernel.Definition (decode.go:
//	strict, all faults at once) → graph (graph.go: references, cycles) → expressions and templates
//	(expr.go, template.go: compiled, bounded) → submission (submit.go: what depends on the input
//	alone is evaluated now) → canonical text and hash (canonical.go) → kernel.Plan
//
// A store keeps the canonical text; Compiler makes the same plan from it again, without the checks
// that were made before it was stored.
//
// Both readers are written here because no library could be bounded from outside: goccy/go-yaml's
// parser recurses once per key of a map and is quadratic in them, its scanner is quadratic in the
// tabs of a quoted string and lets broken escapes pass; encoding/json drops duplicate keys and
// places. Everything in this package is a pure function of its arguments, except for the caches of the Compiler:
// programs of expressions (program.go) and compiled definitions (memo.go). Both are bounded in bytes, as size.go counts
// them.
package definition
