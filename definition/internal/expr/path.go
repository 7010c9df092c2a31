package expr

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/perdure/perdure/definition/internal/text"
	"github.com/perdure/perdure/internal/jsontext"
	"github.com/perdure/perdure/internal/kernel"
)

// root is one of the names that an expression may begin with.
type root uint8

const (
	rootInput  root = iota
	RootJob         // id, key, type, labels
	RootStep        // steps.NAME.output
	RootOutput      // these three in an undo only
	RootKey
	RootDoKey
	RootItem  // of a step with forEach: the item of the child, under the name that the step gives it
	RootIndex // and its number
)

var rootsByName = map[string]root{"input": rootInput, "job": RootJob, "steps": RootStep, "output": RootOutput, "key": RootKey, "doKey": RootDoKey}

var RootNames = []string{"input", "job", "steps", "output", "key", "doKey"}

// Loop is the name that a step with forEach gives to the item of a child; empty: the expression is of no such step. Beside it,
// index is the number of the item.
type Loop string

// IndexName is the name of the number of an item.
const IndexName = "index"

// root returns the root that a name stands for.
func (l Loop) root(name string) (root, bool) {
	switch {
	case l != "" && name == string(l):
		return RootItem, true
	case l != "" && name == IndexName:
		return RootIndex, true
	}
	r, ok := rootsByName[name]
	return r, ok
}

// names are all names of roots.
func (l Loop) names() []string {
	if l == "" {
		return RootNames
	}
	return slices.Concat(RootNames, []string{string(l), IndexName})
}

// Path is a reference such as input.legs[0].city: a root and selectors. It is looked up in raw JSON, so that numbers keep
// their digits.
type Path struct {
	Root      root
	Step      string // rootStep: whose output
	Selectors []Selector
	At        int // byte offset in the expression
}

// Selector selects a member or an entry.
type Selector struct {
	Name     string
	index    int
	List     bool // an entry by index, from the end if negative; else a member by name
	optional bool // ?. : null where there is none
}

func (p *Path) String() string { return p.upto(len(p.Selectors)) }

// upto writes the path with its first n selectors.
func (p *Path) upto(n int) string {
	var b strings.Builder
	switch p.Root {
	case RootItem:
		b.WriteString("the item")
	case RootIndex:
		b.WriteString(IndexName)
	default:
		b.WriteString(RootNames[p.Root])
	}
	if p.Root == RootStep {
		b.WriteString("." + p.Step + ".output")
	}
	for _, k := range p.Selectors[:n] {
		switch {
		case k.List:
			b.WriteString("[" + strconv.Itoa(k.index) + "]")
		case text.IsIdentifier(k.Name):
			b.WriteString("." + k.Name)
		default:
			b.WriteString("[" + strconv.Quote(k.Name) + "]")
		}
	}
	return b.String()
}

// early reports whether its value is known when a job is submitted.
func (p *Path) early() bool {
	return p.Root == rootInput || p.Root == RootJob && len(p.Selectors) > 0 && p.Selectors[0].Name != "id"
}

// parsePath reads an expression that is only a path; ok is false for all others.
func parsePath(src string, loop Loop) (p Path, ok bool) {
	i := 0
	word := func() string {
		start := i
		for i < len(src) && text.IsIdentifier("_"+src[i:i+1]) {
			i++
		}
		return src[start:i]
	}
	p.Root, ok = loop.root(word())
	for ok && i < len(src) {
		k := Selector{}
		if strings.HasPrefix(src[i:], "?.") {
			k.optional = true
			i++
		}
		switch {
		case src[i] == '.' && !strings.HasPrefix(src[i:], ".["):
			i++
			k.Name = word()
			ok = text.IsIdentifier(k.Name)
		case src[i] == '[' || k.optional:
			if k.optional {
				i++
			}
			end := strings.IndexByte(src[i:], ']')
			if end < 2 {
				return p, false
			}
			k.List, k.Name, k.index, ok = bracket(src[i+1 : i+end])
			i += end + 1
		default:
			return p, false
		}
		p.Selectors = append(p.Selectors, k)
	}
	return p, ok && p.takeStep()
}

// bracket reads what is between [ and ]: a whole number or a simple quoted name.
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

// takeStep moves NAME.output of a path that begins with steps to p.Step. It returns false if the path has no such form.
func (p *Path) takeStep() bool {
	if p.Root != RootStep {
		return true
	}
	if len(p.Selectors) < 2 || p.Selectors[0].List || p.Selectors[0].optional || p.Selectors[1].Name != "output" || p.Selectors[1].List || p.Selectors[1].optional {
		return false
	}
	p.Step, p.Selectors = p.Selectors[0].Name, p.Selectors[2:]
	return true
}

// find looks the path up. A value that is missing is an error. It is null if the path allows that (?.) or the caller does:
// lax, the left side of ??.
func (p *Path) find(v *Evaluator, lax bool) (json.RawMessage, error) {
	raw, fromJob, err := p.start(v.scope)
	if err != nil {
		return nil, err
	}
	done := len(p.Selectors) - len(fromJob)
	for i := range fromJob {
		k := &fromJob[i]
		raw = json.RawMessage(bytes.TrimSpace(raw))
		if string(raw) == "null" && (k.optional || lax) {
			return jsonNull, nil
		}
		next, err := v.selectFrom(raw, k)
		switch {
		case err == nil:
			raw = next
		case !errors.Is(err, errNothing) && !errors.Is(err, errKind): // the work is used up, or the call has ended
			return nil, err
		case k.optional || lax:
			return jsonNull, nil
		default:
			return nil, p.missing(done+i, raw, err)
		}
	}
	return json.RawMessage(bytes.TrimSpace(raw)), nil
}

var jsonNull = json.RawMessage("null")

// start returns the JSON of the root, and the remaining selectors. An output that the scope does not have was not loaded:
// it is an error, never null.
func (p *Path) start(s *kernel.Scope) (json.RawMessage, []Selector, error) {
	switch p.Root {
	case rootInput:
		return orNull(s.Input), p.Selectors, nil
	case RootStep:
		return loaded(s.Outputs[p.Step], p)
	case RootOutput:
		return loaded(s.Output, p)
	case RootKey:
		return text.AppendString(nil, s.Key), p.Selectors, nil
	case RootItem:
		return loaded(s.Item, p)
	case RootIndex:
		return strconv.AppendInt(nil, int64(s.Index), 10), p.Selectors, nil
	case RootDoKey:
		return text.AppendString(nil, s.DoKey), p.Selectors, nil
	}
	raw, fromJob := p.ofJob(s.Job)
	return raw, fromJob, nil
}

func loaded(output json.RawMessage, p *Path) (json.RawMessage, []Selector, error) {
	if len(output) == 0 {
		return nil, nil, fmt.Errorf("%s is not loaded", p.upto(0))
	}
	return output, p.Selectors, nil
}

func (p *Path) ofJob(j *kernel.Job) (json.RawMessage, []Selector) {
	if len(p.Selectors) > 0 {
		switch p.Selectors[0].Name {
		case "id":
			return text.AppendString(nil, j.ID.String()), p.Selectors[1:]
		case "key":
			return text.AppendString(nil, j.Key), p.Selectors[1:]
		case "type":
			return text.AppendString(nil, j.Type), p.Selectors[1:]
		case "labels":
			return labels(j), p.Selectors[1:]
		}
	}
	b := text.AppendString([]byte(`{"id":`), j.ID.String())
	b = text.AppendString(append(b, `,"key":`...), j.Key)
	b = append(append(b, `,"labels":`...), labels(j)...)
	b = text.AppendString(append(b, `,"type":`...), j.Type)
	return append(b, '}'), p.Selectors
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
		return jsonNull
	}
	return raw
}

var (
	errNothing = fmt.Errorf("not there")
	errKind    = fmt.Errorf("another kind of value")
)

// missing returns the error of selector i, which found nothing in raw.
func (p *Path) missing(i int, raw json.RawMessage, why error) error {
	whole, k := p.upto(i), p.Selectors[i]
	if string(raw) == "null" {
		if p.Root == rootInput && i == 0 {
			return fmt.Errorf("%s: the job has no input", p)
		}
		return fmt.Errorf("%s is null; write ?. for what may be missing", whole)
	}
	if errors.Is(why, errKind) {
		want := "a list"
		if !k.List {
			want = "an object"
		}
		return fmt.Errorf("%s is %s, not %s", whole, kindOf(raw), want)
	}
	r := jsontext.NewReader(raw, stored)
	enter(r)
	if k.List {
		n := 0
		for ; r.More(); n++ {
			r.Skip()
		}
		return fmt.Errorf("no entry [%d] in %s; it has %d", k.index, whole, n)
	}
	var names []string
	for r.More() && len(names) < 100 {
		name, _ := member(r)
		names = append(names, string(name))
	}
	return noField(k.Name, whole, names)
}

// noField returns the error for a name that an object does not have.
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

func kindOf(raw json.RawMessage) text.Kind {
	switch raw[0] {
	case '{':
		return text.Object
	case '[':
		return text.List
	case '"':
		return text.String
	case 't', 'f':
		return text.Bool
	case 'n':
		return text.Null
	}
	return text.Number
}

// IsTaken reports whether a name cannot be that of an item, because expressions give it another meaning.
func IsTaken(name string) bool {
	_, root := rootsByName[name]
	_, function := arities[name]
	return root || function || name == IndexName || name == rootSecret || slices.Contains(predicates, name) || slices.Contains(words, name)
}

// words are the words of expressions that are no names.
var words = []string{"true", "false", "nil", "null", "not", "in", "and", "or", "matches", "contains", "startsWith", "endsWith", "let", "if", "else", "schedule"}
