package http

import (
	"fmt"
	"strconv"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agents/internal/with"
)

// expect maps statuses to outcomes that differ from the defaults.
type expect struct {
	Done     []status `json:"done"`
	Failed   []status `json:"failed"`
	Rejected []status `json:"rejected"`
}

func (e *expect) UnmarshalJSON(b []byte) error {
	if with.IsNull(b) {
		return nil
	}
	return with.Decode(b, e)
}

// status is one status (404), or a class of them ("4xx": from 400 to 499).
type status struct {
	from, to int
	open     bool // an expression
}

func (s *status) UnmarshalJSON(b []byte) error {
	word, ok := with.Scalar(b)
	if b[0] == '"' && with.Expression(word) {
		s.open = true
		return nil
	}
	if ok && len(word) == 3 && word[1:] == "xx" && word[0] >= '2' && word[0] <= '5' {
		s.from = int(word[0]-'0') * 100
		s.to = s.from + 99
		return nil
	}
	n, err := strconv.Atoi(word)
	if !ok || err != nil || n < 200 || n > 599 {
		return fmt.Errorf(`a status from 200 to 599, or a class like "2xx", not %s`, with.Brief(b))
	}
	s.from, s.to = n, n
	return nil
}

// lists returns the three lists in the order in which they are searched.
func (e *expect) lists() map[perdure.Outcome][]status {
	return map[perdure.Outcome][]status{
		perdure.OutcomeDone:     e.Done,
		perdure.OutcomeFailed:   e.Failed,
		perdure.OutcomeRejected: e.Rejected,
	}
}

// check refuses a status with two meanings.
func (e *expect) check(draft bool) error {
	seen := map[status]perdure.Outcome{}
	for outcome, list := range e.lists() {
		for _, s := range list {
			if s.open {
				if !draft {
					return fmt.Errorf("an expression was not evaluated")
				}
				continue
			}
			if other, ok := seen[s]; ok && other != outcome {
				return fmt.Errorf("%s cannot mean both %s and %s", s, min(other, outcome), max(other, outcome))
			}
			seen[s] = outcome
		}
	}
	return nil
}

func (s status) String() string {
	if s.from != s.to {
		return strconv.Itoa(s.from/100) + "xx"
	}
	return strconv.Itoa(s.from)
}

// of returns the outcome of a status: as expected by number, else by class, else by default.
func (e *expect) of(code int, d perdure.Direction) perdure.Outcome {
	class := perdure.NoOutcome
	for outcome, list := range e.lists() {
		for _, s := range list {
			switch {
			case code < s.from || code > s.to:
			case s.from == s.to:
				return outcome
			default:
				class = outcome
			}
		}
	}
	if class != perdure.NoOutcome {
		return class
	}
	return defaultOutcome(code, d)
}

func defaultOutcome(code int, d perdure.Direction) perdure.Outcome {
	switch {
	case code >= 200 && code < 300:
		return perdure.OutcomeDone
	case d == perdure.Undo && (code == 404 || code == 410):
		return perdure.OutcomeDone // nothing exists, or no longer: that is the purpose of an undo
	case code == 408 || code == 425 || code == 429 || code >= 500:
		return perdure.OutcomeFailed
	}
	return perdure.OutcomeRejected
}
