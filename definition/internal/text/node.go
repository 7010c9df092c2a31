package text

import (
	"slices"
	"strconv"

	"github.com/perdure/perdure"
)

// Only is an object with those members alone that keep says.
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

// Merged is an object with the members of another in place of its own, or beside them.
func (n *Node) Merged(others *Node) Node {
	out := *n
	out.Keys, out.Kids = slices.Clone(n.Keys), slices.Clone(n.Kids)
	for i, k := range others.Keys {
		out.Set(k.Name, others.Kids[i])
	}
	out.sumUp()
	return out
}

// Kind is what a node is; the words are those of error messages.
type Kind uint8

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

// Node is one value of a text, with the place where it starts. An alias shares the children of its
// anchor, so a tree may be a graph; size, bytes and height count it as if it were written out, and
// the readers keep all three within bounds before anything walks it.
type Node struct {
	Kind   Kind
	height uint8  // levels of values below it
	At     int32  // byte offset in the text
	Size   int32  // values in it, itself included
	Bytes  int32  // of its strings, names and digits
	Text   string // string: its value; number: JSON digits as written; boolean: true or false
	Keys   []Key  // object: names of kids, in order
	Kids   []Node // list, object
}

// Key is the name of an object's member.
type Key struct {
	Name string
	At   int32
}

// Get is the member of that name, or nil.
func (n *Node) Get(name string) *Node {
	for i := range n.Keys {
		if n.Keys[i].Name == name {
			return &n.Kids[i]
		}
	}
	return nil
}

// Tally keeps what has been read of one document within perdure's bounds.
type Tally struct {
	nodes, bytes int
}

// overflow is the fault of a document that is too large, at the place where it became so.
type overflow struct{ what string }

func (o overflow) Error() string { return o.what }

// Add counts n, aliases expanded, as read at that depth.
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

// Scalar makes a leaf.
func Scalar(k Kind, at int, s string) Node {
	return Node{Kind: k, At: int32(at), Size: 1, Bytes: int32(len(s)), Text: s}
}

// sumUp counts the children into their parent. Sums stay far below 1<<31, because the tally has
// refused anything above its bounds by then.
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

// duplicate is the index of the first member whose name an earlier one has, or -1.
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

// Move gives a tree that was read elsewhere a place in this text.
func (n *Node) Move(at int32) {
	n.At = at
	for i := range n.Keys {
		n.Keys[i].At = at
	}
	for i := range n.Kids {
		n.Kids[i].Move(at)
	}
}
