package text

import (
	"bytes"
	"sync"

	"github.com/perdure/perdure/internal/jsontext"
)

// JSONReader reads JSON texts (RFC 8259) into nodes, one after the other. Digits are kept as written. A name that an
// object has twice is a fault.
type JSONReader struct {
	jsonTokens
	tally Tally
	keys  []Key  // stacks of the members and items of the collections that are open,
	kids  []Node // so that each collection is allocated once, at its size
}

// ReadJSON reads the one document of src, which is valid UTF-8.
func ReadJSON(src []byte) (Node, *Fault) {
	var r JSONReader
	r.Reset(src)
	return r.Document()
}

// ReadLenientJSON reads the JSON that an expression gave. Of a name that occurs twice the last value counts, and NUL is
// accepted: agents may send both.
func ReadLenientJSON(src []byte) (Node, *Fault) {
	var r JSONReader
	r.reset(src, true)
	n, f := r.value(0)
	return n, r.first(f)
}

// Reset prepares the reader for another text. It keeps the memory of its stacks.
func (r *JSONReader) Reset(src []byte) {
	r.reset(src, false)
	r.tally, r.keys, r.kids = Tally{}, r.keys[:0], r.kids[:0]
}

// ReadTransientJSON is ReadJSON for a small value that is not kept: all its strings share one allocation.
func ReadTransientJSON(src []byte) (Node, *Fault) {
	r := readerPool.Get().(*JSONReader)
	r.Reset(src)
	r.shared = string(src)
	n, f := r.Document()
	clear(r.keys[:cap(r.keys)])
	clear(r.kids[:cap(r.kids)])
	r.reset(nil, false)
	readerPool.Put(r)
	return n, f
}

var readerPool = sync.Pool{New: func() any { return &JSONReader{keys: make([]Key, 0, 16), kids: make([]Node, 0, 16)} }}

// Document reads the whole text.
func (r *JSONReader) Document() (Node, *Fault) {
	n, f := r.value(0)
	if f = r.first(f); f != nil {
		return n, f
	}
	if end := r.in.Offset(); end < len(r.src) {
		return n, Malformed(end, "unexpected %s after the end of the definition", describe(r.src[end:])).
			WithHint("one JSON document is one definition; several go into one YAML file, separated by ---")
	}
	return n, nil
}

// value reads a value at that depth. A fault of the JSON itself is left to first.
func (r *JSONReader) value(depth int) (n Node, f *Fault) {
	at := r.in.Offset()
	switch r.in.Peek() {
	case jsontext.Object:
		return r.object(at, depth)
	case jsontext.List:
		return r.list(at, depth)
	case jsontext.String:
		s, f := r.string()
		if f != nil {
			return n, f
		}
		n = Scalar(String, at, s)
	case jsontext.Number:
		n = Scalar(Number, at, r.number())
	case jsontext.Bool:
		n = Scalar(Bool, at, "false")
		if r.in.Bool() {
			n = Scalar(Bool, at, "true")
		}
	default:
		r.null()
		n = Scalar(Null, at, "")
	}
	return n, r.count(&n, depth)
}

// count adds a leaf, or the shell of a collection, to the tally.
func (r *JSONReader) count(n *Node, depth int) *Fault {
	if err := r.tally.Add(n, depth); err != nil {
		return TooLarge(int(n.At), err)
	}
	return nil
}

func (r *JSONReader) object(at, depth int) (n Node, f *Fault) {
	n = Scalar(Object, at, "")
	if f := r.count(&n, depth); f != nil {
		return n, f
	}
	keys, kids := len(r.keys), len(r.kids)
	for r.in.Object(); r.in.More(); {
		at := r.in.Offset()
		name, duplicate, f := r.name()
		if f != nil {
			return n, f
		}
		r.keys = append(r.keys, Key{name, int32(at)})
		if duplicate {
			return n, duplicateKey(r.keys, len(r.keys)-1)
		}
		r.tally.bytes += len(name)
		kid, f := r.value(depth + 1)
		if f != nil {
			return n, f
		}
		r.kids = append(r.kids, kid)
	}
	if f := r.first(nil); f != nil {
		return n, f
	}
	n.Keys, n.Kids = append([]Key(nil), r.keys[keys:]...), append([]Node(nil), r.kids[kids:]...)
	r.keys, r.kids = r.keys[:keys], r.kids[:kids]
	n.sumUp()
	return n, nil
}

func (r *JSONReader) list(at, depth int) (n Node, f *Fault) {
	n = Scalar(List, at, "")
	if f := r.count(&n, depth); f != nil {
		return n, f
	}
	kids := len(r.kids)
	for r.in.List(); r.in.More(); {
		kid, f := r.value(depth + 1)
		if f != nil {
			return n, f
		}
		r.kids = append(r.kids, kid)
	}
	if f := r.first(nil); f != nil {
		return n, f
	}
	n.Kids = append([]Node(nil), r.kids[kids:]...)
	r.kids = r.kids[:kids]
	n.sumUp()
	return n, nil
}

// jsonTokens are the tokens of a JSON text, as Go strings.
type jsonTokens struct {
	in      jsontext.Reader
	src     []byte
	shared  string // src as one string, whose parts the results are; "": each result has memory of its own
	lenient bool   // NUL is accepted, and a name that occurs twice
}

func (r *jsonTokens) reset(src []byte, lenient bool) {
	r.src, r.shared, r.lenient = src, "", lenient
	r.in.Reset(src, jsontext.Options{MaxDepth: maxDepth, AnyNames: lenient})
}

// string reads a string.
func (r *jsonTokens) string() (string, *Fault) {
	at := r.in.Offset()
	b := r.in.Bytes()
	return r.text(at, b), r.refuseNUL(at, b)
}

// name reads the name of a member. again: the object has had it before, and must not.
func (r *jsonTokens) name() (name string, duplicate bool, f *Fault) {
	at := r.in.Offset()
	b, duplicate := r.in.Name()
	return r.text(at, b), duplicate, r.refuseNUL(at, b)
}

func (r *jsonTokens) refuseNUL(at int, b []byte) *Fault {
	if r.lenient || bytes.IndexByte(b, 0) < 0 {
		return nil
	}
	return Malformed(at+max(0, bytes.Index(r.src[at:], []byte(`\u0000`))), nulInString)
}

// number reads a number as it is written.
func (r *jsonTokens) number() string {
	at := r.in.Offset()
	b := r.in.Number()
	if r.shared != "" {
		return r.shared[at : at+len(b)]
	}
	return string(b)
}

func (r *jsonTokens) null() {
	if !r.in.Null() {
		r.in.Skip() // which says what is wrong
	}
}

// text returns what was read of a string that begins with its quote at at. If it has no escapes it is a part of shared.
func (r *jsonTokens) text(at int, b []byte) string {
	if from, to := at+1, at+1+len(b); to <= len(r.shared) && r.shared[from:to] == string(b) {
		return r.shared[from:to]
	}
	return string(b)
}

// first returns the first fault of a text: its first malformed byte, otherwise f.
func (r *jsonTokens) first(f *Fault) *Fault {
	e := r.in.Err()
	switch {
	case e == nil:
		return f
	case f != nil && int(f.at) < e.Offset:
		return f
	case e.TooDeep:
		return TooLarge(e.Offset, errDepth)
	}
	return Malformed(e.Offset, "%s", e.Message)
}
