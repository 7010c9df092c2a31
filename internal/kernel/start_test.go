package kernel

import (
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// A job that starts later waits without a permit, and no run of it is dispatched before its time (F300).
func TestJobWaitsForItsStart(t *testing.T) {
	w := submit(t, "startIn 30s; within 1m; a; b after a; s sleep")
	w.require(w.job.StartAt.Equal(startTime.Add(30*time.Second)) && w.job.CompleteBy.Equal(startTime.Add(90*time.Second)), "starts at %s, and must end by %s", w.job.StartAt, w.job.CompleteBy)
	w.require(w.job.Phase == perdure.Waiting && !w.job.HasPermit, "it is %s, permit: %v", w.job.Phase, w.job.HasPermit)
	w.now = startTime.Add(30*time.Second - time.Microsecond)
	w.dueScan()
	w.cannotClaim("a")
	r := Why(w.job, w.step("s"), w.plan, func(int) bool { return true }, &Facts{Now: startTime})
	w.require(r.Kind == perdure.WhyNotYet && r.Text == "the job starts in 30s; to start it now: resume", "the reason is %+v", r)
	w.now = startTime.Add(30 * time.Second)
	w.dueScan()
	w.require(!w.step("s").StartedAt.IsZero() && w.step("s").AvailableAt.Equal(startTime.Add(40*time.Second)), "sleeps until %s", w.step("s").AvailableAt)
	w.run("a", "b")
	w.wait(tick)
	w.jobIs("done settled")
}

// A start that has passed delays nothing.
func TestStartInThePastDelaysNothing(t *testing.T) {
	w := newWorld(t, "startWithin 10s; a")
	w.plan.Definition.StartAt = startTime
	w.submitPlan()
	w.require(w.job.StartBy.Equal(startTime.Add(10*time.Second)), "must start by %s", w.job.StartBy)
	w.run("a")
	w.jobIs("done settled")
}

// An undo before the start settles the job at once, and nothing was dispatched.
func TestUndoBeforeTheStartSettlesAtOnce(t *testing.T) {
	w := submit(t, "startIn 30s; a undo; b after a undo; p after b approval")
	w.undo()
	w.jobIs("undone settled")
	w.require(w.step("a").Run == 0 && w.step("b").Run == 0, "a run was dispatched")
	w.wait(time.Minute)
	w.jobIs("undone settled")
	w.redo() // its time has passed
	w.run("a")
}

// Resume starts a job before its time.
func TestResumeStartsAJobEarlier(t *testing.T) {
	w := submit(t, "startIn 30s; startWithin 10s; a; b")
	w.resume()
	w.require(w.job.StartBy.IsZero(), "must still start by %s", w.job.StartBy)
	w.run("a", "b")
	w.jobIs("done settled")
}

// A job of which no run is dispatched in time is undone, or what its ladder says: no run is dispatched at that instant or
// later (F301).
func TestJobThatStartsTooLate(t *testing.T) {
	for _, c := range []struct {
		onFailure, phase string
		alerts           []perdure.AlertKind
	}{
		{"", "undone settled", nil},
		{"onFailure undo; ", "undone settled", nil},
		{"onFailure wait:5,skip,restart:3,undo; ", "undone settled", nil},
		{"onFailure park; ", "undone parked", []perdure.AlertKind{perdure.AlertParked}},
		{"onFailure alert:late; ", "undone parked", []perdure.AlertKind{perdure.AlertNamed, perdure.AlertParked}},
		{"onFailure skip; ", "undone parked", []perdure.AlertKind{perdure.AlertParked}},
	} {
		w := submit(t, c.onFailure+"startWithin 30s; a; b after a")
		w.now = startTime.Add(30*time.Second - time.Microsecond)
		w.dueScan()
		w.require(w.job.Phase == perdure.Waiting, "%q: acted on too early", c.onFailure)
		w.now = startTime.Add(30 * time.Second)
		w.cannotClaim("a")
		w.dueScan()
		w.jobIs(c.phase)
		w.require(w.step("a").ErrorCode == "startedTooLate" && w.step("b").ErrorCode == "", "%q: the codes are %q and %q", c.onFailure, w.step("a").ErrorCode, w.step("b").ErrorCode)
		w.require(len(w.alerts) == len(c.alerts), "%q: the alerts are %+v", c.onFailure, w.alerts)
		for i, kind := range c.alerts {
			w.require(w.alerts[i].Kind == kind, "%q: alert %+v, want %s", c.onFailure, w.alerts[i], kind)
		}
	}
}

// A restart gives no more time to start: seed 2179 of the simulation dispatched a run after it (F301).
func TestRestartGivesNoMoreTimeToStart(t *testing.T) {
	w := submit(t, "startWithin 15s; p approval lasts or restart:9; a after p")
	w.wait(tick)
	w.require(w.job.Restarts == 1, "restarted %d times", w.job.Restarts)
	w.require(w.job.StartBy.Equal(startTime.Add(15*time.Second)), "must start by %s", w.job.StartBy)
	w.now = startTime.Add(15 * time.Second)
	w.dueScan()
	w.jobIs("undone settled")
	w.require(w.step("p").ErrorCode == "startedTooLate", "the code is %q", w.step("p").ErrorCode)
}

// A job whose first run was dispatched in time has started, whatever becomes of the run.
func TestAJobWithARunHasStarted(t *testing.T) {
	w := submit(t, "startWithin 30s; a attempts 2")
	w.wait(30*time.Second - time.Microsecond)
	w.claim("a")
	w.report("a", failed, noEffect)
	w.wait(time.Minute)
	w.stepIs("a", "undone ready")
	w.run("a")
	w.jobIs("done settled")
}
