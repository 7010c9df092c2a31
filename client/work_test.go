package client

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/jsontext"
	"github.com/perdure/perdure/protocol"
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

var odd = []string{
	``, `null`, `{}`, `{"runs":null}`, `{"runs":[null]}`, `{"runs":[{}],"runs":[{}]}`, `{"Runs":[]}`, `{"runs":[]} {}`, `{"runs":[],}`,
	`{"runs":[{"run":01}]}`, `{"runs":[{"run":+1}]}`, `{"runs":[{"run":1.5}]}`, `{"runs":[{"run":9223372036854775808}]}`, `{"runs":[{"run":}]}`,
	`{"runs":[{"step":"a\u0062"}]}`, `{"runs":[{"step":"é"}]}`, `{"runs":[{"step":null}]}`, `{"runs":[{"STEP":"a"}]}`, `{"runs":[{"new":1}]}`,
	`{"runs":[{"input":{]}}]}`, `{"runs":[{"input":{"a":1}]}`, `{"runs":[{"input":tru}]}`, `{"runs":[{"input":}]}`, `{"runs":[{"direction":"up"}]}`,
	`{"runs":[{"job":"x"}]}`, `{"runs":[{"lockedUntil":"today"}]}`, `{"results":[{"accepted":"true"}]}`, `{"results":[{"accepted":true}`, `{"runs":[{"input":"`,
	`{"runs":[{"job":null,"run":null,"direction":null,"input":null,"lockedUntil":null}],"results":[{"accepted":null,"reason":null}]}`,
	`{"runs":[{"job":"job_01000000000070008000000000000001","step":"s","run":1,"lockedUntil":"2026-01-02T03:04:05Z","remainingMs":5,"stop":true,"reason":"late"}]}`,
	`{"results":[{"id":"job_01000000000070008000000000000001","key":"k","created":true},{"error":{"code":"invalid","detail":"d","errors":[{"message":"m"}]}},{"error":null}]}`,
}

// Answers are read as encoding/json would read them, or not at all.
func FuzzAnswers(f *testing.F) {
	for _, a := range append(answers, odd...) {
		f.Add([]byte(a))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, pair := range [][2]any{{new(work), new(work)}, {new(heartbeatAnswer), new(heartbeatAnswer)}, {new(submitted), new(submitted)}} {
			got, want := pair[0], pair[1]
			if decode(body, got) != nil || otherCase(body) {
				continue
			}
			if err := json.Unmarshal(body, want); err != nil {
				t.Fatalf("%s\nis read as %+v, and is not JSON: %v", body, got, err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%s\nis read as %+v\nand is %+v", body, got, want)
			}
		}
	})
}

// otherCase reports whether a body may have a field that encoding/json takes although its name is in other letters.
func otherCase(body []byte) bool {
	lower := map[string]string{}
	for _, name := range fieldName.FindAllString(string(body), -1) {
		if was, found := lower[strings.ToLower(name)]; found && was != name || strings.Contains(name, `\`) {
			return true
		}
		lower[strings.ToLower(name)] = name
		if !slices.Contains(known, strings.Trim(name, `"`)) && slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, strings.Trim(name, `"`)) }) {
			return true
		}
	}
	return false
}

var (
	fieldName = regexp.MustCompile(`"[^"]*"`)
	known     = []string{"results", "runs", "accepted", "reason", "message", "job", "step", "action", "run", "direction", "input", "output", "doKey", "key",
		"lockedUntil", "completeBy", "remainingMs", "waitedMs", "priority", "traceparent", "stop", "id", "created", "error", "status", "title", "detail", "code", "hint", "errors"}
)

// Each answer that a server writes is read, and so are fields that a newer server may add.
func TestAnswersAreRead(t *testing.T) {
	for _, a := range answers {
		if err := decode([]byte(a), new(work)); err != nil {
			t.Errorf("%v: %s", err, a)
		}
	}
	var w work
	body := []byte(`{"runs":[` + aRun + `]}`)
	if err := decode(body, &w); err != nil {
		t.Error(err)
	}
	clear(body)
	if input := string(w.Runs[0].Input); !strings.HasPrefix(input, `{"amount":12.5,`) {
		t.Errorf("input %q is a part of the body", input)
	}
	w = work{}
	if err := decode([]byte(`{"runs":[`+aRun+`,{"step":"a\u0062","new":[1]}],"more":{}}`), &w); err != nil || len(w.Runs) != 2 || w.Runs[0].Number != 7 || w.Runs[1].Step != "ab" {
		t.Errorf("%+v, %v", w, err)
	}
}

// An answer that is cut short or wrong is refused as a whole, with the place.
func TestWrongAnswersAreRefused(t *testing.T) {
	for body, want := range map[string]string{
		`{"runs":[` + aRun + `}`:               "expected `,` or `]`, found `}`",
		`{"runs":[{"job":"x"}]}`:               "at byte 16: ",
		`{"runs":[{"direction":"up"}]}`:        `unknown direction "up"`,
		`{"runs":[],"runs":[]}`:                "at byte 11: duplicate field `runs`",
		`{"runs":[{"run":"7"}]}`:               "expected a number",
		`{"runs":[{"input":{"a":1}}`:           "the end of the text",
		`{"runs":[{"lockedUntil":"today"}]}`:   "at byte 24: ",
		`{"runs":[{"step":"` + "\xff" + `"}]}`: "not UTF-8",
		`{"results":[{"accepted":1}]}`:         "expected true or false, found `1`",
	} {
		if err := decode([]byte(body), new(work)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
}

// Reports, heartbeats and claims are written as encoding/json writes them.
func TestBodiesAreWrittenAsJSON(t *testing.T) {
	job := perdure.JobID{0: 1, 15: 2}
	written := func(write func(*jsontext.Appender) error) string {
		a := jsontext.NewAppender(nil)
		if err := write(&a); err != nil {
			t.Error(err)
		}
		return string(a.Bytes())
	}
	wanted := func(v any) string {
		b, err := encode(v)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSuffix(string(b), "\n")
	}
	for _, r := range []protocol.Report{
		{Job: job, Step: "s", Run: 7, Outcome: perdure.OutcomeDone, Output: json.RawMessage(`{"a":"<é>"}`)},
		{Job: job, Step: "s", Run: 7, Outcome: perdure.OutcomeReturned, Effect: protocol.EffectUnknown},
		{Outcome: perdure.OutcomeFailed, Error: &perdure.RunError{Code: "c", Message: "a \"b\"\n\u2028", RetryAfter: perdure.Duration(90 * time.Second)}},
		{Outcome: perdure.OutcomeRejected, Error: &perdure.RunError{}, Output: json.RawMessage{}},
	} {
		if got, want := written(func(a *jsontext.Appender) error { return appendReport(a, &r) }), wanted(&r); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	for _, h := range []protocol.Heartbeat{{Job: job, Step: "s", Run: 7, Progress: json.RawMessage(`[1]`)}, {}} {
		if got, want := written(func(a *jsontext.Appender) error { return appendBeat(a, &h) }), wanted(&h); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	claim := protocol.Claim{Agent: "a", Holder: "h", Max: 3, Wait: time.Minute, Heartbeat: time.Second, RequestID: "r", Secrets: true, First: true}
	const want = `{"agent":"a","holder":"h","max":3,"wait":"1m0s","heartbeat":"1s","requestId":"r","secrets":true}`
	if got := written(func(a *jsontext.Appender) error { appendClaim(a, &claim); return nil }); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got := written(func(a *jsontext.Appender) error { appendClaim(a, &protocol.Claim{}); return nil }); got != "{}" {
		t.Error(got)
	}
}

// An output that is not JSON is refused before anything is sent, with the place.
func TestOutputThatIsNotJSON(t *testing.T) {
	c, err := New("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = c.Report(t.Context(), "h", []protocol.Report{{Outcome: perdure.OutcomeDone, Output: json.RawMessage(`{"a":}`)}}, nil)
	if err == nil || perdure.CodeOf(err) != perdure.CodeInvalid || !strings.Contains(err.Error(), "output: not JSON: byte 5: expected a value, found `}`") {
		t.Error(err)
	}
}

func BenchmarkDecode(b *testing.B) {
	body := []byte(`{"runs":[` + strings.Repeat(aRun+`,`, 999) + aRun + `]}`)
	for name, read := range map[string]func([]byte, any) error{"client": decode, "encoding/json": json.Unmarshal} {
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

func BenchmarkEncodeReports(b *testing.B) {
	reports := make([]protocol.Report, perdure.MaxBatch)
	for i := range reports {
		reports[i] = protocol.Report{Job: perdure.JobID{0: 1, 15: byte(i)}, Step: "charge", Run: int64(i + 1), Outcome: perdure.OutcomeDone,
			Output: json.RawMessage(`{"id":"ch-9","amount":4200}`)}
	}
	b.ReportAllocs()
	for b.Loop() {
		list, _, err := encodeList(reports, appendReport)
		if err != nil {
			b.Fatal(err)
		}
		encodeSet("h", "reports", list, nil)
	}
}
