package expr

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/expr-lang/expr/builtin"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/vm/runtime"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition/internal/text"
)

// predicates are the functions of expr that loop. Its other functions are disabled. Those that are pure and deterministic
// are offered again, as functions that charge for their work.
var predicates = []string{"all", "any", "count", "filter", "find", "findIndex", "findLast", "findLastIndex",
	"groupBy", "map", "none", "one", "reduce", "sortBy", "sum"}

// arity is how many arguments a function takes.
type arity struct{ least, most int }

func (a arity) String() string {
	switch {
	case a.least == a.most && a.least == 1:
		return "1 argument"
	case a.least == a.most:
		return fmt.Sprintf("%d arguments", a.least)
	case a.most == math.MaxInt:
		return fmt.Sprintf("%d or more arguments", a.least)
	}
	return fmt.Sprintf("%d to %d arguments", a.least, a.most)
}

// arities of the functions that an expression may call.
var arities = map[string]arity{
	"abs": {1, 1}, "ceil": {1, 1}, "floor": {1, 1}, "round": {1, 1}, "int": {1, 1}, "float": {1, 1},
	"max": {1, math.MaxInt}, "min": {1, math.MaxInt}, "mean": {1, math.MaxInt}, "median": {1, math.MaxInt},
	"len": {1, 1}, "type": {1, 1}, "string": {1, 1},
	"trim": {1, 2}, "trimPrefix": {2, 2}, "trimSuffix": {2, 2}, "upper": {1, 1}, "lower": {1, 1},
	"split": {2, 3}, "join": {1, 2}, "replace": {3, 3}, "indexOf": {2, 2}, "lastIndexOf": {2, 2},
	"hasPrefix": {2, 2}, "hasSuffix": {2, 2},
	"first": {1, 1}, "last": {1, 1}, "take": {2, 2}, "reverse": {1, 1}, "concat": {1, math.MaxInt}, "sort": {1, 2},
	"keys": {1, 1}, "values": {1, 1}, "get": {2, 2},
	"toJSON": {1, 1}, "fromJSON": {1, 1}, "toBase64": {1, 1}, "fromBase64": {1, 1},
}

var functionNames = func() []string {
	names := make([]string, 0, len(arities))
	for name := range arities {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}()

// disabled are the functions of expr that are not predicates.
var disabled = func() map[string]bool {
	m := make(map[string]bool)
	for _, f := range builtin.Builtins {
		if !slices.Contains(predicates, f.Name) {
			m[f.Name] = true
		}
	}
	return m
}()

// functions is the table of functions for the compiler of expr. The first argument of each is the *evaluation, except for
// @get and @getLax.
var functions = func() conf.FunctionsTable {
	t := conf.FunctionsTable{}
	add := func(name string, f func(...any) (any, error), signature any) {
		t[name] = &builtin.Function{Name: name, Func: f}
		if signature != nil {
			t[name].Types = []reflect.Type{reflect.TypeOf(signature)}
		}
	}
	for name := range arities {
		f, ok := ownFunctions[name]
		if !ok {
			f = builtinFunction(name)
		}
		add(name, charged(f, readsSurface[name]), nil)
	}
	for name, f := range map[string]func(a, b any) any{
		"@add": exact('+', runtime.Add), "@subtract": exact('-', runtime.Subtract), "@multiply": exact('*', runtime.Multiply),
		"@divide": func(a, b any) any { return runtime.Divide(a, b) }, "@modulo": modulo,
		"@power": func(a, b any) any { return runtime.Exponent(a, b) },
	} {
		add(name, charged(func(args []any) (any, error) { return f(args[0], args[1]), nil }, true), nil)
	}
	for name, f := range map[string]func(a, b any) bool{"@equal": runtime.Equal, "@in": runtime.In,
		"@unequal": func(a, b any) bool { return !runtime.Equal(a, b) },
		"@less":    runtime.Less, "@lessOrEqual": runtime.LessOrEqual, "@more": runtime.More, "@moreOrEqual": runtime.MoreOrEqual,
		"@contains": onText(strings.Contains), "@startsWith": onText(strings.HasPrefix), "@endsWith": onText(strings.HasSuffix)} {
		add(name, charged(func(args []any) (any, error) { return f(args[0], args[1]), nil }, false),
			(func(e, a, b any) bool)(nil))
	}
	add("@matches", matches, (func(e, s, p any) bool)(nil))
	add("@path", func(args ...any) (any, error) { return args[0].(*evaluation).lookup(args[1].(int), false) }, nil)
	add("@lax", func(args ...any) (any, error) { return args[0].(*evaluation).lookup(args[1].(int), true) }, nil)
	add("@get", func(args ...any) (any, error) { return get(args[0], args[1], false) }, nil)
	add("@getLax", func(args ...any) (any, error) { return get(args[0], args[1], true) }, nil)
	add("@scan", func(args ...any) (any, error) { return args[1], args[0].(*evaluation).spend(shallow(args[1])) }, nil)
	add("@tick", func(args ...any) (any, error) {
		e := args[0].(*evaluation)
		n, err := size(args[1], e.work)
		if err != nil {
			return nil, err
		}
		return args[1], e.spend(n)
	}, nil)
	return t
}()

// lookup returns the value of the ith path of the expression. If lax is set, what is missing is null.
func (e *evaluation) lookup(i int, lax bool) (any, error) {
	if _, unread := e.values[i].(notRead); !unread {
		return e.values[i], nil
	}
	raw, err := e.paths[i].find(e.view, lax)
	if err != nil {
		return nil, err
	}
	before := e.view.work
	v, err := e.view.plain(raw)
	if e.work -= before - e.view.work; e.work < 0 {
		err = ErrWork
	}
	switch {
	case errors.Is(err, ErrWork):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%s is %w", &e.paths[i], err)
	}
	e.values[i] = v
	return v, nil
}

// get returns a member or an entry of a value. If lax is set, what is missing is null.
func get(from, key any, lax bool) (any, error) {
	if from == nil && lax {
		return nil, nil
	}
	switch v := from.(type) {
	case map[string]any:
		name, ok := key.(string)
		if !ok {
			return nil, fmt.Errorf("an object has fields by name, not by %s", kindOfValue(key))
		}
		x, ok := v[name]
		if !ok && !lax {
			return nil, noField(name, "this object", sortedKeys(v))
		}
		return x, nil
	case nil:
		return nil, fmt.Errorf("this is null, there is no %v in it; write ?. for what may be missing", key)
	case bool, int, float64, string, text.Digits:
		return nil, fmt.Errorf("this is %s, there is no %v in it", kindOfValue(v), key)
	}
	i, isInt := key.(int)
	r := reflect.ValueOf(from)
	switch {
	case r.Kind() == reflect.Slice && isInt:
		n := i
		if i < 0 {
			n = r.Len() + i
		}
		if n < 0 || n >= r.Len() {
			if lax {
				return nil, nil
			}
			return nil, fmt.Errorf("no entry [%d] in a list of %d", i, r.Len())
		}
		return r.Index(n).Interface(), nil
	case r.Kind() == reflect.Slice:
		return nil, fmt.Errorf("a list has entries by number, not by %s", kindOfValue(key))
	case r.Kind() == reflect.Map: // what groupBy made
		if x := r.MapIndex(reflect.ValueOf(&key).Elem()); x.IsValid() {
			return x.Interface(), nil
		}
		return nil, nil
	}
	return nil, fmt.Errorf("there is no %v in this", key)
}

// exact wraps an operator so that whole numbers that overflow are an error, and so is text that + makes longer than a
// payload.
func exact(op byte, f func(a, b any) any) func(a, b any) any {
	return func(a, b any) any {
		switch x := a.(type) {
		case int:
			if y, ok := b.(int); ok && wraps(op, x, y) {
				panic(errors.New("the whole number does not fit 64 bits"))
			}
		case string:
			if y, ok := b.(string); ok && len(x)+len(y) > perdure.MaxPayloadBytes {
				panic(fmt.Errorf("the text is longer than %d bytes", perdure.MaxPayloadBytes))
			}
		}
		return f(a, b)
	}
}

func wraps(op byte, x, y int) bool {
	switch op {
	case '+':
		return y > 0 && x > math.MaxInt-y || y < 0 && x < math.MinInt-y
	case '-':
		return y < 0 && x > math.MaxInt+y || y > 0 && x < math.MinInt+y
	}
	return x != 0 && y != 0 && ((x*y)/y != x || x == -1 && y == math.MinInt || y == -1 && x == math.MinInt)
}

func modulo(a, b any) any {
	if b == 0 {
		panic(errors.New("division by zero"))
	}
	return runtime.Modulo(a, b)
}

// onText wraps a comparison of two strings. If one of them is null, the result is false.
func onText(f func(s, t string) bool) func(a, b any) bool {
	return func(a, b any) bool {
		if a == nil || b == nil {
			return false
		}
		s, ok1 := a.(string)
		t, ok2 := b.(string)
		if !ok1 || !ok2 {
			panic(errors.New("this compares text with text"))
		}
		return f(s, t)
	}
}

// builtinFunction returns a function of expr.
func builtinFunction(name string) func(args []any) (any, error) {
	f := builtin.Builtins[builtin.Index[name]]
	switch {
	case f.Fast != nil:
		return func(args []any) (any, error) { return f.Fast(args[0]), nil }
	case f.Safe != nil:
		return func(args []any) (any, error) { v, _, err := f.Safe(args...); return v, err }
	}
	return func(args []any) (any, error) { return f.Func(args...) }
}

// ownFunctions replace functions of expr that behave differently or are not bounded.
var ownFunctions = map[string]func(args []any) (any, error){
	"string": func(args []any) (any, error) { return inText(args[0]) },
	"type":   func(args []any) (any, error) { return typeName(args[0]), nil },
	"toJSON": func(args []any) (any, error) {
		b, err := appendValue(nil, args[0])
		return string(b), err
	},
	"fromJSON": func(args []any) (any, error) {
		s, err := asText(args[0])
		if err != nil {
			return nil, err
		}
		v, _, err := fromJSON([]byte(s), len(s)+1) // charged by the result
		return v, err
	},
	"toBase64": func(args []any) (any, error) {
		s, err := asText(args[0])
		return base64.StdEncoding.EncodeToString([]byte(s)), err
	},
	"fromBase64": func(args []any) (any, error) {
		s, err := asText(args[0])
		if err != nil {
			return nil, err
		}
		b, err := base64.StdEncoding.DecodeString(s)
		return string(b), err
	},
	"keys": func(args []any) (any, error) {
		return members(args[0], func(_ map[string]any, k string) any { return k })
	},
	"values": func(args []any) (any, error) {
		return members(args[0], func(m map[string]any, k string) any { return m[k] })
	},
	"get":  func(args []any) (any, error) { return get(args[0], args[1], true) },
	"join": join,
	"replace": func(args []any) (any, error) {
		var s [3]string
		for i := range s {
			var err error
			if s[i], err = asText(args[i]); err != nil {
				return nil, err
			}
		}
		if n := strings.Count(s[0], s[1]) * (len(s[2]) - len(s[1])); len(s[0])+n > perdure.MaxPayloadBytes {
			return nil, fmt.Errorf("the text is longer than %d bytes", perdure.MaxPayloadBytes)
		}
		return strings.ReplaceAll(s[0], s[1], s[2]), nil
	},
}

// typeName returns the type of a value, as the function type of expr names it.
func typeName(v any) string {
	if d, ok := v.(text.Digits); ok {
		if strings.ContainsAny(d.Text, ".eE") {
			return "float"
		}
		return "int"
	}
	return fmt.Sprint(builtin.Type(v))
}

// inText returns a value as a part of a longer text: strings as they are, others as compact JSON.
func inText(v any) (string, error) {
	if s, ok := v.(string); ok {
		return s, nil
	}
	b, err := appendValue(nil, v)
	return string(b), err
}

func asText(v any) (string, error) {
	s, ok := v.(string)
	if !ok {
		return "", fmt.Errorf("this takes text, not %s", kindOfValue(v))
	}
	return s, nil
}

func members(v any, f func(m map[string]any, k string) any) (any, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("only an object has keys and values, this is %s", kindOfValue(v))
	}
	list := make([]any, 0, len(m))
	for _, k := range sortedKeys(m) {
		list = append(list, f(m, k))
	}
	return list, nil
}

func join(args []any) (any, error) {
	sep := ""
	if len(args) == 2 {
		var err error
		if sep, err = asText(args[1]); err != nil {
			return nil, err
		}
	}
	r := reflect.ValueOf(args[0])
	if r.Kind() != reflect.Slice {
		return nil, errors.New("join takes a list")
	}
	var b strings.Builder
	for i := range r.Len() {
		if i > 0 {
			b.WriteString(sep)
		}
		s, err := inText(r.Index(i).Interface())
		if err != nil {
			return nil, err
		}
		if b.WriteString(s); b.Len() > perdure.MaxPayloadBytes {
			return nil, fmt.Errorf("the text is longer than %d bytes", perdure.MaxPayloadBytes)
		}
	}
	return b.String(), nil
}
