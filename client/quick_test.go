package client

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

const aRun = `{"job":"job_01000000000070008000000000000001","step":"charge","action":"charge","run":7,"direction":"do",` +
	`"input":{"amount":12.5,"note":"a \"quoted\" } note"},"key":"job_01000000000070008000000000000001/charge/1",` +
	`"lockedUntil":"2026-01-02T03:04:05.000006Z","completeBy":"2026-01-03T03:04:05Z","remainingMs":30000,"waitedMs":12,"priority":5}`

var answers = []string{
	`{"runs":[]}`,
	`{"results":[]}`,
	`{"runs":[` + aRun + `]}`,
	`{"runs":[` + aRun + `,` + aRun + `],"results":[{"accepted":true},{"accepted":false,"reason":"late","message":"too late"}]}` + "\n",
	`{ "runs" : [ ` + strings.ReplaceAll(aRun, `,"`, ` , "`) + ` ] }`,
	`{"runs":[{"job":"job_01000000000070008000000000000001","direction":"undo","input":null,"output":[1,[2,{"a":"]"}]],"doKey":"k","traceparent":"00-1"}]}`,
	`{"runs":[{"input":"text","run":-3,"priority":0}]}`,
}

// What is read quickly is what encoding/json would have read.
func FuzzQuick(f *testing.F) {
	for _, a := range answers {
		f.Add([]byte(a))
	}
	for _, odd := range []string{
		``, `null`, `{}`, `{"runs":null}`, `{"runs":[null]}`, `{"runs":[{}],"runs":[{}]}`, `{"Runs":[]}`, `{"runs":[]} {}`, `{"runs":[],}`,
		`{"runs":[{"run":01}]}`, `{"runs":[{"run":+1}]}`, `{"runs":[{"run":1.5}]}`, `{"runs":[{"run":9223372036854775808}]}`, `{"runs":[{"run":}]}`,
		`{"runs":[{"step":"a\u0062"}]}`, `{"runs":[{"step":"é"}]}`, `{"runs":[{"step":null}]}`, `{"runs":[{"STEP":"a"}]}`, `{"runs":[{"new":1}]}`,
		`{"runs":[{"input":{]}}]}`, `{"runs":[{"input":{"a":1}]}`, `{"runs":[{"input":tru}]}`, `{"runs":[{"input":}]}`, `{"runs":[{"direction":"up"}]}`,
		`{"runs":[{"job":"x"}]}`, `{"runs":[{"lockedUntil":"today"}]}`, `{"results":[{"accepted":"true"}]}`, `{"results":[{"accepted":true}`, `{"runs":[{"input":"`,
	} {
		f.Add([]byte(odd))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var got, want work
		if q := (quick{rest: body}); !q.work(&got) {
			return
		}
		if err := json.Unmarshal(body, &want); err != nil {
			t.Fatalf("%s\nis read as %+v, and is not JSON: %v", body, got, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%s\nis read as %+v\nand is %+v", body, got, want)
		}
	})
}

// What a server writes is read quickly, and what it may write one day is read.
func TestQuick(t *testing.T) {
	for _, a := range answers {
		if q := (quick{rest: []byte(a)}); !q.work(&work{}) {
			t.Errorf("not read, from %.40s on: %s", q.rest, a)
		}
	}
	var w work
	if err := decode([]byte(`{"runs":[`+aRun+`,{"step":"a\u0062","new":[1]}]}`), &w); err != nil || len(w.Runs) != 2 || w.Runs[0].Number != 7 || w.Runs[1].Step != "ab" {
		t.Errorf("%+v, %v", w, err)
	}
	if err := decode([]byte(`{"runs":[`+aRun+`}`), &w); err == nil {
		t.Error("half an answer was read")
	}
}

func BenchmarkDecode(b *testing.B) {
	body := []byte(`{"runs":[` + strings.Repeat(aRun+`,`, 999) + aRun + `]}`)
	for name, read := range map[string]func([]byte, any) error{"quick": decode, "encoding/json": json.Unmarshal} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for range b.N {
				var w work
				if err := read(body, &w); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
