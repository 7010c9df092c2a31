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

// The rules of design.md, section 1, that are easy to get wrong: one test or more for each, under its number.

const order = "reserve undo; charge undo after reserve reads reserve; ship after charge"

func TestRule01UnsureIsUndoneLikeDone(t *testing.T) { // F036 F090
	w := submit(t, order)
	w.run("reserve")
	w.claim("charge")
	w.wait(tick) // nobody answered: it may have charged
	w.is("charge", "unsure parked")
	w.undo()
	run := w.claim("charge")
	w.that(run.Direction == perdure.Undo && run.Key != run.DoKey, "an undo under the key of its own turn: %+v", run)
	w.report("charge", done)
	w.run("reserve")
	w.jobIs("undone settled")
}

func TestRule01ARedoBeforeTheUndoWasLetOutIsTheOldTurn(t *testing.T) {
	w := submit(t, order)
	w.run("reserve")
	first := w.claim("charge")
	w.wait(tick)
	w.undo()
	w.is("charge", "unsure ready")
	w.redo()
	again := w.claim("charge")
	w.that(again.Direction == perdure.Do && again.Key == first.Key && again.Number == 2, "it acts under key %s after %s", again.Key, first.Key)
}

func TestRule01AnUndoThatWasLetOutIsFinishedFirst(t *testing.T) { // F091
	w := submit(t, order)
	w.run("reserve")
	do := w.claim("charge")
	w.wait(tick)
	w.undo()
	back := w.claim("charge")
	w.redo()
	w.wait(tick) // the undo is unsure, too
	w.is("charge", "unsure parked")
	w.resume()
	more := w.claim("charge")
	w.that(more.Direction == perdure.Undo && more.Key == back.Key && more.DoKey == do.Key, "not the same undo: %+v", more)
	w.report("charge", done)
	w.is("charge", "undone ready")
	forth := w.claim("charge")
	w.that(forth.Direction == perdure.Do && forth.Key != do.Key, "done again under the key %s", forth.Key)
	w.that(w.step("charge").Failures == 0, "the ladder of the undo goes on in the do")
}

func TestRule01TheLadderStartsOverWhenItTurns(t *testing.T) {
	w := submit(t, "a undo attempts 3")
	w.run("a")
	w.undo()
	w.claim("a")
	w.redo()
	w.report("a", failed)
	w.wait(tick)
	w.run("a") // the undo is finished first
	w.is("a", "undone ready")
	w.that(w.step("a").Failures == 0, "%d failures of the undo count for the do", w.step("a").Failures)

	w = submit(t, "a undo")
	for range 3 {
		w.claim("a")
		w.report("a", returned, cutShort)
	}
	w.wait(tick)
	w.claim("a")
	w.undo()
	w.report("a", returned, cutShort)
	w.is("a", "unsure ready")
	w.that(w.step("a").Returns == 0, "%d returns of the do count for the undo", w.step("a").Returns)
}

func TestRule02AnUndoCarriesWhatTheDoHad(t *testing.T) {
	w := submit(t, order)
	w.run("reserve")
	do := w.claim("charge")
	w.report("charge", done, output(`{"receipt":7}`))
	w.undo()
	w.is("ship", "undone settled")
	back := w.claim("charge")
	w.that(string(back.Input) == string(do.Input), "input %s, not %s", back.Input, do.Input)
	w.that(string(back.Output) == `{"receipt":7}` && back.DoKey == do.Key, "output %s, doKey %s", back.Output, back.DoKey)
}

func TestRule02TheOutputOfAnEarlierTurnIsForgotten(t *testing.T) {
	w := submit(t, "a undo")
	w.run("a")
	w.undo()
	w.run("a")
	w.redo()
	w.claim("a")
	w.undo()
	w.wait(tick)
	w.that(string(w.claim("a").Output) == "null", "the undo of turn 3 is handed the output of turn 1")
}

func TestRule02TheOutputOfWhatWasNeverAnsweredIsNull(t *testing.T) {
	w := submit(t, order)
	w.claim("reserve")
	w.wait(tick)
	w.undo()
	w.that(string(w.claim("reserve").Output) == "null", "an output from nowhere")
}

func TestRule02AnInputOfItsOwnSeesOutputAndKeys(t *testing.T) {
	w := submit(t, "charge revert")
	w.run("charge")
	w.undo()
	run := w.claim("charge")
	w.that(string(run.Input) == `"revert output=\"charge's\" key=charge/2 doKey=charge/1"`, "input %s", run.Input)
	w.wait(tick) // and again, in the same turn
	w.resume()
	w.that(string(w.claim("charge").Input) == string(run.Input), "another input in the same turn")
}

func TestRule02AnEditThatNoRunHadIsNotUndone(t *testing.T) {
	w := submit(t, "charge undo")
	do := w.claim("charge")
	w.wait(tick)
	w.act(perdure.VerbEdit, "charge", input(`"better"`))
	w.undo()
	w.that(string(w.claim("charge").Input) == string(do.Input), "the undo carries what no do run had")
	w.report("charge", done)
	w.redo()
	w.that(string(w.claim("charge").Input) == `"better"`, "the edit is lost")
	w.report("charge", done)
	w.undo()
	w.that(string(w.claim("charge").Input) == `"better"`, "the undo carries another input than the do had")
}

func TestRule03OrderPassesThroughWhatHasNothingToDo(t *testing.T) { // F094 F096
	w := submit(t, "a undo; b after a; c after b undo; d after c undo")
	w.run("a", "b", "c")
	w.undo() // d was never dispatched
	w.is("d", "undone settled")
	w.is("b", "done waiting") // no undo, and still it takes its turn
	w.is("a", "done waiting")
	w.claim("c")
	w.report("c", done)
	w.is("b", "undone settled")
	w.run("a")
	w.jobIs("undone settled")
	w.that(w.step("b").Run == 1 && w.step("d").Run == 0, "something was undone that had nothing to undo")
}

func TestRule03WhatWasLetOutAndThenSkippedIsUndone(t *testing.T) {
	w := submit(t, "a undo or skip; b after a undo when a; c after b")
	w.claim("a")
	w.wait(tick)
	w.is("a", "unsure settled") // skipped by its policy
	w.is("b", "undone settled") // a has no output: its when is false
	w.run("c")
	w.jobIs("done settled")
	w.undo()
	w.is("b", "undone settled")
	w.that(w.claim("a").Direction == perdure.Undo, "a is not undone")
	w.report("a", done)
	w.jobIs("undone settled")
	w.that(w.step("b").Run == 0, "b was dispatched")
	w.redo()
	w.that(w.claim("a").Direction == perdure.Do, "what was skipped once is not tried again")
	w.report("a", done, output(`1`))
	w.is("b", "undone ready") // its when is asked again
}

func TestRule03ASkipHoldsUntilTheJobIsDoneAgain(t *testing.T) {
	w := submit(t, "a; b after a undo")
	w.act(perdure.VerbSkip, "b")
	w.act(perdure.VerbSkip, "b") // it is so already
	w.is("b", "undone waiting")
	w.run("a")
	w.jobIs("done settled")
	w.undo()
	w.redo()
	w.run("a")
	w.is("b", "undone ready")
}

// A job that turns twice while a step is in flight takes the skips back. The step in flight keeps what it was given:
// it was dispatched in order, without what was skipped then.
func TestRule03ARedoTakesASkipBackAndKeepsWhatRuns(t *testing.T) {
	w := submit(t, "a; b after a; c after b")
	w.act(perdure.VerbSkip, "a")
	w.claim("b")
	w.undo()
	w.is("a", "undone waiting")
	w.redo()
	w.is("a", "undone ready")
	w.report("b", done)
	w.is("b", "done waiting") // for a, once more
	w.is("c", "undone waiting")
	w.run("a")
	w.is("b", "done settled")
	w.that(w.step("b").Run == 1, "b was dispatched twice")
	w.run("c")
	w.jobIs("done settled")
}

func TestRule04AFailureInADirectionNoLongerWanted(t *testing.T) { // F066
	w := submit(t, "a undo attempts 2 or restart:3")
	w.claim("a")
	w.undo()
	w.report("a", failed)
	w.is("a", "unsure ready") // at once, no backoff
	w.that(w.step("a").Failures == 0 && w.job.Restarts == 0, "the policy of the do was applied: %d failures", w.step("a").Failures)
	w.that(w.past[len(w.past)-1].Event == "failed", "the failure is not in the history")
	w.that(w.claim("a").Direction == perdure.Undo, "it does not turn round")
}

func TestRule04ASuccessInADirectionNoLongerWanted(t *testing.T) { // F066
	w := submit(t, "a undo")
	w.claim("a")
	w.undo()
	beat, _ := w.beat(0, "host", 1)
	w.that(beat.Stop, "the agent is not told to stop")
	w.report("a", done, output(`1`))
	w.is("a", "done ready")
	w.that(string(w.claim("a").Output) == "1", "the undo is not handed the output")
}

func TestRule05AFlipUnparksAndStartsOver(t *testing.T) {
	w := submit(t, order)
	w.claim("reserve")
	w.report("reserve", failed)
	w.is("reserve", "unsure parked")
	w.jobIs("unsure parked")
	w.undo()
	w.is("reserve", "unsure ready")
	w.that(len(w.alerts) == 0 && w.step("reserve").Failures == 0, "alerts %v", w.alerts)
	before := w.job
	w.undo() // already desired
	w.that(w.job == before, "a flip to the same pole changed something")
	w.conflict(w.tryAct(perdure.VerbResume, ""))
	w.claim("reserve")
	w.report("reserve", failed)
	w.act(perdure.VerbResume, "reserve")
	w.that(w.claim("reserve").Direction == perdure.Undo, "resume forgot the direction")
	w.conflict(w.tryAct(perdure.VerbResume, "ship"))
}

func TestRule05AFlipClearsTheTimeToWait(t *testing.T) {
	w := submit(t, "a undo attempts 9")
	w.claim("a")
	w.report("a", failed, retryAfter(time.Hour))
	w.is("a", "unsure waiting")
	w.that(w.step("a").AvailableAt.Equal(w.now.Add(time.Hour)), "retryAfter is not heeded")
	w.undo()
	w.is("a", "unsure ready")
}

func TestRule06TheLadderOnTheWayBack(t *testing.T) { // F089
	for _, rung := range []string{"undo", "restart:5", "skip", "park"} {
		w := submit(t, "a undo or alert:ops,wait:1,"+rung)
		w.run("a")
		w.undo()
		w.claim("a")
		w.report("a", failed)
		w.that(slices.Equal(w.open("a"), []perdure.AlertKind{perdure.AlertNamed, perdure.AlertWaiting}), "alerts %v", w.open("a"))
		w.wait(tick)
		w.claim("a")
		w.report("a", failed)
		w.is("a", "unsure parked")
		w.that(w.job.Desired == perdure.Undone && w.job.Restarts == 0 && !w.step("a").Skipped, "%s acted on the way back", rung)
		w.conflict(w.tryAct(perdure.VerbSkip, "a"))
		w.act(perdure.VerbSettle, "a", as(perdure.Undone))
		w.jobIs("undone settled")
	}
}

func TestRule07Settle(t *testing.T) { // F045
	w := submit(t, order)
	w.claim("reserve")
	w.conflict(w.tryAct(perdure.VerbSettle, "reserve", as(perdure.Done)))
	w.wait(tick)
	w.act(perdure.VerbSettle, "reserve", as(perdure.Undone)) // not what is desired
	w.is("reserve", "undone ready")
	w.act(perdure.VerbSettle, "reserve", as(perdure.Done), with0(`{"id":1}`))
	w.is("reserve", "done settled")
	w.that(strings.Contains(string(w.claim("charge").Input), `{\"id\":1}`), "charge does not see the output")
	w.conflict(w.tryAct(perdure.VerbSettle, "reserve", as(perdure.Undone)))
	w.act(perdure.VerbSettle, "reserve", as(perdure.Done)) // it already is
	w.refusedAs(w.tryAct(perdure.VerbSettle, "ship", as(perdure.Unsure)), perdure.CodeInvalid)
	w.refusedAs(w.tryAct(perdure.VerbSettle, "ship", as(perdure.Undone), with0(`1`)), perdure.CodeInvalid)
}

func TestRule07SettleOfARunThatNobodyHasSweptYet(t *testing.T) {
	w := submit(t, "a undo; b after a")
	w.claim("a")
	w.now = w.now.Add(tick)
	w.act(perdure.VerbSettle, "a", as(perdure.Done))
	w.is("a", "done settled")
	w.that(w.past[0].Event == "expired", "the expiry is not in the history")
	w.that(w.tries("a", 1, done).Reason == protocol.RefusedLate, "a late report")
}

func TestRule07GiveUp(t *testing.T) {
	w := submit(t, "a undo; b after a undo; c after a")
	w.run("a")
	w.claim("b")
	w.conflict(w.tryAct(perdure.VerbGiveUp, ""))
	w.wait(tick)
	w.act(perdure.VerbGiveUp, "")
	w.jobIs("unsure settled")
	w.is("b", "unsure settled")
	w.that(w.step("b").GivenUp && !w.step("a").GivenUp && w.job.GivenUpBy == "ann", "not marked")
	w.that(len(w.alerts) == 0, "alerts are open")
	w.conflict(w.tryAct(perdure.VerbSettle, "b", as(perdure.Done)))
	w.conflict(w.tryAct(perdure.VerbResume, ""))
	w.act(perdure.VerbGiveUp, "") // it is
	w.redo()                      // the pole already desired, and yet it opens the job
	w.is("b", "unsure ready")
	w.that(!w.step("b").GivenUp && !w.job.GivenUp(), "still marked")
	w.run("b", "c")
	w.jobIs("done settled")
	w.conflict(w.tryAct(perdure.VerbGiveUp, ""))
}

func TestRule08AParkedAlertIsClosedByWhatUnparks(t *testing.T) {
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
		w.that(slices.Equal(w.open("a"), []perdure.AlertKind{perdure.AlertParked}), "%s: alerts %v", name, w.open("a"))
		act(w)
		w.that(len(w.alerts) == 0, "%s: alerts %v", name, w.alerts)
	}
}

func TestRule08AlertsOfAnUndoByPolicyCloseWhenTheJobRests(t *testing.T) {
	w := submit(t, "onFailure undo; a undo; b after a undo")
	w.run("a")
	w.claim("b")
	w.report("b", failed, noEffect)
	w.that(slices.Equal(w.open("b"), []perdure.AlertKind{perdure.AlertUndo}), "alerts %v", w.open("b"))
	w.claim("a")
	w.report("a", failed)
	w.that(slices.Equal(w.open("a"), []perdure.AlertKind{perdure.AlertParked}) && w.open("b") == nil, "alerts %v", w.alerts)
	w.resume()
	w.run("a")
	w.jobIs("undone settled")
	w.that(len(w.alerts) == 0, "alerts %v", w.alerts)
}

func TestRule09Restart(t *testing.T) {
	w := submit(t, "a undo; b after a undo or restart:1")
	w.run("a")
	w.claim("b")
	w.report("b", failed, noEffect)
	w.that(w.job.Then && w.job.Desired == perdure.Undone, "it does not go back to come again")
	w.claim("a")
	w.that(!w.job.AtRest(), "at rest on its way")
	w.report("a", done)
	w.jobIs("unsure waiting")
	w.that(w.job.Desired == perdure.Done && !w.job.Then && w.job.Permit, "it does not turn again")
	w.run("a")
	w.claim("b")
	w.report("b", failed, noEffect) // N counts over the job's life
	w.is("b", "undone parked")
	w.that(w.job.Restarts == 1, "%d restarts", w.job.Restarts)
}

func TestRule09ARestartThatIsOverdue(t *testing.T) {
	w := submit(t, "within 5s; a undo; b after a or restart:1")
	w.run("a")
	w.claim("b")
	w.report("b", failed)
	w.wait(5 * time.Second)
	w.that(slices.Contains(w.open(""), perdure.AlertOverdue) && w.job.Then, "alerts %v", w.alerts)
	w.run("a")
	w.is("a", "undone ready") // it turned again, and is overdue
	w.cannotClaim("a")
	w.sweep()
	w.is("a", "undone parked")

	w = submit(t, "onFailure restart:1,undo; within 5s; a undo; b after a")
	w.run("a")
	w.claim("b")
	w.report("b", failed)
	w.wait(5 * time.Second)
	w.that(!w.job.Then, "onFailure is undo, and its time is up: it is not done again")
	w.run("a")
	w.jobIs("undone settled")
}

func TestRule09AnOperatorsFlipClearsThen(t *testing.T) {
	for _, verb := range []perdure.Verb{perdure.VerbUndo, perdure.VerbRedo} {
		w := submit(t, "a undo; b after a undo or restart:1")
		w.run("a")
		w.claim("b")
		w.report("b", failed)
		w.act(verb, "")
		w.that(!w.job.Then, "it would turn again after %s", verb)
	}
}

func TestRule10CompleteWithin(t *testing.T) {
	w := submit(t, "within 15s; a undo; b after a undo; c")
	w.run("a")
	w.wait(tick)
	run := w.claim("b")
	w.that(run.CompleteBy.Equal(dawn.Add(15*time.Second)), "the run has until %s", run.CompleteBy)
	w.wait(5 * time.Second)
	w.jobIs("unsure parked")
	w.that(slices.Contains(w.open(""), perdure.AlertParked), "no alert of the job: %v", w.alerts)
	w.wait(time.Hour) // it stands still
	w.act(perdure.VerbResume, "b")
	w.that(w.job.CompleteBy.Equal(w.now.Add(15*time.Second)), "resume gives it until %s", w.job.CompleteBy)
	w.is("c", "undone parked")
	w.act(perdure.VerbResume, "c")
	w.that(len(w.alerts) == 0, "alerts %v", w.alerts)
	w.run("b", "c")
	w.jobIs("done settled")
}

func TestRule10OverdueByPolicyAndOnTheWayBack(t *testing.T) {
	w := submit(t, "onFailure undo; within 15s; a undo; b after a undo")
	w.run("a")
	w.wait(15 * time.Second)
	w.that(w.job.Desired == perdure.Undone, "onFailure is undo")
	w = submit(t, "within 15s; a undo")
	w.run("a")
	w.redo()
	w.undo() // of a job that had met it: no deadline
	w.that(w.job.CompleteBy.IsZero(), "an deadline for the undo of a finished job")
	w = submit(t, "within 15s; a undo; b after a")
	w.run("a")
	w.undo()
	w.wait(15 * time.Second)
	w.that(slices.Equal(w.open(""), []perdure.AlertKind{perdure.AlertOverdue}), "alerts %v", w.alerts)
	w.run("a")
	w.jobIs("undone settled")
}

func TestRule10NothingIsDispatchedPastTheDeadline(t *testing.T) {
	w := submit(t, "within 15s; a undo")
	w.now = w.now.Add(15 * time.Second)
	w.cannotClaim("a")
	w.sweep()
	w.is("a", "undone parked")
}

func TestRule10AnUndoToBeFinishedParksToo(t *testing.T) {
	w := submit(t, "within 5s; a undo")
	w.run("a")
	w.undo()
	w.claim("a")
	w.redo()
	w.wait(5 * time.Second) // the job's time is up, the run's is not
	w.report("a", returned, cutShort)
	w.is("a", "unsure parked") // and not ready for ever
	w.resume()
	w.run("a", "a")
	w.jobIs("done settled")
}

func TestRule10AParkedJobThatParksAgainStandsStill(t *testing.T) {
	w := submit(t, "within 30s; a undo; b after a when a undo")
	w.claim("a")
	w.report("a", done, output(`"bad"`))
	w.is("b", "undone parked") // its when fails
	w.wait(time.Hour)
	w.resume() // and fails again, within the same event
	w.is("b", "undone parked")
	w.wait(time.Hour)
	w.undo()
	w.that(w.job.CompleteBy.Equal(w.now.Add(30*time.Second)), "the deadline came nearer while parked: %s left", w.job.CompleteBy.Sub(w.now))
}

func TestRule11Permits(t *testing.T) { // F029 F134 F135
	w := submit(t, "a undo; b after a")
	w.limits.Add(Limit{Name: JobLimit("order"), Max: 1, PerKey: Unbounded, Used: 1})
	w.cannotClaim("a")
	w.limits.limits[JobLimit("order")].Used = 0
	w.claim("a")
	w.that(w.job.Permit && w.limits.limits[JobLimit("order")].Used == 1, "no permit is taken")
	w.limits.limits[JobLimit("order")].Max = 0 // lowered: kills nothing
	w.report("a", returned)
	w.claim("a") // with the permit that it holds
	w.that(w.limits.limits[JobLimit("order")].Used == 1, "a second permit is taken")
	w.report("a", failed)
	w.that(!w.job.Permit, "a parked job holds a permit")
	w.undo()
	w.cannotClaim("a") // it takes one in either direction
	w.limits.limits[JobLimit("order")].Max = 2
	w.limits.Add(Limit{Name: AgentLimit("ag"), Max: 1, PerKey: Unbounded, Used: 1})
	w.cannotClaim("a")
	w.limits.limits[AgentLimit("ag")].Used = 0
	w.claim("a")
	w.report("a", failed)
	w.act(perdure.VerbSettle, "a", as(perdure.Undone))
	w.that(!w.job.Permit, "a settled job holds a permit")
}

func TestRule12AnExpressionThatFails(t *testing.T) { // F032
	w := submit(t, "a undo; b after a reads a attempts 5 or wait:3,alert:ops,park; c after b")
	w.claim("a")
	w.report("a", done, output(`"bad"`))
	w.cannotClaim("b")
	w.is("b", "undone parked") // retry and wait are pointless
	s := w.step("b")
	w.that(s.Run == 0 && s.Failures == 1 && s.ErrorCode == "expression", "run %d, %d failures, code %s", s.Run, s.Failures, s.ErrorCode)
	w.that(slices.Equal(w.open("b"), []perdure.AlertKind{perdure.AlertNamed, perdure.AlertParked}), "alerts %v", w.open("b"))
}

func TestRule12WhenFailsInSeveralStepsAtOnce(t *testing.T) {
	w := submit(t, "onFailure restart:3; a undo; b after a when a; c after a when a; d after a when a")
	w.claim("a")
	w.report("a", done, output(`"bad"`))
	w.that(w.job.Restarts == 1 && len(w.alerts) == 1, "%d restarts for one going back, alerts %v", w.job.Restarts, w.alerts)
}

func TestRule13SleepAndApprovalAreNeverLetOut(t *testing.T) {
	w := submit(t, "s sleep; p after s approval; a after p undo")
	w.jobIs("undone waiting")
	w.cannotClaim("s")
	w.wait(tick)
	w.is("s", "done settled")
	w.is("p", "undone waiting")
	w.jobIs("undone parked") // only a person can move it
	w.that(slices.Equal(w.open("p"), []perdure.AlertKind{perdure.AlertApproval}), "alerts %v", w.alerts)
	w.act(perdure.VerbSettle, "p", as(perdure.Undone)) // not yet
	w.that(slices.Equal(w.open("p"), []perdure.AlertKind{perdure.AlertApproval}), "alerts %v", w.alerts)
	w.act(perdure.VerbSettle, "p", as(perdure.Done))
	w.that(len(w.alerts) == 0, "alerts %v", w.alerts)
	w.run("a")
	w.undo()
	w.run("a")
	w.jobIs("undone settled")
	w.that(w.step("s").Run == 0 && w.step("p").Run == 0, "a rule was dispatched")
}

func TestRule13AnApprovalEnds(t *testing.T) {
	w := submit(t, "p approval lasts or undo")
	w.jobIs("undone waiting")
	w.wait(tick)
	w.jobIs("undone settled")
	w.that(w.job.Desired == perdure.Undone && len(w.alerts) == 0, "alerts %v", w.alerts)
}

func TestRule13ASleepThatWasParkedSleepsOn(t *testing.T) {
	w := submit(t, "within 4s; s sleep; p approval lasts")
	w.wait(4 * time.Second)
	w.is("s", "undone parked")
	w.is("p", "undone parked")
	w.that(slices.Equal(w.open(""), []perdure.AlertKind{perdure.AlertParked}) && w.open("p") == nil, "alerts %v", w.alerts)
	w.wait(time.Second)
	w.resume()
	w.is("s", "undone waiting")
	w.that(w.step("s").AvailableAt.Equal(dawn.Add(tick)), "until %s", w.step("s").AvailableAt)
	w.that(w.step("p").AvailableAt.Equal(w.now.Add(tick)), "asked anew, until %s", w.step("p").AvailableAt)
	w.that(slices.Equal(w.open("p"), []perdure.AlertKind{perdure.AlertApproval}) && w.open("") == nil, "alerts %v", w.alerts)
}

func TestRule14Edit(t *testing.T) {
	w := submit(t, "a undo")
	first := w.claim("a")
	w.conflict(w.tryAct(perdure.VerbEdit, "a", input(`1`)))
	w.report("a", failed)
	w.act(perdure.VerbResume, "a", input(`"mended"`))
	second := w.claim("a")
	w.that(second.Key == first.Key && string(second.Input) == `"mended"`, "%+v", second)
	w.report("a", failed)
	w.act(perdure.VerbEdit, "a", newKey)
	w.is("a", "undone parked")
	w.that(w.step("a").Turn == 2, "turn %d", w.step("a").Turn)
	w.resume()
	third := w.claim("a")
	w.that(third.Key != first.Key && third.Number == 3 && string(third.Input) == `"mended"`, "%+v", third)
	w.report("a", done)
	w.undo()
	back := w.claim("a")
	w.that(back.DoKey == third.Key, "undoes %s", back.DoKey)
	w.report("a", failed)
	w.conflict(w.tryAct(perdure.VerbEdit, "a", newKey)) // an undo has the key of its turn
	w.refusedAs(w.tryAct(perdure.VerbEdit, "a", input(``)), perdure.CodeInvalid)
	w.refusedAs(w.tryAct(perdure.VerbResume, "a", input(``)), perdure.CodeInvalid)
	w.act(perdure.VerbEdit, "a", input(`"gently"`))
	w.resume()
	w.that(string(w.claim("a").Input) == `"gently"`, "the undo cannot be edited")
}

// After an undo, the next do run has a new key in any case: asking for one does not change the key that the undo had.
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
	w.that(w.step("b").Key() == undone.Key, "the key of the undo is %s, and was %s", w.step("b").Key(), undone.Key)
	w.that(strings.Contains(w.past[len(w.past)-1].Detail, "new key "+w.step("b").path(3)), "%+v", w.past[len(w.past)-1])
	w.that(w.claim("b").Key == w.step("b").path(3), "the key is %s", w.step("b").Key())
}

func TestRule15ACrashCountsAndADrainDoesNot(t *testing.T) { // F049
	w := submit(t, "a undo attempts 2")
	w.claim("a")
	w.lose("a")
	w.that(w.step("a").Failures == 1, "a crash counts as %d", w.step("a").Failures)
	w.is("a", "unsure waiting")
	w.wait(tick)
	w.claim("a")
	w.report("a", returned, cutShort)
	w.that(w.step("a").Failures == 1, "a drain counts")
	w.is("a", "unsure ready")
	w.claim("a")
	w.lose("a")
	w.is("a", "unsure parked")
}

func TestReturnedRunsBackOffFromTheThirdOn(t *testing.T) {
	w := submit(t, "a undo")
	for range 2 {
		w.claim("a")
		w.report("a", returned)
		w.is("a", "undone ready")
	}
	w.claim("a")
	w.report("a", returned)
	w.is("a", "undone waiting")
	w.that(w.step("a").Failures == 0 && w.step("a").Returns == 3, "failures are counted")
	w.undo() // never started, so there is nothing to undo
	w.jobIs("undone settled")
}

func TestADeadHoldersRunMayStillAct(t *testing.T) { // F091: a run the other way waits for the old lock
	w := submit(t, "a undo attempts 3")
	w.claim("a")
	w.lose("a")
	w.undo()
	w.is("a", "unsure waiting")
	w.that(w.step("a").AvailableAt.Equal(dawn.Add(tick)), "until %s", w.step("a").AvailableAt)
	w.wait(tick)
	w.is("a", "unsure ready")

	w = submit(t, "a undo")
	w.claim("a")
	w.lose("a")
	w.conflict(w.tryAct(perdure.VerbEdit, "a", newKey)) // it may act under the old one
	w.resume()
	w.claimBeating("a", tick/5) // the same way at once; the old lock is not forgotten over it
	w.wait(time.Second)
	w.report("a", done)
	w.undo()
	w.is("a", "done waiting")
	w.wait(tick - time.Second)
	w.is("a", "done ready")
}

func TestAHeartbeatNeverRevives(t *testing.T) { // F042 F043
	w := submit(t, "a undo")
	run := w.claimBeating("a", tick/2)
	w.that(run.LockedUntil.Equal(dawn.Add(tick/2)) && run.CompleteBy.Equal(dawn.Add(tick)), "%+v", run)
	w.now = w.now.Add(4 * time.Second)
	res, _ := w.beat(0, "host", 1)
	w.that(!res.Stop && res.LockedUntil.Equal(dawn.Add(9*time.Second)), "%+v", res)
	w.now = w.now.Add(4 * time.Second)
	res, _ = w.beat(0, "host", 1)
	w.that(res.LockedUntil.Equal(run.CompleteBy), "past the deadline: %+v", res)
	w.now = w.now.Add(2 * time.Second)
	res, _ = w.beat(0, "host", 1)
	w.that(res.Stop && res.Reason == string(protocol.RefusedLate), "%+v", res)
}

func TestAClaimIsGivenAgainWhileItsRunIsValid(t *testing.T) { // F019
	w := submit(t, "a undo; b after a reads a")
	w.run("a")
	req := protocol.Claim{Agent: "ag", Holder: "host", RequestID: "r1"}
	run, _ := w.claimAs(1, req)
	again := func(req protocol.Claim) (got *perdure.Run) {
		w.event(func(ws *Workset) {
			refs := ws.ClaimRefs(w.ref(1))
			ws.AddPayloads(refs, w.payloads(refs))
			var err error
			got, err = ws.Again(w.ref(1), &req)
			must(t, err)
		})
		return got
	}
	w.now = w.now.Add(time.Second)
	got := again(req)
	w.that(got != nil && got.Key == run.Key && got.Number == run.Number && string(got.Input) == string(run.Input) &&
		got.RemainingMs == run.RemainingMs-1000, "%+v, not %+v", got, run)
	w.that(again(protocol.Claim{Agent: "ag", Holder: "host", RequestID: "r2"}) == nil, "another request gets it")
	w.report("b", done)
	w.that(again(req) == nil, "it was reported")
}

func TestRetriesEndAndDoNotStartEarly(t *testing.T) { // F085
	w := submit(t, "a undo attempts 4")
	for n, backoff := range []time.Duration{tick, 2 * tick, 4 * tick} {
		w.claim("a")
		w.report("a", failed)
		w.that(w.step("a").AvailableAt.Equal(w.now.Add(backoff)), "attempt %d waits %s", n+2, w.step("a").AvailableAt.Sub(w.now))
		w.wait(backoff)
	}
	w.claim("a")
	w.report("a", failed, code("NO"))
	w.is("a", "unsure parked")
}

// One transaction holds many events: a later one sees what an earlier one made, whether it was loaded before or
// after, and whether or not the changes were taken in between.
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
				w.that(res.Accepted && ws.Missing().Empty(), "%+v, missing %+v", res, ws.Missing())
			}
			claim := func(i int) *perdure.Run {
				run, err := ws.Claim(w.ref(i), &protocol.Claim{Agent: "ag", Holder: "host"}, &Admission{}, perdure.MaxAnswerBytes)
				must(t, err)
				return run
			}
			report(0, 1, `1`)
			load() // what the store has is older
			take()
			do := claim(1)
			w.that(string(do.Input) == `"b a=1"`, "input %s", do.Input)
			take()
			report(1, 1, `2`)
			take()
			must(t, ws.Act(job.ID, -1, &perdure.Act{Verb: perdure.VerbUndo, Author: "ann"}))
			take()
			back := claim(1)
			w.that(string(back.Input) == `"b a=1"` && string(back.Output) == `2`, "taken %v, loaded %v: %+v", taken, loadedFirst, back)
			w.write(ws.Changes())
			w.compare(ws)
			w.tell(&Changes{}, "all of it")
		}
	}
}

// unwell is a condition that cannot be evaluated.
type unwell struct{}

func (unwell) Refs() []int               { return nil }
func (unwell) Eval(*Scope) (bool, error) { return false, errors.New("bad") }

// A job that turns back in the event that made it, or that turned it, comes to rest like any other: its
// alerts are closed, and it is known when. (Found by the simulation: they stayed open for ever.)
func TestTurnsBackAtOnce(t *testing.T) { // I11
	w := newWorld(t, "onFailure undo; a")
	w.plan.Steps[0].Test = unwell{}
	w.accept()
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
