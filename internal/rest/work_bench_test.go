package rest

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// BenchmarkAnswerWithRuns measures the answers to claims and reports with the largest number of runs.
func BenchmarkAnswerWithRuns(b *testing.B) {
	runs := make([]perdure.Run, perdure.MaxBatch)
	for i := range runs {
		runs[i] = perdure.Run{Job: perdure.JobID{0: 1, 15: byte(i)}, Step: "charge", Action: "charge", Number: int64(i), Direction: perdure.Do,
			Input: json.RawMessage(`{"amount":12.5,"note":"tea"}`), Key: "job_01000000000070008000000000000001/charge/1",
			LockedUntil: time.Unix(1e9, 5000).UTC(), CompleteBy: time.Unix(2e9, 0).UTC(), RemainingMs: 30000, WaitedMs: 12, Priority: 5}
	}
	results := make([]protocol.ReportResult, perdure.MaxBatch)
	for i := range results {
		results[i].Accepted = true
	}
	b.ReportAllocs()
	var out bytes.Buffer
	for b.Loop() {
		out.Reset()
		out.Write(appendWork(out.AvailableBuffer(), results, runs))
	}
}
