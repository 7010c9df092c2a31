package rest

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

var corpus = []string{
	claimExample, reportsExample, beatsExample, settleExample, inputExample, maxExample, batchExample,
	`{}`, `[]`, `null`, `""`, `{"a":[{"b":"\"\\"},[],{}],"c":-1.5e+3,"d":"\u00e9\ud83d\ude00"}`, ` { "a" : [ 1 , 2 ] , "b" : { } } `, `{"a":1,"a":2}`,
}

// The walk over a document's text finds what encoding/json finds.
func FuzzWalk(f *testing.F) {
	for _, s := range corpus {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		doc, err := parse([]byte(s))
		if (err == nil) != json.Valid([]byte(s)) {
			t.Fatal(err)
		}
		if err != nil || !utf8.ValidString(s) {
			return
		}
		got := walk(doc.root())
		if len(doc.faults) > 0 { // a name that is there twice
			return
		}
		var want any
		dec := json.NewDecoder(strings.NewReader(s))
		dec.UseNumber()
		if dec.Decode(&want) == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %#v, want %#v", s, got, want)
		}
	})
}

func walk(v value) any {
	switch v.text[0] {
	case '{':
		m := map[string]any{}
		for name, field := range v.fields() {
			m[name] = walk(field)
		}
		return m
	case '[':
		l := []any{}
		for item := range v.items() {
			l = append(l, walk(item))
		}
		return l
	case '"':
		return v.string()
	case 't', 'f':
		return v.boolean()
	case 'n':
		return nil
	}
	return json.Number(v.text)
}

// Whatever comes, a body is read or refused; a refusal has its faults, and what is read is within bounds.
func FuzzBodies(f *testing.F) {
	for _, s := range corpus {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		doc, err := parse([]byte(s))
		if err != nil {
			return
		}
		if req := readClaim(doc); doc.err() == nil && (misnamed(req.Holder, perdure.MaxHolderLength) != "" || req.Max < 1 || req.Wait < 0) {
			t.Errorf("%+v", req)
		}
		for i := range verbs {
			verbs[i].read(&document{text: doc.text}, new(perdure.Act))
		}
		readLimit(&document{text: doc.text}, kernel.LimitNamed)
		batch := &document{text: doc.text}
		if base, jobs := readBatch(batch); batch.err() == nil && (len(jobs) == 0 || len(jobs) > perdure.MaxBatch || base != nil && base[0] != '{') {
			t.Errorf("%d jobs of %q", len(jobs), base)
		}
		for _, name := range []string{"reports", "runs"} {
			set := &document{text: doc.text}
			_, items := readSet(set, name, nil)
			for _, item := range items {
				if rep, err := readReport(item); err == nil && (rep.Job.IsZero() || rep.Run < 1 || rep.Check() != nil) {
					t.Errorf("%+v", rep)
				}
				readBeat(item, new(beatResult))
			}
		}
	})
}

func FuzzQuery(f *testing.F) {
	f.Add("phase=parked&label=a=b&limit=5&cursor=&wait=30s")
	f.Add("a;b&%zz")
	f.Add("wait=1d&closed")
	f.Fuzz(func(t *testing.T, raw string) {
		known := []param{{name: "phase"}, {name: "label", repeated: true}, {name: "limit"}, {name: "cursor"}, {name: "wait"}, {name: "closed"}}
		values, err := parseQuery(raw, known)
		if err != nil {
			return
		}
		q := reader{query: values}
		one[perdure.Phase](&q, "phase", "parked")
		q.labels()
		q.flag("closed")
		limit, cursor, wait := q.limit(), q.cursor(), q.wait(perdure.MaxJobWait)
		if q.err == nil && (limit > perdure.MaxListLimit || limit < 0 || wait < 0 || wait > perdure.MaxJobWait || !utf8.ValidString(cursor)) {
			t.Error(limit, cursor, wait)
		}
		_ = values.Encode()
	})
}
