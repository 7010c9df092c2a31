package rest

import (
	"encoding"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

// param is a query parameter of a route.
type param struct {
	name, doc, example string
	repeated           bool
}

// parseQuery refuses parameters that the route does not know, and repeated ones.
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
			return nil, badPart("query", name, "is given more than once")
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

// reader reads the values of a query, and keeps the first error.
type reader struct {
	query url.Values
	err   error
}

func (q *reader) refuse(name, message string) {
	if q.err == nil {
		q.err = badPart("query", name, message)
	}
}

// value returns the value of a parameter.
func (q *reader) value(name string, most int) (s string, given bool) {
	return q.checked(name, most, misnamed)
}

// checked returns the value of a parameter that wrong finds no fault with.
func (q *reader) checked(name string, most int, wrong func(s string, most int) string) (s string, given bool) {
	values, given := q.query[name]
	if !given {
		return "", false
	}
	if why := wrong(values[0], most); why != "" {
		q.refuse(name, why)
	}
	return values[0], true
}

func (q *reader) name(name string, most int) string {
	s, _ := q.value(name, most)
	return s
}

// maxSearch bounds the text of a search: as long as a label may be, which is longer than a key.
const maxSearch = perdure.MaxLabelLength

// maxParentRef is the length of JOB/STEP.
const maxParentRef = perdure.MaxKeyLength + 1 + perdure.MaxNameLength

// text returns the value of a parameter that is compared with texts of users.
func (q *reader) text(name string, most int) string {
	s, _ := q.checked(name, most, unstored)
	return s
}

// one reads a value of T that is one of words.
func one[T any, P interface {
	*T
	encoding.TextUnmarshaler
}](q *reader, name string, words ...string) *T {
	s, given := q.value(name, perdure.MaxNameLength)
	if !given {
		return nil
	}
	v := new(T)
	if !slices.Contains(words, s) || P(v).UnmarshalText([]byte(s)) != nil {
		q.refuse(name, "must be one of "+strings.Join(words, ", "))
	}
	return v
}

// many reads a parameter that may be repeated, with the values of one.
func many[T any, P interface {
	*T
	encoding.TextUnmarshaler
}](q *reader, name string, words ...string) (list []T) {
	values := q.query[name]
	for i, s := range values {
		v := new(T)
		if !slices.Contains(words, s) || P(v).UnmarshalText([]byte(s)) != nil {
			q.refuse(name, "must be one of "+strings.Join(words, ", "))
			return nil
		}
		if !slices.Contains(values[:i], s) {
			list = append(list, *v)
		}
	}
	return list
}

// word reads a value that is one of words.
func (q *reader) word(name string, words ...string) string {
	s, given := q.value(name, perdure.MaxNameLength)
	if given && !slices.Contains(words, s) {
		q.refuse(name, "must be one of "+strings.Join(words, ", "))
	}
	return s
}

// time reads a time, or a duration before now.
func (q *reader) time(name string) time.Time {
	s, given := q.value(name, 40)
	if !given {
		return time.Time{}
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t
	}
	ago, err := perdure.ParseDuration(s)
	if err != nil {
		q.refuse(name, timeOrAgo)
	}
	return time.Now().Add(-ago)
}

const timeOrAgo = "must be a time, such as 2026-01-02T15:04:05Z, or a duration before now, such as 24h, of at most 10 years"

// order refuses two times that no job is between.
func (q *reader) order(since, until time.Time) {
	if until.IsZero() || !since.After(until) || q.err != nil {
		return
	}
	q.err = badParameter{&perdure.Error{Code: perdure.CodeInvalid, Message: "since is later than until: no job can match", Fields: []perdure.FieldError{
		{Pointer: "/query/since", Message: "is later than until: no job can match"}, {Pointer: "/query/until", Message: "is earlier than since"}}}}
}

func (q *reader) limit() int { return q.limitTo(perdure.MaxListLimit) }

func (q *reader) limitTo(most int) int {
	s, given := q.value("limit", 20)
	if !given {
		return 0
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > most {
		q.refuse("limit", "must be from 1 to "+itoa(most))
	}
	return n
}

const maxCursor = 500

// cursor reads a cursor. That of the first page is left out.
func (q *reader) cursor() string { return q.name("cursor", maxCursor) }

// flag reads true or false. A parameter without a value is true.
func (q *reader) flag(name string) bool {
	values, given := q.query[name]
	if !given {
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

// wait reads a duration from 0 to most.
func (q *reader) wait(most time.Duration) time.Duration {
	s, given := q.value("wait", 40)
	if !given {
		return 0
	}
	switch d, err := parseWait(s); {
	case err != nil:
		q.refuse("wait", "must be a duration, such as 30s")
	case d > most:
		q.refuse("wait", "must be from 0s to "+plain.Duration(most))
	default:
		return d
	}
	return 0
}

// labels reads the parameter label, which has the form NAME=VALUE and may be repeated.
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
		why := unstored(s, 2*perdure.MaxLabelLength+1)
		switch earlier, twice := labels[k]; {
		case !ok || k == "":
			q.refuse("label", "must be NAME=VALUE")
		case why != "":
			q.refuse("label", why)
		case twice && earlier != v:
			q.refuse("label", "has two values for "+k+": no job can have both")
		}
		labels[k] = v
	}
	return labels
}
