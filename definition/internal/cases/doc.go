// Package cases has what the tests of package definition and of its internal packages share: texts in YAML with their
// values, and measures of time and memory.
package cases
