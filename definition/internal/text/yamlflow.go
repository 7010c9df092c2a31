package text

// flow reads a [list] or an {object} in brackets.
func (y *yamlReader) flow(depth int) (n Node, f *Fault) {
	open := y.pos
	n = Scalar(List, open, "")
	closing := byte(']')
	if y.peek() == '{' {
		n.Kind, closing = Object, '}'
	}
	if f := y.open(&n, depth); f != nil {
		return n, f
	}
	keys, kids := len(y.keys), len(y.kids)
	var merges []Node
	y.pos++
	for {
		if f := y.flowSkip(open); f != nil {
			return n, f
		}
		if y.peek() == closing {
			y.pos++
			break
		}
		if n.Kind == Object {
			f = y.member(depth, &merges)
		} else {
			f = y.item(depth)
		}
		if f == nil {
			f = y.flowSkip(open)
		}
		if f != nil {
			return n, f
		}
		if c := y.peek(); c == ',' {
			y.pos++
		} else if c != closing {
			return n, y.flowFault(closing)
		}
	}
	if n.Kind == Object {
		return n, y.close(&n, keys, kids, merges, depth)
	}
	n.Kids = append([]Node(nil), y.kids[kids:]...)
	y.kids = y.kids[:kids]
	n.sumUp()
	return n, nil
}

// flowFault is the fault of a text that has neither a comma nor the closing bracket here.
func (y *yamlReader) flowFault(closing byte) *Fault {
	f := y.fault("expected `,` or `%c`, found %s", closing, y.found())
	if c := y.peek(); c == '{' && y.pos > 0 && y.src[y.pos-1] == '$' {
		f.Message = "a bare ${…} inside brackets"
		f.at--
		return f.WithHint(`quote it: "${…}"`)
	}
	return f
}

// flowSkip goes to the next content inside brackets.
func (y *yamlReader) flowSkip(open int) *Fault {
	if !y.skip() || y.marker() {
		return Malformed(open, "this %c is never closed", y.src[open])
	}
	return nil
}

// item reads one entry of a list in brackets.
func (y *yamlReader) item(depth int) *Fault {
	at := y.pos
	if c := y.peek(); c == ',' {
		return y.fault("expected a value, found `,`")
	}
	kid, f := y.flowValue(depth + 1)
	if f != nil {
		return f
	}
	if y.blanks(); y.peek() == ':' {
		y.pos = at
		return y.fault("a field inside a list").WithHint("put it in braces: [{name: value}]")
	}
	y.kids = append(y.kids, kid)
	return nil
}

// member reads one field of an object in braces. One without a value is null.
func (y *yamlReader) member(depth int, merges *[]Node) *Fault {
	k := Key{At: int32(y.pos)}
	var f *Fault
	tight := false // after a quoted name the colon needs no space, as in JSON
	switch c := y.peek(); c {
	case '"', '\'':
		if k.Name, f = y.quoted(); f != nil {
			return f
		}
		tight = true
	case '&', '*', '!', '[', '{', ',':
		return y.fault("expected a field name, found %s", y.found())
	default:
		if k.Name = y.plainLine(true); k.Name == "" || c == '?' && ends(y.at(int(k.At)+1)) {
			y.pos = int(k.At)
			return y.fault("expected a field name, found %s", y.found())
		}
	}
	if f := y.flowSkip(int(k.At)); f != nil {
		return f
	}
	kid := Scalar(Null, y.pos, "")
	if y.peek() == ':' && (tight || ends(y.at(y.pos+1)) || flowIndicator(y.at(y.pos+1))) {
		y.pos++
		if f := y.flowSkip(int(k.At)); f != nil {
			return f
		}
		if kid, f = y.flowValue(depth + 1); f != nil {
			return f
		}
	} else if c := y.peek(); c != ',' && c != '}' {
		return y.flowFault('}')
	}
	if k.Name == mergeKey && y.src[k.At] == '<' {
		*merges = append(*merges, kid)
		return nil
	}
	y.keys, y.kids = append(y.keys, k), append(y.kids, kid)
	y.tally.bytes += len(k.Name)
	return nil
}

// flowValue reads one value inside brackets.
func (y *yamlReader) flowValue(depth int) (n Node, f *Fault) {
	p, _, f := y.properties()
	if f != nil {
		return n, f
	}
	if f := y.flowSkip(p.at); f != nil {
		return n, f
	}
	switch c := y.peek(); {
	case c == ',' || c == ']' || c == '}':
		n = Scalar(Null, y.pos, "")
	case c == '[' || c == '{':
		n, f = y.flow(depth)
	case c == '*':
		return y.alias(p, depth)
	case c == '"' || c == '\'':
		at := y.pos
		var s string
		if s, f = y.quoted(); f == nil {
			n = Scalar(String, at, s)
		}
	case y.dash():
		return n, y.fault("a `-` inside brackets").WithHint("entries are separated by commas here")
	default:
		at := y.pos
		var s string
		if s, f = y.plain(-1, true); f != nil {
			return n, f
		}
		if n = Scalar(String, at, s); p.tag == "" {
			n, f = resolve(at, s)
		}
	}
	if f != nil {
		return n, f
	}
	return y.finish(p, n, depth)
}
