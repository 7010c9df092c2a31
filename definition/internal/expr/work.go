package expr

import (
	"errors"
	"reflect"
	"regexp"
	"regexp/syntax"

	"github.com/perdure/perdure/definition/internal/text"
)

// readsSurface are the functions that do not read what is inside of their arguments.
var readsSurface = map[string]bool{"len": true, "type": true, "first": true, "last": true, "get": true}

// charged wraps a function so that it charges for its arguments and its result. If surface is not set, it charges for
// everything that is inside of them.
func charged(f func(args []any) (any, error), surface bool) func(...any) (any, error) {
	return func(args ...any) (any, error) {
		e, n := args[0].(*evaluation), 1
		for _, a := range args[1:] {
			if surface {
				n += surfaceWork(a)
				continue
			}
			m, err := size(a, e.work-n)
			if err != nil {
				return nil, err
			}
			n += m
		}
		if err := e.spend(n); err != nil {
			return nil, err
		}
		v, err := f(args[1:])
		if err != nil {
			return nil, err
		}
		if surface {
			return v, e.spend(surfaceWork(v))
		}
		return v, e.spend(shallow(v))
	}
}

// surfaceWork is the work of reading v without what is inside of it. Text is read as a whole.
func surfaceWork(v any) int {
	if s, ok := v.(string); ok {
		return 1 + len(s)/8
	}
	return 1
}

// shallow is the work of reading v and its direct children.
func shallow(v any) int {
	switch v := v.(type) {
	case nil, bool, int, float64, text.Digits:
		return 1
	case string:
		return 1 + len(v)/8
	case []any:
		return 1 + len(v)
	case map[string]any:
		return 1 + len(v)
	}
	if r := reflect.ValueOf(v); r.Kind() == reflect.Slice || r.Kind() == reflect.Map {
		return 1 + r.Len()
	}
	return 1
}

// size is the work of reading v and everything that is inside of it. It stops counting at most.
func size(v any, most int) (int, error) {
	n := shallow(v)
	each := func(w any) error {
		m, err := size(w, most-n)
		n += m
		return err
	}
	if n > most {
		return n, ErrWork
	}
	switch v := v.(type) {
	case []any:
		for _, w := range v {
			if err := each(w); err != nil {
				return n, err
			}
		}
	case map[string]any:
		for _, w := range v {
			if err := each(w); err != nil {
				return n, err
			}
		}
	case nil, bool, int, float64, string, text.Digits:
	default:
		r := reflect.ValueOf(v)
		switch {
		case r.Kind() == reflect.Slice && r.Type().Elem().Kind() == reflect.Interface:
			for i := range r.Len() {
				if err := each(r.Index(i).Interface()); err != nil {
					return n, err
				}
			}
		case r.Kind() == reflect.Map:
			for entries := r.MapRange(); entries.Next(); {
				if err := each(entries.Value().Interface()); err != nil {
					return n, err
				}
			}
		}
	}
	return n, nil
}

// pattern is a compiled regular expression and how many states it may be in at once.
type pattern struct {
	re     *regexp.Regexp
	states int
}

// maxStates refuses regular expressions such as x{1000}{1000}, which takes a hundred megabytes to compile.
const maxStates = 2000

func compileRegexp(s string) (*pattern, error) {
	parsed, err := syntax.Parse(s, syntax.Perl)
	if err != nil {
		return nil, err
	}
	n := states(parsed)
	if n > maxStates {
		return nil, errors.New("its repetitions multiply to too many")
	}
	re, err := regexp.Compile(s)
	return &pattern{re, n}, err
}

// states counts the parts of a regular expression, with its repetitions expanded.
func states(re *syntax.Regexp) int {
	n := 1 + len(re.Rune)/2
	for _, sub := range re.Sub {
		n += states(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1)
	}
	return min(n, maxStates+1)
}

// matches charges for each state at each byte.
func matches(args ...any) (any, error) {
	e, p := args[0].(*evaluation), args[2].(*pattern)
	if args[1] == nil {
		return false, nil
	}
	s, err := asText(args[1])
	if err != nil {
		return nil, err
	}
	if err := e.spend(1 + len(s)*(8+p.states)/64); err != nil {
		return nil, err
	}
	return p.re.MatchString(s), nil
}
