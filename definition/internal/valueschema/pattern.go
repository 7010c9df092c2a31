package valueschema

import (
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"regexp/syntax"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// patterns compiles the patterns of one schema, and bounds the memory of all of them.
type patterns struct{ size int }

func (p *patterns) compile(text string) (jsonschema.Regexp, error) {
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	size := sizeOf(parsed)
	if p.size += size; size > MaxPattern {
		return nil, fmt.Errorf("it repeats too much: its program has some %d steps; at most %d", size, MaxPattern)
	}
	if p.size > MaxPatterns {
		return nil, fmt.Errorf("all patterns of the schema together repeat too much: at most %d steps", MaxPatterns)
	}
	return regexp.Compile(text)
}

// sizeOf estimates the size of the program of a pattern, before its repetitions are written out.
func sizeOf(re *syntax.Regexp) int {
	const most = 1 << 30
	size := 1 + len(re.Rune)
	for _, sub := range re.Sub {
		size = min(size+sizeOf(sub), most)
	}
	if re.Op == syntax.OpRepeat {
		size = min(size*max(re.Min, re.Max, 1), most)
	}
	return size
}

// textOf returns a text that is equal for equal values: 1.0 is 1, and the order of members does not count.
func textOf(v any) string {
	b, _ := json.Marshal(comparable(v)) // a decoded value
	return string(b)
}

// comparable replaces numbers and texts by texts: a number by n and its fraction, a text by t and itself.
func comparable(v any) any {
	switch v := v.(type) {
	case string:
		return "t" + v
	case json.Number:
		if r, ok := new(big.Rat).SetString(string(v)); ok {
			return "n" + r.String()
		}
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = comparable(v[i])
		}
		return list
	case map[string]any:
		object := make(map[string]any, len(v))
		for name, member := range v {
			object[name] = comparable(member)
		}
		return object
	}
	return v
}
