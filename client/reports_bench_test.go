package client

import (
	"encoding/json"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// The body of a call with reports.
func BenchmarkEncodeReports(b *testing.B) {
	reports := make([]protocol.Report, 1000)
	for i := range reports {
		reports[i] = protocol.Report{Job: perdure.JobID{0: 1, 15: byte(i)}, Step: "charge", Run: int64(i + 1), Outcome: perdure.OutcomeDone,
			Output: json.RawMessage(`{"id":"ch-9","amount":4200}`)}
	}
	b.ReportAllocs()
	for b.Loop() {
		list, _, err := encodeList(reports)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := encodeSet("h", "reports", list, nil); err != nil {
			b.Fatal(err)
		}
	}
}
