package text

import (
	"math/big"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/jsontext"
)

// plainLine reads the part of an unquoted scalar that is on this line. It ends before `: `, ` #`,
// the end of the line and, inside brackets, a comma or a bracket.
func (y *yamlReader) plainLine(flow bool) string {
	start, end := y.pos, y.pos
	for ; !y.eol(); y.pos++ {
		c := y.src[y.pos]
		if c == ':' && (ends(y.at(y.pos+1)) || flow && flowIndicator(y.at(y.pos+1))) ||
			c == '#' && y.pos > start && blank(y.src[y.pos-1]) ||
			flow && flowIndicator(c) {
			break
		}
		if !blank(c) {
			end = y.pos + 1
		}
	}
	return string(y.src[start:end])
}

// plain reads an unquoted scalar, and folds the lines that it has.
func (y *yamlReader) plain(parent int, flow bool) (string, *Fault) {
	if c := y.peek(); c == '@' || c == '`' || c == '%' || c == '|' || c == '>' || c == ',' || c == ']' || c == '}' || c == '#' {
		f := y.fault("a value cannot start with %s", Quote(string(rune(c))))
		return "", f.WithHint("quote it")
	}
	start := y.pos
	line := y.plainLine(flow)
	if line == "" {
		return "", y.fault("expected a value, found %s", y.found())
	}
	var b strings.Builder
	b.WriteString(line)
	for y.eol() && y.pos < len(y.src) {
		breaks, ok, f := y.continues(parent, flow)
		if f != nil {
			return "", f
		}
		if !ok {
			break
		}
		if breaks == 1 {
			b.WriteByte(' ')
		} else {
			b.WriteString(strings.Repeat("\n", breaks-1))
		}
		at := y.pos
		b.WriteString(y.plainLine(flow))
		if !flow && y.peek() == ':' {
			y.pos = at
			if colon := strings.IndexByte(line, ':'); colon > 0 && IsIdentifier(line[:colon]) {
				return "", Malformed(start+colon, "expected a space after the `:`")
			}
			return "", y.fault("unexpected field: the value above goes on here, or this line is indented too deep")
		}
	}
	return b.String(), nil
}

// continues goes to the next line of a scalar that began above, and counts the line breaks up to it. If the scalar ends, it
// reads nothing.
func (y *yamlReader) continues(parent int, flow bool) (breaks int, ok bool, f *Fault) {
	pos, line := y.pos, y.lineStart
	for y.eol() && y.pos < len(y.src) {
		y.newline()
		breaks++
		y.blanks()
	}
	c := y.peek()
	if y.pos >= len(y.src) || c == '#' || y.marker() || !flow && y.column() <= parent ||
		flow && (flowIndicator(c) || c == ':') {
		y.pos, y.lineStart = pos, line
		return 0, false, nil
	}
	if !flow {
		if f := y.tabIndent(parent); f != nil {
			return 0, false, f
		}
	}
	return breaks, true, nil
}

// tabIndent refuses a tab within the indentation that decides to which collection the line belongs.
func (y *yamlReader) tabIndent(parent int) *Fault {
	for i := 0; i <= parent && y.lineStart+i < y.pos; i++ {
		if y.src[y.lineStart+i] == '\t' {
			return Malformed(y.lineStart+i, "a tab indents this line").WithHint("YAML indents with spaces")
		}
	}
	return nil
}

// quoted reads a 'single' or "double" quoted scalar.
func (y *yamlReader) quoted() (string, *Fault) {
	open, q := y.pos, y.peek()
	y.pos++
	start := y.pos
	if i := strings.IndexAny(string(y.src[start:min(len(y.src), start+64)]), "\"'\\\r\n"); i >= 0 && y.src[start+i] == q && !(q == '\'' && y.at(start+i+1) == q) {
		y.pos = start + i + 1
		return string(y.src[start : start+i]), nil // short, on one line, nothing to unfold
	}
	var b []byte
	solid := 0 // length up to which blanks are not the fold's to trim
	for y.pos < len(y.src) {
		switch c := y.src[y.pos]; {
		case c == q && q == '\'' && y.at(y.pos+1) == '\'':
			b = append(b, '\'')
			y.pos += 2
			solid = len(b)
		case c == q:
			y.pos++
			return string(b), nil
		case c == '\\' && q == '"':
			var f *Fault
			if b, f = y.escape(b); f != nil {
				return "", f
			}
			solid = len(b)
		case c == '\n' || c == '\r':
			b = trimBlanks(b, solid)
			b = y.fold(b)
			solid = len(b)
			if y.marker() {
				return "", Malformed(open, "this quote is never closed")
			}
		case c < 0x20 && c != '\t':
			return "", y.fault("control character in a string").WithHint("write it as an escape in double quotes, such as \\n")
		default:
			b = append(b, c)
			y.pos++
			if !blank(c) {
				solid = len(b)
			}
		}
	}
	return "", Malformed(open, "this quote is never closed")
}

func trimBlanks(b []byte, solid int) []byte {
	for len(b) > solid && blank(b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	return b
}

// fold reads line breaks and the indentation of the next line. One line break is a space, n are n-1 newlines.
func (y *yamlReader) fold(b []byte) []byte {
	breaks := 0
	for y.eol() && y.pos < len(y.src) {
		y.newline()
		breaks++
		if !y.marker() {
			y.blanks()
		}
	}
	if breaks == 1 {
		return append(b, ' ')
	}
	for range breaks - 1 {
		b = append(b, '\n')
	}
	return b
}

// yamlEscapes are the escapes of one letter; a backslash before a line's end joins the lines.
var yamlEscapes = map[byte]string{
	'a': "\a", 'b': "\b", 't': "\t", '\t': "\t", 'n': "\n", 'v': "\v", 'f': "\f", 'r': "\r", 'e': "\x1b",
	' ': " ", '"': "\"", '/': "/", '\\': "\\", 'N': "\u0085", '_': "\u00a0", 'L': "\u2028", 'P': "\u2029",
}

// escape reads one escape of a double-quoted scalar.
func (y *yamlReader) escape(b []byte) ([]byte, *Fault) {
	c := y.at(y.pos + 1)
	if s, ok := yamlEscapes[c]; ok {
		y.pos += 2
		return append(b, s...), nil
	}
	switch c {
	case '\n', '\r':
		y.pos++
		y.newline()
		y.blanks()
		return b, nil
	case 'x', 'u', 'U':
		width := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
		r, ok := hex(y.src, y.pos+2, width)
		n := 2 + width
		if ok && utf16.IsSurrogate(r) {
			var low rune
			if low, ok = hex(y.src, y.pos+n+2, 4); ok && y.at(y.pos+n) == '\\' && y.at(y.pos+n+1) == 'u' {
				r = utf16.DecodeRune(r, low)
			}
			n += 6
		}
		if !ok || r == 0 || !utf8.ValidRune(r) || r == utf8.RuneError && width != 4 {
			return b, y.fault("%s", badEscape(r, ok))
		}
		y.pos += n
		return utf8.AppendRune(b, r), nil
	case '0':
		return b, y.fault("%s", badEscape(0, true))
	}
	return b, y.fault("unknown escape %s in a double-quoted string", Quote(string(y.src[y.pos:min(y.pos+2, len(y.src))]))).
		WithHint(`write \\ for a backslash, or use single quotes`)
}

// block reads a | literal or > folded scalar that is indented deeper than parent.
func (y *yamlReader) block(parent int) (n Node, f *Fault) {
	at := y.pos
	folded := y.peek() == '>'
	y.pos++
	indent, chomp := -1, byte(0)
	for !ends(y.peek()) {
		switch c := y.peek(); {
		case '1' <= c && c <= '9' && indent < 0:
			indent = max(parent, 0) + int(c-'0')
		case (c == '-' || c == '+') && chomp == 0:
			chomp = c
		default:
			return n, y.fault("unexpected %s after the %c of a block of text", y.found(), y.src[at])
		}
		y.pos++
	}
	if !y.rest() {
		return n, y.fault("unexpected %s: a block of text begins on the next line", y.found())
	}
	lines, f := y.blockLines(parent, indent)
	if f != nil {
		return n, f
	}
	return Scalar(String, at, chomped(lines, folded, chomp)), nil
}

// blockLines reads the lines of a block scalar, up to the end of the last one, and returns them without their indentation.
func (y *yamlReader) blockLines(parent, indent int) (lines []string, f *Fault) {
	spaces := 0 // of the widest empty line before the text
	for y.pos < len(y.src) {
		saved, savedLine := y.pos, y.lineStart
		y.newline()
		if y.pos >= len(y.src) {
			break
		}
		for y.peek() == ' ' && (indent < 0 || y.column() < indent) {
			y.pos++
		}
		if y.eol() {
			lines = append(lines, "")
			spaces = max(spaces, y.column())
			continue
		}
		if indent < 0 && y.column() > parent && !y.marker() {
			if indent = y.column(); y.peek() == '\t' {
				return nil, y.fault("a tab indents this line").WithHint("YAML indents with spaces")
			}
			if spaces > indent {
				return nil, y.fault("an empty line above has more spaces than the text is indented by").WithHint("remove its spaces")
			}
		}
		if indent < 0 || y.column() < indent || y.marker() {
			y.pos, y.lineStart = saved, savedLine
			break
		}
		start := y.pos
		for !y.eol() {
			y.pos++
		}
		lines = append(lines, string(y.src[start:y.pos]))
	}
	return lines, nil
}

// chomped joins the lines of a block scalar, folded or not. At its end are one newline, none (-), or all that the text has
// (+).
func chomped(lines []string, folded bool, chomp byte) string {
	last := len(lines)
	for last > 0 && lines[last-1] == "" {
		last--
	}
	var b strings.Builder
	for i := 0; i < last; i++ {
		b.WriteString(lines[i])
		if i == last-1 {
			break
		}
		if !folded {
			b.WriteByte('\n')
			continue
		}
		next := i + 1
		for lines[next] == "" {
			next++
		}
		switch breaks := next - i; {
		case deeper(lines[i]) || deeper(lines[next]):
			b.WriteString(strings.Repeat("\n", breaks))
		case lines[i] == "": // leading empty lines
			b.WriteString(strings.Repeat("\n", breaks))
		case breaks == 1:
			b.WriteByte(' ')
		default:
			b.WriteString(strings.Repeat("\n", breaks-1))
		}
		i = next - 1
	}
	switch {
	case chomp == '+':
		b.WriteString(strings.Repeat("\n", len(lines)-last+min(last, 1)))
	case chomp == 0 && last > 0:
		b.WriteByte('\n')
	}
	return b.String()
}

// deeper reports whether a line of folded text is indented deeper, and so keeps its line breaks.
func deeper(line string) bool { return line != "" && blank(line[0]) }

// resolve returns the value of an unquoted scalar in the core schema of YAML. Numbers become those of JSON.
func resolve(at int, s string) (Node, *Fault) {
	switch s {
	case "", "~", "null", "Null", "NULL":
		return Scalar(Null, at, ""), nil
	case "true", "True", "TRUE":
		return Scalar(Bool, at, "true"), nil
	case "false", "False", "FALSE":
		return Scalar(Bool, at, "false"), nil
	}
	if c := s[0]; c != '-' && c != '+' && c != '.' && (c < '0' || c > '9') {
		return Scalar(String, at, s), nil
	}
	if jsontext.IsNumber(s) {
		return Scalar(Number, at, s), nil
	}
	return resolveNumber(at, s)
}

// resolveNumber is resolve for what may be a number that is not written as in JSON.
func resolveNumber(at int, s string) (Node, *Fault) {
	sign, body := "", s
	if s[0] == '-' || s[0] == '+' {
		sign, body = s[:1], s[1:]
	}
	if sign == "+" {
		sign = ""
	}
	switch strings.ToLower(body) {
	case ".inf", ".nan":
		return Node{}, Invalid(at, "%s is no number that JSON can carry", Quote(s)).WithHint("quote it if it is text")
	}
	if body == "" {
		return Scalar(String, at, s), nil
	}
	if base := map[string]int{"0x": 16, "0o": 8}[body[:min(2, len(body))]]; base != 0 && len(s) == len(body) && len(body) > 2 && len(body) < 1000 {
		if v, ok := new(big.Int).SetString(body[2:], base); ok && body[2] != '+' && body[2] != '-' {
			return Scalar(Number, at, v.String()), nil
		}
		return Scalar(String, at, s), nil
	}
	whole, fraction, point := strings.Cut(body, ".")
	if point { // .5 and 5. are numbers, too
		digits, exponent := fraction, ""
		if i := strings.IndexAny(fraction, "eE"); i >= 0 {
			digits, exponent = fraction[:i], fraction[i:]
		}
		if whole == "" && digits != "" {
			whole = "0"
		}
		if digits == "" && whole != "" {
			digits = "0"
		}
		body = whole + "." + digits + exponent
	}
	if n := sign + body; jsontext.IsNumber(n) {
		return Scalar(Number, at, n), nil
	}
	if ambiguous(body) {
		return Node{}, Invalid(at, "%s is one number in YAML 1.1 and another thing in 1.2", Quote(s)).
			WithHint("write the digits alone, 0o for octal, or quote it if it is text")
	}
	return Scalar(String, at, s), nil
}

// ambiguous reports whether YAML 1.1 and 1.2 read a number differently: 0777, 1_000, 0b11, 00.5.
func ambiguous(s string) bool {
	bare := strings.ReplaceAll(s, "_", "")
	if len(bare) > 2 && bare[:2] == "0b" {
		return strings.Trim(bare[2:], "01") == ""
	}
	bare = strings.TrimLeft(bare, "0")
	return s[0] != '_' && (bare == "" || jsontext.IsNumber(bare) || bare[0] == '.' && jsontext.IsNumber("0"+bare))
}

// retag applies an explicit tag of the core schema.
func retag(p properties, n Node) (Node, *Fault) {
	want, ok := map[string]Kind{"!!str": String, "!!int": Number, "!!float": Number, "!!bool": Bool,
		"!!null": Null, "!!map": Object, "!!seq": List, "!": String}[p.tag]
	if !ok {
		return n, Malformed(p.at, "tag %s is not understood", Quote(p.tag)).WithHint("tags are !!str, !!int, !!float, !!bool, !!null, !!map, !!seq")
	}
	if n.Kind == String && want != String {
		r, f := resolve(int(n.At), n.Text)
		if f != nil {
			return n, f
		}
		n = r
	}
	if n.Kind == Null && want == String {
		n.Kind = String
	}
	if n.Kind != want {
		return n, Malformed(p.at, "tag %s on %s", p.tag, n.Kind)
	}
	return n, nil
}

const nulInString = "NUL in a string: no store and no process can carry it"

func badEscape(c rune, ok bool) string {
	if ok && c == 0 {
		return nulInString
	}
	return "this escape is no character: \\u takes four hexadecimal digits, and a surrogate needs its other half"
}

// hex reads n hexadecimal digits at i.
func hex(b []byte, i, n int) (rune, bool) {
	if i+n > len(b) {
		return 0, false
	}
	var v rune
	for _, c := range b[i : i+n] {
		switch {
		case '0' <= c && c <= '9':
			v = v<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			v = v<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return v, true
}
