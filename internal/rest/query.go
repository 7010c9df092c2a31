package rest

import (
	"encoding"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure"
)

// param is a query parameter of a route.
type param struct {
	name, doc, example string
	repeated           bool
}

// parseQuery refuses what a route does not know, and what is given twice.
func parseQuery(raw string, known []param) (url.Values, error) {
	q, err := url.ParseQuery(raw)
	if err != nil {
		return nil, badParameter{perdure.Refuse(perdure.CodeMalformed, "the query is not readable: %s", printable(err.Error()))}
	}
	for name, values := range q {
		i := slices.IndexFunc(known, func(p param) bool { return p.name == name })
		switch {
		case i < 0:
			return nil, unknownParam(name, known)
		case len(values) > 1 && !known[i].repeated:
			return nil, badPart("query", name, "is given twice")
		}
	}
	return q, nil
}

func unknownParam(name string, known []param) error {
	hint := "no parameter is known here"
	if len(known) > 0 {
		names := make([]string, len(known))
		for i, p := range known {
			names[i] = p.name
		}
		hint = "known here: " + strings.Join(names, ", ")
	}
	return badPart("query", printable(name), "is not a known parameter").hint(hint)
}

// reader reads the values of a query; the first that is wrong is kept.
type reader struct {
	query url.Values
	err   error
}

func (q *reader) refuse(name, message string) {
	if q.err == nil {
		q.err = badPart("query", name, message)
	}
}

// value is a parameter's; there is false where it was not given.
func (q *reader) value(name string, most int) (s string, there bool) {
	values, there := q.query[name]
	if !there {
		return "", false
	}
	if why := misnamed(values[0], most); why != "" {
		q.refuse(name, why)
	}
	return values[0], true
}

func (q *reader) name(name string, most int) string {
	s, _ := q.value(name, most)
	return s
}

// one reads a word that T knows.
func one[T any, P interface {
	*T
	encoding.TextUnmarshaler
}](q *reader, name string, words ...string) *T {
	s, there := q.value(name, perdure.MaxNameLength)
	if !there {
		return nil
	}
	v := new(T)
	if !slices.Contains(words, s) || P(v).UnmarshalText([]byte(s)) != nil {
		q.refuse(name, "must be one of "+strings.Join(words, ", "))
	}
	return v
}

func (q *reader) limit() int {
	s, there := q.value("limit", 20)
	if !there {
		return 0
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > perdure.MaxListLimit {
		q.refuse("limit", "must be from 1 to "+itoa(perdure.MaxListLimit))
	}
	return n
}

const maxCursor = 500

// cursor may be empty, as it is in the first round of a loop over pages.
func (q *reader) cursor() string {
	if q.query.Get("cursor") == "" {
		return ""
	}
	return q.name("cursor", maxCursor)
}

// flag is true where it is given without a value, too.
func (q *reader) flag(name string) bool {
	values, there := q.query[name]
	if !there {
		return false
	}
	switch values[0] {
	case "", "true":
		return true
	case "false":
	default:
		q.refuse(name, "must be true or false")
	}
	return false
}

// wait is a duration from 0 on; what is over most counts as most.
func (q *reader) wait(most time.Duration) time.Duration {
	s, there := q.value("wait", 40)
	if !there {
		return 0
	}
	d, err := parseWait(s)
	if err != nil {
		q.refuse("wait", "must be a duration, such as 30s")
	}
	return min(d, most)
}

// labels reads label=k=v, repeated.
func (q *reader) labels() map[string]string {
	values := q.query["label"]
	if len(values) == 0 {
		return nil
	}
	if len(values) > perdure.MaxLabels {
		q.refuse("label", "is given more than "+itoa(perdure.MaxLabels)+" times")
		return nil
	}
	labels := make(map[string]string, len(values))
	for _, s := range values {
		k, v, ok := strings.Cut(s, "=")
		why := misnamed(s, 2*perdure.MaxLabelLength+1)
		switch had, twice := labels[k]; {
		case !ok || k == "":
			q.refuse("label", "must be NAME=VALUE")
		case why != "":
			q.refuse("label", why)
		case twice && had != v:
			q.refuse("label", "asks for two values of "+k+", which no job has")
		}
		labels[k] = v
	}
	return labels
}
