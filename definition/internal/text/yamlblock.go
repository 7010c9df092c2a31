package text

import (
	"bytes"
)

// open counts a collection, without what is in it.
func (y *yamlReader) open(n *Node, depth int) *Fault {
	if depth >= maxDepth {
		return TooLarge(y.pos, errDepth)
	}
	if err := y.tally.Add(n, depth); err != nil {
		return TooLarge(y.pos, err)
	}
	return nil
}

// list reads a block sequence whose dashes are in column col.
func (y *yamlReader) list(col, depth int) (n Node, f *Fault) {
	n = Scalar(List, y.pos, "")
	if f := y.open(&n, depth); f != nil {
		return n, f
	}
	base := len(y.kids)
	for {
		y.pos++ // the dash
		kid, f := y.value(col, depth+1, compactCollections)
		if f != nil {
			return n, f
		}
		y.kids = append(y.kids, kid)
		more, f := y.next(col)
		if f != nil {
			return n, f
		}
		if !more || !y.dash() {
			break
		}
	}
	n.Kids = append([]Node(nil), y.kids[base:]...)
	y.kids = y.kids[:base]
	n.sumUp()
	return n, nil
}

// lineBegins reports whether nothing of this line was read yet.
func (y *yamlReader) lineBegins() bool {
	return len(bytes.TrimLeft(y.src[y.lineStart:y.pos], " \t")) == 0
}

// next goes to the next line of a collection in column col. It returns false if the collection ends.
func (y *yamlReader) next(col int) (bool, *Fault) {
	if !y.lineBegins() && !y.rest() {
		return false, y.fault("unexpected %s after the value", y.found()).
			WithHint("quote the whole value if this is a part of it")
	}
	if !y.skip() || y.marker() || y.column() < col && !bytes.ContainsRune(y.src[y.lineStart:y.pos], '\t') {
		return false, nil
	}
	if f := y.tab(); f != nil {
		return false, f
	}
	if y.column() > col {
		return false, y.fault("indented deeper than the lines it follows").
			WithHint("column %d would be that of its neighbours", col+1)
	}
	return true, nil
}

// object reads a block mapping whose keys are in column col.
func (y *yamlReader) object(col, depth int) (n Node, f *Fault) {
	n = Scalar(Object, y.pos, "")
	if f := y.open(&n, depth); f != nil {
		return n, f
	}
	keys, kids := len(y.keys), len(y.kids)
	var merges []Node
	for {
		k, f := y.key()
		if f != nil {
			return n, f
		}
		kid, f := y.value(col, depth+1, noCollections)
		if f != nil {
			return n, f
		}
		if k.Name == mergeKey && y.src[k.At] == '<' {
			merges = append(merges, kid)
		} else {
			y.keys, y.kids = append(y.keys, k), append(y.kids, kid)
			y.tally.bytes += len(k.Name)
		}
		more, f := y.next(col)
		if f != nil {
			return n, f
		}
		if !more {
			break
		}
	}
	return n, y.close(&n, keys, kids, merges, depth)
}

const mergeKey = "<<"

// close makes the object of the members above keys and kids on the stacks.
func (y *yamlReader) close(n *Node, keys, kids int, merges []Node, depth int) *Fault {
	n.Keys, n.Kids = append([]Key(nil), y.keys[keys:]...), append([]Node(nil), y.kids[kids:]...)
	y.keys, y.kids = y.keys[:keys], y.kids[:kids]
	if i := duplicate(n.Keys); i >= 0 {
		return duplicateKey(n.Keys, i)
	}
	if len(merges) > 0 {
		if f := y.merge(n, merges, depth); f != nil {
			return f
		}
	}
	n.sumUp()
	return nil
}

// merge adds to n those members of the objects after << whose names n does not have.
func (y *yamlReader) merge(n *Node, merges []Node, depth int) *Fault {
	var sources []Node
	for _, m := range merges {
		if m.Kind == List {
			sources = append(sources, m.Kids...)
		} else {
			sources = append(sources, m)
		}
	}
	present := make(map[string]bool, len(n.Keys))
	for _, k := range n.Keys {
		present[k.Name] = true
	}
	for _, s := range sources {
		if s.Kind != Object {
			return Malformed(int(s.At), "<< takes an object or a list of them, not %s", s.Kind)
		}
		for i, k := range s.Keys {
			if present[k.Name] {
				continue
			}
			present[k.Name] = true
			if err := y.tally.Add(&s.Kids[i], depth+1); err != nil {
				return TooLarge(int(s.At), err)
			}
			n.Keys, n.Kids = append(n.Keys, k), append(n.Kids, s.Kids[i])
		}
	}
	return nil
}

// key reads a field's name and its colon.
func (y *yamlReader) key() (k Key, f *Fault) {
	k.At = int32(y.pos)
	switch c := y.peek(); {
	case y.dash():
		return k, y.fault("a list entry among fields").WithHint("indent it deeper than the field it belongs to")
	case c == '?' && ends(y.at(y.pos+1)):
		return k, y.fault("keys that are collections are not understood: a field name is one word")
	case c == '"' || c == '\'':
		line := y.lineStart
		if k.Name, f = y.quoted(); f != nil {
			return k, f
		}
		if y.lineStart != line {
			return k, Malformed(int(k.At), "a field name of several lines").WithHint("write it on one line, with \\n in double quotes")
		}
		y.blanks()
	case c == '*' || c == '&' || c == '!':
		return k, y.fault("a field name cannot be an alias, and takes no anchor and no tag")
	default:
		if k.Name = y.plainLine(false); k.Name == "" {
			return k, y.fault("expected a field name, found %s", y.found())
		}
	}
	if y.peek() != ':' || !ends(y.at(y.pos+1)) {
		y.pos = int(k.At)
		if i := bytes.IndexByte(y.src[y.pos:y.pos+len(k.Name)], ':'); i > 0 && len(k.Name) > i {
			return k, Malformed(y.pos+i, "expected a space after the `:`")
		}
		return k, y.fault("expected `field: value`, found %s", y.found())
	}
	y.pos++
	return k, nil
}

// isKey reports whether a colon follows the scalar on this line, which is then the name of a field.
func (y *yamlReader) isKey() bool {
	saved := *y
	defer func() { *y = saved }()
	switch c := y.peek(); c {
	case '"', '\'':
		line := y.lineStart
		if _, f := y.quoted(); f != nil || y.lineStart != line {
			return false
		}
		y.blanks()
	case '[', '{', '#', 0:
		return false
	default:
		y.plainLine(false)
	}
	return y.peek() == ':' && ends(y.at(y.pos+1))
}
