package kernel

import (
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// runEntries returns the entries of the history that record runs of a step.
func (w *world) runEntries(step string) (runs []Entry) {
	for _, e := range w.history {
		if e.Step == step && e.IsRun() {
			runs = append(runs, e)
		}
	}
	return runs
}

// A run that has succeeded is recorded when the next run of its step is dispatched, with its own times, direction and
// turn. A step that succeeds at once has no entry (I17).
func TestDoneRunIsRecordedWhenItsStepIsDispatchedAgain(t *testing.T) {
	w := submit(t, "a undo; b after a undo")
	readyAt := w.now
	w.wait(time.Second)
	w.claim("a")
	started := w.now
	w.wait(time.Second)
	w.report("a", done)
	ended := w.now
	w.run("b")
	w.require(len(w.history) == 0, "a job that succeeds has entries: %+v", w.history)
	w.wait(time.Second)
	w.undo()
	w.run("b")
	w.require(len(w.runEntries("a")) == 0, "run 1 of a is recorded before its undo is dispatched: %+v", w.history)
	w.claim("a")
	got := w.runEntries("a")
	want := Entry{Job: w.job.ID, Step: "a", Run: 1, At: ended, Event: "done", Turn: 1, Direction: perdure.Do, StartedAt: started}
	w.require(len(got) == 1 && got[0] == want, "\n got %+v\nwant %+v", got, want)
	w.require(w.step("a").StartedAt.Equal(w.now) && !readyAt.After(started), "the undo has the start of the do run")
	w.report("a", done)
	w.redo()
	w.run("a")
	got = w.runEntries("a")
	w.require(len(got) == 2 && got[1].Direction == perdure.Undo && got[1].Turn == 2 && got[1].Event == "done", "%+v", got)
	w.checkRecords()
}

// The entry of a failed run has the times, direction and turn of the run. A rejection without a run has none of them
// (I17).
func TestFailedRunIsRecordedWithItsStart(t *testing.T) {
	w := submit(t, "a undo attempts 2")
	ready := w.now
	w.wait(time.Second)
	w.claim("a")
	started := w.now
	w.wait(time.Second)
	w.report("a", failed)
	got := w.runEntries("a")
	w.require(len(got) == 1, "%+v", w.history)
	e := got[0]
	w.require(e.StartedAt.Equal(started) && e.ReadyAt.Equal(ready) && e.At.Equal(w.now) && e.Turn == 1 && e.Direction == perdure.Do && e.Author == "host", "%+v", e)
	w.wait(tick)
	w.claim("a")
	w.holderDies("a")
	w.checkRecords()
}

// An act that sets the end or the turn of a step does not change the record of a run that has succeeded (I17).
func TestDoneRunIsRecordedBeforeAnActChangesItsStep(t *testing.T) {
	w := submit(t, "a revert; b after a undo")
	w.run("a")
	ended := w.step("a").EndedAt
	w.claim("b")
	w.undo()
	w.wait(time.Second)
	w.act(perdure.VerbSettle, "a", as(perdure.Undone))
	got := w.runEntries("a")
	w.require(len(got) == 1 && got[0].At.Equal(ended) && got[0].Direction == perdure.Do, "%+v", got)
	w.checkRecords()
}
