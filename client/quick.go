package client

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// work is the answer to claims and reports. It comes with a thousand runs at a time; for encoding/json, which looks at
// each byte twice and finds each field by reflection, that is more work than anything else that an agent has with
// them.
type work struct {
	Results []protocol.ReportResult `json:"results"`
	Runs    []perdure.Run           `json:"runs"`
}

// decode reads an answer.
func decode(body []byte, out any) error {
	if w, ok := out.(*work); ok {
		if q := (quick{rest: body}); q.work(w) {
			return nil
		}
		*w = work{}
	}
	return json.Unmarshal(body, out)
}

// quick reads JSON as servers write it: in one pass, names as they are spelled, strings without escapes. With
// everything else it fails, and leaves it to encoding/json, which says what it is or what is wrong with it. What it
// does read, it reads as encoding/json would.
type quick struct {
	rest   []byte
	failed bool
}

func (q *quick) fail() { q.failed = true }

// next is the next byte that is not a space; 0 at the end, and once something has failed.
func (q *quick) next() byte {
	for len(q.rest) > 0 && !q.failed {
		switch c := q.rest[0]; c {
		case ' ', '\t', '\n', '\r':
			q.rest = q.rest[1:]
		default:
			return c
		}
	}
	return 0
}

func (q *quick) took(c byte) bool {
	if q.next() != c {
		return false
	}
	q.rest = q.rest[1:]
	return true
}

func (q *quick) expect(c byte) {
	if !q.took(c) {
		q.fail()
	}
}

// each takes a list apart, or an object: one must take what stands there.
func (q *quick) each(open, end byte, one func()) {
	q.expect(open)
	if q.took(end) {
		return
	}
	for !q.failed {
		if one(); !q.took(',') {
			q.expect(end)
			return
		}
	}
}

func (q *quick) object(field func(name []byte)) {
	q.each('{', '}', func() {
		name := q.text()
		q.expect(':')
		field(name)
	})
}

// text is what stands between quotes.
func (q *quick) text() []byte {
	if q.next() != '"' {
		q.fail()
		return nil
	}
	end := bytes.IndexByte(q.rest[1:], '"')
	if end < 0 {
		q.fail()
		return nil
	}
	text := q.rest[1 : 1+end]
	for _, c := range text {
		if c < ' ' || c == '\\' || c >= utf8.RuneSelf {
			q.fail()
			return nil
		}
	}
	q.rest = q.rest[end+2:]
	return text
}

// word is text that as a rule is the same as one before.
func (q *quick) word(before string) string {
	if text := q.text(); string(text) != before {
		return string(text)
	}
	return before
}

func (q *quick) into(v interface{ UnmarshalText([]byte) error }) {
	if text := q.text(); !q.failed && v.UnmarshalText(text) != nil {
		q.fail()
	}
}

// bare is what stands there up to the next comma or end of a list or object.
func (q *quick) bare() []byte {
	q.next()
	end := bytes.IndexAny(q.rest, ",]} \t\n\r")
	if end < 0 || q.failed {
		q.fail()
		return nil
	}
	text := q.rest[:end]
	q.rest = q.rest[end:]
	return text
}

func (q *quick) int() int64 {
	text := q.bare()
	n, err := strconv.ParseInt(string(text), 10, 64)
	if digits := bytes.TrimPrefix(text, []byte{'-'}); err != nil || text[0] == '+' || digits[0] == '0' && len(digits) > 1 {
		q.fail()
	}
	return n
}

func (q *quick) bool() bool {
	text := string(q.bare())
	if text != "true" && text != "false" {
		q.fail()
	}
	return text == "true"
}

// raw is a value as it stands there.
func (q *quick) raw() json.RawMessage {
	var value []byte
	switch q.next() {
	case '{', '[', '"':
		end := length(q.rest)
		value, q.rest = q.rest[:end], q.rest[end:]
	default:
		value = q.bare()
	}
	if q.failed || !json.Valid(value) {
		q.fail()
		return nil
	}
	return bytes.Clone(value)
}

// length is how far the value goes with which b begins: an object, a list or a string.
func length(b []byte) int {
	depth, quoted := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
			continue
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{', c == '[':
			depth++
			continue
		case c == '}', c == ']':
			depth--
		default:
			continue
		}
		if depth == 0 && !quoted {
			return i + 1
		}
	}
	return len(b)
}

// work says whether all of it was read.
func (q *quick) work(w *work) bool {
	q.object(func(name []byte) {
		switch string(name) {
		case "results":
			if w.Results != nil {
				q.fail()
			}
			w.Results = []protocol.ReportResult{}
			q.each('[', ']', func() { w.Results = append(w.Results, q.result()) })
		case "runs":
			if w.Runs != nil {
				q.fail()
			}
			w.Runs = []perdure.Run{}
			q.each('[', ']', func() {
				before := &perdure.Run{}
				if n := len(w.Runs); n > 0 {
					before = &w.Runs[n-1]
				}
				w.Runs = append(w.Runs, q.run(before))
			})
		default:
			q.fail()
		}
	})
	return q.next() == 0 && !q.failed && len(q.rest) == 0
}

func (q *quick) result() (r protocol.ReportResult) {
	q.object(func(name []byte) {
		switch string(name) {
		case "accepted":
			r.Accepted = q.bool()
		case "reason":
			r.Reason = protocol.RefusalReason(q.text())
		case "message":
			r.Message = string(q.text())
		default:
			q.fail()
		}
	})
	return r
}

func (q *quick) run(before *perdure.Run) (r perdure.Run) {
	q.object(func(name []byte) {
		switch string(name) {
		case "job":
			q.into(&r.Job)
		case "step":
			r.Step = q.word(before.Step)
		case "action":
			r.Action = q.word(before.Action)
		case "run":
			r.Number = q.int()
		case "direction":
			q.into(&r.Direction)
		case "input":
			r.Input = q.raw()
		case "output":
			r.Output = q.raw()
		case "doKey":
			r.DoKey = string(q.text())
		case "key":
			r.Key = string(q.text())
		case "lockedUntil":
			q.into(&r.LockedUntil)
		case "completeBy":
			q.into(&r.CompleteBy)
		case "remainingMs":
			r.RemainingMs = q.int()
		case "waitedMs":
			r.WaitedMs = q.int()
		case "priority":
			r.Priority = int(q.int())
		case "traceparent":
			r.Traceparent = string(q.text())
		default:
			q.fail()
		}
	})
	return r
}
