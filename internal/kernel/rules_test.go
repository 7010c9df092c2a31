package kernel

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// Tests of the rules that are easy to get wrong. Tests with the same number are about the same rule.

const order = "reserve undo; charge undo after reserve reads reserve; ship after charge"

func TestRule01UnsureStepIsUndone(t *testing.T) { // F036 F090
	w := submit(t, order)
	w.run("reserve")
	w.claim("charge")
	w.wait(tick) // not reported: it may have charged
	w.stepIs("charge", "unsure parked")
	w.undo()
	run := w.claim("charge")
	w.require(run.Direction == perdure.Undo && run.Key != run.DoKey, "an undo under the key of its own turn: %+v", run)
	w.report("charge", done)
	w.run("reserve")
	w.jobIs("undone settled")
}

func TestRule01RedoBeforeUndoIsDispatchedKeepsTurn(t *testing.T) {
	w := submit(t, order)
	w.run("reserve")
	first := w.claim("charge")
	w.wait(tick)
	w.undo()
	w.stepIs("charge", "unsure ready")
	w.redo()
	again := w.claim("charge")
	w.require(again.Direction == perdure.Do && again.Key == first.Key && again.Number == 2, "runs under key %s, want %s", again.Key, first.Key)
}

func TestRule01DispatchedUndoIsFinishedFirst(t *testing.T) { // F091
	w := submit(t, order)
	w.run("reserve")
	do := w.claim("charge")
	w.wait(tick)
	w.undo()
	back := w.claim("charge")
	w.redo()
	w.wait(tick) // the undo is unsure too
	w.stepIs("charge", "unsure parked")
	w.resume()
	more := w.claim("charge")
	w.require(more.Direction == perdure.Undo && more.Key == back.Key && more.DoKey == do.Key, "not the same undo: %+v", more)
	w.report("charge", done)
	w.stepIs("charge", "undone ready")
	forth := w.claim("charge")
	w.require(forth.Direction == perdure.Do && forth.Key != do.Key, "the new do has the old key %s", forth.Key)
	w.require(w.step("charge").Failures == 0, "failures of the undo count for the do")
}

func TestRule01LadderIsResetWhenDirectionChanges(t *testing.T) {
	w := submit(t, "a undo attempts 3")
	w.run("a")
	w.undo()
	w.claim("a")
	w.redo()
	w.report("a", failed)
	w.wait(tick)
	w.run("a") // the undo is completed first
	w.stepIs("a", "undone ready")
	w.require(w.step("a").Failures == 0, "%d failures of the undo count for the do", w.step("a").Failures)

	w = submit(t, "a undo")
	for range 3 {
		w.claim("a")
		w.report("a", returned, cutShort)
	}
	w.wait(tick)
	w.claim("a")
	w.undo()
	w.report("a", returned, cutShort)
	w.stepIs("a", "unsure ready")
	w.require(w.step("a").Returns == 0, "%d returns of the do count for the undo", w.step("a").Returns)
}

func TestRule02UndoHasInputOfDo(t *testing.T) {
	w := submit(t, order)
	w.run("reserve")
	do := w.claim("charge")
	w.report("charge", done, output(`{"receipt":7}`))
	w.undo()
	w.stepIs("ship", "undone settled")
	back := w.claim("charge")
	w.require(string(back.Input) == string(do.Input), "input %s, not %s", back.Input, do.Input)
	w.require(string(back.Output) == `{"receipt":7}` && back.DoKey == do.Key, "output %s, doKey %s", back.Output, back.DoKey)
}

func TestRule02OutputOfEarlierTurnIsCleared(t *testing.T) {
	w := submit(t, "a undo")
	w.run("a")
	w.undo()
	w.run("a")
	w.redo()
	w.claim("a")
	w.undo()
	w.wait(tick)
	w.require(string(w.claim("a").Output) == "null", "the undo of turn 3 has the output of turn 1")
}

func TestRule02OutputWithoutReportIsNull(t *testing.T) {
	w := submit(t, order)
	w.claim("reserve")
	w.wait(tick)
	w.undo()
	w.require(string(w.claim("reserve").Output) == "null", "an output that was never reported")
}

func TestRule02UndoInputMayReadOutputAndKeys(t *testing.T) {
	w := submit(t, "charge revert")
	w.run("charge")
	w.undo()
	run := w.claim("charge")
	w.require(string(run.Input) == `"revert output=\"charge's\" key=charge/2 doKey=charge/1"`, "input %s", run.Input)
	w.wait(tick) // a second run in the same turn
	w.resume()
	w.require(string(w.claim("charge").Input) == string(run.Input), "another input in the same turn")
}

func TestRule02UnusedEditIsNotInputOfUndo(t *testing.T) {
	w := submit(t, "charge undo")
	do := w.claim("charge")
	w.wait(tick)
	w.act(perdure.VerbEdit, "charge", input(`"better"`))
	w.undo()
	w.require(string(w.claim("charge").Input) == string(do.Input), "the undo has an input that no do run had")
	w.report("charge", done)
	w.redo()
	w.require(string(w.claim("charge").Input) == `"better"`, "the edit is lost")
	w.report("charge", done)
	w.undo()
	w.require(string(w.claim("charge").Input) == `"better"`, "the undo has another input than the do")
}

func TestRule03OrderHoldsAcrossStepsWithoutUndo(t *testing.T) { // F094 F096
	w := submit(t, "a undo; b after a; c after b undo; d after c undo")
	w.run("a", "b", "c")
	w.undo() // d was never dispatched
	w.stepIs("d", "undone settled")
	w.stepIs("b", "done waiting") // it has no undo, but keeps its place in the order
	w.stepIs("a", "done waiting")
	w.claim("c")
	w.report("c", done)
	w.stepIs("b", "undone settled")
	w.run("a")
	w.jobIs("undone settled")
	w.require(w.step("b").Run == 1 && w.step("d").Run == 0, "a step without undo was dispatched")
}

func TestRule03DispatchedAndSkippedStepIsUndone(t *testing.T) {
	w := submit(t, "a undo or skip; b after a undo when a; c after b")
	w.claim("a")
	w.wait(tick)
	w.stepIs("a", "unsure settled") // skipped by its policy
	w.stepIs("b", "undone settled") // a has no output, so its condition is false
	w.run("c")
	w.jobIs("done settled")
	w.undo()
	w.stepIs("b", "undone settled")
	w.require(w.claim("a").Direction == perdure.Undo, "a is not undone")
	w.report("a", done)
	w.jobIs("undone settled")
	w.require(w.step("b").Run == 0, "b was dispatched")
	w.redo()
	w.require(w.claim("a").Direction == perdure.Do, "the skipped step is not dispatched after the redo")
	w.report("a", done, output(`1`))
	w.stepIs("b", "undone ready") // its condition is evaluated again
}

func TestRule03SkipHoldsUntilRedo(t *testing.T) {
	w := submit(t, "a; b after a undo")
	w.act(perdure.VerbSkip, "b")
	w.act(perdure.VerbSkip, "b") // has no effect
	w.stepIs("b", "undone waiting")
	w.run("a")
	w.jobIs("done settled")
	w.undo()
	w.redo()
	w.run("a")
	w.stepIs("b", "undone ready")
}

// If a job changes direction twice while a step is in flight, earlier skips are cancelled. The run in flight keeps its
// input, because it was dispatched in a valid order, without the skipped step.
func TestRule03RedoCancelsSkipAndKeepsRunInFlight(t *testing.T) {
	w := submit(t, "a; b after a; c after b")
	w.act(perdure.VerbSkip, "a")
	w.claim("b")
	w.undo()
	w.stepIs("a", "undone waiting")
	w.redo()
	w.stepIs("a", "undone ready")
	w.report("b", done)
	w.stepIs("b", "done waiting") // waits for a again
	w.stepIs("c", "undone waiting")
	w.run("a")
	w.stepIs("b", "done settled")
	w.require(w.step("b").Run == 1, "b was dispatched twice")
	w.run("c")
	w.jobIs("done settled")
}

func TestRule04FailureInUnwantedDirectionIsNotCounted(t *testing.T) { // F066
	w := submit(t, "a undo attempts 2 or restart:3")
	w.claim("a")
	w.undo()
	w.report("a", failed)
	w.stepIs("a", "unsure ready") // at once, without backoff
	w.require(w.step("a").Failures == 0 && w.job.Restarts == 0, "the policy of the do was applied: %d failures", w.step("a").Failures)
	w.require(w.history[len(w.history)-1].Event == "failed", "the failure is not in the history")
	w.require(w.claim("a").Direction == perdure.Undo, "it is not undone")
}

func TestRule04SuccessInUnwantedDirectionIsUndone(t *testing.T) { // F066
	w := submit(t, "a undo")
	w.claim("a")
	w.undo()
	beat, _ := w.heartbeat(0, "host", 1)
	w.require(beat.Stop, "the heartbeat does not stop the run")
	w.report("a", done, output(`1`))
	w.stepIs("a", "done ready")
	w.require(string(w.claim("a").Output) == "1", "the undo does not have the output")
}

func TestRule05FlipUnparksAndResetsLadder(t *testing.T) {
	w := submit(t, order)
	w.claim("reserve")
	w.report("reserve", failed)
	w.stepIs("reserve", "unsure parked")
	w.jobIs("unsure parked")
	w.undo()
	w.stepIs("reserve", "unsure ready")
	w.require(len(w.alerts) == 0 && w.step("reserve").Failures == 0, "alerts %v", w.alerts)
	before := w.job
	w.undo() // has no effect
	w.require(w.job == before, "an undo of a job that is being undone changed something")
	w.conflict(w.tryAct(perdure.VerbResume, ""))
	w.claim("reserve")
	w.report("reserve", failed)
	w.act(perdure.VerbResume, "reserve")
	w.require(w.claim("reserve").Direction == perdure.Undo, "resume forgot the direction")
	w.conflict(w.tryAct(perdure.VerbResume, "ship"))
}

func TestRule05FlipClearsBackoff(t *testing.T) {
	w := submit(t, "a undo attempts 9")
	w.claim("a")
	w.report("a", failed, retryAfter(time.Hour))
	w.stepIs("a", "unsure waiting")
	w.require(w.step("a").AvailableAt.Equal(w.now.Add(time.Hour)), "retryAfter is ignored")
	w.undo()
	w.stepIs("a", "unsure ready")
}

func TestRule06LadderOfUndoEndsInPark(t *testing.T) { // F089
	for _, rung := range []string{"undo", "restart:5", "skip", "park"} {
		w := submit(t, "a undo or alert:ops,wait:1,"+rung)
		w.run("a")
		w.undo()
		w.claim("a")
		w.report("a", failed)
		w.require(slices.Equal(w.openAlerts("a"), []perdure.AlertKind{perdure.AlertNamed, perdure.AlertWaiting}), "alerts %v", w.openAlerts("a"))
		w.wait(tick)
		w.claim("a")
		w.report("a", failed)
		w.stepIs("a", "unsure parked")
		w.require(w.job.Desired == perdure.Undone && w.job.Restarts == 0 && !w.step("a").Skipped, "%s acted in an undo", rung)
		w.conflict(w.tryAct(perdure.VerbSkip, "a"))
		w.act(perdure.VerbSettle, "a", as(perdure.Undone))
		w.jobIs("undone settled")
	}
}

func TestRule07ResumeEndsBackoff(t *testing.T) {
	w := submit(t, "within 5m; a attempts 9; b after a")
	w.claim("a")
	w.report("a", failed, retryAfter(time.Hour))
	w.stepIs("a", "unsure waiting")
	deadline := w.job.CompleteBy
	w.now = w.now.Add(time.Second)
	w.act(perdure.VerbResume, "a")
	w.stepIs("a", "unsure ready")
	w.require(w.step("a").Failures == 0, "%d failures: the ladder has not started over", w.step("a").Failures)
	w.require(w.job.CompleteBy.Equal(deadline), "the deadline of a job without a parked step has moved")
	w.require(w.history[len(w.history)-1].Event == "resume", "the act is not in the history")
	w.conflict(w.tryAct(perdure.VerbResume, "a")) // it is ready
	w.conflict(w.tryAct(perdure.VerbResume, "b"))
}

func TestRule07ResumeEndsWaitRung(t *testing.T) {
	w := submit(t, "a or wait:1,park; b attempts 9")
	w.claim("a")
	w.report("a", failed)
	w.claim("b")
	w.report("b", failed, retryAfter(time.Hour))
	w.require(w.step("a").Waits == 1 && w.step("a").AvailableAt.After(w.now), "a does not wait on its rung")
	w.act(perdure.VerbResume, "") // all steps
	w.stepIs("a", "unsure ready")
	w.stepIs("b", "unsure ready")
	w.run("a", "b")
	w.jobIs("done settled")
}

func TestRule07ResumeDoesNotEndOldLock(t *testing.T) {
	w := submit(t, "a undo")
	w.claim("a")
	w.holderDies("a")
	w.undo()
	w.stepIs("a", "unsure waiting") // the dead holder's run may still act
	w.conflict(w.tryAct(perdure.VerbResume, "a"))
	w.conflict(w.tryAct(perdure.VerbResume, ""))
}

func TestRule07OperatorSettlesStep(t *testing.T) { // F045
	w := submit(t, order)
	w.claim("reserve")
	w.conflict(w.tryAct(perdure.VerbSettle, "reserve", as(perdure.Done)))
	w.wait(tick)
	w.act(perdure.VerbSettle, "reserve", as(perdure.Undone)) // not the desired state
	w.stepIs("reserve", "undone ready")
	w.act(perdure.VerbSettle, "reserve", as(perdure.Done), withOutput(`{"id":1}`))
	w.stepIs("reserve", "done settled")
	w.require(strings.Contains(string(w.claim("charge").Input), `{\"id\":1}`), "charge does not see the output")
	w.conflict(w.tryAct(perdure.VerbSettle, "reserve", as(perdure.Undone)))
	w.act(perdure.VerbSettle, "reserve", as(perdure.Done)) // has no effect
	w.refusedAs(w.tryAct(perdure.VerbSettle, "ship", as(perdure.Unsure)), perdure.CodeInvalid)
	w.refusedAs(w.tryAct(perdure.VerbSettle, "ship", as(perdure.Undone), withOutput(`1`)), perdure.CodeInvalid)
}

func TestRule07SettleEndsExpiredRun(t *testing.T) {
	w := submit(t, "a undo; b after a")
	w.claim("a")
	w.now = w.now.Add(tick)
	w.act(perdure.VerbSettle, "a", as(perdure.Done))
	w.stepIs("a", "done settled")
	w.require(w.history[0].Event == "expired", "the expiry is not in the history")
	w.require(w.tryReport("a", 1, done).Reason == protocol.RefusedLate, "a late report")
}

func TestRule07GiveUpClosesJob(t *testing.T) {
	w := submit(t, "a undo; b after a undo; c after a")
	w.run("a")
	w.claim("b")
	w.conflict(w.tryAct(perdure.VerbGiveUp, ""))
	w.wait(tick)
	w.act(perdure.VerbGiveUp, "")
	w.jobIs("unsure settled")
	w.stepIs("b", "unsure settled")
	w.require(w.step("b").GivenUp && !w.step("a").GivenUp && w.job.GivenUpBy == "ann", "not marked")
	w.require(len(w.alerts) == 0, "alerts are open")
	w.conflict(w.tryAct(perdure.VerbSettle, "b", as(perdure.Done)))
	w.conflict(w.tryAct(perdure.VerbResume, ""))
	w.act(perdure.VerbGiveUp, "") // has no effect
	w.redo()                      // reopens the job, although it already desires done
	w.stepIs("b", "unsure ready")
	w.require(!w.step("b").GivenUp && !w.job.GivenUp(), "still marked")
	w.run("b", "c")
	w.jobIs("done settled")
	w.conflict(w.tryAct(perdure.VerbGiveUp, ""))
}

func TestRule08UnparkingClosesAlert(t *testing.T) {
	unpark := map[string]func(w *world){
		"undo":   func(w *world) { w.undo() },
		"resume": func(w *world) { w.resume() },
		"skip":   func(w *world) { w.act(perdure.VerbSkip, "a") },
		"settle": func(w *world) { w.act(perdure.VerbSettle, "a", as(perdure.Done)) },
		"giveUp": func(w *world) { w.act(perdure.VerbGiveUp, "") },
	}
	for name, act := range unpark {
		w := submit(t, "a undo; b")
		w.run("b")
		w.claim("a")
		w.report("a", failed)
		w.require(slices.Equal(w.openAlerts("a"), []perdure.AlertKind{perdure.AlertParked}), "%s: alerts %v", name, w.openAlerts("a"))
		act(w)
		w.require(len(w.alerts) == 0, "%s: alerts %v", name, w.alerts)
	}
}

func TestRule08AlertsOfPolicyUndoCloseWhenJobEnds(t *testing.T) {
	w := submit(t, "onFailure undo; a undo; b after a undo")
	w.run("a")
	w.claim("b")
	w.report("b", failed, noEffect)
	w.require(slices.Equal(w.openAlerts("b"), []perdure.AlertKind{perdure.AlertUndo}), "alerts %v", w.openAlerts("b"))
	w.claim("a")
	w.report("a", failed)
	w.require(slices.Equal(w.openAlerts("a"), []perdure.AlertKind{perdure.AlertParked}) && w.openAlerts("b") == nil, "alerts %v", w.alerts)
	w.resume()
	w.run("a")
	w.jobIs("undone settled")
	w.require(len(w.alerts) == 0, "alerts %v", w.alerts)
}

func TestRule09RestartUndoesAndRedoes(t *testing.T) {
	w := submit(t, "a undo; b after a undo or restart:1")
	w.run("a")
	w.claim("b")
	w.report("b", failed, noEffect)
	w.require(w.job.RestartPending && w.job.Desired == perdure.Undone, "the restart does not undo the job first")
	w.claim("a")
	w.require(!w.job.AtRest(), "parked or settled during the restart")
	w.report("a", done)
	w.jobIs("unsure waiting")
	w.require(w.job.Desired == perdure.Done && !w.job.RestartPending && w.job.HasPermit, "the restart does not redo the job")
	w.run("a")
	w.claim("b")
	w.report("b", failed, noEffect) // the bound holds for the life of the job
	w.stepIs("b", "undone parked")
	w.require(w.job.Restarts == 1, "%d restarts", w.job.Restarts)
}

func TestRule09OverdueRestartIsFinished(t *testing.T) {
	w := submit(t, "within 5s; a undo; b after a or restart:1")
	w.run("a")
	w.claim("b")
	w.report("b", failed)
	w.wait(5 * time.Second)
	w.require(slices.Contains(w.openAlerts(""), perdure.AlertOverdue) && w.job.RestartPending, "alerts %v", w.alerts)
	w.run("a")
	w.stepIs("a", "undone ready") // the redo has begun, and is overdue
	w.cannotClaim("a")
	w.dueScan()
	w.stepIs("a", "undone parked")

	w = submit(t, "onFailure restart:1,undo; within 5s; a undo; b after a")
	w.run("a")
	w.claim("b")
	w.report("b", failed)
	w.wait(5 * time.Second)
	w.require(!w.job.RestartPending, "a restart past the deadline is still to be redone, although onFailure has undo")
	w.run("a")
	w.jobIs("undone settled")
}

func TestRule09OperatorFlipCancelsRestart(t *testing.T) {
	for _, verb := range []perdure.Verb{perdure.VerbUndo, perdure.VerbRedo} {
		w := submit(t, "a undo; b after a undo or restart:1")
		w.run("a")
		w.claim("b")
		w.report("b", failed)
		w.act(verb, "")
		w.require(!w.job.RestartPending, "the restart continues after %s", verb)
	}
}

func TestRule10DeadlineParksJob(t *testing.T) {
	w := submit(t, "within 15s; a undo; b after a undo; c")
	w.run("a")
	w.wait(tick)
	run := w.claim("b")
	w.require(run.CompleteBy.Equal(startTime.Add(15*time.Second)), "deadline of the run is %s", run.CompleteBy)
	w.wait(5 * time.Second)
	w.jobIs("unsure parked")
	w.require(slices.Contains(w.openAlerts(""), perdure.AlertParked), "no alert of the job: %v", w.alerts)
	w.wait(time.Hour) // the deadline does not move while the job is parked
	w.act(perdure.VerbResume, "b")
	w.require(w.job.CompleteBy.Equal(w.now.Add(15*time.Second)), "deadline after resume is %s", w.job.CompleteBy)
	w.stepIs("c", "undone parked")
	w.act(perdure.VerbResume, "c")
	w.require(len(w.alerts) == 0, "alerts %v", w.alerts)
	w.run("b", "c")
	w.jobIs("done settled")
}

func TestRule10DeadlineAppliesToPolicyAndUndo(t *testing.T) {
	w := submit(t, "onFailure undo; within 15s; a undo; b after a undo")
	w.run("a")
	w.wait(15 * time.Second)
	w.require(w.job.Desired == perdure.Undone, "onFailure is undo")
	w = submit(t, "within 15s; a undo")
	w.run("a")
	w.redo()
	w.undo() // the job was done in time, so its undo has no deadline
	w.require(w.job.CompleteBy.IsZero(), "a deadline for the undo of a finished job")
	w = submit(t, "within 15s; a undo; b after a")
	w.run("a")
	w.undo()
	w.wait(15 * time.Second)
	w.require(slices.Equal(w.openAlerts(""), []perdure.AlertKind{perdure.AlertOverdue}), "alerts %v", w.alerts)
	w.run("a")
	w.jobIs("undone settled")
}

func TestRule10NothingIsDispatchedPastTheDeadline(t *testing.T) {
	w := submit(t, "within 15s; a undo")
	w.now = w.now.Add(15 * time.Second)
	w.cannotClaim("a")
	w.dueScan()
	w.stepIs("a", "undone parked")
}

func TestRule10UnfinishedUndoIsParkedAtDeadline(t *testing.T) {
	w := submit(t, "within 5s; a undo")
	w.run("a")
	w.undo()
	w.claim("a")
	w.redo()
	w.wait(5 * time.Second) // the job's deadline has passed, the run's has not
	w.report("a", returned, cutShort)
	w.stepIs("a", "unsure parked") // not ready for ever
	w.resume()
	w.run("a", "a")
	w.jobIs("done settled")
}

func TestRule10DeadlineStopsWhileParkedAgain(t *testing.T) {
	w := submit(t, "within 30s; a undo; b after a when a undo")
	w.claim("a")
	w.report("a", done, output(`"bad"`))
	w.stepIs("b", "undone parked") // its condition fails
	w.wait(time.Hour)
	w.resume() // and its condition fails again, within the same event
	w.stepIs("b", "undone parked")
	w.wait(time.Hour)
	w.undo()
	w.require(w.job.CompleteBy.Equal(w.now.Add(30*time.Second)), "the deadline moved while the job was parked: %s left", w.job.CompleteBy.Sub(w.now))
}

func TestRule11PermitsOfJobsAndAgentsAreReleased(t *testing.T) { // F029 F134 F135
	w := submit(t, "a undo; b after a")
	w.limits.Add(Limit{Name: JobLimit("order"), Max: 1, PerKey: Unbounded, Taken: Taken{Used: 1}})
	w.cannotClaim("a")
	w.limits.limits[JobLimit("order")].Used = 0
	w.claim("a")
	w.require(w.job.HasPermit && w.limits.limits[JobLimit("order")].Used == 1, "no permit is taken")
	w.limits.limits[JobLimit("order")].Max = 0 // a lower limit does not end runs
	w.report("a", returned)
	w.claim("a") // uses the permit that the job holds
	w.require(w.limits.limits[JobLimit("order")].Used == 1, "a second permit is taken")
	w.report("a", failed)
	w.require(!w.job.HasPermit, "a parked job holds a permit")
	w.undo()
	w.cannotClaim("a") // needs a permit in either direction
	w.limits.limits[JobLimit("order")].Max = 2
	w.limits.Add(Limit{Name: AgentLimit("ag"), Max: 1, PerKey: Unbounded, Taken: Taken{Used: 1}})
	w.cannotClaim("a")
	w.limits.limits[AgentLimit("ag")].Used = 0
	w.claim("a")
	w.report("a", failed)
	w.act(perdure.VerbSettle, "a", as(perdure.Undone))
	w.require(!w.job.HasPermit, "a settled job holds a permit")
}

func TestRule12ExpressionErrorCountsAsRejected(t *testing.T) { // F032
	w := submit(t, "a undo; b after a reads a attempts 5 or wait:3,alert:ops,park; c after b")
	w.claim("a")
	w.report("a", done, output(`"bad"`))
	w.cannotClaim("b")
	w.stepIs("b", "undone parked") // retry and wait do not apply
	s := w.step("b")
	w.require(s.Run == 0 && s.Failures == 1 && s.ErrorCode == "expression", "run %d, %d failures, code %s", s.Run, s.Failures, s.ErrorCode)
	w.require(slices.Equal(w.openAlerts("b"), []perdure.AlertKind{perdure.AlertNamed, perdure.AlertParked}), "alerts %v", w.openAlerts("b"))
}

func TestRule12SeveralConditionErrorsCauseOneRestart(t *testing.T) {
	w := submit(t, "onFailure restart:3; a undo; b after a when a; c after a when a; d after a when a")
	w.claim("a")
	w.report("a", done, output(`"bad"`))
	w.require(w.job.Restarts == 1 && len(w.alerts) == 1, "%d restarts for one event, alerts %v", w.job.Restarts, w.alerts)
}

func TestRule13SleepAndApprovalAreNeverDispatched(t *testing.T) {
	w := submit(t, "s sleep; p after s approval; a after p undo")
	w.jobIs("undone waiting")
	w.conflict(w.tryAct(perdure.VerbSettle, "s", as(perdure.Undone)))
	w.conflict(w.tryAct(perdure.VerbResume, "s")) // it does not wait for a retry
	w.conflict(w.tryAct(perdure.VerbResume, ""))
	w.cannotClaim("s")
	w.wait(tick)
	w.stepIs("s", "done settled")
	w.stepIs("p", "undone waiting")
	w.jobIs("undone parked") // only an operator can move it
	w.require(slices.Equal(w.openAlerts("p"), []perdure.AlertKind{perdure.AlertApproval}), "alerts %v", w.alerts)
	w.conflict(w.tryAct(perdure.VerbSettle, "p", as(perdure.Undone))) // not a rejection: that is an undo of the job
	w.require(slices.Equal(w.openAlerts("p"), []perdure.AlertKind{perdure.AlertApproval}), "alerts %v", w.alerts)
	w.act(perdure.VerbSettle, "p", as(perdure.Done))
	w.require(len(w.alerts) == 0, "alerts %v", w.alerts)
	w.run("a")
	w.undo()
	w.run("a")
	w.jobIs("undone settled")
	w.require(w.step("s").Run == 0 && w.step("p").Run == 0, "a rule was dispatched")
}

func TestRule13ApprovalExpires(t *testing.T) {
	w := submit(t, "p approval lasts or undo")
	w.jobIs("undone waiting")
	w.wait(tick)
	w.jobIs("undone settled")
	w.require(w.job.Desired == perdure.Undone && len(w.alerts) == 0, "alerts %v", w.alerts)
}

func TestRule13ParkedSleepKeepsItsTime(t *testing.T) {
	w := submit(t, "within 4s; s sleep; p approval lasts")
	w.wait(4 * time.Second)
	w.stepIs("s", "undone parked")
	w.stepIs("p", "undone parked")
	w.require(slices.Equal(w.openAlerts(""), []perdure.AlertKind{perdure.AlertParked}) && w.openAlerts("p") == nil, "alerts %v", w.alerts)
	w.wait(time.Second)
	w.resume()
	w.stepIs("s", "undone waiting")
	w.require(w.step("s").AvailableAt.Equal(startTime.Add(tick)), "until %s", w.step("s").AvailableAt)
	w.require(w.step("p").AvailableAt.Equal(w.now.Add(tick)), "approval until %s", w.step("p").AvailableAt)
	w.require(slices.Equal(w.openAlerts("p"), []perdure.AlertKind{perdure.AlertApproval}) && w.openAlerts("") == nil, "alerts %v", w.alerts)
}

func TestRule14EditReplacesInputOrKey(t *testing.T) {
	w := submit(t, "a undo")
	first := w.claim("a")
	w.conflict(w.tryAct(perdure.VerbEdit, "a", input(`1`)))
	w.report("a", failed)
	w.act(perdure.VerbResume, "a", input(`"mended"`))
	second := w.claim("a")
	w.require(second.Key == first.Key && string(second.Input) == `"mended"`, "%+v", second)
	w.report("a", failed)
	w.act(perdure.VerbEdit, "a", newKey)
	w.stepIs("a", "undone parked")
	w.require(w.step("a").Turn == 2, "turn %d", w.step("a").Turn)
	w.resume()
	third := w.claim("a")
	w.require(third.Key != first.Key && third.Number == 3 && string(third.Input) == `"mended"`, "%+v", third)
	w.report("a", done)
	w.undo()
	back := w.claim("a")
	w.require(back.DoKey == third.Key, "undoes %s", back.DoKey)
	w.report("a", failed)
	w.conflict(w.tryAct(perdure.VerbEdit, "a", newKey)) // an undo keeps the key of its turn
	w.refusedAs(w.tryAct(perdure.VerbEdit, "a", input(``)), perdure.CodeInvalid)
	w.refusedAs(w.tryAct(perdure.VerbResume, "a", input(``)), perdure.CodeInvalid)
	w.act(perdure.VerbEdit, "a", input(`"gently"`))
	w.resume()
	w.require(string(w.claim("a").Input) == `"gently"`, "the undo cannot be edited")
}

// After an undo, the next do run has a new key in any case. Asking for one does not change the key of the undo.
func TestRule14NewKeyAfterAnUndo(t *testing.T) {
	w := submit(t, "a undo; b after a undo")
	w.claim("a")
	w.report("a", done)
	w.claim("b")
	w.report("b", failed)
	w.undo()
	undone := w.claim("b")
	w.report("b", done)
	w.redo()
	w.act(perdure.VerbEdit, "b", newKey)
	w.require(w.step("b").Key() == undone.Key, "the key of the undo is %s, and was %s", w.step("b").Key(), undone.Key)
	w.require(strings.Contains(w.history[len(w.history)-1].Detail, "new key "+w.step("b").path(3)), "%+v", w.history[len(w.history)-1])
	w.require(w.claim("b").Key == w.step("b").path(3), "the key is %s", w.step("b").Key())
}

func TestRule15CrashCountsAsFailureAndDrainDoesNot(t *testing.T) { // F049
	w := submit(t, "a undo attempts 2")
	w.claim("a")
	w.holderDies("a")
	w.require(w.step("a").Failures == 1, "a crash counts as %d", w.step("a").Failures)
	w.stepIs("a", "unsure waiting")
	w.wait(tick)
	w.claim("a")
	w.report("a", returned, cutShort)
	w.require(w.step("a").Failures == 1, "a drain counts")
	w.stepIs("a", "unsure ready")
	w.claim("a")
	w.holderDies("a")
	w.stepIs("a", "unsure parked")
}

func TestReturnedRunsBackOffFromTheThirdOn(t *testing.T) {
	w := submit(t, "a undo")
	for range 2 {
		w.claim("a")
		w.report("a", returned)
		w.stepIs("a", "undone ready")
	}
	w.claim("a")
	w.report("a", returned)
	w.stepIs("a", "undone waiting")
	w.require(w.step("a").Failures == 0 && w.step("a").Returns == 3, "failures are counted")
	w.undo() // it never started, so there is nothing to undo
	w.jobIs("undone settled")
}

func TestDeadHolderOldLockDelaysOtherDirection(t *testing.T) { // F091: a run in the other direction waits until the old lock ends
	w := submit(t, "a undo attempts 3")
	w.claim("a")
	w.holderDies("a")
	w.undo()
	w.stepIs("a", "unsure waiting")
	w.require(w.step("a").AvailableAt.Equal(startTime.Add(tick)), "until %s", w.step("a").AvailableAt)
	w.wait(tick)
	w.stepIs("a", "unsure ready")

	w = submit(t, "a undo")
	w.claim("a")
	w.holderDies("a")
	w.conflict(w.tryAct(perdure.VerbEdit, "a", newKey)) // the old run may still act under the old key
	w.resume()
	w.claimWithHeartbeat("a", tick/5) // a run in the same direction starts at once, but the old lock is kept
	w.wait(time.Second)
	w.report("a", done)
	w.undo()
	w.stepIs("a", "done waiting")
	w.wait(tick - time.Second)
	w.stepIs("a", "done ready")
}

func TestHeartbeatAfterLockEndIsRefused(t *testing.T) { // F042 F043
	w := submit(t, "a undo")
	run := w.claimWithHeartbeat("a", tick/2)
	w.require(run.LockedUntil.Equal(startTime.Add(tick/2)) && run.CompleteBy.Equal(startTime.Add(tick)), "%+v", run)
	w.now = w.now.Add(4 * time.Second)
	res, _ := w.heartbeat(0, "host", 1)
	w.require(!res.Stop && res.LockedUntil.Equal(startTime.Add(9*time.Second)), "%+v", res)
	w.now = w.now.Add(4 * time.Second)
	res, _ = w.heartbeat(0, "host", 1)
	w.require(res.LockedUntil.Equal(run.CompleteBy), "past the deadline: %+v", res)
	w.now = w.now.Add(2 * time.Second)
	res, _ = w.heartbeat(0, "host", 1)
	w.require(res.Stop && res.Reason == string(protocol.RefusedLate), "%+v", res)
}

func TestRepeatedClaimReturnsValidRun(t *testing.T) { // F019
	w := submit(t, "a undo; b after a reads a")
	w.run("a")
	req := protocol.Claim{Agent: "ag", Holder: "host", RequestID: "r1"}
	run, _ := w.claimAs(1, req)
	again := func(req protocol.Claim) (got *perdure.Run) {
		w.event(func(ws *Workset) {
			refs := ws.ClaimRefs(w.ref(1))
			ws.AddPayloads(refs, w.payloads(refs))
			var err error
			got, err = ws.RepeatedClaim(w.ref(1), &req)
			must(t, err)
		})
		return got
	}
	w.now = w.now.Add(time.Second)
	got := again(req)
	w.require(got != nil && got.Key == run.Key && got.Number == run.Number && string(got.Input) == string(run.Input) &&
		got.RemainingMs == run.RemainingMs-1000, "%+v, not %+v", got, run)
	w.require(again(protocol.Claim{Agent: "ag", Holder: "host", RequestID: "r2"}) == nil, "another request gets the run")
	w.report("b", done)
	w.require(again(req) == nil, "a reported run is returned")
}

func TestRetriesEndAndDoNotStartEarly(t *testing.T) { // F085
	w := submit(t, "a undo attempts 4")
	for n, backoff := range []time.Duration{tick, 2 * tick, 4 * tick} {
		w.claim("a")
		w.report("a", failed)
		w.require(w.step("a").AvailableAt.Equal(w.now.Add(backoff)), "attempt %d waits %s", n+2, w.step("a").AvailableAt.Sub(w.now))
		w.wait(backoff)
	}
	w.claim("a")
	w.report("a", failed, code("NO"))
	w.stepIs("a", "unsure parked")
}

// A transaction applies many events to one workset. A later event sees what an earlier one changed, whether the values
// were loaded before or after it, and whether or not Changes was called in between.
func TestManyEventsInOneWorkset(t *testing.T) {
	for _, taken := range []bool{false, true} {
		for _, loadedFirst := range []bool{false, true} {
			w := submit(t, "a undo; b after a undo reads a")
			w.claim("a")
			ws := NewWorkset(w.now, func() float64 { return 1 })
			job := *w.job
			ws.AddJob(&job, w.plan)
			ws.AddWhole(job.ID, w.load(w.all()...))
			load := func() { ws.AddPayloads(w.all(), w.payloads(w.all())) }
			take := func() {
				if taken {
					w.write(ws.Changes())
				}
			}
			if loadedFirst {
				load()
			}
			report := func(i int, run int64, out string) {
				res := ws.Report(w.ref(i), "host", &protocol.Report{Run: run, Outcome: perdure.OutcomeDone, Output: []byte(out)})
				w.require(res.Accepted && ws.Missing().Empty(), "%+v, missing %+v", res, ws.Missing())
			}
			claim := func(i int) *perdure.Run {
				run, err := ws.Claim(w.ref(i), &protocol.Claim{Agent: "ag", Holder: "host"}, &Admission{}, perdure.MaxAnswerBytes)
				must(t, err)
				return run
			}
			report(0, 1, `1`)
			load() // the stored value is older
			take()
			do := claim(1)
			w.require(string(do.Input) == `"b a=1"`, "input %s", do.Input)
			take()
			report(1, 1, `2`)
			take()
			must(t, ws.Act(job.ID, -1, &perdure.Act{Verb: perdure.VerbUndo, Author: "ann"}))
			take()
			back := claim(1)
			w.require(string(back.Input) == `"b a=1"` && string(back.Output) == `2`, "taken %v, loaded %v: %+v", taken, loadedFirst, back)
			w.write(ws.Changes())
			w.compare(ws)
			w.logEvent(&Changes{}, "all events")
		}
	}
}

// failingCondition is a condition that cannot be evaluated.
type failingCondition struct{}

func (failingCondition) Refs() []int               { return nil }
func (failingCondition) Eval(*Scope) (bool, error) { return false, errors.New("bad") }

// A job that is undone within the event that submitted or redid it is settled like any other: its alerts are closed, and
// SettledAt is set.
func TestRule09FlipAndSettleInOneEvent(t *testing.T) { // I11
	w := newWorld(t, "onFailure undo; a")
	w.plan.Steps[0].Test = failingCondition{}
	w.submitPlan()
	for _, act := range []string{"the submission", "a redo"} {
		if w.job.Phase != perdure.Settled || w.job.Current != perdure.Undone || w.job.SettledAt != w.now || len(w.alerts) > 0 {
			t.Errorf("after %s: %s as %s at %s, open alerts %+v", act, w.job.Phase, w.job.Current, w.job.SettledAt, w.alerts)
		}
		for _, f := range CheckJob(w.job, w.plan, w.steps, w.alerts, w.now) {
			t.Errorf("after %s: %+v", act, f)
		}
		w.now = w.now.Add(tick)
		if _, err := w.actAs(perdure.Act{Verb: perdure.VerbRedo}); err != nil {
			t.Fatal(err)
		}
	}
}

// A job that is undone or redone after it has settled keeps when that began. Until it first settles, it was never reopened,
// whatever its operators and its policy do.
func TestJobKeepsWhenItWasReopened(t *testing.T) {
	w := submit(t, "onFailure restart:1 undo; a undo")
	reopened := func(want time.Time) {
		t.Helper()
		w.require(w.job.ReopenedAt.Equal(want), "reopened at %v, want %v", w.job.ReopenedAt, want)
	}
	w.claim("a")
	w.report("a", failed) // a restart
	w.jobIs("unsure waiting")
	w.run("a") // undone
	w.claim("a")
	w.undo() // before it has settled
	w.redo()
	w.report("a", done)
	w.jobIs("done settled")
	reopened(time.Time{})
	w.now = w.now.Add(time.Hour)
	w.undo()
	begin := w.now
	reopened(begin)
	w.claim("a")
	w.now = w.now.Add(time.Second)
	w.redo() // it has not settled since
	reopened(begin)
	w.report("a", done)
	w.run("a")
	w.jobIs("done settled")
	reopened(begin)
	w.now = w.now.Add(time.Hour)
	w.undo()
	reopened(w.now)
}
