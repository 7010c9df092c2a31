package definition

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

// kind is what a node is; the words are those of error messages.
type kind uint8

const (
	kindNull kind = iota
	kindBool
	kindNumber
	kindString
	kindList
	kindObject
)

func (k kind) String() string {
	return [...]string{"null", "a boolean", "a number", "a string", "a list", "an object"}[k]
}

// node is one value of a text, with the place where it starts. An alias shares the children of its
// anchor, so a tree may be a graph; size, bytes and height count it as if it were written out, and
// the readers keep all three within bounds before anything walks it.
type node struct {
	kind   kind
	height uint8  // levels of values below it
	at     int32  // byte offset in the text
	size   int32  // values in it, itself included
	bytes  int32  // of its strings, names and digits
	text   string // string: its value; number: JSON digits as written; boolean: true or false
	keys   []key  // object: names of kids, in order
	kids   []node // list, object
}

// key is the name of an object's member.
type key struct {
	name string
	at   int32
}

// get is the member of that name, or nil.
func (n *node) get(name string) *node {
	for i := range n.keys {
		if n.keys[i].name == name {
			return &n.kids[i]
		}
	}
	return nil
}

// text is what is being read; places in it are byte offsets until somebody asks.
type text struct {
	src []byte
}

// locate gives line and column, both from 1; columns count characters.
func (t text) locate(at int32) (line, column int) {
	before := t.src[:min(int(at), len(t.src))]
	line = 1
	start := 0
	for i, c := range before {
		if c == '\n' || c == '\r' && (i+1 >= len(t.src) || t.src[i+1] != '\n') {
			line++
			start = i + 1
		}
	}
	return line, 1 + utf8.RuneCount(before[start:])
}

// tally keeps what has been read of one document within perdure's bounds.
type tally struct {
	nodes, bytes int
}

// overflow is the fault of a document that is too large, at the place where it became so.
type overflow struct{ what string }

func (o overflow) Error() string { return o.what }

// add counts n, aliases expanded, as read at that depth.
func (t *tally) add(n *node, depth int) error {
	t.nodes += int(n.size)
	t.bytes += int(n.bytes)
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

// scalar makes a leaf.
func scalar(k kind, at int, s string) node {
	return node{kind: k, at: int32(at), size: 1, bytes: int32(len(s)), text: s}
}

// adopt counts the children into their parent. Sums stay far below 1<<31, because the tally has
// refused anything above its bounds by then.
func (n *node) adopt() {
	n.size, n.bytes, n.height = 1, 0, 0
	for i := range n.kids {
		k := &n.kids[i]
		n.size += k.size
		n.bytes += k.bytes
		n.height = max(n.height, k.height+1)
	}
	for i := range n.keys {
		n.bytes += int32(len(n.keys[i].name))
	}
}

// duplicate is the index of the first member whose name an earlier one has, or -1.
func duplicate(keys []key) int {
	if len(keys) <= 8 {
		for i := range keys {
			for j := range i {
				if keys[i].name == keys[j].name {
					return i
				}
			}
		}
		return -1
	}
	seen := make(map[string]struct{}, len(keys))
	for i := range keys {
		if _, ok := seen[keys[i].name]; ok {
			return i
		}
		seen[keys[i].name] = struct{}{}
	}
	return -1
}

// pointer is a place in a document as RFC 6901 writes it, kept as a chain so that only faults pay
// for the string.
type pointer struct {
	up   *pointer
	name string
}

func (p *pointer) member(name string) *pointer { return &pointer{p, name} }
func (p *pointer) item(i int) *pointer         { return &pointer{p, strconv.Itoa(i)} }

// maxPointer bounds the text of a pointer: names may be as long as the definition, and many faults may be below one.
const maxPointer = 512

// String returns the pointer as RFC 6901 defines it; one that is too long is cut, and ends with "…".
func (p *pointer) String() string {
	if p == nil {
		return ""
	}
	up := p.up.String()
	if len(up) >= maxPointer { // it is cut already
		return up
	}
	return plain.Shorten(up+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(plain.Shorten(p.name, maxPointer)), maxPointer)
}
