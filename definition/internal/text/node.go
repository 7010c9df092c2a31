package text

import (
	"slices"
	"strconv"

	"github.com/perdure/perdure"
)

// Only returns a copy of an object with those members that keep selects.
func (n *Node) Only(keep func(name string) bool) Node {
	out := *n
	out.Keys, out.Kids = nil, nil
	for i, k := range n.Keys {
		if keep(k.Name) {
			out.Keys, out.Kids = append(out.Keys, k), append(out.Kids, n.Kids[i])
		}
	}
	out.sumUp()
	return out
}

// Merged returns a copy of an object in which the members of another replace those of the same name, or are added.
func (n *Node) Merged(others *Node) Node {
	out := *n
	out.Keys, out.Kids = slices.Clone(n.Keys), slices.Clone(n.Kids)
	for i, k := range others.Keys {
		out.Set(k.Name, others.Kids[i])
	}
	out.sumUp()
	return out
}

// Kind is the type of a value. Its String is used in messages.
type Kind uint8

// The kinds of values that JSON has.
const (
	Null Kind = iota
	Bool
	Number
	String
	List
	Object
)

func (k Kind) String() string {
	return [...]string{"null", "a boolean", "a number", "a string", "a list", "an object"}[k]
}

// Node is one value of a text, with the place where it begins. An alias shares the children of its anchor, so that the
// tree may be a graph. Size, Bytes and height count it as if it were written out, and the readers keep all three within
// bounds.
type Node struct {
	Kind   Kind
	height uint8  // levels of values below it
	At     int32  // byte offset in the text
	Size   int32  // values in it, itself included
	Bytes  int32  // of its strings, names and digits
	Text   string // string: its value; number: JSON digits as written; boolean: true or false
	Keys   []Key  // object: the names of Kids, in the order of the text
	Kids   []Node // entries of a list, values of an object
}

// Key is the name of an object's member.
type Key struct {
	Name string
	At   int32
}

// Get returns the member of that name, or nil.
func (n *Node) Get(name string) *Node {
	for i := range n.Keys {
		if n.Keys[i].Name == name {
			return &n.Kids[i]
		}
	}
	return nil
}

// Tally counts what has been read of one document, to keep it within the bounds of package perdure.
type Tally struct {
	nodes, bytes int
}

// overflow is the error of a document over a bound.
type overflow struct{ what string }

func (o overflow) Error() string { return o.what }

// Add counts n, with its aliases expanded, at that depth of the document. The error says which bound is exceeded.
func (t *Tally) Add(n *Node, depth int) error {
	t.nodes += int(n.Size)
	t.bytes += int(n.Bytes)
	switch {
	case depth+int(n.height) > perdure.MaxDepth:
		return errDepth
	case t.nodes > perdure.MaxNodes:
		return overflow{"more than " + strconv.Itoa(perdure.MaxNodes) + " values in one definition, aliases expanded"}
	case t.bytes > perdure.MaxDefinitionBytes:
		return overflow{"more than " + strconv.Itoa(perdure.MaxDefinitionBytes>>20) + " MiB in one definition, aliases expanded"}
	}
	return nil
}

var errDepth = overflow{"nested more than " + strconv.Itoa(perdure.MaxDepth) + " levels deep"}

// Scalar makes a value without children.
func Scalar(k Kind, at int, s string) Node {
	return Node{Kind: k, At: int32(at), Size: 1, Bytes: int32(len(s)), Text: s}
}

// sumUp counts the children into their parent. The sums stay far below 1<<31, because the tally has refused larger
// documents.
func (n *Node) sumUp() {
	n.Size, n.Bytes, n.height = 1, 0, 0
	for i := range n.Kids {
		k := &n.Kids[i]
		n.Size += k.Size
		n.Bytes += k.Bytes
		n.height = max(n.height, k.height+1)
	}
	for i := range n.Keys {
		n.Bytes += int32(len(n.Keys[i].Name))
	}
}

// duplicate returns the index of the first member whose name an earlier one has, or -1.
func duplicate(keys []Key) int {
	if len(keys) <= 8 {
		for i := range keys {
			for j := range i {
				if keys[i].Name == keys[j].Name {
					return i
				}
			}
		}
		return -1
	}
	seen := make(map[string]struct{}, len(keys))
	for i := range keys {
		if _, ok := seen[keys[i].Name]; ok {
			return i
		}
		seen[keys[i].Name] = struct{}{}
	}
	return -1
}

// Set replaces the member of that name, or adds it.
func (n *Node) Set(name string, kid Node) {
	for i := range n.Keys {
		if n.Keys[i].Name == name {
			n.Kids[i] = kid
			return
		}
	}
	n.Keys, n.Kids = append(n.Keys, Key{name, n.At}), append(n.Kids, kid)
}

// Move sets the place of a tree that was read from another text.
func (n *Node) Move(at int32) {
	n.At = at
	for i := range n.Keys {
		n.Keys[i].At = at
	}
	for i := range n.Kids {
		n.Kids[i].Move(at)
	}
}
