package expr

import (
	"encoding/json"
	"errors"

	"github.com/perdure/perdure/internal/jsontext"
	"github.com/perdure/perdure/internal/kernel"
)

// Evaluator evaluates expressions in a scope, while one input is rendered or one definition is submitted. It bounds the
// work of all of them together. If the scope's budget ends a rendering, the error may be that of the expression; Budget.Err
// tells whether the budget was the cause.
type Evaluator struct {
	scope  *kernel.Scope
	work   int
	cached *memory // nil: no large value was read yet
	reader jsontext.Reader
}

// NewEvaluator makes an evaluator whose expressions may do that much work together.
func NewEvaluator(scope *kernel.Scope, work int) Evaluator {
	return Evaluator{scope: scope, work: work}
}

// memory caches the decoded parts of large values, by the address of the first byte of their text. So a thousand
// references into one megabyte do not decode it a thousand times. It lasts as long as the budget that the renderings
// share. Expressions do not modify it.
type memory struct {
	objects map[*byte]map[string]json.RawMessage
	lists   map[*byte][]json.RawMessage
	values  map[*byte]any
	bytes   int // of the texts of values
	parts   int // bytes that objects and lists take, without the texts that they point into
}

// Work is counted in units: one for each value, and one for every eight bytes, that is processed. A million units take
// some tens of milliseconds if values are read, and some hundreds if an expression computes with each of them.
const (
	exprWork   = 3 << 19  // one expression
	renderWork = 4 << 20  // all of one input
	SubmitWork = 16 << 20 // all expressions of one definition that are evaluated when it is submitted

	copiedBytes = 32 // bytes for one unit, where they are only copied
)

// cachedTextBytes bounds the texts whose decoded values are cached. A decoded value takes some twenty times the size of
// its text.
const cachedTextBytes = 2 << 20

// partsBytes bounds what the decoded objects and lists of a cache take. One megabyte of "[0,0,…]" has half a million
// entries, which take 12 MB. Once the bound is reached, further values are decoded at each reference.
const (
	partsBytes  = 32 << 20
	entryBytes  = 24  // of a list: a slice
	memberBytes = 100 // of an object: its name, a slice, and their share of the map
)

// fits reports whether n more bytes of parts may be cached, and counts them.
func (m *memory) fits(n int) bool {
	if m.parts+n > partsBytes {
		return false
	}
	m.parts += n
	return true
}

// ErrWork is the error of an expression that would do more work than it may.
var ErrWork = errors.New("this takes too much work; let an agent compute it")

// memory returns the cache of the budget.
func (v *Evaluator) memory() *memory {
	if v.cached != nil {
		return v.cached
	}
	budget := v.scope.Budget
	if budget == nil {
		v.cached = &memory{}
		return v.cached
	}
	var ok bool
	if v.cached, ok = budget.Memory.(*memory); !ok {
		v.cached = &memory{}
		budget.Memory = v.cached
	}
	return v.cached
}

// spend counts n units of work.
func (v *Evaluator) spend(n int) error {
	if v.work -= n; v.work < 0 || n < 0 {
		return ErrWork
	}
	return v.scope.Budget.Spend(n)
}

// cachedFrom is the size in bytes from which on the decoded parts of a value are cached.
const cachedFrom = 512

// selectFrom returns a member or an entry of raw, which has no white space around it.
func (v *Evaluator) selectFrom(raw json.RawMessage, k *Selector) (json.RawMessage, error) {
	switch {
	case len(raw) == 0:
		return nil, errNothing
	case !k.List && raw[0] == '{':
		return v.member(raw, k.Name)
	case k.List && raw[0] == '[':
		return v.entry(raw, k.index)
	}
	return nil, errKind
}

// read enters an object or a list. What its members and items are was checked when it was stored.
func (v *Evaluator) read(raw json.RawMessage) *jsontext.Reader {
	v.reader.Reset(raw, stored)
	enter(&v.reader)
	return &v.reader
}

// stored is how JSON is read that was checked when it was stored. Of two members of one name, the last counts.
var stored = jsontext.Options{Lenient: true, AnyNames: true}

func enter(r *jsontext.Reader) {
	if r.Peek() == jsontext.Object {
		r.Object()
	} else {
		r.List()
	}
}

// member reads a member of an object.
func member(r *jsontext.Reader) (name []byte, value json.RawMessage) {
	name, _ = r.Name()
	return name, r.Raw()
}

func (v *Evaluator) member(raw json.RawMessage, name string) (found json.RawMessage, err error) {
	if len(raw) < cachedFrom {
		err = v.spend(1 + len(raw)/8)
		for r := v.read(raw); r.More(); {
			if this, value := member(r); string(this) == name {
				found = value
			}
		}
	} else {
		cache := v.memory()
		m, ok := cache.objects[&raw[0]]
		if !ok {
			if err = v.spend(len(raw) / 4); err != nil {
				return nil, err
			}
			m = make(map[string]json.RawMessage)
			for r := v.read(raw); r.More(); {
				name, value := member(r)
				m[string(name)] = value
			}
			if cache.objects == nil {
				cache.objects = map[*byte]map[string]json.RawMessage{}
			}
			if cache.fits(len(m) * memberBytes) {
				cache.objects[&raw[0]] = m
			}
		}
		found, err = m[name], v.spend(1)
	}
	if err == nil && found == nil {
		err = errNothing
	}
	return found, err
}

func (v *Evaluator) entry(raw json.RawMessage, i int) (json.RawMessage, error) {
	var list []json.RawMessage
	large := len(raw) >= cachedFrom
	if large {
		list = v.memory().lists[&raw[0]]
	}
	if list == nil {
		if err := v.spend(1 + len(raw)/8); err != nil {
			return nil, err
		}
		for r := v.read(raw); r.More(); {
			list = append(list, r.Raw())
		}
		if large && v.cached.fits(len(list)*entryBytes) {
			if v.cached.lists == nil {
				v.cached.lists = map[*byte][]json.RawMessage{}
			}
			v.cached.lists[&raw[0]] = list
		}
	}
	if i < 0 {
		i += len(list)
	}
	if i < 0 || i >= len(list) {
		return nil, errNothing
	}
	return list[i], v.spend(1)
}

// plain converts raw, which is not empty, to what expressions calculate with.
func (v *Evaluator) plain(raw json.RawMessage) (any, error) {
	large := len(raw) >= cachedFrom
	if large {
		if x, ok := v.memory().values[&raw[0]]; ok {
			return x, v.spend(1)
		}
	}
	if err := v.spend(1 + len(raw)/8); err != nil {
		return nil, err
	}
	x, n, err := fromJSON(raw, v.work)
	if err := v.spend(n); err != nil {
		return nil, err
	}
	if err == nil && large && v.cached.bytes+len(raw) <= cachedTextBytes {
		if v.cached.values == nil {
			v.cached.values = map[*byte]any{}
		}
		v.cached.values[&raw[0]] = x
		v.cached.bytes += len(raw)
	}
	return x, err
}
