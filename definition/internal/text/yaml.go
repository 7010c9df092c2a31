package text

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/perdure/perdure"
)

// yamlReader reads YAML 1.2 into nodes: block and flow collections, all five styles of scalar,
// anchors, aliases, merge keys, tags of the core schema, several documents. Keys are text. It refuses
// what JSON cannot express (collections as keys, .inf), numbers that YAML 1.1 and 1.2 read differently
// (0777, 1_000), and tabs as indentation. It reads each byte a bounded number of times, so that its time is linear in the text.
//
// The indentation of a collection is the column of its first key or dash. parent is the indentation of the collection around
// a value; it is -1 for the document itself.
type yamlReader struct {
	src       []byte
	pos       int
	lineStart int
	tally     Tally
	anchors   map[string]Node
	kids      []Node // stacks of the collections that are open, as in JSONReader
	keys      []Key
}

// ReadYAML reads all documents of src, which is valid UTF-8. Empty documents are left out.
func ReadYAML(src []byte) (docs []Node, f *Fault) {
	y := yamlReader{src: src}
	for y.skip() && f == nil {
		var more bool
		if more, f = y.prologue(); f != nil || !more {
			continue
		}
		if len(docs) == perdure.MaxDocuments {
			return nil, TooLarge(y.pos, fmt.Errorf("more than %d documents in one file", perdure.MaxDocuments))
		}
		y.tally, y.anchors = Tally{}, nil
		var n Node
		where := compactCollections
		if !y.lineBegins() {
			where = noCollections // the line of ---
		}
		if f = y.tab(); f == nil {
			n, f = y.value(-1, 0, where)
		}
		if f != nil {
			return nil, f
		}
		if y.skip() && !y.marker() {
			return nil, y.fault("unexpected %s: it belongs to nothing above it", y.found()).
				WithHint("a field starts in the column of the fields around it")
		}
		docs = append(docs, n)
	}
	return docs, f
}

func (y *yamlReader) fault(format string, args ...any) *Fault {
	return Malformed(y.pos, format, args...)
}

func (y *yamlReader) found() string { return describe(y.src[min(y.pos, len(y.src)):]) }

func (y *yamlReader) peek() byte { return y.at(y.pos) }

func (y *yamlReader) at(i int) byte {
	if i < len(y.src) {
		return y.src[i]
	}
	return 0
}

// column is the column of the position, from 0, in bytes. That suffices: only spaces and dashes precede a collection.
func (y *yamlReader) column() int { return y.pos - y.lineStart }

func (y *yamlReader) eol() bool {
	return y.pos >= len(y.src) || y.src[y.pos] == '\n' || y.src[y.pos] == '\r'
}

// newline reads the end of a line.
func (y *yamlReader) newline() {
	if y.peek() == '\r' && y.at(y.pos+1) == '\n' {
		y.pos++
	}
	if y.pos < len(y.src) {
		y.pos++
	}
	y.lineStart = y.pos
}

func blank(c byte) bool { return c == ' ' || c == '\t' }

// ends reports whether c ends a word: a blank, the end of a line or the end of the text.
func ends(c byte) bool { return blank(c) || c == '\n' || c == '\r' || c == 0 }

func (y *yamlReader) blanks() {
	for blank(y.peek()) {
		y.pos++
	}
}

// rest skips blanks and a comment, and reports whether the line ends then.
func (y *yamlReader) rest() bool {
	start := y.pos
	y.blanks()
	if y.peek() == '#' && (y.pos > start || y.pos == y.lineStart || blank(y.src[y.pos-1])) {
		for !y.eol() {
			y.pos++
		}
	}
	return y.eol()
}

// skip goes to the next content. It skips blanks, comments and empty lines, and returns false at the end of the text.
func (y *yamlReader) skip() bool {
	for y.rest() {
		if y.pos >= len(y.src) {
			return false
		}
		y.newline()
	}
	return true
}

// marker reports whether a line begins here with --- or ... .
func (y *yamlReader) marker() bool {
	if y.column() != 0 || y.pos+3 > len(y.src) || !ends(y.at(y.pos+3)) {
		return false
	}
	m := string(y.src[y.pos : y.pos+3])
	return m == "---" || m == "..."
}

// prologue reads the directives and the marker before a document. It returns false if no document follows.
func (y *yamlReader) prologue() (bool, *Fault) {
	directives := false
	for y.column() == 0 && y.peek() == '%' {
		if directives || !y.version() {
			return false, y.fault("directive %s is not understood", y.found()).WithHint("one line %%YAML 1.2 may precede the --- of a document")
		}
		directives = true
		if !y.skip() {
			break
		}
	}
	if y.pos < len(y.src) && y.marker() {
		end := y.peek() == '.'
		if end && directives {
			return false, y.fault("expected --- after the directives")
		}
		y.pos += 3
		if end && !y.rest() {
			return false, y.fault("unexpected %s after the end of a document", y.found()).WithHint("a document begins on a line of its own")
		}
		if end || !y.skip() {
			return false, nil
		}
		return !y.marker(), nil
	}
	if directives {
		return false, y.fault("expected --- after the directives")
	}
	return true, nil
}

// version reads the directive %YAML 1.N. It returns false and reads nothing if anything else is on this line.
func (y *yamlReader) version() bool {
	const head = "%YAML 1."
	start := y.pos
	if bytes.HasPrefix(y.src[start:], []byte(head)) {
		y.pos += len(head)
		for '0' <= y.peek() && y.peek() <= '9' {
			y.pos++
		}
		if y.pos > start+len(head) && y.rest() {
			return true
		}
	}
	y.pos = start
	return false
}

// compact is whether a block collection may begin on the same line as what precedes it.
type compact uint8

const (
	noCollections      compact = iota // after `key:` and `---`
	compactCollections                // after `-`, and on a line of their own
)

// properties of a node: &anchor and !tag.
type properties struct {
	at          int
	anchor, tag string
}

// value reads what follows a key, a dash or the beginning of the document: on this line, or on later lines that are indented
// deeper than parent. After a key (noCollections) a list may also be in the column of the key.
func (y *yamlReader) value(parent, depth int, where compact) (n Node, f *Fault) {
	if depth > maxDepth {
		return n, TooLarge(y.pos, errDepth)
	}
	p, fresh, f := y.properties()
	if f != nil {
		return n, f
	}
	// Properties may be on a line above their value: `key: &a`, and the value below.
	for y.rest() {
		at := y.pos
		if !y.skip() || y.marker() || y.outside(parent, where) {
			return y.finish(p, Scalar(Null, at, ""), depth)
		}
		if f := y.tab(); f != nil {
			return n, f
		}
		var more properties
		if more, fresh, f = y.properties(); f == nil {
			p, f = merge(p, more)
		}
		if f != nil {
			return n, f
		}
		where = compactCollections
		if !fresh {
			continue
		}
		break
	}
	return y.content(p, parent, depth, where, fresh)
}

// outside reports whether the content here belongs to a collection around the current one.
func (y *yamlReader) outside(parent int, where compact) bool {
	if where == noCollections && y.column() == parent {
		return !y.dash()
	}
	return y.column() <= parent
}

// dash reports whether an entry of a list begins here.
func (y *yamlReader) dash() bool { return y.peek() == '-' && ends(y.at(y.pos+1)) }

// tab refuses a tab before the content of this line.
func (y *yamlReader) tab() *Fault {
	if i := bytes.IndexByte(y.src[y.lineStart:y.pos], '\t'); i >= 0 {
		return Malformed(y.lineStart+i, "a tab indents this line").WithHint("YAML indents with spaces")
	}
	return nil
}

// properties reads an anchor and a tag. fresh reports that there are none.
func (y *yamlReader) properties() (p properties, fresh bool, f *Fault) {
	y.blanks()
	p = properties{at: y.pos}
	for {
		c := y.peek()
		if c != '&' && c != '!' {
			return p, p.anchor == "" && p.tag == "", nil
		}
		at := y.pos
		word := y.word()
		switch {
		case c == '&' && (p.anchor != "" || word == "&"), c == '!' && p.tag != "":
			y.pos = at
			return p, false, y.fault("unexpected %s", y.found())
		case c == '&':
			p.anchor = word[1:]
		default:
			p.tag = word
		}
		y.blanks()
	}
}

// word reads up to a blank, a comma or a bracket. Commas and brackets end the names of anchors and tags everywhere.
func (y *yamlReader) word() string {
	start := y.pos
	for !ends(y.peek()) && !flowIndicator(y.peek()) {
		y.pos++
	}
	return string(y.src[start:y.pos])
}

func flowIndicator(c byte) bool {
	return c == ',' || c == '[' || c == ']' || c == '{' || c == '}'
}

// merge joins the properties of a line with those of the next one.
func merge(p, q properties) (properties, *Fault) {
	if p.anchor != "" && q.anchor != "" || p.tag != "" && q.tag != "" {
		return p, Malformed(q.at, "a second anchor or tag for one value")
	}
	if q.anchor != "" {
		p.anchor = q.anchor
	}
	if q.tag != "" {
		p.tag = q.tag
	}
	return p, nil
}

// content reads the node that begins here.
func (y *yamlReader) content(p properties, parent, depth int, where compact, fresh bool) (n Node, f *Fault) {
	switch c := y.peek(); {
	case y.dash():
		if where == noCollections || !fresh {
			return n, y.fault("a list does not begin on this line").WithHint("put its first `-` on a line of its own")
		}
		if f := y.tab(); f != nil {
			return n, f
		}
		n, f = y.list(y.column(), depth)
	case c == '?' && ends(y.at(y.pos+1)):
		return n, y.fault("keys that are collections are not understood: a field name is one word")
	case c == '|' || c == '>':
		n, f = y.block(parent)
	case c == '*':
		return y.alias(p, depth)
	default:
		if y.isKey() {
			if where == noCollections && parent < 0 {
				return n, y.fault("a field does not begin on the line of ---").WithHint("put it on the next line")
			}
			if where == noCollections {
				return n, y.fault("a second `: ` on this line").WithHint(
					"quote the value if the colon is a part of it, or put the field on a line of its own")
			}
			if !fresh {
				return n, y.fault("an anchor or tag stands before a field name").WithHint("put it on the line above")
			}
			if f := y.tab(); f != nil {
				return n, f
			}
			n, f = y.object(y.column(), depth)
			break
		}
		switch c {
		case '[', '{':
			n, f = y.flow(depth)
		case '"', '\'':
			at := y.pos
			var s string
			if s, f = y.quoted(); f == nil {
				n = Scalar(String, at, s)
			}
		default:
			return y.plainNode(p, parent, depth)
		}
	}
	if f != nil {
		return n, f
	}
	return y.finish(p, n, depth)
}

// plainNode reads a plain scalar, and resolves it by its tag or by the core schema.
func (y *yamlReader) plainNode(p properties, parent, depth int) (n Node, f *Fault) {
	at := y.pos
	s, f := y.plain(parent, false)
	if f != nil {
		return n, f
	}
	if p.tag != "" {
		return y.finish(p, Scalar(String, at, s), depth)
	}
	if n, f = resolve(at, s); f != nil {
		return n, f
	}
	return y.finish(p, n, depth)
}

// finish applies the tag, counts the node and records its anchor.
func (y *yamlReader) finish(p properties, n Node, depth int) (Node, *Fault) {
	if p.tag != "" {
		var f *Fault
		if n, f = retag(p, n); f != nil {
			return n, f
		}
	}
	if len(n.Kids) == 0 { // collections have been counted as they grew
		if err := y.tally.Add(&n, depth); err != nil {
			return n, TooLarge(int(n.At), err)
		}
	}
	if p.anchor != "" {
		if y.anchors == nil {
			y.anchors = map[string]Node{}
		}
		y.anchors[p.anchor] = n
	}
	return n, nil
}

// alias returns the node of an anchor, whose children it shares, and counts all of it again.
func (y *yamlReader) alias(p properties, depth int) (n Node, f *Fault) {
	at := y.pos
	name := y.word()[1:]
	if p.anchor != "" || p.tag != "" {
		return n, Malformed(at, "an alias takes no anchor and no tag")
	}
	n, ok := y.anchors[name]
	if !ok {
		return n, Malformed(at, "no anchor &%s stands above this alias", name).WithHint("%s", Suggest(name, slices.Sorted(maps.Keys(y.anchors))))
	}
	if err := y.tally.Add(&n, depth); err != nil {
		return n, TooLarge(at, err)
	}
	return n, nil
}
