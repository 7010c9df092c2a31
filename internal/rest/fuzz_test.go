package rest

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/jsontext"
	"github.com/perdure/perdure/internal/kernel"
)

var corpus = []string{
	claimExample, reportsExample, heartbeatsExample, settleExample, inputExample, maxExample, batchExample,
	`{}`, `[]`, `null`, `""`, `{"a":[{"b":"\"\\"},[],{}],"c":-1.5e+3,"d":"\u00e9\ud83d\ude00"}`, ` { "a" : [ 1 , 2 ] , "b" : { } } `, `{"a":1,"a":2}`,
}

// A document has the values that encoding/json finds.
func FuzzWalk(f *testing.F) {
	for _, s := range corpus {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		doc := parse([]byte(s))
		got := walk(doc.root())
		if err := doc.err(); (perdure.CodeOf(err) == perdure.CodeMalformed) == json.Valid([]byte(s)) {
			t.Fatal(err)
		} else if err != nil || !utf8.ValidString(s) { // a duplicate field
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
	switch v.kind() {
	case jsontext.Object:
		m := map[string]any{}
		for name, field := range v.fields() {
			m[string(name)] = walk(field)
		}
		return m
	case jsontext.List:
		l := []any{}
		for _, item := range v.items() {
			l = append(l, walk(item))
		}
		return l
	case jsontext.String:
		return v.string()
	case jsontext.Bool:
		return v.boolean()
	case jsontext.Number:
		return json.Number(v.raw())
	}
	v.raw() // null, or an error
	return nil
}

// Each body is read or refused. A refusal has its faults, and what is read is within bounds.
func FuzzBodies(f *testing.F) {
	for _, s := range corpus {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text := []byte(s)
		doc := parse(text)
		if req := readClaim(doc); doc.err() == nil && (misnamed(req.Holder, perdure.MaxHolderLength) != "" || req.Max < 1 || req.Wait < 0) {
			t.Errorf("%+v", req)
		}
		for i := range verbs {
			doc := parse(text)
			verbs[i].read(doc, new(perdure.Act))
			if err := doc.err(); perdure.CodeOf(err) != perdure.CodeMalformed && !json.Valid(text) {
				t.Errorf("%q: %v", s, err)
			}
		}
		readLimit(parse(text), kernel.LimitNamed)
		batch := parse(text)
		if base, jobs := readBatch(batch); batch.err() == nil && (len(jobs) == 0 || len(jobs) > perdure.MaxBatch || base != nil && base[0] != '{') {
			t.Errorf("%d jobs of %q", len(jobs), base)
		}
		for _, name := range []string{"reports", "runs"} {
			for _, read := range []func(value){
				func(item value) {
					if rep, err := readReport(item); err == nil && (rep.Job.IsZero() || rep.Run < 1 || rep.Check() != nil) {
						t.Errorf("%+v", rep)
					}
				},
				func(item value) { readHeartbeat(item, new(beatResult)) },
			} {
				set, n := parse(text), 0
				readSet(set, name, nil, func(item value) { n++; read(item) })
				if n > perdure.MaxBatch || len(set.faults) > 0 && json.Valid(text) && set.err() == nil {
					t.Errorf("%d items, faults %v", n, set.faults)
				}
			}
		}
	})
}

func FuzzQuery(f *testing.F) {
	f.Add("phase=parked&label=a=b&limit=5&cursor=c&wait=30s")
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
