package rest

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// Claims and reports are answered byte for byte as encoding/json writes them.
func FuzzWork(f *testing.F) {
	f.Add("charge", "a/1", `{"a":[1,"b"]}`, "null", int64(7), int64(0), uint8(3))
	f.Add("Größe \"x\"\n", "\x7f\\", `"<&>"`, "", int64(-1), int64(5), uint8(0))
	f.Add("", "\xff\u2028", "", "[]", int64(0), int64(1), uint8(255))
	f.Fuzz(func(t *testing.T, step, key, input, output string, n, waited int64, bits uint8) {
		for _, raw := range []*string{&input, &output} {
			if !json.Valid([]byte(*raw)) {
				*raw = ""
			}
		}
		at := time.Unix(n%1e10, n%1e9).UTC()
		run := perdure.Run{Job: perdure.JobID{0: bits, 15: 1}, Step: step, Action: key, Number: n, Direction: perdure.Direction(bits & 1), Key: key,
			LockedUntil: at, CompleteBy: at.Add(time.Hour), RemainingMs: n, WaitedMs: waited, Priority: int(bits % 10)}
		if input != "" {
			run.Input = json.RawMessage(input)
		}
		if output != "" {
			run.Output, run.DoKey, run.Traceparent, run.Secrets = json.RawMessage(output), key, step, []string{step, key}
		}
		runs := make([]perdure.Run, bits%4)
		for i := range runs {
			runs[i] = run
		}
		results := []protocol.ReportResult{{Accepted: true}, {Reason: protocol.RefusalReason(key), Message: step}}[:bits%3]
		same(t, nil, runs, claimAnswer{runs})
		same(t, results, runs, reportsAnswer{results, runs})
	})
}

func same(t *testing.T, results []protocol.ReportResult, runs []perdure.Run, answer any) {
	t.Helper()
	body := appendWork(nil, results, runs)
	var got, want bytes.Buffer
	if err := json.Compact(&got, body); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if err := encodeJSON(&want, answer); err != nil {
		t.Fatal(err)
	}
	if got.String() != string(bytes.TrimSpace(want.Bytes())) {
		t.Fatalf("%s\ninstead of %s", got.String(), want.String())
	}
}

func TestEmptyInputIsValidJSON(t *testing.T) {
	body := appendWork(nil, nil, []perdure.Run{{Input: json.RawMessage{}}})
	if !json.Valid(body) {
		t.Errorf("%s", body)
	}
}
