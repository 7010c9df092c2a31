package definition

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/perdure/perdure/internal/kernel"
)

// root is one of the names that an expression may begin with.
type root uint8

const (
	rootInput  root = iota
	rootJob         // id, key, type, labels
	rootStep        // steps.NAME.output
	rootOutput      // these three in an undo only
	rootKey
	rootDoKey
)

var roots = map[string]root{"input": rootInput, "job": rootJob, "steps": rootStep, "output": rootOutput, "key": rootKey, "doKey": rootDoKey}

var rootNames = []string{"input", "job", "steps", "output", "key", "doKey"}

// path is a reference such as input.legs[0].city: a root, and what is picked from it. It is read
// from the raw JSON, so that what it finds keeps its digits.
type path struct {
	root root
	step string // rootStep: whose output
	pick []pick
	at   int // byte offset in the expression
}

// pick is one member or entry.
type pick struct {
	name     string
	index    int
	list     bool // an entry by index, from the end if negative; else a member by name
	optional bool // ?. : null where there is none
}

func (p *path) String() string { return p.upto(len(p.pick)) }

// upto writes the path with its first n picks.
func (p *path) upto(n int) string {
	var b strings.Builder
	b.WriteString(rootNames[p.root])
	if p.root == rootStep {
		b.WriteString("." + p.step + ".output")
	}
	for _, k := range p.pick[:n] {
		switch {
		case k.list:
			b.WriteString("[" + strconv.Itoa(k.index) + "]")
		case identifier(k.name):
			b.WriteString("." + k.name)
		default:
			b.WriteString("[" + strconv.Quote(k.name) + "]")
		}
	}
	return b.String()
}

// early says that what it refers to is known when a job is submitted.
func (p *path) early() bool {
	return p.root == rootInput || p.root == rootJob && len(p.pick) > 0 && p.pick[0].name != "id"
}

func identifier(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c != '_' && (c|0x20 < 'a' || c|0x20 > 'z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// parsePath reads an expression that is nothing but a path; ok is false for any other.
func parsePath(src string) (p path, ok bool) {
	i := 0
	word := func() string {
		start := i
		for i < len(src) && identifier("_"+src[i:i+1]) {
			i++
		}
		return src[start:i]
	}
	p.root, ok = roots[word()]
	for ok && i < len(src) {
		k := pick{}
		if strings.HasPrefix(src[i:], "?.") {
			k.optional = true
			i++
		}
		switch {
		case src[i] == '.' && !strings.HasPrefix(src[i:], ".["):
			i++
			k.name = word()
			ok = identifier(k.name)
		case src[i] == '[' || k.optional:
			if k.optional {
				i++
			}
			end := strings.IndexByte(src[i:], ']')
			if end < 2 {
				return p, false
			}
			k.list, k.name, k.index, ok = bracket(src[i+1 : i+end])
			i += end + 1
		default:
			return p, false
		}
		p.pick = append(p.pick, k)
	}
	return p, ok && p.takeStep()
}

// bracket reads what stands between [ and ]: a whole number or a simple quoted name.
func bracket(s string) (list bool, name string, index int, ok bool) {
	if n, err := strconv.Atoi(s); err == nil && s[0] != '+' && len(s) < 10 {
		return true, "", n, true
	}
	if len(s) < 2 || s[0] != s[len(s)-1] || s[0] != '"' && s[0] != '\'' {
		return false, "", 0, false
	}
	name = s[1 : len(s)-1]
	return false, name, 0, !strings.ContainsAny(name, "\\\"'\n\r")
}

// takeStep takes NAME.output off a path that begins with steps; false if it has no such shape.
func (p *path) takeStep() bool {
	if p.root != rootStep {
		return true
	}
	if len(p.pick) < 2 || p.pick[0].list || p.pick[0].optional || p.pick[1].name != "output" || p.pick[1].list || p.pick[1].optional {
		return false
	}
	p.step, p.pick = p.pick[0].name, p.pick[2:]
	return true
}

// find looks the path up. What is not there is an error, or null where the path or the caller
// (lax: the left side of ??) says that it may be missing.
func (p *path) find(v *view, lax bool) (json.RawMessage, error) {
	raw, pick, err := p.start(v.scope)
	if err != nil {
		return nil, err
	}
	done := len(p.pick) - len(pick)
	for i := range pick {
		k := &pick[i]
		raw = trimSpace(raw)
		if string(raw) == "null" && (k.optional || lax) {
			return null, nil
		}
		next, err := v.pick(raw, k)
		switch {
		case err == nil:
			raw = next
		case !errors.Is(err, errNothing) && !errors.Is(err, errKind): // the work is used up, or the call has ended
			return nil, err
		case k.optional || lax:
			return null, nil
		default:
			return nil, p.missing(done+i, raw, err)
		}
	}
	return trimSpace(raw), nil
}

var null = json.RawMessage("null")

// start returns the JSON of the root, and the remaining picks. An output that the scope does not have was not loaded:
// it is an error, never null.
func (p *path) start(s *kernel.Scope) (json.RawMessage, []pick, error) {
	switch p.root {
	case rootInput:
		return orNull(s.Input), p.pick, nil
	case rootStep:
		return loaded(s.Outputs[p.step], p)
	case rootOutput:
		return loaded(s.Output, p)
	case rootKey:
		return appendString(nil, s.Key), p.pick, nil
	case rootDoKey:
		return appendString(nil, s.DoKey), p.pick, nil
	}
	raw, pick := p.ofJob(s.Job)
	return raw, pick, nil
}

func loaded(output json.RawMessage, p *path) (json.RawMessage, []pick, error) {
	if len(output) == 0 {
		return nil, nil, fmt.Errorf("%s is not loaded", p.upto(0))
	}
	return output, p.pick, nil
}

func (p *path) ofJob(j *kernel.Job) (json.RawMessage, []pick) {
	if len(p.pick) > 0 {
		switch p.pick[0].name {
		case "id":
			return appendString(nil, j.ID.String()), p.pick[1:]
		case "key":
			return appendString(nil, j.Key), p.pick[1:]
		case "type":
			return appendString(nil, j.Type), p.pick[1:]
		case "labels":
			return labels(j), p.pick[1:]
		}
	}
	b := appendString([]byte(`{"id":`), j.ID.String())
	b = appendString(append(b, `,"key":`...), j.Key)
	b = append(append(b, `,"labels":`...), labels(j)...)
	b = appendString(append(b, `,"type":`...), j.Type)
	return append(b, '}'), p.pick
}

func labels(j *kernel.Job) json.RawMessage {
	m := make(map[string]any, len(j.Labels))
	for k, v := range j.Labels {
		m[k] = v
	}
	b, _ := appendMap(nil, m) // strings never fail
	return b
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return null
	}
	return raw
}

var (
	errNothing = fmt.Errorf("not there")
	errKind    = fmt.Errorf("another kind of value")
)

// missing says why pick i found nothing in raw.
func (p *path) missing(i int, raw json.RawMessage, why error) error {
	whole, k := p.upto(i), p.pick[i]
	if string(raw) == "null" {
		if p.root == rootInput && i == 0 {
			return fmt.Errorf("%s: the job has no input", p)
		}
		return fmt.Errorf("%s is null; write ?. for what may be missing", whole)
	}
	if errors.Is(why, errKind) {
		want := "a list"
		if !k.list {
			want = "an object"
		}
		return fmt.Errorf("%s is %s, not %s", whole, kindOf(raw), want)
	}
	if k.list {
		n := 0
		walk(raw, func(_, _ []byte) { n++ })
		return fmt.Errorf("no entry [%d] in %s; it has %d", k.index, whole, n)
	}
	var names []string
	walk(raw, func(name, _ []byte) {
		if len(names) < 100 {
			names = append(names, unquote(name))
		}
	})
	return noField(k.name, whole, names)
}

// noField is the error for a name that an object does not have.
func noField(name, whole string, names []string) error {
	slices.Sort(names)
	const most = 12
	switch {
	case len(names) == 0:
		return fmt.Errorf("no field %s in %s; it is empty", name, whole)
	case len(names) > most:
		return fmt.Errorf("no field %s in %s; there are %s and %d more", name, whole, strings.Join(names[:most], ", "), len(names)-most)
	}
	return fmt.Errorf("no field %s in %s; there are %s", name, whole, strings.Join(names, ", "))
}

func kindOf(raw json.RawMessage) kind {
	switch raw[0] {
	case '{':
		return kindObject
	case '[':
		return kindList
	case '"':
		return kindString
	case 't', 'f':
		return kindBool
	case 'n':
		return kindNull
	}
	return kindNumber
}
