package definition

import (
	"encoding/json"
	"errors"

	"perdure"
)

// view is a scope that is being looked at: while one input is rendered, or one definition submitted.
// It bounds the work that all expressions may do together, and remembers the members of large values,
// so that a thousand references into a megabyte are not a thousand times a megabyte.
type view struct {
	scope   *perdure.Scope
	work    int
	objects map[*byte]map[string]json.RawMessage // by the first byte of their text
	lists   map[*byte][]json.RawMessage
}

// Work is counted in values and, eight at a time, bytes that are gone through; a million takes some
// tens of milliseconds.
const (
	exprWork   = 1 << 20  // one expression
	renderWork = 4 << 20  // all of one input
	submitWork = 16 << 20 // all of one definition that is evaluated at submission
)

var errWork = errors.New("this takes too much work; let an agent compute it")

// spend pays for n units of work.
func (v *view) spend(n int) error {
	if v.work -= n; v.work < 0 || n < 0 {
		return errWork
	}
	return nil
}

// indexed is the size from which on members are remembered.
const indexed = 512

// pick picks a member or entry of raw, which is trimmed.
func (v *view) pick(raw json.RawMessage, k *pick) (json.RawMessage, error) {
	switch {
	case len(raw) == 0:
		return nil, errNothing
	case !k.list && raw[0] == '{':
		return v.member(raw, k.name)
	case k.list && raw[0] == '[':
		return v.entry(raw, k.index)
	}
	return nil, errKind
}

func (v *view) member(raw json.RawMessage, name string) (found json.RawMessage, err error) {
	if len(raw) < indexed {
		err = v.spend(1 + len(raw)/8)
		walk(raw, func(quoted, value []byte) {
			if nameIs(quoted, name) {
				found = value
			}
		})
	} else {
		m, ok := v.objects[&raw[0]]
		if !ok {
			if err = v.spend(len(raw) / 4); err != nil {
				return nil, err
			}
			m = make(map[string]json.RawMessage)
			walk(raw, func(quoted, value []byte) { m[unquote(quoted)] = value })
			if v.objects == nil {
				v.objects = make(map[*byte]map[string]json.RawMessage)
			}
			v.objects[&raw[0]] = m
		}
		found, err = m[name], v.spend(1)
	}
	if err == nil && found == nil {
		err = errNothing
	}
	return found, err
}

func (v *view) entry(raw json.RawMessage, i int) (json.RawMessage, error) {
	list, ok := v.lists[&raw[0]]
	if !ok {
		if err := v.spend(1 + len(raw)/8); err != nil {
			return nil, err
		}
		walk(raw, func(_, value []byte) { list = append(list, value) })
		if len(raw) >= indexed {
			if v.lists == nil {
				v.lists = make(map[*byte][]json.RawMessage)
			}
			v.lists[&raw[0]] = list
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
