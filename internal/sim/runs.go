package sim

import (
	"context"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// The records of runs (I17). Every run that was dispatched is recorded once, with its start, direction and turn: in its
// step's row, or in the history.

// dispatchedRun is a run as it was dispatched.
type dispatchedRun struct {
	handle
	recordedRun
}

type recordedRun struct {
	startedAt time.Time
	direction perdure.Direction
	turn      int
}

func (w *world) noteDispatch(s *kernel.Step) {
	w.book.dispatched[s.Job] = append(w.book.dispatched[s.Job], dispatchedRun{handle{s.Job, s.Name, s.Run}, recordedRun{s.StartedAt, s.Direction, s.Turn}})
	w.checkRates(s)
}

// auditRuns compares the recorded runs of a job with those that were dispatched.
func (w *world) auditRuns(id perdure.JobID) {
	records := map[handle][]recordedRun{}
	record := func(step string, run int64, r recordedRun) {
		records[handle{id, step, run}] = append(records[handle{id, step, run}], r)
	}
	for after := (kernel.RunPlace{}); ; {
		page, err := w.inner.Runs(context.Background(), id, after, perdure.MaxListLimit)
		w.must(err)
		for i := range page {
			e := &page[i]
			if e.Place().Compare(after) <= 0 {
				w.wrong("I17", "%s/%s: run %d is not in the order of the starts", short(id), e.Step, e.Run)
			}
			after = e.Place()
			record(e.Step, e.Run, recordedRun{e.StartedAt, e.Direction, e.Turn})
		}
		if len(page) < perdure.MaxListLimit {
			break
		}
	}
	for _, s := range w.steps(id) {
		if s.RowHasRun() {
			record(s.Name, s.Run, recordedRun{s.StartedAt, s.Direction, s.Turn})
		}
	}
	for _, d := range w.book.dispatched[id] {
		if got := records[d.handle]; len(got) != 1 || got[0] != d.recordedRun {
			w.wrong("I17", "%s/%s: run %d was dispatched as %+v, and is recorded as %+v", short(id), d.step, d.run, d.recordedRun, got)
		}
		delete(records, d.handle)
	}
	for at := range w.book.runs {
		if _, other := records[at]; other {
			w.wrong("I17", "%s/%s: run %d was given to a host, and never dispatched", short(id), at.step, at.run)
			delete(records, at)
		}
	}
	for at := range records {
		if p := w.plan(id); p.Steps[p.Index[at.step]].Form == kernel.ByChildren {
			delete(records, at) // it may have begun and ended in one transaction
		}
	}
	if len(records) > 0 {
		w.wrong("I17", "%s: runs are recorded that were never dispatched: %v", short(id), records)
	}
}
