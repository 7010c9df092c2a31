package expr

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition/internal/text"
)

// fromJSON is text.DecodeJSON for an expression, which reads at most as many values as it may still do work.
func fromJSON(raw []byte, work int) (v any, values int, err error) {
	if v, values, err = text.DecodeJSON(raw, work); errors.Is(err, text.ErrTooManyValues) {
		err = ErrWork
	}
	return v, values, err
}

// appendValue appends v, the result of an expression, as compact JSON with sorted names. It fails on
// what JSON cannot carry and on what would grow beyond a payload.
func appendValue(b []byte, v any) ([]byte, error) {
	if len(b) > 2*perdure.MaxPayloadBytes {
		return b, fmt.Errorf("the result is larger than %d bytes", perdure.MaxPayloadBytes)
	}
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case int:
		return strconv.AppendInt(b, int64(v), 10), nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return b, fmt.Errorf("the result is no number (a division by zero?)")
		}
		text, err := json.Marshal(v)
		return append(b, text...), err
	case text.Digits:
		return append(b, v.Text...), nil
	case string:
		return text.AppendString(b, v), nil
	case []any:
		return appendList(b, len(v), func(i int) any { return v[i] })
	case map[string]any:
		return appendMap(b, v)
	}
	return appendOther(b, v)
}

func appendList(b []byte, n int, at func(int) any) (_ []byte, err error) {
	b = append(b, '[')
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendValue(b, at(i)); err != nil {
			return b, err
		}
	}
	return append(b, ']'), nil
}

func appendMap(b []byte, m map[string]any) (_ []byte, err error) {
	b = append(b, '{')
	for i, name := range sortedKeys(m) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(text.AppendString(b, name), ':')
		if b, err = appendValue(b, m[name]); err != nil {
			return b, err
		}
	}
	return append(b, '}'), nil
}

// appendOther appends the typed slices and maps that some functions of expr return.
func appendOther(b []byte, v any) ([]byte, error) {
	r := reflect.ValueOf(v)
	switch r.Kind() {
	case reflect.Slice:
		return appendList(b, r.Len(), func(i int) any { return r.Index(i).Interface() })
	case reflect.Map:
		m := make(map[string]any, r.Len())
		for entries := r.MapRange(); entries.Next(); {
			name := entries.Key().Interface()
			if s, ok := name.(string); ok {
				m[s] = entries.Value().Interface()
				continue
			}
			text, err := appendValue(nil, name)
			if err != nil {
				return b, err
			}
			m[string(text)] = entries.Value().Interface()
		}
		return appendMap(b, m)
	case reflect.Int64, reflect.Int32, reflect.Int16, reflect.Int8:
		return strconv.AppendInt(b, r.Int(), 10), nil
	case reflect.Uint, reflect.Uint64, reflect.Uint32, reflect.Uint16, reflect.Uint8:
		return strconv.AppendUint(b, r.Uint(), 10), nil
	case reflect.Float32:
		return appendValue(b, r.Float())
	}
	return b, fmt.Errorf("the result is no value that JSON can carry")
}

func sortedKeys(m map[string]any) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
