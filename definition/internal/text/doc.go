// Package text reads YAML and JSON into one kind of tree, in which each value has its place in the text.
//
// A definition comes from outside, has up to 16 MiB, and is often written by hand. So there are two duties. Each fault is
// reported with its line and column, also one that is found much later: a step that does not exist, an expression that
// does not compile. And no text, however hostile, costs more than a bounded amount of time and memory for its size.
//
// The nouns:
//
//   - Node: one value, with the byte offset at which it begins. Numbers keep their digits as they are written. Objects
//     keep the order of their members. An alias of YAML shares the children of its anchor.
//   - Tally: counts the values and bytes of a document while it is read, with its aliases expanded, and refuses more
//     than the bounds of package perdure before anything walks the tree.
//   - Source: the text; it converts an offset to line and column when a fault is shown.
//   - Pointer: the path of a value, as RFC 6901 writes it. Only faults convert it to text.
//   - Fault and Faults: what is wrong, where, and how to correct it. One answer has up to MaxFaults of them.
//
// The flow: Check refuses what is too large or is not text in UTF-8. ReadYAML and ReadJSON read it to nodes. AppendNode
// writes a node as canonical JSON, with its names sorted. DecodeJSON makes values of Go of JSON, for expressions. The tokens
// of JSON are read by internal/jsontext.
//
// YAML is read as YAML 1.2, without what JSON cannot express or what is easily misread: names of fields are text; tags are
// those of the core schema; numbers that YAML 1.1 and 1.2 read differently (0777, 1_000) are refused, as are duplicate
// names. ADR 31 compares this reader with a library and gives the reasons for keeping it.
//
// The package knows no field of a definition and no expression. It does not guess: a text has one meaning or is refused.
package text
