package kernel_test

import (
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/protocol"
)

// F063: a report that is applied again after an indeterminate commit is accepted if the step's row shows that the
// earlier commit took place.
func TestReportAfterIndeterminateCommit(t *testing.T) {
	attempt, other := time.Unix(10, 0), time.Unix(20, 0)
	accepted, stale, late := protocol.ReportResult{Accepted: true}, protocol.ReportResult{Reason: protocol.RefusedStale}, protocol.ReportResult{Reason: protocol.RefusedLate}
	done, failed := &protocol.Report{Run: 3, Outcome: perdure.OutcomeDone}, &protocol.Report{Run: 3, Outcome: perdure.OutcomeFailed}
	undoOfDone := kernel.Step{Run: 4, Direction: perdure.Undo, CurrentBeforeRun: perdure.Done, ReadyAt: other}
	for name, test := range map[string]struct {
		step     kernel.Step
		report   *protocol.Report
		lost     protocol.ReportResult
		repeated protocol.ReportResult
		want     protocol.ReportResult
	}{
		"the attempt made the step ready":          {kernel.Step{Run: 4, ReadyAt: attempt}, failed, accepted, stale, accepted},
		"another transaction made it ready":        {kernel.Step{Run: 4, ReadyAt: other}, failed, accepted, stale, stale},
		"it is undone after it was reported done":  {undoOfDone, done, accepted, stale, accepted},
		"it is undone after a failure":             {undoOfDone, failed, accepted, stale, stale},
		"it was unsure before the undo":            {kernel.Step{Run: 4, Direction: perdure.Undo, CurrentBeforeRun: perdure.Unsure, ReadyAt: other}, done, accepted, stale, stale},
		"it was dispatched twice since":            {kernel.Step{Run: 5, Direction: perdure.Undo, CurrentBeforeRun: perdure.Done, ReadyAt: other}, done, accepted, stale, stale},
		"the attempt had refused the report":       {kernel.Step{Run: 4, ReadyAt: attempt}, failed, stale, stale, stale},
		"the report is accepted now":               {kernel.Step{Run: 3, ReadyAt: attempt}, done, accepted, accepted, accepted},
		"the report is refused for another reason": {kernel.Step{Run: 4, ReadyAt: attempt}, done, accepted, late, late},
	} {
		got := kernel.OutcomeAfterIndeterminateCommit(&test.step, test.report, []time.Time{time.Unix(1, 0), attempt}, test.lost, test.repeated)
		if got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}
